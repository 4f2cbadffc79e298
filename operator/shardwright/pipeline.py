"""Resource, model, inventory to a report and a bundle: what the CLI and the operator both call.

Nothing is decided here, the parts are connected: ``resolve`` → ``take_stock`` → ``plan_serving`` (or what
``replanning`` does) → ``record_of`` → ``bundle_for``.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from shardwright.api.drafts import PATH as DRAFT_PATH
from shardwright.api.drafts import drafter_of
from shardwright.api.published import DEFAULTS_MAX_ITEMS, ShownEngine, ShownStartBudget
from shardwright.api.record import PlanRecord
from shardwright.api.request import adapter_slots, network_of, rdma_request, to_request
from shardwright.api.resource import ShardedModel
from shardwright.api.settings import DEFAULTS, Settings, check_default_version, check_runtime_class, with_defaults
from shardwright.api.spec import PlacementRules, Spec
from shardwright.api.workload import drafting_of
from shardwright.deploying import COMPUTED_AS, image_of, to_deployment, tolerations_of
from shardwright.engines.engine import ENGINES, Engine
from shardwright.engines.options import check_arguments, check_features
from shardwright.engines.pins import Pins, read_pins
from shardwright.engines.versions import engine_version
from shardwright.errors import InputError, Problem
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import Inventory, NodeExclusion
from shardwright.hardware.pods import GpuUsage
from shardwright.hardware.pools import Reservation, build_inventory
from shardwright.hardware.scheduling import PodTerms
from shardwright.layouts.traits import Drafter, EngineTraits
from shardwright.modelspec.catalogue import find_model, model_unknown
from shardwright.modelspec.computed import computed_in
from shardwright.modelspec.parse import parse_config
from shardwright.modelspec.quantization import apply_quantization
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec, interned
from shardwright.planning.plan import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import Request
from shardwright.rendering.bundle import Bundle
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.names import base_name, generation_name, generation_of, group_name
from shardwright.rendering.pod import start_budget
from shardwright.rendering.render import render

NOT_PLANNED_WITH: Final = ("paused", "mode", "replan", "restart", "rollout", "readiness")
"""Fields of the spec that say what to do with a plan, not what to plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A resource and the texts that it refers to.

    ``config_text`` is what stands under the key that ``configMapRef`` names, None where it is not there.
    ``catalogue`` are the administrator's own models by id, beside the built-in ones: config.json contents;
    ``settings`` what the administrator says for all resources.
    """

    resource: ShardedModel
    config_text: str | None = None
    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A question with all names resolved: all that planning and rendering need beside the cluster.

    ``input_hash`` changes with everything that makes a new plan necessary (the spec but for
    :data:`NOT_PLANNED_WITH`, the model's config, the engine version), ``cut_hash`` with all of it but the
    number of replicas. ``model`` is as the engine holds it, ``stored_quantization`` as its config has it.
    ``resource`` has the administrator's defaults in it, ``defaulted`` are the paths of what came from there.
    """

    resource: ShardedModel
    defaulted: tuple[str, ...]
    model: ModelSpec
    stored_quantization: str | None
    request: Request
    traits: EngineTraits
    input_hash: str
    cut_hash: str


def resolve(question: Question) -> Subject:
    """Return the subject of a question.

    Raises:
        InputError: The model is unknown or its config cannot be used, the engine's version or an argument
            is not supported, or the workload exceeds the model's context.
    """
    spec, defaulted = with_defaults(question.resource.spec, question.settings)
    engine = ENGINES[spec.engine.name]
    version = _engine_version(spec, question, engine)
    stored = read_model_of(question)
    pins = read_pins(spec.engine.args) if engine.rules.policy.counted else Pins()
    dtype = None if spec.model.quantization in COMPUTED_AS else pins.dtype  # the field goes before the argument
    model = interned(computed_in(_quantized(stored, spec), dtype))
    traits = replace(_traits(spec, engine, version), kv_cache_bytes=pins.kv_cache_bytes, adapters=adapter_slots(spec.model))
    traits = replace(traits, drafter=_drafter(spec, question, model, traits))
    draft = traits.drafter.model if traits.drafter else None
    return Subject(
        resource=question.resource.model_copy(update={"spec": spec}),
        defaulted=defaulted,
        model=model,
        stored_quantization=stored.quantization,
        request=replace(to_request(spec, model, draft), file_bytes=stored.least_bytes),
        traits=traits,
        input_hash=_hash(spec, (model, draft), version, NOT_PLANNED_WITH),
        cut_hash=_hash(spec, (model, draft), version, (*NOT_PLANNED_WITH, "replicas")),
    )


