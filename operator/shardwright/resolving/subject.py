"""What does a question mean, with all names resolved, however it was written?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from shardwright.api.admission import lacks_revision
from shardwright.api.request import to_request
from shardwright.api.resource import Metadata, ShardedModel
from shardwright.api.settings import Settings, with_defaults
from shardwright.api.spec import Spec
from shardwright.api.weights import HUB, commit_of, hub_token, scheme_of
from shardwright.errors import Problem
from shardwright.hardware.scheduling import PodTerms
from shardwright.hardware.untrusted import whole_bytes
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.gating import Gating, gate_of
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.request import Request
from shardwright.rendering import budgets, cache
from shardwright.rendering.deployment import Deployment, Owner
from shardwright.resolving.deployment import network_rules_of, terms_of, to_deployment
from shardwright.resolving.engine import (
    leaves_version_open,
    pins_of,
    traits_of,
    unadmitted_images,
    version_of,
)
from shardwright.resolving.hashes import hashes_of
from shardwright.resolving.intent import Intent, intent_of
from shardwright.resolving.model import drafter_for, held_model, stored_model
from shardwright.resolving.question import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """All that planning, rendering and reconciling need of a resource.

    ``owner`` is the resource at its ``generation``. ``model`` is as the engine holds it.
    ``request``, ``traits`` and ``terms`` are the question to the planner, ``deployment`` is how to
    run its plan, and ``intent`` its use. ``defaulted`` are the paths of fields that came from the
    administrator's defaults.

    ``input_hash`` changes with everything that makes a new plan necessary (the spec but for
    :data:`~shardwright.resolving.hashes.NOT_PLANNED_WITH`, the model's config, the engine version),
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
    # With onUpgrade: Roll the newest version replaces the kept one.
    kept = question.kept_version if intent.keeps_templates else None
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
            owner=(_stated_namespace(resource.metadata), resource.metadata.name),
        ),
        traits=replace(alone, options=replace(alone.options, drafter=drafter)),
        terms=replace(terms_of(spec), lacking=question.lacking),
        deployment=deployment,
        defaulted=defaulted,
        input_hash=hashes.whole,
        cut_hash=hashes.cut,
        default_version=version if leaves_version_open(spec.engine) else "",
        unadmitted=unadmitted_images(spec.engine, question.settings, version),
    )


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
    return replace(
        deployment,
        cluster=replace(deployment.cluster, network_rules=rules),
        groups=replace(deployment.groups, asked=asked),
    )


def _disk_bytes(deployment: Deployment, model: ModelSpec, draft: ModelSpec | None) -> int:
    stated = deployment.pods.ephemeral_storage
    if stated is not None:
        return whole_bytes(stated)
    downloaded = model.least_bytes if cache.downloads(deployment) else 0
    if draft is not None and cache.downloads_draft(deployment):
        downloaded += draft.least_bytes
    return budgets.disk_request_bytes(downloaded)


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
