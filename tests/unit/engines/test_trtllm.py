"""A plan in TensorRT-LLM's words: every option and key stands in the published lists."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardwright.engines import options, policy, versions
from shardwright.engines.launch import Serving
from shardwright.engines.object_keys import key_problems, key_table, leaves
from shardwright.engines.policy import canonical
from shardwright.engines.registry import TENSORRT_LLM, check_admission
from shardwright.engines.trtllm import arguments as trtllm
from shardwright.engines.trtllm.policy import POLICY, RULES
from shardwright.errors import Problem
from shardwright.layouts.layout import DraftMethod, EngineOverrides, Layout
from shardwright.planning.report import Plan
from tests.support.builders_deployment import a_plan, a_plan_of, a_small_plan
from tests.support.option_values import check_value

check_arguments = partial(options.check_arguments, rules=RULES)
check_features = partial(options.check_features, rules=RULES)
engine_version = partial(versions.engine_version, releases=TENSORRT_LLM.releases)
option_table = partial(policy.option_table, tables=RULES.tables)

LISTS = Path(__file__).parents[2] / "data" / "engines"
OPTIONS = json.loads((LISTS / "trtllm-serve.json").read_text())["options"]
KEYS = json.loads((LISTS / "trtllm-llm-args.json").read_text())
ONLY_LATER = {"context_parallel_size", "enable_attention_dp", "served_model_name", "kv_cache_dtype"}
"""Options that 1.2 does not take on its command line; the list of options is of a later commit
(main at 029e223).
"""

FLAGS = {flag for option in OPTIONS if option["dest"] not in ONLY_LATER for flag in option["flags"]}
FURTHER = json.loads((LISTS / "trtllm-keys.json").read_text())["versions"]
TOP = {key["key"] for key in KEYS["keys"]} | set(FURTHER["1.2"]["keys"])
CACHE = {key["key"] for key in KEYS["kv_cache_config"]}
VERSION = "1.2.1"
LATER = "1.3.0"
VERSIONS = (VERSION, LATER, "1.4.0")
LATER_KEYS = json.loads((LISTS / "trtllm-llm-args-1.3.json").read_text())

PLANS = {
    "one GPU": a_small_plan(memory_utilization=0.95),
    "two nodes": a_plan(memory_utilization=0.95),
    "uneven stages": a_plan_of(
        Layout(tensor=8, pipeline=2, partition=(64, 62)), nodes=2, memory_utilization=0.95
    ),
    "experts": a_plan_of(Layout(attention_data=8, expert=8), memory_utilization=0.95),
    "sets of experts": a_plan_of(Layout(tensor=8, expert=4), memory_utilization=0.95),
}
USERS: dict[str, Any] = {
    "return_perf_metrics": True,
    "reasoning-parser": "qwen3",
    "log_level": "debug",
    "num-postprocess-workers": "2",
}


def _ways(path: str) -> list[str]:
    """Return the path of a key and those of the objects around it."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def serving(**changes: Any) -> Serving:
    values: dict[str, Any] = {
        "model": "org/model",
        "served_name": "org/model",
        "version": VERSION,
        "files_dir": "/etc/shardwright",
    }
    return Serving(**(values | {"load_seconds": 900, "drain_seconds": 10} | changes))


def configuration(plan: Plan, **changes: Any) -> dict[str, Any]:
    (text,) = trtllm.files(plan, serving(**changes)).values()
    found: dict[str, Any] = json.loads(text)
    return found


def test_degrees_and_limits_are_on_the_command_line_and_the_rest_in_the_file() -> None:
    plan = a_plan(memory_utilization=0.95)
    assert trtllm.serve_arguments(plan, serving()) == (
        "org/model",
        *("--tp_size", "8", "--pp_size", "2"),
        *("--max_batch_size", "64", "--max_num_tokens", "8192", "--max_seq_len", "3072"),
        *("--extra_llm_api_options", "/etc/shardwright/trtllm.yaml"),
    )
    assert configuration(
        plan, revision="f" * 40, kv_cache_dtype="fp8", arguments={"dtype": "bfloat16"}
    ) == {
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 64},
        "dtype": "bfloat16",
        "enable_attention_dp": False,
        "enable_chunked_prefill": True,
        "enable_iter_perf_stats": True,
        "gpus_per_node": 8,
        "kv_cache_config": {
            "dtype": "fp8",
            "enable_block_reuse": True,
            "free_gpu_memory_fraction": 0.95,
        },
        "revision": "f" * 40,
    }


