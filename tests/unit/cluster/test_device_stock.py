"""Nodes, slices and classes come in any order: what a node is in the end is the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from shardwright.cluster.device_stock import DeviceStock, NodeEntry
from shardwright.cluster.handover import Change
from shardwright.cluster.sources import project_node
from shardwright.hardware.devices import read_device_class, read_slice
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import NodeExclusion
from tests.harness.gpu_devices import DRIVER, H100, a_device, a_device_class, a_slice
from tests.support.builders_nodes import a_node, bare_node

Step = Callable[[DeviceStock], Any]


def of(name: str, value: Any) -> dict[tuple[str, str], Change[Any]]:
    return {("", name): Change(value, 1)}


def node(stock: DeviceStock) -> Any:
    return stock.take_nodes(of("a", project_node(bare_node("a"))))


def devices(stock: DeviceStock) -> Any:
    return stock.take_slices(of("s", read_slice(a_slice("a"))))


def device_class(stock: DeviceStock) -> Any:
    return stock.take_classes(of(DRIVER, read_device_class(a_device_class("nvidia.com/gpu"))))


def known(*steps: Step) -> NodeEntry | None:
    """What the node a is after these steps."""
    stock, last = DeviceStock(), None
    for step in steps:
        last = step(stock).get("a", last)
    return last


@pytest.mark.parametrize("steps", list(permutations((node, devices, device_class))))
def test_a_node_has_its_devices_whatever_came_first(steps: tuple[Step, ...]) -> None:
    found = known(*steps)
    assert isinstance(found, NodeFacts)
    assert (found.name, found.product, found.gpus, found.claimed) == ("a", H100, 8, None)


def test_a_slice_that_changes_or_goes_changes_its_node() -> None:
    def lesser(stock: DeviceStock) -> Any:
        lost = a_device(0, taint=("gpu.nvidia.com/xid", "NoSchedule"))
        return stock.take_slices(of("s", read_slice(a_slice("a", [lost, a_device(1)]))))

    def gone(stock: DeviceStock) -> Any:
        return stock.take_slices(of("s", None))

    found = known(node, devices, device_class, lesser)
    assert isinstance(found, NodeFacts)
    assert found.gpus == 1
    assert known(node, devices, device_class, gone) is None


def test_a_class_that_goes_leaves_pods_nothing_to_ask_by() -> None:
    found = known(node, devices, device_class, lambda stock: stock.take_classes(of(DRIVER, None)))
    assert isinstance(found, NodeExclusion)
    assert found.problem.code == "NoDeviceClass"


def test_a_node_with_a_device_plugin_stays_as_it_is() -> None:
    stock = DeviceStock()
    devices(stock)
    device_class(stock)
    labelled = project_node(a_node("a"))
    assert stock.take_nodes(of("a", labelled)) == {"a": labelled}
    assert devices(stock) == {}


def test_a_slice_of_a_node_that_is_not_known_concerns_nobody() -> None:
    assert devices(DeviceStock()) == {}
