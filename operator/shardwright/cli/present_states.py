"""What a cluster's parts do now, for ``doctor``: who renews the Lease, which edits wait, which
nodes, budgets, quotas and webhooks are in the way. A part that may not be read is None.

Whether something stands still is seen by looking again: clocks of two machines are not compared.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.cli.clusters import unless_forbidden
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import (
    CHILDREN,
    DISRUPTION_BUDGETS,
    LEASES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SHARDED_MODELS,
    Resource,
)
from shardwright.hardware.untrusted import mapping, mappings, text_or_empty, texts
from shardwright.reconcile.drift import amount
from shardwright.rendering.labels import MANAGED_BY, MODEL

LOOK_SECONDS: Final = 0.5
"""Between two looks at what should move. Basis: assumed; a Lease is renewed every 2 s."""

LEASE_WATCHED_SECONDS: Final = 15.0
"""How long a Lease is watched that nobody renews. Basis: as long as one lasts by default."""

ANSWER_SECONDS: Final = 10.0
"""How long an edit is watched that the operator has not looked at. Basis: assumed; a look begins
within a second, and takes less than three.
"""

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLease:
    """A Lease as it was seen: its holder (empty: nobody), and for how many seconds it was not
    renewed, None if it was.
    """

    holder: str = ""
    unrenewed_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A model whose spec was not looked at: its generation, and the one looked at last."""

    key: Key
    generation: int
    observed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Edits that wait, after :data:`ANSWER_SECONDS` of watching; ``answered`` were in that time."""

    waiting: tuple[Unanswered, ...] = ()
    answered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """Whether a node is ready, and takes new pods."""

    ready: bool = True
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod with the label of a model; ``node`` is empty without one."""

    key: Key
    node: str
    labels: Mapping[str, str]
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionBudget:
    """A PodDisruptionBudget; ``allowed`` is how many evictions its status grants now."""

    key: Key
    selector: Object | None
    allowed: int
    ours: bool

    def covers(self, pod: PlacedPod) -> bool:
        """Return whether a pod is under it."""
        return self.key[0] == pod.key[0] and _selects(self.selector, pod.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullQuota:
    """A ResourceQuota with the names of what is used up in it, each with its limit."""

    key: Key
    spent: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An admission webhook without which nothing is stored, and the Service that serves it."""

    name: str
    kind: str
    configuration: str
    service: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentState:
    """Everything here; ``deaf`` are the webhooks whose Service has no endpoint that is ready."""

    answers: Answers | None = None
    pods: Sequence[PlacedPod] | None = None
    budgets: Sequence[EvictionBudget] | None = None
    quotas: Sequence[FullQuota] | None = None
    deaf: Sequence[Webhook] | None = None


async def read_present_state(client: Client) -> PresentState:
    """Return the present state, of what may be read; takes ten seconds more if edits wait."""
    answers, pods, budgets, quotas, deaf = await asyncio.gather(
        unless_forbidden(watch_answers(client)),
        unless_forbidden(_all(client, PODS, _placed_pod, labelSelector=MODEL)),
        unless_forbidden(_all(client, DISRUPTION_BUDGETS, read_budget)),
        unless_forbidden(_all(client, RESOURCE_QUOTAS, read_full_quota)),
        unless_forbidden(_deaf_webhooks(client)),
    )
    return PresentState(
        answers=answers,
        pods=pods,
        budgets=budgets,
        quotas=None if quotas is None else [quota for quota in quotas if quota.spent],
        deaf=deaf,
    )


async def watch_lease(
    client: Client, namespace: str, name: str, longest: float | None = None
) -> SeenLease:
    """Return how a Lease was seen: at once if it is renewed, which takes two seconds. ``longest``
    bounds the seconds for which it is watched (None: as long as one lasts by default).
    """
    first = await _lease(client, namespace, name)
    if not (holder := _holder(first)):
        return SeenLease()
    lasts = first.get("leaseDurationSeconds")
    most = LEASE_WATCHED_SECONDS if longest is None else longest
    seconds = min(max(1, lasts) if isinstance(lasts, int) else LEASE_WATCHED_SECONDS, most)
    ends = monotonic() + seconds
    while monotonic() < ends:
        await asyncio.sleep(LOOK_SECONDS)
        if (now := await _lease(client, namespace, name)) != first:
            return SeenLease(holder=_holder(now))
    return SeenLease(holder=holder, unrenewed_seconds=seconds)


async def _lease(client: Client, namespace: str, name: str) -> Object:
    return mapping(mapping(await client.get(LEASES, namespace, name)).get("spec"))


def _holder(spec: Object) -> str:
    return text_or_empty(spec.get("holderIdentity"))


async def watch_answers(client: Client) -> Answers:
    """Return which edits wait for the operator's look; takes time only while some do."""
    began = left = await _unanswered(client)
    ends = monotonic() + ANSWER_SECONDS
    while left and monotonic() < ends:
        await asyncio.sleep(LOOK_SECONDS)
        now = await _unanswered(client)
        # One that was edited again meanwhile has waited, too; one that was looked at has not.
        left = {
            key: now[key]
            for key, one in left.items()
            if key in now and now[key].observed == one.observed
        }
    return Answers(waiting=tuple(left.values()), answered=len(began) - len(left))


async def _unanswered(client: Client) -> Mapping[Key, Unanswered]:
    found = await _all(client, SHARDED_MODELS, read_unanswered)
    return {one.key: one for one in found if one}


def read_unanswered(model: Object) -> Unanswered | None:
    """Return a model whose present spec was not looked at, None for any other."""
    metadata = mapping(model.get("metadata"))
    generation = metadata.get("generation")
    observed = mapping(model.get("status")).get("observedGeneration") or 0
    if not isinstance(generation, int) or not isinstance(observed, int):
        return None
    if generation <= observed or "deletionTimestamp" in metadata:
        return None
    return Unanswered(key=_key(metadata), generation=generation, observed=observed)


async def _all(
    client: Client, resource: Resource, read: Callable[[Object], Any], **selectors: Any
) -> list[Any]:
    try:
        pages = client.pages(resource, project=read, **selectors)
        return [found async for page in pages for found in page]
    except ApiError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return []
        raise


def words_in(value: object) -> tuple[str, ...]:
    """Return the strings of a list, none of anything else."""
    listed = value if isinstance(value, list) else ()
    return tuple(item for item in listed if isinstance(item, str))


def key_of(content: Object) -> Key:
    """Return namespace and name of an object."""
    return _key(mapping(content.get("metadata")))


def _key(metadata: Object) -> Key:
    return text_or_empty(metadata.get("namespace")), text_or_empty(metadata.get("name"))


def _placed_pod(pod: Object) -> PlacedPod:
    metadata = mapping(pod.get("metadata"))
    return PlacedPod(
        key=_key(metadata),
        node=text_or_empty(mapping(pod.get("spec")).get("nodeName")),
        labels=texts(metadata.get("labels")),
        ends="deletionTimestamp" in metadata,
    )


def read_node_state(node: Object) -> NodeState:
    """Return a node's state; one that reports no condition counts as ready."""
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    unready = any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions)
    cordoned = mapping(node.get("spec")).get("unschedulable") is True
    return NodeState(ready=not unready, cordoned=cordoned)


