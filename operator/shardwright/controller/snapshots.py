"""What one reconcile needs, from the caches or, if uncached or to be certain, the API server."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.cluster.client import ApiError, Client, Urgency
from shardwright.cluster.handover import Change
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.resources import NODES, PODS, SHARDED_MODELS, STATEFUL_SETS
from shardwright.cluster.schedulers import SchedulerApi, Schedulers
from shardwright.cluster.sources import project_child, project_node
from shardwright.cluster.store import Ref
from shardwright.controller.cluster_cache import ClusterCache, base_key
from shardwright.controller.contents import ConfigMaps, contents
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.fetches import believed_text, config_place, read_fetching
from shardwright.controller.full_objects import READ_SECONDS, FullModels
from shardwright.controller.observations import Observation
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.queue import Key, Priority
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import lacking
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.inventory import KnownPods, NodeExclusion
from shardwright.hardware.nodes import BareNode
from shardwright.hardware.provisioning import is_provisioned_later
from shardwright.reconcile.adoption import adoptions
from shardwright.reconcile.derived import nodes_of_interest
from shardwright.reconcile.disruption import turns_left
from shardwright.reconcile.members import Member, read_member
from shardwright.reconcile.observed import STATEFUL_SET, Observed, controller_uid, object_key
from shardwright.reconcile.record_object import SigningKeys, StoredRecord, record_key
from shardwright.reconcile.record_trust import (
    SERIAL,
    Believed,
    RecordEvidence,
    believed,
    kept_version,
)
from shardwright.reconcile.snapshot import Cluster, ModelResource, Snapshot
from shardwright.reconcile.wording import not_permitted
from shardwright.reconcile.writes import Adopt, ObjectKey
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.labels import MODEL
from shardwright.rendering.names import base_name
from shardwright.resolving.subject import Subject

UNSERVED_SECONDS: Final = 10.0
"""How long a kind counts as missing after a write has found it so. Basis: assumed; what is
installed later is tried again.
"""


RecordForm = tuple[str, str, int, SigningKeys]
"""The form in which a signed plan of record was believed: its ConfigMap's version, its model's uid,
the newest serial that the model names, and the keys.
"""

NAMED_MAX: Final = 100
"""Objects of a model that a reconcile reads though no cache shows them. Basis: assumed; pods name
whatever owner somebody has written.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetForAll:
    """Settings for all models: groups down on purpose at once (None: no limit), the DNS domain."""

    most_moving: int | None = None
    cluster_domain: str = "cluster.local"


