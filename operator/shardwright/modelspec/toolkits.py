"""How do AMD Quark, TorchAO and Intel's AutoRound write down how they quantized?

All that vLLM 0.32 loads (``quantization/quark``, ``torchao.py``, ``inc``) is read, the rest
refused.
"""

from dataclasses import replace
from typing import Final

from shardwright.modelspec.fields import Fields
from shardwright.modelspec.formats import FP8_BLOCKS, FP8_PER_TENSOR, MXFP4, NVFP4, QUARK, TORCHAO
from shardwright.modelspec.methods import (
    BITS,
    Quantization,
    by_rules,
    changed,
    integers,
    scale_group,
    unless_listed,
)
from shardwright.modelspec.modules import canonical, engine_name, full_name
from shardwright.modelspec.spec import Weight, WeightFormat

# Of a regular expression (``inc/config_parser.py``).
_SPECIAL: Final = frozenset(r"*+?^$()[]{}|\\")
_FOUR: Final = 4  # bits
_MXFP4_GROUP: Final = 32  # values
_QUARK_TAKES: Final = (
    "fp8_e4m3 or int8 beside quantized activations, int4 or uint4 per group beside plain "
    "ones, fp4 in groups of 32, or NVFP4"
)
# (format, scheme, group size) of the values, then of the scales' own scale.
_NVFP4: Final = (("fp4", "per_group", 16), ("fp8_e4m3", "per_tensor", None))


def quark(fields: Fields) -> Quantization:
    """Return AMD's form: one way to store all weights, and others for modules that match a pattern.

    Which layers' K/V have 8 bits stands there too, and changes nothing: vLLM asks
    ``--kv-cache-dtype`` alone.
    """
    rules = fields.section("global_quant_config")
    if rules is None:
        fields.refuse("global_quant_config", "missing", "must say how weights are stored")
        return Quantization(method="quark", storage=lambda _: None)
    base = unless_listed("quark", _of_quark(rules), fields, "exclude")
    own = fields.section("layer_quant_config")
    sections = (
        {name: section for name in own.values if (section := own.section(name))} if own else {}
    )
    stored = {name: _of_quark(section) for name, section in sections.items()}
    return by_rules(base, stored, _experts_as_one) if own and stored else base


def _experts_as_one(weight: Weight) -> tuple[str, ...]:
    """A rule must match the one module of all experts of a layer."""
    return (engine_name(weight) if weight.experts else full_name(weight),)


def _of_quark(rules: Fields) -> WeightFormat:
    """Source: ``quark.py:_get_scheme_cls_from_config``."""
    weights, inputs = _entries(rules, "weight"), _entries(rules, "input_tensors")
    kinds = tuple(_kind(entry) for entry in weights)
    if kinds == _NVFP4:
        return NVFP4
    dtype, scheme, size = kinds[0] if len(kinds) == 1 else ("", "", None)
    storage = QUARK.get((dtype, scheme, bool(inputs)))
    if storage is not None and (storage is not MXFP4 or size == _MXFP4_GROUP):
        return (
            replace(storage, block=(1, scale_group(weights[0], "group_size")))
            if storage.name == "int4"
            else storage
        )
    shown = " and ".join(f"{kind[0] or 'nothing'} {kind[1]}".strip() for kind in kinds) or "nothing"
    rules.refuse(
        "weight",
        f"{shown:.60} beside {'quantized' if inputs else 'plain'} activations",
        f"must be {_QUARK_TAKES}",
    )
    return FP8_PER_TENSOR


def _entries(rules: Fields, name: str) -> tuple[Fields, ...]:
    if isinstance(rules.values.get(name), list):
        return rules.sections(name)
    section = rules.section(name)
    return (section,) if section else ()


def _kind(entry: Fields) -> tuple[str, str, object]:
    return (
        entry.string("dtype") or "",
        entry.string("qscheme") or "",
        entry.values.get("group_size"),
    )