def read_budget(content: Object) -> EvictionBudget:
    """Return a PodDisruptionBudget; one without a status allows nothing, as the API server says."""
    metadata, spec = mapping(content.get("metadata")), mapping(content.get("spec"))
    allowed = mapping(content.get("status")).get("disruptionsAllowed")
    label, value = MANAGED_BY
    return EvictionBudget(
        key=_key(metadata),
        selector=None if (selector := spec.get("selector")) is None else mapping(selector),
        allowed=allowed if isinstance(allowed, int) else 0,
        ours=texts(metadata.get("labels")).get(label) == value,
    )


def read_full_quota(content: Object) -> FullQuota:
    """Return what of a ResourceQuota is used up."""
    status = mapping(content.get("status"))
    hard, used = texts(status.get("hard")), texts(status.get("used"))
    return FullQuota(
        key=key_of(content),
        spent={
            name: limit
            for name, limit in sorted(hard.items())
            if name in used and _number(used[name]) >= _number(limit)
        },
    )


def _number(text: str) -> Decimal:
    return amount(text) or Decimal(0)


_CONFIGURATIONS: Final = tuple(
    Resource(prefix="/apis/admissionregistration.k8s.io/v1", plural=f"{kind.lower()}s", kind=kind)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
_WRITTEN: Final = frozenset(
    {"*", "*/*", *(resource.plural for resource in (*CHILDREN, PODS, SECRETS, SHARDED_MODELS))}
)
_SLICES: Final = Resource(
    prefix="/apis/discovery.k8s.io/v1", plural="endpointslices", kind="EndpointSlice"
)


async def _deaf_webhooks(client: Client) -> list[Webhook]:
    needed = [
        webhook
        for resource in _CONFIGURATIONS
        for webhooks in await _all(client, resource, partial(needed_of, resource))
        for webhook in webhooks
    ]
    heard = {service: await _is_heard(client, service) for service in {w.service for w in needed}}
    return [webhook for webhook in needed if not heard[webhook.service]]


def needed_of(resource: Resource, configuration: Object) -> list[Webhook]:
    """Return the webhooks that a Service serves, and that refuse everything while it does not."""
    found = []
    for webhook in mappings(configuration.get("webhooks")):
        service = mapping(mapping(webhook.get("clientConfig")).get("service"))
        if not service or webhook.get("failurePolicy") == "Ignore" or not _is_asked(webhook):
            continue
        found.append(
            Webhook(
                name=text_or_empty(webhook.get("name")),
                kind=resource.kind,
                configuration=key_of(configuration)[1],
                service=_key(service),
            )
        )
    return found


def _is_asked(webhook: Object) -> bool:
    """Return whether a webhook is asked about anything that the operator, or a group, writes."""
    rules = mappings(webhook.get("rules"))
    return any(not _WRITTEN.isdisjoint(words_in(rule.get("resources"))) for rule in rules)


async def _is_heard(client: Client, service: Key) -> bool:
    namespace, name = service
    slices = await client.list(
        _SLICES, namespace, labelSelector=f"kubernetes.io/service-name={name}"
    )
    return any(
        # Not said is ready. Source: the API of EndpointSlices.
        mapping(endpoint.get("conditions")).get("ready") is not False
        for item in slices
        for endpoint in mappings(item.get("endpoints"))
    )


def _selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    # An empty one selects every pod, none at all no pod. Source: the API of policy/v1.
    if selector is None:
        return False
    wanted = texts(selector.get("matchLabels"))
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        _meets(one, labels) for one in mappings(selector.get("matchExpressions"))
    )


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    key, operator = text_or_empty(expression.get("key")), expression.get("operator")
    values = words_in(expression.get("values"))
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case _:  # DoesNotExist
            return key not in labels
