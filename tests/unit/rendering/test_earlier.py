"""Pods of an earlier release are those of this one with the fields that it had."""

from typing import Any

import pytest

from shardwright.rendering.earlier import ClashError, MadePods, merged
from shardwright.rendering.made import pods_from, pods_text


@pytest.mark.parametrize(
    ("base", "changed", "other", "found"),
    [
        (1, 1, 2, 2),
        (1, 2, 1, 2),
        (1, 2, 2, 2),
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"a": 1, "b": 2}, {"a": 1}, {"a": 3, "b": 2}, {"a": 3}),
        ({"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 1}, {"a": 3}),
        (
            [{"name": "x", "value": "1"}, {"name": "y", "value": "1"}],
            [{"name": "z", "value": "1"}, {"name": "x", "value": "2"}],
            [{"name": "x", "value": "1"}, {"name": "y", "value": "1"}, {"name": "w"}],
            [{"name": "z", "value": "1"}, {"name": "x", "value": "2"}, {"name": "w"}],
        ),
        (
            [
                {"name": "cache", "mountPath": "/a"},
                {"name": "cache", "mountPath": "/b"},
            ],
            [{"name": "cache", "mountPath": "/a"}],
            [
                {"name": "cache", "mountPath": "/a", "readOnly": True},
                {"name": "cache", "mountPath": "/b"},
            ],
            [{"name": "cache", "mountPath": "/a", "readOnly": True}],
        ),
    ],
    ids=[
        "what the other has changed",
        "what the one has changed",
        "the same change",
        "fields that came",
        "a field that the one has not",
        "a field that the other has not",
        "entries of a list by name",
        "entries of a list by place",
    ],
)
def test_changes_of_both_are_kept(
    base: Any, changed: Any, other: Any, found: Any
) -> None:
    assert merged(base, changed, other) == found


@pytest.mark.parametrize(
    ("base", "changed", "other"),
    [
        (1, 2, 3),
        ({"a": 1}, {"a": 2}, {}),
        (["--x", "1"], ["--x", "2"], ["--x", "1", "--y"]),
        ([{"name": "x", "value": "1"}], [{"name": "x", "value": "2"}], [{"name": "x"}]),
    ],
    ids=["a value", "a field that is gone", "arguments", "a variable"],
)
def test_what_both_have_changed_otherwise_cannot_be_told(
    base: Any, changed: Any, other: Any
) -> None:
    with pytest.raises(ClashError):
        merged(base, changed, other)


def test_pods_that_a_later_release_has_kept_in_another_form_are_not_made_again() -> (
    None
):
    pods = MadePods(template={}, scripts_name="llama-scripts", scripts={})
    said = pods_text(pods)
    assert pods_from(said) == pods
    assert pods_from({**said, "later": 1}) is None
    assert pods_from({"template": {}}) is None
