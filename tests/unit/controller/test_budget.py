"""What costs too much: whose condition it is, what is kept alive meanwhile, and when it is asked
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import pytest

from shardwright.api.free_form import CONFIG_MAX_BYTES, DEPTH_MAX
from shardwright.cluster.resources import PODS
from shardwright.controller.budget import REFUSED_SECONDS, Failed, QuestionBudget, QuestionFault
from shardwright.controller.cluster_cache import ClusterCache
from shardwright.controller.fair_lock import FairLock
from shardwright.controller.full_objects import ResolveCache
from shardwright.controller.plan_broker import PlanBroker
from shardwright.controller.planner_process import Memo
from shardwright.controller.queue import Key, Priority
from shardwright.errors import InputError, Problem
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import MakePlan, Work
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Subject
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_operator import NAMESPACE, run, serving, synced
from tests.support.builders_reconcile import NOON, crashed
from tests.support.builders_resource import A_CONFIG, a_sharded_model
from tests.support.builders_store import nodes
from tests.support.builders_subject import LARGE, a_subject
from tests.support.clocks import Clock
from tests.support.inline import Inline

Answer = TypeVar("Answer")
P = ParamSpec("P")
SPENT = Failed(
    fault=QuestionFault.CPU, budget=QuestionBudget(cpu_seconds=10, memory_bytes=192 << 20)
)
KEY = ("models", "llama")
NEW = Ask(on=None, choice=PlanChoice.REPLAN)


def a_model_of_generation(generation: int = 1, **spec: Any) -> dict[str, Any]:
    manifest = a_sharded_model("llama", "models", **spec)
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "uid", "generation": generation},
    }


def a_planner(worker: Inline, clock: Clock) -> PlanBroker:
    cache = ClusterCache()
    cache.store.take_nodes(nodes(*h100_nodes(2)))
    return PlanBroker(cache, worker, clock=clock)


def resolved(planner: PlanBroker, live: dict[str, Any], config_text: str | None = None) -> Subject:
    return asyncio.run(planner.resolve(live, config_text))


def answered(planner: PlanBroker, subject: Subject) -> Replanned | Problem:
    return asyncio.run(planner.answer(KEY, subject, NEW, NOON, lambda _: True))


class OneAtATime(Inline):
    """Answers one question at a time, as the worker does, and lets others ask meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = FairLock()

    async def ask(
        self,
        key: Key,
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,
    ) -> Answer | Failed:
        async with self._lock.turn(key, priority):
            await asyncio.sleep(0)
            return await super().ask(key, priority, work, memo, first=first)


class AtOnce(ThreadPoolExecutor):
    """Does what goes to a thread at once: how many others ask meanwhile does not depend on how busy
    the machine is.
    """

    def submit(
        self, fn: Callable[P, Answer], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Answer]:
        done: Future[Answer] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def test_a_flood_of_models_of_one_namespace_holds_the_plan_of_another_up_by_a_few_questions() -> (
    None
):
    async def plan(planner: PlanBroker, namespace: str, name: str) -> None:
        live = a_model_of_generation(mode="PlanOnly")
        live["metadata"] |= {"namespace": namespace, "name": name, "uid": name}
        subject = await planner.resolve(live, None)
        await planner.answer((namespace, name), subject, NEW, NOON, lambda _: True)

    async def scenario() -> int:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        worker = OneAtATime()
        planner = a_planner(worker, Clock())
        flood = [
            asyncio.create_task(plan(planner, "flood", f"model-{number}")) for number in range(200)
        ]
        await asyncio.sleep(0)
        await plan(planner, "other", "model")
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        return len(worker.asked)

    assert asyncio.run(scenario()) <= 8


def test_a_resource_that_costs_too_much_is_not_read_again_before_it_or_its_config_changes() -> None:
    worker = Inline(Resolve=SPENT)
    planner = a_planner(worker, Clock())
    for live, text in (
        (a_model_of_generation(), None),
        (a_model_of_generation(), None),
        (a_model_of_generation(2), None),
        (a_model_of_generation(2), "changed"),
    ):
        with pytest.raises(
            InputError,
            match="must take at most 10 s of CPU and 192 MiB of memory, the CPU time was spent",
        ):
            resolved(planner, live, text)
    assert worker.asked == ["Resolve"] * 3


def test_a_model_that_costs_too_much_to_plan_is_asked_again_when_it_changes_or_after_an_hour() -> (
    None
):
    worker, clock = Inline(MakePlan=SPENT), Clock()
    planner = a_planner(worker, clock)
    subject, changed = (
        resolved(planner, a_model_of_generation()),
        resolved(planner, a_model_of_generation(2, replicas=2)),
    )

    asked = []
    for question in (subject, subject, changed, changed):
        answer = answered(planner, question)
        assert isinstance(answer, Problem)
        assert answer.code == "PlanTooCostly"
        asked.append(worker.asked.count("MakePlan"))
    assert asked == [1, 1, 2, 2]

    clock.now += REFUSED_SECONDS
    worker.failing.clear()
    assert isinstance(answered(planner, changed), Replanned)


def test_a_plan_that_is_remembered_needs_no_worker() -> None:
    worker = Inline()
    planner = a_planner(worker, Clock())
    subject = resolved(planner, a_model_of_generation(mode="PlanOnly"))
    first = answered(planner, subject)
    worker.failing["MakePlan"] = SPENT

    assert answered(planner, subject) == first


