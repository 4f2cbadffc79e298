"""What is said of a failed group: that it was the hub which refused is named as such."""

import pytest

from shardwright.reconcile.members import Failure, GroupState, Situation
from shardwright.reconcile.wording import failure_sentence

URL = "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json"


def _said(message: str) -> str:
    failure = Failure(rank=0, reason="Error", container="engine", exit_code=1, message=message)
    return failure_sentence(
        GroupState(name="m-0", situation=Situation.STARTING, restarts=2, last_failure=failure)
    )


@pytest.mark.parametrize(
    "message",
    [
        f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {URL}",
        f"403 Client Error. (Request ID: Root=1-2)\n\nCannot access gated repo for url {URL}.",
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it",
        (
            "Access to model meta-llama/Llama-3.1-8B-Instruct is restricted. You must have access "
            "to "
            "it and be authenticated"
        ),
    ],
)
def test_a_hub_that_refuses_is_named_with_the_way_out(message: str) -> None:
    said = _said(message)

    assert said.startswith("rank 0, container engine: Error with exit code 1, restart 2: ")
    assert "the Hugging Face hub refuses the model (401 or 403)" in said
    assert said.endswith("account in spec.model.weights.secretRef")


@pytest.mark.parametrize(
    "message",
    ["CUDA error: out of memory", "401 Client Error for url: https://proxy.example/login", ""],
)
def test_nothing_else_is_taken_for_it(message: str) -> None:
    assert "hub" not in _said(message)