def take_stock(
    resource: ShardedModel,
    facts: Iterable[NodeFacts | NodeExclusion],
    usage: Iterable[GpuUsage] | None,
    reservations: Iterable[Reservation] = (),
    *,
    beside: int | None = None,
    vacated: bool = False,
) -> Inventory:
    """Return what there is for a resource: nodes that it selects and tolerates, without what others hold.

    Former generations of its own groups hold what they hold until they are gone; with ``vacated`` it is as if they were.
    With ``beside`` it is what there is for a second of this group of its plan: all its pods hold their GPUs, too.
    """
    placement = resource.spec.placement or PlacementRules()
    own = (resource.metadata.namespace, base_name(resource.metadata.name))  # what pods are labelled with
    if beside is not None:
        group = group_name(own[1], beside)
        reservations = [item for item in reservations if (item.owner, generation_of(item.group)[0]) != (own, group)]
    pods, kept = _by_generation(tuple(usage or ()), tuple(reservations), None if vacated else own)
    return build_inventory(
        facts,
        None if usage is None else pods,
        reservations=kept,
        own=own if beside is None else None,
        terms=PodTerms(
            selector=placement.node_selector,
            tolerations=tolerations_of(placement),
            rdma=rdma_request(resource.spec),
            compute_domains=network_of(resource.spec).compute_domain == "Auto",
        ),
    )


def reservations_of(owner: tuple[str, str], plan: Plan, generations: Sequence[int] = ()) -> Iterator[Reservation]:
    """Yield what a plan keeps for ``owner`` (namespace, base name): its GPUs on every node of every group.

    ``generations`` are those that its groups are of at least (empty: the first).
    """
    for group, nodes in enumerate(plan.groups):
        name = group_name(owner[1], group, generations[group] if group < len(generations) else 0)
        for node in nodes:
            yield Reservation(owner=owner, node=node, gpus=plan.gpus_per_node, group=name)


def _by_generation(
    usage: Sequence[GpuUsage], reservations: Sequence[Reservation], own: tuple[str, str] | None
) -> tuple[list[GpuUsage], list[Reservation]]:
    """Return both with generations told apart: a plan keeps GPUs for the latest of a group, earlier ones have their own.

    Earlier ones of ``own`` are in its way as pods of anybody else are.
    """
    latest: dict[tuple[tuple[str, str] | None, str], int] = {}
    for owner, group in ((item.owner, item.group) for items in (usage, reservations) for item in items):
        root, number = generation_of(group)
        latest[owner, root] = max(number, latest.get((owner, root), 0))

    def standing(item: GpuUsage | Reservation) -> str:
        root, _ = generation_of(item.group)
        return generation_name(root, latest[item.owner, root])

    pods = [replace(pod, owner=None) if pod.owner == own and pod.group != standing(pod) else pod for pod in usage]
    return pods, [replace(item, group=standing(item)) for item in reservations]


def plan_serving(subject: Subject, inventory: Inventory) -> Report:
    """Return the plan, or why there is none.

    With ``replicas: 0`` it is the plan of one replica that holds no node.
    """
    report = make_plan(subject.model, inventory, subject.request, subject.traits)
    return _first_groups(report, 0) if subject.resource.spec.replicas == 0 else report


