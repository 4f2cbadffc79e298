"""The Job that reads a model's config from the hub, without API rights, and its ConfigMap."""

from dataclasses import dataclass
from typing import Any, Final

from shardwright.modelspec.checkpoint_files import MESSAGES, CheckpointFiles, index_of
from shardwright.rendering import names
from shardwright.rendering.bundle import HUB_TOKEN_VARIABLE, digest, literal
from shardwright.rendering.deployment import Owner, SecretKey
from shardwright.rendering.labels import MANAGED_BY, model_selector, owned_metadata
from shardwright.rendering.ssh import USER_ID

HUB_MODEL: Final = "shardwright.io/hub-model"
HUB_COMMIT: Final = "shardwright.io/hub-commit"
"""Annotations of a ConfigMap with a config: of which repository it is, at which commit."""

JOB_LABELS: Final = {MANAGED_BY[0]: MANAGED_BY[1], "app.kubernetes.io/component": "fetch"}
"""Labels of such a Job and its pod, and of no other object."""

FETCHES: Final = "shardwright.io/fetches-config-of"
"""Label of the pod that reads a model's config, which no Service or policy selects."""

DEADLINE_SECONDS: Final = 300
"""How long the Job may take, its image and a node for it included. Basis: assumed; it reads for 60
s at most.
"""

KEPT_SECONDS: Final = 600
"""How long Kubernetes keeps the Job that has ended, and what it found: where there is no config it
is begun again then. Basis: assumed; who has accepted a model's terms, or fixed a token, waits no
longer (and deletes the Job where that is too long).
"""

VARIABLES: Final = frozenset(
    {
        "HF_ENDPOINT",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
        "https_proxy",
        "http_proxy",
        "no_proxy",
    }
)
"""Variables of the engine that say how the hub is reached; no other one of its is the Job's."""

RESOURCES: Final = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "64Mi"}
"""Request and limit of each container. Basis: measured, 139 MiB with an index of 32 MiB, the
largest that is read.
"""

_MODULE: Final = ("python", "-m", "shardwright.hub")
_FOLDER: Final = "/tmp"  # noqa: S108 - a folder of the pod's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """The Job's image and pull policy, as in the operator's own pod."""

    image: str
    pull_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFetch:
    """What to read: a model's config at a commit (None: the newest), as the user of the token.

    ``environment`` are the engine's variables for reaching the hub. ``pull_secrets`` are the
    image's.
    """

    fetcher: Fetcher
    model: str
    revision: str | None
    hub_token: SecretKey | None
    environment: tuple[tuple[str, str], ...]
    pull_secrets: tuple[str, ...]


def config_name(owner_name: str, model: str, revision: str | None) -> str:
    """Return the name of the ConfigMap for a model's config, as read for a resource.

    >>> (config_name("ours", "acme/llama", None), config_name("ours", "acme/llama", "0" * 40))
    ('ours-config-e5a710c2', 'ours-config-16fba0c1')
    """
    return names.config_configmap(names.base_name(owner_name), digest([model, revision]))


def job_name(owner: Owner, fetch: HubFetch) -> str:
    """Return the Job's name; another token or image is another Job."""
    return names.fetch_job(names.base_name(owner.name), digest([owner.uid, fetch]))


def fetch_job(owner: Owner, fetch: HubFetch) -> dict[str, Any]:
    """Return the Job: one container reads and leaves what it may, the next leaves the rest."""
    base = names.base_name(owner.name)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": owned_metadata(
            job_name(owner, fetch), owner, JOB_LABELS, {HUB_MODEL: fetch.model}
        ),
        "spec": {
            # A pod that gets no node or no image never fails, so no limit of failures would end the
            # Job.
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            # Its findings are in the status of its one pod. Another try is another Job.
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                "metadata": {"labels": {**JOB_LABELS, FETCHES: base}},
                "spec": _pod_spec(fetch),
            },
        },
    }


def _pod_spec(fetch: HubFetch) -> dict[str, Any]:
    words = [
        # Kubernetes fills in $(NAME) of arguments.
        literal(word)
        for word in (fetch.model, *([fetch.revision] if fetch.revision else []))
    ]
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # A termination message has 4,096 bytes. Two containers have two messages, and the findings
        # need both (ADR 30).
        "initContainers": [_container(fetch, "read", words, _environment(fetch))],
        # It does not ask the hub, so it gets neither the token nor the variables.
        "containers": [_container(fetch, "rest", ["--rest"], [])],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
    }
    assert len(spec["initContainers"]) + len(spec["containers"]) == MESSAGES  # noqa: S101 - a container more needs a message more
    if fetch.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in fetch.pull_secrets]
    return spec


def config_map(owner: Owner, fetch: HubFetch, found: CheckpointFiles) -> dict[str, Any]:
    """Return the ConfigMap with what was read."""
    base = names.base_name(owner.name)
    labels = {
        MANAGED_BY[0]: MANAGED_BY[1],
        "app.kubernetes.io/component": "config",
        **model_selector(base),
    }
    annotations = {HUB_MODEL: fetch.model, **({HUB_COMMIT: found.commit} if found.commit else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned_metadata(
            config_name(owner.name, fetch.model, fetch.revision), owner, labels, annotations
        ),
        "data": {**found.files, **index_of(found.tensor_bytes)},
    }


def _container(
    fetch: HubFetch, name: str, words: list[str], environment: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": fetch.fetcher.image,
        "imagePullPolicy": fetch.fetcher.pull_policy,
        "command": list(_MODULE),
        "args": words,
        "env": [{"name": "HOME", "value": _FOLDER}, *environment],
        "resources": {"requests": dict(RESOURCES), "limits": dict(RESOURCES)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": _FOLDER}],
    }


def _environment(fetch: HubFetch) -> list[dict[str, Any]]:
    plain = [
        {"name": name, "value": literal(value)}
        for name, value in fetch.environment
        if name in VARIABLES
    ]
    if fetch.hub_token is None:
        return plain
    key = {"name": fetch.hub_token.name, "key": fetch.hub_token.key}
    return [*plain, {"name": HUB_TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": key}}]
