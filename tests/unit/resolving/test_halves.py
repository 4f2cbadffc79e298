"""The halves of a pair, each a model of its own: what is planned of it, and who it belongs to."""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.costs.workload import Phase
from shardwright.errors import InputError
from shardwright.pipeline.assembly import compared, plan_serving
from shardwright.planning.report import Half as PlannedHalf
from shardwright.planning.report import Pair, Plan
from shardwright.rendering.deployment import PairMember
from shardwright.resolving.model import Question
from shardwright.resolving.paired_models import halves_of
from shardwright.resolving.subject import Administration, Subject, resolve, resolve_stored
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import ADMITTING, a_resource, stock

LIMITS = {"objective": {"ttftMilliseconds": 500, "tpotMilliseconds": 20}}
APART: dict[str, Any] = {"disaggregation": {"mode": "On"}, "routing": {"mode": "Router"}}


def half(name: str, phase: str, **spec: Any) -> Subject:
    manifest = a_sharded_model(name, phase=phase, **spec)
    return resolve(Question(resource=parse_manifest(manifest), settings=ADMITTING))


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.DECODE])
def test_the_name_of_a_half_names_its_pair(phase: Phase) -> None:
    found = half(f"llama-{phase.lower()}", phase)

    assert found.deployment.half == PairMember(phase=phase, pair="llama")
    assert found.intent.new_pods
    assert found.request.space.pipeline == 1


@pytest.mark.parametrize("name", ["llama", "llama-decode", "prefill"])
def test_a_half_that_names_no_pair_is_refused(name: str) -> None:
    with pytest.raises(InputError) as refused:
        half(name, "Prefill")

    assert [problem.code for problem in refused.value.problems] == ["HalfWithoutPair"]


def test_each_half_is_planned_for_what_it_does_and_held_to_the_limit_of_that() -> None:
    prompts, answers = half("m-prefill", "Prefill", **LIMITS), half("m-decode", "Decode", **LIMITS)

    assert (prompts.request.workload.output_tokens, answers.request.workload.output_tokens) == (
        1,
        512,
    )
    assert answers.request.workload.prefix_cache_hit_rate == pytest.approx(2047 / 2048)
    assert prompts.request.objective.tpot_seconds is None
    assert prompts.request.objective.ttft_seconds == pytest.approx(0.5)
    assert answers.request.objective.ttft_seconds is None
    assert answers.request.objective.tpot_seconds == pytest.approx(0.02)
    assert prompts.request.workload.max_model_len == answers.request.workload.max_model_len


def test_prompts_are_told_to_the_router_and_whole_said_is_whole_left_out() -> None:
    assert half("m-prefill", "Prefill").deployment.serving.gives_tokens
    assert not half("m-decode", "Decode").deployment.serving.gives_tokens
    assert half("m", "Whole").input_hash == half("m", None).input_hash  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["SGLang", "TensorRTLLM"])
def test_other_engines_are_refused_for_a_half(engine: str) -> None:
    image = {"image": "registry.internal/server", "version": "1.2.1"}
    stated = image if engine == "TensorRTLLM" else {}

    with pytest.raises(InputError) as refused:
        half("m-decode", "Decode", engine={"name": engine, **stated})

    assert [problem.path for problem in refused.value.problems] == ["spec.phase"]


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, ["PairNotMade"]),
        ({"disaggregation": {"mode": "Auto"}}, ["PairNotMade"]),
        ({"disaggregation": {"mode": "Off"}}, []),
        ({"mode": "PlanOnly"}, []),
    ],
    ids=["asked for", "left to the plan", "off", "only planned"],
)
def test_the_operator_makes_no_halves_by_itself(
    changed: dict[str, Any], refused: list[str]
) -> None:
    found = resolve_stored(a_sharded_model(**APART | changed), None, Administration())

    assert [problem.code for problem in (found if isinstance(found, tuple) else ())] == refused


def test_what_a_half_is_compared_with_has_one_stage() -> None:
    asked = half(
        "m-prefill",
        "Prefill",
        model={"id": "Qwen/Qwen3-32B"},
        parallelism={"tensor": 1},
        workload={"inputTokens": 8192},
        objective={"optimizeFor": "Throughput"},
    )
    inventory = stock(asked, h100_nodes(2))

    found = compared(asked, inventory, plan_serving(asked, inventory))

    assert found is not None
    assert found.best.layout.pipeline == 1
    assert found.best.layout.tensor > 1


def test_a_half_without_pins_is_compared_with_nothing() -> None:
    asked = half("m-prefill", "Prefill")
    inventory = stock(asked, h100_nodes(1))

    assert compared(asked, inventory, plan_serving(asked, inventory)) is None


def test_a_planned_pair_becomes_two_models_that_are_planned_as_it_was() -> None:
    load = {"inputTokens": 8000, "outputTokens": 500, "requestsPerSecond": 4}
    whole = a_resource(**APART, workload=load, budget={"gpus": 8})
    prefill, decode = (
        planned_half(phase, count) for phase, count in (("Prefill", 1), ("Decode", 2))
    )
    pair = Pair(
        units=1,
        prefill=prefill,
        decode=decode,
        transfer_bytes=0,
        transfer_seconds=0,
        performance=decode.plan.performance,
        gain=None,
    )

    made = [parse_manifest(half) for half in halves_of(whole, pair)]

    assert [one.metadata.name for one in made] == ["llama-prefill", "llama-decode"]
    assert [one.spec.routing and one.spec.routing.mode for one in made] == [None, "Router"]
    assert [one.spec.workload.concurrency for one in made] == [4, 7]
    assert made[0].spec.engine.max_model_len == made[1].spec.engine.max_model_len
    for one, half in zip(made, (prefill, decode), strict=True):
        subject = resolve(Question(resource=one))
        plan = plan_serving(subject, stock(subject, h100_nodes(1))).outcome
        assert isinstance(plan, Plan)
        assert plan.layout == half.plan.layout


def planned_half(phase: str, groups: int) -> PlannedHalf:
    asked = half(f"m-{phase.lower()}", phase, replicas=groups, parallelism={"tensor": 1})
    plan = plan_serving(asked, stock(asked, h100_nodes(1))).outcome
    assert isinstance(plan, Plan)
    return PlannedHalf(phase=Phase(phase), groups=groups, plan=plan, rate=1, in_flight=3.5)
