"""What can a cluster and an engine's image do for the pods of a model beside offering GPUs?

What one of them lacks is an input of the planner: it plans without, and says what that costs.
"""

from collections.abc import Collection
from enum import StrEnum


class Capability(StrEnum):
    """Something that pods of a plan need and that not every cluster or image has.

    The first two are the kinds of object that a cluster must serve.
    """

    COMPUTE_DOMAINS = "ComputeDomain"  #: by NVIDIA's DRA driver: NVLink joins pods on several nodes
    DEVICE_CLAIMS = "ResourceClaimTemplate"  #: pods claim GPUs that a DRA driver serves
    EFA = "EFA"  #: the image has the NCCL plugin for AWS's network


SERVED_KINDS = (Capability.COMPUTE_DOMAINS, Capability.DEVICE_CLAIMS)
"""What a cluster has if it serves the kind of object of this name."""


def lacking(absent_kinds: Collection[str]) -> tuple[Capability, ...]:
    """Return what a cluster lacks that does not serve these kinds of object.

    >>> lacking({"ComputeDomain", "Workload"})
    (<Capability.COMPUTE_DOMAINS: 'ComputeDomain'>,)
    """
    return tuple(item for item in SERVED_KINDS if item in absent_kinds)
