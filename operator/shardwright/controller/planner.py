"""Plans one model at a time on what the view knows: two models never get the same GPUs."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel
from shardwright.controller.queue import Key
from shardwright.controller.view import View
from shardwright.errors import InputError, Problem
from shardwright.hardware.inventory import Inventory
from shardwright.modelspec.catalogue import read_catalogue_extension
from shardwright.pipeline import Question, Subject, plan_serving, record_of, rescale, resolve, take_stock
from shardwright.planning.report import NoPlan, Report
from shardwright.planning.validity import plan_problem
from shardwright.reconcile import standing
from shardwright.reconcile.standing import Choice, Replan, Standing, Trouble

log = logging.getLogger(__name__)


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
    """Holds the lock under which plans are made and reserved, the catalogue, and since when plans are invalid."""

    def __init__(self, view: View, catalogue_file: Path | None, clock: Callable[[], float] = monotonic) -> None:
        self.lock = asyncio.Lock()
        self._view = view
        self._catalogue_file = catalogue_file
        self._catalogue_content = b""
        self._catalogue: Mapping[str, Mapping[str, object]] = {}
        self._clock = clock
        self._invalid_since: dict[Key, float] = {}

    def reload_catalogue(self) -> bool:
        """Read the catalogue file if it has changed and return whether it had; a broken one changes nothing."""
        content = _content(self._catalogue_file) if self._catalogue_file else b""
        if content == self._catalogue_content:
            return False
        self._catalogue_content = content
        try:
            self._catalogue = read_catalogue_extension(_texts(content))
        except (ValueError, InputError) as error:
            log.error("the catalogue file cannot be used: %s", error)  # noqa: TRY400  the message is the whole story
            return False
        return True

    def resolve(self, resource: ShardedModel, config_text: str | None) -> Subject:
        """Return what planning needs to know of a resource.

        Raises:
            InputError: what the user must correct.
        """
        return resolve(Question(resource=resource, config_text=config_text, catalogue=self._catalogue))

    async def plan(self, key: Key, subject: Subject, record: PlanRecord | None, *, serving: bool) -> Planned:
        """Return the plan that stands or a new one; call with :attr:`lock` held, until the record is written."""
        inventory = self._stock(subject)
        choice = self._judge(key, subject, record, inventory, serving=serving)
        if choice.choice is Choice.KEEP and record:
            return _kept(record, choice)
        report = await asyncio.to_thread(_make, choice.choice, subject, record, inventory)
        if isinstance(report.outcome, NoPlan):
            return Planned(record=record, report=report, no_plan=report.outcome, stale=choice.stale)
        if record and record.input_hash == subject.input_hash and record.plan == report.outcome:
            return _kept(record, choice)
        return Planned(record=record_of(subject, report), report=report)

    def forget(self, key: Key) -> None:
        """Forget since when the plan of a model that is gone has been invalid."""
        self._invalid_since.pop(key, None)

    def _stock(self, subject: Subject) -> Inventory:
        return take_stock(subject.resource, self._view.nodes.values(), self._view.usage_now(), tuple(self._view.reserved()))

    def _judge(self, key: Key, subject: Subject, record: PlanRecord | None, inventory: Inventory, *, serving: bool) -> Standing:
        problem = plan_problem(record.plan, inventory) if record else None
        question = standing.Question(
            input_hash=subject.input_hash,
            cut_hash=subject.cut_hash,
            replan=Replan(subject.resource.spec.replan),
            deploy=subject.request.deploy,
        )
        return standing.judge(record, question, self._trouble(key, problem), serving=serving)

    def _trouble(self, key: Key, problem: Problem | None) -> Trouble | None:
        if problem is None:
            self._invalid_since.pop(key, None)
            return None
        now = self._clock()
        return Trouble(problem=problem, seconds=now - self._invalid_since.setdefault(key, now))


def _content(file: Path) -> bytes:
    """Return what a file holds, nothing where it is not there: the kubelet swaps it while we look."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _texts(content: bytes) -> dict[str, str]:
    texts = json.loads(content or b"{}")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it must be one JSON object of model id to the text of a config.json")
    return texts


def _kept(record: PlanRecord, choice: Standing) -> Planned:
    return Planned(record=record, report=record.report(), stale=choice.stale, recheck_seconds=choice.recheck_seconds)


def _make(choice: Choice, subject: Subject, record: PlanRecord | None, inventory: Inventory) -> Report:
    if choice is Choice.RESCALE and record:
        return rescale(subject, record.plan, inventory)
    return plan_serving(subject, inventory)
