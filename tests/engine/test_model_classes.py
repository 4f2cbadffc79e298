"""The bytes of the plan are those of the model classes that will hold them."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from shardwright.layouts.layout import DraftMethod, Layout
from shardwright.rendering.deployment import HubCommit
from tests.engine.launches import REVISION, VERSIONS, Launch, has_weights_that_draft, launches
from tests.engine.questions import Answer, Engine
from tests.support.builders_deployment import a_deployment, a_plan_of
from tests.support.builders_plan import CONFIGS

NOT_EXACT = {
    "golden bundle": "its bytes are plausible ones, made for reading",
    "feature weights quantized while loading": "the class is made of BF16 and quantizes layer by layer as it loads",
}


def has_bytes_of_its_own(launch: Launch) -> bool:
    return bool(
        launch.plan.layout.partition
        or launch.deployment.serving.adapters.served
        or has_weights_that_draft(launch)
    )


CHEAP = tuple(
    launch
    for launch in launches()
    if launch.id not in NOT_EXACT
    and (launch.id.startswith(("sample ", "golden ")) or has_bytes_of_its_own(launch))
)
"""Every stage of all samples and goldens, uneven stages, adapters, and draft models: 2 to 30 s
each.
"""

HOPPER = (9, 0)
"""The capability that layers are built for. On Blackwell vLLM's modules for latent attention take
GPU memory when imported; what the weights are does not depend on it.
"""


def asked(launch: Launch, engines: dict[str, Engine], folder: Path) -> list[Future[Answer]]:
    """Return the answers to come about the first rank of every stage; each version gets half of the
    launches.
    """
    version = VERSIONS[CHEAP.index(launch) % len(VERSIONS)]
    first_ranks = [stage.stage * launch.plan.layout.tensor for stage in launch.plan.stages]
    jobs = [
        launch.of(version).job(0, folder, rank) | {"capability": HOPPER} for rank in first_ranks
    ]
    return [engines[version].ask(job) for job in jobs]


@pytest.fixture(scope="module", autouse=True)
def _asked_ahead(engines: dict[str, Engine], folder: Path) -> None:
    for launch in CHEAP:
        asked(launch, engines, folder)


@pytest.mark.parametrize("launch", CHEAP, ids=lambda launch: launch.id)
def test_weights_adapters_drafts_and_cache_of_every_stage_are_the_bytes_of_the_plan(
    launch: Launch, engines: dict[str, Engine], folder: Path
) -> None:
    found = [answer.result() for answer in asked(launch, engines, folder)]

    assert [answer.get("message", "") for answer in found] == ["" for _ in found]
    parts = ("weightsBytes", "adapterBytes", "draftBytes")
    made = [
        (sum(answer[part] for part in parts), answer["adapterBytes"], answer["draftBytes"])
        for answer in found
    ]
    assert made == [
        (stage.weights_bytes, stage.adapter_bytes, stage.draft_bytes)
        for stage in launch.plan.stages
    ]
    assert [answer["kvBytesPerToken"] for answer in found] == [
        stage.kv_bytes_per_token for stage in launch.plan.stages
    ]


def test_a_draft_model_on_a_pipeline_stage_lacks_layers(
    engines: dict[str, Engine], folder: Path
) -> None:
    """Why stages are refused beside one: the engine takes the arguments and makes half a model."""
    drafts = a_deployment(
        model="llama-8b",
        drafts_by=DraftMethod.DRAFT_MODEL,
        draft_tokens=3,
        draft_model=HubCommit(id="acme/draft", revision=REVISION),
    )

    def draft_bytes(layout: Layout) -> int:
        plan, config = a_plan_of(layout), CONFIGS["llama-8b"]
        launch = Launch(
            id=f"drafts on {layout.pipeline}",
            plan=plan,
            deployment=drafts,
            config=config,
            draft=config,
        )
        job = launch.of(VERSIONS[0]).job(0, folder, layout.pipeline - 1) | {"capability": HOPPER}
        return int(engines[VERSIONS[0]].ask(job).result()["draftBytes"])

    assert draft_bytes(Layout(pipeline=2)) < 0.6 * draft_bytes(Layout())
