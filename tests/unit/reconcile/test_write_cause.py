"""What a write follows from, and who has changed what we wrote."""

from typing import Any

import pytest

from shardwright.reconcile.write_cause import Origin, WriteCause, changed_by, is_undone
from shardwright.reconcile.writes import Apply, Patch, Why
from shardwright.rendering.bundle import CONTENT_HASH
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import TWO_NODES, Operator
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

OURS = "shardwright"


def an_object(rendered: str, *entries: dict[str, Any]) -> dict[str, Any]:
    annotations = {CONTENT_HASH: rendered} if rendered else {}
    return {"metadata": {"annotations": annotations, "managedFields": list(entries)}}


def entry(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": fields, "time": "2026-01-02T12:00:00Z"} | more


@pytest.mark.parametrize(
    ("live", "fields", "undone"),
    [
        ("a", ["spec.minAvailable"], True),
        ("before", ["spec.minAvailable"], False),
        ("", ["metadata.annotations.shardwright.io/content-hash", "spec.minAvailable"], True),
        ("a", ["metadata.annotations.shardwright.io/incident"], False),
    ],
    ids=["edited", "rendered anew", "replaced without our annotation", "our own memory"],
)
def test_only_a_field_that_we_would_write_as_we_wrote_it_last_was_changed_by_somebody_else(
    live: str, fields: list[str], *, undone: bool
) -> None:
    assert is_undone(an_object("a"), an_object(live), fields) is undone


ENV: dict[str, Any] = {
    "f:spec": {
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"engine"}': {
                        "f:env": {'k:{"name":"NCCL_DEBUG"}': {"f:value": {}}},
                        "f:image": {},
                    }
                }
            }
        }
    }
}
PORTS: dict[str, Any] = {
    "f:spec": {"f:ports": {'k:{"port":9,"protocol":"TCP"}': {".": {}, "f:port": {}}}}
}
ANNOTATION: dict[str, Any] = {
    "f:metadata": {"f:annotations": {"f:shardwright.io/content-hash": {}}}
}
SELECTOR: dict[str, Any] = {"f:spec": {"f:selector": {}}}


@pytest.mark.parametrize(
    ("fields", "path", "owns"),
    [
        (ENV, "spec.template.spec.containers[engine].env[NCCL_DEBUG].value", True),
        (ENV, "spec.template.spec.containers[engine].env[OTHER].value", False),
        (ENV, "spec.template.spec.containers[sidecar].image", False),
        (ENV, "spec.template.spec.containers", True),
        (ENV, "spec.templates", False),
        (PORTS, "spec.ports[0].port", True),
        (ANNOTATION, "metadata.annotations.shardwright.io/content-hash", True),
        (ANNOTATION, "metadata.annotations.shardwright.io/content", False),
        (SELECTOR, "spec.selector.matchLabels.a", True),
        ({"f:spec": {"f:ports": {"k:{": {}}}}, "spec.ports[http].port", False),
    ],
)
def test_the_owner_of_a_field_is_who_wrote_it(
    fields: dict[str, Any], path: str, *, owns: bool
) -> None:
    live = an_object("a", entry(OURS, fields), entry("kubectl-edit", fields))
    assert changed_by(live, [path], OURS) == ("kubectl-edit" if owns else "")


def test_of_several_owners_the_last_is_named_and_neither_we_nor_a_status_are() -> None:
    field: dict[str, Any] = {"f:spec": {"f:minAvailable": {}}}
    live = an_object(
        "a",
        entry("helm", field, time="2026-01-02T12:00:01Z"),
        entry("argocd", field, time="2026-01-02T12:00:02Z"),
        entry("kube-controller-manager", field, time="2026-01-02T12:00:03Z", subresource="status"),
        entry(OURS, field, time="2026-01-02T12:00:04Z"),
    )
    assert changed_by(live, ["spec.minAvailable"], OURS) == "argocd"
    assert changed_by(an_object("a"), ["spec.minAvailable"], OURS) == ""


def test_a_cause_is_said_in_a_line() -> None:
    assert str(WriteCause(Origin.UNDONE, "spec.minAvailable", "argocd")) == (
        "Undone: spec.minAvailable, by argocd"
    )
    assert str(WriteCause(Origin.FAILURE, "rank 1: Error, exit code 139")) == (
        "Failure: rank 1: Error, exit code 139"
    )


def serving() -> Operator:
    """Return an operator with one group of two nodes that serves, and whose work is done."""
    cluster = SmallCluster()
    cluster.add_nodes(3)
    operator = Operator(cluster, TWO_NODES | {"replicas": 1})
    operator.run(LOAD_SECONDS + 60)
    operator.written.clear()
    return operator


def causes(operator: Operator, why: Why) -> list[WriteCause]:
    return [
        write.cause
        for write in operator.written
        if isinstance(write, Apply | Patch) and write.why is why
    ]


def test_a_group_that_is_changed_failed_taken_or_started_says_from_what_it_follows() -> None:
    operator = serving()
    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "WARN"}]})
    operator.run(60)
    (rolled,) = causes(operator, Why.ROLLOUT)
    assert rolled.origin is Origin.WISH
    assert "template.spec.containers[engine].env[NCCL_DEBUG]" in rolled.what
    assert [cause.origin for cause in causes(operator, Why.START)] == [Origin.WAIT]

    operator = serving()
    status = crashed("llama-0-1")["status"]["containerStatuses"]
    operator.cluster.pods["llama-0-1"]["status"] |= {"containerStatuses": status}
    operator.cluster.version += 1
    operator.run(10)
    assert causes(operator, Why.FAILURE) == [
        WriteCause(Origin.FAILURE, "rank 1: Error, exit code 1")
    ]

    operator = serving()
    operator.cluster.end(operator.cluster.pods["llama-0-1"], taken_by="EvictionByEvictionAPI")
    operator.run(10)
    assert causes(operator, Why.FAILURE) == [
        WriteCause(Origin.WORLD, "rank 1: EvictionByEvictionAPI")
    ]

    operator = serving()
    operator.cluster.sets()["llama-0"]["spec"]["replicas"] = 1
    operator.reconcile()
    assert causes(operator, Why.DRIFT) == [WriteCause(Origin.UNDONE, "spec.replicas")]
