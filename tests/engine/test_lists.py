"""The lists of each version are those of the engine itself."""

import pytest

from shardwright.engines.policy import option_table
from shardwright.engines.vllm.policy import INCOMPATIBLE, RULES
from shardwright.engines.vllm.traits import traits
from shardwright.modelspec.families import FAMILIES
from tests.engine.launches import VERSIONS
from tests.engine.questions import Answer, Engine


@pytest.fixture(scope="module", params=VERSIONS)
def known(request: pytest.FixtureRequest, engines: dict[str, Engine]) -> tuple[str, Answer]:
    """Return a version and what it knows by name."""
    return request.param, engines[request.param].ask({"lists": True}).result()


def test_the_table_has_every_option_of_the_parser_and_no_other(known: tuple[str, Answer]) -> None:
    version, answer = known

    assert sorted(option_table(version, RULES.tables) or {}) == answer["options"]


def test_a_value_is_read_as_what_the_optional_type_of_the_parser_wraps(
    known: tuple[str, Answer],
) -> None:
    version, answer = known
    table = option_table(version, RULES.tables) or {}
    alike = {"_parse_type": "loads"}
    judged = {name for name in answer["wrapped"] if name not in RULES.policy.owned}

    assert {name: table[name].type for name in judged - INCOMPATIBLE.keys()} == {
        name: alike.get(kind, kind)
        for name, kind in answer["wrapped"].items()
        if name in judged - INCOMPATIBLE.keys()
    }


@pytest.mark.parametrize("option", ["tool-call-parser", "reasoning-parser"])
def test_the_parsers_that_may_be_named_are_those_that_are_registered(
    option: str, known: tuple[str, Answer]
) -> None:
    version, answer = known
    table = option_table(version, RULES.tables) or {}

    assert sorted(set(table[option].choices) - {"none"}) == answer[option]


def test_every_architecture_of_the_list_is_registered(known: tuple[str, Answer]) -> None:
    version, answer = known

    assert (
        sorted((traits(version).support.architectures or set()) - set(answer["architectures"]))
        == []
    )


COUNTED = 78
"""Names of the registry that are counted by name; more is better, and never fewer."""


def test_of_the_registry_of_text_generation_no_fewer_names_are_counted(
    known: tuple[str, Answer],
) -> None:
    version, answer = known
    generating = traits(version).support.architectures or frozenset[str]()

    assert len(generating & set(answer["architectures"]) & FAMILIES.keys()) >= COUNTED
