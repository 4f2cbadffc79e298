"""Which fields of a live object an apply would take away: those that it has from us, and that are
rendered no more.

The operator itself compares rendered fields alone (``reconcile.drift``): an apply removes the
fields that the API server has down as ours.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardwright.cluster.client import FIELD_MANAGER
from shardwright.hardware.untrusted import mapping, mappings
from shardwright.reconcile.drift import LIST_KEYS, NO_VALUE
from shardwright.rendering.bundle import KubernetesObject

DEFAULTED: Final = frozenset(
    {
        "apiVersion",
        "clusterIP",
        "clusterIPs",
        "defaultMode",
        "disruptionMode",
        "dnsPolicy",
        "enableServiceLinks",
        "failureThreshold",
        "imagePullPolicy",
        "internalTrafficPolicy",
        "ipFamilies",
        "ipFamilyPolicy",
        "kind",
        "nodePort",
        "periodSeconds",
        "persistentVolumeClaimRetentionPolicy",
        "podManagementPolicy",
        "protocol",
        "restartPolicy",
        "revisionHistoryLimit",
        "schedulerName",
        "scheme",
        "serviceAccount",
        "sessionAffinity",
        "status",
        "successThreshold",
        "targetPort",
        "terminationGracePeriodSeconds",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "timeoutSeconds",
        "type",
        "updateStrategy",
        "volumeMode",
    }
)
"""Fields of pods, StatefulSets, claims, Services and PodGroups that the API server fills in, and
has down as ours once a POST of ours made the object. Source: ``SetDefaults_*`` of Kubernetes 1.36.
"""

_WRITTEN_METADATA: Final = frozenset({"labels", "annotations"})
_FREE_FORM: Final = frozenset(
    {
        *_WRITTEN_METADATA,
        "data",
        "matchLabels",
        "nodeSelector",
        "selector",
    }
)
"""Maps whose keys are anybody's words, and which many write."""
_SHARED: Final = frozenset({*LIST_KEYS, *_FREE_FORM})

Owned = Sequence[Mapping[str, Any]] | None
"""What is owned below a field, as ``fieldsV1`` writes it, once for each manager; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A field: its name, its path, the owners below it, and whether its name is free-form."""

    name: str = ""
    path: str = ""
    ours: Owned
    theirs: Owned
    free: bool = False

    def field(
        self,
        name: str,
    ) -> "_Place":
        """Return the place of a field of it."""
        path = f"{self.path}.{name}" if self.path else name
        return self._below(
            name,
            path,
            lambda owned: _below(owned, f"f:{name}"),
        )

    def keyed(
        self,
        key: str,
        value: Any,
    ) -> "_Place":
        """Return the place of an item of it that has this key."""
        sign = json.dumps({key: value}, separators=(",", ":"), ensure_ascii=False)
        return self._below(
            "",
            f"{self.path}[{value}]",
            lambda owned: _below(owned, f"k:{sign}"),
        )

    def item(
        self,
        index: int,
        live: Any,
    ) -> "_Place":
        """Return the place of an item of it that is known by its index alone."""
        return self._below(
            "",
            f"{self.path}[{index}]",
            lambda owned: _of_item(owned, live),
        )

    def _below(
        self,
        name: str,
        path: str,
        owned: Callable[[Owned], Owned],
    ) -> "_Place":
        return _Place(
            name=name,
            path=path,
            ours=owned(self.ours),
            theirs=owned(self.theirs),
            free=self.free or self.name in _FREE_FORM,
        )


def removed_fields(
    rendered: KubernetesObject, live: KubernetesObject
) -> tuple[str, ...]:
    """Return the paths of fields that an apply of the rendered object would remove, in order.

    >>> live = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    >>> removed_fields({"spec": {"env": [{"name": "A"}]}}, {"spec": live})
    ('spec.env[A].value', 'spec.env[B]')
    """
    ours, theirs = _owned(live)
    place = _Place(ours=ours, theirs=theirs)
    return tuple(
        _removed(
            _written(rendered),
            _written(live),
            place,
        )
    )


def _written(content: KubernetesObject) -> dict[str, Any]:
    metadata = {
        name: value
        for name, value in mapping(content.get("metadata")).items()
        if name in _WRITTEN_METADATA
    }
    return {**content, "metadata": metadata}


def _owned(live: KubernetesObject) -> tuple[Owned, Owned]:
    """Return the fields of an object that we own, and those of others."""
    managers = mappings(mapping(live.get("metadata")).get("managedFields"))
    ours, theirs = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    for item in managers:
        is_ours = item.get("manager") == FIELD_MANAGER
        if not (is_ours and item.get("subresource")):
            (ours if is_ours else theirs).append(mapping(item.get("fieldsV1")))
    return ours if managers else None, theirs


def _removed(
    rendered: Any,
    live: Any,
    place: _Place,
) -> Iterator[str]:
    if isinstance(live, Mapping) and isinstance(rendered, Mapping):
        for name, value in live.items():
            yield from _of_field(rendered.get(name), value, place.field(str(name)))
    elif isinstance(live, list) and isinstance(rendered, Sequence):
        yield from _of_list(rendered, live, place)


def _of_field(
    rendered: Any,
    live: Any,
    place: _Place,
) -> Iterator[str]:
    """Yield the removals at and below a field; if many write it, each part is named."""
    if rendered is None and _leaves_alone(live, place):
        return
    shared = not place.free and place.name in _SHARED
    in_parts = isinstance(live, Mapping) and place.theirs
    if rendered is None and (shared or in_parts):
        rendered = () if isinstance(live, list) else {}
    if rendered is None:
        yield place.path
    else:
        yield from _removed(rendered, live, place)


def _leaves_alone(
    live: Any,
    place: _Place,
) -> bool:
    """Return whether an apply without a field takes nothing away: it has no value, or it is the API
    server's or somebody else's, too.
    """
    return (
        live in NO_VALUE
        or place.ours == []
        or place.theirs is None
        or (not place.free and place.name in DEFAULTED)
    )


def _of_list(
    rendered: Sequence[Any],
    live: Sequence[Any],
    place: _Place,
) -> Iterator[str]:
    key = None if place.free else LIST_KEYS.get(place.name)
    if key is None or not all(mapping(item).get(key) for item in (*rendered, *live)):
        # Of another length it differs as a whole, which a comparison of the rendered fields says.
        pairs = zip(rendered, live, strict=True) if len(rendered) == len(live) else ()
        for index, (one, other) in enumerate(pairs):
            yield from _removed(one, other, place.item(index, other))
        return
    by_key = {item[key]: item for item in rendered}
    for item in live:
        name = item[key]
        yield from _of_field(by_key.get(name), item, place.keyed(key, name))


def _below(
    owned: Owned,
    field: str,
) -> Owned:
    """Return the owned parts below a field: all of it, if the API server has it down as one."""
    if owned is None:
        return None
    found = [mapping(one[field]) for one in owned if field in one]
    return None if any(not one for one in found) else found


def _of_item(
    owned: Owned,
    live: Any,
) -> Owned:
    """Return the owned parts of an item of a list, all of it if the list has no keys."""
    signs = [sign for one in owned or () for sign in one if sign.startswith("k:")]
    if not signs:
        return None if owned else owned
    fields = mapping(live).items()
    of_it = (
        sign for sign in signs if json.loads(sign.removeprefix("k:")).items() <= fields
    )
    sign = next(of_it, None)
    return [] if sign is None else _below(owned, sign)
