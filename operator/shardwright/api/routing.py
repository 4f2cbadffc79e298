"""``spec.routing``: who brings requests to the groups of a model."""

from typing import Annotated, Final, Literal

from pydantic import Field

from shardwright.api.parts import ObjectName, Part

ROUTER_ACCOUNT: Final = "shardwright-router"
"""The service account of routers if none is named; also the ClusterRole of the chart for it."""

PICKER_PORT: Final = 9002
"""Port of an endpoint picker if none is named. Source: the Gateway API Inference Extension."""


class EndpointPicker(Part):
    """A Service in the same namespace that picks a pod for each request of a gateway."""

    name: ObjectName = Field(description="Name of the Service, in the namespace of this resource.")
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default=PICKER_PORT, description="Port of the Service."
    )


class Routing(Part):
    """Who brings requests to the groups."""

    mode: Literal["Service", "Router", "InferencePool"] = Field(
        default="Service",
        description="Service: each connection goes to a group at random. Router: pods of "
        "vllm-router bring requests to the group that has their prefix, while it is not much "
        "busier than the others; without them the Service leads to the groups. InferencePool: "
        "gateways ask an endpoint picker of the administrator's; the Service stays.",
    )
    replicas: Annotated[int, Field(ge=1, le=4)] | None = Field(
        default=None, description="Pods of the router. Default: 1."
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of the router's pods: it lists and watches pods of its "
        "namespace. The administrator makes it and binds the ClusterRole shardwright-router to "
        "it. Default: shardwright-router.",
    )
    endpoint_picker: EndpointPicker | None = Field(
        default=None, description="The endpoint picker of an InferencePool."
    )


def has_a_router_for_its_fields(routing: Routing) -> bool:
    """Return whether fields of the router are set only with one."""
    fields = routing.replicas, routing.service_account_name
    return routing.mode == "Router" or fields == (None, None)


def has_a_picker_where_one_picks(routing: Routing) -> bool:
    """Return whether an endpoint picker is named with an InferencePool, and with nothing else."""
    return (routing.endpoint_picker is not None) == (routing.mode == "InferencePool")
