"""Earlier revisions of a ShardedModel in a cluster: what they say, and how they would run now.

One that was altered since it was kept has the reason in place of its spec.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.api.settings import Settings
from shardwright.cli.clusters import unless_forbidden
from shardwright.cli.live_models import LiveModel, owner_of
from shardwright.cluster.client import Client
from shardwright.cluster.resources import CONTROLLER_REVISIONS
from shardwright.errors import Problem
from shardwright.reconcile.life_rules import ROLLBACK_TO
from shardwright.reconcile.revisions import (
    Former,
    Revision,
    Saying,
    as_kept,
    as_now,
    read_revision,
    revisions_of,
)
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.names import base_name, revision_name
from shardwright.resolving.stored import Administration, resolve_stored


async def read_formers(
    client: Client, model: LiveModel, spec: Mapping[str, Any], settings: Settings
) -> dict[str, Former]:
    """Return, by hash, the revisions that a model may go back to or has gone back to; none if none
    is asked for.

    ``spec`` says how groups live and how many there are.

    Raises:
        ApiError: one may not be read.
    """
    goes_back = ROLLBACK_TO in (model.content["metadata"].get("annotations") or {})
    if not goes_back and not (model.record and model.record.rollback):
        return {}
    live = {**model.content, "spec": spec}
    revisions = revisions_of(model.content.get("status") or {})
    return {
        revision.hash: await _former(client, model, live, revision, settings)
        for revision in revisions
    }


async def read_sayings(
    client: Client, content: KubernetesObject, revisions: Sequence[Revision]
) -> dict[str, Saying]:
    """Return what a model's revisions say, by digest; unreadable and altered ones are left out."""
    owner = owner_of(content)
    found = {
        revision.digest: await unless_forbidden(_said(client, owner, revision))
        for revision in revisions
    }
    return {digest: said for digest, said in found.items() if isinstance(said, Saying)}


async def _said(client: Client, owner: Owner, revision: Revision) -> Saying | Problem:
    content = await client.get(
        CONTROLLER_REVISIONS, owner.namespace, revision_name(base_name(owner.name), revision.digest)
    )
    return read_revision(content, owner.uid, revision)


async def _former(
    client: Client, model: LiveModel, live: KubernetesObject, revision: Revision, settings: Settings
) -> Former:
    said = await _said(client, model.owner, revision)
    if isinstance(said, Problem):
        return Former(hash=revision.hash, subject=(said,))
    asks = json.loads(as_now(said, live))
    subject = resolve_stored(
        asks, said.config, Administration(settings=settings), said.engine_version
    )
    return as_kept(
        Former(hash=revision.hash, subject=subject, plan=said.plan, pods=said.pods), revision
    )
