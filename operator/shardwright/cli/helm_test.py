"""The program of ``helm test``: the doctor's checks of an installation, with its operator's rights.

It waits until all are fine or its time is over, and writes nothing.
"""

import asyncio
import sys
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from shardwright import __version__
from shardwright.cli.checks import CHECKS, Examined, made
from shardwright.cli.clusters import unless_forbidden
from shardwright.cli.doctor import lines_of
from shardwright.cli.findings import Result
from shardwright.cli.output import print_error, print_lines, print_note, width_of_output
from shardwright.cli.taking_stock import (
    InstalledOperator,
    Object,
    TakenStock,
    holder_of,
    is_served,
    rights_of,
)
from shardwright.cluster.access import open_access
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.connection import AccessError
from shardwright.cluster.permissions import Duties
from shardwright.cluster.resources import LEASES

LOOK_SECONDS: Final = 1.0
MADE: Final = ("ShardedModels", "Operator", "Rights")
"""The checks that an operator has the rights for."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the checks, and return 0 if all are fine, else 1."""
    given = _parser().parse_args(words)
    try:
        examined = asyncio.run(_examined(given))
    except (AccessError, ApiError) as error:
        print_error(str(error))
        return 1
    print_lines(lines_of(examined, width_of_output()))
    return 0 if all(one.result is Result.FINE for one in examined) else 1


async def _examined(given: Namespace) -> list[Examined]:
    client = Client(open_access(given.kubeconfig, None, given.credentials_dir))
    try:
        stock = await _stock(client, given)
    finally:
        client.close()
    return [made(check, stock) for check in CHECKS if check.name in MADE]


async def _stock(client: Client, given: Namespace) -> TakenStock:
    duties = Duties(
        namespaces=_words(given.watch_namespaces),
        claims=_words(given.claims),
        fetches=given.config_fetch,
    )
    account = f"system:serviceaccount:{given.namespace}:{given.account}"
    return TakenStock(
        now=datetime.now(UTC),
        program="shardwright",
        version={},
        served=await is_served(client),
        operators=(await _operator(client, given),),
        rights={account: await rights_of(client, duties, None)},
    )


async def _operator(client: Client, given: Namespace) -> InstalledOperator:
    """Return the operator by its /readyz and its Lease, as soon as both are fine."""
    deadline = monotonic() + given.seconds
    first = await _lease(client, given)
    while True:
        answer = await asyncio.to_thread(_get, given.ready_url)
        lease = await _lease(client, given)
        # Changed, not recent: the holder's clock may be minutes off.
        holder = holder_of(lease) if lease != first else ""
        if (answer == "200" and holder) or monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_SECONDS)
    if answer != "200":
        print_note(f"{given.ready_url} answers {answer}")
    return InstalledOperator(
        namespace=given.namespace,
        name=given.name,
        version=__version__,
        account=given.account,
        wanted=given.replicas,
        ready=given.replicas if answer == "200" else 0,
        holder=holder,
    )


async def _lease(client: Client, given: Namespace) -> Object | None:
    # Without the right to read it no operator can lead; another check reports the rights.
    return await unless_forbidden(client.get(LEASES, given.namespace, given.name))


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
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
