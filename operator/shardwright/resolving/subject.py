"""What does a question mean, with all names resolved, however it was written?

Which hashes change with all that makes a new plan necessary, and with nothing else?

What does a resource ask, as the API server holds it? All that a user writes is read here, in one
function without side effects.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from shardwright.api.admission import lacks_revision
from shardwright.api.parts import unsaid
from shardwright.api.planner_request import to_request
from shardwright.api.pod_spec import Pod
from shardwright.api.resource import Metadata, ShardedModel, read_stored
from shardwright.api.scaling import ServingRules
from shardwright.api.settings import Settings, with_defaults
from shardwright.api.spec import Spec, is_half, is_paired
from shardwright.api.weights_source import HUB, HUB_KEY, Weights, commit_of, hub_token, scheme_of
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.scheduling import PodTerms
from shardwright.hardware.untrusted import whole_bytes
from shardwright.hardware.volume_claims import VolumeClaim
from shardwright.layouts.layout import EngineTraits
from shardwright.modelspec.catalogue import Gating, gate_of
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.planning.request import PairWish, Request
from shardwright.rendering import pod_resources, volumes
from shardwright.rendering.deployment import Deployment, Owner
from shardwright.rendering.fetch_job import Fetcher
from shardwright.resolving.engine import (
    leaves_version_open,
    pins_of,
    traits_of,
    unadmitted_images,
    version_of,
)
from shardwright.resolving.intent import (
    Intent,
    claim_names,
    intent_of,
    network_rules_of,
    terms_of,
    to_deployment,
)
from shardwright.resolving.model import Question, drafter_for, held_model, stored_model

NOT_PLANNED_WITH: Final = ("paused", "mode", "replan", "restart", "rollout", "readiness", "routing")
"""Fields of the spec that say what to do with a plan, not what to plan; of the routing the mode
counts.
"""

ONLY_PLANNED_WITH: Final = (
    "workload",
    "replicas",
    "scaling",
    "objective",
    "budget",
    "parallelism",
    "disaggregation",
)
NOT_IN_PODS: Final = (
    *(name for name in NOT_PLANNED_WITH if name != "readiness"),
    *ONLY_PLANNED_WITH,
)
"""Fields of the spec that change pods of a group through its plan only, or not at all."""

OF_RUNNING_PODS: Final = ("labels", "annotations", "serviceAccountName", "volumes")
"""Fields of ``spec.pod`` that pods have from their creation on, and that no plan asks for: a
change restarts pods, and plans nothing.
"""

OF_NEXT_START: Final = ("imagePullPolicy",)
"""Fields of ``spec.pod`` that running pods do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """``whole`` covers all that a plan depends on beside the cluster, ``cut`` the same without
    what says the number of replicas.

    ``pods`` covers all that the pods of a group depend on beside the plan: of a model only its
    ``config.json``, so that an added quantization file that changes no plan restarts nothing.
    """

    whole: str
    cut: str
    pods: str


def hashes_of(spec: Spec, model: ModelSpec, draft: ModelSpec | None, version: str) -> Hashes:
    """Return the hashes of a spec, the models that it names and the version of the engine."""
    named = [one for one in (model, draft) if one is not None]
    routed = _routed(spec)
    models, files = ([one.config_hash for one in named], [one.config_file_hash for one in named])
    plain: dict[str, Any] = _without_said_defaults(spec).model_dump(
        # Without fields that nobody sets: a new field of the spec leaves all stored hashes as they
        # are (ADR 15).
        mode="json",
        by_alias=True,
        exclude_none=True,
    )
    return Hashes(
        whole=_hash(_planned_with(plain, NOT_PLANNED_WITH) | routed, models, version),
        cut=_hash(
            _planned_with(plain, (*NOT_PLANNED_WITH, "replicas", "scaling")) | routed,
            models,
            version,
        ),
        pods=_hash(
            # How replicas are spread reaches pods by the nodes of the plan alone.
            _without(plain, NOT_IN_PODS, (*OF_NEXT_START, "topologySpread"))
            | (routed if routed == {"routing": "Router"} else {}),
            files,
            version,
        ),
    )


def _routed(spec: Spec) -> dict[str, str]:
    """Return what plans know of the routing: its mode, by which they price prefixes."""
    mode = spec.routing.mode if spec.routing else "Service"
    return {} if mode == "Service" else {"routing": mode}


