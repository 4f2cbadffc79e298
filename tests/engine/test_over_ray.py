"""What a group that Ray joins is told is what vLLM's parser takes; what comes after needs Ray, and
is not asked here.
"""

from pathlib import Path

import pytest

from shardwright.layouts.layout import Layout
from tests.engine.launches import VERSIONS, Launch
from tests.engine.questions import Engine
from tests.support.builders_deployment import a_deployment, a_plan_of
from tests.support.builders_plan import CONFIGS

OVER_RAY = Launch(
    id="over ray",
    plan=a_plan_of(Layout(tensor=8, pipeline=2), nodes=2),
    deployment=a_deployment(model="llama-70b", over_ray=True),
    config=CONFIGS["llama-70b"],
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_parser_takes_the_arguments_and_only_that_ray_is_missing_stops_the_configuration(
    version: str, engines: dict[str, Engine], folder: Path
) -> None:
    answer = engines[version].ask(OVER_RAY.of(version).job(0, folder)).result()

    assert answer["stage"] == "config"  # the parser is behind it
    assert "Failed to import Ray: No module named 'ray'" in answer["message"]
