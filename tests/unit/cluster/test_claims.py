"""Claims: which installation nodes and namespaces are for, and what is said to one that they are
not for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from shardwright.cluster.claims import NAMESPACES, Claims, Installation
from shardwright.cluster.reader import Timing
from tests.support.watch_api import Reply, WatchApi, a_list, line

ALL = Installation(name="system/ours")
SOME = Installation(
    name="system/ours", namespaces=("models", "others"), node_set="team"
)
THEIRS = "other/theirs"
MINE = {"shardwright-nodes": ALL.name, "shardwright-namespaces": ALL.name}
QUICK = Timing(proof=0, first_pause=0.001, longest_pause=0.1)


@pytest.mark.parametrize(
    ("installation", "owners"),
    [
        (ALL, MINE),
        (
            SOME,
            {
                "shardwright-nodes-team": SOME.name,
                "shardwright-namespace-models": SOME.name,
                "shardwright-namespace-others": SOME.name,
            },
        ),
        (
            SOME,
            {"shardwright-nodes-team": SOME.name},
        ),  # a namespace that nobody has claimed is in nobody's way
        (
            SOME,
            {"shardwright-nodes-team": SOME.name, "shardwright-namespaces": SOME.name},
        ),  # it had all until just now
    ],
)
def test_who_has_its_claims_goes_on(
    installation: Installation, owners: dict[str, str]
) -> None:
    assert (installation.complaint(owners), installation.left(owners)) == ("", {})


@pytest.mark.parametrize(
    ("installation", "owners", "said"),
    [
        (
            ALL,
            {**MINE, "shardwright-nodes": THEIRS},
            (
                "nodes without the label shardwright.io/node-set are not for system/ours: "
                "ClusterRole "
                "shardwright-nodes says other/theirs; give it nodes of its own with nodeSet, or "
                "uninstall one of the two"
            ),
        ),
        (
            ALL,
            {"shardwright-nodes": ALL.name},
            (
                "the namespaces are not for system/ours: there is no ClusterRole "
                "shardwright-namespaces; "
                "have each installation watch its own with watchNamespaces"
            ),
        ),
        (
            ALL,
            {**MINE, "shardwright-namespaces": THEIRS},
            (
                "the namespaces are not for system/ours: ClusterRole shardwright-namespaces says "
                "other/theirs; "
                "have each installation watch its own with watchNamespaces"
            ),
        ),
        (
            SOME,
            {"shardwright-nodes-team": ""},
            (
                "nodes with the label shardwright.io/node-set=team are not for system/ours: "
                "ClusterRole shardwright-nodes-team says nobody; give it nodes of its own with "
                "nodeSet, or uninstall one of the two"
            ),
        ),
        (
            SOME,
            {"shardwright-nodes-team": SOME.name, "shardwright-namespaces": THEIRS},
            (
                "another installation watches all namespaces: ClusterRole shardwright-namespaces "
                "says other/theirs; "
                "have each installation watch its own with watchNamespaces"
            ),
        ),
    ],
)
def test_what_another_has_claimed_is_said_with_its_name(
    installation: Installation, owners: dict[str, str], said: str
) -> None:
    assert installation.complaint(owners) == said


def test_a_namespace_that_another_has_claimed_is_left_to_it_and_the_others_go_on() -> (
    None
):
    owners = {
        "shardwright-nodes-team": SOME.name,
        "shardwright-namespace-models": SOME.name,
        "shardwright-namespace-others": THEIRS,
    }
    assert SOME.complaint(owners) == ""
    assert SOME.left(owners) == {
        "others": "namespace others is not for system/ours: ClusterRole "
        "shardwright-namespace-others says other/theirs; "
        "have each installation watch its own with watchNamespaces"
    }


class Roles(WatchApi):
    """Two claims, of which that on all namespaces goes over to somebody else as soon as it is
    watched.
    """

    def reply(self, path: str, query: dict[str, str], accept: str) -> Reply:
        del accept
        self.requests.append({"path": path, **query})
        name = query["fieldSelector"].removeprefix("metadata.name=")
        if "watch" not in query:
            return a_list(_claim(name, ALL.name, 1), version=1)
        changed = (
            [line(("MODIFIED", _claim(name, THEIRS, 2)))] if name == NAMESPACES else []
        )
        return Reply(parts=changed, ending="hold")


def _claim(name: str, owner: str, version: int) -> dict[str, object]:
    metadata = {
        "name": name,
        "resourceVersion": str(version),
        "annotations": {"shardwright.io/installation": owner},
    }
    return {"metadata": metadata}


def test_each_change_of_a_claim_is_told_once_both_have_been_read() -> None:
    told: list[tuple[str, Mapping[str, str]]] = []

    async def scenario() -> None:
        changed = asyncio.Event()

        def on_change(complaint: str, left: Mapping[str, str]) -> None:
            told.append((complaint, left))
            changed.set()

        claims = Claims(roles.client, ALL, on_change, QUICK)
        claims.start()
        await asyncio.wait_for(claims.read.wait(), 20)
        await asyncio.wait_for(changed.wait(), 20)
        claims.stop()

    with Roles([]) as roles:
        asyncio.run(scenario())
    assert told == [(ALL.complaint({**MINE, NAMESPACES: THEIRS}), {})]
    assert {request["path"] for request in roles.requests} == {
        "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    }
