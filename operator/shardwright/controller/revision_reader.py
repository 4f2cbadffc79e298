"""Revisions of models and their current requests, word for word, as read from the API server."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardwright.cluster.client import Client
from shardwright.cluster.resources import CONTROLLER_REVISIONS
from shardwright.controller.full_objects import ResolveCache, beside
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.queue import Key
from shardwright.controller.snapshots import Snapshots, owner_of
from shardwright.errors import InputError, Problem
from shardwright.reconcile.derived import nodes_of_interest
from shardwright.reconcile.observed import Observed
from shardwright.reconcile.revisions import (
    AskedSpec,
    Former,
    Revision,
    Saying,
    as_kept,
    as_now,
    read_revision,
)
from shardwright.reconcile.snapshot import Snapshot
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import base_name, revision_name
from shardwright.resolving.subject import Subject


class RevisionReader:
    """Reads what a reconcile needs beyond the caches.

    The resolution of a revision is kept while it runs, for as many models as there is room; further
    ones are read anew.
    """

    def __init__(self, client: Client, planner: PlanBroker, snapshots: Snapshots) -> None:
        self._client = client
        self._planner = planner
        self._snapshots = snapshots
        self._subjects = ResolveCache()
        self._said: dict[Key, Saying] = {}

    async def told(self, key: Key, live: KubernetesObject) -> AskedSpec:
        """Return the request of a resource, word for word.

        Raises:
            ApiError: it could not be read.
            ChangedError: it has changed, or is gone.
        """
        return AskedSpec(
            text=await self._snapshots.whole.of(live),
            config=await self._snapshots.config_text(key, live),
        )

    async def recalled(
        self, key: Key, live: KubernetesObject, snapshot: Snapshot, revision: Revision
    ) -> Snapshot:
        """Return the snapshot with a revision as it would run now, and its surroundings.

        Raises:
            ApiError: it could not be read.
        """
        former = await self._former(key, live, revision)
        cluster = snapshot.cluster
        if (
            cluster is not None
            and isinstance(former.subject, Subject)
            and isinstance(snapshot.observed, Observed)
        ):
            # Read again: a revision may ask for another scheduler, and its plan may name other
            # nodes.
            cluster = await self._snapshots.around(
                key, former.subject, nodes_of_interest(snapshot.observed, snapshot.record)
            )
        return replace(snapshot, former=former, cluster=cluster)

    def forget(self, key: Key) -> None:
        """Forget the revision a model had rolled back to: it runs its spec, or is gone."""
        self._subjects.forget(key)
        self._said.pop(key, None)

    async def _former(self, key: Key, live: KubernetesObject, revision: Revision) -> Former:
        owner = owner_of(live)
        form = (
            owner.uid,
            live["metadata"]["generation"],
            revision.digest,
            self._planner.files_version,
        )
        # The digest is part of the form: a revision that is kept anew under its number is read
        # anew.
        if known := self._subjects.of(key, form):
            return _former_of(revision, known, self._said[key])
        name = revision_name(base_name(owner.name), revision.digest)
        content = await self._client.get(CONTROLLER_REVISIONS, owner.namespace, name)
        said = await asyncio.to_thread(read_revision, content, owner.uid, revision)
        if isinstance(said, Problem):
            # A revision that is gone may be put back: it is read again.
            return Former(hash=revision.hash, subject=(said,))
        # Compared with the hash that was kept: changed defaults of the administrator may make
        # another spec of the same text (ADR 25).
        former = as_kept(
            _former_of(revision, await self._resolved(live, said, revision), said), revision
        )
        self._said[key] = said
        self._subjects.keep(key, form, former.subject)
        return former

    async def _resolved(
        self, live: KubernetesObject, said: Saying, revision: Revision
    ) -> Subject | tuple[Problem, ...]:
        async def whole(_: Mapping[str, Any]) -> str:
            return await asyncio.to_thread(as_now, said, live)

        try:
            return await self._planner.resolve(
                # Under a key beside that of the spec: otherwise the two would push each other out
                # of memory at every reconcile.
                beside(live, revision.hash),
                said.config,
                said.engine_version,
                whole,
            )
        except InputError as error:
            return error.problems


def _former_of(revision: Revision, subject: Subject | tuple[Problem, ...], said: Saying) -> Former:
    return Former(hash=revision.hash, subject=subject, plan=said.plan, pods=said.pods)
