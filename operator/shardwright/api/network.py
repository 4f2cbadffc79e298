"""``spec.pod.network``: how the pods of a group over several nodes reach each other."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import Part

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
    plugins: list[Literal["EFA"]] | None = Field(
        default=None,
        max_length=1,
        description="Network plugins of NCCL that the image has. EFA: aws-ofi-nccl with libfabric, "
        "without which AWS's network is planned as TCP. Left out: those that the image's name "
        "tells (a tag that ends in -efa).",
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
