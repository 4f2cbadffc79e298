"""Can the pods of a layout mount the claims that they name?"""

from collections.abc import Iterator

from shardwright.errors import Problem
from shardwright.hardware.volume_claims import Sharing, VolumeClaim
from shardwright.layouts.layout import Candidate
from shardwright.planning.request import Request
from shardwright.units import format_bytes


def claim_problems(candidate: Candidate, request: Request) -> Iterator[Problem]:
    """Return what of access mode, size and volume keeps the pods from a claim."""
    for claim in request.claims:
        if not claim.bindable:
            yield _unbound(claim)
        if claim.name == request.cache_claim and _short(claim, request):
            yield _too_small(claim, request.file_bytes)
        if _too_many(candidate, claim.sharing):
            yield _not_shared(candidate, claim)


def _too_many(candidate: Candidate, sharing: Sharing) -> bool:
    pods = candidate.placement.nodes_per_replica * candidate.layout.replicas
    if sharing is Sharing.NODE:
        nodes = {node for group in candidate.placement.groups for node in group}
        return max(len(nodes), candidate.placement.nodes_per_replica) > 1
    return sharing is Sharing.POD and pods > 1


def _not_shared(candidate: Candidate, claim: VolumeClaim) -> Problem:
    pod = claim.sharing is Sharing.POD
    pods = candidate.placement.nodes_per_replica * candidate.layout.replicas
    return Problem(
        code="ClaimNotShared",
        what=f"claim {claim.name} ({'ReadWriteOncePod' if pod else 'ReadWriteOnce'})",
        limit="is for one pod" if pod else "is for the pods of one node",
        gap=f"{pods} pods would mount it",
        remedy="use a claim that is ReadWriteMany or ReadOnlyMany, or a layout inside a node",
        path="spec.model.weights",
    )


def _short(claim: VolumeClaim, request: Request) -> bool:
    return claim.size_bytes is not None and request.file_bytes > claim.size_bytes


def _too_small(claim: VolumeClaim, file_bytes: int) -> Problem:
    size = claim.size_bytes or 0
    return Problem(
        code="ClaimTooSmall",
        what=f"{format_bytes(file_bytes)} of weights",
        limit=f"must fit into the {format_bytes(size)} of claim {claim.name}",
        gap=f"{format_bytes(file_bytes - size)} over",
        remedy="have the claim expanded, or name a larger one",
        path="spec.model.weights.cache",
    )


def _unbound(claim: VolumeClaim) -> Problem:
    return Problem(
        code="ClaimUnbound",
        what=f"claim {claim.name}",
        limit="has no volume, and nothing makes or offers one for it",
        remedy="name a storage class that provisions, or create a volume for it",
        path="spec.model.weights",
    )
