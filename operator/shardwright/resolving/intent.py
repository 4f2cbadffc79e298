"""What does the user want done with a plan: whether and how its groups run, change and restart? The
schema has refused values that make no sense.

How does a resource want its model run, in the words of engine and scheduler? A value that means
nothing to an engine was refused by the schema, and raises a ``KeyError`` here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from shardwright.api.network_policy import NetworkPolicies
from shardwright.api.parts import Part, unsaid
from shardwright.api.planner_request import KV_CACHE_DTYPES, network_of, rdma_request
from shardwright.api.pod_spec import Pod, PodVolume
from shardwright.api.resource import ShardedModel
from shardwright.api.routing import ROUTER_ACCOUNT, Routing
from shardwright.api.scaling import Scaling, ServingRules
from shardwright.api.spec import ApiKeyReference, Model, PlacementRules, Restart, Spec, is_half
from shardwright.api.weights_source import (
    BUCKETS,
    IMAGE_VOLUME,
    ImageVolume,
    StoreOptions,
    claim_of,
    commit_of,
    hub_token,
    place_of,
    scheme_of,
)
from shardwright.costs.workload import Phase
from shardwright.engines.launch import DEFAULT_ADAPTER_RANK
from shardwright.engines.registry import ENGINES
from shardwright.engines.versions import plugins_in
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.scheduling import PodTerms
from shardwright.layouts.layout import DraftMethod
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import (
    Adapters,
    Autoscaling,
    CacheClaim,
    ClaimPath,
    ClusterTerms,
    ConfigMapKey,
    Deployment,
    DraftingOptions,
    HubCommit,
    ImagePath,
    NetworkRules,
    ObjectStore,
    Owner,
    OwnMarks,
    OwnVolume,
    PairMember,
    PodNetwork,
    PodOptions,
    RouterOptions,
    Scheduling,
    SecretKey,
    ServedAdapter,
    ServingOptions,
    VolumeKind,
    WeightSource,
)
from shardwright.rendering.gang_scheduling import SCHEDULER_INTEGRATIONS
from shardwright.rendering.names import half_name, pair_of
from shardwright.resolving.engine import image_of, images_of
from shardwright.resolving.model import COMPUTED_AS


class Replan(StrEnum):
    """The permitted effect of a change of the cluster (``spec.replan``)."""

    NEVER = "Never"
    WHEN_INVALID = "WhenInvalid"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How a group that failed starts again (``spec.restart``): at once, then after
    ``delay_seconds``, doubling.

    ``budget`` is how many failures of the engine in a row are met so; then one try every
    ``max_delay_seconds``, or none. ``stable_seconds`` of service end a row. Basis of the defaults:
    assumed; source: LeaderWorkerSet and RBG start at 30 s and stop at 600 s, a Job gives up after
    6.
    """

    delay_seconds: int = 30
    max_delay_seconds: int = 600
    stable_seconds: int = 600
    budget: int = 6
    stop_when_spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The user's intent for a plan once there is one.

    ``plan_only``: it is shown, no pod is made and no GPU is held. ``paused``: nothing that exists
    is changed. ``replicas`` is the number of groups (None: the plan says how many). ``scheduler``
    is told which pods form a group (None: no scheduler is).
    ``shares_claim``: pods mount an existing claim (weights, adapters, a user's own volume), which
    may be one that a single node mounts. ``max_unavailable`` and ``max_surge`` are how many groups
    a rollout may take down, or surge, at once. ``keeps_templates``: groups stay as another release
    of the operator has made them until they restart. ``min_ready_seconds`` is how long a group
    serves before the next one is stopped, ``progress_deadline_seconds`` how long a start may take
    (None: as follows from the bytes to load). Groups below the index ``partition`` keep their pods.
    ``rolls_back``: a change with which a group does not come up is rolled back. ``min_groups`` must
    have a place before any starts. ``bounds`` are the fewest and the most groups that an autoscaler
    may choose (None: none is asked for). ``new_pods``: groups of one pod, too, restart with new
    pods.
    """

    plan_only: bool
    paused: bool
    replicas: int | None
    replan: Replan
    scheduler: str  # None | Native | Kueue | Coscheduling
    shares_claim: bool
    restart: RestartPolicy
    max_unavailable: int
    max_surge: int
    keeps_templates: bool
    min_ready_seconds: int
    progress_deadline_seconds: int | None
    partition: int
    rolls_back: bool = False
    min_groups: int = 1
    bounds: tuple[int, int] | None = None
    new_pods: bool = False

    def wants(self, plan: Plan | None) -> int:
        """Return how many groups are wanted: ``replicas``, or as many as the plan had to have."""
        return self.chosen(plan.wanted if plan else 1)

    def chosen(self, planned: int) -> int:
        """Return how many groups are wanted where so many are planned for the load."""
        if self.replicas is not None or self.bounds is None:
            return planned if self.replicas is None else self.replicas
        least, most = self.bounds
        return min(max(planned, least), most)

    def least(self, plan: Plan | None) -> int:
        """Return how many of the wanted groups must have a place before any starts."""
        return max(1, min(self.min_groups, self.wants(plan)))

    @property
    def keeps_gpus(self) -> bool:
        """Return whether a new plan keeps GPUs: it is to be run now, not only shown."""
        return not self.plan_only and not self.paused


def intent_of(spec: Spec, *, keeps_templates: bool = True) -> Intent:
    """Return the intent of a spec; ``keeps_templates`` holds if the spec says nothing."""
    on_upgrade = spec.rollout.on_upgrade
    return Intent(
        plan_only=spec.mode == "PlanOnly",
        paused=spec.paused,
        replicas=spec.replicas,
        replan=Replan(spec.replan),
        scheduler=(spec.placement or unsaid(PlacementRules)).scheduler,
        shares_claim=bool(claim_names(spec)),
        restart=_restart_policy(spec.restart),
        max_unavailable=spec.rollout.max_unavailable,
        max_surge=spec.rollout.max_surge,
        keeps_templates=keeps_templates if on_upgrade is None else on_upgrade == "Keep",
        min_ready_seconds=spec.rollout.min_ready_seconds,
        progress_deadline_seconds=spec.rollout.progress_deadline_seconds,
        partition=spec.rollout.partition,
        rolls_back=spec.rollout.on_failure == "RollBack",
        min_groups=spec.rollout.min_groups,
        bounds=(spec.scaling.min_replicas, spec.scaling.max_replicas) if spec.scaling else None,
        # The library that moves K/V keeps peers by address: one that came back would be a stranger.
        new_pods=is_half(spec),
    )


def _restart_policy(restart: Restart) -> RestartPolicy:
    return RestartPolicy(
        delay_seconds=restart.delay_seconds,
        max_delay_seconds=restart.max_delay_seconds,
        stable_seconds=restart.stable_seconds,
        budget=restart.budget,
        stop_when_spent=restart.on_budget_spent == "Stop",
    )


def claim_names(spec: Spec) -> tuple[str, ...]:
    """Return the claims that the pods mount and that exist beside the model, sorted."""
    model, weights = spec.model, spec.model.weights
    cache = weights.cache if weights else None
    volumes = (spec.pod or unsaid(Pod)).volumes or ()
    uris = (weights.uri if weights else None, *(adapter.uri for adapter in model.adapters))
    read = (claim[0] for uri in uris if (claim := claim_of(uri)))
    mounted = (volume.pvc.claim_name for volume in volumes if volume.pvc)
    kept = (cache.claim_name,) if cache and cache.claim_name else ()
    return tuple(sorted({*read, *mounted, *kept}))


_LOADED_AS: Final = {"FP8": "fp8"}
_READ_BY: Final = {
    "Safetensors": "safetensors",
    "FastSafetensors": "fastsafetensors",
    "RunAIStreamer": "runai_streamer",
    "ShardedState": "sharded_state",
}


def to_deployment(
    resource: ShardedModel, *, engine_version: str, stored_quantization: str | None
) -> Deployment:
    """Return how to run the model, for any plan and cluster, with the newest scheduler's API.

    ``stored_quantization`` is how the config says that the weights are stored (None: not
    quantized): quantized weights are not quantized again.
    """
    spec, metadata = resource.spec, resource.metadata
    return Deployment(
        owner=Owner(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid),
        engine=spec.engine.name,
        engine_version=engine_version,
        image=image_of(spec.engine, engine_version),
        images=images_of(spec.engine, engine_version),
        model=spec.model.id,
        weights=_weights(spec.model, stored_quantization),
        drafting=_drafting(spec),
        serving=_serving(spec, engine_version),
        pods=_pods(spec),
        cluster=ClusterTerms(scheduling=_scheduling(spec.placement or unsaid(PlacementRules))),
        autoscaling=_autoscaling(spec.scaling),
        router=_router(spec.routing),
        picker=_picker(spec.routing),
        half=_half(spec, metadata.name) if is_half(spec) else None,
    )


def _half(spec: Spec, name: str) -> PairMember:
    phase = Phase(str(spec.phase))
    pair = pair_of(name, phase)
    if not pair:
        problem = Problem(
            code="HalfWithoutPair",
            path="spec.phase",
            what=f"the name {name}",
            limit=f"must end in {half_name('', phase)} with phase {phase}: what is before it names "
            "the pair",
            remedy="rename the resource, or leave phase out",
        )
        raise InputError([problem])
    return PairMember(phase=phase, pair=pair)


def _autoscaling(scaling: Scaling | None) -> Autoscaling | None:
    if scaling is None:
        return None
    return Autoscaling(
        least=scaling.min_replicas, most=scaling.max_replicas, idle_seconds=scaling.idle_seconds
    )


def _router(routing: Routing | None) -> RouterOptions | None:
    if routing is None or routing.mode != "Router":
        return None
    return RouterOptions(
        replicas=routing.replicas or 1, account=routing.service_account_name or ROUTER_ACCOUNT
    )


def _picker(routing: Routing | None) -> tuple[str, int] | None:
    picker = routing and routing.endpoint_picker
    return (picker.name, picker.port) if picker else None


def _weights(model: Model, stored_quantization: str | None) -> WeightSource:
    made = None if stored_quantization else _LOADED_AS.get(model.quantization)
    return WeightSource(
        revision=model.revision,
        hub_token=_hub_token(model),
        claim=_claim_path(model.weights.uri if model.weights else None),
        weights_image=_weights_image(model),
        object_store=_object_store(model),
        cache=_cache(model),
        load_format=_load_format(model),
        quantization=made,
    )


def _drafting(spec: Spec) -> DraftingOptions:
    speculation = spec.engine.speculation
    if speculation is None:
        return DraftingOptions()
    return DraftingOptions(
        drafts_by=DraftMethod(speculation.method),
        draft_tokens=speculation.tokens or 0,
        draft_model=_source_of(speculation.head.uri) if speculation.head else None,
    )


def _serving(spec: Spec, version: str) -> ServingOptions:
    rules = spec.serving or unsaid(ServingRules)
    return ServingOptions(
        served_name=spec.model.served_name,
        kv_cache_dtype=KV_CACHE_DTYPES[spec.engine.kv_cache_quantization or "Auto"],
        adapters=_adapters(spec.model),
        arguments=_arguments(spec, version),
        environment=tuple((variable.name, variable.value) for variable in spec.engine.env),
        api_key=_secret_key(spec.engine.api_key_secret_ref),
        media_domains=tuple(spec.engine.media_domains or ()),
        over_ray=spec.engine.executor == "Ray",
        silence_seconds=spec.readiness.silence_seconds if spec.readiness.tokens else 0,
        idle_seconds=spec.readiness.idle_seconds,
        drain_seconds=spec.rollout.drain_seconds,
        refuses=rules.overload == "Refuse",
        by_priority=rules.order == "Priority",
        # The router of a pair asks the half that computes prompts.
        gives_tokens=(spec.routing is not None and spec.routing.mode == "Router")
        or spec.phase == "Prefill",
    )


def _pods(spec: Spec) -> PodOptions:
    placement, pod = (spec.placement or unsaid(PlacementRules), spec.pod or unsaid(Pod))
    resources = pod.resources
    return PodOptions(
        node_selector=tuple(sorted(placement.node_selector.items())),
        tolerations=_tolerations(placement),
        cpu=resources.cpu if resources else None,
        memory=resources.memory if resources else None,
        ephemeral_storage=resources.ephemeral_storage if resources else None,
        runtime_class=pod.runtime_class_name,
        priority_class=pod.priority_class_name,
        image_pull_secrets=tuple(secret.name for secret in pod.image_pull_secrets),
        # Left out it is true.
        read_only_root=pod.read_only_root_filesystem is not False,
        marks=_marks(pod),
        volumes=tuple(map(_volume, pod.volumes or ())),
        network=_network(spec),
    )


def _load_format(model: Model) -> str | None:
    if scheme_of(model.weights) in BUCKETS:
        # Nothing else reads a bucket.
        return _READ_BY["RunAIStreamer"]
    return _READ_BY.get(model.load_format)


def terms_of(spec: Spec) -> PodTerms:
    """Return the terms on which the pods take nodes, beside GPUs."""
    placement = spec.placement or unsaid(PlacementRules)
    return PodTerms(
        selector=placement.node_selector,
        tolerations=_tolerations(placement),
        rdma=replace(rdma_request(spec), plugins=_plugins(spec)),
        compute_domains=network_of(spec).compute_domain == "Auto",
        mig_profile=placement.mig_profile or "",
    )


def _plugins(spec: Spec) -> tuple[Capability, ...]:
    said = network_of(spec).plugins
    return plugins_in(spec.engine.image or "") if said is None else tuple(map(Capability, said))


def _marks(pod: Pod) -> OwnMarks:
    return OwnMarks(
        labels=tuple(sorted((pod.labels or {}).items())),
        annotations=tuple(sorted((pod.annotations or {}).items())),
        account=pod.service_account_name,
        pull_policy=pod.image_pull_policy or OwnMarks().pull_policy,
    )


def _volume(volume: PodVolume) -> OwnVolume:
    # A rule has seen to it that it has exactly one source.
    kind, source, read_only = VolumeKind.SCRATCH, "", False
    if volume.config_map is not None:
        kind, source, read_only = VolumeKind.CONFIG_MAP, volume.config_map.name, True
    elif volume.secret is not None:
        kind, source, read_only = VolumeKind.SECRET, volume.secret.secret_name, True
    elif volume.pvc is not None:
        kind, source, read_only = (VolumeKind.CLAIM, volume.pvc.claim_name, volume.pvc.read_only)
    elif volume.empty_dir is not None:
        source = volume.empty_dir.size_limit
    return OwnVolume(
        name=volume.name, path=volume.mount_path, kind=kind, source=source, read_only=read_only
    )


def _network(spec: Spec) -> PodNetwork:
    network = network_of(spec)
    return PodNetwork(
        rdma=network.rdma != "None",
        attachments=tuple(network.attachments),
        lock_memory=network.lock_memory,
    )


def network_rules_of(policy: NetworkPolicies) -> NetworkRules | None:
    """Return the peers that may reach the pods of models, or None if there is to be no policy."""
    if not policy.enabled:
        return None
    egress = _as_written(policy.egress.rules) if policy.egress.restricted else None
    return NetworkRules(
        clients=_as_written(policy.clients), metrics=_as_written(policy.metrics), egress=egress
    )


def _as_written(parts: Iterable[Part]) -> tuple[Mapping[str, Any], ...]:
    return tuple(part.model_dump(by_alias=True, exclude_defaults=True) for part in parts)


def _tolerations(placement: PlacementRules) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        item.model_dump(by_alias=True, exclude_none=True) for item in placement.tolerations
    )


def _scheduling(placement: PlacementRules) -> Scheduling | None:
    integration = SCHEDULER_INTEGRATIONS.get(placement.scheduler)
    if integration is None:
        return None
    return Scheduling(
        integration=placement.scheduler,
        api_version=integration.apis[0],
        queue=placement.queue or "",
        scheduler_name=placement.scheduler_name or "",
    )


def _arguments(spec: Spec, version: str) -> dict[str, Any]:
    # Those of the spec, and the family's for everything that the spec leaves open.
    said = spec.engine.args | _dtype(spec.model)
    family: Mapping[str, object] = {}
    if spec.engine.family_defaults != "None":
        engine = ENGINES[spec.engine.name]
        family = engine.family_arguments(spec.model.id, version, said)
    # Sorted, as arguments are part of the hash of a template: another order asks for nothing.
    return dict(sorted((said | dict(family)).items()))


def _dtype(model: Model) -> dict[str, str]:
    computed_as = COMPUTED_AS.get(model.quantization)
    return {} if computed_as is None else {"dtype": computed_as}


def _hub_token(model: Model) -> SecretKey | None:
    token = hub_token(model.weights)
    return SecretKey(name=token[0], key=token[1]) if token else None


def _secret_key(reference: ApiKeyReference | None) -> SecretKey | None:
    return None if reference is None else SecretKey(name=reference.name, key=reference.key)


def _object_store(model: Model) -> ObjectStore | None:
    weights = model.weights
    if weights is None or scheme_of(weights) not in BUCKETS:
        return None
    store = weights.object_store or unsaid(StoreOptions)
    secret, authority = weights.secret_ref, store.ca_config_map_ref
    addressing = store.addressing or ("Path" if store.endpoint else "VirtualHost")
    return ObjectStore(
        uri=weights.uri or "",
        secret=secret.name if secret else None,
        endpoint=store.endpoint,
        region=store.region,
        virtual_host=addressing == "VirtualHost",
        authority=ConfigMapKey(name=authority.name, key=authority.key) if authority else None,
        account=store.account,
        concurrency=store.concurrency,
        buffer_bytes=store.buffer_gigabytes * 10**9 if store.buffer_gigabytes else None,
        bytes_per_second=store.megabytes_per_second * 1e6 if store.megabytes_per_second else None,
    )


def _weights_image(model: Model) -> ImagePath | None:
    weights = model.weights
    if weights is None or scheme_of(weights) != IMAGE_VOLUME:
        return None
    image = weights.image or unsaid(ImageVolume)
    return ImagePath(
        reference=place_of(weights.uri), path=image.path or "", pull_policy=image.pull_policy
    )


def _claim_path(uri: str | None) -> ClaimPath | None:
    claim = claim_of(uri)
    return ClaimPath(claim=claim[0], path=claim[1]) if claim else None


def _adapters(model: Model) -> Adapters:
    served = tuple(
        ServedAdapter(name=adapter.name, source=_source_of(adapter.uri))
        for adapter in model.adapters
    )
    return Adapters(served=served, rank=model.max_adapter_rank or DEFAULT_ADAPTER_RANK)


def _source_of(uri: str) -> ClaimPath | HubCommit:
    # Its pattern has seen to it that it is one of the two.
    commit = commit_of(uri)
    if commit:
        return HubCommit(id=commit[0], revision=commit[1])
    claim = _claim_path(uri)
    assert claim is not None  # noqa: S101 - for the type checker
    return claim


def _cache(model: Model) -> CacheClaim | None:
    cache = model.weights.cache if model.weights else None
    if cache is None:
        return None
    return CacheClaim(
        claim=cache.claim_name, storage=cache.storage, storage_class=cache.storage_class_name
    )
