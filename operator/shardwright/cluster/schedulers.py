"""Which schedulers can be told of groups here: is their API served, and may the operator write its objects?

Asked of the API server by discovery, and again after a while: what is installed later is found without a restart.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import ApiError, Call, Client
from shardwright.cluster.permissions import may
from shardwright.cluster.resources import BY_API, DISCOVERY, Resource
from shardwright.errors import Problem
from shardwright.reconcile.refusals import scheduler_unavailable
from shardwright.rendering.scheduling import ADAPTERS, Adapter

PROBE_SECONDS: Final = 20.0
"""How long an answer holds; assumed: soon enough after an installation, and a handful of requests."""

NOT_FOUND: Final = 404
VERBS: Final = ("get", "list", "create", "patch", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one scheduler: the version of its API to use, or why none can be used."""

    api: str = ""
    problem: Problem | None = None


class Schedulers:
    """What was found last, by the words of ``spec.placement.scheduler``."""

    def __init__(self, client: Client, namespaces: Collection[str] = (), clock: Callable[[], float] = monotonic) -> None:
        """``namespaces`` are those in which objects would be written, all where none is named."""
        self._client = client
        self._namespaces = namespaces
        self._clock = clock
        self._found: Mapping[str, Finding] = {}
        self._asked_at = float("-inf")

    async def find(self) -> Mapping[str, Finding]:
        """Return what there is.

        Raises:
            ApiError: the API server did not answer; that says nothing of what there is.
        """
        if self._clock() - self._asked_at >= PROBE_SECONDS:
            served = await self._served()
            self._found = {name: await self._find(name, adapter, served) for name, adapter in ADAPTERS.items()}
            self._asked_at = self._clock()
        return self._found

    async def resources(self) -> tuple[Resource, ...]:
        """Return the kinds of group objects that may be there, as last known where the API server does not say."""
        with suppress(ApiError):
            await self.find()
        apis = [found.api for name, found in self._found.items() if found.api and ADAPTERS[name].creates]
        return tuple(BY_API[api] for api in apis)

    async def _served(self) -> frozenset[str]:
        groups = (await self._get("/apis") or {}).get("groups", ())
        return frozenset(version["groupVersion"] for group in groups for version in group["versions"])

    async def _find(self, name: str, adapter: Adapter, served: frozenset[str]) -> Finding:
        usable = [api for api in adapter.apis if api in served and await self._has(api, adapter.plural)]
        api = usable[0] if usable else ""
        if not api:
            what = f"needs {adapter.plural} of {' or '.join(adapter.apis)}, which this API server does not serve"
            return Finding(problem=scheduler_unavailable(name, what, adapter.install))
        if adapter.creates and not await self._may_write(BY_API[api]):
            group = api.partition("/")[0]
            what = f"needs a right that the operator has not: {', '.join(VERBS)} {adapter.plural} of {group}"
            return Finding(problem=scheduler_unavailable(name, what, f"install the chart with schedulers: [{name}]"))
        return Finding(api=api)

    async def _has(self, api: str, plural: str) -> bool:
        listed = await self._get(f"/apis/{api}") or {}
        return any(resource["name"] == plural for resource in listed.get("resources", ()))

    async def _may_write(self, resource: Resource) -> bool:
        places = tuple(self._namespaces) or (None,)
        return all([await may(self._client, resource, "", verb, None, place) for place in places for verb in VERBS])

    async def _get(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._client.send(Call(verb="get", resource=DISCOVERY, path=path, method="GET"))
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            return None
