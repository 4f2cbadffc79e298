"""GPUs that a DRA driver publishes: slices of a node to the values that labels would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import Problem
from shardwright.hardware.devices import (
    MIG_CLASS,
    SLICES_MOST,
    ClaimedDevices,
    DeviceClass,
    DeviceSlice,
    DeviceUsage,
    NodeDevices,
    read_claim,
    read_device_class,
    read_devices,
    read_slice,
)
from shardwright.units import MIB
from tests.harness.gpu_devices import DRIVER, H100, a_device, a_device_class, a_mig_device, a_slice
from tests.support.builders_devices import EIGHT, a_cut_gpu

CLASSES = {DRIVER: read_device_class(a_device_class("nvidia.com/gpu"))}


def kept(*contents: dict[str, Any]) -> tuple[DeviceSlice, ...]:
    return tuple(found for content in contents if (found := read_slice(content)))


def read(
    *contents: dict[str, Any], classes: dict[str, DeviceClass] = CLASSES
) -> NodeDevices | Problem | None:
    return read_devices(kept(*contents), classes)


def of(*devices: dict[str, Any]) -> NodeDevices | Problem | None:
    return read(a_slice("a", devices))


def reason(found: NodeDevices | Problem | None) -> str:
    assert isinstance(found, Problem), found
    assert found.what
    assert found.limit
    assert found.remedy
    return found.code


class TestSlices:
    def test_eight_alike_are_the_gpus_of_their_node(self) -> None:
        assert read(a_slice("a")) == EIGHT

    def test_an_attribute_may_have_the_domain_of_the_driver(self) -> None:
        device = a_device()
        device["attributes"] = {
            name if "/" in name else f"{DRIVER}/{name}": value
            for name, value in device["attributes"].items()
        }
        device["capacity"] = {f"{DRIVER}/memory": device["capacity"]["memory"]}
        assert of(device) == replace(EIGHT, gpus=1, usable=1, pcie_roots=1)

    def test_the_latest_generation_of_a_pool_counts_alone(self) -> None:
        old = a_slice("a", [a_device(minor) for minor in range(4)], name="old", generation=1)
        assert read(old, a_slice("a", generation=2)) == EIGHT

    def test_a_pool_of_two_slices_is_read_when_both_are_there(self) -> None:
        halves = [
            a_slice("a", [a_device(minor) for minor in minors], name=f"a-{minors[0]}", slices=2)
            for minors in (range(4), range(4, 8))
        ]
        assert reason(read(halves[0])) == "NoAllocatableGpus"
        assert read(*halves) == EIGHT

    def test_another_driver_and_devices_of_no_single_node_are_passed_over(self) -> None:
        channel = a_slice("a")
        channel["spec"]["driver"] = "compute-domain.nvidia.com"
        anywhere = a_slice("a")
        del anywhere["spec"]["nodeName"]
        assert kept(channel, anywhere) == ()
        assert read() is None

    def test_the_smallest_memory_counts_and_none_where_one_does_not_say(self) -> None:
        smaller = of(a_device(0), a_device(1, memory="80000Mi"))
        assert isinstance(smaller, NodeDevices)
        assert smaller.memory_bytes == 80000 * MIB
        silent = of(a_device(0), a_device(1, memory=""))
        assert isinstance(silent, NodeDevices)
        assert silent.memory_bytes is None

    def test_gpus_on_one_pcie_root_are_told_from_those_on_several(self) -> None:
        found = of(*(a_device(minor, root=f"pci0000:{minor // 4}") for minor in range(8)))
        assert found == replace(EIGHT, pcie_roots=2)


class TestTaints:
    @pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
    def test_a_device_with_a_taint_is_there_and_not_usable(self, effect: str) -> None:
        found = of(
            a_device(0, taint=("gpu.nvidia.com/xid", effect)),
            *(a_device(minor) for minor in range(1, 8)),
        )
        assert found == replace(EIGHT, usable=7)

    @pytest.mark.parametrize("effect", ["None", "SomethingNew"])
    def test_a_taint_that_only_tells_takes_nothing_out(self, effect: str) -> None:
        assert (
            of(
                *(
                    a_device(minor, taint=("gpu.nvidia.com/unmonitored", effect))
                    for minor in range(8)
                )
            )
            == EIGHT
        )

    def test_a_node_with_taints_on_all_of_them_says_which(self) -> None:
        found = of(
            *(
                a_device(minor, taint=("gpu.nvidia.com/gpu-lost", "NoSchedule"))
                for minor in range(8)
            )
        )
        assert reason(found) == "NoAllocatableGpus"
        assert "gpu.nvidia.com/gpu-lost" in str(found)


class TestReasons:
    def test_two_products_in_a_node(self) -> None:
        assert reason(of(a_device(0), a_device(1, "NVIDIA L4"))) == "MixedGpus"

    @pytest.mark.parametrize(
        "devices",
        [
            [a_mig_device(0), a_mig_device(7, "3g.40gb")],
            [a_mig_device(0, "1c.3g.40gb")],
            [a_mig_device(0, "")],
            [a_mig_device(0), a_mig_device(1, consumesCounters=[{"counterSet": "a"}])],
        ],
        ids=["of two profiles", "parts of a slice", "unnamed", "cut on demand"],
    )
    def test_slices_that_are_not_all_alike(self, devices: list[dict[str, Any]]) -> None:
        assert reason(of(*devices)) == "MigEnabled"

    def test_slices_beside_whole_gpus_are_passed_over(self) -> None:
        assert of(a_device(0), a_mig_device(7)) == replace(EIGHT, gpus=1, usable=1, pcie_roots=1)

    def test_only_gpus_for_virtual_machines(self) -> None:
        assert reason(of(a_device(kind="vfio"))) == "GpuPassthrough"

    def test_a_gpu_for_several_claims_at_once(self) -> None:
        assert reason(of(a_device(allowMultipleAllocations=True))) == "GpuShared"

    def test_devices_of_another_kind_are_no_gpus(self) -> None:
        assert of(a_device(kind="imex")) is None

    def test_more_slices_than_any_driver_writes(self) -> None:
        many = (
            a_slice("a", [a_device()], name=f"a-{number}", pool=f"p{number}")
            for number in range(SLICES_MOST + 1)
        )
        assert reason(read(*many)) == "NoAllocatableGpus"


SEVEN = a_cut_gpu()
MIG_CLASSES = {MIG_CLASS: read_device_class(a_device_class(name=MIG_CLASS, kind="mig"))}


class TestSlicesOfGpus:
    def test_slices_of_one_profile_are_the_gpus_of_their_node(self) -> None:
        seven = a_slice("a", map(a_mig_device, range(7)))
        assert read(seven, classes=MIG_CLASSES) == SEVEN

    def test_a_slice_with_a_taint_is_there_and_not_usable(self) -> None:
        taint = ("gpu.nvidia.com/xid", "NoSchedule")
        devices = [a_mig_device(0, taint=taint), *map(a_mig_device, range(1, 7))]
        found = read(a_slice("a", devices), classes=MIG_CLASSES)
        assert found == replace(SEVEN, usable=6)

    def test_a_class_may_stand_for_the_resource_of_their_profile(self) -> None:
        resource = "nvidia.com/mig-1g.10gb.me"
        mine = {"mine": read_device_class(a_device_class(resource, name="mine"))}
        found = read(a_slice("a", [a_mig_device(0, "1g.10gb+me")]), classes=mine)
        assert isinstance(found, NodeDevices)
        assert (found.resource, found.claimed) == (resource, None)

    def test_the_class_of_whole_gpus_gives_out_no_slice(self) -> None:
        assert reason(of(a_mig_device())) == "NoDeviceClass"


class TestClasses:
    def test_a_class_that_stands_for_the_resource_leaves_pods_as_they_are(self) -> None:
        mine = {"mine": read_device_class(a_device_class("nvidia.com/gpu", name="mine"))}
        assert read(a_slice("a"), classes=mine) == EIGHT

    def test_without_one_pods_claim_devices_of_the_drivers_class_and_this_product(self) -> None:
        found = read(a_slice("a"), classes={DRIVER: DeviceClass()})
        assert found == replace(EIGHT, claimed=ClaimedDevices(device_class=DRIVER, product=H100))

    def test_a_name_that_could_end_a_text_of_cel_is_never_claimed(self) -> None:
        odd = a_slice("a", [a_device(0, "x' || true || 'y")])
        assert reason(read(odd, classes={DRIVER: DeviceClass()})) == "LabelsImplausible"

    def test_without_any_nothing_can_be_asked_for(self) -> None:
        other = {"other": DeviceClass(resource="example.com/gpu")}
        assert [reason(read(a_slice("a"), classes=classes)) for classes in ({}, other)] == [
            "NoDeviceClass"
        ] * 2


def a_claim(*devices: str, **more: Any) -> dict[str, Any]:
    """A claim that the scheduler has allocated on the node a for the pod llama-0-0."""
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": "a", "device": device} for device in devices
    ]
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [named]}}
    metadata = {"name": "llama-0-0-gpus-x7", "namespace": "models", **more}
    reserved = [{"resource": "pods", "name": "llama-0-0", "uid": "uid-0"}]
    status = {"allocation": allocation, "reservedFor": reserved}
    return {"metadata": metadata, "spec": {}, "status": status}


class TestClaims:
    def test_an_allocated_claim_holds_gpus_of_its_node_for_its_pod(self) -> None:
        held = DeviceUsage(node="a", gpus=2, pod="llama-0-0", pod_uid="uid-0")
        assert read_claim(a_claim("gpu-0", "gpu-1")) == held

    def test_what_whoever_may_make_claims_has_written_of_one_changes_nothing(self) -> None:
        owner = {"kind": "Pod", "name": "theirs", "uid": "uid-1", "controller": True}
        forged = {
            "ownerReferences": [owner],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "labels": {"shardwright.io/model": "theirs"},
        }
        assert read_claim(a_claim("gpu-0", **forged)) == read_claim(a_claim("gpu-0"))

    def test_slices_of_one_gpu_hold_it_once(self) -> None:
        found = read_claim(
            a_claim("gpu-0-mig-1g24gb-0", "gpu-0-mig-1g24gb-1", "gpu-10-mig-1g24gb-0")
        )
        assert found == DeviceUsage(node="a", gpus=2, pod="llama-0-0", pod_uid="uid-0")

    def test_where_the_allocation_names_no_node_its_pool_does(self) -> None:
        claim = a_claim("gpu-0")
        del (claim["status"]["allocation"]["nodeSelector"], claim["status"]["reservedFor"])
        assert read_claim(claim) == DeviceUsage(node="a", gpus=1)

    def test_what_is_not_allocated_or_only_looks_or_is_of_another_driver_holds_nothing(
        self,
    ) -> None:
        looking, other = a_claim("gpu-0"), a_claim("channel-0")
        looking["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        other["status"]["allocation"]["devices"]["results"][0]["driver"] = (
            "compute-domain.nvidia.com"
        )
        nothing: list[Any] = [a_claim(), {"status": {}}, looking, other]
        assert [read_claim(item) for item in nothing] == [None] * 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["driver", "nodeName", "pool", "devices"]


@given(
    content=json_values,
    at=st.sampled_from(FIELDS),
    inside=json_values,
    name=st.sampled_from(["attributes", "capacity", "taints"]),
)
def test_whatever_stands_in_a_slice_is_an_answer(
    content: Any, at: str, inside: Any, name: str
) -> None:
    spoilt, odd = a_slice("a"), a_slice("a", [{**a_device(), name: inside}])
    spoilt["spec"][at] = content
    items: list[Any] = [content, spoilt, odd, {"spec": content}]
    for item in items:
        found = read_slice(item)
        read = read_devices((found,) if found else (), CLASSES)
        assert read is None or isinstance(read, NodeDevices | Problem)
        assert isinstance(read_claim(item), DeviceUsage | None)
        assert isinstance(read_device_class(item).resource, str)