def test_attention_replicas_are_tensor_ranks_with_whole_attention_and_whole_experts() -> None:
    words = trtllm.serve_arguments(PLANS["experts"], serving())
    assert words[1:7] == ("--tp_size", "8", "--pp_size", "1", "--ep_size", "8")
    assert configuration(PLANS["experts"])["enable_attention_dp"] is True


def test_sliced_sets_of_experts_are_given_to_the_engine_by_their_number() -> None:
    words = trtllm.serve_arguments(PLANS["sets of experts"], serving())
    assert words[1:7] == ("--tp_size", "8", "--pp_size", "1", "--ep_size", "4")
    assert configuration(PLANS["sets of experts"])["enable_attention_dp"] is False


def test_stages_that_the_engine_would_cut_otherwise_are_named() -> None:
    assert configuration(PLANS["uneven stages"])["pp_partition"] == [64, 62]
    assert "pp_partition" not in configuration(PLANS["two nodes"])


@pytest.mark.parametrize("name", PLANS)
def test_every_option_and_key_that_is_rendered_is_published(name: str) -> None:
    words = trtllm.serve_arguments(PLANS[name], serving(arguments=USERS))
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= FLAGS
    said = configuration(PLANS[name], arguments=USERS | {"dtype": "float16"}, revision="f" * 40)
    assert set(said) <= TOP
    assert set(said["kv_cache_config"]) <= CACHE


@pytest.mark.parametrize("name", PLANS)
def test_every_option_and_key_that_is_rendered_is_there_in_1_3_too(name: str) -> None:
    table = option_table(LATER) or {}
    flags = {flag for option in OPTIONS for flag in option["flags"]}
    words = trtllm.serve_arguments(PLANS[name], serving(arguments=USERS, version=LATER))
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags
    said = configuration(PLANS[name], arguments=USERS, revision="f" * 40, version=LATER)
    assert set(said) <= {option.key for option in table.values()}
    assert set(said["kv_cache_config"]) <= set(LATER_KEYS["kv_cache_config"])


def test_1_3_has_every_key_of_1_2_and_more_and_1_4_those_that_came_then() -> None:
    keys = {option.key for option in (option_table(LATER) or {}).values()} - {""}
    newest = {option.key for option in (option_table("1.4.0") or {}).values()} - {""}
    assert newest - keys == set(LATER_KEYS["only_after"])
    assert keys == {key["key"] for key in LATER_KEYS["keys"]}
    assert len(TOP) < len(keys) == 99
    assert keys >= TOP


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [
        ("served_model_name", "x", "EngineArgumentOwned"),
        ("kv_cache_dtype", "fp8", "EngineArgumentOwned"),
        ("cp_size", 2, "EngineArgumentOwned"),
        ("telemetry_config", "{}", "EngineArgumentForbidden"),
        ("log_level", "loud", "EngineArgumentInvalid"),
        ("log_level", "debug", None),
    ],
)
def test_arguments_of_1_3_are_judged_by_its_own_list(
    argument: str, value: object, code: str | None
) -> None:
    found = check_arguments({argument: value}, LATER)
    assert [problem.code for problem in found] == ([code] if code else [])


