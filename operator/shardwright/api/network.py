"""``spec.pod.network``: how the pods of a group over several nodes reach the network between them."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import Part

RESOURCE = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
ATTACHMENT = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"


class NetworkResource(Part):
    """An extended resource that pods request to reach the network."""

    name: Annotated[str, StringConstraints(max_length=317, pattern=RESOURCE)] = Field(
        description="Extended resource, as rdma/hca_shared_devices_a or vpc.amazonaws.com/efa. GPUs come from the plan."
    )
    count: Annotated[int, Field(ge=1, le=256)] = Field(default=1, description="How many of it each pod requests.")


class Network(Part):
    """How the pods of a group over several nodes reach the network between them; pods of one node need nothing of it."""

    rdma: Literal["Auto", "None", "Explicit"] = Field(
        default="Auto",
        description="RDMA devices that pods request. Auto: what the planned nodes offer. None: none, the engine uses TCP. "
        "Explicit: those of resources. A network that is not reached by RDMA is planned as TCP.",
    )
    resources: list[NetworkResource] = Field(
        default_factory=list,
        max_length=16,
        description="With rdma Explicit: extended resources that every pod requests.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    attachments: list[Annotated[str, StringConstraints(max_length=127, pattern=ATTACHMENT)]] = Field(
        default_factory=list,
        max_length=32,
        description="Further networks that Multus attaches to every pod, as name or namespace/name of a "
        "NetworkAttachmentDefinition; one interface for each entry, so that a name may stand there several times.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    compute_domain: Literal["Auto", "None"] = Field(
        default="Auto",
        description="NVLink between nodes (GB200 and GB300 racks). Auto: the pods of a group on nodes of one clique share a "
        "ComputeDomain, which needs NVIDIA's DRA driver. None: none is made, and NVLink is planned to end at the node.",
    )
    lock_memory: bool = Field(
        default=False,
        description="True: pods with RDMA devices run as root with the capability IPC_LOCK, for nodes whose container runtime "
        "limits locked memory. Needs a namespace with the Pod Security level privileged.",
    )
