"""Weights that the engine streams from a real S3 server in the cluster, by nothing but what its pod
is told.
"""

from collections.abc import Iterator

import pytest

from tests.harness.waiting import wait_for
from tests.kind import faults, serving, store
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.serving import PROMPTS, READY_SECONDS, Served

pytestmark = pytest.mark.timeout(3600)

ONE = "parallelism: {tensor: 1, pipeline: 1}"


@pytest.fixture(scope="module")
def models_in_store(models: Cluster) -> Iterator[Cluster]:
    with store.serving_models(models):
        yield models


def test_a_wrong_key_is_shown_and_with_the_right_one_it_answers_as_from_the_claim(
    models_in_store: Cluster,
) -> None:
    claimed = serving.serve(models_in_store, "claimed", ONE)
    expected = [claimed.ask(prompt) for prompt in PROMPTS]
    claimed.delete()
    streamed = Served(models_in_store, "streamed")
    try:
        streamed.write(ONE, weights=store.weights("tiny", store.WRONG))
        said = wait_for(lambda: _refused(streamed), READY_SECONDS, "the refusal", 1)
        streamed.write(ONE, weights=store.weights("tiny"))
        streamed.wait_ready()
        answers = [streamed.ask(prompt) for prompt in PROMPTS]
    finally:
        streamed.delete()

    assert answers == expected
    assert any("tiny/model.safetensors" in line for line in store.requests(models_in_store))
    faults.seen.append(Fault("a wrong key of an object store", said, 0, "serves"))


def _refused(streamed: Served) -> str:
    assert streamed.condition().get("status") == "False"
    message = str(streamed.failure()["message"])
    refusals = [line for line in message.splitlines() if "SignatureDoesNotMatch" in line]
    assert refusals, message
    return refusals[0]