class Late(Inline):
    """Answers after whoever asked has given up, as the worker does."""

    async def ask(
        self,
        key: Key,
        priority: Priority,
        work: Work[Answer],
        memo: Memo[Answer | Failed],
        *,
        first: bool = False,
    ) -> Answer | Failed:
        answer = await super().ask(key, priority, work, memo, first=first)
        if isinstance(work, MakePlan):
            raise TimeoutError
        return answer


def test_a_plan_that_comes_after_the_deadline_of_the_look_that_asked_is_found_by_the_next_one() -> (
    None
):
    worker = Late()
    planner = a_planner(worker, Clock())
    subject = resolved(planner, a_model_of_generation(mode="PlanOnly"))
    with pytest.raises(TimeoutError):
        answered(planner, subject)

    assert isinstance(answered(planner, subject), Replanned)
    assert worker.asked.count("MakePlan") == 1


def test_what_another_leader_found_too_costly_to_read_is_read_after_everything_else() -> None:
    def says(generation: int) -> dict[str, Any]:
        return {
            "observedGeneration": generation,
            "conditions": [{"type": "Ready", "reason": "ConfigTooCostly"}],
        }

    worker = Inline()
    planner = a_planner(worker, Clock())
    for live in (
        a_model_of_generation(),
        a_model_of_generation(2) | {"status": says(1)},
        a_model_of_generation(3) | {"status": says(3)},
    ):
        resolved(planner, live)
    assert worker.urgency == [Priority.NEW, Priority.NEW, Priority.RESYNC]


def test_a_spec_that_is_nested_too_deeply_does_not_even_reach_the_worker() -> None:
    worker = Inline()
    planner = a_planner(worker, Clock())
    config: dict[str, Any] = dict(A_CONFIG)
    for _ in range(10_000):
        config = {"a": config}

    for spec in (
        {"model": {"id": "us/ours", "config": config}},
        {"engine": {"speculation": {"head": {"id": "d", "config": config}}}},
    ):
        with pytest.raises(
            InputError,
            match=f"onfig: more than {DEPTH_MAX} levels of nesting must be at most {DEPTH_MAX}",
        ):
            resolved(planner, a_model_of_generation() | {"spec": spec})
    assert worker.asked == []


def test_a_config_that_is_too_large_is_named_without_the_worker_and_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Inline()
    planner = a_planner(worker, Clock())
    live = a_model_of_generation() | {
        "spec": {"model": {"id": "us/ours", "config": {"note": "x" * CONFIG_MAX_BYTES}}}
    }
    with pytest.raises(InputError, match="bytes of JSON must be at most"):
        resolved(planner, live)
    monkeypatch.setattr("shardwright.controller.full_objects.free_form_problems", lambda _: ())
    with pytest.raises(InputError, match="bytes of JSON must be at most"):
        resolved(planner, live)
    assert worker.asked == []


def test_a_model_that_cannot_be_read_or_planned_says_so_and_others_are_planned() -> None:
    async def scenario() -> None:
        parts = await synced()
        parts.worker.failing["Resolve"] = SPENT
        unread = parts.add_model("unread")
        await parts.reconcile(unread)
        parts.worker.failing = {"MakePlan": SPENT}
        unplanned = parts.add_model("unplanned")
        await parts.reconcile(unplanned)
        parts.worker.failing.clear()
        good = parts.add_model("good")
        await parts.reconcile(good)

        assert parts.condition(unread)["reason"] == "ConfigTooCostly"
        assert parts.condition(unplanned)["reason"] == "PlanTooCostly"
        assert parts.condition(unplanned, "Stalled")["status"] == "True"
        assert parts.condition(good)["reason"] == "Progressing"
        assert parts.replicas("good") == [1]

    run(scenario())


@pytest.mark.parametrize("question", ["Resolve", "MakePlan"])
def test_what_runs_is_kept_alive_and_keeps_its_gpus_while_its_new_spec_costs_too_much(
    question: str,
) -> None:
    async def scenario() -> None:
        parts, key = await serving()
        reserved = parts.reserved_nodes()
        parts.worker.failing[question] = SPENT
        parts.change(key, workload={"concurrency": 16})
        await parts.reconcile(key)
        assert (parts.replicas("large"), parts.reserved_nodes()) == ([2], reserved)

        for rank in range(2):
            with parts.api.changing(PODS, NAMESPACE, f"large-0-{rank}") as pod:
                pod["status"] = crashed("large-0-0")["status"]
        await parts.reconcile(key)
        assert (parts.replicas("large"), parts.reserved_nodes()) == ([0], reserved)

    run(scenario())


def test_subjects_of_the_largest_models_are_forgotten_where_there_are_too_many() -> None:
    small, large = a_subject(), a_subject(**LARGE)
    subjects = ResolveCache(weights_max=len(small.model.weights) + len(large.model.weights))
    for number in range(3):
        subjects.keep(("a", f"{number}"), (), small)
    subjects.keep(("b", "large"), (), large)
    subjects.keep(("b", "same"), (), large)  # one model, counted once
    assert len(subjects) == 5

    another = a_subject(model={"id": "us/ours", "config": A_CONFIG})
    subjects.keep(("c", "another"), (), another)
    assert (subjects.of(("b", "large"), ()), subjects.of(("b", "same"), ())) == (None, None)
    assert subjects.of(("c", "another"), ()) is another
    assert len(subjects) == 4
