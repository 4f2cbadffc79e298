"""The Job that reads a config: one shape, with nothing of the cluster's and nothing of the user's
but the token and the hub.
"""

from dataclasses import replace

from shardwright.modelspec.checkpoint_files import CheckpointFiles
from shardwright.rendering.deployment import Owner, SecretKey
from shardwright.rendering.fetch_job import Fetcher, config_map, config_name, fetch_job, job_name
from tests.support.builders_deployment import a_hub_fetch

OWNER = Owner(name="qwen2.5-7b", namespace="models", uid="9b1f")
FETCH = a_hub_fetch()
OWNED = [
    {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": "qwen2.5-7b",
        "uid": "9b1f",
        "controller": True,
        "blockOwnerDeletion": True,
    }
]


def a_container(name: str, args: list[str], *env: dict[str, object]) -> dict[str, object]:
    most = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
    return {
        "name": name,
        "image": "registry.example/operator:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "shardwright.hub"],
        "args": args,
        "env": [{"name": "HOME", "value": "/tmp"}, *env],
        "resources": {"requests": most, "limits": most},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def test_the_job_runs_the_operators_image_twice_and_has_no_rights() -> None:
    labels = {"app.kubernetes.io/managed-by": "shardwright", "app.kubernetes.io/component": "fetch"}

    assert fetch_job(OWNER, FETCH) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(OWNER, FETCH),
            "namespace": "models",
            "labels": labels,
            "annotations": {"shardwright.io/hub-model": "acme/llama"},
            "ownerReferences": OWNED,
        },
        "spec": {
            "activeDeadlineSeconds": 300,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 600,
            "template": {
                "metadata": {
                    "labels": {
                        **labels,
                        "shardwright.io/fetches-config-of": "qwen2-5-7b-5f5e975ce4",
                    }
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "restartPolicy": "Never",
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10001,
                        "runAsGroup": 10001,
                        "fsGroup": 10001,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "initContainers": [a_container("read", ["acme/llama"])],
                    "containers": [a_container("rest", ["--rest"])],
                    "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
                },
            },
        },
    }


def test_the_token_is_for_the_kubelet_to_read_and_for_the_container_that_asks_the_hub_alone() -> (
    None
):
    token = SecretKey(name="hub", key="token")
    environment = (("HF_ENDPOINT", "https://$(HF_TOKEN).example"), ("NCCL_DEBUG", "INFO"))

    spec = fetch_job(
        OWNER,
        replace(
            FETCH,
            revision="0" * 40,
            hub_token=token,
            environment=environment,
            pull_secrets=("registry",),
        ),
    )
    pod = spec["spec"]["template"]["spec"]

    given: list[dict[str, object]] = [
        {"name": "HF_ENDPOINT", "value": "https://$$(HF_TOKEN).example"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
    ]
    assert pod["initContainers"] == [a_container("read", ["acme/llama", "0" * 40], *given)]
    assert pod["containers"] == [a_container("rest", ["--rest"])]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_who_asks_otherwise_or_is_another_has_another_job_and_the_same_config_has_one_place() -> (
    None
):
    others = [
        replace(FETCH, revision="0" * 40),
        replace(FETCH, hub_token=SecretKey(name="hub", key="token")),
        replace(
            FETCH, fetcher=Fetcher(image="registry.example/operator:2", pull_policy="IfNotPresent")
        ),
    ]

    names = {
        job_name(OWNER, FETCH),
        job_name(replace(OWNER, uid="77aa"), FETCH),
        *(job_name(OWNER, one) for one in others),
    }
    assert len(names) == len(others) + 2
    assert config_name("ours", "acme/llama", None) != config_name("ours", "acme/llama", "0" * 40)
    assert all(len(name) <= 63 for name in names)


def test_the_config_map_has_the_files_the_sizes_and_the_commit() -> None:
    found = CheckpointFiles(
        files={"config.json": "{}", "hf_quant_config.json": "{}"}, commit="1" * 40, tensor_bytes=5
    )

    assert config_map(OWNER, FETCH, found) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_name("qwen2.5-7b", "acme/llama", None),
            "namespace": "models",
            "labels": {
                "app.kubernetes.io/managed-by": "shardwright",
                "app.kubernetes.io/component": "config",
                "shardwright.io/model": "qwen2-5-7b-5f5e975ce4",
            },
            "annotations": {
                "shardwright.io/hub-model": "acme/llama",
                "shardwright.io/hub-commit": "1" * 40,
            },
            "ownerReferences": OWNED,
        },
        "data": {
            "config.json": "{}",
            "hf_quant_config.json": "{}",
            "model.safetensors.index.json": '{"metadata": {"total_size": 5}}',
        },
    }
