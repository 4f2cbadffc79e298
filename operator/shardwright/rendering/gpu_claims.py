"""How pods ask for the GPUs of a plan: by the extended resource, or by a claim on devices of a
class and a product.

Which GPUs are free is not known here; the scheduler allocates the claimed GPUs.
"""

from typing import Any, Final

from shardwright.hardware.devices import DRIVER, ClaimedDevices
from shardwright.planning.report import Plan
from shardwright.rendering import names, network
from shardwright.rendering.hashing import digest

GPUS: Final = "gpus"
"""Name of a pod's claim on its GPUs, and of the request in it."""


def requested(plan: Plan) -> dict[str, str]:
    """Return the GPUs of a pod as a part of its limits and requests; none if it claims them."""
    return {} if plan.claimed else {plan.resource: str(plan.gpus_per_node)}


def names_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of the claims of a pod, in order."""
    channel = (network.CHANNEL,) if plan.compute_domain else ()
    return (*channel, GPUS) if plan.claimed else channel


def templates_of(plan: Plan, group: str) -> dict[str, str]:
    """Return the templates that the claims of the pods of a group are made from, by claim."""
    templates = {network.CHANNEL: names.channel_template(group)}
    if plan.claimed:
        templates[GPUS] = template_name(plan.claimed, plan.gpus_per_node, group)
    return templates


def template_name(claimed: ClaimedDevices, gpus: int, group: str) -> str:
    """Return the name of the ResourceClaimTemplate of a group; one that asks for anything else
    has another one.
    """
    # The spec of a ResourceClaimTemplate is immutable: another request needs another object.
    return names.claim_template(group, digest(claim_spec(claimed, gpus)))


def claim_spec(claimed: ClaimedDevices, gpus: int) -> dict[str, Any]:
    """Return the spec of the claim of one pod, which the scheduler allocates.

    Source: ``ResourceClaimSpec`` of resource.k8s.io/v1; the product is a name that needs no escape
    in CEL (``devices._NAME``).
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