class Snapshots:
    """Makes snapshots of the caches; ``keys`` returns those that sign plans of record."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        planner: PlanBroker,
        set_for_all: SetForAll,
        keys: Callable[[], SigningKeys] = SigningKeys,
    ) -> None:
        self.keys = keys
        self._client = client
        self._cache = cache
        self._planner = planner
        self._set_for_all = set_for_all
        self._schedulers = Schedulers(client, cache.namespaces)
        self.config_maps = ConfigMaps(client, cache.store)
        self.whole = FullModels(client)
        self._absent_kinds: frozenset[str] = frozenset()
        self._judging = asyncio.Lock()
        self._naming = FairLock()
        # With the time, so that a kind that is installed later is tried again.
        self._unserved: dict[str, float] = {}

    def note_absent(self, kinds: frozenset[str]) -> bool:
        """Set the kinds of object that the readers do not find in this cluster; return whether
        plans depend on what is new in that.
        """
        self._absent_kinds = frozenset(map(_alone, kinds))
        return self._planner.note_lacking(lacking(self.absent_kinds))

    def note_unserved(self, kind: str) -> None:
        """Note that the API server did not know the kind of a written object; plans learn of it
        with the next :meth:`note_absent`.
        """
        # A reader notices at its next LIST, which may be half an hour away.
        self._unserved[_alone(kind)] = monotonic()

    @property
    def absent_kinds(self) -> frozenset[str]:
        """Return the kinds of object this cluster does not have."""
        since = monotonic() - UNSERVED_SECONDS
        return self._absent_kinds.union(kind for kind, at in self._unserved.items() if at > since)

    async def read(
        self, key: Key, live: KubernetesObject, note: Observation, now: datetime
    ) -> Snapshot:
        """Return everything that a reconcile needs to know.

        Raises:
            ApiError: something could not be read; the reconcile is to be repeated.
            ChangedError: the resource has changed meanwhile.
        """
        resource, (where, _) = resource_of(live), config_place(live)
        owner = resource.owner
        # A release with a newer default must not make another spec of it (ADR 15).
        version = await self._kept_version(live, note)
        taken = where if where and self._cache.store.config_map(where) else None
        subject = await self._resolve(key, live, version)
        observed, stored = await self._observe(owner, note.unseen)
        trusted = self._believed(live, subject, observed, stored, note)
        # To a cache that lags, our own newest record looks like an old one put back.
        if isinstance(observed, Observed) and self._is_doubtful(trusted, live, note):
            observed, stored = await self._with_fresh_record(owner, observed)
            trusted = self._believed(live, subject, observed, stored, note)
        record = trusted.record
        cluster, fetching = None, None
        if not (isinstance(observed, Problem) or resource.paused):
            fetching = await read_fetching(self._client, owner, subject, taken)
        if self._cache.synced and not isinstance(observed, Problem):
            around = await self.around(key, subject, nodes_of_interest(observed, record))
            cluster = replace(around, gone=await self._gone(observed, around.nodes))
        return Snapshot(
            resource=resource,
            subject=subject,
            record=record,
            serial=self._newest(live, note),
            refused=trusted.refused,
            distrusted=(trusted.refused, now) if trusted.refused else note.distrusted,
            keys=self.keys(),
            observed=observed,
            cluster=cluster,
            since=note.since,
            contested=note.contested(now),
            kept_out=note.kept_out,
            fetching=fetching,
        )

    async def adoptions(self, key: Key, live: KubernetesObject) -> tuple[Adopt, ...]:
        """Return the writes that take back what an earlier model of this name has left.

        Raises:
            ApiError: the plan of record could not be read.
        """
        owner, store = owner_of(live), self._cache.store
        orphans, where = store.orphans(base_key(key)), (owner.namespace, record_key(owner)[1])
        facts = store.config_map(where)
        if not facts or not (orphans or not facts.owner_uid):
            return ()
        return adoptions(owner, orphans, await self.config_maps.get(where), self.keys())

    async def shown(
        self, key: Key, live: KubernetesObject, note: Observation
    ) -> tuple[Subject, PlanRecord] | None:
        """Return a model's question and its plan of record, None if it has none that can be read.

        Raises:
            ApiError: something could not be read.
            ChangedError: the resource has changed meanwhile.
        """
        # The record that this process believes, as a reconcile would: the page shows no plan that
        # somebody has put there.
        record = self._remembered(live, note) or (await self.kept_record(live))[0]
        subject = (
            await self._resolve(key, live, await self._kept_version(live, note)) if record else None
        )
        return (subject, record) if record and isinstance(subject, Subject) else None

    def _newest(self, live: KubernetesObject, note: Observation) -> int:
        """Return the newest plan of record's serial; 0 without a key, as none counts."""
        remembered = note.record_of(live["metadata"]["uid"])
        return (
            # The process may know a record whose serial is not in the status yet: it is written
            # before the status.
            max(_serial_in(live), remembered.serial if remembered else 0) if self.keys() else 0
        )

    def _remembered(self, live: KubernetesObject, note: Observation) -> PlanRecord | None:
        remembered = note.record_of(live["metadata"]["uid"])
        return remembered if remembered and remembered.serial >= self._newest(live, note) else None

    def _is_doubtful(self, trusted: Believed, live: KubernetesObject, note: Observation) -> bool:
        """Return whether a lagging cache could look like a changed or deleted plan of record."""
        return trusted.refused is not None or (
            trusted.record is None and self._newest(live, note) > 0
        )

    async def _with_fresh_record(
        self, owner: Owner, observed: Observed
    ) -> tuple[Observed, StoredRecord | None]:
        """Return what is observed, with the plan of record as the API server has it now.

        Raises:
            ApiError: it could not be read.
        """
        key = record_key(owner)
        content, stored = await self.config_maps.record(
            (owner.namespace, key[1]), owner.uid, self.keys(), fresh=True
        )
        # Replaced in the observation, too: the decision must not write over a record that it has
        # not seen.
        others = {other: live for other, live in observed.objects.items() if other != key}
        return replace(observed, objects={**others, key: content} if content else others), stored

    def _believed(
        self,
        live: KubernetesObject,
        subject: Subject | tuple[Problem, ...] | None,
        observed: Observed | Problem,
        stored: StoredRecord | None,
        note: Observation,
    ) -> Believed:
        known = RecordEvidence(
            owner=owner_of(live),
            signs=bool(self.keys()),
            serial=self._newest(live, note),
            remembered=self._remembered(live, note),
            shown=(live.get("status") or {}).get("plan") or {},
            observed=Observed(objects={}) if isinstance(observed, Problem) else observed,
            nodes=self._cache.all_nodes,
            subject=subject if isinstance(subject, Subject) else None,
        )
        return believed(stored, known)

    def record_form(self, live: KubernetesObject) -> RecordForm | None:
        """Return what :meth:`kept_record` depends on, None without a record or a signing key."""
        owner = owner_of(live)
        keys = self.keys()
        facts = self._cache.store.config_map((owner.namespace, record_key(owner)[1]))
        if facts is None or not keys:
            return None
        return facts.version, owner.uid, self._newest(live, Observation()), keys

    async def kept_record(
        self, live: KubernetesObject
    ) -> tuple[PlanRecord | None, RecordForm | None]:
        """Return the plan of record believed before any reconcile (None: none), and its form.

        While the form stays equal, so does the plan; None: it depends on other things, too.

        Raises:
            ApiError: it could not be read.
        """
        owner = owner_of(live)
        keys = self.keys()
        form = self.record_form(live)
        where = owner.namespace, record_key(owner)[1]
        _, stored = await self.config_maps.record(where, owner.uid, keys)
        trusted = await self._judged(live, stored)
        if self._is_doubtful(trusted, live, Observation()):
            _, stored = await self.config_maps.record(where, owner.uid, keys, fresh=True)
            trusted = await self._judged(live, stored)
            # Read afresh it depends on more than the caches show, so it is judged again the next
            # time.
            form = None
        record = trusted.record if isinstance(trusted.record, PlanRecord) else None
        return record, form if record and stored and stored.signed else None

    async def _judged(self, live: KubernetesObject, stored: StoredRecord | None) -> Believed:
        """Return which plan of record counts before any reconcile; one a turn of the loop."""
        async with self._judging:
            children = (
                ()
                # A signature is enough; only without one are the StatefulSets asked, which must be
                # decoded for that.
                if stored is None or stored.signed
                else self._cache.store.children(_ref(owner_of(live)))
            )
            sets = await contents([child for child in children if child.kind == STATEFUL_SET])
            observed = Observed(objects={object_key(content): content for content in sets})
            trusted = self._believed(live, None, observed, stored, Observation())
            # Judging takes milliseconds of CPU a record: reconciles have their turn between two of
            # them.
            await asyncio.sleep(0)
        return trusted

    async def _observe(
        self, owner: Owner, unseen: Iterable[ObjectKey]
    ) -> tuple[Observed | Problem, StoredRecord | None]:
        try:
            return await self._observed(owner, unseen)
        except ApiError as error:
            if error.code != HTTPStatus.FORBIDDEN:
                raise
            return not_permitted(str(error), owner.namespace), None

    async def _observed(
        self, owner: Owner, unseen: Iterable[ObjectKey]
    ) -> tuple[Observed, StoredRecord | None]:
        store = self._cache.store
        namespace = owner.namespace
        kept, stored = await self.config_maps.record(
            (namespace, record_key(owner)[1]), owner.uid, self.keys()
        )
        children = store.children(_ref(owner))
        found = await contents(children)
        held = [await self.config_maps.get(where) for where in store.config_maps(_ref(owner))]
        objects = {object_key(content): content for content in (*found, *held, kept) if content}
        pods = (
            self._labelled(owner)
            if self._cache.known_pods is not KnownPods.NONE
            # A LIST at each reconcile, as no cache holds pods then.
            else await self._listed_members(owner)
        )
        # Without its label an object is in no cache. Its pods still name it, and the API server
        # has it.
        hidden = {*unseen, *_sets_of(pods, objects)} - objects.keys()
        objects |= await self._named(namespace, sorted(hidden)[:NAMED_MAX])
        members = self._members(namespace, pods, objects)
        overfull = {(child.kind, child.name): child.excess for child in children if child.excess}
        return Observed(
            objects=objects,
            members=members,
            absent_kinds=self.absent_kinds,
            strangers=self._strangers(owner, objects, members),
            overfull=overfull,
        ), stored

    def _strangers(
        self, owner: Owner, objects: Mapping[ObjectKey, KubernetesObject], members: Iterable[Member]
    ) -> tuple[str, ...]:
        """Return the pods with its label that none of its own StatefulSets controls."""
        ours_by_uid = {
            live["metadata"]["uid"]
            for live in objects.values()
            if controller_uid(live) == owner.uid
        }
        known = {member.name for member in members if member.set_uid in ours_by_uid}
        named = self._cache.store.strangers(base_key((owner.namespace, owner.name)))
        return tuple(sorted({name for _, name in named} - known))

    def _labelled(self, owner: Owner) -> tuple[Member, ...]:
        """Return the pods with its label that any StatefulSet controls, present or gone."""
        return self._cache.store.members_of(base_key((owner.namespace, owner.name)))

    def _members(
        self, namespace: str, pods: Iterable[Member], objects: Mapping[ObjectKey, KubernetesObject]
    ) -> tuple[Member, ...]:
        uids = [
            live["metadata"]["uid"] for (kind, _), live in objects.items() if kind == STATEFUL_SET
        ]
        found = {
            member.uid: member
            for uid in uids
            for member in self._cache.store.members((namespace, uid))
        }
        return (*found.values(), *(member for member in pods if member.uid not in found))

    async def _listed_members(self, owner: Owner) -> tuple[Member, ...]:
        """Return the pods in the model's namespace, for an operator that may not list all.

        Raises:
            ApiError: that is forbidden, too, or failed.
        """
        label = f"{MODEL}={base_name(owner.name)}"
        pages = self._client.pages(
            PODS,
            owner.namespace,
            project=lambda pod: {"member": read_member(pod)},
            labelSelector=label,
        )
        members = [item["member"] async for page in pages for item in page]
        return tuple(filter(None, members))

    async def _named(
        self, namespace: str, keys: Iterable[ObjectKey]
    ) -> dict[ObjectKey, KubernetesObject]:
        """Return objects no cache shows, by name; one at a time is in memory for all reconciles."""
        found: dict[ObjectKey, KubernetesObject] = {}
        for kind, name in keys:
            # One at a time, as these objects are anybody's and of any size.
            async with self._naming.turn((namespace, name), Priority.NEW):
                client = self._client.until(monotonic() + READ_SECONDS)
                item = await client.get(BY_KIND[kind], namespace, name)
                if item is not None:
                    # Through the same projection as the caches, so that both compare alike.
                    found[kind, name] = project_child(BY_KIND[kind], item).content()
        return found

    def most_moving(self, key: Key) -> int | None:
        """Return how many groups of a model may be down on purpose now, None for no limit."""
        return (
            None
            if self._set_for_all.most_moving is None
            else turns_left(self._set_for_all.most_moving, *self._cache.moving_beside(key))
        )

    async def around(
        self, key: Key, subject: Subject | tuple[Problem, ...], nodes: frozenset[str]
    ) -> Cluster:
        """Return the facts about the cluster around a model."""
        named = subject.intent.scheduler if isinstance(subject, Subject) else "None"
        scheduler = (
            SchedulerApi() if named == "None" else (await self._schedulers.find(key[0]))[named]
        )
        return Cluster(
            nodes=self._cache.nodes(nodes),
            free=self._cache.free(key, nodes),
            known_pods=self._cache.known_pods,
            unread=self._cache.unread,
            reserved=bool(self._cache.ledger.kept(base_key(key))),
            scheduling_api=scheduler.api,
            scheduler_problem=scheduler.problem,
            most_moving=self.most_moving(key),
            domain=self._set_for_all.cluster_domain,
            priorities=self._cache.store.priorities,
            allowance=(allowance := self._cache.store.allowance(key[0])),
            # Counted only where something is limited: it walks through all models of the namespace.
            promised=self._cache.promised(key) if allowance else (),
            limits=(limits := self._planner.settings.limits_of(key[0])),
            older=self._cache.older(key) if limits.models is not None else 0,
            waiting=self._cache.waiting_beside(key) if limits.waiting is not None else 0,
            gpus=self._cache.kept_beside(key) if limits.gpus is not None else 0,
        )

    async def _kept_version(self, live: KubernetesObject, note: Observation) -> str | None:
        owner = owner_of(live)
        remembered = self._remembered(live, note)
        stored = None
        if remembered is None:
            try:
                where = owner.namespace, record_key(owner)[1]
                _, stored = await self.config_maps.record(where, owner.uid, self.keys())
            except ApiError as error:
                if error.code != HTTPStatus.FORBIDDEN:
                    raise
        return kept_version(stored, remembered, self._newest(live, note))

    async def _resolve(
        self, key: Key, live: KubernetesObject, version: str | None
    ) -> Subject | tuple[Problem, ...]:
        try:
            return await self._planner.resolve(
                live, await self.config_text(key, live), version, self.whole.of
            )
        except InputError as error:
            return error.problems

    async def config_text(self, key: Key, live: KubernetesObject) -> str | None:
        """Return the config that a spec refers to or that was fetched, None if there is none."""
        where, file = config_place(live)
        # Noted also where it is not there: the model is woken when it comes.
        self._cache.note(key, replace(self._cache.interests(key), config_map=where))
        content = await self.config_maps.get(where) if where else None
        return (
            believed_text(content, file, live, self.keys(), self._planner.administration)
            if content
            else None
        )

    async def _gone(self, observed: Observed, known: Collection[str]) -> frozenset[str]:
        """Return the nodes of pods that the API server does not have.

        Raises:
            ApiError: a node could not be read.
        """
        # Asked for, as a cache also lacks nodes without GPUs, and those that it has not heard of.
        names = {member.node for member in observed.members if member.node} - set(known)
        asked = sorted(names)[:NAMED_MAX]
        read = (self._client.get(NODES, None, name, metadata_only=True) for name in asked)
        found = await asyncio.gather(*read)
        return frozenset(name for name, node in zip(asked, found, strict=True) if node is None)

    async def freshened(
        self, snapshot: Snapshot, groups: Iterable[str], broken: Collection[str]
    ) -> Snapshot | None:
        """Return the snapshot with groups as the API server has them, before any is ended.

        None: the resource has changed meanwhile. Reads of ``broken`` ones, which serve nobody, are
        urgent; a thousand that are scaled down wait their turn.

        Raises:
            ApiError: something could not be read.
        """
        owner = snapshot.resource.owner
        urgent = self._client.at(Urgency.REPAIR)
        assert isinstance(snapshot.observed, Observed)  # noqa: S101 - nothing is written of what cannot be read
        ranks: dict[str, set[int]] = {name: set() for name in sorted(groups)}
        for member in snapshot.observed.members:
            if member.group in ranks:
                ranks[member.group].add(member.rank)
        # At once: a group that is broken waits for these answers before it is ended.
        live, *read = await asyncio.gather(
            (urgent if broken else self._client).get(
                SHARDED_MODELS, owner.namespace, owner.name, metadata_only=True
            ),
            *(
                _group(urgent if name in broken else self._client, owner.namespace, name, known)
                for name, known in ranks.items()
            ),
        )
        # A spec that has changed meanwhile may want this group as it is.
        if live is None or (live["metadata"]["uid"], live["metadata"]["generation"]) != (
            owner.uid,
            snapshot.resource.generation,
        ):
            return None
        observed = _with_groups(snapshot.observed, dict(zip(ranks, read, strict=True)))
        return replace(snapshot, observed=observed, certain=True)

    async def certain_nodes(self, names: Iterable[str]) -> bool:
        """Read nodes afresh before a group leaves one, and return whether the caches were wrong.

        Raises:
            ApiError: a node could not be read.
        """
        wanted, client = (
            tuple(name for name in names if not is_provisioned_later(name)),
            self._client.at(Urgency.REPAIR),
        )
        stated, found = (
            self._planner.stated,
            await asyncio.gather(*(client.get(NODES, None, name) for name in wanted)),
        )
        changes: dict[Key, Change[NodeFacts | NodeExclusion | BareNode]] = {
            ("", name): Change(project_node(node, stated) if node else None, 0)
            for name, node in zip(wanted, found, strict=True)
        }
        # Taken over into the caches, so that the next reconcile decides on it.
        return bool(self._cache.store.take_nodes(changes).nodes)


