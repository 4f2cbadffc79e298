"""Has the engine kernels for the attention of a model on a GPU?

The engine itself was asked, for every kind of attention on every GPU that it knows
(``layouts.AttentionBackends``); what nobody asked about refuses nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu
from shardwright.layouts.layout import AttentionBackends, AttentionKind, AttentionNeed, EngineTraits
from shardwright.modelspec.model_spec import (
    FP8_PER_HEAD,
    Attention,
    GroupedAttention,
    LatentAttention,
    ModelSpec,
)

_AS_STORED: Final = "auto"
_FP8: Final = "fp8"

_CACHED: Final = {
    _AS_STORED: "",
    _FP8: ", K/V in FP8",
    FP8_PER_HEAD: ", K/V in FP8 with a scale for every head",
}

_WORDS: Final[Mapping[AttentionKind, str]] = {
    AttentionKind.DENSE: "attention",
    AttentionKind.SLIDING: "attention over a window",
    AttentionKind.SINKS: "attention with sinks",
    AttentionKind.LATENT: "latent attention",
    AttentionKind.SELECTED_LATENT: "sparse latent attention",
    AttentionKind.COMPRESSED_LATENT: "sparse attention over a compressed context",
    AttentionKind.SELECTED_BLOCKS: "sparse attention over blocks",
    AttentionKind.STATE: "a recurrent state",
}


def attention_problems(
    model: ModelSpec, gpu: Gpu, kv_cache_dtype: str, traits: EngineTraits
) -> Iterator[Problem]:
    """Return the kinds of attention, of a model and what drafts for it, that no backend of the
    engine serves on a GPU.
    """
    backends, drafter = traits.support.backends, traits.options.drafter
    if backends is None:
        return
    held = (model,) if drafter is None else (model, drafter.model)
    needs = dict.fromkeys(need for each in held for need in attention_needs(each, kv_cache_dtype))
    for need in needs:
        if backends.refuses(need, gpu.target):
            yield _problem(need, gpu, backends, traits)


@lru_cache(maxsize=256)
def attention_needs(model: ModelSpec, kv_cache_dtype: str) -> tuple[AttentionNeed, ...]:
    """Return what the layers of a model ask of backends, each once.

    >>> attention_needs(llama, "auto")
    (AttentionNeed(kind=<AttentionKind.DENSE: 'Dense'>, head=128, cache='auto', selected=0),)
    """
    stored = model.cache_dtype or _AS_STORED
    named = stored if kv_cache_dtype == "auto" else kv_cache_dtype
    cache = _AS_STORED
    if named.startswith(_FP8):
        cache = FP8_PER_HEAD if stored == FP8_PER_HEAD else _FP8
    kinds = dict.fromkeys(layer.attention for layer in model.layers if layer.attention)
    return tuple(dict.fromkeys(_need(kind, cache) for kind in kinds))


def _need(attention: Attention, cache: str) -> AttentionNeed:
    match attention:
        case GroupedAttention():
            # Backends are asked by the wider of keys and values, which few have unequal.
            head = max(attention.head_dim, attention.value_head_dim)
            return AttentionNeed(_grouped_kind(attention), head, cache)
        case LatentAttention(selected_tokens=selected):
            head = attention.kv_lora_rank + attention.rope_dim
            if attention.window is not None:
                return AttentionNeed(AttentionKind.COMPRESSED_LATENT, head, cache)
            kind = AttentionKind.SELECTED_LATENT if selected else AttentionKind.LATENT
            return AttentionNeed(kind, head, cache, selected or 0)
        case _:
            return AttentionNeed(AttentionKind.STATE, 0, _AS_STORED)


def _grouped_kind(attention: GroupedAttention) -> AttentionKind:
    if attention.selected_tokens is not None:
        return AttentionKind.SELECTED_BLOCKS
    if attention.sinks:
        return AttentionKind.SINKS
    return AttentionKind.DENSE if attention.window is None else AttentionKind.SLIDING


def _problem(
    need: AttentionNeed, gpu: Gpu, backends: AttentionBackends, traits: EngineTraits
) -> Problem:
    as_stored = need._replace(cache=_AS_STORED)
    by_cache = need.cache != _AS_STORED and not backends.refuses(as_stored, gpu.target)
    others = _kindred(backends.serving[need], gpu.target)
    return Problem(
        code="AttentionNotSupported",
        what=_described(need),
        limit=f"is served by no backend of {traits.name} {traits.version} on {gpu.id} "
        f"({gpu.target})",
        gap=f"only on {', '.join(others)}" if others else "",
        remedy="leave the K/V cache in 16 bits, or select other GPUs"
        if by_cache
        else "select such GPUs, or a model with other attention",
        path="spec.engine.kvCacheQuantization" if by_cache else "spec.placement",
    )


def _described(need: AttentionNeed) -> str:
    selected = f", {need.selected} tokens selected" if need.selected else ""
    cached = _CACHED[need.cache]
    width = f" with heads of {need.head}" if need.head else ""
    return f"{_WORDS[need.kind]}{width}{selected}{cached}"


def _kindred(served: Iterable[str], target: str) -> list[str]:
    """Return what is served of the same vendor, by number; of all if none is.

    >>> _kindred(("10.0", "9.0", "gfx942"), "8.0"), _kindred(("gfx942",), "8.0")
    (['9.0', '10.0'], ['gfx942'])
    """
    amd = target.startswith("gfx")
    own = [each for each in served if each.startswith("gfx") == amd]
    return sorted(own or served, key=lambda each: (len(each), each))
