"""Our objects that somebody has filled: the kept part of one larger than anything we write.

Our copy loses others' additions first, then our own fields; the object itself stays, and stays ours
as its controller says.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from shardwright.rendering.bundle import KubernetesObject

CHILD_MAX_BYTES: Final = 262_144
"""Unit: bytes of JSON, of what is kept of one object.

Basis: derived; the largest template has less than 100 KiB beside the names of its nodes, and 2,000
nodes of 63 characters have 126 KB. The API server takes 1.5 MB, and tenants write what they like.
"""

CHILD_MAX_MARKS: Final = 16_384
"""Brackets and commas of its JSON outside of texts, of which no value has less than one.

Basis: derived; the largest template has less than 3,000 beside the names of its nodes, of one
each. An empty object takes 3 bytes of JSON, and 72 as a Python value.
"""

_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
"""A text of JSON; what is in it is one value, whatever it says."""

DOMAINS: Final = ("shardwright.io/", "app.kubernetes.io/", "kueue.x-k8s.io/", "scheduling.k8s.io/")
"""How annotations and labels begin that we write. Source: ``rendering``."""

ANNOTATION_MAX_BYTES: Final = 98_304
"""Of one annotation that is ours. Basis: derived; the uids of the pods of 2,000 nodes, the longest,
take 74 KB.
"""


def is_overfull(body: bytes) -> bool:
    """Return whether an object's JSON is larger, or has more in it, than anything we write."""
    if len(body) > CHILD_MAX_BYTES:
        return True
    # Counting is fast and an upper bound; texts are cut out only where that bound is passed.
    if _marks(body) <= CHILD_MAX_MARKS:
        return False
    return _marks(_TEXT.sub(b"", body)) > CHILD_MAX_MARKS


def _marks(body: bytes) -> int:
    return sum(body.count(mark) for mark in (b"{", b"[", b","))


def bounded(whole: KubernetesObject, size: int) -> tuple[Mapping[str, Any], str]:
    """Return the kept part of an overfull object of ours, and what was too large.

    Others' annotations and labels go first, then the template and whatever anybody can still change
    in its spec: a missing field differs from the rendered one, so it is repaired.
    """
    metadata = whole["metadata"]
    own = {
        field: _own(metadata[field])
        for field in ("annotations", "labels")
        if isinstance(metadata.get(field), Mapping)
    }
    theirs = {
        field: len(json.dumps(metadata[field])) - len(json.dumps(own[field])) for field in own
    }
    # Its owner stays in any case: else a group that serves would be somebody else's by its size
    # alone (ADR 9).
    kept = {**whole, "metadata": {**metadata, **own}}
    if not is_overfull(json.dumps(kept).encode()):
        field = max(theirs, key=lambda name: theirs[name])
        return kept, f"{theirs[field]:,} bytes in metadata.{field} are not ours"
    return {
        **kept,
        "spec": _fixed(whole.get("spec") or {}),
    }, f"{size:,} bytes, and more in its spec than is ours"


def _own(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: text
        for name, text in texts.items()
        if name.startswith(DOMAINS) and len(json.dumps(text)) <= ANNOTATION_MAX_BYTES
    }


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is immutable in a spec we have made, its number of pods, and their owner."""
    template = spec.get("template")
    if not isinstance(template, Mapping):
        return {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    others = {
        name: value
        for name, value in spec.items()
        if name != "template" and len(json.dumps(value)) <= ANNOTATION_MAX_BYTES
    }
    # The labels of the template stay: by the hash in them it is told from the rendered one.
    return {**others, "template": {"metadata": {"labels": _own(labels)}, "spec": {}}}
