"""Does a live object still hold what was rendered? Fields are compared one by one, after the API
server's defaulting. Additions beside rendered fields do not count, except in lists without keys,
which belong to one writer as a whole.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

# By key, not position: what a webhook injects before ours would be repaired for ever.
LIST_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "resourceClaims": "name",
    "claims": "name",
}
"""Keyed lists by field name, and their key; source: listMapKey and patchMergeKey of the Kubernetes
API. ``ports`` are keyed, too, but we own all of them, so they are compared in order.
"""

# The server keeps quantities as written, and "1024Mi" equals "1Gi".
QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "sizeLimit", "capacity"})
QUANTITY: Final = re.compile(r"([0-9.]+)([num]|[kMGTPE]i?|)")
SUFFIXES: Final = {
    "": Decimal(1),
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
} | {
    suffix + binary: Decimal(base) ** power
    for power, suffix in enumerate("kMGTPE", 1)
    for binary, base in (("", 1000), ("i", 1024))
}
"""What a quantity's suffix multiplies by; "Ki" has a capital K, which :func:`_amount` folds."""

NO_VALUE: Final[tuple[Any, ...]] = (None, False, 0, "", {}, [], ())


@dataclass(frozen=True, slots=True)
class Difference:
    """A rendered field that an object does not hold, and its value there (None: nothing)."""

    path: str
    live: Any


def drifted_fields(rendered: Any, live: Any) -> tuple[str, ...]:
    """Return the paths of rendered fields that the live object does not hold, in order.

    >>> drifted_fields(
    ...     {"spec": {"replicas": 2, "paused": False}}, {"spec": {"replicas": 1, "extra": 9}}
    ... )
    ('spec.replicas',)
    """
    return tuple(difference.path for difference in _differences(rendered, live, ""))


def dropped_fields(sent: Any, stored: Any) -> tuple[str, ...]:
    """Return the paths of sent fields that the API server's object lacks, in order.

    >>> dropped_fields(
    ...     {"spec": {"schedulingGroup": {"podGroupName": "a"}, "replicas": 2}},
    ...     {"spec": {"replicas": 1}},
    ... )
    ('spec.schedulingGroup',)
    """
    return tuple(
        difference.path
        for difference in _differences(sent, stored, "")
        # Lacking, not different: a server drops unknown fields silently; other differences are its
        # defaulting.
        if difference.live in (None, ())
    )


def _differences(rendered: Any, live: Any, path: str) -> Iterator[Difference]:
    if rendered == live:
        return  # most of most objects
    if isinstance(rendered, Mapping):
        yield from _of_mapping(rendered, live, path)
    elif isinstance(rendered, Sequence) and not isinstance(rendered, str):
        yield from _of_list(rendered, live, path)
    elif not _same_scalar(rendered, live, path):
        yield Difference(path, live)


def _of_mapping(rendered: Mapping[str, Any], live: Any, path: str) -> Iterator[Difference]:
    if not isinstance(live, Mapping):
        # The server leaves out an empty object that we render.
        if rendered or live is not None:
            yield Difference(path, live)
        return
    for field, value in rendered.items():
        yield from _differences(value, live.get(field), f"{path}.{field}" if path else str(field))


def _of_list(rendered: Sequence[Any], live: Any, path: str) -> Iterator[Difference]:
    live = live or ()
    key = LIST_KEYS.get(path.rsplit(".", 1)[-1])
    if key is None:
        yield from _of_atomic_list(rendered, live, path)
        return
    # Admission webhooks inject containers, variables and volumes beside ours; they stay.
    by_key = {item.get(key): item for item in live}
    for item in rendered:
        name = item.get(key)
        yield from _differences(item, by_key.get(name), f"{path}[{name}]")


def _of_atomic_list(
    rendered: Sequence[Any], live: Sequence[Any], path: str
) -> Iterator[Difference]:
    # A list without a key has one owner: an item that somebody added is drift.
    if len(rendered) != len(live):
        yield Difference(path, live)
        return
    for index, (one, other) in enumerate(zip(rendered, live, strict=True)):
        yield from _differences(one, other, f"{path}[{index}]")


def _same_scalar(rendered: Any, live: Any, path: str) -> bool:
    if live is None:
        return rendered in NO_VALUE  # the server leaves out what has no value
    return (
        _is_quantity(path) and (wanted := amount(rendered)) is not None and wanted == amount(live)
    )


def _is_quantity(path: str) -> bool:
    return not QUANTITY_FIELDS.isdisjoint(path.split("."))


def amount(quantity: Any) -> Decimal | None:
    """Return the amount of a quantity, or None if the value is none."""
    # Decimal, not float: 0.1 and 100m must be equal.
    match = QUANTITY.fullmatch(str(quantity).replace("Ki", "ki"))
    return Decimal(match[1]) * SUFFIXES[match[2]] if match else None
