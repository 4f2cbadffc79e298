"""A plan in SGLang's words, and what a user may say beside it; its own parser is asked in
``tests/engine``.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from shardwright.engines import assumed, options, policy, versions
from shardwright.engines.launch import Serving, Start
from shardwright.engines.registry import SGLANG, traits_of
from shardwright.engines.sglang.arguments import serve_arguments, static_fraction
from shardwright.engines.sglang.policy import POLICY, RULES
from shardwright.layouts.layout import DraftMethod, Layout
from shardwright.planning.engine_limits import lookup_problems
from shardwright.planning.report import Plan
from shardwright.resolving.model import Question
from tests.support.builders_deployment import a_plan, a_plan_of, a_small_plan
from tests.support.builders_subject import a_resource, a_subject, problems_of

check_arguments = partial(options.check_arguments, rules=RULES)
TABLE = policy.option_table("0.5.23", RULES.tables) or {}


def told(plan: Plan, **changes: Any) -> dict[str, str]:
    """Return the options of a plan, each with its value."""
    values: dict[str, Any] = {"model": "org/model", "served_name": "m", "version": "0.5.23"}
    times = {"load_seconds": 900, "drain_seconds": 10, "execute_seconds": 120}
    words = iter(serve_arguments(plan, Serving(**(values | times | changes))))
    found: dict[str, str] = {}
    for word in words:
        name, joined, value = word.removeprefix("--").partition("=")
        switch = TABLE[name].switch
        found[name] = value if joined else "" if switch else next(words)
    return found


def test_every_option_of_the_parser_is_of_one_class() -> None:
    classes = [
        POLICY.allowed,
        POLICY.counted,
        POLICY.owned,
        POLICY.dangerous,
        POLICY.incompatible,
        POLICY.uncounted,
    ]

    assert sorted(name for each in classes for name in each) == sorted(TABLE)


def test_attention_replicas_are_cut_out_of_the_tensor_ranks_and_share_their_limits() -> None:
    plan = a_plan_of(Layout(tensor=4, attention_data=4, expert=8), nodes=2)

    found = told(plan)

    degrees = ("tp-size", "pp-size", "attn-dp-size", "ep-size", "nnodes")
    assert [found[name] for name in degrees] == ["16", "1", "4", "8", "2"]
    assert int(found["max-running-requests"]) == 4 * plan.max_sequences
    assert int(found["chunked-prefill-size"]) == 4 * plan.max_batched_tokens
    assert int(found["max-prefill-tokens"]) == plan.max_batched_tokens
    assert "dcp-size" not in found


def test_degrees_of_one_are_not_said_but_for_those_that_every_plan_has() -> None:
    found = told(a_small_plan())

    assert (found["tp-size"], found["pp-size"]) == ("1", "1")
    assert found.keys().isdisjoint({"attn-dp-size", "ep-size", "nnodes", "dcp-size"})


def test_what_an_engine_may_take_is_weights_and_kv_of_the_fullest_stage() -> None:
    plan = a_plan(memory_utilization=0.9)
    first = plan.stages[0]
    emptier = replace(first, kv_cache_bytes=first.kv_cache_bytes // 2)
    free = first.budget_bytes / 0.9 - assumed.FIXED_OVERHEAD_BYTES

    found = static_fraction(replace(plan, stages=(first, emptier)))

    left = found * free - emptier.weights_bytes
    assert 0 <= emptier.kv_cache_bytes - left < free / 1000


@pytest.mark.parametrize(
    ("method", "model", "said"),
    [
        (
            DraftMethod.PROMPT_LOOKUP,
            None,
            {
                "speculative-algorithm": "NGRAM",
                "speculative-num-draft-tokens": "4",
                "speculative-ngram-min-bfs-breadth": "1",
                "speculative-ngram-max-bfs-breadth": "1",
            },
        ),
        (
            DraftMethod.MTP,
            None,
            {
                "speculative-algorithm": "NEXTN",
                "speculative-num-draft-tokens": "4",
                "speculative-num-steps": "3",
                "speculative-eagle-topk": "1",
            },
        ),
        (
            DraftMethod.EAGLE3,
            "/drafts/head",
            {
                "speculative-algorithm": "EAGLE3",
                "speculative-draft-model-path": "/drafts/head",
                "speculative-num-draft-tokens": "4",
                "speculative-num-steps": "3",
                "speculative-eagle-topk": "1",
            },
        ),
    ],
)
def test_tokens_are_drafted_in_a_chain(
    method: DraftMethod, model: str | None, said: dict[str, str]
) -> None:
    found = told(a_small_plan(), drafts_by=method, draft_tokens=3, draft_model=model)

    assert {name: value for name, value in found.items() if name.startswith("spec")} == said


@pytest.mark.parametrize(
    ("domains", "hosts"), [({}, "none.invalid"), ({"media_domains": ("a.example",)}, "a.example")]
)
def test_media_are_fetched_from_the_named_hosts_alone(
    domains: dict[str, tuple[str, ...]], hosts: str
) -> None:
    assert told(a_small_plan(), **domains)["allowed-media-domains"] == hosts


def test_formats_have_its_own_names() -> None:
    found = told(
        a_small_plan(), kv_cache_dtype="fp8", quantization="fp8", load_format="fastsafetensors"
    )

    assert found["kv-cache-dtype"] == "fp8_e4m3"
    assert (found["quantization"], found["load-format"]) == ("fp8", "fastsafetensors")
    assert found["kv-cache-dtype"] in TABLE["kv-cache-dtype"].choices


def test_stages_of_a_users_cut_go_by_a_variable() -> None:
    start = Start(own_dir="/cache", load_seconds=900, execute_seconds=120)

    cut = SGLANG.environment(a_plan_of(Layout(pipeline=2, partition=(70, 56)), nodes=2), start)

    assert cut["SGLANG_PP_LAYER_PARTITION"] == "70,56"
    assert "SGLANG_PP_LAYER_PARTITION" not in SGLANG.environment(a_plan(), start)


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ({"schedule-policy": "lpm", "reasoning-parser": "qwen3"}, []),
        ({"media-url-max-file-size-mb": 8}, []),
        ({"allowed-media-domains": ["a.example"]}, ["EngineArgumentOwned"]),
        ({"schedule-policy": "no-such"}, ["EngineArgumentInvalid"]),
        ({"mem-fraction-static": 0.5}, ["EngineArgumentOwned"]),
        ({"tensor-parallel-size": 2}, ["EngineArgumentOwned"]),
        ({"config": "/x.yaml"}, ["EngineArgumentForbidden"]),
        ({"admin-api-key": "k"}, ["EngineArgumentForbidden"]),
        ({"moe-a2a-backend": "deepep"}, ["EngineArgumentForbidden"]),
        ({"gpu-memory-utilization": 0.9}, ["EngineArgumentUnknown"]),
    ],
)
def test_what_it_refuses_and_what_would_change_a_plan_is_refused_before(
    said: dict[str, Any], codes: list[str]
) -> None:
    assert [problem.code for problem in check_arguments(said, "0.5.23")] == codes


def test_a_patch_release_has_options_of_its_own_and_none_are_guessed() -> None:
    found = check_arguments({"schedule-policy": "lpm"}, "0.5.24")

    assert [problem.code for problem in found] == ["EngineArgumentUnchecked"]


@pytest.mark.parametrize(
    ("image", "version"),
    [("lmsysorg/sglang:v0.5.23-cu130", "0.5.23"), ("mirror.internal/sglang:v0.6.0", "0.6.0")],
)
def test_the_tag_of_an_image_of_its_name_is_its_version(image: str, version: str) -> None:
    assert versions.engine_version(image, None, SGLANG.releases) == version


def test_older_releases_are_refused() -> None:
    found = versions.engine_version("lmsysorg/sglang:v0.5.22", None, SGLANG.releases)

    assert getattr(found, "code", "") == "EngineVersionUnsupported"


def test_sglang_is_served_by_default_with_the_image_of_its_newest_known_release() -> None:
    subject = a_subject(engine={"name": "SGLang"})

    assert subject.deployment.image == "lmsysorg/sglang:v0.5.23"
    assert subject.traits.support.runs_on == ("nvidia.com/gpu",)
    assert [line.partition(":")[0] for line in subject.traits.warnings] == ["SGLang"]


LOOKED_UP = {"method": "PromptLookup", "tokens": 3, "acceptancePercent": 50}


def test_no_drafts_are_looked_up_beside_stages_or_replicas_of_the_attention() -> None:
    subject = a_subject(engine={"name": "SGLang", "speculation": LOOKED_UP})
    layouts = (Layout(tensor=8), Layout(pipeline=2), Layout(attention_data=8, expert=8))

    found = [[one.code for one in lookup_problems(each, subject.traits)] for each in layouts]

    assert found == [[], ["DraftExcludesPipeline"], ["DraftExcludesAttentionData"]]


def test_vllm_looks_drafts_up_beside_stages() -> None:
    subject = a_subject(engine={"speculation": LOOKED_UP})

    assert list(lookup_problems(Layout(pipeline=2), subject.traits)) == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"engine": {"kvOffload": {"hostMemory": "16Gi"}}}, "spec.engine.kvOffload"),
        (
            {"model": {"adapters": [{"name": "a", "uri": "pvc://adapters/a"}]}},
            "spec.model.adapters",
        ),
        ({"serving": {"overload": "Refuse"}}, "spec.serving.overload"),
        ({"serving": {"order": "Priority"}}, "spec.serving.order"),
    ],
)
def test_what_it_is_not_told_is_refused_by_the_field_that_asks(
    spec: dict[str, Any], path: str
) -> None:
    asked = {"name": "SGLang"} | spec.get("engine", {})
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"} | spec.get("model", {})

    found = problems_of(Question(resource=a_resource(**(spec | {"model": model, "engine": asked}))))

    assert found == [("EngineFeatureMissing", path)]


def test_a_name_that_it_does_not_take_is_refused() -> None:
    named = {"id": "meta-llama/Llama-3.1-8B-Instruct", "servedName": "llama:8b"}

    question = Question(resource=a_resource(model=named, engine={"name": "SGLang"}))
    assert problems_of(question) == [("EngineArgumentInvalid", "spec.model.servedName")]
    assert a_subject(model=named).deployment.serving.served_name == "llama:8b"


def test_what_is_predicted_of_it_is_what_it_was_before_anybody_could_run_it() -> None:
    predicted = traits_of("SGLang", None)

    assert (predicted.warnings, predicted.cuts.shares_context) == ((), True)
    assert not predicted.cuts.deals_experts_evenly
    assert SGLANG.traits("0.5.23").cuts.deals_experts_evenly
