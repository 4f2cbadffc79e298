"""The program of `helm test`: whether the chart's installation works, seen from a pod beside the
operator's.

It repairs nothing, and leaves nothing behind but objects that it could not delete.
"""

import argparse
import asyncio
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from shardwright.cluster.access import open_access
from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.connection import AccessError
from shardwright.cluster.permissions import Duties, missing_permissions, needed
from shardwright.cluster.resources import LEASES, SHARDED_MODELS
from shardwright.rendering.bundle import KubernetesObject

T = TypeVar("T")
_Checks = dict[str, Callable[[], Awaitable["InstalledCheck"]]]

LOOK_SECONDS: Final = 1.0
MODEL_ID: Final = "Qwen/Qwen2.5-0.5B-Instruct"
"""The smallest of the catalogue: what it is planned on says nothing about other models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledCheck:
    """The subject of a check, and the result."""

    what: str
    fine: bool
    said: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.fine else 'FAIL'} {self.what}: {self.said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedInstallation:
    """The installation under test: ``namespace`` has the Lease, ``models_namespace`` takes the
    model. Each check has ``seconds``.
    """

    ready_url: str
    namespace: str
    models_namespace: str
    lease_name: str
    seconds: float


def answer(model: KubernetesObject) -> str:
    """Return the operator's words about a model as it is now, empty if there are none.

    >>> answer({"metadata": {"generation": 1}, "status": {}})
    ''
    """
    status = model.get("status") or {}
    # The answer to an earlier spec is none.
    if status.get("observedGeneration") != model["metadata"]["generation"]:
        return ""
    said = (
        item
        for item in status.get("conditions", ())
        if item["type"] == "Planned" and item["status"] != "Unknown"
    )
    return next((f"{item['reason']}: {item['message']}" for item in said), "")


async def check_rights(client: Client, duties: Duties) -> InstalledCheck:
    """Ask whether the account that this runs as, the operator's own, may do all that the operator
    must.
    """
    wanted = tuple(needed(duties))
    missing = await missing_permissions(client, wanted)
    said = (
        f"may not {', '.join(missing)}; install the roles of the chart again"
        if missing
        else f"all {len(wanted)} that it needs"
    )
    return InstalledCheck(what="rights", fine=not missing, said=said)


async def check_ready(target: CheckedInstallation) -> InstalledCheck:
    """Ask the operator's pods through their Service whether one is ready."""

    async def ask() -> str:
        return await asyncio.to_thread(_get, target.ready_url)

    said = await _until(ask, lambda text: text == "200", target.seconds)
    return InstalledCheck(
        what="ready", fine=said == "200", said=f"{target.ready_url} answers {said}"
    )


async def check_leader(client: Client, target: CheckedInstallation) -> InstalledCheck:
    """See the Lease renewed: by its changes, not by the clock of whoever holds it."""

    async def read() -> tuple[str, str]:
        spec = (
            await client.get(LEASES, target.namespace, target.lease_name) or {}
        ).get("spec") or {}
        return spec.get("holderIdentity") or "", spec.get("renewTime") or ""

    before = await read()
    holder, renewed = await _until(
        # Changed, not recent: the holder's clock may be minutes off.
        read,
        lambda now: bool(now[0]) and now != before,
        target.seconds,
    )
    fine = bool(holder) and (holder, renewed) != before
    idle = f"the Lease {target.lease_name} is not renewed; the log of the operator's pods says why"
    return InstalledCheck(
        what="leader", fine=fine, said=f"{holder} leads" if fine else idle
    )


async def check_served(client: Client) -> InstalledCheck:
    """Ask the API server whether it serves ShardedModels, with their status."""
    call = Call(
        verb="get", resource=SHARDED_MODELS, path=SHARDED_MODELS.prefix, method="GET"
    )
    names = {item["name"] for item in (await client.send(call)).get("resources", ())}
    fine = {SHARDED_MODELS.plural, f"{SHARDED_MODELS.plural}/status"} <= names
    missing = (
        "is not served; install the CustomResourceDefinition "
        "(crds.enabled, or shardwright crd)"
    )
    return InstalledCheck(
        what="crd",
        fine=fine,
        said=f"{SHARDED_MODELS.api_version} {'is served' if fine else missing}",
    )


