"""Which fields of a live object an apply would take away: those that it has from us, and that are
rendered no more.

The operator itself compares rendered fields alone (``reconcile.drift``): an apply removes by what
the API server has down as ours.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardwright.cluster.client import FIELD_MANAGER
from shardwright.hardware.untrusted import mapping, mappings
from shardwright.reconcile.drift import LIST_KEYS, NO_VALUE

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

_NOT_WRITTEN: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "status",
    }
)
_WRITTEN_METADATA: Final = frozenset({"labels", "annotations"})
_SHARED: Final = frozenset({*_WRITTEN_METADATA, "data", "nodeSelector"})

Owned = Sequence[Mapping[str, Any]] | None
"""What we own below a field, as ``fieldsV1`` writes it, once for each operation; None: all."""


def removed_fields(
    rendered: Mapping[str, Any], live: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the paths of fields that an apply of the rendered object would remove, in order.

    >>> live = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    >>> removed_fields({"spec": {"env": [{"name": "A"}]}}, {"spec": live})
    ('spec.env[A].value', 'spec.env[B]')
    """
    return tuple(
        _removed(
            _written(rendered),
            _written(live),
            _owned(live),
            "",
        )
    )


def _written(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        name: value
        for name, value in mapping(content.get("metadata")).items()
        if name in _WRITTEN_METADATA
    }
    others = {
        name: value for name, value in content.items() if name not in _NOT_WRITTEN
    }
    return {**others, "metadata": metadata}


def _owned(live: Mapping[str, Any]) -> Owned:
    managers = mappings(mapping(live.get("metadata")).get("managedFields"))
    ours = [
        mapping(item.get("fieldsV1"))
        for item in managers
        if item.get("manager") == FIELD_MANAGER and not item.get("subresource")
    ]
    return ours if managers else None


def _removed(
    rendered: Any,
    live: Any,
    owned: Owned,
    path: str,
) -> Iterator[str]:
    if isinstance(live, Mapping) and isinstance(rendered, Mapping):
        for name, value in live.items():
            below = f"{path}.{name}" if path else str(name)
            there = _below(owned, f"f:{name}")
            yield from _of_field(rendered.get(name), value, there, below)
    elif isinstance(live, list) and isinstance(rendered, Sequence):
        yield from _of_list(rendered, live, owned, path)


def _of_field(
    rendered: Any,
    live: Any,
    owned: Owned,
    path: str,
) -> Iterator[str]:
    """Yield what is removed at and below a field; of what many write, each part is named."""
    name = path.rsplit(".", 1)[-1]
    if rendered is None and name in LIST_KEYS:
        rendered = ()
    if rendered is None and name in _SHARED:
        rendered = {}
    if rendered is not None:
        yield from _removed(rendered, live, owned, path)
    elif live not in NO_VALUE and name not in DEFAULTED and owned != []:
        yield path


def _of_list(
    rendered: Sequence[Any],
    live: Sequence[Any],
    owned: Owned,
    path: str,
) -> Iterator[str]:
    key = LIST_KEYS.get(path.rsplit(".", 1)[-1])
    if key is None:
        # Of another length it differs as a whole, which a comparison of the rendered fields says.
        pairs = zip(rendered, live, strict=True) if len(rendered) == len(live) else ()
        for index, (one, other) in enumerate(pairs):
            yield from _removed(one, other, None, f"{path}[{index}]")
        return
    by_key = {item[key]: item for item in rendered}
    for item in live:
        name = item[key]
        sign = json.dumps({key: name}, separators=(",", ":"), ensure_ascii=False)
        there = _below(owned, f"k:{sign}")
        yield from _of_field(
            by_key.get(name),
            item,
            there,
            f"{path}[{name}]",
        )


def _below(
    owned: Owned,
    field: str,
) -> Owned:
    """Return what we own below a field: all of it, where the API server has it down as one."""
    if owned is None:
        return None
    found = [mapping(one[field]) for one in owned if field in one]
    return None if any(not one for one in found) else found