async def _group(
    client: Client, namespace: str, name: str, known: set[int]
) -> tuple[KubernetesObject | None, list[Member]]:
    """Return a StatefulSet and its pods by name, the ``known`` ranks with it, then the others."""

    def pods(ranks: Iterable[int]) -> list[Coroutine[Any, Any, dict[str, Any] | None]]:
        return [client.get(PODS, namespace, f"{name}-{rank}") for rank in sorted(ranks)]

    # The pods that are known are asked for together with their StatefulSet, which saves one round
    # trip.
    stored, *found = await asyncio.gather(client.get(STATEFUL_SETS, namespace, name), *pods(known))
    if stored is None:
        return None, []
    found += await asyncio.gather(*pods({*range(stored["spec"].get("replicas") or 0)} - known))
    members = [member for pod in found if pod and (member := read_member(pod))]
    return {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind, **stored}, members


def _with_groups(
    observed: Observed, read: Mapping[str, tuple[KubernetesObject | None, list[Member]]]
) -> Observed:
    objects = dict(observed.objects)
    members = [member for member in observed.members if member.group not in read]
    for name, (stored, pods) in read.items():
        objects.pop((STATEFUL_SET, name), None)
        if stored is not None:
            objects[STATEFUL_SET, name] = stored
            members += pods
    return replace(observed, objects=objects, members=tuple(members))


