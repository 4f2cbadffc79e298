"""Whole ShardedModels, read one by one: caches lack inline configs (``cluster.kept_model``)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from shardwright.api.free_form import free_form_problems, has_free_form
from shardwright.cluster.client import Client
from shardwright.cluster.resources import SHARDED_MODELS
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.queue import Priority
from shardwright.errors import InputError
from shardwright.rendering.bundle import KubernetesObject

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
