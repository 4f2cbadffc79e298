"""Model, inventory and request to a report: the plan or why there is none, the runners-up, what was ruled out."""

from collections.abc import Sequence
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.layouts.enumerate import enumerate_candidates
from shardwright.layouts.layout import Candidate, Layout
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.checks import Judge, Verdict
from shardwright.planning.exclusions import count_exclusions
from shardwright.planning.outcome import no_plan
from shardwright.planning.phrases import degrees
from shardwright.planning.reasons import alternative, reasons, warnings
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import Request
from shardwright.planning.rivals import without_slower_twins
from shardwright.planning.select import Scale, Standing, million_tokens_price, rank, runners_up, select

ALTERNATIVES: Final = 4
"""Runners-up that a report shows."""


def make_plan(model: ModelSpec, inventory: Inventory, request: Request, traits: EngineTraits) -> Report:
    """Return the best plan for a model on an inventory, or why there is none; the same input gives the same report."""
    scale = Scale.of(request, inventory)
    judge = Judge(model, request, traits)
    verdicts = [judge.verdict(candidate) for candidate in enumerate_candidates(model, inventory, request.space, traits)]
    standing = [verdict for verdict in verdicts if not verdict.violations]
    ranked = best_first(standing, scale)
    if not ranked:
        larger = enumerate_candidates(model, inventory, request.space, traits, beyond=True)
        verdicts = [judge.verdict(candidate) for candidate in larger]
    excluded = count_exclusions(verdicts, inventory)
    if not ranked:
        outcome = no_plan(verdicts, inventory, request)
        return Report(outcome=outcome, alternatives=(), excluded=excluded, considered=len(verdicts))
    others = runners_up(ranked, ALTERNATIVES)
    why, care = reasons(ranked, verdicts, scale, standing=len(standing)), warnings(inventory, ranked[0], request, model, traits)
    return Report(
        outcome=_plan(ranked[0], why, care, traits),
        alternatives=tuple(alternative(best=ranked[0], other=other, request=request) for other in others),
        excluded=excluded,
        considered=len(verdicts),
    )


def best_first(standing: Sequence[Verdict], scale: Scale) -> tuple[Standing, ...]:
    """Return what stands and is looked at, best first.

    It is the best of every layout on pools that are alike, and all that the best one's pool has on no more GPUs.
    """
    rivals = without_slower_twins(standing, scale.request.workload)
    ranked = _in_reach(select(rivals, scale), scale.request)
    if len(rivals) == len(standing):
        return ranked
    best, looked_at = ranked[0].candidate, {id(verdict) for verdict in rivals}
    beside = (verdict for verdict in standing if verdict.candidate.pool is best.pool and id(verdict) not in looked_at)
    rest = select((verdict for verdict in beside if verdict.candidate.layout.gpus <= best.layout.gpus), scale)
    return _in_reach(rank((*ranked, *rest)), scale.request)


def _plan(best: Standing, why: tuple[str, ...], care: tuple[str, ...], traits: EngineTraits) -> Plan:
    candidate, estimate = best.candidate, best.estimate
    pool, placement = candidate.pool, candidate.placement
    return Plan(
        layout=candidate.layout,
        pool=pool.name,
        product=pool.product,
        resource=pool.resource,
        architecture=pool.architecture,
        groups=placement.groups,
        nodes_per_replica=placement.nodes_per_replica,
        gpus_per_node=placement.gpus_per_node,
        tensor_link=placement.tensor_link.name if placement.tensor_link else "",
        pipeline_link=placement.pipeline_link.name if placement.pipeline_link else "",
        stages=estimate.stages,
        kv_tokens=estimate.kv_tokens * candidate.layout.attention_data,
        max_model_len=estimate.max_model_len,
        max_sequences=estimate.max_sequences,
        max_batched_tokens=estimate.max_batched_tokens,
        memory_utilization=traits.memory_utilization,
        load_bytes_per_node=estimate.load_bytes_per_node,
        performance=estimate.performance,
        carries_load=best.carries_load,
        reasons=why,
        warnings=care,
        deployable=_not_yet(candidate),
        tight=any(stage.tight for stage in estimate.stages),
        million_tokens_price=million_tokens_price(best),
        load=estimate.load,
    )


def _in_reach(ranked: tuple[Standing, ...], request: Request) -> tuple[Standing, ...]:
    """Return the same with what can be run first, where something is to be run."""
    return tuple(sorted(ranked, key=lambda item: request.deploy and _not_yet(item.candidate) is not None))


def _not_yet(candidate: Candidate) -> Problem | None:
    """Return why a plan can be shown but not run yet: tensor ranks or attention replicas on several nodes."""
    layout, placement, link = candidate.layout, candidate.placement, candidate.placement.tensor_link
    if layout.attention_data > 1 and placement.nodes_per_replica > 1:
        return _attention_data_not_yet(layout, placement.nodes_per_replica)
    if layout.tensor <= placement.gpus_per_node or link is None or link != candidate.pool.gpu.scale_up:
        return None
    nodes = layout.tensor // placement.gpus_per_node
    return Problem(
        code="NotYetDeployable",
        what=f"{degrees(layout)} puts one tensor group on {nodes} nodes of one {link.name} domain",
        gap="which is planned and shown but not deployed yet",
        remedy=f"set mode: PlanOnly, or pin parallelism.tensor to {placement.gpus_per_node} or less",
        path="spec.parallelism.tensor",
    )


def _attention_data_not_yet(layout: Layout, nodes: int) -> Problem:
    return Problem(
        code="NotYetDeployable",
        what=f"{degrees(layout)} puts attention replicas of one group on {nodes} nodes",
        gap="which is planned and shown but not deployed yet",
        remedy="set mode: PlanOnly, or pin parallelism.attentionData to 1",
        path="spec.parallelism.attentionData",
    )
