"""Plans one model at a time on what the view knows: two models never get the same GPUs."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel
from shardwright.api.settings import read_settings
from shardwright.controller.files import Watched
from shardwright.controller.queue import Key
from shardwright.controller.view import View
from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory
from shardwright.modelspec.catalogue import read_catalogue_extension
from shardwright.planning.report import NoPlan, Report
from shardwright.planning.validity import plan_problem
from shardwright.reconcile import standing
from shardwright.reconcile.departures import Needs, leaving_groups, leaving_problem
from shardwright.reconcile.standing import Choice, Standing, Trouble
from shardwright.replanning import Replanned, mend, place_beside, plan_anew, scale
from shardwright.resolving.question import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve

NOTHING_NEEDED: Final = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What came of planning: the record that stands (new or kept), and what to show.

    ``no_plan`` is why there is no plan for the spec as it is; an older record may stand all the same.
    """

    record: PlanRecord | None
    report: Report
    no_plan: NoPlan | None = None
    stale: Problem | None = None
    recheck_seconds: float | None = None


class Planner:
    """Holds the lock under which plans are made and reserved, the administrator's files, and since when plans are invalid."""

    def __init__(
        self, view: View, catalogue_file: Path | None, settings_file: Path | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.lock = asyncio.Lock()
        self._view = view
        self._catalogue = Watched(catalogue_file, "the catalogue file", _read_catalogue)
        self._settings = Watched(settings_file, "the settings file", read_settings)
        self._clock = clock
        self._invalid_since: dict[Key, float] = {}

    def load_settings(self) -> None:
        """Read the settings for the first time: a model that runs must not lose its defaults to a broken file.

        Raises:
            InputError: the file cannot be used.
        """
        self._settings.load()

    def reload(self) -> bool:
        """Read the administrator's files if they have changed and return whether one had; a broken one changes nothing."""
        return any([self._catalogue.reload(), self._settings.reload()])

    def resolve(self, resource: ShardedModel, config_text: str | None) -> Subject:
        """Return what planning needs to know of a resource.

        Raises:
            InputError: what the user must correct.
        """
        return resolve(
            Question(
                resource=resource,
                config_text=config_text,
                catalogue=self._catalogue.content,
                settings=self._settings.content,
            )
        )

    async def plan(
        self,
        key: Key,
        subject: Subject,
        record: PlanRecord | None,
        *,
        serving: bool,
        needs: Needs = NOTHING_NEEDED,
    ) -> Planned:
        """Return the plan that stands or a new one; call with :attr:`lock` held, until the record is written."""
        inventory = self._stock(subject)
        trouble = self._trouble(key, record, inventory, needs)
        choice = _judge(subject, record, trouble, serving=serving)
        if choice.choice is Choice.KEEP and record:
            return _kept(record, choice)
        made = await asyncio.to_thread(_make, choice.choice, subject, record, inventory, needs)
        if made.short and choice.choice is Choice.REPLAN and (vacated := self._stock(subject, vacated=True)) != inventory:
            made = await asyncio.to_thread(plan_anew, subject, record, vacated)  # where its former generations are in the way
        if made.short:
            moved = made.record if made.record != record else None
            stale = leaving_problem(moved.plan, inventory, needs) if moved else choice.stale
            return Planned(record=made.record, report=made.report, no_plan=made.short, stale=stale)
        if record and record.input_hash == subject.input_hash and record.plan == made.report.outcome:
            return _kept(record, choice)
        return Planned(record=made.record, report=made.report)

    async def beside(self, subject: Subject, record: PlanRecord, group: int, generation: int) -> PlanRecord | None:
        """Return the record with a group as a later generation on free GPUs, None where there are none.

        Call with :attr:`lock` held, until the record is written.
        """
        view = self._view
        if not view.pods_visible:
            return None
        reserved = tuple(view.reserved())
        inventory = take_stock(subject, view.nodes.values(), view.usage_now(), reserved, beside=group)
        nodes = await asyncio.to_thread(place_beside, subject, record.plan, inventory)
        return record.moved(group, nodes, generation) if nodes else None

    def forget(self, key: Key) -> None:
        """Forget since when the plan of a model that is gone has been invalid."""
        self._invalid_since.pop(key, None)

    def _stock(self, subject: Subject, *, vacated: bool = False) -> Inventory:
        nodes, usage, reserved = self._view.nodes.values(), self._view.usage_now(), tuple(self._view.reserved())
        return take_stock(subject, nodes, usage, reserved, vacated=vacated)

    def _trouble(self, key: Key, record: PlanRecord | None, inventory: Inventory, needs: Needs) -> Trouble | None:
        leaves = leaving_problem(record.plan, inventory, needs) if record else None
        problem = leaves or (plan_problem(record.plan, inventory) if record else None)
        if problem is None:
            self._invalid_since.pop(key, None)
            return None
        now = self._clock()
        return Trouble(problem=problem, seconds=now - self._invalid_since.setdefault(key, now), leaving=leaves is not None)


def _judge(subject: Subject, record: PlanRecord | None, trouble: Trouble | None, *, serving: bool) -> Standing:
    question = standing.Question(
        input_hash=subject.input_hash,
        cut_hash=subject.cut_hash,
        replan=subject.intent.replan,
        replicas=subject.intent.replicas,
        deploy=subject.request.deploy,
    )
    return standing.judge(record, question, trouble, serving=serving)


def _read_catalogue(text: str) -> Mapping[str, Mapping[str, object]]:
    return read_catalogue_extension(_texts(text))


def _texts(content: str) -> dict[str, str]:
    texts = json.loads(content or "{}")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it must be one JSON object of model id to the text of a config.json")
    return texts


def _kept(record: PlanRecord, choice: Standing) -> Planned:
    return Planned(record=record, report=record.report(), stale=choice.stale, recheck_seconds=choice.recheck_seconds)


def _make(choice: Choice, subject: Subject, record: PlanRecord | None, inventory: Inventory, needs: Needs) -> Replanned:
    if choice is Choice.RESCALE and record:
        return scale(subject, record, inventory)
    if choice is Choice.REHOUSE and record:
        return mend(subject, record, inventory, leaving_groups(record.plan, inventory, needs))
    return plan_anew(subject, record, inventory)
