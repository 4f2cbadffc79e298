"""Whole ShardedModels, read one by one: caches lack inline configs (``cluster.sources``).

The last resolutions of resources, while there is room; a forgotten one is worked out anew.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

from shardwright.api.free_form import free_form_problems, has_free_form
from shardwright.cluster.client import Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.queue import Key, Priority
from shardwright.errors import InputError, Problem
from shardwright.rendering.bundle import KubernetesObject
from shardwright.resolving.subject import Subject

ReadFull = Callable[[KubernetesObject], Awaitable[str]]
"""Returns what a resource asks, inline config and all, as JSON; raises InputError where it is not
within bounds.
"""

ASKED: Final = ("apiVersion", "kind", "spec")
NAMED: Final = ("name", "namespace", "uid", "generation")
"""Fields of a resource, and of its metadata, that what it asks follows from."""

READ_SECONDS: Final = 5.0
"""How long a turn may last. Basis: chosen; 1.5 MB takes 30 ms, and others wait until a read that
hangs has ended.
"""


class ChangedError(Exception):
    """The object has changed meanwhile."""


async def as_it_is(live: KubernetesObject) -> str:
    """Return the request of a resource that is complete.

    Raises:
        InputError: its inline config is too large, or nested too deeply.
    """
    # Walking through 1.2 MB of empty objects takes 0.09 s of CPU (ADR 11).
    if has_free_form(live.get("spec")):
        return await asyncio.to_thread(_text, live)
    return _text(live)


def _text(live: KubernetesObject) -> str:
    if problems := free_form_problems(live.get("spec")):
        raise InputError(problems)
    # Without the status and the other metadata: the same request is the same text, and so one
    # question.
    asked = {field: live[field] for field in ASKED if field in live}
    return json.dumps({**asked, "metadata": {field: live["metadata"][field] for field in NAMED}})


class FullModels:
    """Reads whole models; namespaces take turns, so that one is decoded at a time (1.5 MB of JSON,
    40 MB as Python values).

    The question that then waits for the planner process is text: at most half a megabyte of
    configs, which are 18 MiB as Python values.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = FairLock()

    async def of(self, live: KubernetesObject) -> str:
        """Return the request of a resource with its inline config, within bounds.

        Raises:
            ApiError: it could not be read.
            ChangedError: it has changed, or is gone.
            InputError: its config is too large, or nested too deeply.
        """
        if not has_free_form(live.get("spec")):
            return await as_it_is(live)
        metadata = live["metadata"]
        key = metadata["namespace"], metadata["name"]
        async with self._lock.turn(key, Priority.NEW):
            found = await self._client.until(monotonic() + READ_SECONDS).get(SHARDED_MODELS, *key)
            # The answer would be kept under the form that was asked for.
            if found is None or _form(found) != _form(live):
                raise ChangedError
            return await as_it_is(found)


def _form(content: KubernetesObject) -> tuple[str, int]:
    metadata = content["metadata"]
    return metadata["uid"], metadata["generation"]


WEIGHTS_MAX: Final = 100_000
"""Tensors of models of which subjects are kept. Basis: assumed; a model has about 1,000 and at most
10,000, which are 3 MiB.
"""

_BESIDE: Final = "@revision"
"""What is added to the name of a resource for what it has gone back to; no name ends so."""

Resolution = Subject | tuple[Problem, ...]


class ResolveCache:
    """Outcomes by resource, each for one form of it; the largest are forgotten first."""

    def __init__(self, weights_max: int = WEIGHTS_MAX) -> None:
        self._weights_max = weights_max
        self._known: dict[Key, tuple[tuple[Any, ...], Resolution]] = {}
        self._users: Counter[int] = Counter()  # of models, by identity
        self._weights = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Key, form: tuple[Any, ...]) -> Resolution | None:
        """Return the resolution of a form of a resource, None if unknown."""
        known = self._known.get(key)
        return known[1] if known and known[0] == form else None

    def last(self, key: Key) -> Subject | None:
        """Return the last known subject of a resource, None if it has none."""
        known = self._known.get(key)
        return known[1] if known and isinstance(known[1], Subject) else None

    def keep(self, key: Key, form: tuple[Any, ...], outcome: Resolution) -> None:
        """Keep the resolution of one form of a resource, in place of an earlier form's."""
        # The former outcome first, so that its model is not counted twice.
        self.forget(key)
        self._known[key] = form, outcome
        self._count(outcome, 1)
        while self._weights > self._weights_max:
            self.forget(
                # The largest, not the oldest: one of a thousand tensors makes room for a thousand
                # others of one.
                max(self._known, key=lambda known: _size(self._known[known][1]))
            )

    def forget(self, key: Key) -> None:
        """Forget a resource."""
        known = self._known.pop(key, None)
        if known:
            self._count(known[1], -1)

    def _count(self, outcome: Resolution, users: int) -> None:
        if not isinstance(outcome, Subject):
            return
        for model in filter(None, (outcome.model, outcome.draft)):
            # By identity, as models are interned: comparing two takes as long as there are tensors.
            before = self._users[id(model)]
            self._users[id(model)] += users
            if not self._users[id(model)]:
                del self._users[id(model)]
            # A model that several resources share is counted once, as it is in memory once.
            if not before or before + users == 0:
                self._weights += users * len(model.weights)


def _size(outcome: Resolution) -> int:
    return len(outcome.model.weights) if isinstance(outcome, Subject) else 0


def key_beside(key: Key) -> Key:
    """Return the key of the revision a resource has rolled back to, kept beside its spec."""
    return key[0], key[1] + _BESIDE


def beside(live: KubernetesObject, hashed: str) -> dict[str, Any]:
    """Return a resource as another one, with this hash and the key of :func:`key_beside`."""
    metadata = live["metadata"]
    _, name = key_beside((metadata["namespace"], metadata["name"]))
    return {
        **live,
        "metadata": {**metadata, "name": name, "uid": f"{metadata['uid']} {hashed}"},
        "status": {},
    }
