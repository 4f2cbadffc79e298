"""What an apply would take from an object is what the API server has down as ours."""

from __future__ import annotations

from typing import Any

import pytest

from shardwright.cli.changed_values import removed_fields

OURS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:ours": {}}},
    "f:spec": {
        "f:dnsPolicy": {},
        "f:env": {".": {}, 'k:{"name":"OURS"}': {".": {}, "f:name": {}, "f:value": {}}},
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
        ({"dnsPolicy": "ClusterFirst"}, {"dnsPolicy": "ClusterFirst"}, ()),
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
    wanted = {"metadata": {"labels": {"other": "yes"}}}

    assert removed_fields(wanted, live()) == ("metadata.labels.ours",)


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


def test_what_somebody_else_owns_too_stays() -> None:
    label: dict[str, Any] = {"f:metadata": {"f:labels": {"f:team": {}}}}
    affinity: dict[str, Any] = {"f:nodeAffinity": {"f:required": {}}, "f:podAffinity": {"f:a": {}}}
    content = owned(
        {**label, "f:spec": {"f:affinity": affinity}},
        {**label, "f:spec": {"f:affinity": {"f:nodeAffinity": {}}}},
        metadata={"labels": {"team": "a"}},
        spec={"affinity": {"nodeAffinity": {"required": [1]}, "podAffinity": {"a": [1]}}},
    )

    assert removed_fields({}, content) == ("spec.affinity.podAffinity",)


def test_of_a_port_only_what_we_have_written_is_ours() -> None:
    sign = 'k:{"port":80,"protocol":"TCP"}'
    fields: dict[str, Any] = {".": {}, "f:port": {}, "f:name": {}}
    port = {"port": 80, "protocol": "TCP"}
    theirs: dict[str, Any] = {"f:spec": {"f:ports": {sign: {"f:appProtocol": {}}}}}
    content = owned(
        {"f:spec": {"f:ports": {".": {}, sign: fields}}},
        theirs,
        spec={"ports": [{**port, "name": "http", "appProtocol": "http"}]},
    )

    assert removed_fields({"spec": {"ports": [port]}}, content) == ("spec.ports[80].name",)


def test_a_label_is_a_label_whatever_field_has_its_name() -> None:
    labels = {"dnsPolicy": "a", "env": "b", "status": "c"}
    signs: dict[str, Any] = {f"f:{name}": {} for name in labels}
    content = owned({"f:metadata": {"f:labels": signs}}, metadata={"labels": labels})

    assert removed_fields({"metadata": {"labels": {"env": "b"}}}, content) == (
        "metadata.labels.dnsPolicy",
        "metadata.labels.status",
    )


@pytest.mark.parametrize("fields", [{}, {"f:spec": {"f:imagePullSecrets": {}}}])
def test_an_item_of_a_keyed_list_may_have_no_key(fields: dict[str, Any]) -> None:
    secrets = [{}, {"name": "ours"}]
    wanted = {"spec": {"imagePullSecrets": [{"name": "other"}]}}
    content = owned(fields, spec={"imagePullSecrets": secrets})

    assert removed_fields(wanted, content) == ("spec.imagePullSecrets[ours]",)


@pytest.mark.parametrize(
    "ours",
    [
        {"f:spec": 7},
        {"f:spec": {"f:env": "all"}},
        {"f:spec": {"f:env": {"k:7": {}, "k:{": {}, "k:{}": {}, "f:name": {}}}},
    ],
)
@pytest.mark.parametrize("theirs", [None, {"f:spec": 7}])
def test_owned_fields_that_are_no_mapping_end_nothing(
    ours: dict[str, Any], theirs: dict[str, Any] | None
) -> None:
    spec = {"env": ENV}

    assert removed_fields({"spec": spec}, owned(ours, theirs, spec=spec)) == ()
