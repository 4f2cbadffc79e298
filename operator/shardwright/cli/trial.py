"""Measure whether a cluster enforces NetworkPolicies: two pods and a policy between them, which are
removed again.

If pods could not be made or asked it says Unclear, and guesses nothing.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from time import monotonic
from typing import Any, Final

from shardwright.cli.findings import Enforcement
from shardwright.cli.output import print_note
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import NETWORK_POLICIES, PODS, Resource
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty

NAMESPACES: Final = Resource(prefix="/api/v1", plural="namespaces", kind="Namespace")

CLOSED_PORT: Final = 8080
OPEN_PORT: Final = 8081
LABEL: Final = "shardwright.io/doctor"

SETTLING_SECONDS: Final = 30
"""How long a policy may take until it counts as ignored. Basis: assumed; policies take effect
within seconds.
"""

TRIAL_SECONDS: Final = 180
"""How long all of it may take, pulling the image among it. The pods end by themselves after it,
too.
"""

LOOK_SECONDS: Final = 1.0
LIMITS: Final = {"cpu": "100m", "memory": "64Mi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Where it is measured (empty: in a namespace of its own) and by which image, which has Python
    3.
    """

    namespace: str
    image: str
    seconds: float = TRIAL_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The finding, and if there is none, why."""

    enforcement: Enforcement
    trouble: str = ""


class UnclearError(Exception):
    """The trial could not be made; the message says why."""


async def measure(client: Client, trial: Trial) -> Measured:
    """Return the findings of two pods, and leave nothing of the pods behind."""
    try:
        async with _place(client, trial) as namespace:
            return Measured(enforcement=await _measured(client, namespace, trial))
    except ApiError as error:
        return Measured(enforcement=Enforcement.UNCLEAR, trouble=str(error))
    except UnclearError as error:
        return Measured(enforcement=Enforcement.UNCLEAR, trouble=str(error))


async def _measured(client: Client, namespace: str, trial: Trial) -> Enforcement:
    deadline = monotonic() + trial.seconds
    mark = secrets.token_hex(4)
    listening = _pod(trial, mark, ("listen", CLOSED_PORT, OPEN_PORT))
    async with (
        _made(client, NETWORK_POLICIES, namespace, _policy(mark)),
        _made(client, PODS, namespace, listening) as listener,
    ):
        address = await _until(client, listener, deadline, _address)
        words = (
            "call",
            address,
            CLOSED_PORT,
            OPEN_PORT,
            SETTLING_SECONDS,
            "/dev/termination-log",
        )
        async with _made(client, PODS, namespace, _pod(trial, "", words)) as caller:
            return Enforcement(await _until(client, caller, deadline, _verdict))


@asynccontextmanager
async def _place(client: Client, trial: Trial) -> AsyncIterator[str]:
    if trial.namespace:
        yield trial.namespace
        return
    labels = {
        f"pod-security.kubernetes.io/{mode}": "restricted"
        for mode in ("enforce", "warn")
    }
    async with _made(
        client,
        NAMESPACES,
        None,
        {"metadata": {"generateName": "shardwright-doctor-", "labels": labels}},
    ) as made:
        yield made["metadata"]["name"]


@asynccontextmanager
async def _made(
    client: Client,
    resource: Resource,
    namespace: str | None,
    content: Mapping[str, Any],
) -> AsyncIterator[dict[str, Any]]:
    """Create an object, and delete it in the end, whatever happens."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **content}
    made = await _create(client, resource, namespace, body)
    metadata = made["metadata"]
    try:
        yield made
    finally:
        try:
            await client.delete(
                resource,
                namespace or "",
                metadata["name"],
                uid=metadata["uid"],
                grace_seconds=1,
            )
        except ApiError as error:
            print_note(f"{resource.kind} {metadata['name']} was left behind: {error}")


async def _create(
    client: Client, resource: Resource, namespace: str | None, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Create an object; a namespace that was made a moment ago has no service account for pods
    yet.
    """
    for _ in range(10):
        try:
            return await client.create(resource, namespace, body)
        except ApiError as error:
            if "serviceaccount" not in str(error):
                raise
        await asyncio.sleep(LOOK_SECONDS)
    return await client.create(resource, namespace, body)


async def _until(
    client: Client,
    pod: Mapping[str, Any],
    deadline: float,
    found: Callable[[Mapping[str, Any]], str],
) -> str:
    """Wait for the finding in a pod's status and return it.

    Raises:
        UnclearError: it does not in time.
    """
    metadata = pod["metadata"]
    while True:
        live = await client.get(PODS, metadata["namespace"], metadata["name"])
        status = mapping((live or {}).get("status"))
        if said := found(status):
            return said
        if live is None or monotonic() > deadline:
            raise UnclearError(
                f"pod {metadata['name']} "
                f"{_trouble(status) if live else 'was deleted by somebody else'}"
            )
        await asyncio.sleep(LOOK_SECONDS)


def _address(status: Mapping[str, Any]) -> str:
    running = any(
        mapping(item.get("state")).get("running")
        for item in mappings(status.get("containerStatuses"))
    )
    return text_or_empty(status.get("podIP")) if running else ""


def _verdict(status: Mapping[str, Any]) -> str:
    """Return the verdict of the calling pod, Unclear if it ended without one."""
    said = (
        text_or_empty(
            mapping(mapping(item.get("state")).get("terminated")).get("message")
        )
        for item in mappings(status.get("containerStatuses"))
    )
    word = next((word for word in said if word in set(Enforcement)), "")
    return word or (
        Enforcement.UNCLEAR if status.get("phase") in {"Succeeded", "Failed"} else ""
    )


def _trouble(status: Mapping[str, Any]) -> str:
    """Return why a pod has not come to its end."""
    waiting = (
        mapping(mapping(item.get("state")).get("waiting"))
        for item in mappings(status.get("containerStatuses"))
    )
    unmet = (
        item
        for item in mappings(status.get("conditions"))
        if item.get("status") == "False"
    )
    said = (
        f"{text_or_empty(item.get('reason'))}: {text_or_empty(item.get('message'))}"
        for item in (*waiting, *unmet)
        if item.get("reason")
    )
    return next(
        said, f"is {text_or_empty(status.get('phase')) or 'not there'} for too long"
    )


def _policy(mark: str) -> dict[str, Any]:
    spec = {
        "podSelector": {"matchLabels": {LABEL: mark}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": OPEN_PORT, "protocol": "TCP"}]}],
    }
    return {"metadata": {"generateName": "shardwright-doctor-"}, "spec": spec}


def _pod(trial: Trial, mark: str, words: tuple[str | int, ...]) -> dict[str, Any]:
    """Return a pod that any namespace lets in, and that ends by itself."""
    program = files("shardwright.cli").joinpath("reach.py").read_text()
    container = {
        "name": "reach",
        "image": trial.image,
        # The kubelet fills in $(NAME), and makes one sign of two.
        "command": ["python3", "-c", program.replace("$", "$$"), *map(str, words)],
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
            "labels": {LABEL: mark or "caller"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(trial.seconds) + 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
