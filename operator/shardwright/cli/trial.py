"""Does a cluster enforce NetworkPolicies? A pod asks the API server every second, and a policy
forbids it.

What no policy can stop, such as traffic between a pod and its own node, proves nothing: the pod
keeps away from nodes of the control plane. If it never got through, or ends, the answer is Unclear.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from shardwright.cli.diagnosis import Enforcement
from shardwright.cli.output import print_note
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import NETWORK_POLICIES, PODS, Resource
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty

NAMESPACES: Final = Resource(prefix="/api/v1", plural="namespaces", kind="Namespace")

LABEL: Final = "shardwright.io/doctor"

PROBE: Final = (
    "import os, socket; "
    "socket.create_connection((os.environ['KUBERNETES_SERVICE_HOST'], "
    "int(os.environ['KUBERNETES_SERVICE_PORT'])), 2)"
)
"""Asks the API server, whose address every pod has; the outcome is the pod's readiness."""

SETTLING_SECONDS: Final = 30
"""How long until a policy counts as ignored. Basis: assumed; policies take effect within
seconds.
"""

START_SECONDS: Final = 120
"""How long the pod may take to get through, pulling its image included."""

LOOK_SECONDS: Final = 1.0
_ELSEWHERE: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}
                ]
            }
        ]
    }
}
"""Avoids control plane nodes: nothing stops a pod's traffic to its own node."""

_GONE: Final = "Gone"
_ENDED: Final = frozenset({"Succeeded", "Failed", "Unknown", _GONE})
"""Phases of a pod that shows nothing more, its last readiness among it."""
LIMITS: Final = {"cpu": "100m", "memory": "64Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Where to measure (empty: in a temporary namespace), and the image, which needs Python 3."""

    namespace: str
    image: str
    start_seconds: float = START_SECONDS
    settling_seconds: float = SETTLING_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The finding, or why there is none."""

    enforcement: Enforcement
    trouble: str = ""


class UnclearError(Exception):
    """The trial could not be made; the message says why."""


async def measure(client: Client, trial: Trial) -> Measured:
    """Return whether a policy stops a pod; everything is deleted afterwards."""
    try:
        async with _place(client, trial) as namespace:
            return Measured(enforcement=await _measured(client, namespace, trial))
    except ApiError as error:
        return Measured(enforcement=Enforcement.UNCLEAR, trouble=str(error))
    except UnclearError as error:
        return Measured(enforcement=Enforcement.UNCLEAR, trouble=str(error))


async def _measured(client: Client, namespace: str, trial: Trial) -> Enforcement:
    async with _made(client, PODS, namespace, _pod(trial)) as pod:
        if not await _becomes(client, pod, ready=True, seconds=trial.start_seconds):
            raise UnclearError(await _trouble(client, pod))
        async with _made(client, NETWORK_POLICIES, namespace, _policy(pod)):
            stopped = await _becomes(client, pod, ready=False, seconds=trial.settling_seconds)
        if not stopped:
            return Enforcement.IGNORED
        # It gets through again without the policy, so only that can have stopped it.
        if await _becomes(client, pod, ready=True, seconds=trial.settling_seconds):
            return Enforcement.ENFORCED
        raise UnclearError(await _trouble(client, pod))


@asynccontextmanager
async def _place(client: Client, trial: Trial) -> AsyncIterator[str]:
    if trial.namespace:
        yield trial.namespace
        return
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    async with _made(
        client,
        NAMESPACES,
        None,
        {"metadata": {"generateName": "shardwright-doctor-", "labels": labels}},
    ) as made:
        yield made["metadata"]["name"]


@asynccontextmanager
async def _made(
    client: Client, resource: Resource, namespace: str | None, content: Mapping[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **content}
    made = await _create(client, resource, namespace, body)
    metadata = made["metadata"]
    try:
        yield made
    finally:
        try:
            await client.delete(
                resource, namespace or "", metadata["name"], uid=metadata["uid"], grace_seconds=1
            )
        except ApiError as error:
            print_note(f"{resource.kind} {metadata['name']} was left behind: {error}")


async def _create(
    client: Client, resource: Resource, namespace: str | None, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Create an object, retrying while a new namespace has no service account for pods yet."""
    for _ in range(10):
        try:
            return await client.create(resource, namespace, body)
        except ApiError as error:
            if "serviceaccount" not in str(error):
                raise
        await asyncio.sleep(LOOK_SECONDS)
    return await client.create(resource, namespace, body)


async def _becomes(client: Client, pod: Mapping[str, Any], *, ready: bool, seconds: float) -> bool:
    """Wait until a running pod is ready, or is not; return whether it came to that in time.

    Raises:
        UnclearError: the pod has ended.
    """
    deadline = monotonic() + seconds
    while (status := await _status(client, pod)).get("phase") not in _ENDED:
        if status.get("phase") == "Running" and _is_ready(status) is ready:
            return True
        if monotonic() > deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    raise UnclearError(await _trouble(client, pod))


async def _status(client: Client, pod: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = pod["metadata"]
    live = await client.get(PODS, metadata["namespace"], metadata["name"])
    # Whoever deletes it may close its network first.
    if not live or "deletionTimestamp" in live["metadata"]:
        return {"phase": _GONE}
    return mapping(live.get("status"))


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        (item.get("type"), item.get("status")) == ("Ready", "True")
        for item in mappings(status.get("conditions"))
    )


async def _trouble(client: Client, pod: Mapping[str, Any]) -> str:
    status = await _status(client, pod)
    waiting = (
        mapping(mapping(item.get("state")).get("waiting"))
        for item in mappings(status.get("containerStatuses"))
    )
    unmet = (item for item in mappings(status.get("conditions")) if item.get("status") == "False")
    said = (
        f"{text_or_empty(item.get('reason'))}: {text_or_empty(item.get('message'))}"
        for item in (*waiting, *unmet)
        if item.get("reason")
    )
    phase = text_or_empty(status.get("phase")) or "not there"
    return f"pod {pod['metadata']['name']} {next(said, f'is {phase}')}"


def _policy(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"generateName": "shardwright-doctor-"},
        "spec": {
            "podSelector": {"matchLabels": pod["metadata"]["labels"]},
            "policyTypes": ["Egress"],
        },
    }


def _pod(trial: Trial) -> dict[str, Any]:
    """Return a pod that any namespace admits, and that ends by itself."""
    seconds = int(trial.start_seconds + 2 * trial.settling_seconds) + 1
    container = {
        "name": "asks",
        "image": trial.image,
        "command": ["python3", "-c", f"import time; time.sleep({seconds})"],
        "readinessProbe": {
            "exec": {"command": ["python3", "-c", PROBE]},
            "periodSeconds": 1,
            "timeoutSeconds": 4,
        },
        "resources": {"requests": LIMITS, "limits": LIMITS},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {
        "metadata": {
            "generateName": "shardwright-doctor-",
            "labels": {LABEL: secrets.token_hex(4)},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "affinity": {"nodeAffinity": _ELSEWHERE},
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
