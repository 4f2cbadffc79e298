"""Which objects that nobody owns are a model's own, left by an earlier ShardedModel of its name?

``kubectl delete --cascade=orphan`` and a restore from a backup leave objects without an owner. A
name or a label proves nothing, as tenants may write both (ADR 39). A plan of record with the
operator's signature for this namespace and name proves that the operator has served a model of
this name here; then what has the model's label, a name that follows from the model's, and no owner
at all is taken back. Only the owner is written; whatever else differs is set right as usual.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.record_object import SigningKeys, is_signed_for_place, record_key
from shardwright.reconcile.writes import Adopt, ObjectKey
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import owner_reference
from shardwright.rendering.names import follows_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An object with the label of a model, and without any owner."""

    key: ObjectKey
    uid: str


def adoptions(
    owner: Owner, orphans: Iterable[Orphan], record: KubernetesObject | None, keys: SigningKeys
) -> tuple[Adopt, ...]:
    """Return the writes that take a model's former objects back, none without proof.

    The record comes last: as long as one object is not taken back, it is still the proof.
    """
    if record is None or not _proves(record, owner, keys):
        return ()
    found = [
        _adopt(owner, orphan.key, orphan.uid)
        for orphan in sorted(orphans, key=lambda orphan: orphan.key)
        if follows_from(owner.name, orphan.key[1]) and orphan.key != record_key(owner)
    ]
    if not record["metadata"].get("ownerReferences"):
        found.append(_adopt(owner, record_key(owner), record["metadata"]["uid"]))
    return tuple(found)


def _proves(record: KubernetesObject, owner: Owner, keys: SigningKeys) -> bool:
    metadata = record["metadata"]
    if "deletionTimestamp" in metadata:
        return False
    ours = controller_uid(record) == owner.uid or not metadata.get("ownerReferences")
    return ours and is_signed_for_place(record, owner.name, keys)


def _adopt(owner: Owner, key: ObjectKey, uid: str) -> Adopt:
    return Adopt(
        kind=key[0], namespace=owner.namespace, name=key[1], uid=uid, owner=owner_reference(owner)
    )
