"""Laws of a number that an autoscaler chooses: it says how many groups there are, and never how a
model is cut.
"""

from dataclasses import replace
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from shardwright.pipeline.assembly import plan_serving
from shardwright.pipeline.replanning import Ground, plan_anew
from shardwright.planning.report import Plan
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import a_subject, plan_of, stock
from tests.support.examples import examples

NODES = h100_nodes(2)
GPUS = 16
RATES = (4, 20, 40)
"""What one, four and eight GPUs carry."""


@cache
def open_plan(rate: int) -> Plan:
    subject = a_subject(workload={"requestsPerSecond": rate})
    return plan_of(plan_serving(subject, stock(subject, NODES)))


@examples(10)
@given(
    st.sampled_from(RATES), st.integers(1, 20), st.integers(0, 20), st.none() | st.integers(1, 20)
)
def test_the_load_says_how_a_model_is_cut_and_the_autoscaler_how_many_groups_there_are(
    rate: int, least: int, more: int, chosen: int | None
) -> None:
    scaling = {"minReplicas": least, "maxReplicas": least + more}
    subject = a_subject(
        workload={"requestsPerSecond": rate}, scaling=scaling, replicas=chosen or None
    )
    inventory = stock(subject, NODES)
    planned = open_plan(rate)
    bounded = min(max(planned.wanted, least), least + more)

    made = plan_of(plan_serving(subject, inventory))

    assert replace(made.layout, replicas=1) == replace(planned.layout, replicas=1)
    assert made.wanted == (chosen or bounded)
    assert len(made.groups) == made.layout.replicas == min(made.wanted, GPUS)
    anew = plan_anew(subject, None, Ground(inventory=inventory)).record
    assert anew is not None
    assert (anew.plan.layout, anew.plan.wanted) == (made.layout, made.wanted)