def torchao(fields: Fields) -> Quantization:
    """Return PyTorch's form: one way to store all linear layers; vLLM leaves experts as they
    are.
    """
    kinds = fields.section("quant_type")
    default = kinds.section("default") if kinds else None
    kind, data = (
        (default.string("_type") or "", default.section("_data")) if default else ("", None)
    )
    storage = TORCHAO.get(kind)
    if storage is None:
        fields.refuse("quant_type", f"{kind!r:.60}", f"must be one of {', '.join(TORCHAO)}")
        storage = FP8_PER_TENSOR
    if storage.bits == _FOUR and data is not None:
        storage = replace(storage, block=(1, scale_group(data, "group_size")))
    base = unless_listed("torchao", storage, fields, "modules_to_not_convert")
    return replace(base, storage=lambda weight: None if weight.experts else base.storage(weight))


def inc(fields: Fields) -> Quantization:
    """Return Intel's form (AutoRound): one way for all, with some modules' own bits and groups."""
    storage = _of_inc(fields)
    base = Quantization(method="inc", storage=lambda _: storage)
    rules = fields.section("extra_config")
    sections = (
        {name: section for name in rules.values if (section := rules.section(name))}
        if rules
        else {}
    )
    stored: dict[str, WeightFormat | None] = {}
    for name, section in sections.items():
        module, own = _sought(name), _own(storage, section)
        stored[module] = _wider(stored[module], own) if module in stored else own
    return by_rules(base, stored, _ends) if rules and stored else base


def _sought(rule: str) -> str:
    """Return a rule with special characters as a pattern that matches anywhere in a name
    (``re.search``).

    All experts of a layer are one module, also for a rule that names one of them
    (``inc.py:get_layer_config``).
    """
    if _SPECIAL & set(rule):
        return f"re:.*{rule.removeprefix('^').removeprefix('.*')}"
    return canonical(rule)


def _wider(one: WeightFormat | None, other: WeightFormat | None) -> WeightFormat | None:
    """None is 16 bits; the engine has one storage for all experts of a layer."""
    return (
        None if one is None or other is None else max(one, other, key=lambda storage: storage.bits)
    )


def _ends(weight: Weight) -> tuple[str, ...]:
    """Return a rule's possible names of a module: every end of its own
    (``config_parser.py:_resolve_raw``).
    """
    modules = (full_name(weight), engine_name(weight)) if weight.experts else (full_name(weight),)
    parts = [module.split(".") for module in modules]
    return tuple(".".join(names[index:]) for names in parts for index in range(len(names)))


def _own(storage: WeightFormat, rule: Fields) -> WeightFormat | None:
    """16 bits leave a module alone; integers may have other bits and groups."""
    bits = rule.integer("bits", BITS, default=storage.bits)
    if bits == BITS[1]:
        return None
    if storage.name.startswith("int"):
        return changed(storage, rule)
    if bits != storage.bits:
        rule.refuse(
            "bits",
            f"{bits}",
            f"must be {storage.bits}, or {BITS[1]} to leave a module alone, beside {storage.name}",
        )
    return storage


def _of_inc(fields: Fields) -> WeightFormat:
    """Source: ``inc.py:INCConfig``, ``schemes/inc_wna16_linear.py``."""
    kind, packing = (fields.string("data_type") or "int", fields.string("packing_format") or "")
    if kind == "int":
        if "awq" not in packing and not fields.boolean("sym", default=True):
            way_out = (
                "use weights that are quantized symmetrically, or packed as auto_round:auto_awq"
            )
            fields.refuse(
                "sym",
                "integers with a zero point",
                "must be packed as auto_round:auto_awq",
                way_out,
            )
        return integers(fields)
    if kind.startswith("mx_fp") and fields.integer("bits", BITS) == _FOUR:
        return MXFP4
    if kind in ("fp", "fp8"):
        sizes = fields.integers("group_size")
        if len(sizes) != 2 or min(sizes) < 1:  # noqa: PLR2004 - an (outputs, inputs) pair
            fields.refuse(
                "group_size", f"{list(sizes)!r:.60}", "must be two numbers above 0 for FP8"
            )
            return FP8_BLOCKS
        return replace(FP8_BLOCKS, block=(sizes[0], sizes[1]))
    fields.refuse("data_type", f"{kind!r:.60}", "must be int, fp8 in blocks, or mx_fp with 4 bits")
    return MXFP4
