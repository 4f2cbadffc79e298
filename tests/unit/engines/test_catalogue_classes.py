"""The classes of built-in models are among those that each engine version with a list knows."""

import pytest

from shardwright.engines.registry import ENGINES
from shardwright.layouts.layout import EngineTraits
from shardwright.modelspec.catalogue import known_ids
from tests.support.builders_model import catalogued

LISTED = [
    found
    for engine in ENGINES.values()
    for version in engine.rules.tables.versions
    if (found := engine.traits(version)).support.architectures is not None
]


@pytest.mark.parametrize("engine", LISTED, ids=lambda one: f"{one.name}-{one.version}")
def test_every_built_in_class_is_in_the_registry(engine: EngineTraits) -> None:
    assert engine.support.architectures is not None
    unknown = {
        model_id: architecture
        for model_id in known_ids()
        if (architecture := catalogued(model_id).architecture) not in engine.support.architectures
    }

    assert unknown == {}


def test_two_versions_have_a_registry() -> None:
    assert [(one.name, one.version) for one in LISTED] == [("vLLM", "0.32.0"), ("vLLM", "0.33.0")]
