"""vLLM's command line in a container: found in its command, args or script, and carried over option
by option.

An option without a place in a ShardedModel is noted as left out, none is refused. No script is run:
only the container's variables are filled in.

vLLM's options for drafting, as fields of a ShardedModel.

Methods that cannot be planned, and heads without a commit, are reported instead.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

from shardwright.api.weights_source import COMMIT, MODEL_ID
from shardwright.cli.imports.draft import Draft
from shardwright.engines.policy import UNLISTED, Option, option_table
from shardwright.engines.vllm.policy import POLICY, RULES
from shardwright.engines.vllm.releases import NEWEST_DEFAULT

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


Value = str | bool
"""Of an option; True for a switch."""

SHELLS: Final = frozenset({"sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash"})
ENTRY_POINTS: Final = frozenset({"vllm.entrypoints.openai.api_server", "dynamo.vllm"})
"""Modules whose options are vLLM's: its own, and Dynamo's worker."""

SHORT: Final[Mapping[str, str]] = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-q": "quantization",
}
"""Short forms of options. Source: vLLM's parser."""

DEGREE_OF: Final[Mapping[str, str]] = {
    "tensor-parallel-size": "tensor",
    "pipeline-parallel-size": "pipeline",
    "data-parallel-size": "dataParallelAttention",
    "decode-context-parallel-size": "context",
}

_MOST_KEYS: Final = 8  # of one option, after its name; vLLM's configurations have 3
_MOST_BRACKETS: Final = 64  # of one value, which has a few

