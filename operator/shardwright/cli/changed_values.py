"""In which values do two objects differ?

Which fields of a live object would an apply remove? Those we own that would not be
stored again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.cluster.client import FIELD_MANAGER
from shardwright.hardware.untrusted import mapping, mappings
from shardwright.reconcile.drift import NO_VALUE, drifted_fields
from shardwright.rendering.bundle import KubernetesObject


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A changed field; ``before`` is its value in the cluster, None stands for a missing one."""

    path: str
    before: Any
    after: Any


def changed_values(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    """Yield the values at and below a path that differ between two objects."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from changed_values(before.get(name), after.get(name), f"{path}.{name}")
    else:
        yield FieldChange(path=path, before=before, after=after)


Owned = Mapping[str, Any]
"""The owned fields below a field, as ``fieldsV1`` writes them; empty: everything there."""


def removed_fields(wanted: KubernetesObject, live: KubernetesObject) -> tuple[str, ...]:
    """Return the paths of fields that an apply would remove, in order; ``wanted`` is the rendered
    object as the API server would store it, defaults included.

    >>> live = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    >>> removed_fields({"spec": {"env": [{"name": "A"}]}}, {"spec": live})
    ('spec.env[A].value', 'spec.env[B]')
    """
    managers = mappings(mapping(live.get("metadata")).get("managedFields"))
    ours, others = list[Owned](), list[Owned]()
    for item in managers:
        is_ours = item.get("manager") == FIELD_MANAGER
        if not (is_ours and item.get("subresource")):
            (ours if is_ours else others).append(mapping(item.get("fieldsV1")))
    found = (
        path
        for owned in (ours if managers else [{}])
        for path in _removed(owned, others, _written(live), _written(wanted), "")
    )
    return tuple(dict.fromkeys(found))


def _written(content: KubernetesObject) -> dict[str, Any]:
    metadata = mapping(content.get("metadata"))
    written = {name: metadata.get(name) for name in ("labels", "annotations")}
    return {**content, "metadata": written, "status": None}


def _removed(
    owned: Owned, others: Sequence[Owned], live: Any, wanted: Any, path: str
) -> Iterator[str]:
    owned = mapping(owned)
    if not owned:
        now, then = {path: live}, {path: wanted}
        changed = drifted_fields(then, now)
        yield from (at for at in drifted_fields(now, then) if at not in changed)
    for sign, below in owned.items():
        at, value = _at(sign, live, path)
        theirs = [mapping(one[sign]) for one in others if sign in one]
        if value in NO_VALUE or not all(theirs):
            continue
        _, new = _at(sign, wanted, path)
        if new is None and not theirs:
            yield at
        else:
            yield from _removed(below, theirs, value, new, at)


def _at(sign: str, content: Any, path: str) -> tuple[str, Any]:
    kind, _, name = sign.partition(":")
    if kind == "f":
        return f"{path}.{name}" if path else name, mapping(content).get(name)
    if kind == "k" and (key := _key(name)):
        items = (one for one in mappings(content) if key.items() <= one.items())
        return f"{path}[{next(iter(key.values()))}]", next(items, None)
    return path, None


def _key(text: str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(text))
    except ValueError:
        return {}
