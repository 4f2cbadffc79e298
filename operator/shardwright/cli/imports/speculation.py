"""vLLM's options for drafting, as fields of a ShardedModel.

Methods that cannot be planned, and heads without a commit, are reported instead.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from shardwright.api.weights import COMMIT, MODEL_ID

_MTP: Final = re.compile(r"([a-z0-9_]+_)?mtp", re.ASCII)
"""vLLM's names for a model's own MTP layers; those with a family are older.

Source: vLLM 0.33 ``config/speculative.py:MTPModelTypes``.
"""

_HEADS: Final = {"eagle3": "EAGLE3", "draft_model": "DraftModel"}

_UNTOLD: Final = (
    "write spec.engine.speculation with method {method} and {head} as its head: a head needs "
    "a uri (hf://ID@COMMIT, or pvc:// and a claim), and an EAGLE-3 head its config"
)

_BY_NAME: Final = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
"""The method that vLLM infers from a part of the draft model's name, in this order.

Source: vLLM 0.33 ``config/speculative.py:__post_init__``.
"""

_LOOKUPS: Final = ("ngram", "[ngram]")
"""vLLM's names for drafts from the prompt, as a method or in place of a model."""

_MOST_DRAFTS: Final = 16
"""The most tokens that ``engine.speculation.tokens`` takes."""

_TOKENS: Final = "num_speculative_tokens"
_SHOWN: Final = 40  # characters of a foreign word
_NAMED: Final = 5  # foreign names; the rest are counted


def speculation_of_config(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return ``engine.speculation`` for the value of ``--speculative-config``, and what is left
    out.

    >>> speculation_of_config('{"method": "mtp", "num_speculative_tokens": 3}')
    ({'method': 'MTP', 'tokens': 3}, '')
    >>> speculation_of_config('{"method": "medusa", "model": "org/head"}')
    (None, 'drafts by medusa are not planned')
    """
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None, "it is no JSON"
    if not isinstance(told, dict):
        return None, "it is no JSON object"
    rest = {name.replace("-", "_"): value for name, value in told.items() if value is not None}
    head = rest.pop("model", None)
    said = _meant(rest.pop("method", None), head)
    method = _method(said)
    if method is None:
        shown = str(said or "what it does not name")[:_SHOWN]
        return None, f"drafts by {shown} are not planned"
    field: dict[str, Any] = {"method": method}
    if _fits(rest.get(_TOKENS)):
        field["tokens"] = rest.pop(_TOKENS)
    if method in _HEADS.values():
        if not isinstance(head, str) or not re.fullmatch(MODEL_ID, head):
            return None, "it names no head or draft model of the hub"
        commit = rest.pop("revision", None)
        if method != "DraftModel" or not re.fullmatch(COMMIT, str(commit)):
            return None, _UNTOLD.format(method=method, head=head)
        field["head"] = {"id": head, "uri": f"hf://{head}@{commit}"}
    elif head is not None and head not in _LOOKUPS:
        rest["model"] = head
    return field, _not_carried(rest)


def _meant(said: object, head: object) -> object:
    """Return the method that vLLM infers from the drafter's name, if it is not stated."""
    if not isinstance(head, str) or said not in (None, "draft_model"):
        return said
    if said is None and head in _LOOKUPS:
        return head
    names = (method for part, method in _BY_NAME.items() if part in head.lower())
    return next(names, "draft_model")


def _method(said: object) -> str | None:
    if not isinstance(said, str):
        return None
    if said in _LOOKUPS:
        return "PromptLookup"
    return "MTP" if _MTP.fullmatch(said) else _HEADS.get(said)


def _fits(tokens: object) -> bool:
    whole = isinstance(tokens, int) and not isinstance(tokens, bool)
    return whole and tokens in range(1, _MOST_DRAFTS + 1)


def _not_carried(rest: dict[str, Any]) -> str:
    others = sorted(name[:_SHOWN] for name in rest.keys() - {_TOKENS})
    shown = ", ".join(others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    reasons = [f"{shown}{more}: no field says it"] if others else []
    if _TOKENS in rest:
        reasons.append(f"{_TOKENS}: tokens takes 1 to {_MOST_DRAFTS}")
    return "; ".join(reasons)
