"""The parts that an engine is made of: who adds one is told which is missing."""

from pathlib import Path
from typing import get_args

import pytest

import shardwright
from shardwright.api.spec import Engine
from shardwright.engines.registry import ENGINES, EngineDefinition

PACKAGE = Path(shardwright.__file__).parent
MODULES = ("arguments", "environment", "policy", "releases", "traits")


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_engine_has_all_its_parts(engine: EngineDefinition) -> None:
    folder, scripts = f"engines/{engine.label}", f"rendering/templates/{engine.label}"
    parts = (
        *(f"{folder}/{module}.py" for module in MODULES),
        *(f"{folder}/data/options-{version}.json" for version in engine.rules.tables.versions),
        f"{scripts}/start.sh.j2",
        f"{scripts}/unfinished.sh.j2",
        f"rendering/programs/counters_{engine.label}.py",
    )

    assert [part for part in parts if not (PACKAGE / part).is_file()] == []


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_engine_says_its_requests_in_flight_or_is_said_not_to(engine: EngineDefinition) -> None:
    assert bool(engine.in_flight) != ("requests-in-flight" in engine.rules.policy.missing)


def test_the_engines_that_a_resource_can_name_are_those_that_there_are() -> None:
    assert get_args(Engine.model_fields["name"].annotation) == tuple(ENGINES)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_what_the_api_asks_of_an_engine_is_what_its_traits_say(engine: EngineDefinition) -> None:
    own = engine.traits(engine.releases.example)

    assert engine.mixes_expert_cuts == own.cuts.mixes_expert_cuts