@pytest.mark.parametrize("name", PLANS)
def test_the_parsers_types_take_every_value_that_is_rendered(name: str) -> None:
    words = trtllm.serve_arguments(PLANS[name], serving())[1:]
    pairs = zip(words[::2], words[1::2], strict=True)
    assert [
        check_value(flag.removeprefix("--"), value, VERSION, RULES) for flag, value in pairs
    ] == [None] * (len(words) // 2)


def test_no_word_holds_a_space_because_the_launcher_splits_them_again() -> None:
    words = trtllm.serve_arguments(PLANS["two nodes"], serving(arguments=USERS))
    assert [word for word in words if len(word.split()) != 1] == []


GRAPHS = {"batch_sizes": [1, 2, 4], "enable_padding": True}
DRAFTED = {
    DraftMethod.PROMPT_LOOKUP: ("NGram", "NGram"),
    DraftMethod.DRAFT_MODEL: ("DraftTarget", "Draft_Target"),
    DraftMethod.EAGLE3: ("Eagle", "Eagle3"),
    DraftMethod.MTP: ("MTP", "MTP"),
}


def test_graphs_are_a_users_own_or_those_of_the_planned_batch() -> None:
    plan = PLANS["two nodes"]
    assert configuration(plan)["cuda_graph_config"] == {
        "enable_padding": True,
        "max_batch_size": plan.max_sequences,
    }
    for own, sizes in ((GRAPHS, (1, 2, 4)), ({}, (*range(1, 32), 32, 64, 128))):
        arguments = {"cuda_graph_config": own}
        assert configuration(plan, arguments=arguments)["cuda_graph_config"] == own
        assert RULES.pins(arguments, POLICY).told.captured == sizes


@pytest.mark.parametrize("method", DRAFTED)
@pytest.mark.parametrize("version", [VERSION, LATER, "1.4.0"])
def test_every_way_to_draft_is_said_in_the_words_of_the_version(
    method: DraftMethod, version: str
) -> None:
    own = {"drafts_by": method, "draft_tokens": 3, "draft_model": "/drafts/m", "version": version}
    extra = {"speculative_config": {"max_concurrency": 8}}
    said = configuration(PLANS["one GPU"], arguments=extra, **own)["speculative_config"]

    older = version == VERSION
    assert said["decoding_type"] == DRAFTED[method][0 if older else 1]
    length = "num_nextn_predict_layers" if older and method is DraftMethod.MTP else "max_draft_len"
    assert (said[length], said["max_concurrency"]) == (3, 8)
    keys = key_table(version, RULES.tables)
    assert list(key_problems("speculative_config", said, keys)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", PLANS)
def test_the_keys_of_every_object_that_is_rendered_are_published(name: str, version: str) -> None:
    keys = key_table(version, RULES.tables)
    said = configuration(PLANS[name], version=version)
    assert [
        problem
        for key, value in said.items()
        if keys.inside(key)
        for problem in key_problems(key, value, keys)
    ] == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"kv_cache_config": {"tokens_per_blok": 64}}, ("Unknown", "tokens_per_block")),
        ({"kv_cache_config": {"tokens_per_block": "many"}}, ("Invalid", "a whole number")),
        ({"kv_cache_config": {"tokens_per_block": 48}}, ("Invalid", "a power of two")),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 1.5}}, ("Invalid", "at most 1")),
        ({"kv_cache_config": {"dtype": "fp8"}}, ("Owned", "spec.engine.kvCacheQuantization")),
        ({"kv_cache_config": {"host_cache_size": 1}}, ("Forbidden", "not planned for")),
        ({"kv_cache_config": {"max_tokens": None}}, ("Forbidden", "the memory of K/V")),
        ({"kv-cache-config": {"free_gpu_memory_fraction": "x"}}, ("Invalid", "a number")),
        ({"cuda_graph_config": {"max_batch_size": -1}}, ("Invalid", "from 0 to 65,536")),
        ({"cuda_graph_config": {"max_batch_size": 10**8}}, ("Invalid", "from 0 to 65,536")),
        ({"cuda_graph_config": {"batch_sizes": [65_537]}}, ("Invalid", "from 1 to 65,536")),
        ({"max_batch_size": 10**400}, ("Invalid", "from 1 to 9,007,199,254,740,992")),
        ({"kv_cache_config": {"free_gpu_memory_fraction": "nan"}}, ("Invalid", "a number")),
        ({"kv_cache_config": 3}, ("Invalid", "an object with keys of enable_block_reuse")),
        ({"cuda_graph_config": {"batch_sizes": [1, "x"]}}, ("Invalid", "each a whole number")),
        (
            {"cuda_graph_config": {"batch_sizes": [1, 8], "max_batch_size": 4}},
            ("Invalid", "the largest of batch_sizes, 8"),
        ),
        ({"moe_config": '{"backend": "FAST"}'}, ("Invalid", "AUTO, CUTLASS")),
        ({"moe_config": {"load_balancer": "a.yaml"}}, ("Forbidden", "ask the operator's")),
        (
            {"scheduler_config": {"dynamic_batch_config": {"enable": True}}},
            ("Unknown", "scheduler_config.dynamic_batch_config"),
        ),
        (
            {"scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"}},
            ("Forbidden", "how many requests run at once"),
        ),
        ({"speculative_config": {"max_draft_len": 3}}, ("Owned", "speculation.tokens")),
    ],
)
def test_a_fault_inside_an_object_is_one_message_at_its_path(
    arguments: dict[str, Any], found: tuple[str, str]
) -> None:
    (problem,) = check_arguments(arguments, VERSION)
    assert problem.code == f"EngineArgument{found[0]}"
    assert found[1] in str(problem)
    assert problem.path.startswith(next(iter(arguments)).replace("-", "_"))


