"""Which differences between what was rendered and what is live count."""

from typing import Any

import pytest

from shardwright.reconcile.drift import drifted_fields


@pytest.mark.parametrize(
    ("rendered", "live"),
    [
        pytest.param({"a": 1}, {"a": 1, "added": 2}, id="a field beside ours"),
        pytest.param({"env": []}, {}, id="an empty list is left out by the server"),
        pytest.param(
            {"readOnly": False, "value": ""}, {}, id="a zero value is left out by the server"
        ),
        pytest.param({"emptyDir": {}}, {"emptyDir": {}}, id="an empty object that means something"),
        pytest.param(
            {"limits": {"memory": "1024Mi"}},
            {"limits": {"memory": "1Gi"}},
            id="one quantity, two spellings",
        ),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 8}},
            {"limits": {"nvidia.com/gpu": "8"}},
            id="a number as quantity",
        ),
        pytest.param({"limits": {"cpu": "1500m"}}, {"limits": {"cpu": "1.5"}}, id="milli"),
        pytest.param({"limits": {"cpu": "0.0005"}}, {"limits": {"cpu": "500u"}}, id="micro"),
        pytest.param({"sizeLimit": "1k"}, {"sizeLimit": "1000"}, id="decimal kilo"),
        pytest.param(
            {"env": [{"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            id="a keyed entry that somebody added",
        ),
        pytest.param(
            {"ports": [{"port": 80}]},
            {"ports": [{"port": 80, "protocol": "TCP"}]},
            id="a default inside a list entry",
        ),
    ],
)
def test_fields_beside_ours_and_the_servers_spellings_are_no_drift(
    rendered: Any, live: Any
) -> None:
    assert drifted_fields(rendered, live) == ()


@pytest.mark.parametrize(
    ("rendered", "live", "paths"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, ("a.b",), id="a changed value"),
        pytest.param({"a": {"b": 1}}, {}, ("a",), id="a field that is gone"),
        pytest.param({"a": {"b": 1}}, {"a": 5}, ("a",), id="another type"),
        pytest.param({"value": "x"}, {"value": ""}, ("value",), id="a value that was emptied"),
        pytest.param({"replicas": 0}, {"replicas": 2}, ("replicas",), id="zero is not anything"),
        pytest.param(
            {"command": ["a"]}, {"command": ["a", "b"]}, ("command",), id="a longer command"
        ),
        pytest.param(
            {"command": ["a", "b"]},
            {"command": ["b", "a"]},
            ("command[0]", "command[1]"),
            id="another order",
        ),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": []},
            ("env[A]",),
            id="a keyed entry gone",
        ),
        pytest.param(
            {"limits": {"memory": "1Gi"}},
            {"limits": {"memory": "2Gi"}},
            ("limits.memory",),
            id="another quantity",
        ),
        pytest.param(
            {"image": "1Gi"},
            {"image": "1024Mi"},
            ("image",),
            id="no quantity although it looks like one",
        ),
        pytest.param({"optional": True}, {}, ("optional",), id="a switch that is gone"),
    ],
)
def test_a_value_that_is_changed_or_gone_is_drift_at_its_path(
    rendered: Any, live: Any, paths: tuple[str, ...]
) -> None:
    assert drifted_fields(rendered, live) == paths