def _without_said_defaults(spec: Spec) -> Spec:
    """Return a spec without what it says of weights and serving that holds if left out, too."""
    if spec.serving == unsaid(ServingRules):
        spec = spec.model_copy(update={"serving": None})
    if not is_half(spec):
        spec = spec.model_copy(update={"phase": None})
    if not is_paired(spec):
        spec = spec.model_copy(update={"disaggregation": None})
    weights = spec.model.weights
    if weights is None:
        return spec
    secret = weights.secret_ref
    if scheme_of(weights) == HUB:
        weights = weights.model_copy(update={"uri": None})
    if secret is not None and secret.key == HUB_KEY:
        secret = secret.model_copy(update={"key": None})
        weights = weights.model_copy(update={"secret_ref": secret})
    said = weights if weights != unsaid(Weights) else None
    return spec.model_copy(update={"model": spec.model.model_copy(update={"weights": said})})


def _planned_with(spec: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    return _without(spec, without, (*OF_RUNNING_PODS, *OF_NEXT_START))


def _without(
    spec: Mapping[str, Any], names: Collection[str], of_pod: Collection[str]
) -> dict[str, Any]:
    # A pod section that becomes empty is left out.
    fields = {name: value for name, value in spec.items() if name not in names}
    pod = fields.get("pod")
    if pod is not None and not pod.keys().isdisjoint(of_pod):
        fields["pod"] = {name: value for name, value in pod.items() if name not in of_pod}
        if fields["pod"] == _empty_pod():
            del fields["pod"]
    return fields


@cache
def _empty_pod() -> Mapping[str, Any]:
    return unsaid(Pod).model_dump(mode="json", by_alias=True, exclude_none=True)


def _hash(fields: Mapping[str, Any], models: Iterable[str], version: str) -> str:
    config, *drafts = models
    canonical = json.dumps(
        [fields, config, version, *drafts], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """All that planning, rendering and reconciling need of a resource.

    ``owner`` is the resource at its ``generation``. ``model`` is as the engine holds it.
    ``request``, ``traits`` and ``terms`` are the question to the planner, ``deployment`` is how to
    run its plan, and ``intent`` its use. ``defaulted`` are the paths of fields that came from the
    administrator's defaults.

    ``input_hash`` changes with everything that makes a new plan necessary (the spec but for
    :data:`NOT_PLANNED_WITH`, the model's config, the engine version),
    ``cut_hash`` with all of it but the number of replicas. ``default_version`` is the engine's
    version if the spec leaves it open (empty: it does not). ``unadmitted`` says by the resource of
    GPUs why the engine's image for them must not be run.
    """

    owner: Owner
    generation: int
    intent: Intent
    model: ModelSpec
    request: Request
    traits: EngineTraits
    terms: PodTerms
    deployment: Deployment
    defaulted: tuple[str, ...]
    input_hash: str
    cut_hash: str
    default_version: str = ""
    unadmitted: Mapping[str, Problem] = field(default_factory=dict)

    @property
    def draft(self) -> ModelSpec | None:
        """Return the model that drafts for it, or None."""
        return self.traits.options.drafter.model if self.traits.options.drafter else None


def resolve(question: Question) -> Subject:
    """Return the subject of a question.

    Raises:
        InputError: The model is unknown or its config cannot be used, the engine's version or an
            argument is not supported, or the workload exceeds the model's context.
    """
    spec, defaulted = with_defaults(question.resource.spec, question.settings)
    resource = question.resource.model_copy(update={"spec": spec})
    intent = intent_of(spec, keeps_templates=question.settings.keeps_templates)
    kept = question.kept_version if intent.keeps_templates else None  # else the newest one
    version, pins = version_of(spec, question, kept), pins_of(spec)
    stored = stored_model(question, spec)
    model = held_model(stored, spec.model, pins)
    alone = traits_of(spec, version, pins, question.settings)
    drafter = drafter_for(spec, question, model, alone, pins)
    draft = drafter.model if drafter else None
    hashes = hashes_of(spec, model, draft, version)
    deployment = _deployment(resource, question.settings, version, stored.quantization, hashes.pods)
    return Subject(
        owner=deployment.owner,
        generation=resource.metadata.generation,
        intent=intent,
        model=model,
        request=replace(
            to_request(spec, model, drafter),
            file_bytes=stored.least_bytes,
            disk_bytes=_disk_bytes(deployment, stored, draft),
            commit_missed=_misses_commit(spec, question),
            gated=tuple(_gated(spec)),
            open_router=deployment.router is not None and deployment.serving.api_key is None,
            claims=_claims(question, spec),
            cache_claim=_cache_claim(deployment),
            owner=(_stated_namespace(resource.metadata), resource.metadata.name),
        ),
        traits=replace(alone, options=replace(alone.options, drafter=drafter)),
        terms=_terms(question, spec),
        deployment=deployment,
        defaulted=defaulted,
        input_hash=hashes.whole,
        cut_hash=hashes.cut,
        default_version=version if leaves_version_open(spec.engine) else "",
        unadmitted=unadmitted_images(spec.engine, question.settings, version),
    )


def _terms(question: Question, spec: Spec) -> PodTerms:
    return replace(terms_of(spec), lacking=question.lacking, claims=_claims(question, spec))


def _cache_claim(deployment: Deployment) -> str:
    cache = deployment.weights.cache
    return (cache.claim if cache else None) or ""


def _claims(question: Question, spec: Spec) -> tuple[VolumeClaim, ...]:
    namespace, known = question.resource.metadata.namespace, question.claims
    named = ((namespace, name) for name in claim_names(spec))
    return tuple(known[claim] for claim in named if claim in known)


def _deployment(
    resource: ShardedModel,
    settings: Settings,
    version: str,
    stored_quantization: str | None,
    asked: str,
) -> Deployment:
    deployment = to_deployment(
        resource, engine_version=version, stored_quantization=stored_quantization
    )
    rules = network_rules_of(settings.network_policy)
    scaled = deployment.autoscaling
    return replace(
        deployment,
        autoscaling=replace(scaled, prometheus=settings.prometheus_url) if scaled else None,
        cluster=replace(deployment.cluster, network_rules=rules),
        router=deployment.router and replace(deployment.router, image=settings.router.image),
        groups=replace(deployment.groups, asked=asked),
    )


def _disk_bytes(deployment: Deployment, model: ModelSpec, draft: ModelSpec | None) -> int:
    stated = deployment.pods.ephemeral_storage
    if stated is not None:
        return whole_bytes(stated)
    downloaded = model.least_bytes if volumes.downloads_model(deployment) else 0
    if draft is not None and volumes.downloads_draft(deployment):
        downloaded += draft.least_bytes
    return pod_resources.disk_request_bytes(downloaded)


def _stated_namespace(metadata: Metadata) -> str:
    # Empty: it lands in the namespace of the context.
    return metadata.namespace if "namespace" in metadata.model_fields_set else ""


def _gated(spec: Spec) -> Iterator[str]:
    # Those that pods download, known to be gated, without a token.
    from_hub = scheme_of(spec.model.weights) == HUB
    head = spec.engine.speculation and spec.engine.speculation.head
    draft = commit_of(head.uri) if head else None
    if hub_token(spec.model.weights) is None:
        downloaded = (spec.model.id if from_hub else "", draft[0] if draft else "")
        gated = (model for model in downloaded if gate_of(model).gating is Gating.GATED)
        yield from gated


def _misses_commit(spec: Spec, question: Question) -> bool:
    return question.settings.policy.require_revision == "Warn" and lacks_revision(spec)


def _not_made(wish: PairWish) -> Problem:
    return Problem(
        code="PairNotMade",
        path="spec.disaggregation.mode",
        what=f"mode {wish.mode}",
        limit="must be Off: the operator does not make the halves of a pair by itself",
        remedy="apply the two models that shardwright render prints of it (docs/howto/pairs.md), "
        "or set it to Off",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """The part of administrator and cluster for all resources: models by id beside the built-in
    ones, settings, the fetcher of configs from the hub, and what the cluster does not serve.
    """

    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    fetcher: Fetcher | None = None
    lacking: tuple[Capability, ...] = ()


def resolve_stored(
    content: Mapping[str, Any],
    config_text: str | None,
    administration: Administration,
    kept_version: str | None = None,
) -> Subject | tuple[Problem, ...]:
    """Return the subject of a resource, or the problems that its user must correct.

    ``config_text`` is the text in the ConfigMap of its config, ``kept_version`` the engine's
    default version that it has had so far.
    """
    try:
        question = Question(
            resource=read_stored(content),
            config_text=config_text,
            kept_version=kept_version,
            catalogue=administration.catalogue,
            settings=administration.settings,
            fetcher=administration.fetcher,
            lacking=administration.lacking,
        )
        subject = resolve(question)
        wish = subject.request.pair
        return (_not_made(wish),) if wish and not subject.intent.plan_only else subject
    except InputError as error:
        return error.problems
