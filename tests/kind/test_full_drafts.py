"""Drafted tokens on a real engine: whatever drafts, the answers are those without it, and weights
and K/V of what drafts are the plan's.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kind import faults, serving
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.serving import CLIENT, KV_BLOCK_TOKENS, NAMESPACE, PROMPTS, Served
from tests.kind.tiny_model import CONFIG, CONFIG_OF_HEAD, WORDS

pytestmark = pytest.mark.timeout(3600)

ONE = "parallelism: {tensor: 1, pipeline: 1}"
_READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"


def _head(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    uri = f"pvc://models/{name}"
    return {"head": {"id": f"tests/{name}", "config": config, "uri": uri}}


METHODS = {
    "lookup": {"method": "PromptLookup", "tokens": 1},
    "draft": {"method": "DraftModel", "tokens": 2, **_head("swapped", CONFIG)},
    "head": {"method": "EAGLE3", "tokens": 2, **_head("head", CONFIG_OF_HEAD)},
}
"""What drafts, by the name of the model that it drafts for: a small model that mostly says something
else, and a head that nobody has trained.
"""

ASKED = (*PROMPTS, list(range(3, WORDS)))
"""The last has every word once: whatever is answered stands in it."""


@pytest.fixture(scope="module")
def without(models: Cluster) -> list[list[str]]:
    """What is answered where nothing drafts."""
    served = serving.serve(models, "undrafted", ONE)
    answers = [served.ask(prompt) for prompt in ASKED]
    served.delete()
    return answers


@pytest.mark.parametrize("name", METHODS)
def test_with_drafted_tokens_the_answers_are_those_without_and_the_plan_has_every_byte(
    models: Cluster, without: list[list[str]], name: str
) -> None:
    engine = {"speculation": METHODS[name]}
    served = Served(models, name)
    try:
        served.write(f"engine: {json.dumps(engine)}", further=("workload: {concurrency: 1}", ONE))
        served.wait_ready()
        answers = [served.ask(prompt) for prompt in ASKED]
        drafted, accepted = _counted(served, "draft"), _counted(served, "accepted")
        memory, log = served.status()["plan"]["memory"], served.log()
    finally:
        served.delete()

    assert answers == without
    assert drafted > 0
    assert accepted < drafted
    _, *of_drafts = held = _said(log, r"holds (\d+) bytes")
    (stage,) = memory["stages"]
    assert (sum(held), sum(of_drafts)) == (stage["weightsBytes"], stage.get("draftBytes", 0))
    blocks = (memory["kvCacheTokens"] + 16) // KV_BLOCK_TOKENS
    assert set(_said(log, r"keeps (\d+) blocks")) == {blocks}
    said = f"{accepted:.0f} of {drafted:.0f} tokens accepted"
    faults.seen.append(Fault(f"drafts by {METHODS[name]['method']}", said, 0, "equal"))


def _said(log: str, what: str) -> list[int]:
    """What the only rank reports, of the model first."""
    return [int(figure) for figure in re.findall(f"rank 0 {what}", log)]


def _counted(served: Served, what: str) -> float:
    """Drafted or accepted tokens, as the engine counts them."""
    url = served.url.replace("v1/completions", "metrics")
    asking = ("exec", CLIENT, "--", "python3", "-c", _READ, url)
    text = served.cluster.kubectl("-n", NAMESPACE, *asking)
    series = rf"^vllm:spec_decode_num_{what}_tokens_total\S* (\S+)$"
    return sum(map(float, re.findall(series, text, re.MULTILINE)))