def engine_status(subject: Subject, deployed: Plan | None = None) -> dict[str, Any]:
    """Return what ``status`` says about the engine: version, image, what the administrator's defaults added.

    With the plan that is ``deployed`` it says how long its pods may take to start.
    """
    engine = subject.resource.spec.engine
    budget = start_budget(deployed, _deployment(subject)) if deployed else None
    shown = ShownEngine(
        name=engine.name,
        version=subject.traits.version,
        image=image_of(engine),
        defaults=list(subject.defaulted[:DEFAULTS_MAX_ITEMS]) or None,
        start_budget=ShownStartBudget(**asdict(budget)) if budget else None,
    )
    return {"engine": shown.model_dump(by_alias=True, exclude_none=True)}


def record_of(subject: Subject, report: Report) -> PlanRecord | None:
    """Return the plan of record of a report, None where nothing fits."""
    if isinstance(report.outcome, NoPlan):
        return None
    return PlanRecord(
        input_hash=subject.input_hash,
        cut_hash=subject.cut_hash,
        generation=subject.resource.metadata.generation,
        plan=report.outcome,
        alternatives=report.alternatives,
        excluded=report.excluded,
        considered=report.considered,
    )


def bundle_for(
    subject: Subject,
    plan: Plan,
    *,
    ready_pods: int | None = None,
    cluster_domain: str = "cluster.local",
    generations: tuple[int, ...] = (),
    scheduling_api: str | None = None,
) -> Bundle:
    """Return the objects that a plan turns into.

    Args:
        subject: What was asked.
        plan: The plan that stands.
        ready_pods: Pods of the groups that have been ready at some time, for the disruption budget (None: all).
        cluster_domain: DNS domain of the cluster.
        generations: Under which generation each group exists (empty: the first).
        scheduling_api: Version of the scheduler's API that the cluster has (None: the newest that is known).

    Raises:
        InputError: The plan can be shown but not run.
    """
    deployment = _deployment(subject, cluster_domain=cluster_domain, scheduling_api=scheduling_api)
    return render(plan, replace(deployment, generations=generations), ready_pods=ready_pods)


def _deployment(subject: Subject, **surroundings: Any) -> Deployment:
    version, stored = subject.traits.version, subject.stored_quantization
    return to_deployment(subject.resource, engine_version=version, stored_quantization=stored, **surroundings)


def read_model_of(question: Question) -> ModelSpec:
    """Return the model as it is stored: from the config in the spec, from the ConfigMap, or from the catalogue.

    Raises:
        InputError: The id is unknown, the ConfigMap or its key is missing, or the config cannot be used.
    """
    model = question.resource.spec.model
    if model.config is not None:
        return _read(model.config, model.id, "spec.model.config")
    if model.config_map_ref is None:
        return _read_known(model.id, question.catalogue, "spec.model")
    if question.config_text is None:
        raise InputError([_config_missing(model.config_map_ref.name, model.config_map_ref.key)])
    return _read_text(question.config_text, model.id)


def _drafter(spec: Spec, question: Question, model: ModelSpec, traits: EngineTraits) -> Drafter | None:
    """Return the draft model, from its config or from the catalogue, once it is known that it can draft for ``model``."""
    draft = spec.workload.draft_model
    if draft is None:
        return None
    if draft.config is not None:
        return drafter_of(draft, _read(draft.config, draft.id, f"{DRAFT_PATH}.config"), model, traits)
    if find_model(draft.id, question.catalogue) is None:
        unknown = replace(model_unknown(draft.id, question.catalogue), remedy=f"set {DRAFT_PATH}.config to its config.json")
        raise InputError([unknown.under(DRAFT_PATH)])
    return drafter_of(draft, _read_known(draft.id, question.catalogue, DRAFT_PATH), model, traits)


def _read_known(model_id: str, catalogue: Mapping[str, Mapping[str, object]], path: str) -> ModelSpec:
    entry = find_model(model_id, catalogue)
    if entry is None:
        raise InputError([model_unknown(model_id, catalogue).under(path)])
    return _read(entry.config, model_id, f"{path}.id")


