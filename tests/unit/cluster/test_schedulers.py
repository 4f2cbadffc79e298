"""What the API server says of schedulers: their API in the best version that it serves, and the
right to write its objects.
"""

import asyncio
from typing import Any

from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.resources import Resource
from shardwright.cluster.schedulers import PROBE_SECONDS, SchedulerApi, Schedulers


class Discovery(Client):
    """An API server that serves one resource in each version of ``served``, and lets us do what is
    not ``forbidden``.
    """

    def __init__(self, served: dict[str, str]) -> None:
        self.served = served
        self.forbidden: set[str] = set()
        self.closed = ""
        self.asked: list[str] = []

    async def send(self, call: Call) -> dict[str, Any]:
        self.asked.append(call.path)
        await asyncio.sleep(0)
        if call.path == "/apis":
            return {"groups": [{"versions": [{"groupVersion": api}]} for api in self.served]}
        return {"resources": [{"name": self.served[call.path.removeprefix("/apis/")]}]}

    async def create(
        self, resource: Resource, namespace: str | None, body: Any, *, dry_run: bool = False
    ) -> dict[str, Any]:
        assert (resource.plural, namespace, dry_run) == ("selfsubjectaccessreviews", None, False)
        attributes = body["spec"]["resourceAttributes"]
        allowed = f"{attributes['verb']} {attributes['group']}" not in self.forbidden
        return {
            "status": {
                "allowed": allowed and (not self.closed or attributes["namespace"] != self.closed)
            }
        }


def found(api: Discovery) -> dict[str, str]:
    """Return what can be used, by scheduler."""
    answer = asyncio.run(Schedulers(api).find("models"))
    return {name: finding.api for name, finding in answer.items() if finding.api}


def reason(api: Discovery, name: str) -> str:
    problem = asyncio.run(Schedulers(api).find("models"))[name].problem
    assert problem
    assert problem.code == "SchedulerUnavailable"
    return problem.sentence()


def test_the_best_version_that_has_the_resource_is_used() -> None:
    both = {"scheduling.k8s.io/v1alpha2": "podgroups", "scheduling.k8s.io/v1beta1": "podgroups"}
    assert found(Discovery(both)) == {"Native": "scheduling.k8s.io/v1beta1"}
    other = both | {"scheduling.k8s.io/v1beta1": "priorityclasses"}
    assert found(Discovery(other)) == {"Native": "scheduling.k8s.io/v1alpha2"}


def test_kueue_needs_no_rights() -> None:
    api = Discovery(
        {"kueue.x-k8s.io/v1beta1": "localqueues", "scheduling.x-k8s.io/v1alpha1": "podgroups"}
    )
    api.forbidden = {"create scheduling.x-k8s.io", "create kueue.x-k8s.io"}
    assert found(api) == {"Kueue": "kueue.x-k8s.io/v1beta1"}


def test_a_right_that_is_missing_is_named_with_the_value_of_the_chart_that_gives_it() -> None:
    api = Discovery({"scheduling.x-k8s.io/v1alpha1": "podgroups"})
    api.forbidden = {"patch scheduling.x-k8s.io"}
    assert reason(api, "Coscheduling") == (
        "spec.placement.scheduler: Coscheduling needs a right that the operator has not: get, list, "
        "create, patch, delete podgroups "
        "of scheduling.x-k8s.io; install the chart with schedulers: [Coscheduling], or choose "
        "another scheduler"
    )


def test_a_namespace_without_its_role_takes_no_scheduler_from_the_others() -> None:
    async def scenario() -> None:
        api = Discovery({"scheduling.x-k8s.io/v1alpha1": "podgroups"})
        api.closed = "closed"
        schedulers = Schedulers(api, ("closed", "models"))
        assert (await schedulers.find("models"))["Coscheduling"] == SchedulerApi(
            api="scheduling.x-k8s.io/v1alpha1"
        )
        problem = (await schedulers.find("closed"))["Coscheduling"].problem
        assert problem
        assert (
            "a right that the operator has not in closed: get, list, create, patch, delete "
            "podgroups"
        ) in problem.sentence()

    asyncio.run(scenario())


def test_looks_that_go_on_side_by_side_ask_once() -> None:
    async def scenario() -> None:
        api = Discovery({"scheduling.x-k8s.io/v1alpha1": "podgroups"})
        schedulers = Schedulers(api)
        await asyncio.gather(*(schedulers.find("models") for _ in range(3)))
        assert api.asked == ["/apis", "/apis/scheduling.x-k8s.io/v1alpha1"]

    asyncio.run(scenario())


def test_an_api_that_is_missing_is_named_with_what_brings_it() -> None:
    assert reason(Discovery({}), "Native") == (
        "spec.placement.scheduler: Native needs podgroups of scheduling.k8s.io/v1beta1 or "
        "scheduling.k8s.io/v1alpha2, which this "
        "API server does not serve; serve it: --runtime-config and feature gate GenericWorkload "
        "(in Kubernetes 1.36 "
        "GangScheduling, too), or choose another scheduler"
    )


def test_what_is_installed_later_is_found_after_a_while_and_not_asked_for_all_the_time() -> None:
    async def scenario() -> None:
        now = 0.0
        api = Discovery({})
        schedulers = Schedulers(api, clock=lambda: now)
        assert (await schedulers.find("models"))["Coscheduling"].api == ""
        api.served = {"scheduling.x-k8s.io/v1alpha1": "podgroups"}
        await schedulers.find("models")
        assert api.asked == ["/apis"]
        now = PROBE_SECONDS
        assert (await schedulers.find("models"))[
            "Coscheduling"
        ].api == "scheduling.x-k8s.io/v1alpha1"

    asyncio.run(scenario())


def test_an_api_server_that_does_not_answer_says_nothing_of_schedulers() -> None:
    class Down(Discovery):
        async def send(self, call: Call) -> dict[str, Any]:
            raise ApiError(503, "ServiceUnavailable", call.path)

    try:
        asyncio.run(Schedulers(Down({})).find("models"))
    except ApiError as error:
        assert error.code == 503  # noqa: PT017  # the point is that it is not caught
    else:
        raise AssertionError("an outage was taken for an answer")
