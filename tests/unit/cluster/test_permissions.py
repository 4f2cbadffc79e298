"""The rights that an operator needs, by what it does, and which of them it lacks."""

import asyncio
from typing import Any

from shardwright.cluster.client import Client
from shardwright.cluster.permissions import Duties, missing_permissions, needed
from shardwright.cluster.resources import Resource


class Closed(Client):
    """An API server that permits nothing, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def create(
        self, resource: Resource, namespace: str | None, body: Any, *, dry_run: bool = False
    ) -> dict[str, Any]:
        assert (resource.plural, namespace, dry_run) == ("selfsubjectaccessreviews", None, False)
        self.asked.append(body["spec"]["resourceAttributes"])
        return {"status": {"allowed": False}}


def test_jobs_are_needed_in_each_namespace_where_configs_are_read_from_the_hub() -> None:
    duties = Duties(namespaces=("a", "b"), fetches=True)
    without = set(map(str, needed(Duties(namespaces=("a", "b")))))
    jobs = {"get jobs in a", "create jobs in a", "get jobs in b", "create jobs in b"}
    assert set(map(str, needed(duties))) - without == jobs


def test_no_right_is_needed_on_what_the_chart_can_leave_out_with_dra() -> None:
    groups = {one.right[0].prefix for one in needed(Duties(fetches=True))}
    assert "/apis/resource.k8s.io/v1" not in groups
    assert "/apis/resource.nvidia.com/v1beta1" in groups


def test_an_operator_that_is_installed_needs_its_claims_by_their_names() -> None:
    api = Closed()
    duties = Duties(claims=("shardwright-nodes",))
    missing = asyncio.run(missing_permissions(api, needed(duties)))
    assert missing[0] == "list clusterroles shardwright-nodes"
    assert api.asked[0] == {
        "group": "rbac.authorization.k8s.io",
        "resource": "clusterroles",
        "subresource": "",
        "name": "shardwright-nodes",
        "verb": "list",
    }
