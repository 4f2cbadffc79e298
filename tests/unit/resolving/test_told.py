"""What a user's arguments and the model's family change: of the plan, and of what the engine is
told.
"""

import json
from typing import Any

from shardwright.api.admission import UserPolicy
from shardwright.api.settings import Settings, read_settings
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.report import Plan
from shardwright.rendering.place import pod_template
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import a_resource, plan_of, problems_of, stock

ADMITTED = Settings(policy=UserPolicy(admitted_arguments=["enable-eplb"]))


def planned(question: Question) -> tuple[Plan, list[str]]:
    """Return the plan on an H100 node and the words after `vllm serve`."""
    subject = resolve(question)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
    return plan, pod_template(plan, subject.deployment, 0)["spec"]["containers"][0]["args"]


def told(settings: Settings | None = None, **args: Any) -> Question:
    named = {name.replace("_", "-"): value for name, value in args.items()}
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    resource = a_resource(model=model, engine={"args": named}, workload={"concurrency": 1})
    return Question(resource=resource, settings=settings or Settings())


def test_batch_limits_of_a_user_are_those_of_the_plan_and_are_said_once() -> None:
    plan, words = planned(
        told(max_num_seqs=48, max_num_batched_tokens=2048, gpu_memory_utilization=0.8)
    )

    assert (plan.max_sequences, plan.max_batched_tokens, plan.memory_utilization) == (48, 2048, 0.8)
    said = [
        words[words.index(f"--{name}") + 1]
        for name in ("max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization")
    ]
    assert said == ["48", "2048", "0.8"]
    assert sum("max-num" in word or "utilization" in word for word in words) == 3


def test_without_captured_graphs_there_is_more_room_for_k_v_and_a_token_takes_longer() -> None:
    plain, eager = planned(told())[0], planned(told(enforce_eager=True))[0]

    assert eager.stages[0].overhead_bytes < plain.stages[0].overhead_bytes
    assert eager.kv_tokens > plain.kv_tokens
    assert eager.performance.tpot_seconds > plain.performance.tpot_seconds


def test_an_option_of_unknown_effect_must_be_admitted_and_widens_the_bands() -> None:
    assert problems_of(told(enable_eplb=True)) == [
        ("EngineArgumentForbidden", "spec.engine.args.enable-eplb")
    ]

    plain, uncounted = planned(told())[0], planned(told(ADMITTED, enable_eplb=True))[0]

    assert (plain.uncounted, uncounted.uncounted) == ((), ("enable-eplb",))
    assert uncounted.stages[0].band_bytes == 2 * plain.stages[0].band_bytes
    assert uncounted.performance.low < plain.performance.low
    assert uncounted.performance.high > plain.performance.high
    assert any(
        warning.startswith("spec.engine.args.enable-eplb is not counted")
        for warning in uncounted.warnings
    )


def test_a_family_says_its_parsers_until_the_spec_says_its_own_or_none() -> None:
    def parsers(**engine: Any) -> list[str]:
        question = Question(resource=a_resource(model={"id": "Qwen/Qwen3-8B"}, engine=engine))
        return [word for word in planned(question)[1] if "parser" in word or "auto-tool" in word]

    assert parsers() == [
        "--enable-auto-tool-choice",
        "--reasoning-parser=qwen3",
        "--tool-call-parser=hermes",
    ]
    assert parsers(args={"reasoning-parser": "none"}) == [
        "--enable-auto-tool-choice",
        "--reasoning-parser=none",
        "--tool-call-parser=hermes",
    ]
    assert parsers(familyDefaults="None") == []


def test_the_administrator_turns_parsers_by_family_off_for_all_who_do_not_turn_them_on() -> None:
    settings = read_settings(json.dumps({"engineDefaults": {"engine": {"familyDefaults": "None"}}}))

    def arguments(**engine: Any) -> list[str]:
        resource = a_resource(model={"id": "Qwen/Qwen3-8B"}, engine=engine)
        return sorted(
            resolve(Question(resource=resource, settings=settings)).deployment.serving.arguments
            or {}
        )

    assert arguments() == []
    assert arguments(familyDefaults="Auto") == [
        "enable-auto-tool-choice",
        "reasoning-parser",
        "tool-call-parser",
    ]


def test_a_family_is_no_part_of_what_the_pods_were_asked_for() -> None:
    """So a release that knows a family more restarts nothing (decision 15)."""
    spec = a_resource(model={"id": "Qwen/Qwen3-8B"}).spec

    assert "familyDefaults" not in spec.model_dump(by_alias=True, exclude_none=True)["engine"]
