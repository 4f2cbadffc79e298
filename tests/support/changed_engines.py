"""Changes of the engine with which groups come up, hang or end, and a cluster on which they do."""

from typing import Any

from tests.support.builders_reconcile import crashed
from tests.support.small_cluster import UNREADY, SmallCluster

GOOD, HANGS, EXITS = (
    {"env": [{"name": "NCCL_DEBUG", "value": word}]} for word in ("INFO", "WARN", "TRACE")
)
"""Changes of ``spec.engine``; what an engine of :class:`Cluster` makes of each."""


class Cluster(SmallCluster):
    """A cluster whose engines do not come up where their environment says so."""

    def _run(self, item: dict[str, Any]) -> None:
        super()._run(item)
        env = {entry["name"]: entry.get("value") for entry in item["spec"]["containers"][0]["env"]}
        status, word = item["status"], env.get("NCCL_DEBUG")
        if word == "TRACE" and status.get("containerStatuses"):
            ended = crashed(item["metadata"]["name"])["status"]
            item["status"] = {
                **status,
                "conditions": [UNREADY],
                "containerStatuses": ended["containerStatuses"],
            }
        elif word == "WARN" and "deletionTimestamp" not in item["metadata"]:
            status["conditions"] = [
                entry for entry in status["conditions"] if entry["status"] != "True"
            ] or [UNREADY]
