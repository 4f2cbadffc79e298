"""Answers what a look asks of the planner, one model at a time: what is planned is kept before the next one is planned."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import thread_time
from typing import Any, Final

from shardwright.api.record import PlanRecord
from shardwright.api.resource import read_stored
from shardwright.api.settings import Settings, read_settings
from shardwright.controller.files import Watched
from shardwright.controller.queue import Key
from shardwright.controller.view import View, base_key
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.pools import build_inventory
from shardwright.modelspec.catalogue import read_catalogue_extension
from shardwright.planning.report import NoPlan
from shardwright.planning.ways_out import Holder
from shardwright.reconcile import answering
from shardwright.reconcile.plan_cache import PlanCache
from shardwright.reconcile.plan_choice import Choice
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.seen import Ask
from shardwright.reconcile.waiting import Waiting, first_of, holds, kept_back
from shardwright.rendering.names import group_name
from shardwright.replanning import Replanned, place_beside
from shardwright.resolving.question import Question
from shardwright.resolving.subject import Subject, resolve

REMEMBERED: Final = 16
"""Terms of pods for which the whole cluster is kept in pools: those of models beyond it are collapsed anew."""


class Planner:
    """Holds the lock under which GPUs are chosen and kept, and the administrator's files; no request is made under it."""

    def __init__(
        self,
        view: View,
        catalogue_file: Path | None,
        settings_file: Path | None = None,
        on_planned: Callable[[float], None] = lambda _cpu_seconds: None,
    ) -> None:
        self._on_planned = on_planned
        self._lock = asyncio.Lock()
        self._view = view
        self._catalogue = Watched(catalogue_file, "the catalogue file", _read_catalogue)
        self._settings = Watched(settings_file, "the settings file", read_settings)
        self._plans = PlanCache()
        self.files_version = 0
        self._subjects: dict[Key, tuple[tuple[Any, ...], Subject]] = {}
        self._advice: dict[Key, tuple[tuple[str, Ask, Inventory], NoPlan | None]] = {}
        self._pooled: dict[str, tuple[int, Inventory]] = {}

    def load_settings(self) -> None:
        """Read the settings for the first time: a model that runs must not lose its defaults to a broken file.

        Raises:
            InputError: the file cannot be used.
        """
        self._settings.load()

    @property
    def settings(self) -> Settings:
        """Return what the administrator says for all models."""
        return self._settings.content

    def reload(self) -> bool:
        """Read the administrator's files if they have changed and return whether one had; a broken one changes nothing."""
        changed = any([self._catalogue.reload(), self._settings.reload()])
        self.files_version += changed
        return changed

    def resolve(self, live: Mapping[str, Any], config_text: str | None) -> Subject:
        """Return what planning needs to know of a resource; worked out once for each form of it.

        Raises:
            InputError: what the user must correct.
        """
        metadata = live["metadata"]
        key = metadata["namespace"], metadata["name"]
        asked = (metadata["uid"], metadata["generation"], config_text, self.files_version)
        known = self._subjects.get(key)
        if known is None or known[0] != asked:
            resource = read_stored(live)
            question = Question(
                resource=resource,
                config_text=config_text,
                catalogue=self._catalogue.content,
                settings=self._settings.content,
            )
            known = self._subjects[key] = asked, resolve(question)
        return known[1]

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._subjects.pop(key, None)
        self._advice.pop(key, None)

    async def answer(self, key: Key, subject: Subject, ask: Ask, now: datetime) -> Replanned:
        """Return the planner's answer; the GPUs of a plan that is to be deployed are kept from then on.

        A model that does not get what it asks for stands in line from then on.
        """
        async with self._lock:
            answer = await self._answer(key, subject, ask)
            record = answer.record
            if record and record != ask.on and record.plan.deployable and not subject.intent.plan_only:
                self._view.keep(key, Kept(record=record))
            if ask.beside is None:
                self._view.stand_in_line(key, await self._waiting(key, subject, ask, now) if answer.short else None)
        return await self._advised(key, subject, ask, answer) if answer.short and ask.beside is None else answer

    async def _advised(self, key: Key, subject: Subject, ask: Ask, answer: Replanned) -> Replanned:
        """Return the answer with what would make room: worked out beside the lock, and anew where there is something else."""
        inventory = self._stock(key, subject, ask, repair=ask.choice is Choice.REHOUSE)
        known = self._advice.get(key)
        if known is None or known[0] != (subject.input_hash, ask, inventory):
            holders = self._holders(key, subject, inventory)
            advised = await asyncio.to_thread(answering.with_ways_out, subject, ask, inventory, answer, holders)
            known = self._advice[key] = (subject.input_hash, ask, inventory), advised.short
        ways = known[1].ways_out if known[1] else None
        return replace(answer, short=replace(answer.short, ways_out=ways)) if answer.short else answer

    def _holders(self, key: Key, subject: Subject, inventory: Inventory) -> tuple[Holder, ...]:
        """Return the models that hold GPUs of an inventory and whose pods are of no higher priority than those of a model.

        Those of other namespaces are not named: who may not see them must not learn of them.
        """
        view, found = self._view, []
        values, nodes = view.store.priorities, {node.name for pool in inventory.pools for node in pool.nodes}
        most = values.value_of(subject.deployment.priority_class)
        for owner, gpus in view.ledger.holders(nodes).items():
            other = view.models.get(owner)
            theirs = self._subjects.get(other) if other else None
            if other is None or other == key or theirs is None:
                continue
            priority = values.value_of(theirs[1].deployment.priority_class)
            name = "/".join(other) if other[0] == key[0] else "a model of another namespace"
            if priority <= most:
                found.append(Holder(name=name, priority=priority, gpus=gpus))
        return tuple(found)

    async def _waiting(self, key: Key, subject: Subject, ask: Ask, now: datetime) -> Waiting:
        """Return how a model waits that did not get what it asked for: with nodes that it claims once it has waited for long."""
        waiting = Waiting(
            rank=self._view.rank(key, subject.deployment.priority_class),
            since=now,
            asked=subject.input_hash,
            terms=subject.terms,
            deploys=not subject.intent.plan_only and self._view.pods_visible,
        ).carried_on(self._view.line.get(key))
        if not waiting.may_claim(now):
            return waiting
        whole, taken = self._whole(subject), self._view.ledger.taken(base_key(key))
        found = tuple(answering.rooms(whole, taken, self._view.claimed_before(waiting.rank)))
        if holds(waiting.claim, {room.node: room for room in found}):
            return waiting
        return replace(waiting, claim=await asyncio.to_thread(answering.claim, subject, ask, whole, found))

    async def _answer(self, key: Key, subject: Subject, ask: Ask) -> Replanned:
        if ask.beside is not None and ask.on is not None:
            return await self._beside(key, subject, ask, ask.on, *ask.beside)
        inventory = self._stock(key, subject, ask, repair=ask.choice is Choice.REHOUSE)
        made = await asyncio.to_thread(self._make, subject, ask, inventory)
        if made.short and ask.choice is Choice.REPLAN and (vacated := self._stock(key, subject, ask, vacated=True)) != inventory:
            return await asyncio.to_thread(self._make, subject, ask, vacated)  # where its former generations are in the way
        return made

    def _make(self, subject: Subject, ask: Ask, inventory: Inventory) -> Replanned:
        """Answer, on a thread, and tell how many seconds of CPU that took."""
        began = thread_time()
        try:
            return answering.answer(subject, ask, inventory, self._plans.plan)
        finally:
            self._on_planned(thread_time() - began)

    async def _beside(self, key: Key, subject: Subject, ask: Ask, record: PlanRecord, group: int, generation: int) -> Replanned:
        """Return the record with a group as a later generation on free GPUs, without a record where there are none."""
        nodes: tuple[str, ...] | None = None
        if self._view.pods_visible:
            inventory = self._stock(key, subject, ask, beside=group)
            nodes = await asyncio.to_thread(place_beside, subject, record.plan, inventory)
        return Replanned(record=record.moved(group, nodes, generation) if nodes else None, report=record.report())

    def _stock(
        self, key: Key, subject: Subject, ask: Ask, *, beside: int | None = None, vacated: bool = False, repair: bool = False
    ) -> Inventory:
        """Return what there is for a model: nodes that it selects and tolerates, without what others hold or claim before it.

        Of nodes that do not give its pods back nothing is free, whatever they say.
        """
        whole, view = self._whole(subject).without_nodes(ask.lost), self._view
        if not view.pods_visible:
            return whole
        own = base_key(key)
        root = None if beside is None else group_name(own[1], beside)
        taken = view.ledger.taken(own, beside=root, vacated=vacated)
        rank = view.rank(key, subject.deployment.priority_class)
        claimed = view.claimed_before(first_of(rank) if repair else rank)
        taken.update(kept_back(claimed, view.unheld(claimed)))
        return whole.without(taken)

    def _whole(self, subject: Subject) -> Inventory:
        """Return all nodes in pools as pods of these terms see them; collapsed anew only when a node has changed."""
        terms, version = repr(subject.terms), self._view.store.node_version
        known = self._pooled.get(terms)
        if known and known[0] == version:
            return known[1]
        usage = () if self._view.pods_visible else None
        inventory = build_inventory(self._view.store.nodes.values(), usage, terms=subject.terms)
        if len(self._pooled) >= REMEMBERED:
            self._pooled.clear()
        self._pooled[terms] = version, inventory
        return inventory


def _read_catalogue(text: str) -> Mapping[str, Mapping[str, object]]:
    return read_catalogue_extension(_texts(text))


def _texts(content: str) -> dict[str, str]:
    texts = json.loads(content or "{}")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it must be one JSON object of model id to the text of a config.json")
    return texts