def _read_text(text: str, model_id: str) -> ModelSpec:
    try:
        config = parse_config(text, source=model_id)
    except InputError as error:
        raise InputError(problem.under("spec.model.configMapRef") for problem in error.problems) from None
    return _read(config, model_id, "spec.model.configMapRef")


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


def _quantized(model: ModelSpec, spec: Spec) -> ModelSpec:
    if spec.model.quantization == "Auto":
        return model
    try:
        return apply_quantization(model, spec.model.quantization)
    except InputError as error:
        raise InputError(problem.under("spec.model") for problem in error.problems) from None


def _traits(spec: Spec, engine: Engine, version: str) -> EngineTraits:
    """Return what planning must know of the engine; an image that the user names may be built for other GPUs."""
    named = spec.engine.image is not None and engine.releases.default_image
    runs_on = None if named else engine.releases.runs_on
    return replace(engine.traits(version), runs_on=runs_on, over_ray=spec.engine.executor == "Ray")


def _engine_version(spec: Spec, question: Question, engine: Engine) -> str:
    """Return the version, once it is known to take what the resource and the administrator's defaults ask of it."""
    version = engine_version(image_of(spec.engine), spec.engine.version, engine.releases)
    if isinstance(version, Problem):
        raise InputError([version])
    own, settings = question.resource.spec.engine.args, question.settings
    preset = {name: value for name, value in spec.engine.args.items() if name not in own}
    rules = engine.rules
    trusted = frozenset(rules.policy.dangerous)
    problems = (
        *(problem.under("spec.engine.args") for problem in check_arguments(own, version, settings.admitted, rules)),
        *(problem.under(f"{DEFAULTS}.engine.args") for problem in check_arguments(preset, version, trusted, rules)),
        *check_features(_features(spec, engine), version, rules),
        *check_runtime_class(question.resource.spec, settings),
        *check_default_version(question.resource.spec, settings),
    )
    if problems:
        raise InputError(problems)
    return version


def _features(spec: Spec, engine: Engine) -> dict[str, str]:
    """Return the options that fields of the spec turn into beside the words of a plan, each with its field."""
    drafting = drafting_of(spec.workload)
    missing = engine.rules.policy.missing
    nameless = "served-model-name" in missing  # elsewhere it is among the words of a plan
    asked = {
        "quantization": (spec.model.quantization == "FP8", "spec.model.quantization"),
        "dtype": (spec.model.quantization in ("BF16", "FP16"), "spec.model.quantization"),
        "served-model-name": (nameless and spec.model.served_name is not None, "spec.model.servedName"),
        "kv-cache-dtype": (spec.workload.kv_cache_quantization != "Auto", "spec.workload.kvCacheQuantization"),
        "load-format": (spec.model.load_format != "Auto", "spec.model.loadFormat"),
        "lock-memory": ("lock-memory" in missing and _locks_memory(spec), "spec.pod.network.lockMemory"),
        "api-key": ("api-key" in missing and spec.engine.api_key_secret_ref is not None, "spec.engine.apiKeySecretRef"),
        "enable-lora": (bool(spec.model.adapters), "spec.model.adapters"),
        "speculative-config": (
            drafting is not None,
            f"spec.workload.{'draftModel' if spec.workload.draft_model else 'promptLookup'}",
        ),
    }
    return {option: path for option, (is_asked, path) in asked.items() if is_asked}


def _locks_memory(spec: Spec) -> bool:
    return bool(spec.pod and spec.pod.network and spec.pod.network.lock_memory)


def _hash(spec: Spec, models: Iterable[ModelSpec | None], version: str, without: Iterable[str]) -> str:
    plain: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields = {name: value for name, value in plain.items() if name not in set(without)}
    (config, *drafts) = [model.config_hash for model in models if model is not None]
    canonical = json.dumps([fields, config, version, *drafts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _first_groups(report: Report, replicas: int) -> Report:
    if isinstance(report.outcome, NoPlan):
        return report
    plan = report.outcome
    fewer = replace(plan, groups=plan.groups[:replicas], layout=replace(plan.layout, replicas=replicas))
    return replace(report, outcome=fewer)
