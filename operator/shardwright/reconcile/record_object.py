"""The ConfigMap that keeps the plan of record: written before any pod, owned like everything else."""

from collections.abc import Mapping
from typing import Any

from shardwright.api.record import RECORD_KEY, PlanRecord, decode, encode
from shardwright.errors import Problem
from shardwright.reconcile.decision import ObjectKey
from shardwright.reconcile.observed import Observed, controller_uid
from shardwright.rendering.deployment import Owner
from shardwright.rendering.hashing import with_content_hash
from shardwright.rendering.labels import MANAGED_BY, metadata
from shardwright.rendering.names import base_name, plan_configmap

LABELS = {MANAGED_BY[0]: MANAGED_BY[1], "app.kubernetes.io/component": "plan"}


def record_key(owner: Owner) -> ObjectKey:
    """Return kind and name of the ConfigMap."""
    return "ConfigMap", plan_configmap(base_name(owner.name))


def record_place(owner: Owner) -> dict[str, Any]:
    """Return the ConfigMap of any record, without what it says: where it is and whose."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(record_key(owner)[1], owner, LABELS, {})}


def record_object(owner: Owner, record: PlanRecord) -> dict[str, Any]:
    """Return the ConfigMap of a record."""
    return with_content_hash({**record_place(owner), "data": {RECORD_KEY: encode(record)}})


def read_record(owner: Owner, observed: Observed) -> PlanRecord | Problem | None:
    """Return the plan of record or why it cannot be read, None where there is none that is ours."""
    live: Mapping[str, Any] | None = observed.objects.get(record_key(owner))
    if live is None or controller_uid(live) != owner.uid:
        return None
    return decode((live.get("data") or {}).get(RECORD_KEY, ""))
