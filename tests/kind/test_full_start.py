"""What a group needs to start: weights that are downloaded once, and enough shared memory."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.waiting import wait_for
from tests.kind import cluster, faults, hub, release, serving
from tests.kind.breaking import CHANGED, PROMPT, broken
from tests.kind.cluster import Cluster
from tests.kind.faults import Fault
from tests.kind.grounds import docker_in_use
from tests.kind.serving import LONG, NAMESPACE, ONE_AT_A_TIME, READY_SECONDS, Served

pytestmark = pytest.mark.timeout(3600)

CLAIM = "hub-cache"
CACHE = f"/var/local/{CLAIM}"
POLICIES = "mutatingadmissionpolicy,mutatingadmissionpolicybinding"


def test_a_restart_reads_no_byte_of_weights_from_the_hub_again(models: Cluster) -> None:
    served = Served(models, "cached")
    with _hub_and_cache(models), serving.single_gpu_nodes(models):
        try:
            further = (
                f"engine: {{{LONG}, env: [{{name: HF_ENDPOINT, value: '{hub.URL}'}}]}}",
            )  # which the chart's settings admit
            served.write(ONE_AT_A_TIME, further=further, weights=f"cache: {{claimName: {CLAIM}}}")
            served.wait_ready()
            first = hub.given_bytes(models)
            broken(served, "a planned restart with a cache", served.restart, first=[CHANGED])
            again = hub.given_bytes(models)
        finally:
            served.delete()

    assert first > 0
    assert again == first
    faults.seen.append(
        Fault(
            "weights of a cached model",
            f"{first} bytes from the hub",
            0,
            f"{again - first} after a restart",
        )
    )


def test_too_little_shared_memory_is_named_and_the_group_serves_once_there_is_enough(
    models: Cluster,
) -> None:
    served = Served(models, "cramped")
    try:
        with _small_shared_memory(models):
            served.write("parallelism: {tensor: 2, pipeline: 1}")
            failure = wait_for(lambda: _failed(served), READY_SECONDS, "the failure to be shown", 1)
        served.restart()
        served.wait_ready()
        assert len(served.ask(PROMPT)) == serving.TOKENS
    finally:
        served.delete()

    assert "/dev/shm holds 8 MiB" in failure["message"], failure
    faults.seen.append(
        Fault(
            "8 MiB of /dev/shm",
            f"exit code {failure['exitCode']}: {failure['message'][-200:]}",
            0,
            "serves",
        )
    )


def _failed(served: Served) -> Any:
    assert served.condition().get("status") == "False"
    return served.failure()


@contextmanager
def _hub_and_cache(models: Cluster) -> Iterator[None]:
    """A hub and an empty claim for what is downloaded; both and the claim's folder on the nodes go,
    whatever comes of it.
    """
    _remove_cache(models)  # of a run that was killed: a volume is bound once
    cluster.make_folder(docker_in_use(), CACHE)
    models.apply(*_cache_objects())
    try:
        hub.start(models)
        yield
    finally:
        hub.stop(models)
        _remove_cache(models)


def _remove_cache(models: Cluster) -> None:
    models.kubectl(
        "-n",
        NAMESPACE,
        "delete",
        "persistentvolumeclaim",
        CLAIM,
        "--ignore-not-found",
        "--timeout=120s",
    )
    models.kubectl("delete", "persistentvolume", CLAIM, "--ignore-not-found", "--timeout=120s")
    cluster.remove_folder(docker_in_use(), CACHE)


def _cache_objects() -> list[dict[str, Any]]:
    """A claim that many pods may write to; on every node it is a folder of its own."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": CACHE}}
    claim = {**spec, "volumeName": CLAIM, "resources": {"requests": {"storage": "1Gi"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": volume,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": claim,
        },
    ]


@contextmanager
def _small_shared_memory(models: Cluster) -> Iterator[None]:
    """A policy of the cluster that allows pods 8 MiB of shared memory, as one against waste
    might.
    """
    index = "object.spec.volumes.map(volume, volume.name).indexOf('shm')"
    way = f"'/spec/volumes/' + string({index}) + '/emptyDir/sizeLimit'"
    patch = f"{index} < 0 ? [] : [JSONPatch{{op: 'replace', path: {way}, value: '8Mi'}}]"
    named = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "small-shm"}}
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
    policy = {
        "matchConstraints": {"resourceRules": rules},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    binding = {
        "policyName": "small-shm",
        "matchResources": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
        },
    }
    models.apply(
        {**named, "kind": "MutatingAdmissionPolicy", "spec": policy},
        {**named, "kind": "MutatingAdmissionPolicyBinding", "spec": binding},
    )
    try:
        wait_for(
            lambda: _allowed_shared_memory(models) == "8Mi", 60, "the policy to be in force", 0.2
        )
        yield
    finally:
        models.kubectl("delete", POLICIES, "small-shm")


def _allowed_shared_memory(models: Cluster) -> str:
    """What the API server would make of a pod with the shared memory that we render."""
    pod = serving.plain_pod("asks", release.image(models))
    pod["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}]
    made = json.loads(
        models.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", text=json.dumps(pod))
    )
    return str(made["spec"]["volumes"][0]["emptyDir"]["sizeLimit"])
