"""How do AMD Quark, TorchAO and Intel's AutoRound write down how they quantized?

All that vLLM 0.32 loads (``quantization/quark``, ``torchao.py``, ``inc``) is read, the rest
refused.

How does NVIDIA's ModelOpt store weights: by one algorithm, or one per module
(``MIXED_PRECISION``)?

The facts stand in ``quantization_config``, or in ``hf_quant_config.json`` beside the config, flat
with ``ignore`` or under ``quantization`` with ``exclude_modules``. Source: vLLM 0.33
``quantization/modelopt.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.modelspec.config_json import WIDTH, Fields
from shardwright.modelspec.model_spec import Weight, WeightFormat
from shardwright.modelspec.quantization import (
    BITS,
    FP8_BLOCKS,
    FP8_PER_TENSOR,
    MODELOPT,
    MXFP4,
    NVFP4,
    QUARK,
    TORCHAO,
    Quantization,
    by_rules,
    canonical,
    changed,
    engine_name,
    full_name,
    integers,
    is_pattern,
    names_of,
    scale_group,
    unless_listed,
)

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


SECTION: Final = "quantization"
"""Where the file beside the config has what the config's own section says flat."""

_MIXED: Final = "MIXED_PRECISION"
_BY_MODULE: Final = "quantized_layers"
_LISTS: Final = ("ignore", "exclude_modules")
_EXPERTS: Final = ".experts"
_GROUPS: Final = {(8, None): MODELOPT["FP8"], (4, 16): MODELOPT["NVFP4"]}
"""Weight formats by the bits of a group and by how many elements share a scale."""


def with_quantization_file(
    config: Mapping[str, object], quantization: Mapping[str, object]
) -> Mapping[str, object]:
    """Return a config joined with its ``hf_quant_config.json`` as by the engine; itself if nothing
    is added.

    The config's own section goes first; only how each module of a mixture is stored comes from the
    file, if that section leaves it out. A file that names no algorithm means unquantized weights.

    Args:
        config: The content of the ``config.json``.
        quantization: The content of the ``hf_quant_config.json``.
    """
    own, inner = (config.get("quantization_config"), quantization.get(SECTION, quantization))
    if own is None:
        unquantized = isinstance(inner, Mapping) and inner.get("quant_algo") is None
        return config if unquantized else {**config, "quantization_config": quantization}
    if (
        not isinstance(own, Mapping)
        or not isinstance(inner, Mapping)
        or inner.get(_BY_MODULE) is None
    ):
        return config
    mixed = (
        str(own.get("quant_algo")).upper() == _MIXED
        and _BY_MODULE not in own
        and own.get("quant_method") != "fp8"
    )
    return (
        {**config, "quantization_config": {**own, _BY_MODULE: inner[_BY_MODULE]}}
        if mixed
        else config
    )


def modelopt(fields: Fields) -> Quantization:
    """Return the method of either form."""
    inner = fields.section(SECTION) or fields
    algorithm = (inner.string("quant_algo") or "").upper()
    base = (
        _mixed(inner)
        if algorithm == _MIXED
        else unless_listed("modelopt", _storage(inner, algorithm), inner, *_LISTS)
    )
    asked, warnings = _cache(inner)
    silent = (
        inner is not fields
        and algorithm != _MIXED
        and not any(name in inner.values for name in _LISTS)
    )
    unlisted = (
        ("the file beside the config names no module that stays unquantized: bytes may be off",)
        if silent
        else ()
    )
    return replace(
        base, head=True, cache_dtype=asked, warnings=(*base.warnings, *unlisted, *warnings)
    )


def _storage(fields: Fields, algorithm: str) -> WeightFormat:
    storage = next(
        (storage for name, storage in MODELOPT.items() if algorithm.startswith(name)), None
    )
    if storage is None:
        fields.refuse(
            "quant_algo", f"{algorithm!r:.60}", f"must be one of {', '.join((*MODELOPT, _MIXED))}"
        )
    return storage or FP8_PER_TENSOR


