"""The planner's answers to reconciles, one by one: GPUs are kept before the next plan.

The planner process does the planning.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from time import monotonic, thread_time
from typing import Any, Final, TypeVar

from shardwright.api.record import PlanRecord
from shardwright.api.settings import Settings, read_settings
from shardwright.controller.budget import Failed, TooCostly, config_too_costly, plan_too_costly
from shardwright.controller.cluster_cache import ClusterCache, base_key
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.files import Watched, catalogue_of
from shardwright.controller.full_objects import ReadFull, ResolveCache, as_it_is, key_beside
from shardwright.controller.full_objects import Resolution as Resolved
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner_process import Answerer, Memo
from shardwright.controller.pooled_nodes import PooledNodes
from shardwright.controller.queue import Key, Priority
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.gpus import NONE, Stated
from shardwright.hardware.inventory import Inventory, KnownPods
from shardwright.pipeline.assembly import stocks_beside
from shardwright.pipeline.plan_cache import PlanCache
from shardwright.pipeline.replanning import Replanned
from shardwright.planning.report import NoPlan, WaysOut
from shardwright.planning.ways_out import Holder
from shardwright.reconcile import planner_work
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import (
    ChooseClaim,
    FindPlaceBeside,
    FindWaysOut,
    MakePlan,
    Planned,
    Resolve,
    Stock,
    Work,
)
from shardwright.reconcile.pod_inputs import seeking
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.snapshot import Ask
from shardwright.reconcile.waiting import Waiting, holds, kept_back
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.names import group_name
from shardwright.resolving.stock import AS_THEY_STAND, OwnGpus
from shardwright.resolving.subject import Administration, Subject

Answer = TypeVar("Answer")

Form = tuple[str, PlanChoice, bool]
"""What tells a model's questions apart: its spec's hash, what is to be chosen, whether nodes are to
come.
"""


Advised = tuple[tuple[str, Ask, tuple[Inventory, ...]], NoPlan | None]
"""A question, and what the model waits for with ways out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministratorFiles:
    """The administrator's files; None: there is none."""

    catalogue: Path | None = None
    settings: Path | None = None


NO_FILES: Final = AdministratorFiles()


