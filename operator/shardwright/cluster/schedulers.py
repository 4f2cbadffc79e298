"""Which gang schedulers can be used: is their API served, and may the operator write its objects?

Discovery is repeated after a while, so one installed later is found without a restart.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.kinds import BY_API
from shardwright.cluster.permissions import Needed, may
from shardwright.cluster.resources import DISCOVERY, Resource
from shardwright.errors import Problem
from shardwright.reconcile.wording import scheduler_unavailable
from shardwright.rendering.gang_scheduling import SCHEDULER_INTEGRATIONS, SchedulerIntegration

PROBE_SECONDS: Final = 20.0
"""How long an answer holds; assumed: soon enough after an installation, and a handful of requests.
"""

VERBS: Final = ("get", "list", "create", "patch", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerApi:
    """The version of a scheduler's API to use, or why none can be used."""

    api: str = ""
    problem: Problem | None = None


class Schedulers:
    """The last findings by words of ``spec.placement.scheduler``, by namespace if rights are."""

    def __init__(
        self,
        client: Client,
        namespaces: Collection[str] = (),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``namespaces`` are those in which the operator has its rights (empty: all)."""
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        # Reconciles go on side by side, and one answer is for all of them.
        self._asking = asyncio.Lock()
        self._served: Mapping[str, str] = {}
        self._found: dict[str | None, Mapping[str, SchedulerApi]] = {}
        self._asked_at = float("-inf")

    async def find(self, namespace: str) -> Mapping[str, SchedulerApi]:
        """Return the scheduler APIs for the models of a namespace.

        Raises:
            ApiError: the API server did not answer; that says nothing of the cluster.
        """
        place = namespace if self._namespaces else None
        # Rights are asked for where the model is, and reconciles side by side ask once.
        async with self._asking:
            if self._clock() - self._asked_at >= PROBE_SECONDS:
                apis = await self._apis()
                self._served = {
                    name: await self._best(integration, apis)
                    for name, integration in SCHEDULER_INTEGRATIONS.items()
                }
                # Rights may have changed with the APIs that are served, so they are asked for again
                # as well.
                self._found = {}
                self._asked_at = self._clock()
            if place not in self._found:
                self._found[place] = {
                    name: await self._find(name, api, place) for name, api in self._served.items()
                }
            return self._found[place]

    async def _apis(self) -> frozenset[str]:
        groups = (await self._get("/apis") or {}).get("groups", ())
        return frozenset(
            version["groupVersion"] for group in groups for version in group["versions"]
        )

    async def _best(self, integration: SchedulerIntegration, apis: frozenset[str]) -> str:
        for api in integration.apis:
            # A group may be served without the kind: Kubernetes serves scheduling.k8s.io for
            # PriorityClasses anyway.
            if api in apis and await self._has(api, integration.plural):
                return api
        return ""

    async def _find(self, name: str, api: str, place: str | None) -> SchedulerApi:
        integration = SCHEDULER_INTEGRATIONS[name]
        if not api:
            what = (
                f"needs {integration.plural} of {' or '.join(integration.apis)}, which this "
                "API server does not serve"
            )
            return SchedulerApi(problem=scheduler_unavailable(name, what, integration.install))
        if integration.creates and not await self._may_write(BY_API[api], place):
            where, group = f" in {place}" if place else "", api.partition("/")[0]
            what = (
                f"needs a right that the operator has not{where}: {', '.join(VERBS)} "
                f"{integration.plural}"
                f" of {group}"
            )
            return SchedulerApi(
                problem=scheduler_unavailable(
                    name, what, f"install the chart with schedulers: [{name}]"
                )
            )
        return SchedulerApi(api=api)

    async def _has(self, api: str, plural: str) -> bool:
        listed = await self._get(f"/apis/{api}") or {}
        return any(resource["name"] == plural for resource in listed.get("resources", ()))

    async def _may_write(self, resource: Resource, place: str | None) -> bool:
        return all([await may(self._client, Needed((resource, "", verb), place)) for verb in VERBS])

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._client.send(
                Call(verb="get", resource=DISCOVERY, path=path, method="GET")
            )
        except ApiError as error:
            # 404 alone says that it is not served: on any other error nothing is concluded from
            # silence.
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None
