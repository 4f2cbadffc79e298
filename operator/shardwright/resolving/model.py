"""Which model is meant, from the spec, a ConfigMap or the catalogue, and which one drafts for it? A
model that nobody knows is an ``InputError``; no config is ever guessed.

What is to be resolved? A resource and the texts that it refers to.

Which config is read from the hub for an unknown model, and which ConfigMap keeps it?

Checks of a drafter before any layout: that the engine takes it, and the planner can count it.

A draft model of another vocabulary is refused, and one whose K/V would share blocks with its
target's in an unknown way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from shardwright.api.parts import unsaid
from shardwright.api.pod_spec import Pod
from shardwright.api.resource import ShardedModel
from shardwright.api.settings import Settings
from shardwright.api.spec import DraftHead, Model, Spec, Unproven
from shardwright.api.weights_source import HUB, claim_of, commit_of, hub_token, scheme_of
from shardwright.engines.options import Pins
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.volume_claims import ClaimsByName
from shardwright.layouts.layout import Drafter, DraftMethod, EngineTraits
from shardwright.modelspec.catalogue import find_model, model_unknown
from shardwright.modelspec.computed import (
    computed_in,
    with_state_bits,
    with_whole_towers,
    without_towers,
)
from shardwright.modelspec.config_json import CONFIG_FILE, parse_config
from shardwright.modelspec.eagle import read_eagle
from shardwright.modelspec.model_spec import (
    GroupedAttention,
    LatentAttention,
    ModelSpec,
    PipelineRole,
    Weight,
    interned,
)
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model, read_predictor
from shardwright.modelspec.stated import StatedBytes, stated_model, total_size
from shardwright.rendering.deployment import SecretKey
from shardwright.rendering.fetch_job import VARIABLES, Fetcher, HubFetch, config_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A resource and the texts that it refers to.

    ``config_text`` is the text in the ConfigMap that ``configMapRef`` names, or in the one that
    keeps a config from the hub; None if it is not there. ``kept_version`` is the engine's version
    in its plan of record, if the spec leaves it open (None: the newest known). ``catalogue`` are
    the administrator's own models by id, beside the built-in ones: config.json contents;
    ``settings`` are his for all resources. ``fetcher`` reads configs from the hub (None: nothing
    does). ``lacking`` is what the cluster does not serve, ``claims`` are
    those that are known.
    """

    resource: ShardedModel
    config_text: str | None = None
    kept_version: str | None = None
    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    lacking: tuple[Capability, ...] = ()
    claims: ClaimsByName = field(default_factory=dict)
    fetcher: Fetcher | None = None


ConfigMapSource = tuple[str, str]
"""Name and key of a ConfigMap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread(Problem):
    """A model that is not known, with a config that can be read from the hub."""

    fetch: HubFetch


def source_of(resource: ShardedModel) -> ConfigMapSource | None:
    """Return the ConfigMap and the key of a resource's config, or of the one to keep a config from
    the hub; None if its spec has it.
    """
    model = resource.spec.model
    reference = model.config_map_ref
    return config_source(
        resource.metadata.name,
        {
            "id": model.id,
            "revision": model.revision,
            "config": model.config,
            "configMapRef": reference and reference.model_dump(),
        },
    )


def config_source(name: str, model: Mapping[str, Any]) -> ConfigMapSource | None:
    """Return the source of a config as :func:`source_of`, for ``spec.model`` as the API server
    holds it. Its faults are reported elsewhere.
    """
    if reference := model.get("configMapRef"):
        named = reference.get("name")
        return (str(named), str(reference.get("key") or CONFIG_FILE)) if named else None
    if model.get("config") is not None or not model.get("id"):
        return None
    return config_name(name, str(model["id"]), model.get("revision")), CONFIG_FILE


def unknown(question: Question, spec: Spec) -> Problem:
    """Return the problem of a model that is in no catalogue: with the files to read, if that is
    wanted and the hub has its weights.

    ``spec`` is the question's with the administrator's defaults in it.
    """
    model, fetcher = (
        spec.model,
        question.fetcher if question.settings.config_fetch.enabled else None,
    )
    problem = model_unknown(model.id, question.catalogue).under("spec.model")
    if fetcher is None or scheme_of(model.weights) != HUB:
        return problem
    token, pod = hub_token(model.weights), spec.pod or unsaid(Pod)
    fetch = HubFetch(
        fetcher=fetcher,
        model=model.id,
        revision=model.revision,
        hub_token=SecretKey(name=token[0], key=token[1]) if token else None,
        environment=tuple(
            (variable.name, variable.value)
            for variable in spec.engine.env
            if variable.name in VARIABLES
        ),
        pull_secrets=tuple(secret.name for secret in pod.image_pull_secrets),
    )
    # dataclasses.replace keeps the class, and Unread is a Problem with one field more.
    parts = {
        name: getattr(problem, name) for name in ("code", "what", "limit", "gap", "remedy", "path")
    }
    return Unread(**parts, fetch=fetch)


def unread(problems: object) -> Unread | None:
    """Return a resource's only problem if it is an unread config, else None."""
    if not isinstance(problems, tuple) or len(problems) != 1:
        return None
    return problems[0] if isinstance(problems[0], Unread) else None


