"""The user's checked wishes for running the model: rendering's input beside the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from shardwright.costs.workload import Phase
from shardwright.engines.launch import DEFAULT_ADAPTER_RANK
from shardwright.hardware.provisioning import Sought
from shardwright.hardware.suitability import whole_resource
from shardwright.layouts.layout import DraftMethod
from shardwright.rendering import names


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """One key of a Secret in the resource's namespace; read by the kubelet only."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPath:
    """A folder on a PersistentVolumeClaim of the resource's namespace."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePath:
    """A folder in an image mounted by the kubelet; ``pull_policy`` None: Kubernetes' own."""

    reference: str
    path: str
    pull_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """One key of a ConfigMap in the resource's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """A folder in a bucket at ``uri``, and how it is reached and read.

    ``secret`` has keys named like variables (None: the pod's own identity), ``authority`` the
    certificates to trust. ``virtual_host``: requests name the bucket in the host. ``account`` is
    Azure's. ``concurrency`` is connections of a rank, ``buffer_bytes`` a pod's memory (None: the
    streamer's own), ``bytes_per_second`` a node's measured rate.
    """

    uri: str
    secret: str | None = None
    endpoint: str | None = None
    region: str | None = None
    virtual_host: bool = True
    authority: ConfigMapKey | None = None
    account: str | None = None
    concurrency: int | None = None
    buffer_bytes: int | None = None
    bytes_per_second: float | None = None

    @property
    def scheme(self) -> str:
        """Return the protocol: ``s3``, ``gs`` or ``az``."""
        return self.uri.partition("://")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubCommit:
    """A hub repository at one commit."""

    id: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAdapter:
    """An adapter served under ``name``, and its source."""

    name: str
    source: ClaimPath | HubCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """The LoRA adapters beside the model, of ``rank`` at most."""

    served: tuple[ServedAdapter, ...] = ()
    rank: int = DEFAULT_ADAPTER_RANK


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheClaim:
    """A claim for downloads: shared (``claim``), or one for every pod (``storage``, a quantity)."""

    claim: str | None = None
    storage: str | None = None
    storage_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNetwork:
    """How the pods of a group over several nodes reach the network, beside the plan's RDMA devices.

    Without ``rdma`` the engine uses TCP. ``attachments`` are further networks
    (NetworkAttachmentDefinitions). ``lock_memory``: pods with RDMA devices may lock memory whatever
    the container runtime's limit.
    """

    rdma: bool = True
    attachments: tuple[str, ...] = ()
    lock_memory: bool = False


class VolumeKind(StrEnum):
    """The source of a user's volume."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind
    CLAIM = "Claim"
    SCRATCH = "Scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnVolume:
    """A user's volume, and its mount in the engine's container.

    ``source`` is the name of a ConfigMap, Secret or claim, or an empty folder's maximum size.
    """

    name: str
    path: str
    kind: VolumeKind
    source: str
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMarks:
    """A user's marks on pods: sorted ``labels`` and ``annotations``, and their service account.

    Without an ``account`` it is the namespace's default. ``pull_policy`` is for the engine's image.
    """

    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    account: str | None = None
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """Who may reach a model's pods and whom they may reach, as Kubernetes writes it.

    ``clients`` send requests (empty: the pods of the model's namespace), ``metrics`` read metrics,
    at the same port. ``egress`` is where pods may go besides DNS (None: everywhere but to the
    link-local addresses of their node).
    """

    clients: tuple[Mapping[str, object], ...] = ()
    metrics: tuple[Mapping[str, object], ...] = ()
    egress: tuple[Mapping[str, object], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The numbers of groups that KEDA may choose, and how long it waits until it takes one away.

    ``prometheus`` is whom it asks for the load.
    """

    least: int
    most: int
    idle_seconds: int
    prometheus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """The integration telling a scheduler of groups, and its API (``group/version``).

    Groups wait in ``queue``; their pods ask for ``scheduler_name``.
    """

    integration: str  # Native | Kueue | Coscheduling
    api_version: str
    queue: str = ""
    scheduler_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A namespace's LimitRanges for a container's ``memory`` or ``ephemeral-storage``, in bytes.

    ``given_bytes`` is the limit of a container that states none, ``most_bytes`` the highest limit,
    ``most_ratio`` its largest multiple of the request (None: not said).
    """

    resource: str
    given_bytes: int | None = None
    most_bytes: int | None = None
    most_ratio: float | None = None

    def highest(self, request_bytes: int) -> int | None:
        """Return the highest limit with this request, None for any; a request of 0 has no ratio."""
        by_ratio = (
            int(request_bytes * self.most_ratio)
            if self.most_ratio is not None and request_bytes
            else None
        )
        return min((most for most in (self.most_bytes, by_ratio) if most is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The ShardedModel that owns every rendered object."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """The source of the weights, and how the engine reads them.

    They are read from ``claim``, ``weights_image`` or ``object_store``, or downloaded to ``cache``
    before the engine starts; in all these cases it runs offline.
    """

    revision: str | None = None
    hub_token: SecretKey | None = None
    claim: ClaimPath | None = None
    weights_image: ImagePath | None = None
    object_store: ObjectStore | None = None
    cache: CacheClaim | None = None
    load_format: str | None = None  # None: the engine finds it by itself
    quantization: str | None = None  # made while loading; None: as stored

    @property
    def from_hub(self) -> bool:
        """Return whether the weights come from the hub, cached on a claim or not."""
        elsewhere = (self.claim, self.weights_image, self.object_store)
        return all(source is None for source in elsewhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftingOptions:
    """How tokens are drafted ahead of the model."""

    drafts_by: DraftMethod | None = None  # None: they are not
    draft_tokens: int = 0  # in every step; 0: as the plan says
    draft_model: ClaimPath | HubCommit | None = None  # of a draft model or a head


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """How the engine serves the model.

    A leader without a token for ``silence_seconds`` is not ready; after ``idle_seconds`` it is
    asked for one.
    """

    served_name: str | None = None  # for clients; None: the model's id
    kv_cache_dtype: str = "auto"
    adapters: Adapters = field(default_factory=Adapters)
    arguments: Mapping[str, object] | None = None  # option without dashes: value
    environment: tuple[tuple[str, str], ...] = ()
    api_key: SecretKey | None = None  # from clients; None: they send nothing
    media_domains: tuple[str, ...] = ()  # from which requests may have media fetched
    over_ray: bool = False  # Ray joins the ranks of groups of several pods
    silence_seconds: int = 0  # 0: tokens are not watched
    idle_seconds: int = 0
    drain_seconds: int | None = None  # None: as the plan's answers need
    refuses: bool = False  # what is too much, instead of letting it wait
    by_priority: bool = False  # as clients say, not by arrival
    gives_tokens: bool = False  # of prompts, to a router


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """A user's wishes for the pods: their nodes, resources and marks."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Mapping[str, object], ...] = ()
    cpu: str | None = None
    memory: str | None = None
    ephemeral_storage: str | None = None
    runtime_class: str | None = None
    priority_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    read_only_root: bool = True  # containers write to volumes only
    marks: OwnMarks = field(default_factory=OwnMarks)
    volumes: tuple[OwnVolume, ...] = ()
    network: PodNetwork = field(default_factory=PodNetwork)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTerms:
    """How the cluster is told of the pods, and its rules for them.

    Without ``network_rules`` there is no NetworkPolicy, without ``scheduling`` no scheduler is told
    of groups.
    """

    network_rules: NetworkRules | None = field(default_factory=NetworkRules)
    cluster_domain: str = "cluster.local"
    scheduling: Scheduling | None = None
    ceilings: tuple[Ceiling, ...] = ()  # of the namespace's LimitRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """The router's pods: their number, service account and image (empty: none is known).

    ``leads``: the clients' Service leads to them, and not to the groups.
    """

    account: str
    replicas: int = 1
    image: str = ""
    leads: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMember:
    """A half of a pair: what it does of each request, and the base name of the pair."""

    phase: Phase
    pair: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarePods:
    """A spec's and a plan's pods, without what follows from a group's place (``place``).

    ``template`` lacks its hash. ``scripts`` are the files of the ConfigMap ``scripts_name``,
    ``claims`` the templates of volume claims.
    """

    template: Mapping[str, Any]
    scripts_name: str
    scripts: Mapping[str, str]
    claims: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroups:
    """The groups in the plan of record, by index.

    ``generations`` number groups made anew beside their former selves (others: 0). ``sought`` say
    how groups ask for nodes that did not exist when planned. ``asked`` hashes all that the spec
    says of pods (empty: nobody compares running pods). ``secret_seed`` is secret: names of made
    Secrets follow from it (empty: from the owner's uid). ``kept`` are a restored revision's pods
    (None: as this release makes them).
    """

    generations: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()  # that the groups go by; empty: their index
    sought: tuple[Sought, ...] = ()
    asked: str = ""
    secret_seed: str = field(default="", repr=False)
    kept: BarePods | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """How to run one model, in values already checked.

    ``image`` is the engine's; if the user names none, ``images`` are the defaults by GPU resource.
    """

    owner: Owner
    engine: str  # vLLM
    engine_version: str
    image: str
    images: Mapping[str, str] = field(default_factory=dict)
    model: str  # the id on the hub
    weights: WeightSource = field(default_factory=WeightSource)
    drafting: DraftingOptions = field(default_factory=DraftingOptions)
    serving: ServingOptions = field(default_factory=ServingOptions)
    pods: PodOptions = field(default_factory=PodOptions)
    cluster: ClusterTerms = field(default_factory=ClusterTerms)
    groups: RecordedGroups = field(default_factory=RecordedGroups)
    autoscaling: Autoscaling | None = None  # None: no autoscaler is told of the model
    router: RouterOptions | None = None
    picker: tuple[str, int] | None = None  # Service and port that pick pods of an InferencePool
    half: PairMember | None = None  # None: its groups answer whole requests

    def on(self, resource: str) -> "Deployment":
        """Return the deployment with the image for the GPUs that pods request."""
        image = self.images.get(whole_resource(resource), self.image)
        return replace(self, image=image)

    @property
    def base(self) -> str:
        """Return the base of all object names."""
        return names.base_name(self.owner.name)

    @property
    def service(self) -> str:
        """Return the name of the clients' Service: of the half that answers it is the pair's."""
        answers = self.half is not None and self.half.phase is Phase.DECODE
        return names.client_service(self.half.pair if self.half and answers else self.base)

    @property
    def phase(self) -> Phase | None:
        """Return what its groups do of each request, None if all of it."""
        return self.half.phase if self.half else None

    def sought_by(self, group: int) -> Sought | None:
        """Return how a group asks for nodes that did not exist when planned, None if all did."""
        return next((item for item in self.groups.sought if item.group == group), None)

    def group_name(self, group: int) -> str:
        """Return the name of a group's StatefulSet, which is its group label's value."""
        number = self.groups.numbers[group] if self.groups.numbers else group
        return names.group_name(
            self.base,
            number,
            self.groups.generations[group] if group < len(self.groups.generations) else 0,
        )
