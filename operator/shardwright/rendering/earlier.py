"""Pods as an earlier release made them, for a model's plan of today.

The pods of one release and those of another for the same differ in some fields. Differences of
today for other reasons (nodes, names of groups and Secrets, limits of a namespace) are in others.
So the pods of the earlier release are those of the running one with the former fields changed, and
if one field would be both, nobody can tell its value.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ABSENT: Final = object()
_KEYS: Final = ("name", "mountPath")
"""What tells the entries of a list apart in pods; source: patchMergeKey of the API."""


class ClashError(Exception):
    """Both have changed the same field, each in its own way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePods:
    """The pods of a release for a spec and a plan, wherever they run.

    ``template`` is that of a group of no particular number, on no particular nodes, without its
    hash. ``scripts`` are the files of the ConfigMap ``scripts_name``, ``claims`` the templates of
    volume claims.
    """

    template: Mapping[str, Any]
    scripts_name: str
    scripts: Mapping[str, str]
    claims: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Pods that an earlier release made, and those of the running one for the same."""

    made: MadePods
    now: MadePods


def merged(base: Any, changed: Any, other: Any) -> Any:
    """Return ``base`` with the changes of both others.

    Raises:
        ClashError: both have changed a field, each in its own way.

    >>> merged({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 3, "c": 4})
    {'a': 2, 'b': 3, 'c': 4}
    >>> merged([{"name": "x"}], [], [{"name": "x"}, {"name": "y"}])
    [{'name': 'y'}]
    """
    # Both may have made the same change, which is no clash.
    if changed in (base, other):
        return other
    if base == other:
        return changed
    values = (base, changed, other)
    if all(isinstance(value, Mapping) for value in values):
        return _merged_fields(base, changed, other)
    # By name and not by position: one volume more would shift all that come after it.
    key = _key_of(values)
    if key is None:
        raise ClashError
    named = ({item[key]: item for item in value} for value in values)
    return list(_merged_fields(*named).values())


def _merged_fields(
    base: Mapping[str, Any], changed: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
    names = dict.fromkeys([*changed, *other])
    found = {
        name: merged(*(value.get(name, _ABSENT) for value in (base, changed, other)))
        for name in names
    }
    return {name: value for name, value in found.items() if value is not _ABSENT}


def _key_of(values: Sequence[Any]) -> str | None:
    """Return the field that tells the entries of all these lists apart."""
    if not all(isinstance(value, list) for value in values):
        return None
    for key in _KEYS:
        named = [[_name(item, key) for item in value] for value in values]
        # A name that occurs twice does not tell which of the entries has changed.
        if all(None not in names and len({*names}) == len(names) for names in named):
            return key
    return None


def _name(item: Any, key: str) -> str | None:
    name = item.get(key) if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else None


def with_earlier(template: Mapping[str, Any], earlier: Earlier) -> dict[str, Any]:
    """Return the template of a group with the fields that the earlier release had.

    Raises:
        ClashError: a field of theirs depends on the cluster or on the nodes of the pods.
    """
    # As it would be read back: a tuple against a list would count as a change.
    here = json.loads(json.dumps(template))
    found: dict[str, Any] = merged(earlier.now.template, earlier.made.template, here)
    return found
