"""Bare pods say nothing of their place; placing them puts all of it in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.provisioning import Sought
from shardwright.rendering.deployment import BarePods, Ceiling, OwnMarks
from shardwright.rendering.place import bare_pods, pod_template, pods_from, pods_hash, pods_text
from shardwright.rendering.render import render, restored
from shardwright.units import GIB
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.parts import with_parts

HERE: dict[str, Any] = {
    "generations": (3,),
    "numbers": (7,),
    "sought": (Sought(group=0, number=2, named=("other",), terms=()),),
    "secret_seed": "5eed",
    "cluster_domain": "example.org",
    "ceilings": (Ceiling(resource="memory", most_bytes=64 * GIB),),
    "marks": OwnMarks(pull_policy="Always"),
}


@pytest.mark.parametrize("name", HERE)
def test_bare_pods_are_the_same_wherever_a_group_stands(name: str) -> None:
    plan, deployment = a_plan(), a_deployment()
    there = with_parts(deployment, **{name: HERE[name]})
    assert pod_template(plan, there, 0) != pod_template(plan, deployment, 0)
    assert bare_pods(plan, there) == bare_pods(plan, deployment)
    assert pods_hash(bare_pods(plan, there)) == pods_hash(bare_pods(plan, deployment))


def test_kept_pods_are_placed_like_those_of_this_release() -> None:
    plan, deployment = a_plan(), with_parts(a_deployment(), **HERE)
    kept = with_parts(deployment, kept=bare_pods(plan, deployment))
    assert render(plan, kept) == render(plan, deployment)


def test_pods_that_a_later_release_has_kept_in_another_form_are_not_made_again() -> None:
    pods = BarePods(template={}, scripts_name="llama-scripts", scripts={})
    said = pods_text(pods)
    assert pods_from(said) == pods
    assert pods_from({**said, "later": 1}) is None
    assert pods_from({"template": {}}) is None


def changed(part: Any) -> Iterator[Any]:
    """Yield copies of a value, each with one of its parts left out or under another name."""
    if isinstance(part, Mapping):
        for name, value in part.items():
            others = {key: part[key] for key in part if key != name}
            yield from (others, {**others, f"{name}Of": value})
            yield from ({**part, name: other} for other in changed(value))
    if isinstance(part, Sequence) and not isinstance(part, str):
        for index, value in enumerate(part):
            yield [*part[:index], *part[index + 1 :]]
            yield from ([*part[:index], other, *part[index + 1 :]] for other in changed(value))


def test_pods_of_another_form_that_cannot_be_placed_give_way_to_those_of_this_release() -> None:
    plan, deployment = a_plan(), a_deployment()
    own = bare_pods(plan, deployment)
    claims = {**own.template["spec"], "resourceClaims": [{"name": "later"}]}
    refused = 0
    for template in (*changed(own.template), {**own.template, "spec": claims}):
        found = restored(replace(own, template=template), plan, plan, deployment)
        if found:
            render(plan, with_parts(deployment, kept=found))
        refused += found is None
    assert found is None
    assert refused > 10
