"""The Jobs that read configs from the hub: which of them hang, and which have failed.

Starts none, and deletes none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from shardwright.cli.findings import Ailment, Finding
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty, time
from shardwright.reconcile.fetched import JobState, age_seconds, state_of
from shardwright.rendering.fetch_job import HUB_MODEL
from shardwright.rendering.labels import KIND

SLOW_SECONDS: Final = 60
"""How old a Job is that should have read. Basis: it reads for 60 s at most; what takes longer is a
node, an image or a Secret.
"""

_AILMENTS: Final = {
    JobState.FAILED: Ailment.FETCH_FAILED,
    JobState.SUSPENDED: Ailment.FETCH_SUSPENDED,
    JobState.OVERDUE: Ailment.FETCH_OVERDUE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedFetch:
    """The relevant part of such a Job: for which ShardedModel it reads which model of the hub, and
    how far it is.
    """

    namespace: str
    name: str
    owner: str
    model: str
    job: Mapping[str, Any]


def read_fetch(item: Mapping[str, Any]) -> DiagnosedFetch:
    """Read the facts of a Job that a diagnosis needs, whatever the object holds."""
    metadata = mapping(item.get("metadata"))
    status = mapping(item.get("status"))
    owners = (
        owner
        for owner in mappings(metadata.get("ownerReferences"))
        if owner.get("kind") == KIND
    )
    created = metadata.get("creationTimestamp")
    return DiagnosedFetch(
        namespace=text_or_empty(metadata.get("namespace")),
        name=text_or_empty(metadata.get("name")),
        owner=text_or_empty(next(owners, {}).get("name")),
        model=text_or_empty(mapping(metadata.get("annotations")).get(HUB_MODEL)),
        job={
            "metadata": {"creationTimestamp": created if time(created) else None},
            "status": {"conditions": tuple(mappings(status.get("conditions")))},
        },
    )


def of_fetches(jobs: Iterable[DiagnosedFetch], now: datetime) -> Iterator[Finding]:
    """Yield the Jobs that have ended without a config, and those that do not come to their end."""
    for one in jobs:
        state = state_of(one.job, now)
        age = age_seconds(one.job, now)
        ailment = _AILMENTS.get(state)
        if state is JobState.RUNNING and age is not None and age > SLOW_SECONDS:
            ailment = Ailment.FETCH_SLOW
        if ailment:
            yield Finding(
                ailment=ailment,
                objects=(one.name,),
                namespace=one.namespace,
                about=one.model,
                said=one.owner,
                # A node or an image may still be on its way.
                wrong=ailment is not Ailment.FETCH_SLOW,
            )
