"""What makes two models the halves of a pair: labels by which they are found, and what must be
alike for the K/V of the one to be read by the other.
"""

from collections.abc import Iterator
from typing import Any, Final

from shardwright.costs.workload import Phase
from shardwright.engines.vllm.arguments import LEASE_SECONDS, TRANSFER_PORT
from shardwright.rendering import volumes
from shardwright.rendering.bundle import digest
from shardwright.rendering.deployment import Deployment, PairMember
from shardwright.rendering.labels import POD_INDEX

PAIR: Final = "shardwright.io/pair"
ROLE: Final = "shardwright.io/role"
REVISION: Final = "shardwright.io/revision"
"""Labels of the pods of a pair's halves: its name, what they do of each request, and the hash of
what both must have alike.
"""

_REVISION_DIGITS: Final = 10


def labels_of(deployment: Deployment) -> dict[str, str]:
    """Return the labels that the pods of a half have beside a model's."""
    half = deployment.half
    if half is None:
        return {}
    return {**member_labels(half), ROLE: half.phase.lower(), REVISION: revision_of(deployment)}


def member_labels(half: PairMember | None) -> dict[str, str]:
    """Return the labels of all pods of a pair, its router's, too."""
    return {PAIR: half.pair} if half else {}


def leaders_of(deployment: Deployment, half: PairMember, phase: Phase) -> dict[str, str]:
    """Return the labels of the leaders of a half that a deployment's own can be paired with."""
    revision = {REVISION: revision_of(deployment)}
    return {**member_labels(half), ROLE: phase.lower(), **revision, POD_INDEX: "0"}


def revision_of(deployment: Deployment) -> str:
    """Return the hash of all by which one half understands the K/V of the other.

    The engine refuses the K/V of another version, model path or type; of blocks of another size it
    makes other tokens, without an error.
    """
    serving, weights = deployment.serving, deployment.weights
    alike = [
        deployment.engine_version,
        deployment.image,
        volumes.model_source(deployment),
        weights.revision,
        weights.quantization,
        serving.kv_cache_dtype,
        sorted((name, str(value)) for name, value in (serving.arguments or {}).items()),
        sorted(serving.environment),
    ]
    return digest(alike)[:_REVISION_DIGITS]


def lease_seconds(deployment: Deployment) -> int:
    """Return how long a pod that has finished all prompts still owes their K/V."""
    return LEASE_SECONDS if deployment.phase is Phase.PREFILL else 0


def environment(deployment: Deployment) -> Iterator[dict[str, Any]]:
    """Yield the variables that tell an engine where the other half can ask it."""
    if deployment.half:
        # Its own default is localhost: what it binds is also what it tells the other half.
        field = {"fieldRef": {"fieldPath": "status.podIP"}}
        yield {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": field}
        yield {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(TRANSFER_PORT)}


def ports(deployment: Deployment) -> dict[str, int]:
    """Return the port at which a half tells where its K/V is; the K/V takes free ones."""
    return {"transfer": TRANSFER_PORT} if deployment.half else {}
