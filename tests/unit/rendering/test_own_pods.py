"""What a user wants in pods beside what is ours: it is there, it displaces nothing, and the pod
stays restricted.
"""

from typing import Any

import pytest

from shardwright.api.pod_spec import is_reserved
from shardwright.rendering.bundle import OWN_HASH, TEMPLATE_HASH, of_kind
from shardwright.rendering.deployment import (
    CacheClaim,
    Deployment,
    OwnMarks,
    OwnVolume,
    PodNetwork,
    Scheduling,
    VolumeKind,
)
from shardwright.rendering.gang_scheduling import SCHEDULER_INTEGRATIONS
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_small_plan,
    a_trtllm_deployment,
)
from tests.support.rendered import engine_of, pod_of

MARKS = OwnMarks(
    labels=(("shardwright.io/model", "other"), ("team", "search")),
    annotations=(("example.com/cost-centre", "42"), ("shardwright.io/model-name", "other")),
    account="reader",
    pull_policy="Always",
)
VOLUMES = (
    OwnVolume(
        name="ca", path="/etc/ssl/certs/own", kind=VolumeKind.CONFIG_MAP, source="company-ca"
    ),
    OwnVolume(name="keys", path="/mnt/keys", kind=VolumeKind.SECRET, source="licence"),
    OwnVolume(name="data", path="/data/own", kind=VolumeKind.CLAIM, source="data"),
    OwnVolume(
        name="logs", path="/data/logs", kind=VolumeKind.CLAIM, source="logs", read_only=False
    ),
    OwnVolume(
        name="scratch",
        path="/srv/scratch",
        kind=VolumeKind.SCRATCH,
        source="100Gi",
        read_only=False,
    ),
)


def metadata_of(deployment: Deployment) -> dict[str, Any]:
    """Return the metadata of the pods of a group of two."""
    metadata: dict[str, Any] = of_kind(render(a_plan(), deployment).objects, "StatefulSet")[0][
        "spec"
    ]["template"]["metadata"]
    return metadata


def own(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in items if item["name"].startswith("own-")]


def test_labels_and_annotations_are_there_and_ours_stay_what_they_are() -> None:
    usual, marked = metadata_of(a_deployment()), metadata_of(a_deployment(marks=MARKS))

    labels = {
        name: value
        for name, value in marked["labels"].items()
        if name not in (TEMPLATE_HASH, OWN_HASH)
    }
    assert labels == {
        name: value for name, value in usual["labels"].items() if name != TEMPLATE_HASH
    } | {"team": "search"}
    assert marked["annotations"] == {**usual["annotations"], "example.com/cost-centre": "42"}


def test_marks_of_users_are_on_pods_alone_and_in_no_selector() -> None:
    bundle = render(a_plan(), a_deployment(marks=MARKS))

    without_templates = [
        {**item, "spec": {**item.get("spec", {}), "template": None}} for item in bundle.objects
    ]
    assert [item["kind"] for item in without_templates if "search" in str(item)] == []


def test_pods_have_the_account_and_no_token_of_it() -> None:
    pod = pod_of(render(a_plan(), a_deployment(marks=MARKS)))

    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("reader", False)
    assert "serviceAccountName" not in pod_of(render(a_plan(), a_deployment()))


def test_every_container_is_pulled_as_the_user_says() -> None:
    pod = pod_of(render(a_plan(), a_deployment(marks=MARKS, cache=CacheClaim(claim="hub"))))

    assert [item["imagePullPolicy"] for item in (*pod["initContainers"], *pod["containers"])] == [
        "Always",
        "Always",
    ]


def test_volumes_are_mounted_in_the_engine_alone_under_names_that_none_of_ours_has() -> None:
    bundle = render(a_plan(), a_deployment(volumes=VOLUMES, cache=CacheClaim(claim="hub")))
    pod = pod_of(bundle)

    assert own(pod["volumes"]) == [
        {"name": "own-ca", "configMap": {"name": "company-ca"}},
        {"name": "own-keys", "secret": {"secretName": "licence"}},
        {"name": "own-data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "own-logs", "persistentVolumeClaim": {"claimName": "logs"}},
        {"name": "own-scratch", "emptyDir": {"sizeLimit": "100Gi"}},
    ]
    assert own(engine_of(bundle)["volumeMounts"]) == [
        {"name": "own-ca", "mountPath": "/etc/ssl/certs/own", "readOnly": True},
        {"name": "own-keys", "mountPath": "/mnt/keys", "readOnly": True},
        {"name": "own-data", "mountPath": "/data/own", "readOnly": True},
        {"name": "own-logs", "mountPath": "/data/logs"},
        {"name": "own-scratch", "mountPath": "/srv/scratch"},
    ]
    assert own(pod["initContainers"][0]["volumeMounts"]) == []


@pytest.mark.parametrize(
    "deployment", [a_deployment(), a_trtllm_deployment()], ids=["vLLM", "TensorRT-LLM"]
)
def test_none_of_ours_has_such_a_name_or_lies_below_a_folder_where_users_mount(
    deployment: Deployment,
) -> None:
    bundle = render(a_plan(), deployment)

    assert own(pod_of(bundle)["volumes"]) == []
    paths = [mount["mountPath"] for mount in engine_of(bundle)["volumeMounts"]]
    assert [
        path
        for path in paths
        if path.startswith(("/data", "/mnt", "/srv", "/etc/pki/ca-trust", "/etc/ssl/certs"))
    ] == []


def test_an_empty_folder_is_room_on_the_disk_beyond_what_the_engine_may_use() -> None:
    disk = "ephemeral-storage"
    usual, more = (
        engine_of(render(a_plan(), a_deployment(volumes=volumes)))["resources"]
        for volumes in ((), VOLUMES)
    )

    assert (
        int(more["limits"][disk].removesuffix("Gi")) - int(usual["limits"][disk].removesuffix("Gi"))
        == 100
    )
    assert more["requests"] == usual["requests"]


@pytest.mark.parametrize("scheduler", [None, *SCHEDULER_INTEGRATIONS])
@pytest.mark.parametrize(
    "deployment", [a_deployment(), a_trtllm_deployment()], ids=["vLLM", "TensorRT-LLM"]
)
def test_whatever_we_write_on_pods_a_user_may_not(
    deployment: Deployment, scheduler: str | None
) -> None:
    scheduling = (
        Scheduling(
            integration=scheduler, api_version=SCHEDULER_INTEGRATIONS[scheduler].apis[0], queue="q"
        )
        if scheduler
        else None
    )
    deployment = a_deployment(
        engine=deployment.engine,
        image=deployment.image,
        engine_version=deployment.engine_version,
        scheduling=scheduling,
        network=PodNetwork(attachments=("fabric/rail-0",)),
    )
    for plan in (a_plan(), a_small_plan()):
        for group in of_kind(render(plan, deployment).objects, "StatefulSet"):
            metadata = group["spec"]["template"]["metadata"]
            written = (
                *metadata["labels"],
                *metadata["annotations"],
                *group["metadata"]["labels"],
                *group["metadata"]["annotations"],
            )
            assert [key for key in written if not is_reserved(key)] == []
