"""What the planner keeps beside the plans: the administrator's catalogue; and whose GPUs it plans
on.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.controller.cluster_cache import ClusterCache
from shardwright.controller.plan_broker import AdministratorFiles, PlanBroker
from shardwright.controller.queue import Key, Priority
from shardwright.controller.snapshots import SetForAll, Snapshots
from shardwright.errors import InputError, Problem
from shardwright.pipeline.replanning import Replanned
from shardwright.reconcile.observed import STATEFUL_SET
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.publish import Kept
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Subject
from tests.support.builders_deployment import a_plan
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_operator import LARGE
from tests.support.builders_reconcile import NOON, a_record
from tests.support.builders_resource import A_CONFIG, a_sharded_model
from tests.support.builders_store import a_pod, a_set, children, nodes, pods
from tests.support.inline import Inline
from tests.support.memory_api import MemoryApi


def a_catalogue(name: str = "us/ours") -> str:
    return json.dumps({name: json.dumps(A_CONFIG)})


def test_a_catalogue_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = PlanBroker(ClusterCache(), Inline(), AdministratorFiles(catalogue=file))
    assert not planner.reload()
    file.write_text(a_catalogue())
    assert [planner.reload(), planner.reload()] == [True, False]


def test_a_catalogue_that_cannot_be_read_changes_nothing_and_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = PlanBroker(ClusterCache(), Inline(), AdministratorFiles(catalogue=file))
    for content in (b"\xff\xfe no text", b"{", b"[]", json.dumps({"us/ours": A_CONFIG}).encode()):
        file.write_bytes(content)
        assert not planner.reload()
    file.unlink()
    file.mkdir()  # what is there cannot be opened
    assert not planner.reload()


def test_a_kind_that_a_write_finds_unserved_is_news_for_the_plans_of_all_models() -> None:
    cache = ClusterCache()
    snapshots = Snapshots(MemoryApi(), cache, PlanBroker(cache, Inline()), SetForAll())
    assert not snapshots.note_absent(frozenset())
    snapshots.note_unserved("ComputeDomain")
    assert [snapshots.note_absent(frozenset()) for _ in range(2)] == [True, False]


def test_new_settings_hold_and_broken_ones_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    planner = PlanBroker(ClusterCache(), Inline(), AdministratorFiles(settings=file))
    planner.load_settings()  # nothing is there yet
    file.write_text(json.dumps({"engineDefaults": {"engine": {"args": {"seed": 4}}}}))
    assert planner.reload()
    for content in (
        "{",
        '{"engineDefaults": {"engine": {"image": "-"}}}',
        '{"policy": {"admittedArguments": ["config"]}}',
    ):
        file.write_text(content)
        assert not planner.reload()
    file.unlink()
    assert not planner.reload()

    subject = resolved(planner, a_model_named(), None)

    assert subject.deployment.serving.arguments == {"seed": 4}
    assert subject.defaulted == ("engine.args.seed",)


def test_a_resource_may_say_what_is_admitted_as_long_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"policy": {"admittedEnvironment": ["NCCL_NET_PLUGIN"]}}')
    planner, live = (
        PlanBroker(ClusterCache(), Inline(), AdministratorFiles(settings=file)),
        a_model_named(engine={"env": [{"name": "NCCL_NET_PLUGIN"}]}),
    )
    planner.load_settings()
    assert resolved(planner, live, None).deployment.serving.environment == (
        ("NCCL_NET_PLUGIN", ""),
    )

    file.write_text("{}")
    assert planner.reload()

    with pytest.raises(
        InputError, match=r"spec\.engine\.env\[0\]\.name: NCCL_NET_PLUGIN is not allowed"
    ):
        resolved(planner, live, None)


def test_stated_gpus_are_those_of_the_start(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    gpu = {
        "memoryMiB": 294_912,
        "memoryGigabytesPerSecond": 22_000,
        "teraflops": {"bf16": 4_000},
        "source": "data sheet",
    }
    gpu |= {"product": "NVIDIA-R200", "computeCapability": "10.7"}
    file.write_text(json.dumps({"gpus": [gpu]}))
    planner = PlanBroker(ClusterCache(), Inline(), AdministratorFiles(settings=file))
    planner.load_settings()
    file.write_text("{}")

    assert planner.reload()

    assert list(planner.stated.gpus) == [
        "nvidia-r200"
    ]  # the nodes that are known were read with it


def test_an_operator_does_not_start_with_broken_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"engineDefaults": {"replicas": 1}}')

    with pytest.raises(InputError, match=r"engineDefaults\.replicas: is not a setting"):
        PlanBroker(ClusterCache(), Inline(), AdministratorFiles(settings=file)).load_settings()


LOADS = ((8, "before"), (16, "after"))
"""Concurrency, and the name of the resource: another question each."""

NEW = Ask(on=None, choice=PlanChoice.REPLAN)


def a_model_named(name: str = "llama", **spec: Any) -> dict[str, Any]:
    manifest = a_sharded_model(name, "models", **spec)
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": f"uid-of-{name}", "generation": 1},
    }


def resolved(planner: PlanBroker, live: dict[str, Any], config_text: str | None) -> Subject:
    return asyncio.run(planner.resolve(live, config_text))


def answered(planner: PlanBroker, key: Key, subject: Subject, ask: Ask) -> Replanned:
    answer = asyncio.run(planner.answer(key, subject, ask, NOON, lambda _: True))
    assert isinstance(answer, Replanned)
    return answer


@pytest.fixture
def cache() -> ClusterCache:
    """Two nodes of 8 H100 on which nobody has anything."""
    made = ClusterCache()
    made.store.take_nodes(nodes(*h100_nodes(2)))
    return made


def test_a_resource_is_resolved_once_for_each_form_of_it() -> None:
    planner = PlanBroker(ClusterCache(), Inline())
    subject = resolved(planner, a_model_named(), None)
    assert resolved(planner, a_model_named(), None) is subject
    changed = a_model_named(replicas=3)
    changed["metadata"]["generation"] = 2
    assert resolved(planner, changed, None).intent.replicas == 3
    another = a_model_named(replicas=2)
    another["metadata"]["uid"] = "another"
    assert resolved(planner, another, None).intent.replicas == 2


def test_a_plan_that_is_to_be_deployed_keeps_its_gpus_before_the_next_one_is_planned(
    cache: ClusterCache,
) -> None:
    planner = PlanBroker(cache, Inline())
    keys = [("models", name) for name in ("first", "second", "third")]
    subjects = [
        resolved(planner, a_model_named(name, mode="Deploy", replicas=1), None) for _, name in keys
    ]

    async def plan_all() -> list[Replanned | Problem]:
        return list(
            await asyncio.gather(
                *(
                    planner.answer(k, s, NEW, NOON, lambda _: True)
                    for k, s in zip(keys, subjects, strict=True)
                )
            )
        )

    answers = asyncio.run(plan_all())
    kept = [sum(item.gpus for item in cache.ledger.kept(key)) for key in keys]
    assert all(isinstance(answer, Replanned) and answer.record for answer in answers)
    assert min(kept) > 0
    assert sum(kept) == sum(cache.ledger.taken().values())
    assert max(cache.ledger.taken().values()) <= 8


def test_a_plan_that_is_only_shown_keeps_nothing(cache: ClusterCache) -> None:
    planner = PlanBroker(cache, Inline())
    shown = resolved(planner, a_model_named(model=LARGE, mode="PlanOnly", replicas=1), None)
    assert answered(planner, ("models", "llama"), shown, NEW).record
    assert cache.ledger.taken() == {}


def test_a_second_place_for_a_group_is_on_gpus_that_nobody_has_or_is_none(
    cache: ClusterCache,
) -> None:
    planner = PlanBroker(cache, Inline())
    subject = resolved(planner, a_model_named(mode="Deploy", replicas=1), None)
    key = ("models", "llama")
    record = answered(planner, key, subject, NEW).record
    assert record
    ((first, *_),) = record.plan.groups
    bound = a_pod(
        "llama-0-0", model="llama", set_name="llama-0", node=first, gpus=record.plan.gpus_per_node
    )
    cache.store.take_pods(pods(bound, a_pod("foreign", node="h100-01", gpus=8)))
    beside = Ask(on=record, beside=(0, 1))

    found = answered(planner, key, subject, beside).record
    assert found
    assert found.generations == (1,)
    assert found.plan.groups == ((first,),)  # 8 GPUs hold it twice
    assert cache.ledger.taken() == {"h100-01": 8, first: 2 * record.plan.gpus_per_node}

    cache.store.take_pods(pods(a_pod("another", node=first, gpus=8 - record.plan.gpus_per_node)))
    cache.keep(key, Kept(record=record))
    assert answered(planner, key, subject, beside).record is None


@pytest.mark.parametrize(
    ("count", "place"), [(6, ("h100-02", "h100-03")), (3, ("h100-00", "h100-01"))]
)
@pytest.mark.parametrize("choice", [PlanChoice.REPLAN, PlanChoice.RESTORE])
def test_a_change_while_a_next_generation_starts_leaves_the_former_its_gpus_if_others_are_free(
    count: int, place: tuple[str, ...], choice: PlanChoice
) -> None:
    """The former one serves on h100-00 and -01; the next one, on what is elsewhere, has no pod
    yet.
    """
    cache = ClusterCache()
    planner = PlanBroker(cache, Inline())
    before, after = (
        resolved(planner, a_model_named(name, model=LARGE, workload={"concurrency": load}), None)
        for load, name in LOADS
    )
    cache.store.take_nodes(nodes(*h100_nodes(count)))
    serving = (
        a_pod(f"llama-0-{rank}", model="llama", set_name="llama-0", node=f"h100-0{rank}", gpus=8)
        for rank in range(2)
    )
    cache.store.take_children(STATEFUL_SET, children(a_set("llama-0")))
    cache.store.take_pods(pods(*serving))
    key = ("models", "llama")
    record = a_record(
        cut_hash=before.cut_hash, plan=a_plan(groups=(("h100-02", "h100-03"),)), generations=(1,)
    )
    cache.keep(key, Kept(record=record))

    answer = answered(planner, key, after, Ask(on=record, choice=choice, restored=record.plan))

    assert answer.record is not None
    assert (answer.record.plan.groups, answer.record.generations) == ((place,), (1,))


def test_what_the_cluster_has_broken_is_asked_first_and_going_back_waits_its_turn(
    cache: ClusterCache,
) -> None:
    worker = Inline()
    planner, key = PlanBroker(cache, worker), ("models", "llama")
    subject = resolved(planner, a_model_named(mode="Deploy", replicas=1), None)
    record = answered(planner, key, subject, NEW).record
    assert record
    worker.urgency.clear()
    answered(planner, key, subject, Ask(on=record, choice=PlanChoice.RESTORE, restored=record.plan))
    answered(
        planner, key, subject, Ask(on=record, choice=PlanChoice.REHOUSE, leaving=frozenset({0}))
    )
    assert worker.urgency == [Priority.NEW, Priority.BROKEN]
