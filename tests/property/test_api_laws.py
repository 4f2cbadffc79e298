"""Laws of the wire contract: nothing crashes, nothing is lost, verdicts come as values."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright.api.conditions import Condition, ConditionType, set_condition
from shardwright.api.manifest import read_manifests
from shardwright.api.resource import ShardedModel, parse_manifest, read_stored
from shardwright.errors import InputError, Problem
from tests.support.builders_resource import Manifest, a_sharded_model, complete_specs
from tests.support.schema_cases import Steps, fields, value_at, with_value

START = datetime(2026, 1, 1, tzinfo=UTC)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = st.sampled_from([steps for steps, _ in fields() if steps])


@given(where=PATHS, value=ANYTHING)
def test_any_value_anywhere_is_taken_or_refused_with_a_path(where: Steps, value: Any) -> None:
    spec = next(spec for spec in complete_specs() if _has(spec, where))

    resource, problems = outcome(a_sharded_model() | {"spec": with_value(spec, where, value)})

    assert all(
        problem.path.startswith("spec") and problem.sentence().isprintable() for problem in problems
    )
    if resource is not None:
        again = resource.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert parse_manifest(a_sharded_model() | {"spec": again}).spec == resource.spec


@given(value=ANYTHING)
def test_any_object_is_taken_or_refused(value: Any) -> None:
    manifest = value if isinstance(value, dict) else {"spec": value}

    resource, problems = outcome(manifest)

    assert (resource is None) == bool(problems)


@given(where=PATHS, name=st.text(min_size=1, max_size=8), value=ANYTHING)
def test_an_unknown_field_never_changes_what_a_stored_object_means(
    where: Steps, name: str, value: Any
) -> None:
    spec = next(spec for spec in complete_specs() if _has(spec, where))
    parent = value_at(spec, where)
    if (
        not isinstance(parent, dict)
        or name in parent
        or where[-1] in ("config", "args", "nodeSelector")
    ):
        return

    changed = with_value(spec, (*where, f"{name}?"), value)

    assert (
        read_stored(a_sharded_model() | {"spec": changed}).spec
        == parse_manifest(a_sharded_model() | {"spec": spec}).spec
    )


@given(value=st.dictionaries(st.text(max_size=8), ANYTHING, min_size=1, max_size=4))
def test_json_is_read_back_as_it_was_written(value: dict[str, Any]) -> None:
    if str(value.get("kind", "")).endswith("List"):
        return

    assert read_manifests(json.dumps(value)) == [value]


@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_manifests(text)
    except InputError as error:
        codes = {problem.code for problem in error.problems}
    else:
        codes = set()

    assert codes <= {"ManifestUnreadable"}


@given(statuses=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=12))
def test_the_time_of_transition_moves_exactly_when_the_status_does(
    statuses: list[bool | None],
) -> None:
    conditions: tuple[Any, ...] = ()
    last: tuple[Any, Any] | None = None
    for minute, status in enumerate(statuses):
        new = Condition(
            type=ConditionType.READY, status=status, reason="Serving", message=str(minute)
        )
        conditions = set_condition(conditions, new, now=START + timedelta(minutes=minute))
        (item,) = conditions
        if last is not None:
            assert (item["status"] == last[0]) == (item["lastTransitionTime"] == last[1])
        last = (item["status"], item["lastTransitionTime"])


def outcome(manifest: Manifest) -> tuple[ShardedModel | None, tuple[Problem, ...]]:
    try:
        return parse_manifest(manifest), ()
    except InputError as error:
        return None, error.problems


def _has(spec: Manifest, steps: Steps) -> bool:
    try:
        value_at(spec, steps)
    except (KeyError, IndexError):
        return False
    return True
