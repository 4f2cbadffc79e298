"""How is each weight stored, scales included, by the ``quantization_config``?

An unknown method, and activation order of GPTQ, are refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.config_json import Fields
from shardwright.modelspec.model_spec import (
    BF16,
    FP8_PER_HEAD,
    FP16,
    ModelSpec,
    PipelineRole,
    Weight,
    WeightFormat,
)
from shardwright.modelspec.quantization import (
    BITS,
    FP8_PER_TENSOR,
    INT8_PER_CHANNEL,
    MAX_ENTRIES,
    MAX_GLOB_BYTES,
    MXFP4,
    NF4,
    NVFP4,
    Modules,
    Quantization,
    Stores,
    by_rules,
    changed,
    engine_name,
    integers,
    is_named_in_part,
    modules_of,
    scale_group,
    unless_listed,
)
from shardwright.modelspec.toolkits import SECTION, inc, modelopt, quark, torchao

_PLAIN: Final = {storage.name: storage for storage in (BF16, FP16)}
_LINEAR: Final = "Linear"


def read_quantization(fields: Fields) -> Quantization | None:
    """Return the method, None if weights are in the model's dtype or it is not known; problems go
    to ``fields``.
    """
    method = fields.string("quant_method")
    stated = fields.values.get(SECTION, fields.values.get("quant_algo"))
    if method is None and stated is None:
        fields.refuse(
            "quant_method", "missing", remedy="name the method that the weights are stored with"
        )
        return None
    reader = _METHODS.get(method or "modelopt")
    if reader is None:
        known = ", ".join(sorted(_METHODS))
        fields.problems.append(
            Problem(
                code="QuantizationUnknown",
                path=f"{fields.path}quant_method",
                what=f"{method!r:.60}",
                limit=f"must be one of {known}",
                remedy="use weights that are stored in one of these ways",
            )
        )
        return None
    return reader(fields)


def quantized(weights: Iterable[Weight], quantization: Quantization) -> tuple[Weight, ...]:
    """Return the weights as the method stores them."""
    return tuple(_stored(weight, quantization) for weight in weights)


def apply_quantization(model: ModelSpec, name: str) -> ModelSpec:
    """Return the model as the engine makes it of unquantized weights while loading.

    With FP8, linear layers and experts get one scale per matrix; embeddings, the head, norms and
    most routers stay. A model that is stored that way already is returned as it is.

    Args:
        model: The model as its config has it.
        name: ``Auto``, ``FP8``, ``BF16`` or ``FP16``, in any case.

    Raises:
        InputError: the engine cannot make this of the stored weights.
    """
    wanted = name.lower()
    stored = {weight.storage.name for weight in model.weights if weight.quantizable}
    if wanted == "auto" or wanted in stored:
        return model
    if model.quantization is None and wanted == "fp8":
        quantization = Quantization(method="fp8", storage=lambda _: FP8_PER_TENSOR)
        return replace(model, weights=quantized(model.weights, quantization), quantization="fp8")
    if model.quantization is None and wanted in _PLAIN:
        return replace(model, weights=_recast(model, _PLAIN[wanted]), dtype=wanted)
    raise InputError([_cannot_convert(model, name)])


def _recast(model: ModelSpec, storage: WeightFormat) -> tuple[Weight, ...]:
    return tuple(
        replace(weight, storage=storage) if weight.storage.name == model.dtype else weight
        for weight in model.weights
    )


def _cannot_convert(model: ModelSpec, name: str) -> Problem:
    have = f"{model.quantization} weights" if model.quantization else f"{model.dtype} weights"
    return Problem(
        code="QuantizationNotApplicable",
        what=f"{have} cannot become {name} while loading:",
        limit="the engine makes FP8, BF16 or FP16 of unquantized weights, and nothing of "
        "quantized ones",
        remedy="use Auto, or a model that is stored that way",
        path="quantization",
    )


def _stored(weight: Weight, quantization: Quantization) -> Weight:
    quantizable = weight.quantizable or (
        quantization.head and weight.part is PipelineRole.HEAD and weight.inputs > 1
    )
    storage = quantization.storage(weight) if quantizable else None
    return weight if storage is None else replace(weight, storage=storage)


def _fp8(fields: Fields) -> Quantization:
    block = fields.integers("weight_block_size")
    if block and (len(block) != 2 or min(block) < 1):  # noqa: PLR2004 - an (outputs, inputs) pair
        fields.refuse("weight_block_size", f"{list(block)!r:.60}", "must be two numbers above 0")
        block = ()
    # A static input scale stands beside it.
    scales = 64 if fields.string("activation_scheme") == "static" else 32
    storage = (
        replace(FP8_PER_TENSOR, block=(block[0], block[1]))
        if block
        else replace(FP8_PER_TENSOR, scale_bits=scales)
    )
    return unless_listed("fp8", storage, fields, "modules_to_not_convert", "ignored_layers")


def _awq(fields: Fields) -> Quantization:
    bits = fields.integer("bits", BITS, default=fields.integer("w_bit", BITS, default=4))
    storage = WeightFormat(
        name=f"int{bits}",
        bits=bits,
        block=(1, scale_group(fields, "group_size", "q_group_size")),
        scale_bits=16,
        zero_point_bits=bits,
    )
    listed = frozenset(fields.strings("modules_to_not_convert"))
    if len(listed) > MAX_ENTRIES:
        fields.refuse(
            "modules_to_not_convert", f"{len(listed)} entries", f"must be at most {MAX_ENTRIES}"
        )
    return Quantization(
        method="awq", storage=lambda weight: None if is_named_in_part(weight, listed) else storage
    )


def _gptq(fields: Fields) -> Quantization:
    if fields.boolean("desc_act", default=False):
        fields.refuse(
            "desc_act",
            "activation order",
            "is no longer served",
            "use weights that are quantized without it",
        )
    storage = integers(fields)
    base = unless_listed(
        "gptq", storage, fields, "modules_to_not_convert", "modules_in_block_to_not_quantize"
    )
    rules = fields.section("dynamic")
    return _overridden(base, storage, rules) if rules else base


def _overridden(base: Quantization, storage: WeightFormat, rules: Fields) -> Quantization:
    """Return the method with GPTQModel's rules by pattern: ``-:`` leaves modules alone.

    Source: vLLM 0.32 ``quantization/utils/gptq_utils.py:get_dynamic_override``: the first match
    counts.
    """
    stored: dict[str, WeightFormat | None] = {}
    for rule in rules.values:
        own = None if rule.startswith("-:") else changed(storage, rules.section(rule))
        stored.setdefault(f"re:{rule.removeprefix('-:').removeprefix('+:')}", own)
    return by_rules(base, stored, lambda weight: (engine_name(weight),))


def _mxfp4(fields: Fields) -> Quantization:
    del fields  # the method leaves all but the experts alone, whatever the config lists
    return Quantization(method="mxfp4", storage=lambda weight: MXFP4 if weight.experts else None)


_MAX_GROUPS: Final = 16
"""Most ways to store of one config: each is looked for in every name. Basis: chosen; published
configs have one or two.
"""


def _compressed_tensors(fields: Fields) -> Quantization:
    section = fields.section("config_groups")
    groups = (
        [group for name in section.values if (group := section.section(name))] if section else []
    )
    targeted = [target for group in groups[:_MAX_GROUPS] if (target := _targeted(group))]
    if not targeted or len(targeted) < len(groups):
        what, most = (
            f"{len(groups)} groups",
            f"must be 1 to {_MAX_GROUPS} groups with their weights",
        )
        fields.refuse("config_groups", what, most)
        return Quantization(method="compressed-tensors", storage=lambda _: None)
    if (size := sum(target.modules.glob_bytes for target in targeted)) > MAX_GLOB_BYTES:
        what, limit = f"patterns of {size} bytes", f"must have at most {MAX_GLOB_BYTES} together"
        fields.refuse("config_groups", what, limit, "name modules, or use fewer patterns")
        return Quantization(method="compressed-tensors", storage=lambda _: None)
    base = unless_listed("compressed-tensors", targeted[0].storage, fields, "ignore")
    return replace(base, storage=_by_target(base.storage, targeted), cache_dtype=_cached(fields))


_SCALES: Final = {"tensor": "fp8", "attn_head": FP8_PER_HEAD}
"""Formats of the K/V cache by what has a scale of its own."""


def _cached(fields: Fields) -> str | None:
    """Return the format that the K/V cache has, which an engine takes from the checkpoint.

    Source: vLLM 0.33 ``compressed_tensors.py:validate_kv_cache_scheme`` (others are refused at the
    start), compared with it by ``tests/engine``.
    """
    scheme = fields.section("kv_cache_scheme")
    if scheme is None:
        return None
    form = (scheme.string("type"), scheme.integer("num_bits", BITS, default=16))
    dtype = _SCALES.get(scheme.string("strategy") or "")
    symmetric = scheme.boolean("symmetric", default=False)
    if dtype is not None and form == ("float", FP8_PER_TENSOR.bits) and symmetric:
        return dtype
    fields.refuse(
        "kv_cache_scheme",
        "this K/V cache",
        "must be symmetric FP8 (type float, num_bits 8) with a scale per tensor or per attn_head",
    )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    storage: WeightFormat
    modules: Modules


def _targeted(group: Fields) -> _Target | None:
    weights = group.section("weights")
    if weights is None:
        return None
    alone = group.values.get("input_activations") is None
    return _Target(storage=_compressed(weights, alone=alone), modules=modules_of(group, "targets"))


def _by_target(base: Stores, targets: list[_Target]) -> Stores:
    def storage(weight: Weight) -> WeightFormat | None:
        named = next((target for target in targets if target.modules.include(weight)), None)
        general = next((target for target in targets if _LINEAR in target.modules.names), None)
        # A group that names the module goes before the one of all linear modules, in any order.
        chosen = named or general
        return chosen.storage if chosen and base(weight) else None

    return storage


def _compressed(weights: Fields, *, alone: bool) -> WeightFormat:
    """``alone``: activations stay as they are."""
    bits = weights.integer("num_bits", BITS)
    strategy, eight = (weights.string("strategy") or "tensor", bits == FP8_PER_TENSOR.bits)
    floating = weights.string("type") == "float"
    if floating and bits == MXFP4.bits:
        return (
            NVFP4
            if strategy == "tensor_group"
            else replace(MXFP4, block=(1, scale_group(weights, "group_size")))
        )
    stored = WeightFormat(
        name=f"fp{bits}" if floating else f"int{bits}", bits=bits, alone=eight and alone
    )
    if strategy == "group":
        zeros = 0 if weights.boolean("symmetric", default=True) else bits
        block = (1, scale_group(weights, "group_size"))
        return replace(stored, block=block, scale_bits=16, zero_point_bits=zeros)
    if strategy == "block":
        shape = weights.integers("block_structure") or (128, 128)
        return replace(stored, block=(shape[0], shape[-1]), scale_bits=32)
    if strategy not in ("tensor", "channel"):
        weights.refuse("strategy", f"{strategy!r:.60}", "must be tensor, channel, group or block")
    scale = 16 if alone and not floating else 32  # in the model's dtype
    return replace(stored, block=(0 if strategy == "tensor" else 1, 0), scale_bits=scale)


def _bitsandbytes(fields: Fields) -> Quantization:
    four = fields.boolean("load_in_4bit", default=not fields.boolean("load_in_8bit", default=False))
    return unless_listed(
        "bitsandbytes", NF4 if four else INT8_PER_CHANNEL, fields, "llm_int8_skip_modules"
    )


def _fbgemm_fp8(fields: Fields) -> Quantization:
    storage = replace(FP8_PER_TENSOR, block=(1, 0))
    return unless_listed("fbgemm_fp8", storage, fields, "modules_to_not_convert")


_METHODS: Final[dict[str, Callable[[Fields], Quantization]]] = {
    "fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fbgemm_fp8,
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"), modelopt),
    "quark": quark,
    "torchao": torchao,
    "inc": inc,
    "auto-round": inc,
}
