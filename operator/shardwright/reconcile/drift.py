"""Does a live object still say what was rendered? Compared field by field, after the API server's defaulting.

Only rendered fields count: what the server or somebody else added beside them is none of our business,
except in lists without keys, which belong to one writer as a whole.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

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
"""Keyed lists by field name, and their key; source: listMapKey and patchMergeKey of the Kubernetes API.
``ports`` are keyed, too, but we own all of them, so they are compared in order."""

QUANTITY_FIELDS: Final = frozenset({"limits", "requests", "sizeLimit", "capacity"})
QUANTITY: Final = re.compile(r"([0-9.]+)([num]|[kMGTPE]i?|)")
SUFFIXES: Final = {"": Decimal(1), "m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")} | {
    suffix + binary: Decimal(base) ** power
    for power, suffix in enumerate("kMGTPE", 1)
    for binary, base in (("", 1000), ("i", 1024))
}
"""What a quantity's suffix multiplies by; "Ki" has a capital K, which :func:`_amount` folds."""

NO_VALUE: Final[tuple[Any, ...]] = (None, False, 0, "", {}, [], ())


def drifted_fields(rendered: Any, live: Any, path: str = "") -> tuple[str, ...]:
    """Return the paths of rendered fields that the live object does not hold, in order.

    >>> drifted_fields({"spec": {"replicas": 2, "paused": False}}, {"spec": {"replicas": 1, "extra": 9}})
    ('spec.replicas',)
    """
    if isinstance(rendered, Mapping):
        return _drifted_mapping(rendered, live, path)
    if isinstance(rendered, Sequence) and not isinstance(rendered, str):
        return _drifted_list(rendered, live, path)
    return () if _same_scalar(rendered, live, path) else (path,)


def _drifted_mapping(rendered: Mapping[str, Any], live: Any, path: str) -> tuple[str, ...]:
    if not isinstance(live, Mapping):
        return () if not rendered and live is None else (path,)
    return tuple(
        drifted
        for field, value in rendered.items()
        for drifted in drifted_fields(value, live.get(field), f"{path}.{field}" if path else str(field))
    )


def _drifted_list(rendered: Sequence[Any], live: Any, path: str) -> tuple[str, ...]:
    live = live or ()
    key = LIST_KEYS.get(path.rsplit(".", 1)[-1])
    if key is None:
        return _drifted_atomic_list(rendered, live, path)
    by_key = {item.get(key): item for item in live}
    return tuple(drifted for item in rendered for drifted in drifted_fields(item, by_key.get(item[key]), f"{path}[{item[key]}]"))


def _drifted_atomic_list(rendered: Sequence[Any], live: Sequence[Any], path: str) -> tuple[str, ...]:
    if len(rendered) != len(live):
        return (path,)
    pairs = enumerate(zip(rendered, live, strict=True))
    return tuple(drifted for index, (one, other) in pairs for drifted in drifted_fields(one, other, f"{path}[{index}]"))


def _same_scalar(rendered: Any, live: Any, path: str) -> bool:
    if live is None:
        return rendered in NO_VALUE  # the server leaves out what has no value
    if rendered == live:
        return True
    return _is_quantity(path) and (amount := _amount(rendered)) is not None and amount == _amount(live)


def _is_quantity(path: str) -> bool:
    return not QUANTITY_FIELDS.isdisjoint(path.split("."))


def _amount(quantity: Any) -> Decimal | None:
    match = QUANTITY.fullmatch(str(quantity).replace("Ki", "ki"))
    return Decimal(match[1]) * SUFFIXES[match[2]] if match else None
