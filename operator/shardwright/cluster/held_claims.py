"""GPUs held by ResourceClaims in the ledger; a claim of no model's pod counts as anybody's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardwright.cluster.handover import Change, Key
from shardwright.cluster.index import Index
from shardwright.hardware.devices import DeviceUsage
from shardwright.hardware.pods import GpuUsage
from shardwright.reconcile.ledger import Ledger, OwnerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimingPod:
    """The model and group of the pod a claim is reserved for; ``owner`` is None without a model."""

    owner: OwnerKey | None = None
    group: str = ""


class HeldClaims:
    """All claims that hold GPUs; ``holder`` returns what is known of a pod, by key and uid."""

    def __init__(self, ledger: Ledger, holder: Callable[[Key, str], ClaimingPod]) -> None:
        self._ledger = ledger
        self._holder = holder
        self._claims: dict[Key, DeviceUsage] = {}
        self._by_pod: Index[Key, Key] = Index()

    def take(self, changes: Mapping[Key, Change[DeviceUsage]]) -> frozenset[str]:
        """Take over changes, and return the nodes on which they freed GPUs."""
        freed: set[str] = set()
        for key, change in changes.items():
            before, now = self._claims.pop(key, None), change.value
            # Claims and pods are watched apart and come in any order, so a claim is booked again
            # when its pod is known.
            self._by_pod.move(key, _pod_of(key, before), _pod_of(key, now))
            if now is not None:
                self._claims[key] = now
            freed |= self._bind(key)
        return frozenset(freed)

    def bind_of(self, pod: Key) -> frozenset[str]:
        """Book the claims of a pod newly known, and return the nodes on which that freed GPUs."""
        return frozenset().union(*map(self._bind, self._by_pod.get(pod)))

    def _bind(self, key: Key) -> frozenset[str]:
        claim = self._claims.get(key)
        return self._ledger.bind(_booked(key), self._usage(key, claim) if claim else None)

    def _usage(self, key: Key, claim: DeviceUsage) -> GpuUsage:
        # They stay that model's when its StatefulSet goes first.
        holder = self._holder((key[0], claim.pod), claim.pod_uid)
        known = self._ledger.bound(_booked(key)) if holder.owner is None else None
        owner, group = (known.owner, known.group) if known else (holder.owner, holder.group)
        return GpuUsage(node=claim.node, resource="", gpus=claim.gpus, owner=owner, group=group)


def _pod_of(key: Key, claim: DeviceUsage | None) -> Key | None:
    return (key[0], claim.pod) if claim and claim.pod else None


def _booked(claim: Key) -> Key:
    # No pod can have the same key.
    return claim[0], f"{claim[1]}/"
