"""The program of ``helm test``: the doctor's checks of an installation, with its operator's rights.

It waits until all are fine or its time is over, and writes nothing.
"""

import asyncio
import sys
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from shardwright.cli.diagnosis import Finding, Result
from shardwright.cli.doctor import lines_of
from shardwright.cli.doctor_checks import CHECKS, Check, Examined, made
from shardwright.cli.output import print_error, print_lines, width_of_output
from shardwright.cli.present_states import LEASE_WATCHED_SECONDS, watch_lease
from shardwright.cli.taking_stock import TakenStock, is_served, rights_of
from shardwright.cluster.access import open_access
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.connection import AccessError
from shardwright.cluster.permissions import Duties

LOOK_SECONDS: Final = 1.0
StockOrFindings = TakenStock | tuple[Finding, ...]
"""What the doctor's own check looks at, or what was found here."""

_NOTHING: Final = TakenStock(now=datetime.now(UTC), program="shardwright", version={}, served=False)


def main(words: Sequence[str] | None = None) -> int:
    """Print the checks, and return 0 if all are fine, else 1."""
    given = _parser().parse_args(words)
    try:
        examined = asyncio.run(_tested(given))
    except AccessError as error:
        print_error(str(error))
        return 1
    print_lines(lines_of(examined, width_of_output()))
    return 0 if all(one.result is Result.FINE for one in examined) else 1


async def _tested(given: Namespace) -> list[Examined]:
    client = Client(open_access(given.kubeconfig, None, given.credentials_dir))
    try:
        return await examined_by(client, given)
    finally:
        client.close()


async def examined_by(client: Client, given: Namespace) -> list[Examined]:
    """Return each check with its findings; one that gets no answer keeps none from being made."""
    findings: dict[str, Awaitable[StockOrFindings]] = {
        "ShardedModels": _served(client),
        "Operator": _operator(client, given),
        "Rights": _rights(client, given),
    }
    return [
        await _made(check, finding) for check in CHECKS if (finding := findings.get(check.name))
    ]


async def _made(check: Check, finding: Awaitable[StockOrFindings]) -> Examined:
    try:
        found = await finding
    except ApiError as error:
        found = (Finding("NotAsked", f"no answer: {error}", "kubectl cluster-info"),)
    if isinstance(found, TakenStock):
        return made(check, found)
    return Examined(check, Result.WRONG if found else Result.FINE, found)


async def _served(client: Client) -> TakenStock:
    return replace(_NOTHING, served=await is_served(client))


async def _rights(client: Client, given: Namespace) -> TakenStock:
    duties = Duties(
        namespaces=_words(given.watch_namespaces),
        claims=_words(given.claims),
        fetches=given.config_fetch,
    )
    account = f"system:serviceaccount:{given.namespace}:{given.account}"
    return replace(_NOTHING, rights={account: await rights_of(client, duties, None)})


async def _operator(client: Client, given: Namespace) -> tuple[Finding, ...]:
    """Return what its /readyz and its Lease show, as soon as both are fine."""
    deadline = monotonic() + given.seconds
    while True:
        answer = await asyncio.to_thread(_get, given.ready_url)
        trouble = await _trouble(client, given)
        if (answer == "200" and not trouble) or monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_SECONDS)
    unready = f"{given.ready_url} answers {answer}" if answer != "200" else ""
    kubectl, it = f"kubectl -n {given.namespace}", f"{given.namespace}/{given.name}"
    said = (
        ("NotReady", unready, f"{kubectl} describe deployment {given.name}"),
        ("NobodyLeads", trouble, f"{kubectl} logs deployment/{given.name}"),
    )
    return tuple(
        Finding(reason, f"{it}: {what}", command) for reason, what, command in said if what
    )


async def _trouble(client: Client, given: Namespace) -> str:
    longest = min(given.seconds, LEASE_WATCHED_SECONDS)
    try:
        lease = await watch_lease(client, given.namespace, given.name, longest)
    except ApiError as error:
        return f"the Lease cannot be read: {error}"
    if not lease.holder:
        return "nobody holds the Lease, so nothing is written"
    if (seconds := lease.unrenewed_seconds) is not None:
        return f"{lease.holder} holds the Lease, and was not seen to renew it in {seconds:g} s"
    return ""


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - the chart's own address
            return str(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return str(error.code)
    except OSError as error:
        return f"nothing ({error})"


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m shardwright.cli.helm_test")
    for name in ("ready-url", "namespace", "name", "account"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("watch-namespaces", "claims"):  # comma-separated
        parser.add_argument(f"--{name}", default="")
    for name in ("kubeconfig", "credentials-dir"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--config-fetch", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
