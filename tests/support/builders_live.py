"""A model on a small cluster as the command line reads it from the API server."""

from __future__ import annotations

import json
import re
from typing import Any

from shardwright.api.group_version import API_VERSION, KIND
from shardwright.api.record import PlanRecord
from shardwright.cli.live_models import LiveModel
from shardwright.cli.surroundings import Surroundings
from shardwright.hardware.nodes import GpuUsage
from shardwright.reconcile.record_object import SigningKeys, read_record, record_key
from tests.support.builders_snapshot import OWNER, Operator
from tests.support.small_cluster import GPU


def a_live_model(operator: Operator, *, rename: tuple[str, str] | None = None) -> LiveModel:
    """Return the model of an operator; with ``rename`` what comes after a start of a name is
    replaced in all objects.
    """
    objects = {key: _renamed(item, rename) for key, item in operator.cluster.objects.items()}
    stored = read_record(objects.get(record_key(OWNER)), OWNER.uid, SigningKeys())
    metadata = {
        "name": OWNER.name,
        "namespace": OWNER.namespace,
        "uid": OWNER.uid,
        "generation": operator.generation,
        "annotations": operator.annotations,
    }
    content = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, **operator.spec},
        "status": operator.status,
    }
    return LiveModel(
        content=content,
        record=stored.said if stored and isinstance(stored.said, PlanRecord) else None,
        objects=objects,
        pods=tuple(operator.cluster.pods.values()),
    )


def _renamed(item: Any, rename: tuple[str, str] | None) -> Any:
    if rename is None:
        return item
    start, tail = rename
    return json.loads(re.sub(rf"{start}[0-9a-f]+", start + tail, json.dumps(item)))


def around(operator: Operator) -> Surroundings:
    """Return the nodes of an operator's cluster, with what pods hold."""
    others = [
        GpuUsage(node=node, resource=GPU, gpus=gpus)
        for node, gpus in operator.cluster.others.items()
    ]
    return Surroundings(
        nodes=tuple(operator.cluster.facts.values()), usage=(*operator.cluster.usage(), *others)
    )
