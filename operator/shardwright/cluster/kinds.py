"""The kinds of object the operator writes, by ``reconcile``'s names; others are a ``KeyError``."""

from typing import Final

from shardwright.cluster.resources import CHILDREN, OPTIONAL_CHILDREN, PODS, Resource
from shardwright.reconcile.writes import kind_of
from shardwright.rendering.gang_scheduling import SCHEDULER_INTEGRATIONS

POD_GROUPS: Final = tuple(
    Resource(prefix=f"/apis/{api}", plural=adapter.plural, kind="PodGroup")
    for adapter in SCHEDULER_INTEGRATIONS.values()
    if adapter.creates
    for api in adapter.apis
)
"""What tells a scheduler of a group: each where its API is there and the operator may write it."""

BY_API: Final = {resource.api_version: resource for resource in POD_GROUPS}
"""The same by version of the API; none has two of them."""

BY_KIND: Final = {
    kind_of({"apiVersion": resource.api_version, "kind": resource.kind}): resource
    for resource in (*CHILDREN, *OPTIONAL_CHILDREN, PODS, *POD_GROUPS)
}
"""By what ``kind_of`` says."""
