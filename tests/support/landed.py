"""Models that serve as an earlier release had made them; tests/data/landed has what that was, and
how it was made.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from shardwright.reconcile.observed import object_key
from tests.support.builders_seen import Operator
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

LANDED = Path(__file__).parents[1] / "data" / "landed"
NODES = 6
"""Nodes of 8 H100 on which they were planned."""


@cache
def landed(commit: str) -> dict[str, dict[str, Any]]:
    """Return the models of a commit by name: ``spec``, ``status``, ``objects``, and the uids of
    ``pods`` by name.
    """
    found: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((LANDED / f"{commit}.json.xz").read_bytes())
    )
    return found


def taken_over(commit: str, name: str) -> Operator:
    """Return an operator of this release that finds a model serving as an earlier one had made it,
    before its first look.
    """
    model = json.loads(json.dumps(landed(commit)[name]))
    cluster = SmallCluster(uids=count(1000))
    cluster.add_nodes(NODES)
    cluster.objects = {object_key(item): item for item in model["objects"]}
    cluster.settle()
    for pod, uid in model["pods"].items():
        cluster.pods[pod]["metadata"]["uid"] = uid
    cluster.pass_time(LOAD_SECONDS)
    return Operator(cluster, model["spec"], status=model["status"])
