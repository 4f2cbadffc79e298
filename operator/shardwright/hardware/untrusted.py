"""What do Kubernetes objects say that anyone may have written? Any value is taken, and nothing
raises.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([0-9]{1,18})(?:\.0+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", re.ASCII)
_LONGEST_QUANTITY: Final = 32  # characters; none that is written by a machine is longer
_DECIMAL: Final = {prefix: 1000**power for power, prefix in enumerate("kMGTP", start=1)}
_BINARY: Final = {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTP", start=1)}
_FACTORS: Final = {None: 1} | _DECIMAL | _BINARY
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_NODE_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LEFT_OUT: Final = ("feature.node.kubernetes.io/cpu-", "nvidia.com/gfd.timestamp")
_EMPTY: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawNode:
    """The parts of a Node that anything here reads; labels and resources have the right type, no
    more.

    Labels that describe the CPU (dozens per node with NFD) and the timestamp that changes every
    minute are left out. ``label_prefix`` is of labels that no kubelet can write, empty if nobody
    named one.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, Any]
    allocatable: Mapping[str, Any]
    capacity: Mapping[str, Any]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    deleting: bool
    created: datetime | None
    label_prefix: str

    def stated(self, key: str) -> str | None:
        """Return the user's statement under ``shardwright.io/<key>``: annotation, else label."""
        full = f"shardwright.io/{key}"
        return text_or_empty(self.annotations.get(full)) or self.labels.get(full) or None

    def vouched(self, key: str) -> str | None:
        """Return the statement under the prefix that no kubelet can write; without one, any
        statement.
        """
        return (
            self.labels.get(self.label_prefix + key) or None
            if self.label_prefix
            else self.stated(key)
        )


def raw_node(node: object, label_prefix: str = "") -> RawNode:
    """Return the parts of any value that might be a Node."""
    whole = mapping(node)
    metadata = mapping(whole.get("metadata"))
    status = mapping(whole.get("status"))
    return RawNode(
        name=text_or_empty(metadata.get("name")),
        labels=_labels(metadata.get("labels")),
        annotations=mapping(metadata.get("annotations")),
        allocatable=_keyed(status.get("allocatable")),
        capacity=_keyed(status.get("capacity")),
        spec=mapping(whole.get("spec")),
        status=status,
        deleting=bool(metadata.get("deletionTimestamp")),
        created=time(metadata.get("creationTimestamp")),
        label_prefix=label_prefix,
    )


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    if isinstance(value, dict):  # nearly always, and much faster to tell
        return value
    return value if value is not None and isinstance(value, Mapping) else _EMPTY


def mappings(value: object) -> tuple[Mapping[str, Any], ...]:
    """Return the mappings in a list, else nothing."""
    if not value or not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, Mapping))


def text_or_empty(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> Mapping[str, str]:
    """Return the entries of a mapping whose key and value are strings."""
    entries: Mapping[Any, Any] = mapping(value)
    return {
        key: item for key, item in entries.items() if isinstance(key, str) and isinstance(item, str)
    }


def _labels(value: object) -> Mapping[str, str]:
    entries: Mapping[Any, Any] = mapping(value)
    return {key: item for key in _kept(tuple(entries)) if isinstance(item := entries[key], str)}


@lru_cache(maxsize=256)
def _kept(keys: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(key for key in keys if isinstance(key, str) and not key.startswith(_LEFT_OUT))


def _keyed(value: object) -> Mapping[str, Any]:
    entries: Mapping[Any, Any] = mapping(value)
    # Nearly always so, and then nothing is copied.
    if set(map(type, entries)) == {str}:
        return entries
    return {key: item for key, item in entries.items() if isinstance(key, str)}


def quantity(value: object) -> int | None:
    """Return a whole, non-negative quantity (``8``, ``"8"``, ``"1k"``); None for anything else.

    >>> quantity("1k"), quantity(8), quantity("-1"), quantity("500m"), quantity(None)
    (1000, 8, None, None, None)
    """
    if isinstance(value, str):
        return _parsed(value) if len(value) <= _LONGEST_QUANTITY else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 10**18 else None
    return None


def whole_bytes(stated: str) -> int:
    """Return a quantity that a user states, and the schema has checked, in whole bytes,
    rounded up.

    >>> (
    ...     whole_bytes("64Gi"),
    ...     whole_bytes("1.5Ki"),
    ...     whole_bytes("1.5k"),
    ...     whole_bytes("500m"),
    ...     whole_bytes("0"),
    ... )
    (68719476736, 1536, 1500, 1, 0)
    """
    number = stated.rstrip("mkKMGTPi")
    unit = stated[len(number) :]
    return math.ceil(
        float(number) / 1000 if unit == "m" else float(number) * (_parsed(f"1{unit}") or 1)
    )


@lru_cache(maxsize=1024)
def _parsed(text: str) -> int | None:
    match = _QUANTITY.fullmatch(text)
    return int(match[1]) * _FACTORS[match[2]] if match else None


def positive_number(value: object) -> float | None:
    """Return a finite number above zero and at most 1e7 that is written as text, else None.

    >>> (
    ...     positive_number("2.49"),
    ...     positive_number("-1"),
    ...     positive_number("nan"),
    ...     positive_number("free"),
    ... )
    (2.49, None, None, None)
    """
    if not value or not isinstance(value, str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 < number <= 1e7 else None  # noqa: PLR2004 - 10 Tb/s in Mb/s


def time(value: object) -> datetime | None:
    """Return the moment that a text says, with its zone, else None.

    >>> (time("2026-01-02T12:00:00Z"), time("2026-01-02T12:00:00"), time("yesterday"), time(None))
    (datetime.datetime(2026, 1, 2, 12, 0, tzinfo=datetime.timezone.utc), None, None, None)
    """
    try:
        moment = datetime.fromisoformat(text_or_empty(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def label_value(value: object) -> str | None:
    """Return the value if it is a non-empty string that Kubernetes takes as a label value."""
    return value if isinstance(value, str) and _LABEL_VALUE.fullmatch(value) else None


def is_node_name(value: str) -> bool:
    """Return whether Kubernetes would take this as the name of a node."""
    return bool(_NODE_NAME.fullmatch(value))
