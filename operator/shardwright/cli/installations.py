"""The installations of the operator in a cluster: whether each runs, has its rights, and has nodes
that nobody else has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardwright.cli.findings import Ailment, Finding
from shardwright.cluster.claims import Installation
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty

WATCHES: Final = "--watch-namespaces="
INSTALLATION: Final = "--installation="
"""How an operator is told the namespaces that it is for, and what it is called."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledOperator:
    """One installation: its Deployment's name, version and pods, and who holds its Lease (None:
    that may not be read).

    ``watches`` are the namespaces that it is for, all if none is named. ``installation`` is its
    name in claims, empty if it has none, ``node_set`` whose nodes are for it (None: its settings
    may not be read).
    """

    namespace: str
    name: str
    version: str
    account: str
    wanted: int
    ready: int
    holder: str | None
    watches: tuple[str, ...] = ()
    installation: str = ""
    node_set: str | None = None

    @property
    def as_installation(self) -> Installation | None:
        """Return the operator as an installation, None if its name or node set cannot be told."""
        if not self.installation or self.node_set is None:
            return None
        return Installation(
            name=self.installation, node_set=self.node_set, namespaces=self.watches
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The missing rights of a service account: ``closed`` are watched namespaces where it may do
    nothing at all.

    ``sees_pods``: those of all namespaces.
    """

    missing: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    sees_pods: bool = True


def read_operator(
    deployment: Object,
    lease: Object | None,
    *,
    lease_known: bool,
    node_set: str | None = None,
) -> InstalledOperator:
    """Read an operator from its Deployment and from the Lease of the same name."""
    metadata, spec = (
        mapping(deployment.get("metadata")),
        mapping(deployment.get("spec")),
    )
    pods, status = (
        mapping(mapping(spec.get("template")).get("spec")),
        mapping(deployment.get("status")),
    )
    wanted = spec.get("replicas", 1)
    ready = status.get("readyReplicas", 0)
    return InstalledOperator(
        namespace=text_or_empty(metadata.get("namespace")),
        name=text_or_empty(metadata.get("name")),
        version=text_or_empty(
            mapping(metadata.get("labels")).get("app.kubernetes.io/version")
        ),
        account=text_or_empty(pods.get("serviceAccountName")),
        wanted=wanted if isinstance(wanted, int) else 1,
        ready=ready if isinstance(ready, int) else 0,
        holder=text_or_empty(mapping((lease or {}).get("spec")).get("holderIdentity"))
        if lease_known
        else None,
        watches=tuple(filter(None, _told(pods, WATCHES).split(","))),
        installation=_told(pods, INSTALLATION),
        node_set=node_set,
    )


def _told(pods: Object, option: str) -> str:
    """Return the value of an option on the operator's command line, empty if it is not set."""
    words = (
        str(word)
        for container in mappings(pods.get("containers"))
        for word in container.get("args") or ()
    )
    return next(
        (word.removeprefix(option) for word in words if word.startswith(option)), ""
    )


def of_operators(
    operators: Sequence[InstalledOperator], version: str
) -> Iterator[Finding]:
    """Yield the faults of the pods of the operators; ``version`` is ours."""
    if not operators:
        yield Finding(ailment=Ailment.NOT_INSTALLED)
    for one in operators:
        if one.ready == 0 or one.ready < one.wanted:
            ready = f"{one.ready} of {one.wanted}"
            yield Finding(
                ailment=Ailment.NOT_READY,
                objects=(one.name,),
                namespace=one.namespace,
                about=ready,
                wrong=one.ready == 0,
            )
        if one.holder == "":
            yield Finding(
                ailment=Ailment.NOBODY_LEADS,
                objects=(one.name,),
                namespace=one.namespace,
            )
        if one.version != version:
            yield Finding(
                ailment=Ailment.OTHER_VERSION,
                objects=(one.name,),
                namespace=one.namespace,
                about=one.version,
                wrong=False,
            )


def of_rights(rights: Mapping[str, Rights]) -> Iterator[Finding]:
    """Yield the missing rights of service accounts, those namespaces by themselves in which one may
    do nothing.
    """
    for account, found in rights.items():
        if found.missing:
            yield Finding(
                ailment=Ailment.RIGHTS_MISSING, objects=found.missing, about=account
            )
        ailment = (
            Ailment.NAMESPACE_CLOSED if found.sees_pods else Ailment.NAMESPACE_UNSEEN
        )
        for namespace in found.closed:
            yield Finding(
                ailment=ailment,
                objects=(namespace,),
                namespace=namespace,
                about=account,
            )


def of_installations(
    operators: Sequence[InstalledOperator],
    claims: Mapping[str, str],
    node_sets: Mapping[str, tuple[str, ...]] | None,
) -> Iterator[Finding]:
    """Yield where installations get in each other's way, and which nodes are for none of them."""
    for one in operators:
        installation = one.as_installation
        if installation is None:
            continue
        for said in installation.complaints(claims):
            yield Finding(
                ailment=Ailment.CLAIM_NOT_HELD,
                objects=installation.claims,
                namespace=one.namespace,
                about=one.name,
                said=said,
            )
    if operators and node_sets:
        yield from _of_node_sets(operators, node_sets)


def _of_node_sets(
    operators: Iterable[InstalledOperator], node_sets: Mapping[str, tuple[str, ...]]
) -> Iterator[Finding]:
    """Yield the nodes with GPUs that are for no installation, and the installations that no such
    node is for.
    """
    ours = {one.node_set: one for one in operators}
    for name in sorted(node_sets.keys() - ours.keys()) if None not in ours else ():
        yield Finding(
            ailment=Ailment.NODE_SET_OF_NOBODY,
            objects=node_sets[name],
            about=name,
            wrong=bool(name),
        )
    for one in ours.values():
        if one.node_set is not None and one.node_set not in node_sets:
            yield Finding(
                ailment=Ailment.NODE_SET_EMPTY,
                objects=(one.name,),
                namespace=one.namespace,
                about=one.node_set,
                wrong=False,
            )
