"""A part that nobody writes is one that says nothing, though nothing is checked to make it."""

from collections.abc import Iterator

import pytest

from shardwright.api.parts import Part, unsaid
from shardwright.api.settings import Settings
from shardwright.api.spec import Spec


def _parts(part: type[Part] = Part) -> Iterator[type[Part]]:
    for one in part.__subclasses__():
        yield one
        yield from _parts(one)


WITHOUT_DUTIES = [
    part
    for part in _parts()
    # What the command line reads of a case has duties of its own.
    if part.__module__.startswith("shardwright.api.")
    and part.__module__ != "shardwright.api.case"
    and not any(field.is_required() for field in part.model_fields.values())
]


@pytest.mark.parametrize("part", WITHOUT_DUTIES, ids=lambda part: part.__name__)
def test_a_part_that_is_unsaid_is_one_that_says_nothing(part: type[Part]) -> None:
    assert unsaid(part) == part.model_validate({})


@pytest.mark.parametrize("field", ["engine", "workload", "objective", "restart"])
def test_a_part_left_out_of_a_spec_is_the_same_as_an_empty_one(field: str) -> None:
    spec = Spec.model_validate({"model": {"id": "org/name"}})
    said = Spec.model_validate({"model": {"id": "org/name"}, field: {}})

    assert getattr(spec, field) == getattr(said, field)
    assert spec.model_dump() == said.model_dump()


def test_settings_that_say_nothing_have_the_defaults_of_all_parts() -> None:
    nothing = Settings()

    assert nothing.policy.model_dump() == type(nothing.policy)().model_dump()
    assert nothing.network_policy == type(nothing.network_policy)()
