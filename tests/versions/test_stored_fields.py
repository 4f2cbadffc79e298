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

DROPPED: dict[str, set[str]] = {
    "1.31": {
        "spec.template.spec.containers[engine].resources.claims[compute-domain-channel]",
        "spec.template.spec.resourceClaims[compute-domain-channel]",
    },
    "1.34": set(),
}
"""By release: fields that are refused there with their reason, because it would drop them (claims
came with 1.34).
"""


@pytest.fixture(scope="module", params=build.OTHER_VERSIONS)
def older(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """An API server of another release, and no controllers."""
    with ControlPlane.start(api_server=build.api_server(request.param)) as running:
        assert running.api.get("/version")["gitVersion"].startswith(
            f"v{request.param}."
        )
        yield running


def test_every_field_of_every_object_is_stored_as_it_is_sent_but_those_that_came_later(
    older: ControlPlane,
) -> None:
    release = ".".join(
        older.api.get("/version")["gitVersion"].removeprefix("v").split(".")[:2]
    )
    assert len(runnable()) > 20
    with compute_domains(older):
        found = differences(older.api, "default", runnable())
    assert {field for fields in found.values() for field in fields} == DROPPED[release]
    assert all("StatefulSet" in name for name in found)


def test_a_native_group_would_lose_the_field_that_binds_its_pods(
    older: ControlPlane,
) -> None:
    (group,) = (
        item for item in objects_of(NATIVE, "default") if item["kind"] == "StatefulSet"
    )
    assert (
        "schedulingGroup"
        not in stored(older.api, group, "default")["spec"]["template"]["spec"]
    )


def test_an_image_volume_would_be_lost_and_the_operator_finds_it(
    older: ControlPlane,
) -> None:
    """The feature gate ImageVolume is off by default before Kubernetes 1.35."""
    (group,) = (
        item
        for item in objects_of(IMAGE_VOLUME, "default")
        if item["kind"] == "StatefulSet"
    )
    pod = "spec.template.spec"
    assert dropped_fields(group, stored(older.api, group, "default")) == (
        f"{pod}.containers[engine].volumeMounts[/models]",
        f"{pod}.volumes[models]",
    )


def test_the_pod_of_every_template_is_let_into_a_restricted_namespace(
    older: ControlPlane,
) -> None:
    namespaces = "/api/v1/namespaces"
    older.api.create(
        namespaces, {"metadata": {"name": "restricted", "labels": RESTRICTED}}
    )
    older.api.create(
        f"{namespaces}/restricted/serviceaccounts", {"metadata": {"name": "default"}}
    )
    refused = {}
    for name, pod in pods("restricted", runnable()):
        try:
            stored(older.api, pod, "restricted")
        except ApiError as error:
            refused[name] = error.message
    assert refused == {}
