"""The routes of docs/howto/reach-a-model.md: an API server with the Gateway API's own definition of
an HTTPRoute takes each of them, and all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROUTES = "/apis/gateway.networking.k8s.io/v1"
PAGE = (ROOT / "docs" / "howto" / "reach-a-model.md").read_text()
BLOCKS = [yaml.safe_load(block.partition("```")[0]) for block in PAGE.split("```yaml\n")[1:]]
SHOWN = [block for block in BLOCKS if block.get("kind") == "HTTPRoute"]


@pytest.fixture(scope="module")
def routes(control_plane: ControlPlane) -> Iterator[str]:
    """Where the API server takes HTTPRoutes."""
    definition = json.loads((ROOT / "tests/data/gateway_api/httproutes.json").read_text())
    control_plane.api.create(CRDS, definition)
    path = f"{ROUTES}/namespaces/default/httproutes"
    wait_for(lambda: control_plane.api.get(path), 60, "HTTPRoutes to be served")
    yield path
    control_plane.api.delete(f"{CRDS}/{definition['metadata']['name']}")


@pytest.mark.parametrize("route", SHOWN, ids=lambda route: str(route["metadata"]["name"]))
def test_a_route_of_the_page_is_what_the_gateway_api_defines(
    control_plane: ControlPlane, routes: str, route: Manifest
) -> None:
    own = {**route, "metadata": {"name": route["metadata"]["name"]}}

    kept = control_plane.api.request("POST", routes, own, query={"fieldValidation": "Strict"})

    for asked, stored in zip(route["spec"]["rules"], kept["spec"]["rules"], strict=True):
        assert stored["timeouts"] == asked["timeouts"]
        assert [(one["name"], one["port"], one["weight"]) for one in stored["backendRefs"]] == [
            (one["name"], one["port"], one.get("weight", 1)) for one in asked["backendRefs"]
        ]
