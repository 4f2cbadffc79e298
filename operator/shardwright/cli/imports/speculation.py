"""What vLLM is told of drafting, in the words of a ShardedModel."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from shardwright.api.model import COMMIT, MODEL_ID

_MTP: Final = re.compile(r"([a-z0-9_]+_)?mtp", re.ASCII)
"""What vLLM calls a model's own MTP layers; the names with a family are older ones of the same.

Source: vLLM 0.33 ``config/speculative.py:MTPModelTypes``.
"""

_HEADS: Final = {"eagle3": "EAGLE3", "draft_model": "DraftModel"}

_UNTOLD: Final = (
    "write spec.workload.speculation with method {method} and {head} as its head: a head needs "
    "the commit of its repository (head.revision) or a claim, and an EAGLE-3 head its config"
)

_MOST_DRAFTS: Final = 16
"""Tokens that ``workload.speculation.tokens`` takes."""


def speculation_of_config(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return ``workload.speculation`` for the value of ``--speculative-config``, and what of the
    value is not in it.

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
    rest = {name.replace("-", "_"): value for name, value in told.items()}
    head, tokens = rest.pop("model", None), rest.pop("num_speculative_tokens", None)
    said = rest.pop("method", "draft_model" if head else None)
    method = _method(said)
    if method is None:
        return None, f"drafts by {said or 'what it does not name'} are not planned"
    field: dict[str, Any] = {"method": method}
    if isinstance(tokens, int) and 1 <= tokens <= _MOST_DRAFTS:
        field["tokens"] = tokens
    if method in _HEADS.values():
        if not isinstance(head, str) or not re.fullmatch(MODEL_ID, head):
            return None, "it names no head or draft model of the hub"
        commit = rest.pop("revision", None)
        if method != "DraftModel" or not re.fullmatch(COMMIT, str(commit)):
            return None, _UNTOLD.format(method=method, head=head)
        field["head"] = {"id": head, "revision": commit}
    return field, _not_carried(rest)


def _method(said: object) -> str | None:
    """Return the method of a ShardedModel that is vLLM's of this name."""
    if not isinstance(said, str):
        return None
    if said == "ngram":
        return "PromptLookup"
    return "MTP" if _MTP.fullmatch(said) else _HEADS.get(said)


def _not_carried(rest: dict[str, Any]) -> str:
    names = ", ".join(sorted(name[:40] for name in rest)[:5])
    return f"{names}: no field says it" if names else ""