_ENDS: Final = re.compile(r"[;&|\n]+")
_MODEL_OPTION: Final = re.compile(r"--model(=|$)")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
_SUFFIX: Final = {"k": 10**3, "m": 10**6, "K": 2**10, "M": 2**20}
_QUANTIZATIONS: Final = {"fp8": "FP8"}
_DTYPES: Final = {"bfloat16": "BF16", "float16": "FP16", "half": "FP16"}
_LOAD_FORMATS: Final = {
    "auto": "Auto",
    "safetensors": "Safetensors",
    "fastsafetensors": "FastSafetensors",
    "runai_streamer": "RunAIStreamer",
    "sharded_state": "ShardedState",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a container starts vLLM: its model (None: not named), its options in order, and the rest
    of the script, which starts something else.

    Words that belong to no option are options without a name.
    """

    model: str | None
    options: tuple[tuple[str, Value], ...]
    rest: tuple[str, ...] = ()


def launch_of(words: Sequence[str], variables: Mapping[str, str]) -> Launch | None:
    """Return how a command starts vLLM, None if it starts something else.

    Raises:
        ValueError: its script has unclosed quotes.

    >>> launch = launch_of(["sh", "-c", "prepare; vllm serve org/m -tp 2 --enforce_eager"], {})
    >>> launch.model, launch.options, launch.rest
    ('org/m', (('tensor-parallel-size', '2'), ('enforce-eager', True)), ('prepare',))
    """
    commands = list(_commands(words, variables))
    for index, candidate in enumerate(commands):
        start = _start(candidate)
        if start is not None:
            before, after = candidate[: start[0]], candidate[start[1] :]
            others = (*commands[:index], before, *commands[index + 1 :])
            rest = tuple(" ".join(other) for other in others if other and other != ["exec"])
            return launch_with(after, rest)
    return None


def launch_with(words: Sequence[str], rest: tuple[str, ...] = ()) -> Launch:
    """Return the launch by the words after ``vllm serve``."""
    options = list(_options(words))
    named = [index for index, (name, value) in enumerate(options) if _names_a_model(name, value)]
    model = options.pop(named[0])[1] if named else None
    return Launch(
        model=model if isinstance(model, str) else None, options=tuple(options), rest=rest
    )


def _names_a_model(name: str, value: Value) -> bool:
    return name in {"", "model"} and isinstance(value, str)


def _commands(words: Sequence[str], variables: Mapping[str, str]) -> Iterator[list[str]]:
    known = [_substituted(word, variables) for word in words]
    if not (
        known
        and known[0] in SHELLS
        and any(word.startswith("-") and "c" in word for word in known[1:2])
    ):
        yield known
        return
    # The script is one word; the one after it is its name, the others its parameters.
    script, parameters = "".join(known[2:3]), known[4:]
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars=";&|\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if _ENDS.fullmatch(word):
            yield command
            command = []
        elif word == "$@":
            command += parameters
        else:
            command.append(word)
    yield command


def _substituted(word: str, variables: Mapping[str, str]) -> str:
    return re.sub(
        r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)",
        lambda found: variables.get(next(filter(None, found.groups())), found[0]),
        word,
    )


def _start(words: Sequence[str]) -> tuple[int, int] | None:
    """Return from which word on vLLM is started, and where its options begin."""
    for index, word in enumerate(words):
        if word in ENTRY_POINTS:
            return index - 2 if words[index - 1 : index] == ["-m"] else index, index + 1
        if word.rpartition("/")[2] == "vllm" and words[index + 1 : index + 2] == ["serve"]:
            return index, index + 2
    # They go to the image's own entry point, which may be another program's.
    bare = bool(words) and words[0].startswith("--")
    return (0, 0) if bare and any(_MODEL_OPTION.match(word) for word in words) else None


def _options(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """Yield options by name without dashes; the name of any other word is empty."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            yield "", word
            continue
        name, has_value, value = word.partition("=")
        name = SHORT.get(name) or name.lstrip("-").replace("_", "-")
        if has_value:
            yield name, value
            continue
        taken = list(takewhile(_is_value, rest[: _most_values(name)]))
        del rest[: len(taken)]
        yield name, " ".join(taken) if taken else True


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NUMBER.fullmatch(word) is not None


def _most_values(name: str) -> int | None:
    """Return how many words an option takes at most, None for any number."""
    option = _known().get(name)
    if option is None:
        return 0 if _known().get(name.removeprefix("no-")) else 1
    return None if option.many else 0 if option.switch else 1


def _known() -> Mapping[str, Option]:
    return option_table(NEWEST_DEFAULT, RULES.tables) or {}


def carry_options(draft: Draft, options: Sequence[tuple[str, Value]], path: str) -> None:
    """Add vLLM's options to a draft: as fields of the spec, as engine.args, or as left out."""
    for name, value in _whole(_last_of_each(draft, options, path)):
        where = f"{path}: --{name}" if name else f"{path}: {str(value)[:_SHOWN]}"
        if name == "speculative-config":
            _as_speculation(draft, str(value), where)
        elif name == "served-model-name" and " " in str(value):
            _as_field(draft, name, str(value).split()[0], where)
            draft.leave(where, f"{value!s:.80}: a model has one name, the first")
        elif name in DEGREE_OF and (degree := whole_number(value)) is not None:
            draft.put_degree(DEGREE_OF[name], degree, where)
        elif not _as_field(draft, name, value, where):
            _as_argument(draft, name, value, where)


def _last_of_each(
    draft: Draft, options: Sequence[tuple[str, Value]], path: str
) -> Iterator[tuple[str, Value]]:
    """Yield options without those that are given again: the last one counts."""
    last = {name: index for index, (name, _) in enumerate(options)}
    for index, (name, value) in enumerate(options):
        if not name or last[name] == index or "." in name:
            yield name, value
        else:
            draft.leave(f"{path}: --{name}", f"{value!s:.40}: it is given again after that")


def _whole(options: Iterable[tuple[str, Value]]) -> Iterator[tuple[str, Value]]:
    """Yield options with those of one name and several keys merged, as vLLM's parser does: they
    replace the whole option, if that is also given.

    Source: vLLM 0.33 ``utils/argparse_utils.py:FlexibleArgumentParser.parse_args``.

    >>> dict(_whole([("speculative-config.method", "mtp"), ("max-model-len", "8")]))
    {'max-model-len': '8', 'speculative-config': '{"method": "mtp"}'}
    >>> dict(_whole([("x.a.b", "null"), ("x.a.c+", "1,2"), ("x", "{}")]))
    {'x': '{"a": {"b": null, "c": ["1", "2"]}}'}
    """
    wholes: dict[str, dict[str, Any]] = {}
    plain: list[tuple[str, Value]] = []
    for name, value in options:
        whole, *keys = name.split(".")
        if 1 <= len(keys) <= _MOST_KEYS:
            _merge(wholes.setdefault(whole, {}), _nested(keys, value))
        else:
            plain.append((name, value))
    yield from (option for option in plain if option[0] not in wholes)
    for whole, told in wholes.items():
        yield whole, json.dumps(told)


def _merge(told: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        before = told.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            _merge(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        else:
            told[key] = value


def _nested(keys: Sequence[str], value: Value) -> dict[str, Any]:
    """Return the value of an option with keys; a last key that ends in ``+`` has a list."""
    *parents, last = (key.replace("-", "_") for key in keys)
    name = last.removesuffix("+")
    nested = {name: _of_key(value) if name == last else str(value).split(",")}
    for key in reversed(parents):
        nested = {key: nested}
    return nested


def _of_key(value: Value) -> Any:
    """Return the value of one key: JSON, a number with a suffix, or a word.

    >>> [_of_key(value) for value in ("[1, 2]", "true", "True", "2k", "mtp")]
    [[1, 2], True, 'True', 2000, 'mtp']
    """
    if isinstance(value, bool) or value.count("[") + value.count("{") > _MOST_BRACKETS:
        return value
    try:
        return json.loads(value)
    except ValueError:
        number = _tokens(value)
        return value if number is None else number


def _as_speculation(draft: Draft, value: str, where: str) -> None:
    speculation, why = speculation_of_config(value)
    if speculation:
        draft.put("engine.speculation", speculation, where)
    if why:
        draft.leave(where, why)


def _as_field(draft: Draft, name: str, value: Value, where: str) -> bool:
    """Set the spec's field for an option; return whether there is one for this value."""
    fields: dict[str, tuple[str, Any]] = {
        "max-model-len": ("engine.maxModelLen", _tokens(value)),
        "served-model-name": ("model.servedName", value),
        "revision": ("model.revision", value if re.fullmatch(COMMIT, str(value)) else None),
        "quantization": ("model.quantization", _QUANTIZATIONS.get(str(value))),
        "dtype": ("model.quantization", _DTYPES.get(str(value))),
        "kv-cache-dtype": (
            "engine.kvCacheQuantization",
            "FP8" if str(value).startswith("fp8") else None,
        ),
        "load-format": ("model.loadFormat", _LOAD_FORMATS.get(str(value))),
        "allowed-media-domains": ("engine.mediaDomains", str(value).split()),
        "max-num-seqs": ("workload.concurrency", _tokens(value)),
    }
    if name in {"dtype", "kv-cache-dtype"} and value == "auto":
        return True
    path, said = fields.get(name, ("", None))
    if said is None:
        return False
    if draft.get(path) in (None, said):
        draft.put(path, said, where)
    else:
        draft.leave(where, f"{value!s:.40}: spec.{path} is {draft.get(path)} already")
    return True


def _as_argument(draft: Draft, name: str, value: Value, where: str) -> None:
    positive = name.removeprefix("no-")
    if name == "enable-expert-parallel":
        draft.leave(where, "whether experts are spread is the planner's to choose")
    elif (
        positive in POLICY.allowed
        or name in POLICY.counted
        or value in POLICY.harmless.get(name, ())
        or (positive != name and "false" in POLICY.harmless.get(positive, ()))
    ):
        draft.put(f"engine.args.{positive}", _typed(value if positive == name else False), where)
    elif not name:
        draft.leave(where, "it belongs to no option of vLLM")
    elif name in {"host", "port"}:
        draft.leave(where, "clients reach the model at status.endpoint")
    elif name in POLICY.owned:
        draft.leave(where, POLICY.owned[name].removeprefix("leave it out; "))
    elif name in POLICY.incompatible:
        draft.leave(where, POLICY.incompatible[name])
    elif name in POLICY.admissible:
        draft.leave(
            where,
            f"{POLICY.admissible[name]}; the administrator may admit it (policy.admittedArguments)",
        )
    elif positive in _known():
        draft.leave(where, UNLISTED)
    else:
        draft.leave(where, f"vLLM {NEWEST_DEFAULT} has no such option")


def _typed(value: Value) -> Any:
    """Return a value as YAML types it.

    >>> [_typed(value) for value in (True, "true", "0.5", "3", "hermes")]
    [True, True, 0.5, 3, 'hermes']
    """
    if isinstance(value, bool) or value.lower() in {"true", "false"}:
        return value if isinstance(value, bool) else value.lower() == "true"
    if _NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    return value


def _tokens(value: Value) -> int | None:
    """Return a number of tokens as vLLM reads it.

    >>> _tokens("8192"), _tokens("16k"), _tokens("16K"), _tokens("auto")
    (8192, 16000, 16384, None)
    """
    text = str(value)
    digits, factor = (text[:-1], _SUFFIX[text[-1]]) if text[-1:] in _SUFFIX else (text, 1)
    number = whole_number(digits)
    return None if number is None else number * factor


def whole_number(value: object) -> int | None:
    """Return a whole number of at most nine digits, or such a text as one.

    >>> whole_number("8"), whole_number(8), whole_number("-8"), whole_number("9" * 10)
    (8, 8, None, None)
    """
    text = str(value)
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None
