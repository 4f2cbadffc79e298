"""What claims, volumes and storage classes say of where pods can run."""

from collections.abc import Sequence
from typing import Any

import pytest

from shardwright.hardware.volume_claims import Sharing, VolumeClaim, read_claims
from shardwright.units import GIB
from tests.support.builders_nodes import a_node, inventory_of

HOST = "kubernetes.io/hostname"


def a_claim(modes: Sequence[str] = ("ReadWriteMany",), **spec: Any) -> dict[str, Any]:
    asked = {"accessModes": list(modes), "resources": {"requests": {"storage": "100Gi"}}}
    return {"metadata": {"name": "hub", "namespace": "team"}, "spec": {**asked, **spec}}


def a_volume(name: str, *hosts: str, **spec: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(hosts)}]}
    local = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if hosts else {}
    return {"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Ti"}, **local, **spec}}


def a_class(name: str = "local", *, default: bool = False, **more: Any) -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}, **more}


def read(
    claim: dict[str, Any], volumes: Sequence[Any] = (), classes: Sequence[Any] = ()
) -> VolumeClaim:
    return read_claims([claim], volumes, classes)["team", "hub"]


def reached(claim: VolumeClaim, *hosts: str) -> list[str]:
    return [host for host in hosts if claim.reached_from(host, {HOST: host})]


@pytest.mark.parametrize(
    ("modes", "sharing"),
    [
        (("ReadWriteOnce",), Sharing.NODE),
        (("ReadWriteOncePod",), Sharing.POD),
        (("ReadOnlyMany",), Sharing.EVERYWHERE),
        (("ReadWriteOnce", "ReadWriteMany"), Sharing.EVERYWHERE),
    ],
)
def test_the_widest_access_mode_says_who_may_mount_a_claim(
    modes: Sequence[str], sharing: Sharing
) -> None:
    assert read(a_claim(modes)).sharing is sharing


def test_a_bound_claim_is_as_large_as_its_volume_and_reached_from_its_nodes() -> None:
    claim = a_claim(volumeName="pv") | {"status": {"capacity": {"storage": "1Ti"}}}
    found = read(claim, [a_volume("pv", "a", "b"), a_volume("other", "c")])

    assert (found.size_bytes, found.bindable) == (1024 * GIB, True)
    assert reached(found, "a", "b", "c") == ["a", "b"]


STATIC = "kubernetes.io/no-provisioner"
ZONES = [{"matchLabelExpressions": [{"key": HOST, "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("spec", "volumes", "classes", "nodes"),
    [
        ({"storageClassName": "local"}, (), (a_class(provisioner="x.csi"),), "abc"),
        (
            {"storageClassName": "local"},
            (),
            (a_class(provisioner="x.csi", allowedTopologies=ZONES),),
            "a",
        ),
        (
            {"storageClassName": "local"},
            (
                a_volume("1", "a", storageClassName="local"),
                a_volume("2", "b", storageClassName="local", claimRef={"name": "taken"}),
                a_volume("3", "c", storageClassName="local", capacity={"storage": "1Gi"}),
            ),
            (a_class(provisioner=STATIC),),
            "a",
        ),
        ({}, (), (a_class(default=True, provisioner="x.csi"),), "abc"),
        ({"storageClassName": ""}, (a_volume("1"),), (), "abc"),
        ({"storageClassName": "unknown to the file"}, (), (), "abc"),
        ({}, (), (), "abc"),
    ],
)
def test_a_claim_that_waits_for_its_first_pod_is_reached_from_where_a_volume_may_be(
    spec: dict[str, Any], volumes: Sequence[Any], classes: Sequence[Any], nodes: str
) -> None:
    found = read(a_claim(**spec), volumes, classes)

    assert found.bindable
    assert reached(found, *"abc") == list(nodes)


@pytest.mark.parametrize(
    ("spec", "classes"),
    [
        ({"storageClassName": ""}, ()),
        ({"storageClassName": "local"}, (a_class(provisioner=STATIC),)),
        ({"storageClassName": "gone"}, (a_class(provisioner="x.csi"),)),
        ({}, (a_class(provisioner="x.csi"),)),
    ],
)
def test_a_claim_for_which_nothing_makes_or_offers_a_volume_is_never_bound(
    spec: dict[str, Any], classes: Sequence[Any]
) -> None:
    assert not read(a_claim(**spec), (), classes).bindable


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "zone", "operator": "In", "values": ["x"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["x"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "disk", "operator": "DoesNotExist"}, True),
        ({"key": "racks", "operator": "Gt", "values": ["2"]}, True),
        ({"key": "racks", "operator": "Lt", "values": ["2"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["2"]}, False),
    ],
)
def test_terms_are_read_as_the_scheduler_reads_them(
    expression: dict[str, Any], *, holds: bool
) -> None:
    claim = VolumeClaim(name="hub", terms=({"matchExpressions": [expression]},))

    assert claim.reached_from("a", {"zone": "x", "racks": "3"}) is holds
    assert not VolumeClaim(name="hub", terms=({},)).reached_from("a", {})


def test_nodes_that_do_not_reach_a_volume_are_left_out() -> None:
    claim = read(a_claim(volumeName="pv"), [a_volume("pv", "a")])
    nodes = [a_node(name, labels={HOST: name}) for name in ("a", "b")]

    left_out = inventory_of(*nodes, claims=(claim,)).excluded
    assert [(item.node, item.problem.code) for item in left_out] == [("b", "VolumeElsewhere")]


@pytest.mark.parametrize("junk", [None, [], {"spec": 3}, {"spec": {"accessModes": "x"}}])
def test_objects_that_anyone_may_have_written_are_read_without_an_error(junk: object) -> None:
    assert next(iter(read_claims([junk], [junk], [junk]).values())).sharing is Sharing.EVERYWHERE
