"""Which plans can be shown, but not run yet?"""

from collections.abc import Sequence

from shardwright.errors import Problem
from shardwright.hardware.domains import CLIQUE_LABEL
from shardwright.layouts.layout import Candidate
from shardwright.planning.phrases import degrees
from shardwright.planning.select import FeasibleCandidate

_SHOWN_ONLY = "mode: Deploy takes the best layout that can be run"


def in_reach(ranked: Sequence[FeasibleCandidate], *, deploy: bool) -> tuple[FeasibleCandidate, ...]:
    """Return the candidates, runnable layouts first if something is to be run."""
    # Mode PlanOnly shows what cannot be run, and that is better than no answer.
    return tuple(
        # False sorts first, and the sort is stable.
        sorted(ranked, key=lambda item: deploy and not_yet(item.candidate) is not None)
    )


def not_yet(candidate: Candidate, *, deploy: bool = True) -> Problem | None:
    """Return why a plan cannot run yet: attention replicas cut by nodes, or NVLink that pods cannot
    share.

    Args:
        candidate: The planned layout.
        deploy: Whether it is to be run; the remedy depends on it.
    """
    layout, placement, link = (
        candidate.layout,
        candidate.placement,
        candidate.placement.tensor_link,
    )
    replica = layout.tensor * layout.pipeline
    # Each pod is told its first attention replica and how many it has: half a replica cannot be
    # said.
    if layout.attention_data > 1 and placement.gpus_per_node % replica:
        what = (
            f"{degrees(layout)} puts attention replicas of {replica} GPUs each on nodes with "
            f"{placement.gpus_per_node}"
        )
        return _problem(what, "dataParallelAttention", "1", deploy=deploy)
    over_trays = (
        layout.tensor > placement.gpus_per_node
        and link is not None
        and link == candidate.pool.gpu.scale_up
    )
    if not over_trays or candidate.needs_compute_domain:
        return None
    nodes = layout.tensor // placement.gpus_per_node
    what = (
        f"{degrees(layout)} puts one tensor group on {nodes} nodes, which have no label "
        f"{CLIQUE_LABEL}"
    )
    return _problem(what, "tensor", f"{placement.gpus_per_node} or less", deploy=deploy)


def _problem(what: str, degree: str, most: str, *, deploy: bool) -> Problem:
    return Problem(
        code="NotYetDeployable",
        what=what,
        gap="which is planned and shown but not deployed yet",
        remedy=f"set mode: PlanOnly, or pin parallelism.{degree} to {most}"
        if deploy
        else _SHOWN_ONLY,
        path=f"spec.parallelism.{degree}",
    )
