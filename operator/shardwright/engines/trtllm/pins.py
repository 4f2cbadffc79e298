"""What a user's arguments for TensorRT-LLM fix in a plan, and which of them no plan can count with.

Sources: ``llmapi/llm_args.py``, as the tables in ``data`` name it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardwright.engines.object_keys import as_object
from shardwright.engines.options import Pins
from shardwright.engines.parser_values import COUNTED, COUNTED_MAX, STATE_BITS, invalid
from shardwright.engines.policy import Policy, canonical
from shardwright.errors import Problem
from shardwright.layouts.captures import Captures, captured_sizes
from shardwright.layouts.layout import EngineOverrides

DEFAULT_CAPTURE: Final = 128
"""The largest batch with a graph if ``cuda_graph_config`` names none."""

CAPTURE_MAX: Final = 65_536
"""Unit: sequences, of the largest batch that a user may have a graph captured for. Basis: chosen,
32 times the most that the engine runs at once by default, with 1,000 graphs up to it.
"""

_COMPUTED_IN: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_AUTO: Final = "auto"


def read_pins(arguments: Mapping[str, object], policy: Policy) -> Pins:
    """Return the pins among checked arguments.

    >>> from shardwright.engines.trtllm.policy import POLICY
    >>> read_pins({"kv_cache_config": {"tokens_per_block": 64}}, POLICY).block_tokens
    64
    """
    named = _named(arguments)
    cache = _inside(named, "kv-cache-config")
    fraction = cache.get("free_gpu_memory_fraction")
    return Pins(
        dtype=_COMPUTED_IN.get(str(named.get("dtype"))),
        state_bits=STATE_BITS.get(str(cache.get("mamba_ssm_cache_dtype"))),
        block_tokens=_whole(cache.get("tokens_per_block")),
        memory_utilization=None if fraction is None else float(fraction),
        language_only=named.get("disable-mm-encoder") is True,
        chunks_prompts=named.get("enable-chunked-prefill") is not False,
        told=EngineOverrides(
            batched_tokens=_whole(named.get("max-num-tokens")),
            sequences=_whole(named.get("max-batch-size")),
            captured=_captured(named),
            uncounted=tuple(sorted(_uncounted(named, policy))),
        ),
    )


def _named(arguments: Mapping[str, object]) -> dict[str, object]:
    return {canonical(name): as_object(value) for name, value in arguments.items()}


def _inside(named: Mapping[str, object], name: str) -> Mapping[str, Any]:
    found = named.get(name)
    return found if isinstance(found, Mapping) else {}


def _captured(named: Mapping[str, object]) -> tuple[int, ...] | None:
    """Return the sizes of a user's own ``cuda_graph_config``, which is rendered as it is."""
    if "cuda-graph-config" not in named:
        return None
    graphs = _inside(named, "cuda-graph-config")
    if sizes := graphs.get("batch_sizes"):
        return tuple(sorted({int(float(size)) for size in sizes}))
    largest = _whole(graphs.get("max_batch_size")) or DEFAULT_CAPTURE
    # More graphs than 1.2 captures beyond 256: counted for every version.
    return captured_sizes(
        largest, Captures.EIGHTS_AND_SIXTY_FOURS, padded=graphs.get("enable_padding") is True
    )


def _uncounted(named: Mapping[str, object], policy: Policy) -> Iterator[str]:
    for path, value in _paths(named):
        listed = policy.listed_as(path)
        if listed in policy.uncounted and str(value) not in policy.harmless.get(listed, ()):
            yield listed


def _paths(values: Mapping[str, object], within: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        path = within + canonical(name)
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}.")
        else:
            yield path, str(value).lower() if isinstance(value, bool) else value


def _whole(value: object) -> int | None:
    """Return a number that a plan counts with, also if it is text, None of everything else."""
    try:
        found = None if isinstance(value, bool) or value is None else float(str(value))
    except ValueError:
        return None
    if found is None or not found.is_integer():
        return None
    return int(found) if 0 < found <= COUNTED_MAX else None


def check_pins(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return the pins that no plan can count with, each problem's path the key's."""
    named = _named(arguments)
    spelled = {canonical(name): name for name in arguments}
    cache, graphs = _inside(named, "kv-cache-config"), _inside(named, "cuda-graph-config")
    return (
        *(
            invalid(spelled[name], named[name], COUNTED)
            for name in ("max-batch-size", "max-num-tokens")
            if name in named and _whole(named[name]) is None
        ),
        *_wrong_dtype(named),
        *_wrong_cache(cache),
        *_wrong_graphs(graphs),
    )


def _wrong_dtype(named: Mapping[str, object]) -> Iterator[Problem]:
    if "dtype" in named and named["dtype"] not in (_AUTO, *_COMPUTED_IN):
        yield invalid("dtype", named["dtype"], f"one of {', '.join((_AUTO, *_COMPUTED_IN))}")


def _wrong_cache(cache: Mapping[str, Any]) -> Iterator[Problem]:
    path = "kv_cache_config"
    fraction = cache.get("free_gpu_memory_fraction")
    if fraction is not None and not 0 < float(fraction) <= 1:
        wanted = "a number above 0, at most 1"
        yield invalid(f"{path}.free_gpu_memory_fraction", fraction, wanted)
    tokens = _whole(cache.get("tokens_per_block"))
    if "tokens_per_block" in cache and (tokens is None or tokens & (tokens - 1)):
        yield invalid(f"{path}.tokens_per_block", cache["tokens_per_block"], "a power of two")


def _wrong_graphs(graphs: Mapping[str, Any]) -> Iterator[Problem]:
    path = "cuda_graph_config"
    sizes, largest = graphs.get("batch_sizes") or (), graphs.get("max_batch_size")
    captured = [size for each in sizes if (size := _captured_size(each))]
    if len(captured) < len(sizes):
        yield invalid(f"{path}.batch_sizes", sizes, f"whole numbers from 1 to {CAPTURE_MAX:,}")
    elif captured and _whole(largest) not in (None, max(captured)):
        yield invalid(
            f"{path}.max_batch_size", largest, f"the largest of batch_sizes, {max(captured)}"
        )
    if largest is not None and float(largest) != 0 and not _captured_size(largest):
        wanted = f"a whole number from 0 to {CAPTURE_MAX:,}"
        yield invalid(f"{path}.max_batch_size", largest, wanted)


def _captured_size(value: object) -> int | None:
    size = _whole(value)
    return size if size is not None and size <= CAPTURE_MAX else None
