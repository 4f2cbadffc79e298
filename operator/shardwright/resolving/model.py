"""Which model is meant, from the spec, a ConfigMap or the catalogue, and which one drafts for it? A
model that nobody knows is an ``InputError``; no config is ever guessed.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from shardwright.api.drafts import draft_model_of, eagle_of, predictor_of
from shardwright.api.engine import DraftHead
from shardwright.api.model import Model
from shardwright.api.spec import Spec
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
from shardwright.modelspec.eagle import read_eagle
from shardwright.modelspec.parse import parse_config
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model, read_predictor
from shardwright.modelspec.spec import ModelSpec, interned
from shardwright.resolving.fetching import unknown
from shardwright.resolving.question import Question

SPECULATION: Final = "spec.engine.speculation"

COMPUTED_AS: Final = {"BF16": "bfloat16", "FP16": "float16"}
"""Values of ``spec.model.quantization`` that name a type to compute in, as engines call it."""


def stored_model(question: Question, spec: Spec) -> ModelSpec:
    """Return the model as it is stored, from the spec, a ConfigMap or the catalogue.

    ``spec`` is the question's with the administrator's defaults in it. A config that was once read
    from the hub, as its signature proves, goes on counting if the catalogue of a later release has
    the model, too.

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

    ``pins`` are those of the engine's arguments; ``spec.model.quantization`` goes before the type
    to compute in.

    Raises:
        InputError: The weights cannot be quantized so, or not computed in this type.
    """
    computed = computed_in(
        _quantized(stored, model), None if model.quantization in COMPUTED_AS else pins.dtype
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
    spec: Spec, question: Question, model: ModelSpec, traits: EngineTraits, pins: Pins
) -> Drafter | None:
    """Return the drafter, known to be able to draft for ``model``; None if there is none, or drafts
    are looked up in the prompt.

    Raises:
        InputError: An id is unknown, a config cannot be used, or it cannot draft for this model in
            this engine.
    """
    speculation, path = spec.engine.speculation, f"{SPECULATION}.head"
    if speculation is None or speculation.method == "PromptLookup":
        return None
    if speculation.method == "MTP":
        stored = read_predictor(_config_of(question, spec), source=model.source)
        held = held_model(stored, spec.model, pins) if stored else None
        return predictor_of(SPECULATION, held, model, speculation.tokens)
    head = speculation.head
    assert head is not None  # noqa: S101 - its caller has found it
    if speculation.method == "EAGLE3":
        return eagle_of(path, _eagle(head, path, question, model), model, traits)
    stored = (
        _read(head.config, head.id, f"{path}.config")
        if head.config is not None
        else _known_draft(head, path, question)
    )
    return draft_model_of(head, path, stored, model, traits)


def _config_of(question: Question, spec: Spec) -> Mapping[str, object]:
    if spec.model.config is not None:
        return spec.model.config
    if question.config_text is not None:
        return parse_config(question.config_text, source=spec.model.id)
    entry = find_model(spec.model.id, question.catalogue)
    assert entry is not None  # noqa: S101 - it was looked for before
    return entry.config


def _eagle(head: DraftHead, path: str, question: Question, model: ModelSpec) -> ModelSpec:
    config = question.catalogue.get(head.id) if head.config is None else head.config
    if config is None:
        raise InputError([_head_unknown(head, path)])
    try:
        return read_eagle(config, source=head.id, vocabulary=model.vocabulary)
    except InputError as error:
        raise InputError(problem.under(f"{path}.config") for problem in error.problems) from None


def _head_unknown(head: DraftHead, path: str) -> Problem:
    return Problem(
        code="ModelUnknown",
        path=f"{path}.id",
        what=f"{head.id}",
        limit="is a head, of which no catalogue has the config",
        remedy=f"set {path}.config to its config.json",
    )


def _known_draft(head: DraftHead, path: str, question: Question) -> ModelSpec:
    if find_model(head.id, question.catalogue) is None:
        unknown = replace(
            model_unknown(head.id, question.catalogue),
            remedy=f"set {path}.config to its config.json",
        )
        raise InputError([unknown.under(path)])
    return _read_known(head.id, question.catalogue, path)


def _read_known(
    model_id: str, catalogue: Mapping[str, Mapping[str, object]], path: str
) -> ModelSpec:
    entry = find_model(model_id, catalogue)
    assert entry is not None  # noqa: S101 - it was found before
    return (
        _read(entry.config, model_id, f"{path}.id")
        # Only built-in models are cached: in a catalogue of the administrator an id may change its
        # config.
        if model_id in catalogue
        else _built_in(model_id, f"{path}.id")
    )


@lru_cache(maxsize=64)
def _built_in(model_id: str, path: str) -> ModelSpec:
    # Many resources are of the same few models, and reading one takes milliseconds.
    entry = find_model(model_id)
    assert entry is not None  # noqa: S101 - its caller has found it
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
        raise InputError(problem.under("spec.model") for problem in error.problems) from None
