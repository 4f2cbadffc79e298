"""Create what is missing, repair what is ours, prune what is over, leave the rest alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.decide import Desired, decide, placed
from shardwright.reconcile.group import LOST_SECONDS
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.writes import Apply, Create, CreateKey, Delete, Why
from tests.support.builders_reconcile import (
    NOON,
    OWNER_UID,
    World,
    desired,
    pod,
    rendered,
    service,
    stateful_set,
)


def with_owner(content: dict[str, Any], uid: str | None) -> dict[str, Any]:
    owners = [{"kind": "Other", "name": "other", "uid": uid, "controller": True}] if uid else []
    return {
        **content,
        "metadata": {**content["metadata"], "ownerReferences": owners, "uid": "foreign"},
    }


def test_everything_is_created_in_the_order_of_rendering() -> None:
    writes = decide(desired(service(), stateful_set()), Observed(objects={}), NOON).writes
    assert writes == (Create(content=service()), Create(content=stateful_set()))


def test_a_drifted_object_is_applied_with_its_uid_and_says_why() -> None:
    world = World()
    world.run(desired(service()))
    world.objects["Service", "llama"]["spec"]["ports"][0]["port"] = 9
    (write,) = decide(desired(service()), world.observed(), NOON).writes
    assert write == Apply(
        content=service(), uid="uid-1", why=Why.DRIFT, fields=("spec.ports[0].port",)
    )


def test_an_owned_object_that_is_no_longer_wanted_is_deleted() -> None:
    world = World()
    world.run(desired(service(), service("old")))
    (write,) = decide(desired(service()), world.observed(), NOON).writes
    assert write == Delete(kind="Service", namespace="models", name="old", uid="uid-2")


def test_an_object_with_our_label_and_another_owner_is_not_deleted() -> None:
    for uid in ("somebody", None):
        observed = Observed(objects={("Service", "theirs"): with_owner(service("theirs"), uid)})
        assert decide(desired(), observed, NOON).writes == ()


def test_a_foreign_object_in_our_place_keeps_no_broken_group_down() -> None:
    world, wanted = World(), desired(service(), stateful_set(), stateful_set("llama-1"))
    world.run(wanted)
    world.objects["Service", "llama"] = with_owner(service(), None)
    world.crash("llama-1-1")
    for _ in range(4):
        world.write(decide(wanted, world.observed(), NOON).writes)
        world.settle()

    decision = decide(wanted, world.observed(), NOON)
    assert [conflict.what for conflict in decision.conflicts] == ["Service llama"]
    assert decision.writes == ()
    assert [(group.ready, group.restarts) for group in decision.groups] == [(True, 0), (True, 1)]


def test_a_foreign_object_in_our_place_stops_every_other_write() -> None:
    observed = Observed(objects={("Service", "llama"): with_owner(service(), None)})
    decision = decide(desired(rendered("ConfigMap", "llama-scripts"), service()), observed, NOON)
    assert decision.writes == ()
    assert decision.conflicts == (
        Problem(
            code="NameConflict",
            path="metadata.name",
            what="Service llama",
            limit="is needed for this model",
            gap="but exists and is controlled by nobody",
            remedy="give the operator the key that signed it back, and the plan of record beside it; "
            "else delete or rename it, or give the ShardedModel another name",
        ),
    )


def test_an_object_of_an_earlier_resource_of_the_same_name_is_foreign() -> None:
    observed = Observed(
        objects={("Service", "llama"): with_owner(service(), "uid-of-the-earlier-one")}
    )
    assert decide(desired(service()), observed, NOON).conflicts[0].code == "NameConflict"


def test_an_object_that_is_being_deleted_is_neither_repaired_nor_deleted_again() -> None:
    world = World()
    world.run(desired(service(), service("old")))
    for live in world.objects.values():
        live["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    world.objects["Service", "llama"]["spec"]["ports"] = []
    assert decide(desired(service()), world.observed(), NOON).writes == ()


def test_one_object_is_placed_only_where_nobody_else_is() -> None:
    assert placed(service(), OWNER_UID, Observed(objects={})) == (Create(content=service()),)
    theirs = Observed(objects={("Service", "llama"): with_owner(service(), "somebody")})
    assert placed(service(), OWNER_UID, theirs) == ()


def test_what_an_earlier_resource_of_our_name_left_is_no_conflict_but_is_waited_for() -> None:
    left = rendered("Service", "llama", spec={})
    left["metadata"]["uid"] = "old"
    left["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-earlier-one"
    decision = decide(desired(service()), Observed(objects={("Service", "llama"): left}), NOON)
    assert (decision.writes, decision.conflicts, decision.leftovers) == ((), (), ("Service llama",))


def test_a_conflict_beside_leftovers_is_still_a_conflict() -> None:
    left = rendered("Service", "llama", spec={})
    left["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-earlier-one"
    observed = Observed(
        objects={
            ("Service", "llama"): left,
            ("ConfigMap", "c"): with_owner(rendered("ConfigMap", "c"), None),
        }
    )
    decision = decide(desired(service(), rendered("ConfigMap", "c")), observed, NOON)
    assert [conflict.what for conflict in decision.conflicts] == ["ConfigMap c"]


def test_a_key_is_created_before_the_pods_that_need_it_and_never_again_while_they_stand() -> None:
    wanted = replace(desired(service(), stateful_set()), keys=(rendered("Secret", "llama-ssh"),))
    world = World()
    first = decide(wanted, world.observed(), NOON).writes
    assert first == (
        Create(content=service()),
        CreateKey(content=rendered("Secret", "llama-ssh")),
        Create(content=stateful_set(), needs=frozenset({("Secret", "llama-ssh")})),
    )

    world.run(wanted)
    assert decide(wanted, world.observed(), NOON).writes == ()

    changed = replace(wanted, objects=(service(), stateful_set(revision="r2")))
    writes = decide(changed, world.observed(), NOON).writes
    assert [type(write) for write in writes] == [CreateKey, Apply]


def with_scripts(revision: str, group: str = "llama-0") -> Desired:
    """Return a group whose pods of this revision mount scripts of this revision."""
    scripts = f"llama-scripts-{revision}"
    group_set = stateful_set(group, revision=revision, scripts=scripts)
    return desired(rendered("ConfigMap", scripts, data={"launch.sh": revision}), group_set)


def test_scripts_stay_while_a_stateful_set_or_a_pod_mounts_them_and_go_then() -> None:
    world = World()
    world.run(with_scripts("r1"))
    kept = []
    while writes := decide(with_scripts("r2"), world.observed(), NOON).writes:
        world.write(writes)
        world.write(
            decide(with_scripts("r2"), world.observed(), NOON).writes
        )  # before any pod has ended or begun
        kept.append(sorted(name for kind, name in world.objects if kind == "ConfigMap"))
        world.settle()

    both, new = ["llama-scripts-r1", "llama-scripts-r2"], ["llama-scripts-r2"]
    assert kept == [both, new, new]  # to zero, started, noted as ready


def test_scripts_stay_for_the_pods_that_a_former_generation_makes_again() -> None:
    world = World()
    world.run(with_scripts("r1"))
    world.write(decide(with_scripts("r2", "llama-0-g1"), world.observed(), NOON).writes)
    world.pods.clear()  # evicted: their StatefulSet replaces them

    assert decide(with_scripts("r2", "llama-0-g1"), world.observed(), NOON).writes == ()


BESIDE = {
    "a PodGroup": ("PodGroup", "llama-0-2", {"schedulingGroup": {"podGroupName": "llama-0-2"}}),
    "a template of claims": (
        "ResourceClaimTemplate",
        "llama-0-gpus-1",
        {"resourceClaims": [{"resourceClaimTemplateName": "llama-0-gpus-1"}]},
    ),
    "a ComputeDomain, by its channel": (
        "ComputeDomain",
        "llama-0",
        {"resourceClaims": [{"resourceClaimTemplateName": "llama-0-channel"}]},
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_what_the_pods_of_a_standing_template_are_placed_by_stays_also_without_pods(
    case: str,
) -> None:
    """Or a group that keeps its template over a release could never come back."""
    kind, name, spec = BESIDE[case]
    beside = rendered(kind, name)
    beside["metadata"]["labels"]["shardwright.io/group"] = "llama-0"
    standing = stateful_set("llama-0")
    standing["spec"]["template"]["spec"] |= spec
    world = World()
    world.run(desired(beside, standing))
    former = desired(stateful_set("llama-0-g1"))
    world.write(decide(former, world.observed(), NOON).writes)
    world.pods.clear()  # evicted: their StatefulSet replaces them

    assert decide(former, world.observed(), NOON).writes == ()

    del world.objects["StatefulSet", "llama-0"]
    assert [type(write) for write in decide(former, world.observed(), NOON).writes] == [Delete]


def test_a_pod_that_nobody_can_end_keeps_no_scripts_for_ever() -> None:
    world = World()
    world.run(with_scripts("r1"))
    world.run(with_scripts("r2"))
    left = pod("llama-0-7", revision="r1")
    left["spec"]["volumes"] = [{"name": "scripts", "configMap": {"name": "llama-scripts-r1"}}]
    left["metadata"]["deletionTimestamp"] = NOON.isoformat()
    world.put(left)
    world.objects["ConfigMap", "llama-scripts-r1"] = {
        **world.objects["ConfigMap", "llama-scripts-r2"]
    }
    world.objects["ConfigMap", "llama-scripts-r1"]["metadata"] = rendered(
        "ConfigMap", "llama-scripts-r1"
    )["metadata"] | {"uid": "u"}

    pruned = [
        [
            write
            for write in decide(with_scripts("r2"), world.observed(), now).writes
            if isinstance(write, Delete)
        ]
        for now in (NOON, NOON + timedelta(seconds=LOST_SECONDS))
    ]

    assert pruned == [
        [],
        [Delete(kind="ConfigMap", namespace="models", name="llama-scripts-r1", uid="u")],
    ]
