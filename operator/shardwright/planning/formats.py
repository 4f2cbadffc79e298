"""Which number formats does a model need, and has the engine kernels for them on a GPU?

An unknown fact of an engine or a GPU refuses nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.gpus import ComputeCapability, Gpu
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.drafts import NOUNS

_OTHER: Final = "select other GPUs or other weights"

# A model on the GPU, what its weights are called, the field that it comes from.
_Held = tuple[ModelSpec, str, str]

# A unit of the GPU, what needs it, the field that it comes from, the way out where it is missing.
_Need = tuple[str, str, str, str]


def dtype_problems(
    model: ModelSpec, gpu: Gpu, kv_cache_dtype: str, traits: EngineTraits
) -> Iterator[Problem]:
    """Return that the engine does not run on a GPU, or which needed number formats one of them
    lacks.
    """
    # Every format would repeat it.
    if _older(gpu, traits.support.least_capability):
        yield _too_old(gpu, traits)
        return
    held = _held(model, traits)
    stored = [problem for each in held for problem in _storage_problems(each, gpu, traits)]
    yield from stored
    as_fp16 = _OTHER if stored else _as_fp16(model, gpu)
    in_fp8 = () if _widens_fp8(gpu, traits) else held
    for unit, what, path, remedy in _needs(model, kv_cache_dtype, in_fp8, as_fp16):
        if unit not in gpu.flops:
            yield Problem(
                code="DtypeNotSupported",
                what=what,
                limit=f"but {gpu.id} has no {unit} unit",
                gap=f"it has {', '.join(sorted(gpu.flops))}",
                remedy=remedy,
                path=path,
            )


def _as_fp16(model: ModelSpec, gpu: Gpu) -> str:
    if "fp16" not in gpu.flops:
        return _OTHER
    in_fp16 = (
        "set model.quantization: FP16"
        if model.quantization is None
        else "set engine.args.dtype: float16"
    )
    return f"{in_fp16}, or {_OTHER}"


def _needs(
    model: ModelSpec, kv_cache_dtype: str, in_fp8: Iterable[_Held], as_fp16: str
) -> Iterator[_Need]:
    if model.dtype == "bf16":
        yield "bf16", "the model computes in bf16", "spec.model", as_fp16
    for each, whose, path in in_fp8:
        if "fp8" in _formats(each):
            yield "fp8", f"{whose} are held in fp8", path, _OTHER
    if kv_cache_dtype == "fp8":
        path = "spec.engine.kvCacheQuantization"
        yield "fp8", "the K/V cache is kept in fp8", path, _OTHER


def _held(model: ModelSpec, traits: EngineTraits) -> tuple[_Held, ...]:
    own = (model, "the weights", "spec.model.quantization")
    drafter = traits.options.drafter
    if drafter is None:
        return (own,)
    whose = f"the {NOUNS[drafter.method]}'s weights"
    return (own, (drafter.model, whose, "spec.workload"))


def _formats(model: ModelSpec) -> set[str]:
    return {weight.storage.name for weight in model.weights}


def _storage_problems(held: _Held, gpu: Gpu, traits: EngineTraits) -> Iterator[Problem]:
    """Return the formats that the engine takes, as this method stores them, only on newer GPUs."""
    model, whose, path = held
    for product in sorted({weight.storage.product for weight in model.weights}):
        least = traits.support.oldest_for.get((model.quantization or "", product))
        if _older(gpu, least):
            method = "" if model.quantization == product else f" by {model.quantization}"
            yield Problem(
                code="DtypeNotSupported",
                what=f"{whose} stored as {product}{method}",
                limit=f"need compute capability {_shown(least)} with {traits.name} "
                f"{traits.version}",
                gap=f"{gpu.id} has {_shown(gpu.compute_capability)}",
                remedy=_OTHER,
                path=path,
            )


def _widens_fp8(gpu: Gpu, traits: EngineTraits) -> bool:
    return (
        traits.support.widens_fp8_from is not None
        and gpu.vendor == "NVIDIA"
        and not _older(gpu, traits.support.widens_fp8_from)
    )


def _older(gpu: Gpu, least: ComputeCapability | None) -> bool:
    return (
        least is not None and gpu.compute_capability is not None and gpu.compute_capability < least
    )


def _shown(capability: ComputeCapability | None) -> str:
    return ".".join(map(str, capability or ()))


def _too_old(gpu: Gpu, traits: EngineTraits) -> Problem:
    return Problem(
        code="GpuTooOld",
        what=f"{traits.name} {traits.version}",
        limit="runs on NVIDIA GPUs of compute capability "
        f"{_shown(traits.support.least_capability)} and newer",
        gap=f"{gpu.id} has {_shown(gpu.compute_capability)}",
        remedy="select other GPUs",
        path="spec.placement",
    )
