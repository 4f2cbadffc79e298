"""How pods ask for a plan's GPUs: by extended resource, or by a claim on a class and a product."""

from typing import Any, Final

from shardwright.hardware.devices import DRIVER, ClaimedDevices
from shardwright.planning.report import Plan
from shardwright.rendering import names, network
from shardwright.rendering.hashing import digest

GPUS: Final = "gpus"
"""Name of a pod's claim on its GPUs, and of the request in it."""


def requested(plan: Plan) -> dict[str, str]:
    """Return a pod's GPUs for its limits and requests, none if it claims them."""
    return {} if plan.claimed else {plan.resource: str(plan.gpus_per_node)}


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of a pod's claims, in order."""
    channel = (network.CHANNEL,) if plan.compute_domain else ()
    return (*channel, GPUS) if plan.claimed else channel


def templates_of(plan: Plan, group: str) -> dict[str, str]:
    """Return the templates of the claims of a group's pods, by claim."""
    templates = {network.CHANNEL: names.channel_template(group)}
    if plan.claimed:
        templates[GPUS] = template_name(plan.claimed, plan.gpus_per_node, group)
    return templates


def template_name(claimed: ClaimedDevices, gpus: int, group: str) -> str:
    """Return the name of a group's ResourceClaimTemplate, which follows from its content."""
    # The spec of a ResourceClaimTemplate is immutable: another request needs another object.
    return names.claim_template(group, digest(claim_spec(claimed, gpus)))


def claim_spec(claimed: ClaimedDevices, gpus: int) -> dict[str, Any]:
    """Return the spec of one pod's claim.

    Source: ``ResourceClaimSpec`` of resource.k8s.io/v1; the product's name needs no escape in CEL
    (``devices._NAME``).
    """
    of = f"device.attributes['{DRIVER}']"
    expression = f"{of}.productName == '{claimed.product}'"
    if claimed.mig_profile:
        expression += f" && {of}.profile == '{claimed.mig_profile}'"
    exactly = {
        "deviceClassName": claimed.device_class,
        "allocationMode": "ExactCount",
        "count": gpus,
        "selectors": [{"cel": {"expression": expression}}],
    }
    return {"devices": {"requests": [{"name": GPUS, "exactly": exactly}]}}