def _mixed(fields: Fields) -> Quantization:
    """Modules without a name are left alone; the first expert that is named speaks for its
    layer.
    """
    stored = _by_module(fields) or _by_group(fields)
    if not stored:
        fields.refuse(
            _BY_MODULE,
            "missing",
            "must say which algorithm each module is stored with",
            "add it from the model's hf_quant_config.json",
        )
    base = unless_listed("modelopt", FP8_PER_TENSOR, fields, *_LISTS)

    def storage(weight: Weight) -> WeightFormat | None:
        if base.storage(weight) is None:
            return None
        return next((stored[name] for name in _keys(weight) if name in stored), None)

    return replace(base, storage=storage)


def _keys(weight: Weight) -> tuple[str, ...]:
    """Return a module's possible names: experts as one, or beside the module that they are
    under.
    """
    names = names_of(weight)
    if not weight.experts:
        return names
    above = names[0].rpartition(".")[0]
    return (above, *names, names[0].replace(_EXPERTS, "", 1))


def _by_module(fields: Fields) -> dict[str, WeightFormat]:
    section = fields.section(_BY_MODULE)
    stored: dict[str, WeightFormat] = {}
    known: dict[str, WeightFormat] = {}
    for name in section.values if section else ():
        module = section.section(name) if section else None
        algorithm = (module.string("quant_algo") or "").upper() if module else ""
        if module and algorithm not in known:
            known[algorithm] = _storage(module, algorithm)
        stored.setdefault(canonical(name), known.get(algorithm, FP8_PER_TENSOR))
    return stored


def _by_group(fields: Fields) -> dict[str, WeightFormat]:
    section = fields.section("config_groups")
    groups = (
        [group for name in section.values if (group := section.section(name))] if section else []
    )
    return {
        canonical(name): storage
        for group in groups
        if (storage := _of_group(group))
        for name in group.strings("targets")
    }


def _of_group(group: Fields) -> WeightFormat | None:
    """FP8 with one scale, or NVFP4; another format is a problem, and so is a target that is a kind
    of module.
    """
    weights = group.section("weights") or Fields({}, f"{group.path}weights.", group.problems)
    bits, size = (weights.integer("num_bits", BITS), weights.optional_integer("group_size", WIDTH))
    storage = _GROUPS.get((bits, size)) if weights.string("type") == "float" else None
    if storage is None:
        what = f"{bits} bits of {weights.values.get('type')!r:.20} with group_size {size}"
        group.refuse(
            "weights",
            what,
            "must be 8 bits of 'float' without a group_size (FP8), or 4 with 16 (NVFP4)",
        )
    targets = group.strings("targets")
    other = next((name for name in targets if not _is_module(name)), None)
    if other is not None or not targets:
        group.refuse(
            "targets",
            f"{other or 'none'!r:.60}",
            "must be modules by name",
            "name each, as quantized_layers does",
        )
    return storage


def _is_module(name: str) -> bool:
    return name == "lm_head" or ("." in name and not is_pattern(name))


def _cache(fields: Fields) -> tuple[str | None, tuple[str, ...]]:
    """Return the number format wanted for the K/V cache, and a warning if the planner does not
    count it.

    Source: vLLM 0.33 ``utils/torch_utils.py:get_kv_cache_quant_algo_string``.
    """
    scheme = fields.section("kv_cache_scheme")
    if scheme is not None and scheme.values:
        bits, floating = (
            scheme.integer("num_bits", BITS, default=16),
            scheme.string("type") == "float",
        )
        static = not scheme.boolean("dynamic", default=True)
        algorithm = "FP8" if bits == FP8_PER_TENSOR.bits and floating and static else f"{bits} bits"
    else:
        algorithm = (fields.string("kv_cache_quant_algo") or "").upper()
    if algorithm.startswith("FP8"):
        return "fp8", ()
    return None, (
        f"asks for a K/V cache of {algorithm:.20}: counted in the model's type",
    ) if algorithm else ()
