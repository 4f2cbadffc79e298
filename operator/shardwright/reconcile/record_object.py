"""How is the plan of record stored? In a ConfigMap, written before any pod, owned like everything
else, and signed. Users may write ConfigMaps of the namespace, so its content counts as far as its
signature does (:mod:`shardwright.reconcile.record_trust`). Its text is ``api.record``'s, and is not
checked here.

Did the operator write this text, kept in an object that others may write? A signature is an
HMAC-SHA256 over the kind of text, the uid of its resource, and the text, so it can neither be
forged nor moved to another text. It proves the writer, never that a text is the newest: for that
the text has a generation or serial.
"""

import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from shardwright.api.record import RECORD_KEY, PlanRecord, decode, encode
from shardwright.errors import Problem
from shardwright.reconcile.observed import controller, controller_uid
from shardwright.reconcile.writes import ObjectKey
from shardwright.rendering.bundle import KubernetesObject, with_content_hash
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MANAGED_BY, owned_metadata
from shardwright.rendering.names import base_name, plan_configmap

KEY_BYTES_MIN: Final = 32
"""Length of a key in bytes. Basis: as long as what SHA-256 gives; source: RFC 2104, section 3."""


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Keys: the first signs, each verifies; without any nothing is signed and nothing verifies."""

    secrets: tuple[bytes, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def sign(self, kind: str, uid: str, text: str) -> str | None:
        """Return the signature of a text, as hexadecimal digits, or None without a key."""
        # With the first: a new key stands behind it until every replica has read both, as none can
        # verify by a key that it has not read (ADR 12).
        return next(_signatures(self, kind, uid, text), None)

    def signatures(self, kind: str, uid: str, text: str) -> tuple[str, ...]:
        """Return a text's signatures, one by each key, the signing key's first."""
        return tuple(_signatures(self, kind, uid, text))

    def verify(self, signature: str, kind: str, uid: str, text: str) -> bool:
        """Return whether a signature is that of this text, by any of the keys."""
        # compare_digest raises on text beyond ASCII, and anybody may have written the signature.
        given = signature.encode(errors="replace")
        return any(
            hmac.compare_digest(given, made.encode()) for made in _signatures(self, kind, uid, text)
        )


def _signatures(keys: SigningKeys, kind: str, uid: str, text: str) -> Iterator[str]:
    # No two messages run into each other.
    message = json.dumps([kind, uid, text]).encode()
    for secret in keys.secrets:
        yield hmac.digest(secret, message, "sha256").hex()


def read_keys(text: str) -> SigningKeys:
    """Return the keys of a file: one a line, blank lines apart.

    Raises:
        ValueError: it holds none, or one that is too short.
    """
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise ValueError(
            f"it holds no key: write one a line, of {KEY_BYTES_MIN} characters at least (openssl "
            "rand -hex 32)"
        )
    for number, line in lines:
        if (length := len(line.encode())) < KEY_BYTES_MIN:
            raise ValueError(
                f"the key in line {number} has {length} bytes, and needs {KEY_BYTES_MIN} (openssl "
                "rand -hex 32)"
            )
    return SigningKeys(tuple(line.encode() for _, line in lines))


LABELS = {MANAGED_BY[0]: MANAGED_BY[1], "app.kubernetes.io/component": "plan"}

SIGNATURE_KEY: Final = "signature"
"""Key of the ConfigMap that holds the signature of the text."""

PLACE_SIGNATURE_KEY: Final = "signatureOfPlace"
"""Key of the ConfigMap that holds the signature of the text for this namespace and name."""

KIND: Final = "PlanRecord"
"""What kind of text it is, to the signature."""

PLACE_KIND: Final = "PlanRecordOfPlace"
"""The same to the signature that holds for every ShardedModel of the name: it proves that the
operator has served one here, never that the text is this one's (:mod:`reconcile.adoption`).
"""


@dataclass(frozen=True, kw_only=True)
class StoredRecord:
    """A stored plan of record, and whether we signed it (None: no signature, or no key)."""

    text: str = field(repr=False)
    signed: bool | None = None

    @cached_property
    def said(self) -> PlanRecord | Problem:
        """Return the plan of record, or why it cannot be read."""
        # Most reconciles compare texts only; a record of 1,000 groups takes a while to parse.
        return decode(self.text)


def record_key(owner: Owner) -> ObjectKey:
    """Return kind and name of the ConfigMap."""
    return "ConfigMap", plan_configmap(base_name(owner.name))


def record_place(owner: Owner) -> dict[str, Any]:
    """Return the ConfigMap of any record without its content: its name and its owner."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned_metadata(record_key(owner)[1], owner, LABELS, {}),
    }


def record_object(owner: Owner, record: PlanRecord, keys: SigningKeys) -> dict[str, Any]:
    """Return the ConfigMap of a record, signed if there is a key."""
    text = encode(record)
    # Not left out: an earlier signature is that of another text.
    signature = keys.sign(KIND, owner.uid, text) or ""
    of_place = keys.sign(PLACE_KIND, _place(owner.namespace, owner.name), text) or ""
    data = {RECORD_KEY: text, SIGNATURE_KEY: signature, PLACE_SIGNATURE_KEY: of_place}
    return with_content_hash({**record_place(owner), "data": data})


def _place(namespace: str, model: str) -> str:
    return f"{namespace}/{model}"


def is_signed_for_place(content: KubernetesObject, model: str, keys: SigningKeys) -> bool:
    """Return whether the operator has written this record for a model of this name in its
    namespace, whatever uid that had.
    """
    data = content.get("data") or {}
    signature, text = data.get(PLACE_SIGNATURE_KEY) or "", data.get(RECORD_KEY, "")
    return bool(keys) and keys.verify(
        signature, PLACE_KIND, _place(content["metadata"].get("namespace", ""), model), text
    )


def read_record(
    content: KubernetesObject | None, owner_uid: str, keys: SigningKeys
) -> StoredRecord | None:
    """Return the plan of record in a ConfigMap, or None if this uid does not control it."""
    # A ConfigMap that another resource controls is not this model's record, signed or not.
    if content is None or controller_uid(content) != owner_uid:
        return None
    data = content.get("data") or {}
    text, signature = data.get(RECORD_KEY, ""), data.get(SIGNATURE_KEY) or None
    signed = (
        keys.verify(signature, KIND, owner_uid, text) if keys and signature is not None else None
    )
    # Taken back from an earlier model of the name: by us, and as good as not signed for this one.
    if signed is False and is_signed_for_place(content, controller(content).get("name", ""), keys):
        signed = None
    return StoredRecord(text=text, signed=signed)


def not_ours(name: str, limit: str) -> Problem:
    """Return the problem of a plan of record that somebody else has written, or put back."""
    return Problem(
        code="PlanRecordRefused",
        what=f"ConfigMap {name}",
        limit=limit,
        gap="so only what agrees with the cluster is used, and the operator writes it again",
        remedy="leave it to the operator; the audit log of the API server says who wrote it",
    )


def would_end(name: str, groups: Sequence[str]) -> Problem:
    """Return the problem of a plan that would end groups and replace an unbelieved record."""
    return Problem(
        code="PlanRecordRefused",
        what=f"ConfigMap {name}",
        limit="is not believed",
        gap=f"and a plan made anew would end {len(groups)} "
        f"groups that run, the first one {groups[0]}",
        remedy="give the operator back the key that signed it, or delete it to have a new plan "
        "made all the same",
    )
