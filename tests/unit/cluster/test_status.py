"""Status patches: only what differs, and what is gone is removed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.reports import merge_patch

objects = st.recursive(
    st.dictionaries(
        st.sampled_from("abc"),
        st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2),
        max_size=3,
    ),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.integers(0, 2), max_size=3),
    max_leaves=6,
)


def merged(target: object, patch: object) -> object:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@given(objects, objects)
def test_a_merge_patch_turns_the_status_before_into_the_one_after(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert merged(before, merge_patch(before, after)) == after


@given(objects)
def test_nothing_to_change_is_an_empty_patch(value: dict[str, Any]) -> None:
    assert merge_patch(value, value) == {}
