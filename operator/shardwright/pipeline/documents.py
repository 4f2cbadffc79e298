"""How is a plan shown as data? As the question and the plan, as the operator writes it to
``status.plan``, in the API's names; without conditions, groups or pods, which only a cluster knows.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from shardwright.api.conditions import Reason
from shardwright.api.group_version import API_VERSION
from shardwright.api.plan_status import plan_status
from shardwright.costs.workload import KvOffload, Workload
from shardwright.errors import Problem
from shardwright.layouts.layout import Drafter, DraftMethod
from shardwright.pipeline.assembly import engine_status
from shardwright.planning.comparison import Comparison
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.rendering.pod_resources import quantity
from shardwright.reporting.apart import pair_document
from shardwright.reporting.explanation import Explanation
from shardwright.resolving.subject import Subject
from shardwright.units import to_milliseconds


def plan_document(
    subject: Subject, report: Report, comparison: Comparison | None = None
) -> dict[str, Any]:
    """Return the answer to one ShardedModel.

    ``reason`` is a condition's reason; ``problem`` is there if there is no plan, one that cannot be
    deployed, or one that lacks replicas, ``best`` if degrees are pinned.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "PlanReport",
        "metadata": {"name": subject.owner.name, "namespace": subject.owner.namespace},
        "model": {
            "id": subject.deployment.model,
            **({} if subject.model.stated else {"parameters": subject.model.parameters}),
        },
        **_engine(subject, report.outcome),
        "request": request_document(subject),
        "reason": _reason(subject, report),
        **_problem(report),
        "plan": plan_status(report),
        **best_document(comparison),
        **({"pair": pair_document(report.pair)} if report.pair else {}),
    }


def best_document(comparison: Comparison | None) -> dict[str, Any]:
    """Return the best plan, and its figures as multiples of the pinned plan's; empty if nothing is
    pinned.
    """
    if comparison is None:
        return {}
    alone = Report(outcome=comparison.best, alternatives=(), excluded=(), considered=0)
    multiples = {
        "cost": comparison.cost,
        "served": comparison.served,
        "seconds": comparison.seconds,
    }
    said = {
        "standing": comparison.standing.value,
        **{name: float(f"{ratio:.4g}") for name, ratio in multiples.items() if ratio is not None},
        "plan": plan_status(alone),
    }
    return {"best": said}


def _engine(subject: Subject, outcome: Plan | NoPlan) -> dict[str, Any]:
    chosen = (
        subject.deployment.on(outcome.resource) if isinstance(outcome, Plan) else subject.deployment
    )
    return engine_status(replace(subject, deployment=chosen))


def explanation_document(
    subject: Subject, report: Report, explanation: Explanation, comparison: Comparison | None = None
) -> dict[str, Any]:
    """Return the answer with all its explanations: bytes and seconds, not rounded."""
    document = plan_document(subject, report, comparison)
    return {**document, "kind": "PlanExplanation", "explanation": _camel(asdict(explanation))}


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {to_camel(key): _camel(item) for key, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list | tuple) else value


def to_camel(name: str) -> str:
    """Return a name of the code as the wire writes it.

    >>> to_camel("kv_cache_bytes")
    'kvCacheBytes'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def request_document(subject: Subject) -> dict[str, Any]:
    """Return the load, the objective and the limits of a question."""
    request = subject.request
    load, objective, space = request.workload, request.objective, request.space
    limits = {
        "ttftMilliseconds": objective.ttft_seconds,
        "tpotMilliseconds": objective.tpot_seconds,
    }
    pins = {
        "tensor": space.tensor,
        "pipeline": space.pipeline,
        "expert": space.expert,
        "dataParallelAttention": space.attention_data,
        "context": space.context,
        "partition": list(space.partition) or None,
    }
    budget = {"gpus": space.max_gpus, "nodes": space.max_nodes, "fill": space.fill or None}
    return {
        "workload": _workload(load),
        "engine": _of_engine(load, subject.traits.options.drafter),
        "objective": {
            "optimizeFor": objective.optimize_for.value,
            **{
                name: to_milliseconds(seconds)
                for name, seconds in limits.items()
                if seconds is not None
            },
            "statistic": objective.statistic.value,
        },
        **({} if space.fill or space.replicas is None else {"replicas": space.replicas}),
        **_given("parallelism", pins),
        **_given("budget", budget),
    }


def _workload(load: Workload) -> dict[str, Any]:
    arrival = (
        {"concurrency": load.concurrency}
        if load.requests_per_second is None
        else {"requestsPerSecond": load.requests_per_second}
    )
    imbalance = (
        {}
        if load.expert_imbalance is None
        else {"expertImbalancePercent": round(load.expert_imbalance * 100)}
    )
    return {
        "inputTokens": load.input_tokens,
        "outputTokens": load.output_tokens,
        **arrival,
        "prefixCacheHitPercent": round(load.prefix_cache_hit_rate * 100),
        **imbalance,
    }


def _of_engine(load: Workload, drafter: Drafter | None) -> dict[str, Any]:
    return {
        **({"maxModelLen": load.max_model_len} if load.open_model_len is None else {}),
        "kvCacheQuantization": "FP8" if load.kv_cache_dtype == "fp8" else "Auto",
        **({"kvOffload": {"hostMemory": _host_memory(load.kv_offload)}} if load.kv_offload else {}),
        **({"speculation": _speculation(load, drafter)} if load.draft_tokens else {}),
    }


def _speculation(load: Workload, drafter: Drafter | None) -> dict[str, Any]:
    # Without ``tokens`` if the planner chooses them: then the plan has them.
    method = drafter.method if drafter else DraftMethod.PROMPT_LOOKUP
    apart = method in (DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE3)
    stated = {} if load.draft_choices else {"tokens": load.draft_tokens}
    return {
        "method": method.value,
        **stated,
        "acceptancePercent": round(load.draft_acceptance * 100),
        **({"head": {"id": drafter.model.source}} if drafter and apart else {}),
    }


def _host_memory(offload: KvOffload) -> str:
    return "Auto" if offload.pod_bytes is None else quantity(offload.pod_bytes)


def _given(name: str, fields: Mapping[str, object]) -> dict[str, dict[str, object]]:
    given = {key: value for key, value in fields.items() if value is not None}
    return {name: given} if given else {}


def _reason(subject: Subject, report: Report) -> str:
    outcome, none = report.outcome, report.unplaced
    if none or isinstance(outcome, NoPlan):
        heals = none is not None and none.heals_by_itself
        reason = Reason.INSUFFICIENT_CAPACITY if heals else Reason.NOTHING_FITS
    elif subject.intent.plan_only:
        reason = Reason.PLAN_ONLY
    else:
        reason = Reason.PLANNED if outcome.deployable else Reason.NOT_DEPLOYABLE
    return reason.value


def _problem(report: Report) -> dict[str, Any]:
    outcome, lacks = report.outcome, report.lacks
    if isinstance(outcome, NoPlan):
        problem: Problem | None = outcome.problem
    else:
        problem = outcome.undeployable or (lacks.problem if lacks else None)
    return {"problem": problem.document()} if problem else {}
