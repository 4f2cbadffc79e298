"""A report as ``status.plan``: totals are computed, and values cut to fit the schema."""

from typing import Any

from shardwright.api.published import (
    ALTERNATIVES_MAX_ITEMS,
    EXCLUSIONS_MAX_ITEMS,
    FIELDS_MAX_ITEMS,
    FRONT_MAX_ITEMS,
    NODES_MAX_ITEMS,
    REASONS_MAX_ITEMS,
    STAGES_MAX_ITEMS,
    STEPS_MAX_ITEMS,
    WITHOUT_MAX_ITEMS,
    ShownAlternative,
    ShownExclusion,
    ShownFront,
    ShownLayout,
    ShownLimits,
    ShownLoss,
    ShownMemory,
    ShownPlacement,
    ShownPlan,
    ShownPrediction,
    ShownPrice,
    ShownRatios,
    ShownStage,
    ShownStep,
    ShownTime,
    ShownWithout,
)
from shardwright.costs.estimates import StageMemory, TimeShare
from shardwright.hardware.gpus import GpuPrice
from shardwright.planning.phrases import copies, letters, price
from shardwright.planning.report import (
    Alternative,
    Benefit,
    Exclusion,
    FrontPoint,
    Loss,
    LossKind,
    Plan,
    Report,
    WithoutFields,
)
from shardwright.planning.sentences import without_sentence
from shardwright.planning.sizing import LoadStep, steps_of
from shardwright.units import to_microseconds, to_milliseconds


def plan_status(report: Report) -> dict[str, Any]:
    """Return ``status.plan``: the plan, or only the exclusions if nothing fits.

    A kept plan gives the same (``plan_status(record.report())``), but for why groups are missing.
    """
    shown = _of_plan(report.outcome, report) if isinstance(report.outcome, Plan) else {}
    without = [_without(item) for item in report.without[:WITHOUT_MAX_ITEMS]]
    return ShownPlan(
        **shown,
        alternatives=[_alternative(item) for item in report.alternatives[:ALTERNATIVES_MAX_ITEMS]],
        excluded=[_exclusion(item) for item in report.excluded[:EXCLUSIONS_MAX_ITEMS]],
        considered=report.considered,
        waiting_helps=report.unplaced.heals_by_itself if report.unplaced else None,
        without=without or None,
    ).model_dump(by_alias=True, exclude_none=True)


def planned_nodes(plan: Plan) -> tuple[str, ...]:
    """Return the distinct nodes of all groups, sorted."""
    return tuple(sorted({node for group in plan.groups for node in group}))


def _of_plan(plan: Plan, report: Report) -> dict[str, Any]:
    front = [_front(point, plan) for point in report.front[:FRONT_MAX_ITEMS]]
    steps = [_step(step, plan) for step in steps_of(plan)[:STEPS_MAX_ITEMS]]
    return {**_plan(plan), "over_load": steps or None, "over_speed": front or None}


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "layout": _layout(plan),
        "missing": plan.missing or None,
        "nodes": len(planned_nodes(plan)),
        "gpus": plan.layout.gpus,
        "replica_requests": plan.replica_requests or None,
        "pool": plan.pool,
        "product": plan.product,
        "resource": plan.resource,
        "placement": _placement(plan),
        "memory": _memory(plan),
        "limits": _limits(plan),
        "predicted": _prediction(plan) if plan.performance.promised else None,
        "price": None if plan.gpu_price is None else _gpu_price(plan.gpu_price),
        "carries_load": plan.carries_load,
        "tight": plan.tight,
        "reasons": list(plan.reasons[:REASONS_MAX_ITEMS]),
        "warnings": list(plan.warnings[:REASONS_MAX_ITEMS]),
    }


def _layout(plan: Plan) -> ShownLayout:
    layout = plan.layout
    return ShownLayout(
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        expert=layout.expert,
        data_parallel_attention=layout.attention_data,
        context=layout.context,
        partition=list(layout.partition) or None,
        replicas=layout.replicas,
        gpus_per_replica=layout.gpus_per_replica,
        nodes_per_replica=plan.nodes_per_replica,
    )


def _placement(plan: Plan) -> ShownPlacement:
    return ShownPlacement(
        nodes=list(planned_nodes(plan)[:NODES_MAX_ITEMS]),
        gpus_per_node=plan.gpus_per_node,
        tensor_link=plan.tensor_link,
        pipeline_link=plan.pipeline_link,
    )


def _memory(plan: Plan) -> ShownMemory:
    return ShownMemory(
        stages=[_stage(stage) for stage in plan.stages[:STAGES_MAX_ITEMS]],
        kv_cache_tokens=plan.kv_tokens,
        load_bytes_per_node=plan.load_bytes_per_node,
    )


def _stage(stage: StageMemory) -> ShownStage:
    first, end = stage.layers
    return ShownStage(
        stage=stage.stage,
        first_layer=first,
        layers=end - first,
        weights_bytes=stage.weights_bytes,
        adapter_bytes=stage.adapter_bytes or None,
        draft_bytes=stage.draft_bytes or None,
        activations_bytes=stage.activations_bytes,
        overhead_bytes=stage.overhead_bytes,
        kv_cache_bytes=stage.kv_cache_bytes,
        budget_bytes=stage.budget_bytes,
    )


