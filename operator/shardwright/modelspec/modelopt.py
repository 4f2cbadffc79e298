"""How does NVIDIA's ModelOpt store weights: by one algorithm, or one per module
(``MIXED_PRECISION``)?

The facts stand in ``quantization_config``, or in ``hf_quant_config.json`` beside the config, flat
with ``ignore`` or under ``quantization`` with ``exclude_modules``. Source: vLLM 0.33
``quantization/modelopt.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.modelspec.fields import WIDTH, Fields
from shardwright.modelspec.formats import FP8_PER_TENSOR, MODELOPT
from shardwright.modelspec.methods import BITS, Quantization, unless_listed
from shardwright.modelspec.modules import canonical, is_pattern, names_of
from shardwright.modelspec.spec import Weight, WeightFormat

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
