"""Laws of what a user may leave out: no refusal that his own fields cause without naming them, and
no advice that does not help.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import InputError
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.report import NoPlan, Plan, Report
from tests.support.builders_nodes import a_gb200_rack, a_node, h100_nodes
from tests.support.builders_subject import a_subject, advised, plan_of, stock

Nodes = list[dict[str, Any]]

FLEETS: Final[Mapping[str, Nodes]] = {
    "H100": h100_nodes(2),
    "L40S": [a_node(f"l40s-{index}", "NVIDIA-L40S", 4, network_gbps=25) for index in range(3)],
    "A100": [a_node("a100-0", "NVIDIA-A100-SXM4-80GB", network_gbps=100)],
    "L40S and GB200": [
        *(a_node(f"l40s-{index}", "NVIDIA-L40S", 4, network_gbps=25) for index in range(2)),
        *a_gb200_rack(trays=2),
    ],
}

MODELS: Final = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct")

OWN: Final[Mapping[str, tuple[Any, ...]]] = {
    "placement.nodeSelector": (
        {"team": "search"},
        {"nvidia.com/gpu.product": "NVIDIA-L40S"},
        {"kubernetes.io/os": "linux"},
    ),
    "placement.migProfile": ("1g.10gb",),
    "budget.gpus": (1, 2, 4, 8),
    "budget.nodes": (1,),
    "parallelism.tensor": (1, 2, 3, 8),
    "parallelism.pipeline": (1, 2, 40),
    "parallelism.context": (8,),
    "parallelism.dataParallelAttention": (2,),
    "objective.ttftMilliseconds": (1, 300, 5000),
    "objective.tpotMilliseconds": (1, 8, 15, 100),
    "replicas": (2, 9),
    "engine.maxModelLen": (8192, 131072),
    "engine.kvCacheQuantization": ("FP8",),
    "engine.args.kv-cache-memory-bytes": (2**40, 2**26),
}
"""Fields of a user, some of whose values leave nothing."""

own_fields = st.lists(st.sampled_from(sorted(OWN)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: st.sampled_from(OWN[name]) for name in names})
)


def a_spec(model: str, own: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"model": {"id": model}, "workload": {"concurrency": 4}}
    for path, value in own.items():
        *parents, name = path.split(".", 2)
        place = spec
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = deepcopy(value)
    return spec


def is_taken(own: Mapping[str, Any]) -> bool:
    """Return whether the fields contradict each other in nothing that the API server refuses."""
    try:
        a_subject(**a_spec(MODELS[0], own))
    except InputError:
        return False
    return True


def planned(model: str, own: Mapping[str, Any], nodes: Nodes) -> Report:
    subject = a_subject(**a_spec(model, own))
    return plan_serving(subject, stock(subject, nodes))


@given(st.sampled_from(MODELS), st.sampled_from(sorted(FLEETS)), own_fields.filter(is_taken))
def test_a_refusal_that_own_fields_cause_names_them_and_what_is_named_is_true(
    model: str, fleet: str, own: Mapping[str, Any]
) -> None:
    nodes = FLEETS[fleet]
    report = advised(a_subject(**a_spec(model, own)), nodes)

    if isinstance(report.outcome, NoPlan) and isinstance(planned(model, {}, nodes).outcome, Plan):
        assert report.without, report.outcome.problem.sentence()
    for item in report.without:
        assert set(item.fields) <= {f"spec.{path}" for path in own}
        rest = {path: value for path, value in own.items() if f"spec.{path}" not in item.fields}
        there = plan_of(planned(model, rest, nodes))
        assert (there.layout, there.pool) == (item.layout, item.pool)