def _limits(plan: Plan) -> ShownLimits:
    return ShownLimits(
        max_model_len=plan.max_model_len,
        max_sequences=plan.max_sequences,
        max_batched_tokens=plan.max_batched_tokens,
        memory_utilization_percent=round(plan.memory_utilization * 100),
    )


def _prediction(plan: Plan) -> ShownPrediction:
    performance = plan.performance
    return ShownPrediction(
        ttft_milliseconds=to_milliseconds(performance.ttft_seconds),
        tpot_milliseconds=to_milliseconds(performance.tpot_seconds),
        tpot_microseconds=to_microseconds(performance.tpot_seconds),
        output_tokens_per_second=round(performance.output_tokens_per_second),
        low=round(performance.low),
        high=round(performance.high),
        basis=performance.basis,
        requests_per_second_at_most=None if plan.capacity is None else _short(plan.capacity),
        token_time=[_time(share) for share in performance.decode_shares] or None,
        million_output_tokens_price=_price(plan.million_tokens_price),
    )


def _time(share: TimeShare) -> ShownTime:
    return ShownTime(part=share.name, microseconds=to_microseconds(share.seconds))


def _gpu_price(each: GpuPrice) -> ShownPrice:
    return ShownPrice(gpu_hour=f"{each.per_hour:.6g}", basis=each.basis.value, source=each.source)


def _price(amount: float | None) -> str | None:
    return None if amount is None else price(amount).replace(",", "")


def _alternative(item: Alternative) -> ShownAlternative:
    return ShownAlternative(
        tensor=item.layout.tensor,
        pipeline=item.layout.pipeline,
        expert=item.layout.expert,
        data_parallel_attention=item.layout.attention_data,
        replicas=item.layout.replicas,
        pool=item.pool,
        ttft_milliseconds=to_milliseconds(item.performance.ttft_seconds),
        tpot_milliseconds=to_milliseconds(item.performance.tpot_seconds),
        tpot_microseconds=to_microseconds(item.performance.tpot_seconds),
        output_tokens_per_second=round(item.performance.output_tokens_per_second),
        million_output_tokens_price=_price(item.million_tokens_price),
        **_alternative_price(item.gpu_price),
        loses=item.loses,
        losses=[_loss(loss) for loss in item.losses] or None,
    )


def _alternative_price(each: GpuPrice | None) -> dict[str, Any]:
    if each is None:
        return {}
    return {"gpu_hour_price": f"{each.per_hour:.6g}", "gpu_hour_price_basis": each.basis.value}


def _loss(loss: Loss) -> ShownLoss:
    amount = loss.amount
    match loss.kind:
        case LossKind.NOT_DEPLOYABLE | LossKind.TIGHT:
            figure: dict[str, Any] = {}
        case LossKind.QUEUES:
            figure = {"requests": int(amount)}
        case LossKind.FALLS_BEHIND | LossKind.NO_HEADROOM:
            figure = {"requests_per_second": f"{amount:.6g}"}
        case LossKind.PART_OF_TPOT:
            figure = {"part": loss.part, "microseconds": to_microseconds(amount)}
        case _:
            figure = {"percent": round((amount - 1) * 100)}
    return ShownLoss(kind=loss.kind.value, **figure)


def _exclusion(item: Exclusion) -> ShownExclusion:
    return ShownExclusion(
        code=item.code, count=item.count, example=item.example, nearest_miss=item.nearest_miss
    )


def _step(step: LoadStep, plan: Plan) -> ShownStep:
    rated = plan.capacity is not None
    return ShownStep(
        replicas=step.instances,
        gpus=step.gpus,
        concurrency=None if rated else round(step.load),
        requests_per_second=_short(step.load) if rated else None,
        hour_price=None if step.price is None else _short(step.price),
    )


def _front(point: FrontPoint, plan: Plan) -> ShownFront:
    return ShownFront(
        layout=copies(point.layout),
        gpus=point.layout.gpus,
        pool=None if point.pool == plan.pool else point.pool,
        planned=point.planned or None,
        output_tokens_per_second_per_user=_short(point.tokens_per_user),
        output_tokens_per_second_per_gpu=_short(point.tokens_per_gpu),
    )


def _without(found: WithoutFields) -> ShownWithout:
    ratios = ShownRatios(
        price=_short(found.price), output=_short(found.output), seconds=_short(found.seconds)
    )
    return ShownWithout(
        fields=list(found.fields[:FIELDS_MAX_ITEMS]),
        gain=found.gain.value,
        layout=letters(found.layout),
        replicas=found.layout.replicas,
        gpus=found.layout.gpus,
        pool=found.pool,
        product=found.product,
        carries_load=found.carries_load,
        compared_with_plan=None if found.gain is Benefit.FITS else ratios,
        message=without_sentence(found),
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")