def test_an_object_may_be_yaml_or_json_text_and_reaches_the_file_as_an_object() -> None:
    for value in ({"backend": "TRTLLM"}, '{"backend": "TRTLLM"}'):
        assert check_arguments({"moe-config": value}, VERSION) == ()
        said = configuration(PLANS["one GPU"], arguments={"moe-config": value})
        assert said["moe_config"] == {"backend": "TRTLLM"}


def test_an_administrator_admits_a_key_of_an_object_by_its_path() -> None:
    admitted = frozenset({"moe-config.load-balancer"})
    assert check_admission(admitted) == ()
    assert check_arguments({"moe_config": {"load_balancer": "a"}}, VERSION, admitted) == ()


def test_traces_go_to_a_collector_that_the_administrator_admits() -> None:
    traced = {"otlp_traces_endpoint": "http://collector:4317"}
    assert [problem.code for problem in check_arguments(traced, VERSION)] == [
        "EngineArgumentForbidden"
    ]
    assert check_arguments(traced, VERSION, collectors={"http://collector:4317"}) == ()


def test_what_a_plan_counts_with_is_read_out_of_objects() -> None:
    pins = RULES.pins(
        {
            "max_batch_size": 32,
            "max-num-tokens": "4096",
            "dtype": "float16",
            "enable_chunked_prefill": False,
            "attn_backend": "VANILLA",
            "cuda_graph_config": GRAPHS,
            "kv_cache_config": {
                "free_gpu_memory_fraction": 0.8,
                "tokens_per_block": 64,
                "mamba_ssm_cache_dtype": "bfloat16",
                "use_kv_cache_manager_v2": True,
            },
        },
        POLICY,
    )
    assert pins == options.Pins(
        dtype="fp16",
        state_bits=16,
        block_tokens=64,
        memory_utilization=0.8,
        chunks_prompts=False,
        told=EngineOverrides(
            batched_tokens=4096,
            sequences=32,
            captured=(1, 2, 4),
            uncounted=("attn-backend", "kv-cache-config.use-kv-cache-manager-v2"),
        ),
    )


def test_the_table_of_options_is_that_of_the_published_lists() -> None:
    table = option_table(VERSION) or {}
    assert {option.key for option in table.values() if option.key} == TOP
    listed = {
        flag
        for option in table.values()
        for flag in (option.flag, *(f"--{alias}" for alias in option.aliases))
    }
    assert {flag.replace("_", "-") for flag in FLAGS - {"--no-telemetry"}} <= {
        flag.replace("_", "-") for flag in listed
    }


def test_every_argument_of_the_policy_is_published_and_stands_in_one_list() -> None:
    lists = [
        set(names)
        for names in (
            POLICY.allowed,
            POLICY.counted,
            POLICY.owned,
            POLICY.dangerous,
            POLICY.incompatible,
            POLICY.uncounted,
        )
    ]
    names = set().union(*lists)
    options = set().union(*(option_table(version) or {} for version in VERSIONS))
    keys = [key_table(version, RULES.tables) for version in VERSIONS]
    paths = {path for each in keys for key in each.kinds for path in _ways(canonical(key))}
    assert names <= options | paths
    assert len(names) == sum(map(len, lists))
    assert set(POLICY.harmless) <= paths | options


@pytest.mark.parametrize(
    "plan",
    [PLANS["two nodes"], PLANS["experts"], PLANS["uneven stages"]],
    ids=["nodes", "experts", "stages"],
)
def test_what_is_rendered_is_the_plans_or_counted_with(plan: Plan) -> None:
    flags = [
        word.removeprefix("--")
        for word in trtllm.serve_arguments(plan, serving())
        if word.startswith("--")
    ]
    keys = configuration(plan, revision="f" * 40, drafts_by=DraftMethod.MTP, draft_tokens=3)
    paths = [
        canonical(path)
        for name, value in keys.items()
        for path, _ in leaves(name, value, key_table(VERSION, RULES.tables))
    ]
    table = option_table(VERSION) or {}
    aliases = {alias: option.name for option in table.values() for alias in option.aliases}
    names = {canonical(flag) for flag in flags} - {"extra-llm-api-options"}
    owned = {aliases.get(name, name) for name in (*names, *paths)}
    free = {"kv-cache-config.enable-block-reuse"}
    assert owned - set(POLICY.owned) - set(POLICY.counted) == free


