"""What API servers of older Kubernetes releases store of what is sent, field by field; the newest
has it in `controlplane`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardwright.reconcile.drift import dropped_fields
from tests.harness import build
from tests.harness.api import ApiError
from tests.harness.compute_domains import compute_domains
from tests.harness.controlplane import ControlPlane
from tests.support.stored import (
    IMAGE_VOLUME,
    NATIVE,
    differences,
    objects_of,
    pods,
    runnable,
    stored,
)

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module", params=build.OTHER_VERSIONS)
def older(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """An API server of another release, and no controllers."""
    with ControlPlane.start(api_server=build.api_server(request.param)) as running:
        assert running.api.get("/version")["gitVersion"].startswith(f"v{request.param}.")
        yield running


def test_every_field_of_every_object_is_stored_as_it_is_sent(older: ControlPlane) -> None:
    assert len(runnable()) > 20
    with compute_domains(older):
        found = differences(older.api, "default", runnable())
    assert found == {}


def test_a_native_group_would_lose_the_field_that_binds_its_pods(older: ControlPlane) -> None:
    (group,) = (item for item in objects_of(NATIVE, "default") if item["kind"] == "StatefulSet")
    assert "schedulingGroup" not in stored(older.api, group, "default")["spec"]["template"]["spec"]


def test_an_image_volume_is_stored_from_1_35_on_and_before_the_operator_finds_it_lost(
    older: ControlPlane,
) -> None:
    """The feature gate ImageVolume is off by default before Kubernetes 1.35."""
    release = older.api.get("/version")["minor"]
    (group,) = (
        item for item in objects_of(IMAGE_VOLUME, "default") if item["kind"] == "StatefulSet"
    )
    pod = "spec.template.spec"
    lost = (f"{pod}.containers[engine].volumeMounts[/models]", f"{pod}.volumes[models]")
    found = dropped_fields(group, stored(older.api, group, "default"))
    assert found == (lost if release == "34" else ())


def test_the_pod_of_every_template_is_let_into_a_restricted_namespace(older: ControlPlane) -> None:
    namespaces = "/api/v1/namespaces"
    older.api.create(namespaces, {"metadata": {"name": "restricted", "labels": RESTRICTED}})
    older.api.create(f"{namespaces}/restricted/serviceaccounts", {"metadata": {"name": "default"}})
    refused = {}
    for name, pod in pods("restricted", runnable()):
        try:
            stored(older.api, pod, "restricted")
        except ApiError as error:
            refused[name] = error.message
    assert refused == {}
