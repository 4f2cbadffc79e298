"""What `helm test` says of an operator that is not fine: no more than it saw."""

from __future__ import annotations

import asyncio

import pytest

from shardwright.cli.diagnosis import Result
from shardwright.cli.doctor_checks import Examined
from shardwright.cli.helm_test import _parser, examined_by
from shardwright.cluster.client import Client
from tests.support.scripted_api import Answer, ScriptedApi

HELD = Answer(body={"spec": {"holderIdentity": "one"}})


def examined(lease: Answer, ready: Answer, rest: Answer) -> tuple[str, list[Examined]]:
    api = ScriptedApi(rest, by_path={"/leases/": lease, "/readyz": ready})
    access = api.access()
    words = ("--namespace=s", "--name=n", "--account=a", "--seconds=0")
    url = f"{access.configuration.host}/readyz"
    client = Client(access, threads=2)
    try:
        given = _parser().parse_args([*words, f"--ready-url={url}"])
        return url, asyncio.run(examined_by(client, given))
    finally:
        client.close()
        api.stop()


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        (HELD, "s/n: one holds the Lease, and was not seen to renew it in 0 s"),
        (Answer(404), "s/n: nobody holds the Lease, so nothing is written"),
        (Answer(403), "s/n: the Lease cannot be read: HTTP 403"),
    ],
    ids=["held and not renewed", "not there", "not to be read"],
)
def test_what_is_seen_of_the_lease_is_said_and_an_operator_that_is_ready_is(
    lease: Answer, said: str
) -> None:
    _, (_, operator, _) = examined(lease, Answer(200), Answer(403))

    assert [finding.message for finding in operator.findings] == [said]


def test_only_the_answer_that_this_pod_got_is_said_and_each_check_is_made_without_the_others() -> (
    None
):
    url, found = examined(HELD, Answer(503), Answer(403))

    assert [(one.check.name, one.result) for one in found] == [
        ("ShardedModels", Result.WRONG),
        ("Operator", Result.WRONG),
        ("Rights", Result.WRONG),
    ]
    assert found[0].findings[0].message == "no answer: HTTP 403"
    assert found[1].findings[0].message == f"s/n: {url} answers 503"
