"""What a user's arguments for vLLM fix in a plan, as on the command line, and which of them no plan
can count with: chunked prefill turned off, unlisted keys of a compilation config.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from shardwright.engines.options import Pins
from shardwright.engines.parser_values import (
    COMPUTED_IN,
    COUNTED,
    COUNTED_MAX,
    STATE_BITS,
    convert,
    invalid,
    readable_int,
)
from shardwright.engines.policy import Policy, canonical
from shardwright.errors import Problem
from shardwright.layouts.layout import EngineOverrides

_COMPILATION: Final = "compilation-config"
_COUNTED_KEYS: Final = frozenset(
    {"cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"}
)
_UNCOUNTED_KEYS: Final = frozenset({"custom_ops", "mode", "pass_config"})
"""Keys of ``--compilation-config`` that a user may set: those that change the captured graphs, and
those that change the speed of kernels. The others name code or files.
"""

_MODES: Final = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_BLOCKS: Final = (16, 32, 64, 128, 256)
_LEAST_UTILIZATION: Final = 0.1  # assumed: less is a slip of the pen


def read_pins(arguments: Mapping[str, object], policy: Policy) -> Pins:
    """Return the pins among checked arguments.

    >>> from shardwright.engines.vllm.policy import POLICY
    >>> read_pins(
    ...     {"dtype": "float32", "kv_cache_memory_bytes": 1073741824, "seed": 1}, POLICY
    ... ) == Pins(dtype="fp32", kv_cache_bytes=1073741824)
    True
    """
    named = {canonical(name): value for name, value in arguments.items()}
    utilization = _number(named.get("gpu-memory-utilization"))
    return Pins(
        dtype=COMPUTED_IN.get(str(named.get("dtype"))),
        state_bits=STATE_BITS.get(str(named.get("mamba-ssm-cache-dtype"))),
        kv_cache_bytes=_whole(named.get("kv-cache-memory-bytes")),
        block_tokens=_whole(named.get("block-size")),
        memory_utilization=utilization,
        language_only=named.get("language-model-only") is True,
        whole_towers=named.get("mm-encoder-tp-mode") == "data",
        told=_told(named, policy),
    )


def _told(named: Mapping[str, object], policy: Policy) -> EngineOverrides:
    compilation = _keys(named.get(_COMPILATION))
    sizes, largest = (
        compilation.get("cudagraph_capture_sizes"),
        compilation.get("max_cudagraph_capture_size"),
    )
    # Both say that no graph is captured, so no memory is counted for graphs.
    nothing = named.get("enforce-eager") is True or compilation.get("cudagraph_mode") == "NONE"
    captured = _sizes(named.get("cudagraph-capture-sizes", sizes))
    return EngineOverrides(
        batched_tokens=_whole(named.get("max-num-batched-tokens")),
        sequences=_whole(named.get("max-num-seqs")),
        captured=() if nothing else captured,
        largest_captured=_whole(named.get("max-cudagraph-capture-size", largest)),
        uncounted=(
            *sorted(named.keys() & policy.uncounted.keys()),
            *(f"{_COMPILATION}.{key}" for key in sorted(compilation.keys() & _UNCOUNTED_KEYS)),
        ),
    )


def _keys(value: object) -> Mapping[str, Any]:
    try:
        found = convert("parse_dataclass", value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        try:
            value = readable_int(value)
        except ValueError:
            return None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= COUNTED_MAX else None


def _number(value: object) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(str(value))
    except ValueError:
        return None


def _sizes(value: object) -> tuple[int, ...] | None:
    listed = value if isinstance(value, list) else str(value).split() if value is not None else []
    found = tuple(size for each in listed if (size := _whole(each)) is not None)
    return found if found and len(found) == len(listed) else None


def check_pins(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return the pins the planner cannot count with, each problem's path the argument's name.

    The engine's parser takes more: 0 for all that is free, and ``None``.
    """
    named = {canonical(name): value for name, value in arguments.items()}
    wrong = [_wrong(name, value) for name, value in arguments.items()]
    return (
        *(problem for problem in wrong if problem),
        *_too_few_tokens(named),
        *_compilation(arguments),
    )


