"""Which model is meant: the one in the spec, in a ConfigMap or in the catalogue, and the one that
drafts for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from shardwright.api.drafts import PATH as DRAFT_PATH
from shardwright.api.drafts import drafter_of
from shardwright.api.model import Model
from shardwright.api.spec import Spec
from shardwright.api.workload import DraftModel
from shardwright.engines.pins import Pins
from shardwright.errors import InputError, Problem
from shardwright.layouts.traits import Drafter, EngineTraits
from shardwright.modelspec.catalogue import find_model, model_unknown
from shardwright.modelspec.computed import (
    computed_in,
    with_state_bits,
    with_whole_towers,
    without_towers,
)
from shardwright.modelspec.parse import parse_config
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec, interned
from shardwright.resolving.fetching import unknown
from shardwright.resolving.question import Question

COMPUTED_AS: Final = {"BF16": "bfloat16", "FP16": "float16"}
"""Values of ``spec.model.quantization`` that name a type to compute in, as engines call it."""


def stored_model(question: Question, spec: Spec) -> ModelSpec:
    """Return the model as it is stored: from the config in the spec, from a ConfigMap, or from the
    catalogue.

    ``spec`` is that of the question with the administrator's defaults in it. A config that was read
    from the hub before, as its signature proves, goes on counting where the catalogue of a later
    release has the model, too.

    Raises:
        InputError: The id is unknown, the ConfigMap or its key is missing, or the config cannot be
            used.
    """
    model, reference = spec.model, spec.model.config_map_ref
    if model.config is not None:
        return _read(model.config, model.id, "spec.model.config")
    if question.config_text is not None:
        return _read_text(
            question.config_text,
            model.id,
            "spec.model.configMapRef" if reference else "spec.model.id",
        )
    if reference is not None:
        raise InputError([_config_missing(reference.name, reference.key)])
    if find_model(model.id, question.catalogue) is None:
        raise InputError([unknown(question, spec)])
    return _read_known(model.id, question.catalogue, "spec.model")


def held_model(stored: ModelSpec, model: Model, pins: Pins) -> ModelSpec:
    """Return a model as the engine holds it: quantized as the spec says, computed in a type, with
    as much of its towers.

    ``pins`` are what the engine's arguments say; ``spec.model.quantization`` goes before the type
    to compute in.

    Raises:
        InputError: The weights cannot be quantized so, or not computed in this type.
    """
    computed = computed_in(
        _quantized(stored, model),
        None if model.quantization in COMPUTED_AS else pins.dtype,
    )
    towers = (
        without_towers(computed)
        if pins.language_only
        else with_whole_towers(computed)
        if pins.whole_towers
        else computed
    )
    return interned(with_state_bits(towers, pins.state_bits))


def drafter_for(
    draft: DraftModel | None, question: Question, model: ModelSpec, traits: EngineTraits
) -> Drafter | None:
    """Return the draft model, from its config or from the catalogue, once it is known that it can
    draft for ``model``.

    Raises:
        InputError: The id is unknown, its config cannot be used, or it cannot draft for this model
            in this engine.
    """
    if draft is None:
        return None
    if draft.config is not None:
        return drafter_of(
            draft, _read(draft.config, draft.id, f"{DRAFT_PATH}.config"), model, traits
        )
    if find_model(draft.id, question.catalogue) is None:
        unknown = replace(
            model_unknown(draft.id, question.catalogue),
            remedy=f"set {DRAFT_PATH}.config to its config.json",
        )
        raise InputError([unknown.under(DRAFT_PATH)])
    return drafter_of(
        draft, _read_known(draft.id, question.catalogue, DRAFT_PATH), model, traits
    )


def _read_known(
    model_id: str, catalogue: Mapping[str, Mapping[str, object]], path: str
) -> ModelSpec:
    entry = find_model(model_id, catalogue)
    assert entry is not None  # noqa: S101
    return (
        _read(entry.config, model_id, f"{path}.id")
        if model_id in catalogue
        else _built_in(model_id, f"{path}.id")
    )


@lru_cache(maxsize=64)
def _built_in(model_id: str, path: str) -> ModelSpec:
    """Return a model of the built-in catalogue; many resources are of the same few, and reading one
    takes milliseconds.
    """
    entry = find_model(model_id)
    assert entry is not None  # noqa: S101
    return _read(entry.config, model_id, path)


def _read_text(text: str, model_id: str, path: str) -> ModelSpec:
    try:
        config = parse_config(text, source=model_id)
    except InputError as error:
        raise InputError(problem.under(path) for problem in error.problems) from None
    return _read(config, model_id, path)


def _read(config: Mapping[str, object], model_id: str, path: str) -> ModelSpec:
    try:
        return read_model(config, source=model_id)
    except InputError as error:
        raise InputError(problem.under(path) for problem in error.problems) from None


def _config_missing(name: str, key: str) -> Problem:
    return Problem(
        code="ConfigMissing",
        path="spec.model.configMapRef",
        what=f"key {key} of ConfigMap {name}",
        limit="does not exist in the namespace of this resource",
        remedy=f"kubectl create configmap {name} --from-file={key}=config.json",
    )


def _quantized(stored: ModelSpec, model: Model) -> ModelSpec:
    if model.quantization == "Auto":
        return stored
    try:
        return apply_quantization(stored, model.quantization)
    except InputError as error:
        raise InputError(
            problem.under("spec.model") for problem in error.problems
        ) from None
