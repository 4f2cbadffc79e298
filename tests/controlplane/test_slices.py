"""Slices of GPUs (MIG) on a real API server and scheduler: whoever asks for them gets them, and
nobody else.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.support.models import Models

pytestmark = [pytest.mark.controlplane, pytest.mark.usefixtures("operator")]

MIXED, WHOLE = "a100-40gb-mig-7g-mixed", "h100-8x-dell-xe9680"
SINGLE = "a100-80gb-pcie-mig-single-vm"
A_SLICE: dict[str, Any] = {"placement": {"migProfile": "7g.40gb"}}
A_SMALL_SLICE: dict[str, Any] = {
    "placement": {"migProfile": "1g.10gb"},
    "engine": {"maxModelLen": 2048},
    "workload": {"inputTokens": 512, "outputTokens": 256},
}
SMALLEST = "Qwen/Qwen3-0.6B"


def _held(pod: Manifest) -> tuple[str, dict[str, str]]:
    """The node of a pod, and what it requests of GPUs there."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    gpus = {name: count for name, count in limits.items() if "nvidia.com" in name}
    return pod["spec"]["nodeName"], gpus


def test_slices_and_whole_gpus_are_for_those_who_ask_for_them(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    (cut,), (whole,) = fleet(MIXED, 1, "cut"), fleet(WHOLE, 1, "whole")
    models = Models(control_plane, namespace)
    models.create("slice", **A_SLICE)
    models.create("whole", parallelism={"tensor": 1, "pipeline": 1})
    models.wait_ready("slice")
    models.wait_ready("whole")

    assert sorted(map(_held, models.pods())) == [
        (cut, {"nvidia.com/mig-7g.40gb": "1"}),
        (whole, {"nvidia.com/gpu": "1"}),
    ]


def test_replicas_share_a_gpu_that_is_cut_into_seven(
    control_plane: ControlPlane, namespace: str, fleet: Fleet
) -> None:
    (cut,) = fleet(SINGLE, 1, "seven")
    models = Models(control_plane, namespace)
    models.create("many", SMALLEST, replicas=7, **A_SMALL_SLICE)
    models.wait_ready("many")

    assert list(map(_held, models.pods())) == [(cut, {"nvidia.com/gpu": "1"})] * 7
