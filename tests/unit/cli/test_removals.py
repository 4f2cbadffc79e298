"""What an apply would take from an object is what the API server has down as ours."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.cli.removals import removed_fields

OURS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:ours": {}}},
    "f:spec": {
        "f:dnsPolicy": {},
        "f:env": {
            ".": {},
            'k:{"name":"OURS"}': {".": {}, "f:name": {}, "f:value": {}},
        },
        "f:tolerations": {},
    },
}


def live(**spec: Any) -> dict[str, Any]:
    others: dict[str, Any] = {"f:spec": {"f:env": {'k:{"name":"THEIRS"}': {".": {}}}}}
    managed = [
        {"manager": "shardwright", "operation": "Update", "fieldsV1": OURS},
        {
            "manager": "shardwright",
            "operation": "Update",
            "subresource": "status",
            "fieldsV1": {"f:status": {}},
        },
        {"manager": "kubectl", "operation": "Update", "fieldsV1": others},
    ]
    labels = {"ours": "yes", "theirs": "yes"}
    return {
        "metadata": {"uid": "1", "labels": labels, "managedFields": managed},
        "spec": spec,
        "status": {"replicas": 1},
    }


ENV = [{"name": "OURS", "value": "1"}, {"name": "THEIRS", "value": "2"}]


@pytest.mark.parametrize(
    ("spec", "rendered", "removed"),
    [
        ({"env": ENV}, {"env": []}, ("spec.env[OURS]",)),
        ({"env": ENV}, {}, ("spec.env[OURS]",)),
        ({"env": ENV}, {"env": [{"name": "OURS"}]}, ("spec.env[OURS].value",)),
        ({"dnsPolicy": "ClusterFirst"}, {}, ()),
        ({"tolerations": [{"key": "a"}]}, {}, ("spec.tolerations",)),
        (
            {"tolerations": [{"key": "a", "effect": "NoSchedule"}]},
            {"tolerations": [{"key": "a"}]},
            ("spec.tolerations[0].effect",),
        ),
        ({"paused": True}, {}, ()),
    ],
)
def test_what_is_ours_and_rendered_no_more_is_removed(
    spec: dict[str, Any], rendered: dict[str, Any], removed: tuple[str, ...]
) -> None:
    wanted = {"metadata": {"labels": {"ours": "yes"}}, "spec": rendered}

    assert removed_fields(wanted, live(**spec)) == removed


def test_a_label_of_ours_is_removed_and_one_of_somebody_else_stays() -> None:
    assert removed_fields({"metadata": {}}, live()) == ("metadata.labels.ours",)


def owned(
    ours: dict[str, Any], theirs: dict[str, Any] | None = None, **content: Any
) -> dict[str, Any]:
    """Return an object with fields that we own, and that kubectl owns."""
    managed = [
        {"manager": manager, "operation": "Update", "fieldsV1": fields}
        for manager, fields in (("shardwright", ours), ("kubectl", theirs))
        if fields
    ]
    metadata = {**content.pop("metadata", {}), "managedFields": managed}
    return {**content, "metadata": metadata}


def test_a_label_or_selector_named_like_a_field_of_the_api_is_removed_as_any() -> None:
    words = {"env": "prod", "type": "a", "kind": "b"}
    content = owned(
        {
            "f:metadata": {"f:labels": {f"f:{name}": {} for name in words}},
            "f:spec": {"f:nodeSelector": {".": {}, "f:type": {}}},
            "f:data": {"f:status": {}},
        },
        metadata={"labels": words},
        spec={"nodeSelector": {"type": "big"}},
        data={"status": "x"},
    )

    assert set(removed_fields({"spec": {}}, content)) == {
        "metadata.labels.env",
        "metadata.labels.type",
        "metadata.labels.kind",
        "spec.nodeSelector.type",
        "data.status",
    }


def test_what_somebody_else_owns_too_stays() -> None:
    label: dict[str, Any] = {"f:metadata": {"f:labels": {"f:team": {}}}}
    affinity: dict[str, Any] = {
        "f:nodeAffinity": {"f:required": {}},
        "f:podAffinity": {"f:a": {}},
    }
    content = owned(
        {**label, "f:spec": {"f:affinity": affinity}},
        {**label, "f:spec": {"f:affinity": {"f:nodeAffinity": {}}}},
        metadata={"labels": {"team": "a"}},
        spec={
            "affinity": {"nodeAffinity": {"required": [1]}, "podAffinity": {"a": [1]}}
        },
    )

    assert removed_fields({}, content) == ("spec.affinity.podAffinity",)


def test_a_default_of_the_server_stays_also_where_somebody_else_owns_part_of_it() -> (
    None
):
    strategy: dict[str, Any] = {
        "f:updateStrategy": {"f:rollingUpdate": {"f:partition": {}}}
    }
    content = owned(
        {"f:spec": strategy},
        {"f:spec": {"f:updateStrategy": {"f:type": {}}}},
        spec={
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"partition": 1},
            }
        },
    )

    assert removed_fields({"spec": {}}, content) == ()


def test_of_a_port_only_what_we_have_written_is_ours() -> None:
    sign = 'k:{"port":80,"protocol":"TCP"}'
    fields: dict[str, Any] = {".": {}, "f:port": {}, "f:name": {}}
    port = {"port": 80, "protocol": "TCP", "nodePort": 30080, "name": "http"}
    theirs: dict[str, Any] = {"f:spec": {"f:ports": {sign: {"f:appProtocol": {}}}}}
    content = owned(
        {"f:spec": {"f:ports": {".": {}, sign: fields}}},
        theirs,
        spec={"ports": [{**port, "appProtocol": "http"}]},
    )

    wanted = {"spec": {"ports": [{"port": 80}]}}
    assert removed_fields(wanted, content) == ("spec.ports[0].name",)
    assert removed_fields(wanted, {"spec": {"ports": [port]}}) == (
        "spec.ports[0].name",
    )


def test_an_item_without_its_key_is_compared_by_its_place() -> None:
    live = {"spec": {"env": [{"value": "1", "more": "2"}]}}

    assert removed_fields({"spec": {"env": [{"value": "1"}]}}, live) == (
        "spec.env[0].more",
    )
