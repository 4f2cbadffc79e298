"""What do PersistentVolumeClaims say of where pods can run: access modes, size, and the nodes that
reach their volumes?

Anyone may have written these objects: all functions answer with a value, and none raises. Source:
Kubernetes 1.36, core/v1 (PersistentVolumeClaim, PersistentVolume) and storage/v1 (StorageClass).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from shardwright.hardware.untrusted import mapping, mappings, quantity, text_or_empty, texts


class Sharing(StrEnum):
    """Which pods may use a volume at once."""

    EVERYWHERE = "Everywhere"  #: those of many nodes
    NODE = "Node"  #: those of one node
    POD = "Pod"  #: one


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaim:
    """A claim that exists. ``terms`` are what nodes must be like to reach its volume, or one that
    it may still be bound to, by one of them (none: each node reaches it). ``bindable``: it has a
    volume, or something makes or offers one.
    """

    name: str
    sharing: Sharing = Sharing.EVERYWHERE
    size_bytes: int | None = None
    terms: tuple[Mapping[str, Any], ...] = ()
    bindable: bool = True

    def reached_from(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node reaches its volume."""
        return not self.terms or any(_matches(term, name, labels) for term in self.terms)


ClaimsByName = Mapping[tuple[str, str], VolumeClaim]
"""Claims by namespace and name."""

_MANY: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


def read_claims(
    claims: Iterable[object], volumes: Iterable[object], classes: Iterable[object]
) -> ClaimsByName:
    """Return the claims of PersistentVolumeClaims, with what PersistentVolumes and StorageClasses
    say of their volumes.
    """
    there = {_named(item): mapping(item) for item in volumes}
    kinds = {_named(item): mapping(item) for item in classes}
    return {
        (_namespace(item), _named(item)): _claim(mapping(item), there, kinds) for item in claims
    }


def _claim(
    content: Mapping[str, Any],
    volumes: Mapping[str, Mapping[str, Any]],
    classes: Mapping[str, Mapping[str, Any]],
) -> VolumeClaim:
    spec, status = mapping(content.get("spec")), mapping(content.get("status"))
    sizes = (
        quantity(mapping(status.get("capacity")).get("storage")),
        quantity(mapping(mapping(spec.get("resources")).get("requests")).get("storage")),
    )
    size = next((each for each in sizes if each is not None), None)
    bound = text_or_empty(spec.get("volumeName"))
    terms, bindable = (_of_volume(volumes.get(bound, {})), True) if bound else ((), True)
    if not bound:
        terms, bindable = _to_come(spec, size or 0, volumes.values(), classes)
    return VolumeClaim(
        name=_named(content),
        sharing=_sharing(spec.get("accessModes")),
        size_bytes=size,
        terms=terms,
        bindable=bindable,
    )


def _sharing(modes: object) -> Sharing:
    said = frozenset(modes) if isinstance(modes, list | tuple) else frozenset()
    if said & _MANY or not said:
        return Sharing.EVERYWHERE
    return Sharing.NODE if "ReadWriteOnce" in said else Sharing.POD


def _of_volume(volume: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    affinity = mapping(mapping(volume.get("spec")).get("nodeAffinity"))
    return mappings(mapping(affinity.get("required")).get("nodeSelectorTerms"))


def _to_come(
    spec: Mapping[str, Any],
    size: int,
    volumes: Iterable[Mapping[str, Any]],
    classes: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[Mapping[str, Any], ...], bool]:
    """Return what nodes must be like for a volume that a claim may still be bound to, and whether
    there may be one. Without StorageClasses nobody knows.
    """
    name = spec.get("storageClassName")
    name = _default_class(classes) if name is None else text_or_empty(name)
    if name is None:
        return (), not classes
    kind = classes.get(name)
    made = kind is not None and kind.get("provisioner") != _NO_PROVISIONER
    if made or (kind is None and name and not classes):
        return (_topologies(kind) if kind else ()), True
    free = [item for item in volumes if _may_serve(mapping(item.get("spec")), item, name, size)]
    anywhere = any(not _of_volume(item) for item in free)
    terms = () if anywhere else tuple(term for item in free for term in _of_volume(item))
    return terms, bool(free)


def _default_class(classes: Mapping[str, Mapping[str, Any]]) -> str | None:
    defaults = (
        name
        for name, item in classes.items()
        if texts(mapping(item.get("metadata")).get("annotations")).get(_DEFAULT) == "true"
    )
    return next(defaults, None)


def _may_serve(spec: Mapping[str, Any], volume: Mapping[str, Any], name: str, size: int) -> bool:
    phase = text_or_empty(mapping(volume.get("status")).get("phase"))
    storage = quantity(mapping(spec.get("capacity")).get("storage")) or 0
    free = phase in {"", "Available"} and not spec.get("claimRef")
    return free and text_or_empty(spec.get("storageClassName")) == name and storage >= size


def _topologies(kind: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    terms = (
        mappings(item.get("matchLabelExpressions"))
        for item in mappings(kind.get("allowedTopologies"))
    )
    return tuple(
        {"matchExpressions": [{**item, "operator": "In"} for item in term]} for term in terms
    )


def _matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    asked = (
        *((item, labels) for item in mappings(term.get("matchExpressions"))),
        *((item, {"metadata.name": name}) for item in mappings(term.get("matchFields"))),
    )
    # An empty term matches no node.
    return bool(asked) and all(_holds(item, said) for item, said in asked)


def _holds(item: Mapping[str, Any], said: Mapping[str, str]) -> bool:
    value, operator = said.get(text_or_empty(item.get("key"))), item.get("operator")
    values = item.get("values")
    wanted = values if isinstance(values, list | tuple) else ()
    if operator in {"Exists", "DoesNotExist"}:
        return (value is not None) is (operator == "Exists")
    if operator in {"In", "NotIn"}:
        return (value in wanted) is (operator == "In")
    return _compares(operator, value, wanted)


def _compares(operator: object, value: str | None, wanted: Iterable[object]) -> bool:
    number, limit = quantity(value), next(map(quantity, wanted), None)
    if number is None or limit is None:
        return False
    return number > limit if operator == "Gt" else number < limit


def _named(item: object) -> str:
    return text_or_empty(mapping(mapping(item).get("metadata")).get("name"))


def _namespace(item: object) -> str:
    return text_or_empty(mapping(mapping(item).get("metadata")).get("namespace")) or "default"