def _sets_of(
    pods: Iterable[Member], objects: Mapping[ObjectKey, KubernetesObject]
) -> set[ObjectKey]:
    """Return the StatefulSets that pods name and no cache shows: one may lack our label."""
    known = {live["metadata"]["uid"] for (kind, _), live in objects.items() if kind == STATEFUL_SET}
    return {
        (STATEFUL_SET, pod.group) for pod in pods if not pod.deleting and pod.set_uid not in known
    }


def _ref(owner: Owner) -> Ref:
    return owner.namespace, owner.uid


def _alone(kind: str) -> str:
    return kind.partition(".")[0]


def _serial_in(live: KubernetesObject) -> int:
    return int((live.get("status") or {}).get(SERIAL) or 0)


def resource_of(live: KubernetesObject) -> ModelResource:
    """Return a ShardedModel without its resolution."""
    where, _ = config_place(live)
    return ModelResource(
        owner=owner_of(live),
        generation=live["metadata"]["generation"],
        annotations=live["metadata"].get("annotations") or {},
        status=live.get("status") or {},
        paused=(live.get("spec") or {}).get("paused") is True,
        config=where[1] if where else "",
        version=live["metadata"].get("resourceVersion", ""),
    )


def owner_of(live: KubernetesObject) -> Owner:
    """Return the identity of a resource."""
    metadata = live["metadata"]
    return Owner(name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
