"""A mixture of experts in the forms that the engine's build for the CPU can do: tensor parallel and
pipelined.
"""

from collections.abc import Mapping

import pytest

from tests.kind import release, serving
from tests.kind.cluster import Cluster
from tests.kind.serving import Facts, Served
from tests.kind.shell import step

pytestmark = pytest.mark.timeout(3600)

PINS = {
    "experts-one": "parallelism: {tensor: 1, pipeline: 1, dataParallelAttention: 1, expert: 1}",
    "experts-tensor": "parallelism: {tensor: 2, pipeline: 1, dataParallelAttention: 1, expert: 1}",
}
PIPELINED = "parallelism: {tensor: 1, pipeline: 2, dataParallelAttention: 1, expert: 1}"
LAYOUTS = {"experts-tensor": (2, 1, 1), "experts-pipeline": (1, 2, 2)}
"""Tensor, pipeline, pods. Experts are cut as other layers are: with whole experts per rank this
build dies in a request.
"""


@pytest.fixture(scope="module")
def found(models: Cluster) -> Mapping[str, Facts]:
    """What was found of the groups, by name."""
    single = {name: Served(models, name, release.EXPERTS_ID) for name in PINS}
    with step("starting a mixture of experts in one process and as two tensor ranks", 120):
        for name, served in single.items():
            served.write(PINS[name], path="experts")
        for served in single.values():
            served.wait_ready()
    facts = {name: served.facts() for name, served in single.items()}
    for served in single.values():
        served.delete()
    return facts | {"experts-pipeline": _pipelined(models)}


def _pipelined(models: Cluster) -> Facts:
    with serving.single_gpu_nodes(models):
        served = Served(models, "experts-pipeline", release.EXPERTS_ID)
        served.write(PIPELINED, path="experts")
        served.wait_ready()
        facts = served.facts()
        served.delete()
        return facts


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_group_of_experts_answers_as_one_process_does(
    found: Mapping[str, Facts], name: str
) -> None:
    facts, (tensor, pipeline, pods) = found[name], LAYOUTS[name]

    assert (facts.layout["tensor"], facts.layout["pipeline"], len(set(facts.nodes))) == (
        tensor,
        pipeline,
        pods,
    )
    assert facts.answers == found["experts-one"].answers
    assert min(len(set(words)) for words in facts.answers) >= 8


@pytest.mark.parametrize("name", ["experts-one", *LAYOUTS])
def test_every_rank_holds_the_experts_of_its_plan_to_the_byte(
    found: Mapping[str, Facts], name: str
) -> None:
    facts = found[name]
    tensor, ranks = facts.layout["tensor"], facts.layout["gpusPerReplica"]

    assert facts.weights == {
        rank: facts.stages[rank // tensor]["weightsBytes"] for rank in range(ranks)
    }
