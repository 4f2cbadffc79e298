"""``plan NAME``: a ShardedModel of the cluster with its current plan; one for an older generation
of its spec does not count.
"""

from dataclasses import dataclass

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, read_stored
from shardwright.cli.clusters import Target
from shardwright.cli.exits import UnreachableError
from shardwright.cli.live import read_surroundings_of
from shardwright.cli.live_models import is_planned, read_model
from shardwright.cli.surroundings import Surroundings
from shardwright.hardware.stated import Stated


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A ShardedModel of the cluster; ``record`` is the plan for its present spec."""

    resource: ShardedModel
    record: PlanRecord | None
    surroundings: Surroundings


def read_named(cluster: Target, name: str, stated: Stated) -> NamedModel:
    """Return a ShardedModel with the nodes around it.

    Raises:
        InputError: it does not exist, or its spec is wrong.
        UnreachableError: no answer, no credentials, or it has no plan and nodes may not be listed.
    """
    live = cluster.ask(lambda client: read_model(client, cluster.namespace, name))
    current = live.content["metadata"]["generation"] == (live.content.get("status") or {}).get(
        "observedGeneration"
    )
    record = live.record if current and is_planned(live.content) else None
    return NamedModel(
        resource=read_stored(live.content),
        record=record,
        surroundings=_around(cluster, record, stated),
    )


def _around(cluster: Target, record: PlanRecord | None, stated: Stated) -> Surroundings:
    """Return the surroundings, empty if nodes may not be listed but there is a plan to show."""
    try:
        return read_surroundings_of(cluster, stated)
    except UnreachableError as error:
        if record is None or not error.forbidden:
            raise
        return Surroundings(nodes=(), usage=())
