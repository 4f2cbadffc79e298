"""A user's settings of the engine's pods: share of a node, identity, and a company's marks.

Nobody may set keys and folders of the operator, Kubernetes or a scheduler.

``spec.pod.network``: how the pods of a group over several nodes reach each other.

Rules between fields of ``spec.pod``, without the administrator's admissions (not known to the
API server).
"""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import (
    DNS_SUBDOMAIN,
    LABEL_KEY,
    LABEL_KEY_MAX_LENGTH,
    LabelValue,
    ObjectName,
    Part,
    Quantity,
    Rule,
)

RESOURCE = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"  # noqa: E501 - a pattern is not broken
ATTACHMENT = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"


class NetworkResource(Part):
    """An extended resource that pods request to reach the network."""

    name: Annotated[str, StringConstraints(max_length=317, pattern=RESOURCE)] = Field(
        description="Extended resource, as rdma/hca_shared_devices_a "
        "or vpc.amazonaws.com/efa. GPUs come from the plan."
    )
    count: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1, description="How many of it each pod requests."
    )


class Network(Part):
    """How the pods of a group over several nodes reach the network between them; pods of one node
    need nothing of it.
    """

    rdma: Literal["Auto", "None", "Explicit"] = Field(
        default="Auto",
        description="RDMA devices that pods request. Auto: those that the planned "
        "nodes offer. None: none, the engine uses TCP. Explicit: those of "
        "resources. A network that is not reached by RDMA is planned as TCP.",
    )
    resources: list[NetworkResource] = Field(
        default_factory=list,
        max_length=16,
        description="With rdma Explicit: extended resources that every pod requests.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    attachments: list[Annotated[str, StringConstraints(max_length=127, pattern=ATTACHMENT)]] = (
        Field(
            default_factory=list,
            max_length=32,
            description="Further networks that Multus attaches to every pod, as name or "
            "namespace/name of a "
            "NetworkAttachmentDefinition; one interface for each entry, so that a name may stand "
            "there several times.",
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        )
    )
    plugins: list[Literal["EFA", "GIB"]] | None = Field(
        default=None,
        max_length=2,
        description="Network plugins of NCCL that the image has. EFA: aws-ofi-nccl with libfabric, "
        "without which AWS's network is planned as TCP. GIB: Google's gIB, without which the RoCE "
        "of GKE is. Left out: those that the image's name tells (a tag that ends in -efa).",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    compute_domain: Literal["Auto", "None"] = Field(
        default="Auto",
        description="NVLink between nodes (GB200 and GB300 racks). Auto: the pods of "
        "a group on nodes of one clique share a ComputeDomain, which needs NVIDIA's "
        "DRA driver; in a cluster without it NVLink is planned to end at the node. None: it "
        "ends there anyway.",
    )
    lock_memory: bool = Field(
        default=False,
        description="True: pods with RDMA devices run as root with the "
        "capability IPC_LOCK, for nodes whose container runtime limits locked "
        "memory. Needs a namespace with the Pod Security level privileged.",
    )


_GPU_DOMAINS: Final = ("nvidia.com", "amd.com")
_GPU_NAME: Final = re.compile(r"gpu|mig-")


def resources_come_with_explicit(network: Network) -> bool:
    """Return whether resources are named with ``rdma: Explicit``, and only with it."""
    return (network.rdma == "Explicit") == bool(network.resources)


def is_no_gpu(resource: NetworkResource) -> bool:
    """Return whether a resource is neither a GPU nor one of Kubernetes' own."""
    domain, _, name = resource.name.partition("/")
    return domain.split(".")[-2:] != ["kubernetes", "io"] and not (
        domain in _GPU_DOMAINS and _GPU_NAME.match(name)
    )


def memory_is_locked_for_rdma(network: Network) -> bool:
    """Return whether memory is locked only if RDMA may need it."""
    return not network.lock_memory or network.rdma != "None"


ENTRIES_MAX: Final = 16
"""Labels, annotations and volumes of a resource, of each kind. Basis: assumed; every group has them
in its template.
"""

RESERVED_DOMAINS: Final = (
    "shardwright.io",
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "cncf.io",
    "multus-cni.io",
    "networking.gke.io",
    "volcano.sh",
    "crio.io",
)
"""Prefixes of label and annotation keys (and their subdomains) that are not the user's to decide:
pods' owner, group, queue and network, and what a container runtime opens to them. Source:
Kubernetes, "Well-Known Labels, Annotations and Taints" (kubernetes.io and k8s.io are the project's
own); Multus; GKE multi-networking; Volcano; CRI-O.
"""

OPEN_KEYS: Final = frozenset(
    {
        "app.kubernetes.io/created-by",
        "app.kubernetes.io/part-of",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
    }
)
"""Keys under these prefixes that are for users to set. Source: Kubernetes, "Recommended Labels";
cluster-autoscaler's FAQ.
"""

RESERVED_KEYS: Final = frozenset({"controller-revision-hash", "aadpodidbinding"})
"""Keys without a prefix that a StatefulSet's controller sets, or that give a pod an identity in a
cloud. Source: Kubernetes, ``apps/v1``, ControllerRevisionHashLabelKey; AAD Pod Identity.
"""

_ENDINGS: Final = "|".join(domain.replace(".", "[.]") for domain in RESERVED_DOMAINS)
RESERVED_PATTERN: Final = rf"^([^/]*[.])?({_ENDINGS})/|^io[.]kubernetes[.]cri-o[./]"
"""What a reserved key begins with; CRI-O's older ones have no slash."""

_RESERVED: Final = re.compile(RESERVED_PATTERN)
_LABEL_KEY: Final = re.compile(LABEL_KEY, re.ASCII)

VOLUME_ROOTS: Final = ("/data", "/mnt", "/srv", "/etc/pki/ca-trust", "/etc/ssl/certs")
"""Folders below which a user's volumes may be mounted. Elsewhere are an image's programs and the
operator's files: a file mounted there would run as if it came from an admitted image. Source:
Filesystem Hierarchy Standard 3.0 for what is free to use (/mnt, /srv); /data and the two folders of
certificates by custom. Beside these lie settings that name programs: /etc/ssl/openssl.cnf and
/etc/pki/tls/openssl.cnf load modules.
"""

_MOUNT_PATH: Final = r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$"
MOUNT_PATTERN: Final = rf"^({'|'.join(VOLUME_ROOTS)})/[A-Za-z0-9_].*$"
_MOUNTABLE: Final = re.compile(MOUNT_PATTERN)

WholeBytes = Annotated[
    str, StringConstraints(max_length=16, pattern=r"^[1-9][0-9]{0,8}(M|G|T|Mi|Gi|Ti)$")
]
AnnotationValue = Annotated[str, StringConstraints(max_length=512)]


class Resources(Part):
    """CPU, memory and local disk of each pod; GPUs come from the plan."""

    cpu: Quantity | None = Field(
        default=None, description="CPU that each pod requests, as 16 or 1500m."
    )
    memory: Quantity | None = Field(
        default=None,
        description="Memory that each pod requests and may use at most, as 64Gi. "
        "Default: a request for the engine's processes, and a limit that is "
        "higher by their need to load and compile. 0: no limit.",
    )
    ephemeral_storage: Quantity | None = Field(
        default=None,
        description="Local disk of the node that each pod requests and may use at most, as 300Gi. "
        "Default: a request for what it "
        "downloads there, if its nodes state their disk, and a limit of more than twice as much. "
        "0: no limit.",
    )


class PullSecret(Part):
    """A Secret for pulling the image."""

    name: ObjectName = Field(description="Name of the Secret, in the namespace of this resource.")


class ConfigMapVolume(Part):
    """The keys of a ConfigMap as files."""

    name: ObjectName = Field(
        description="Name of the ConfigMap, in the namespace of this resource."
    )


class SecretVolume(Part):
    """The keys of a Secret as files."""

    secret_name: ObjectName = Field(
        description="Name of the Secret, in the namespace of this resource."
    )


class ClaimVolume(Part):
    """A PersistentVolumeClaim."""

    claim_name: ObjectName = Field(
        description="Name of the PersistentVolumeClaim, in the namespace "
        "of this resource. Every pod of every group mounts it."
    )
    read_only: bool = Field(default=True, description="Whether pods may only read it.")


class ScratchVolume(Part):
    """An empty folder on the node's disk, gone with the pod."""

    size_limit: WholeBytes = Field(
        description="Bytes that it may hold, as 100Gi; a pod that writes more is evicted."
    )


class PodVolume(Part):
    """A folder of the engine's container that comes from elsewhere; exactly one of the kinds."""

    name: Annotated[
        str, StringConstraints(max_length=50, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = Field(description="Name of the volume, unique here; in the pod it begins with own-.")
    mount_path: Annotated[str, StringConstraints(max_length=256, pattern=_MOUNT_PATH)] = Field(
        description=f"Folder of the mount, below one of {', '.join(VOLUME_ROOTS)}."
    )
    config_map: ConfigMapVolume | None = Field(
        default=None, description="The keys of a ConfigMap as files, to be read only."
    )
    secret: SecretVolume | None = Field(
        default=None,
        description="The keys of a Secret as files, to be read only; the administrator admits it "
        "(policy.admittedSecretVolumes).",
    )
    pvc: ClaimVolume | None = Field(default=None, description="A PersistentVolumeClaim.")
    empty_dir: ScratchVolume | None = Field(
        default=None, description="An empty folder on the node's disk, gone with the pod."
    )


class TopologySpread(Part):
    """How the groups of a model lie in the cluster, so that one fault takes few of them."""

    topology_key: Annotated[
        str, StringConstraints(max_length=LABEL_KEY_MAX_LENGTH, pattern=LABEL_KEY)
    ] = Field(
        description="Label of nodes, as topology.kubernetes.io/zone. The plan puts "
        "each group at the value with the fewest groups, as far as there is room."
    )


class Pod(Part):
    """Typed overrides of the engine's pods."""

    resources: Resources | None = Field(
        default=None, description="CPU, memory and local disk of each pod; GPUs come from the plan."
    )
    labels: dict[str, LabelValue] | None = Field(
        default=None,
        max_length=ENTRIES_MAX,
        description="Further labels of the pods. A change restarts the groups.",
    )
    annotations: dict[str, AnnotationValue] | None = Field(
        default=None,
        max_length=ENTRIES_MAX,
        description="Further annotations of the pods. A change restarts the groups.",
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of the pods, for a cloud's workload "
        "identity; the administrator admits it (policy.admittedServiceAccounts). No "
        "token of the cluster is mounted. Default: the namespace's default.",
    )
    runtime_class_name: (
        Annotated[str, StringConstraints(max_length=253, pattern=DNS_SUBDOMAIN)] | None
    ) = Field(default=None, description="RuntimeClass of the pods.")
    priority_class_name: (
        Annotated[str, StringConstraints(max_length=253, pattern=DNS_SUBDOMAIN)] | None
    ) = Field(
        default=None,
        description="PriorityClass of the pods. Models that wait for GPUs get them by its value, "
        "equal ones by age. Default: the "
        "cluster's default class, else value 0.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None,
        description="When the kubelet pulls the engine's image. A change "
        "holds from the next start of each group on. Default: IfNotPresent.",
    )
    image_pull_secrets: list[PullSecret] = Field(
        default_factory=list,
        max_length=16,
        description="Secrets for pulling the image.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    volumes: list[PodVolume] | None = Field(
        default=None,
        max_length=ENTRIES_MAX,
        description="Further folders of the engine's container: ConfigMaps, Secrets, claims, empty "
        "folders; nothing of the node.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    network: Network | None = Field(
        default=None,
        description="How the pods of a group over several nodes reach the network between them.",
    )
    read_only_root_filesystem: bool | None = Field(
        default=None,
        description="Whether containers write to their volumes only: cache, /tmp, "
        "/dev/shm. False is for an image that writes elsewhere. Default: true.",
    )
    topology_spread: TopologySpread | None = Field(
        default=None,
        description="How the groups lie in the cluster. Default: as close together as they fit.",
    )


def is_reserved(key: str) -> bool:
    """Return whether a pod's label or annotation is not for users to set.

    >>> [
    ...     is_reserved(key)
    ...     for key in (
    ...         "shardwright.io/model",
    ...         "kueue.x-k8s.io/queue-name",
    ...         "example.com/team",
    ...         "team",
    ...     )
    ... ]
    [True, True, False, False]
    """
    return key not in OPEN_KEYS and (key in RESERVED_KEYS or _RESERVED.match(key) is not None)


def keys_are_open(entries: Mapping[str, str]) -> bool:
    """Return whether no label or annotation is the operator's, Kubernetes' or a scheduler's."""
    return not any(map(is_reserved, entries))


def domain_of(key: str) -> str:
    """Return a label's domain: the part before the slash, else a key with a dot, else none.

    >>> [domain_of(key) for key in ("example.com/team", "io.katacontainers.config.runtime", "team")]
    ['example.com', 'io.katacontainers.config.runtime', '']
    """
    return key.partition("/")[0] if "/" in key or "." in key else ""


def keys_are_label_keys(entries: Mapping[str, str]) -> bool:
    """Return whether every key is a prefix and a name as in Kubernetes."""
    return all(
        len(key) <= LABEL_KEY_MAX_LENGTH and _LABEL_KEY.fullmatch(key) is not None
        for key in entries
    )


def has_one_kind(volume: PodVolume) -> bool:
    """Return whether a volume has exactly one source."""
    kinds = (volume.config_map, volume.secret, volume.pvc, volume.empty_dir)
    return sum(kind is not None for kind in kinds) == 1


def is_mounted_aside(volume: PodVolume) -> bool:
    """Return whether a volume hides nothing of the image, and no mount of the operator."""
    return _MOUNTABLE.match(volume.mount_path) is not None


def folders_differ(pod: Pod) -> bool:
    """Return whether no two volumes have the same folder, or one inside another's."""
    paths = [volume.mount_path for volume in pod.volumes or ()]
    return not any(lie_together(one, other) for one, other in combinations(paths, 2))


def lie_together(one: str, other: str) -> bool:
    """Return whether two folders are the same or nested: no runtime makes one in a read-only one.

    >>> (
    ...     lie_together("/data/a", "/data/a/b"),
    ...     lie_together("/data/a/b", "/data/a"),
    ...     lie_together("/data/a", "/data/ab"),
    ... )
    (True, True, False)
    """
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


_OPEN: Final = ", ".join(map(repr, sorted(OPEN_KEYS)))
_TAKEN: Final = ", ".join(map(repr, sorted(RESERVED_KEYS)))


def _of_keys(kind: str) -> tuple[Rule, Rule]:
    return (
        Rule(
            code="BadLabelKey",
            path=f"spec.pod.{kind}",
            field="",
            cel=f"self.all(key, size(key) <= {LABEL_KEY_MAX_LENGTH} "
            f"&& key.matches(r'{LABEL_KEY}'))",
            message=f"{kind} must have label keys: an optional prefix and a slash, then at most "
            "63 letters, digits, '-', '_' or "
            "'.'; correct the key",
            holds=keys_are_label_keys,
        ),
        Rule(
            code="ReservedKey",
            path=f"spec.pod.{kind}",
            field="",
            cel=f"self.all(key, key in [{_OPEN}] || !(key in [{_TAKEN}] || "
            f"key.matches(r'{RESERVED_PATTERN}')))",
            message=f"{kind} must not be under {', '.join(RESERVED_DOMAINS)}, nor "
            f"{', '.join(sorted(RESERVED_KEYS))}: the "
            "operator, Kubernetes, networks and schedulers set them; use a prefix of your own "
            f"({', '.join(sorted(OPEN_KEYS))} are open)",
            holds=keys_are_open,
        ),
    )


POD_RULES: Final = (
    Rule(
        code="RdmaResources",
        path="spec.pod.network",
        field=".resources",
        cel="(self.rdma == 'Explicit') == (has(self.resources) && size(self.resources) > 0)",
        message="resources must come with rdma Explicit, "
        "and Explicit with resources; set both or neither",
        holds=resources_come_with_explicit,
    ),
    Rule(
        code="RdmaResourceName",
        path="spec.pod.network.resources[]",
        field=".name",
        cel="!self.name.matches('^([^/]*[.])?kubernetes[.]io/|^(nvidia|amd)[.]com/(gpu|mig-)')",
        message="resources must name those that a network's device plugin offers (rdma/..., "
        "vpc.amazonaws.com/efa); remove GPUs, "
        "which come from the plan, and names of Kubernetes",
        holds=is_no_gpu,
    ),
    Rule(
        code="LockMemoryWithoutRdma",
        path="spec.pod.network",
        field=".lockMemory",
        cel="!self.lockMemory || self.rdma != 'None'",
        message="lockMemory must not be set with rdma "
        "None: TCP locks no memory; remove one of the two",
        holds=memory_is_locked_for_rdma,
    ),
    *_of_keys("labels"),
    *_of_keys("annotations"),
    Rule(
        code="VolumeKind",
        path="spec.pod.volumes[]",
        field="",
        cel="[has(self.configMap), has(self.secret), has(self.pvc), "
        "has(self.emptyDir)].filter(given, given).size() == 1",
        message="a volume must have exactly one of configMap, "
        "secret, pvc and emptyDir; set one of them",
        holds=has_one_kind,
    ),
    Rule(
        code="ReservedMountPath",
        path="spec.pod.volumes[]",
        field=".mountPath",
        cel=f"self.mountPath.matches('{MOUNT_PATTERN}')",
        message=f"mountPath must be a folder below {', '.join(VOLUME_ROOTS)}: elsewhere the image "
        "has its programs and the "
        "operator mounts its own files; use a folder below one of these",
        holds=is_mounted_aside,
    ),
    Rule(
        code="MountPathTwice",
        path="spec.pod",
        field=".volumes",
        cel="!has(self.volumes) || self.volumes.all(one, self.volumes.exists_one(other, "
        "other.mountPath == one.mountPath || one.mountPath.startsWith(other.mountPath + '/')))",
        message="volumes must have a mountPath each of their own, none inside another; give one "
        "of them another folder",
        holds=folders_differ,
    ),
)
"""All of them; the order is the order of the messages."""