_OTHER_METHODS: Final = ("eagle-", "eagle3", "dflash", "dspark")
"""Names of files by which the engine takes a draft model for one of another method, whatever it is
told. Source: vLLM 0.32 ``config/speculative.py:__post_init__``.
"""


def draft_model_of(
    head: DraftHead, path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Drafter:
    """Return a draft model as the engine holds it: as stored, computed in its target's type.

    Args:
        head: The field.
        path: Its path in the resource.
        stored: The draft model as its config has it.
        model: Its target, as the engine holds it.
        traits: The engine.

    Raises:
        InputError: The engine does not take it, or it is not known how its K/V shares blocks with
            that of its target.
    """
    problems = (
        *_draft_model_problems(head, path, stored, model, traits),
        *_cache_problems(path, stored, model),
    )
    if problems:
        raise InputError(problems)
    return Drafter(model=interned(computed_in(stored, model.dtype)))


def eagle_of(path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits) -> Drafter:
    """Return an EAGLE-3 head as the engine holds it; arguments as in :func:`draft_model_of`.

    Raises:
        InputError: The engine does not take it, or it is not known how its K/V shares blocks with
            that of its target.
    """
    problems = (
        *_eagle_problems(path, stored, model, traits),
        *_cache_problems(path, stored, model),
    )
    if problems:
        raise InputError(problems)
    held = interned(computed_in(stored, model.dtype))
    return Drafter(model=held, method=DraftMethod.EAGLE3)


def predictor_of(
    path: str, held: ModelSpec | None, model: ModelSpec, traits: EngineTraits, tokens: int | None
) -> Drafter:
    """Return the MTP layers of a model, which end in its output head.

    Raises:
        InputError: The engine does not draft with them, the model has none that can be counted, or
            they do not draft the ``tokens`` that are stated (None: the plan chooses).
    """
    _require_predictors(path, model, traits)
    if held is None:
        raise InputError(
            [
                Problem(
                    code="PredictorNotCounted",
                    path=f"{path}.method",
                    what=f"the MTP layers of {model.source}",
                    limit="are not counted, or its config.json has none",
                    remedy="use EAGLE3, DraftModel or PromptLookup",
                )
            ]
        )
    drafter = _predictor(held, model)
    if tokens is not None and not drafter.drafts(tokens):
        layers = len(held.layers)
        raise InputError(
            [
                Problem(
                    code="DraftTokensUneven",
                    path=f"{path}.tokens",
                    what=f"{tokens} drafted tokens",
                    limit=f"must be a multiple of the {layers} "
                    f"MTP layers of {model.source}, or fewer",
                    gap=f"{tokens % layers} left over",
                    remedy=f"use {tokens - tokens % layers}, or leave tokens out",
                )
            ]
        )
    return drafter


def _require_predictors(path: str, model: ModelSpec, traits: EngineTraits) -> None:
    takes = traits.support.takes_predictor
    if takes is None or model.architecture in takes:
        return
    raise InputError(
        [
            Problem(
                code="DraftNotSupported",
                path=f"{path}.method",
                what=f"the MTP layers of {model.architecture}",
                limit=f"are not taken by {traits.name} {traits.version}",
                gap="its documents have MTP for other architectures",
                remedy="use EAGLE3, DraftModel or PromptLookup",
            )
        ]
    )


def _predictor(held: ModelSpec, model: ModelSpec) -> Drafter:
    ends = (weight for weight in model.weights if weight.part is PipelineRole.EMBEDDING)
    return Drafter(
        model=interned(held),
        method=DraftMethod.MTP,
        borrowed=_output_head(model),
        embedding=tuple(ends),
    )


def _output_head(model: ModelSpec) -> tuple[Weight, ...]:
    """Return the matrix that makes logits of hidden states, the embedding if they share one."""
    wide = [weight for weight in model.weights if weight.inputs > 1]
    own = tuple(weight for weight in wide if weight.part is PipelineRole.HEAD)
    if own:
        return own
    ends = (weight for weight in wide if weight.part is PipelineRole.EMBEDDING)
    return tuple(_as_head(weight) for weight in ends)


def _as_head(weight: Weight) -> Weight:
    return replace(weight, part=PipelineRole.HEAD)


def _draft_model_problems(
    head: DraftHead, path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Iterator[Problem]:
    engine = f"{traits.name} {traits.version}"
    claim, commit = claim_of(head.uri), commit_of(head.uri)
    folder = claim[1] if claim else commit[0] if commit else ""
    if named := next((word for word in _OTHER_METHODS if word in folder.lower()), None):
        yield Problem(
            code="DraftOfOtherMethod",
            path=f"{path}.uri",
            what=f"{folder} with {named!r} in its name",
            limit=f"is not loaded as a draft model: {engine} "
            "takes this word in a path for another method",
            remedy="use engine.speculation with method EAGLE3 if it is such a head, else a "
            "folder with another name",
        )
    if stored.architecture in traits.support.becomes_predictor:
        yield Problem(
            code="DraftNotSupported",
            path=f"{path}.id",
            what=f"a draft model of {stored.architecture}",
            limit=f"is not loaded as one by {engine}, which makes MTP layers of it",
            remedy="use a draft model of another architecture, or PromptLookup",
        )
    if stored.vocabulary != model.vocabulary:
        yield Problem(
            code="DraftVocabularyDiffers",
            path=f"{path}.id",
            what=f"a draft model with a vocabulary of {stored.vocabulary:,} tokens",
            limit=f"must have the {model.vocabulary:,} of {model.source}",
            gap=f"{abs(stored.vocabulary - model.vocabulary):,} apart",
            remedy="use a draft model of the same family",
        )


def _eagle_problems(
    path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Iterator[Problem]:
    if model.architecture not in traits.support.takes_eagle3:
        yield Problem(
            code="DraftNotSupported",
            path=f"{path}.id",
            what=f"an EAGLE-3 head beside {model.architecture}",
            limit=f"is not taken by {traits.name} {traits.version}",
            gap="its class is not among those that hand out the states of their layers",
            remedy="use a draft model, or PromptLookup",
        )
    # Tokens are proposed and verified by their numbers in the vocabulary.
    if stored.vocabulary != model.vocabulary:
        yield Problem(
            code="DraftVocabularyDiffers",
            path=f"{path}.config.vocab_size",
            what=f"an EAGLE-3 head with a vocabulary of {stored.vocabulary:,} tokens",
            limit=f"must have the {model.vocabulary:,} of {model.source}",
            gap=f"{abs(stored.vocabulary - model.vocabulary):,} apart",
            remedy="use a head that was trained for this model",
        )


def _cache_problems(path: str, stored: ModelSpec, model: ModelSpec) -> Iterator[Problem]:
    for one in (stored, model):
        if not _keeps_all(one) or one.cache_dtype is not None:
            yield Problem(
                code="DraftCacheUnknown",
                path=path,
                what=f"the K/V of {one.source}",
                limit="must be of one kind: keys and values of "
                "the whole context, in the model's own type",
                gap="how other caches share blocks is not known",
                remedy="use another draft model" if one is stored else "use PromptLookup",
            )


def _keeps_all(model: ModelSpec) -> bool:
    """Return whether all layers keep K/V or latents of the whole context, and nothing else."""
    return all(
        isinstance(kind, GroupedAttention | LatentAttention)
        and kind.window is None
        and not kind.index_dim
        and not kind.selected_tokens
        for kind in {layer.attention for layer in model.layers}
    )


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
    if model.unproven is not None:
        return _stated(question, spec, model.unproven)
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


UNPROVEN: Final = "spec.model.unproven"


def _stated(question: Question, spec: Spec, said: Unproven) -> ModelSpec:
    config = _config_if_any(question, spec)
    weight_bytes, pins = said.weight_bytes or total_size(config), spec.parallelism
    if weight_bytes is None and not config and spec.model.config_map_ref is None:
        problem = unknown(question, spec)
        if isinstance(problem, Unread):
            raise InputError([problem])
    tensor, pipeline = (pins.tensor, pins.pipeline) if pins else (None, None)
    problems = (*_unstated(said, weight_bytes, tensor, pipeline), *_unpromised(spec))
    if problems:
        raise InputError(problems)
    load = spec.workload
    stated = StatedBytes(
        weight_bytes=weight_bytes or 0,
        kv_bytes_per_token=said.kv_bytes_per_token or 0,
        tensor=tensor or 1,
        pipeline=pipeline or 1,
        longest=spec.engine.max_model_len or load.input_tokens + load.output_tokens,
    )
    try:
        return stated_model(stated, config, source=spec.model.id)
    except InputError as error:
        raise InputError(problem.under("spec.model") for problem in error.problems) from None


def _config_if_any(question: Question, spec: Spec) -> Mapping[str, object]:
    if spec.model.config is not None:
        return spec.model.config
    if question.config_text is not None:
        return parse_config(question.config_text, source=spec.model.id)
    entry = find_model(spec.model.id, question.catalogue)
    return entry.config if entry else {}


def _unstated(
    said: Unproven, weight_bytes: int | None, tensor: int | None, pipeline: int | None
) -> Iterator[Problem]:
    degrees = (("tensor", tensor), ("pipeline", pipeline))
    lacking = [name for name, degree in degrees if degree is None]
    if lacking:
        yield Problem(
            code="DegreesNotStated",
            path="spec.parallelism",
            what=f"{' and '.join(lacking)} missing,",
            limit=f"must be pinned beside {UNPROVEN}",
            gap="what divides the model is not known",
            remedy="set both, with degrees by which its publisher serves it",
        )
    if weight_bytes is None:
        yield Problem(
            code="BytesNotStated",
            path=f"{UNPROVEN}.weightBytes",
            what="missing,",
            limit="must be stated where no model.safetensors.index.json is beside the config",
            remedy="set the sum of the sizes of its weight files, in bytes",
        )
    if said.kv_bytes_per_token is None:
        yield Problem(
            code="BytesNotStated",
            path=f"{UNPROVEN}.kvBytesPerToken",
            what="missing,",
            limit="must be stated",
            remedy="set what each GPU keeps of a token, in bytes: 2 x layers of a stage x K/V "
            "heads of a rank x head dimension x 2",
        )


def _unpromised(spec: Spec) -> Iterator[Problem]:
    """Yield what is asked of a model that only its layers, or a speed, could answer."""
    pins, load, objective, engine = spec.parallelism, spec.workload, spec.objective, spec.engine
    asked = {
        "spec.workload.requestsPerSecond": load.requests_per_second,
        "spec.objective.ttftMilliseconds": objective.ttft_milliseconds,
        "spec.objective.tpotMilliseconds": objective.tpot_milliseconds,
        "spec.engine.speculation": engine.speculation,
        "spec.engine.kvOffload": engine.kv_offload,
        "spec.model.adapters": spec.model.adapters,
        "spec.model.quantization": spec.model.quantization != "Auto",
        "spec.parallelism.dataParallelAttention": pins and (pins.data_parallel_attention or 1) > 1,
        "spec.parallelism.context": pins and (pins.context or 1) > 1,
        "spec.parallelism.partition": pins and pins.partition,
    }
    for path in (path for path, wanted in asked.items() if wanted):
        yield Problem(
            code="NotProvable",
            path=path,
            what=path.rpartition(".")[2],
            limit=f"cannot be planned beside {UNPROVEN}",
            gap="neither the layers nor the speed of the model are known",
            remedy="leave it out",
        )


def held_model(stored: ModelSpec, model: Model, pins: Pins) -> ModelSpec:
    """Return a model as the engine holds it: quantized as the spec says, computed in a type, with
    as much of its towers.

    ``pins`` are those of the engine's arguments; ``spec.model.quantization`` goes before the type
    to compute in.

    Raises:
        InputError: The weights cannot be quantized so, or not computed in this type.
    """
    if stored.stated:  # its bytes are what they are, whatever it is computed in
        return interned(replace(stored, dtype=pins.dtype or stored.dtype))
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
        return predictor_of(SPECULATION, held, model, traits, speculation.tokens)
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
