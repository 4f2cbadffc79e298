"""Groups of a real engine, cut by our plan, started from our StatefulSet, asked through our client
Service.
"""

import math
from collections.abc import Mapping

import pytest

from tests.harness.errors import HarnessError
from tests.kind import release, serving
from tests.kind.cluster import Cluster
from tests.kind.release import KV_BYTES
from tests.kind.serving import KV_BLOCK_TOKENS, MOST_WORKERS, Facts

pytestmark = pytest.mark.timeout(2400)

LAYOUTS = {"tensor": (2, 1, 1), "both": (2, 2, 2), "pipeline": (1, 2, 2)}
"""Tensor, pipeline, pods. Only the first is pinned: the others are what the planner makes of it."""


@pytest.fixture(params=LAYOUTS)
def group(request: pytest.FixtureRequest) -> tuple[str, Facts]:
    """A group that was Ready by the rendered probes, by name."""
    name: str = request.param
    if name == "tensor":
        return name, request.getfixturevalue("single_pods")[name]
    return name, request.getfixturevalue(name)[1]


def test_the_harness_lets_no_more_workers_in_than_the_machine_has_memory_for(
    models: Cluster,
) -> None:
    pod = serving.plain_pod("greedy", release.image(models), gpus=MOST_WORKERS + 1)

    with pytest.raises(HarnessError, match="exceeded quota"):
        models.apply(pod)


def test_what_a_user_types_has_eight_lines() -> None:
    assert (
        len(
            serving.manifest(
                "both", "workload: {concurrency: 1}\n  engine: {maxModelLen: 100000}"
            ).splitlines()
        )
        == 8
    )


def test_the_answers_of_one_process_wander(expected: list[list[str]]) -> None:
    assert [len(words) for words in expected] == [serving.TOKENS] * len(serving.PROMPTS)
    assert min(len(set(words)) for words in expected) >= 8


def test_two_layers_swapped_answer_otherwise(
    single_pods: Mapping[str, Facts], expected: list[list[str]]
) -> None:
    assert all(
        other != one for other, one in zip(single_pods["swapped"].answers, expected, strict=True)
    )


def test_a_group_is_cut_as_it_must_be_and_answers_as_one_process_does(
    group: tuple[str, Facts], expected: list[list[str]]
) -> None:
    name, facts = group
    tensor, pipeline, pods = LAYOUTS[name]

    assert (facts.layout["tensor"], facts.layout["pipeline"], len(facts.nodes)) == (
        tensor,
        pipeline,
        pods,
    )
    assert (len(set(facts.nodes)), facts.restarts) == (pods, 0)
    assert facts.answers == expected


def test_every_rank_holds_the_weights_of_its_stage_to_the_byte(group: tuple[str, Facts]) -> None:
    _, facts = group
    tensor, ranks = facts.layout["tensor"], facts.layout["gpusPerReplica"]

    assert facts.weights == {
        rank: facts.stages[rank // tensor]["weightsBytes"] for rank in range(ranks)
    }


def test_every_rank_keeps_the_blocks_that_the_plans_bytes_make(group: tuple[str, Facts]) -> None:
    """The plan counts in blocks of 16 tokens and leaves out the one that the engine holds back;
    this build has larger ones.
    """
    _, facts = group
    blocks = (facts.kv_tokens_planned + 16) // KV_BLOCK_TOKENS
    longest = facts.max_model_len

    assert {stage["kvCacheBytes"] for stage in facts.stages} == {KV_BYTES}
    assert facts.blocks == dict.fromkeys(range(facts.layout["gpusPerReplica"]), blocks)
    # The engine's own line: how many of the longest requests fit, in whole blocks, times their
    # tokens.
    assert facts.kv_tokens_logged == {int(blocks / math.ceil(longest / KV_BLOCK_TOKENS) * longest)}