def _wrong(name: str, value: object) -> Problem | None:
    rule = _RULES.get(canonical(name))
    if rule is None or rule[0](value):
        return None
    return invalid(name, value, rule[1], said=f"--{canonical(name)}", remedy=rule[2])


def _is_share(value: object) -> bool:
    found = _number(value)
    return found is not None and _LEAST_UTILIZATION <= found <= 1


def _is_counted(value: object) -> bool:
    return _whole(value) is not None


_A_NUMBER: Final = "write the number"
_RULES: Final[Mapping[str, tuple[Callable[[object], bool], str, str]]] = MappingProxyType(
    {
        "block-size": (
            lambda value: _whole(value) in _BLOCKS,
            f"one of {', '.join(map(str, _BLOCKS))}",
            "correct the value",
        ),
        "cudagraph-capture-sizes": (
            lambda value: _sizes(value) is not None,
            f"each {COUNTED}, with spaces between them",
            "write the sizes, as 1 2 4 8",
        ),
        "enable-chunked-prefill": (
            lambda value: value is True,
            "true: every plan is made with it",
            "leave it out",
        ),
        "gpu-memory-utilization": (
            _is_share,
            f"a number from {_LEAST_UTILIZATION} to 1",
            "write the share of a GPU",
        ),
        "kv-cache-memory-bytes": (
            _is_counted,
            COUNTED,
            "write the number of bytes that every rank shall keep for K/V",
        ),
        "max-cudagraph-capture-size": (_is_counted, COUNTED, _A_NUMBER),
        "max-num-batched-tokens": (_is_counted, COUNTED, _A_NUMBER),
        "max-num-seqs": (_is_counted, COUNTED, _A_NUMBER),
    }
)
"""By option: the check of a value, the values that pass it in words, and the way out."""


def _too_few_tokens(named: Mapping[str, object]) -> tuple[Problem, ...]:
    tokens, sequences = (
        _whole(named.get("max-num-batched-tokens")),
        _whole(named.get("max-num-seqs")),
    )
    if tokens is None or sequences is None or tokens >= sequences:
        return ()
    return (
        Problem(
            code="EngineArgumentInvalid",
            path="max-num-batched-tokens",
            what=f"--max-num-batched-tokens {tokens}",
            limit=f"must be at least --max-num-seqs, {sequences}",
            gap="a batch has a token of every sequence",
            remedy="correct one of the two",
        ),
    )


def _compilation(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    path = next((name for name in arguments if canonical(name) == _COMPILATION), None)
    if path is None:
        return ()
    return tuple(
        Problem(
            code="EngineArgumentInvalid",
            path=path,
            what=what,
            limit=limit,
            remedy="correct the value",
        )
        for what, limit in _wrong_keys(arguments[path])
    )


def _wrong_keys(value: object) -> Iterator[tuple[str, str]]:
    keys = _keys(value)
    unknown = sorted(keys.keys() - _COUNTED_KEYS - _UNCOUNTED_KEYS)
    if unknown or not keys:
        listed = ", ".join(sorted(_COUNTED_KEYS | _UNCOUNTED_KEYS))
        what = f"key {unknown[0]!r:.60}" if unknown else repr(value)[:60]
        yield what, f"is none of {listed}"
    mode, sizes = keys.get("cudagraph_mode"), keys.get("cudagraph_capture_sizes")
    if mode is not None and mode not in _MODES:
        yield f"cudagraph_mode {mode!r:.60}", f"is none of {', '.join(_MODES)}"
    if sizes is not None and not (isinstance(sizes, list) and _sizes(sizes)):
        yield "cudagraph_capture_sizes", f"must be a list, each {COUNTED}"
    largest = keys.get("max_cudagraph_capture_size")
    if largest is not None and not _is_counted(largest):
        yield "max_cudagraph_capture_size", f"must be {COUNTED}"