class PlanBroker:
    """The lock for choosing and keeping GPUs, held in no request; the administrator's files."""

    def __init__(
        self,
        cache: ClusterCache,
        worker: Answerer,
        files: AdministratorFiles = NO_FILES,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._worker = worker
        self._metrics = metrics or Metrics()
        self._lock = FairLock(self._metrics.turn_waits("planner"))
        self._cache = cache
        self._catalogue = Watched(files.catalogue, "the catalogue file", catalogue_of)
        self._settings = Watched(files.settings, "the settings file", read_settings)
        self._plans = PlanCache()
        self._lacking: tuple[Capability, ...] = ()
        self.files_version = 0
        self.administration = Administration()
        self.fetcher = self.administration.fetcher  # what reads configs from the hub
        self._subjects = ResolveCache()
        self._too_costly = TooCostly(clock)
        self.stated: Stated = NONE
        self._advice: dict[Key, Advised] = {}
        self._pooled = PooledNodes(cache)

    def load_settings(self) -> None:
        """Read the settings first: a running model must not lose defaults to a broken file.

        What they state of GPUs, nodes and pools holds while this process runs, as nodes are read by
        it.

        Raises:
            InputError: the file cannot be used.
        """
        # Fails at a broken file, where a reload keeps the last good content.
        self._settings.load()
        self._administer()
        self.stated = self._settings.content.stated
        self._cache.expect(self._settings.content.autoscaled_pools)

    @property
    def settings(self) -> Settings:
        """Return the administrator's settings for all models."""
        return self._settings.content

    def reload(self) -> bool:
        """Reread the administrator's files; return whether one changed (broken: unchanged)."""
        # A list, not a generator: both are read again, whether the first has changed or not.
        changed = any([self._catalogue.reload(), self._settings.reload()])
        self.files_version += changed
        self._administer()
        return changed

    def note_lacking(self, lacking: tuple[Capability, ...]) -> bool:
        """Set what the cluster does not serve, and return whether that is news: then every spec is
        resolved anew.
        """
        if lacking == self._lacking:
            return False
        self._lacking = lacking
        self.files_version += 1
        self._administer()
        return True

    def _administer(self) -> None:
        # One value, made anew only here: the planner process knows it by identity, and it crosses
        # once (ADR 11).
        self.administration = Administration(
            catalogue=self._catalogue.content,
            settings=self.settings,
            fetcher=self.fetcher,
            lacking=self._lacking,
        )

    async def resolve(
        self,
        live: KubernetesObject,
        config_text: str | None,
        kept_version: str | None = None,
        whole: ReadFull = as_it_is,
    ) -> Subject:
        """Return what planning needs of a resource, worked out once for each form of it.

        ``kept_version`` is the engine version it has had by default so far, if not the newest
        known.

        Raises:
            InputError: the problems that the user must correct.
        """
        metadata = live["metadata"]
        key = metadata["namespace"], metadata["name"]
        # All that the answer follows from, and nothing else: status and labels change all the time.
        form = (
            metadata["uid"],
            metadata["generation"],
            _digest(config_text),
            self.files_version,
            kept_version,
        )
        found = self._subjects.of(key, form)
        if found is None:
            try:
                text = await whole(live)
            except InputError as error:
                # It is not read again either.
                self._subjects.keep(key, form, error.problems)
                raise
            administration = self.administration
            question = Resolve(
                text=text,
                config_text=config_text,
                administration=administration,
                kept_version=kept_version,
            )
            found = await self._resolved(key, form, question, live)
        if isinstance(found, Subject):
            return found
        raise InputError(found)

    async def _resolved(
        self, key: Key, form: tuple[Any, ...], work: Resolve, live: KubernetesObject
    ) -> Resolved:
        def keep(outcome: Resolved | Failed) -> None:
            self._subjects.keep(key, form, _resolved(outcome))

        memo: Memo[Resolved | Failed] = Memo(recall=lambda: self._subjects.of(key, form), keep=keep)
        # Another leader has tried it.
        priority = Priority.RESYNC if _was_too_costly(live) else Priority.NEW
        return _resolved(await self._worker.ask(key, priority, work, memo))

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._subjects.forget(key)
        self._subjects.forget(key_beside(key))
        self._advice.pop(key, None)
        self._too_costly.forget(key)

    async def answer(
        self,
        key: Key,
        subject: Subject,
        ask: Ask,
        now: datetime,
        admits: Callable[[PlanRecord], bool],
    ) -> Replanned | Problem:
        """Return the planner's answer, or why there is none.

        GPUs of a plan to be deployed are kept from then on, if its namespace may keep so many. A
        model that does not get its GPUs stands in line, and claims those alone of a plan that its
        namespace ``admits``. A comparison, or a plan only to be shown, keeps no GPUs and does not
        wait for the lock.
        """
        if ask.only_compares:
            return await self._make(key, subject, ask, self._stock(key, subject, ask))
        # GPUs that are chosen and not kept yet look free to everybody: one chooses at a time.
        async with (
            self._lock.turn(key, _urgency(ask.choice))
            if subject.intent.keeps_gpus
            else nullcontext()
        ):
            answer = await self._answer(key, subject, ask)
            if isinstance(answer, Problem):
                return answer
            answer = planner_work.dated(answer, ask, now)
            record = answer.record
            if record and record != ask.on:
                answer = replace(answer, record=seeking(record, ask.on, self._cache.turnouts()))
            # Under the lock: until they are kept, the chosen GPUs look free to the next one.
            self._book(key, subject, ask, answer.record)
            if ask.beside is None:
                waits = answer.waits_for is not None
                self._cache.enqueue(
                    key, await self._waiting(key, subject, ask, now, admits) if waits else None
                )
        if not answer.waits_for or ask.beside is not None:
            return answer
        # Outside of the lock: it takes as long as a plan, and chooses no GPUs.
        advised = await self._advised(key, subject, ask, answer)
        # Where its namespace had kept too many, it may keep fewer now.
        self._book(key, subject, ask, advised.record)
        return advised

    def _book(self, key: Key, subject: Subject, ask: Ask, record: PlanRecord | None) -> None:
        if record and record != ask.on and record.plan.deployable and subject.intent.keeps_gpus:
            self._cache.keep(key, Kept(record=record), self.settings.limits_of(key[0]).gpus)

    async def _advised(self, key: Key, subject: Subject, ask: Ask, answer: Replanned) -> Replanned:
        """Return the answer with ways to make room, worked out outside the lock."""
        stock = self._stock(key, subject, ask)
        inventory = stock.inventory()
        others = stocks_beside(subject, inventory) if planner_work.plans_anew(ask) else ()
        beside = tuple((other.terms, self._stock(key, other, ask)) for other in others)
        asked = (subject.input_hash, ask, (inventory, *(other.inventory() for _, other in beside)))
        known = self._advice.get(key)
        # Remembered: a model that waits is reconciled each time that GPUs come free, mostly in
        # vain.
        if known is None or known[0] != asked:
            holders = self._holders(key, subject, inventory)
            work = FindWaysOut(
                subject=subject, ask=ask, stock=stock, made=answer, holders=holders, beside=beside
            )
            advised = await self._ask(key, _form(subject, ask), work)
            said = answer if isinstance(advised, Problem) else advised
            known = self._advice[key] = asked, said.waits_for
        ways, waits_for = known[1].ways_out if known[1] else None, answer.waits_for
        if waits_for is None:
            return answer
        if claimed := self._claimed(key, subject, ask, inventory):
            ways = replace(ways or WaysOut(), claimed=claimed)
        return answer.told(replace(waits_for, ways_out=ways))

    def _claimed(self, key: Key, subject: Subject, ask: Ask, inventory: Inventory) -> int:
        """Return how many free GPUs of an inventory's nodes are kept for those before a model."""
        kept = self._kept_from(key, subject, ask)
        return sum(kept.get(node.name, 0) for pool in inventory.pools for node in pool.nodes)

    def _kept_from(self, key: Key, subject: Subject, ask: Ask) -> Mapping[str, int]:
        # A group that has lost its node has served, and those who claim are still to come (ADR 10).
        if ask.goes_first:
            return {}
        rank = self._cache.rank(key, subject.deployment.pods.priority_class)
        claimed = self._cache.claimed_before(rank)
        return kept_back(claimed, self._cache.unheld(claimed))

    def _holders(self, key: Key, subject: Subject, inventory: Inventory) -> tuple[Holder, ...]:
        """Return the models that hold GPUs of an inventory, of no higher priority than a model.

        Those of other namespaces are not named: a user who may not see them must not learn of them.
        """
        cache = self._cache
        found = []
        values, nodes = (
            cache.store.priorities,
            {node.name for pool in inventory.pools for node in pool.nodes},
        )
        most = values.value_of(subject.deployment.pods.priority_class)
        for owner, gpus in cache.ledger.holders(nodes).items():
            other = cache.models.get(owner)
            theirs = self._subjects.last(other) if other else None
            if other is None or other == key or theirs is None:
                continue
            priority = values.value_of(theirs.deployment.pods.priority_class)
            name = "/".join(other) if other[0] == key[0] else "a model of another namespace"
            if priority <= most:
                found.append(Holder(name=name, priority=priority, gpus=gpus))
        return tuple(found)

    async def _waiting(
        self,
        key: Key,
        subject: Subject,
        ask: Ask,
        now: datetime,
        admits: Callable[[PlanRecord], bool],
    ) -> Waiting:
        """Return how a model without its GPUs waits; after a long wait it claims nodes."""
        waiting = Waiting(
            rank=self._cache.rank(key, subject.deployment.pods.priority_class),
            since=now,
            asked=subject.input_hash,
            terms=subject.terms,
            deploys=subject.intent.keeps_gpus
            # Where pods are not seen everything looks free, so there is nothing to claim.
            and self._cache.known_pods is not KnownPods.NONE,
        ).carried_on(self._cache.line.get(key))
        if not waiting.may_claim(now):
            return waiting
        whole = self._pooled.of(subject.terms)
        taken = self._cache.ledger.taken(base_key(key))
        claimed = self._cache.claimed_before(waiting.rank)
        rooms = {room.node: room for room in planner_work.rooms(whole, taken, claimed)}
        if holds(waiting.claim, rooms):
            return waiting.claiming(waiting.claim, rooms, now)
        beside = self._cache.claimed_beside(key)
        # What others of its namespace claim counts as kept: together they claim what one may have.
        left = replace(ask, quotas=tuple(replace(q, gpus=q.gpus - beside) for q in ask.quotas))
        stock = Stock(whole=whole, taken=taken)
        work = ChooseClaim(subject=subject, ask=left, stock=stock, claimed=claimed)
        made = await self._ask(key, _form(subject, ask), work)
        plan = made if isinstance(made, PlanRecord) and admits(made) else None
        if plan is None and (made is not None or ask.quotas):
            # Whom no right lets claim is asked again no sooner than who has just come: each
            # question is several plans.
            return waiting.without_claim(now)
        return waiting.claiming(planner_work.claim_of(plan, ask) if plan else {}, rooms, now)

    async def _answer(self, key: Key, subject: Subject, ask: Ask) -> Replanned | Problem:
        if (found := await self._beside(key, subject, ask)) is not None:
            return found
        stock = self._stock(key, subject, ask)
        made = await self._make(key, subject, ask, stock)
        if isinstance(made, Replanned) and planner_work.waits_for_itself(ask, made):
            vacated = self._stock(key, subject, ask, OwnGpus(vacated=True))
            # The same stock has the same answer, which costs as much again.
            if vacated.inventory() != stock.inventory():
                made = await self._make(key, subject, ask, vacated)
        if (
            isinstance(made, Replanned)
            and made.waits_for
            and self._cache.pools
            and self._cache.known_pods is not KnownPods.NONE
        ):
            # Nodes that exist come first: those to come are asked about only for the groups that
            # have no place without them (ADR 14).
            larger = self._stock(key, subject, ask, to_come=True)
            rest = planner_work.for_the_rest(ask, made)
            later = await self._make(key, subject, rest, larger, more=True)
            if isinstance(later, Replanned) and (
                later.waits_for is None or later.placed > made.placed
            ):
                return later
        return made

    async def _make(
        self, key: Key, subject: Subject, ask: Ask, stock: Stock, *, more: bool = False
    ) -> Replanned | Problem:
        if planner_work.plans_anew(ask) and (
            # On a thread: choosing nodes anew takes 12 to 16 ms on 5,000 nodes (ADR 6).
            recalled := await asyncio.to_thread(self._recall, subject, ask, stock)
        ):
            return recalled

        def remember(made: Planned) -> None:
            if made.report:
                self._plans.keep(subject, stock.inventory(), made.report, ask.quotas)

        work = MakePlan(subject=subject, ask=ask, stock=stock)
        made = await self._ask(key, _form(subject, ask, more=more), work, remember)
        return made if isinstance(made, Problem) else made.replanned

    def _recall(self, subject: Subject, ask: Ask, stock: Stock) -> Replanned | None:
        began = thread_time()
        inventory = stock.inventory()
        report = self._plans.recall(subject, inventory, ask.quotas)
        answer = planner_work.answer(subject, ask, inventory, lambda *_: report) if report else None
        self._metrics.planning.inc(thread_time() - began)
        return answer

    async def _ask(
        self,
        key: Key,
        form: Form,
        work: Work[Answer],
        remember: Callable[[Answer], None] = lambda _: None,
    ) -> Answer | Problem:
        """Return the planner process's answer; too costly ones are asked again late or on change.

        ``remember`` gets the answer even after the reconcile's deadline, so that the next one finds
        it. All but advice goes first, as others wait meanwhile to choose GPUs.
        """
        spec_hash, *rest = form
        asked = spec_hash, type(work), *rest

        def recall() -> Failed | None:
            return self._too_costly.of(key, asked)

        def keep(outcome: Answer | Failed) -> None:
            if isinstance(outcome, Failed):
                self._too_costly.keep(key, asked, outcome)
            else:
                remember(outcome)

        if (known := recall()) is not None:
            return plan_too_costly(known)
        memo: Memo[Answer | Failed] = Memo(recall=recall, keep=keep)
        advice = isinstance(work, FindWaysOut)
        priority = Priority.NEW if advice else _urgency(form[1])
        outcome = await self._worker.ask(key, priority, work, memo, first=not advice)
        return plan_too_costly(outcome) if isinstance(outcome, Failed) else outcome

    async def _beside(self, key: Key, subject: Subject, ask: Ask) -> Replanned | Problem | None:
        """Return the record with a group also on free GPUs, None if not asked for."""
        if ask.beside is None or ask.on is None:
            return None
        record, (group, generation) = ask.on, ask.beside
        nodes: tuple[str, ...] | None = None
        if self._cache.known_pods is not KnownPods.NONE:
            own = OwnGpus(beside=record.plan.group_numbers[group])
            stock = self._stock(key, subject, ask, own)
            work = FindPlaceBeside(subject=subject, plan=record.plan, stock=stock)
            found = await self._ask(key, _form(subject, ask), work)
            if isinstance(found, Problem):
                return found
            nodes = found
        return Replanned(
            record=record.moved(group, nodes, generation) if nodes else None, report=record.report()
        )

    def _stock(
        self,
        key: Key,
        subject: Subject,
        ask: Ask,
        own_gpus: OwnGpus = AS_THEY_STAND,
        *,
        to_come: bool = False,
    ) -> Stock:
        """Return the stock for a model: its possible nodes, less what others hold or claim.

        Nodes that do not give its pods back count as full. ``to_come``: with nodes an autoscaler
        may add.
        """
        whole = self._pooled.of(subject.terms, to_come=to_come)
        cache = self._cache
        # Nobody knows which GPUs are held, so none are taken off. The status says that free
        # capacity is unknown.
        if cache.known_pods is KnownPods.NONE:
            return Stock(whole=whole, lost=ask.lost, taken={})
        own = base_key(key)
        beside = own_gpus.beside
        root = None if beside is None else group_name(own[1], beside)
        taken = cache.ledger.taken(own, beside=root, vacated=own_gpus.vacated)
        taken.update(self._kept_from(key, subject, ask))
        turnouts = cache.turnouts()
        taken.update(
            # An empty node of such a pool is awaited by the model that has booked one, until its
            # pods are bound (ADR 14).
            cache.healthy(name for turnout in turnouts for name in turnout.awaited())
        )
        if to_come:
            taken.update(
                cache.healthy(name for turnout in turnouts for name in turnout.withheld(ask.lost))
            )
        return Stock(whole=whole, lost=ask.lost, taken=dict(taken))


def _form(subject: Subject, ask: Ask, *, more: bool = False) -> Form:
    return subject.input_hash, ask.choice, more


def _urgency(choice: PlanChoice) -> Priority:
    """Return a question's urgency; what users can cause at will waits for its turn."""
    # Users cause all others as often as they like, so only a group without a place goes before the
    # turn of its namespace.
    return {PlanChoice.REHOUSE: Priority.BROKEN, PlanChoice.COMPARE: Priority.RESYNC}.get(
        choice, Priority.NEW
    )


def _was_too_costly(live: KubernetesObject) -> bool:
    status = live.get("status") or {}
    reasons = {condition.get("reason") for condition in status.get("conditions") or ()}
    return (
        status.get("observedGeneration") == live["metadata"]["generation"]
        and "ConfigTooCostly" in reasons
    )


def _resolved(outcome: Resolved | Failed) -> Resolved:
    return (config_too_costly(outcome),) if isinstance(outcome, Failed) else outcome


def _digest(text: str | None) -> bytes | None:
    # A ConfigMap's text may have a megabyte, and is not kept for each model.
    return (
        None
        if text is None
        else blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
    )
