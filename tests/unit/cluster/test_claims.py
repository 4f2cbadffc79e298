"""Claims: which installation nodes and namespaces are for, and what is said to one that they are
not for.
"""

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from shardwright.cluster.claims import Installation, read_complaint
from tests.support.scripted_api import Answer, serving

ALL = Installation(name="system/ours")
SOME = Installation(name="system/ours", namespaces=("models", "others"), node_set="team")
THEIRS = "other/theirs"
MINE = {"shardwright-nodes": ALL.name, "shardwright-namespaces": ALL.name}


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
def test_who_has_its_claims_goes_on(installation: Installation, owners: dict[str, str]) -> None:
    assert list(installation.complaints(owners)) == []


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
        (
            SOME,
            {
                "shardwright-nodes-team": SOME.name,
                "shardwright-namespace-models": SOME.name,
                "shardwright-namespace-others": THEIRS,
            },
            (
                "namespace others is not for system/ours: ClusterRole "
                "shardwright-namespace-others says other/theirs; "
                "have each installation watch its own with watchNamespaces"
            ),
        ),
    ],
)
def test_what_another_has_claimed_is_said_with_its_name(
    installation: Installation, owners: dict[str, str], said: str
) -> None:
    assert list(installation.complaints(owners)) == [said]


def test_claims_are_read_by_their_names_with_the_right_to_list_these_alone() -> None:
    roles = [
        {"metadata": {"name": name, "annotations": {"shardwright.io/installation": owner}}}
        for name, owner in (MINE | {"shardwright-namespaces": THEIRS}).items()
    ]
    answers = (Answer(body={"metadata": {}, "items": [role]}) for role in (roles[0], roles[1]))
    with serving(*answers) as (api, client):
        said = asyncio.run(read_complaint(client, ALL))
    assert said.startswith("the namespaces are not for system/ours: ClusterRole ")
    assert [parse_qs(urlsplit(path).query)["fieldSelector"] for _, path, _ in api.requests] == [
        [f"metadata.name={name}"] for name in ALL.claims
    ]
