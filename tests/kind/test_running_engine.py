"""Groups of a real engine, cut by our plan, started from our StatefulSet, asked through our client Service."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.kind import serving
from tests.kind.cluster import Cluster
from tests.kind.serving import KV_BYTES, NAMESPACE, Layout, Served

pytestmark = pytest.mark.timeout(3600)

GROUPS = {
    "tensor": (Layout(2, 1), 1),
    "pipeline": (Layout(1, 2), 2),
    "both": (Layout(2, 2), 2),
}
"""Degrees, and the pods that the group must have. The largest has four workers: no two groups run at once."""


@pytest.fixture(scope="module")
def engine_image(kind: Cluster) -> str:
    """The engine's image; the namespace, the models and a client are there when this is."""
    return serving.prepare(kind)


@pytest.fixture(scope="module")
def expected(kind: Cluster, engine_image: str) -> list[list[str]]:
    """What one process answers."""
    served = serving.serve(kind, "one", engine_image, Layout(1, 1))
    answers = served.answers()
    served.delete()
    return answers


@pytest.fixture(scope="module", params=GROUPS)
def group(kind: Cluster, engine_image: str, expected: list[list[str]], request: pytest.FixtureRequest) -> Iterator[Served]:
    """A group that is Ready by the rendered probes."""
    del expected  # it ran before: its worker counts too
    layout, _ = GROUPS[request.param]
    # Two stages fit one node, unless it has one GPU.
    with serving.single_gpu_nodes(kind) if request.param == "pipeline" else nullcontext():
        served = serving.serve(kind, request.param, engine_image, layout)
        yield served
        served.delete()


def test_the_answers_of_one_process_wander(expected: list[list[str]]) -> None:
    assert [len(words) for words in expected] == [serving.TOKENS] * len(serving.PROMPTS)
    assert min(len(set(words)) for words in expected) >= 8


def test_a_group_answers_as_one_process_does(group: Served, expected: list[list[str]]) -> None:
    assert group.answers() == expected


def test_a_group_has_the_pods_of_its_plan_and_none_was_restarted(group: Served) -> None:
    pods = group.pods()

    assert len(pods) == GROUPS[group.name][1]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == len(pods)
    assert {status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]} == {0}


def test_the_engine_holds_the_tokens_that_the_plans_bytes_per_token_make(group: Served) -> None:
    """Every rank has the same bytes for K/V; the stage with the most bytes per token decides for the group."""
    block = serving.KV_BLOCK_TOKENS

    assert group.kv_tokens() == {KV_BYTES // (group.kv_bytes_per_token() * block) * block}


def test_another_model_answers_otherwise(kind: Cluster, engine_image: str, expected: list[list[str]]) -> None:
    served = serving.serve(kind, "swapped", engine_image, Layout(1, 1), path="swapped")
    answers = served.answers()
    served.delete()

    assert answers != expected


def test_nothing_of_a_deleted_group_is_left(kind: Cluster, engine_image: str) -> None:
    del engine_image
    listed = kind.kubectl("get", "statefulsets,services,configmaps,pods,poddisruptionbudgets", "-n", NAMESPACE, "-o", "name")

    assert set(listed.split()) == {"configmap/kube-root-ca.crt", f"pod/{serving.CLIENT}"}