async def check_planned(client: Client, target: CheckedInstallation) -> InstalledCheck:
    """Create a model that is only planned, wait for the operator's answer, and delete it."""
    metadata = {
        # Another name each time: two tests may run at once, or one have left its model.
        "generateName": f"{target.lease_name}-test-",
        "namespace": target.models_namespace,
    }
    spec = {
        "model": {"id": MODEL_ID},
        "workload": {"concurrency": 1},
        "mode": "PlanOnly",
    }
    body = {
        "apiVersion": SHARDED_MODELS.api_version,
        "kind": SHARDED_MODELS.kind,
        "metadata": metadata,
        "spec": spec,
    }
    made = (await client.create(SHARDED_MODELS, target.models_namespace, body))[
        "metadata"
    ]

    async def read() -> str:
        return answer(
            await client.get(SHARDED_MODELS, target.models_namespace, made["name"])
            or {"metadata": made}
        )

    try:
        said = await _until(read, bool, target.seconds)
    finally:
        await client.delete(
            SHARDED_MODELS, target.models_namespace, made["name"], uid=made["uid"]
        )
    silent = (
        f"no word about a model within {target.seconds:g} "
        "s; the log of the operator's pods says why"
    )
    return InstalledCheck(what="plan", fine=bool(said), said=said or silent)


async def _until(
    ask: Callable[[], Awaitable[T]], enough: Callable[[T], bool], seconds: float
) -> T:
    """Ask again until the answer is enough or the time is over; return the last one."""
    deadline = monotonic() + seconds
    while True:
        found = await ask()
        # Asked at least once, even where a single answer takes longer than all the time there is.
        if enough(found) or monotonic() > deadline:
            return found
        await asyncio.sleep(LOOK_SECONDS)


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - the chart's own address
            return str(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return str(error.code)
    except OSError as error:
        return f"nothing ({error})"


async def _findings(
    client: Client, target: CheckedInstallation, duties: Duties, *, own: bool
) -> list[InstalledCheck]:
    rights: _Checks = {"rights": lambda: check_rights(client, duties)}
    others: _Checks = {
        "ready": lambda: check_ready(target),
        "leader": lambda: check_leader(client, target),
        "crd": lambda: check_served(client),
        "plan": lambda: check_planned(client, target),
    }
    found = []
    for what, check in (rights if own else others).items():
        try:
            found.append(await check())
        except ApiError as error:
            found.append(InstalledCheck(what=what, fine=False, said=str(error)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks, print a line for each, and return 0 if all are fine, else 1."""
    given = _parser().parse_args(arguments)
    duties = Duties(
        namespaces=_words(given.watch_namespaces),
        claims=_words(given.claims),
        fetches=given.config_fetch,
    )
    target = CheckedInstallation(
        ready_url=given.ready_url,
        namespace=given.namespace,
        models_namespace=given.models_namespace,
        lease_name=given.lease_name,
        seconds=given.seconds,
    )
    try:
        client = Client(open_access(given.kubeconfig, None, given.credentials_dir))
    except AccessError as error:
        sys.stdout.write(f"FAIL access: {error}\n")
        return 1
    try:
        found = asyncio.run(_findings(client, target, duties, own=given.rights))
    finally:
        client.close()
    sys.stdout.write("".join(f"{finding}\n" for finding in found))
    return 0 if all(finding.fine for finding in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m shardwright.controller.installed", description=__doc__
    )
    parser.add_argument(
        "--rights",
        action="store_true",
        help="check only what this account, the operator's, may do",
    )
    _add_duties(parser)
    _add_target(parser)
    parser.add_argument(
        "--credentials-dir",
        type=Path,
        help="folder of the service account's token and ca.crt",
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="reach the cluster by this file instead"
    )
    return parser


def _add_duties(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch-namespaces",
        default="",
        help="namespaces that the operator watches, with commas; empty: all",
    )
    parser.add_argument(
        "--claims",
        default="",
        help="ClusterRoles that say what is for the operator, with commas",
    )
    parser.add_argument(
        "--config-fetch",
        action="store_true",
        help="the operator has configs read from the hub",
    )


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ready-url", default="", help="address of the operator's /readyz"
    )
    parser.add_argument(
        "--namespace", default="shardwright-system", help="namespace of the Lease"
    )
    parser.add_argument(
        "--models-namespace",
        default="default",
        help="namespace of the model that is planned",
    )
    parser.add_argument("--lease-name", default="shardwright", help="name of the Lease")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long each check may take"
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