def test_allowed_arguments_go_where_the_version_reads_them_with_their_types() -> None:
    assert check_arguments(USERS, VERSION) == ()
    assert (
        trtllm.serve_arguments(PLANS["two nodes"], serving(arguments=USERS))[-1]
        == "--log_level=debug"
    )
    said = configuration(PLANS["two nodes"], arguments=USERS)
    assert (
        said["return_perf_metrics"],
        said["reasoning_parser"],
        said["num_postprocess_workers"],
    ) == (True, "qwen3", 2)


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [
        ("tp_size", 4, "EngineArgumentOwned"),
        ("trust_remote_code", True, "EngineArgumentForbidden"),
        ("env_overrides", "{}", "EngineArgumentForbidden"),
        ("iter_stats_max_iterations", 10, "EngineArgumentForbidden"),
        ("served_model_name", "x", "EngineArgumentUnknown"),
        ("attn_backend", "VANILLA", "EngineArgumentForbidden"),
        ("dtype", "int8", "EngineArgumentInvalid"),
        ("max_batch_size", 0, "EngineArgumentInvalid"),
        ("log_level", "loud", "EngineArgumentInvalid"),
        ("num_postprocess_workers", "two", "EngineArgumentInvalid"),
        ("enable-prefix-caching", True, "EngineArgumentUnknown"),
    ],
)
def test_arguments_that_a_user_may_not_set_are_refused(
    argument: str, value: object, code: str
) -> None:
    assert [problem.code for problem in check_arguments({argument: value}, VERSION)] == [code]


def test_an_administrator_admits_by_one_name_for_both_engines() -> None:
    admitted = frozenset({"trust-remote-code"})
    assert check_admission({"trust-remote-code", "custom-tokenizer"}) == ()
    assert check_arguments({"trust_remote_code": True}, VERSION, admitted) == ()
    assert [problem.path for problem in check_admission({"env-overrides", "log-level"})] == [
        "env-overrides",
        "log-level",
    ]


def test_a_version_without_a_list_takes_no_arguments_and_names_the_engine() -> None:
    (problem,) = check_arguments({"log_level": "debug"}, "1.5.0")
    assert (problem.code, problem.what) == (
        "EngineArgumentUnchecked",
        "the options of TensorRT-LLM 1.5.0",
    )


def test_what_it_cannot_be_told_is_refused_at_the_field_that_asks() -> None:
    (problem,) = check_features({"load-format": "spec.model.loadFormat"}, VERSION)
    assert (problem.code, problem.path) == ("EngineFeatureMissing", "spec.model.loadFormat")
    assert check_features({"kv-cache-dtype": "spec.engine.kvCacheQuantization"}, VERSION) == ()


@pytest.mark.parametrize(
    ("image", "stated", "found"),
    [
        ("registry.internal/nvidia/tensorrt-llm/release:1.2.1", None, "1.2.1"),
        ("tensorrt-llm:v1.3.0rc5", None, "1.3.0"),
        ("registry.internal:5000/team/server:1.2.1", None, "EngineVersionUnknown"),
        ("registry.internal:5000/team/server", "1.2.1", "1.2.1"),
        ("nvidia/tensorrt-llm/release:1.2.1", "1.2.0", "EngineVersionMismatch"),
        ("nvidia/tensorrt-llm/release:1.1.0", None, "EngineVersionUnsupported"),
        ("", None, "EngineImageUnnamed"),
    ],
)
def test_the_version_is_read_from_its_own_images_and_stated_for_others(
    image: str, stated: str | None, found: str
) -> None:
    version = engine_version(image, stated)
    assert (version.code if isinstance(version, Problem) else version) == found


def test_every_plan_says_what_is_not_known_of_it_and_it_is_for_nvidia_only() -> None:
    (warning,) = TENSORRT_LLM.traits(VERSION).warnings
    assert "its model classes and its memory are not" in warning
    assert TENSORRT_LLM.releases.runs_on == {"nvidia.com/gpu"}
