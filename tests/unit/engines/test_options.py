"""Engine arguments: the policy for users, and agreement with vLLM's own parser."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shardwright.engines import options, policy
from shardwright.engines.registry import check_admission
from shardwright.engines.vllm.policy import POLICY, RULES
from tests.support.command_lines import read_arguments
from tests.support.option_values import check_value

VERSIONS = RULES.tables.versions
argument_list = partial(options.argument_list, rules=RULES)
check_arguments = partial(options.check_arguments, rules=RULES)
check_features = partial(options.check_features, rules=RULES)
option_table = partial(policy.option_table, tables=RULES.tables)

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data/engines/vllm-accept-refuse.json").read_text(encoding="utf-8")
)["cases"]


def codes(arguments: dict[str, object], version: str = "0.33.0") -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in check_arguments(arguments, version)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_names_types_and_choices_are_judged_as_the_real_parser_judged_them(
    case: dict[str, Any],
) -> None:
    _, options = read_arguments(case["args"])
    parsed = case["accepted"] or case["stage"] != "parse"
    assert (
        all(check_value(name, value, "0.32.0") is None for name, value in options.items()) == parsed
    )


def test_every_option_of_a_class_is_one_of_a_version_and_of_one_class_only() -> None:
    listed = POLICY
    lists = (
        listed.allowed,
        listed.counted,
        listed.uncounted,
        listed.owned,
        listed.dangerous,
        listed.incompatible,
    )
    names = frozenset().union(*lists)

    assert names == frozenset().union(*(option_table(version) or {} for version in VERSIONS))
    assert sum(map(len, lists)) == len(names)


EVERYBODYS = POLICY.allowed | set(POLICY.counted)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_option_that_is_not_allowed_is_refused_under_every_name_it_has(version: str) -> None:
    table = option_table(version) or {}
    spellings = [
        name
        for option in table.values()
        for name in (option.name, option.name.replace("-", "_"), *option.aliases)
    ]
    allowed = {
        name for name in spellings if not check_arguments({name: _value(name, version)}, version)
    }
    assert {name.replace("_", "-") for name in allowed} == EVERYBODYS & set(table)


VALUES = {
    "block-size": 16,
    "compilation-config": '{"cudagraph_mode": "PIECEWISE"}',
    "gpu-memory-utilization": 0.5,
    "mm-processor-cache-gb": 8,
}


def _value(name: str, version: str) -> object:
    option = (option_table(version) or {}).get(name.replace("_", "-"))
    if option is None or option.switch:
        return True
    if option.name in VALUES:
        return VALUES[option.name]
    if option.keys or option.type == "parse_dataclass":
        return "{}"
    return option.choices[0] if option.choices else 1


def test_what_shardwright_sets_is_refused_with_the_field_to_set_it_through() -> None:
    (problem,) = check_arguments({"tensor-parallel-size": 4}, "0.33.0")
    assert problem.sentence() == (
        "tensor-parallel-size: --tensor-parallel-size is set by shardwright; set it through "
        "spec.parallelism.tensor"
    )


def test_what_is_dangerous_is_refused_with_its_reason() -> None:
    (problem,) = check_arguments({"trust-remote-code": True}, "0.33.0")
    assert problem.sentence() == (
        "trust-remote-code: --trust-remote-code is not allowed, because it runs code of the "
        "model's publisher; "
        "leave it out, or ask the operator's administrator to admit it; docs/engines.md lists the "
        "arguments that are allowed"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_dangerous_may_be_set_where_the_administrator_admits_it_and_nothing_else(
    version: str,
) -> None:
    table = option_table(version) or {}
    everything = {name: _value(name, version) for name in table}

    refused = {
        problem.path for problem in check_arguments(everything, version, admitted=set(everything))
    }

    assert set(everything) - refused == (EVERYBODYS | set(POLICY.admissible)) & set(table)


def test_an_admitted_option_is_checked_like_any_other() -> None:
    admitted = {"trust-remote-code"}
    assert check_arguments({"trust-remote-code": True}, "0.33.0", admitted) == ()
    assert [
        problem.code
        for problem in check_arguments({"trust-remote-code": "yes"}, "0.33.0", admitted)
    ] == ["EngineArgumentInvalid"]
    assert [
        problem.code for problem in check_arguments({"middleware": "a.b"}, "0.33.0", admitted)
    ] == ["EngineArgumentForbidden"]


def test_only_what_is_dangerous_or_not_counted_can_be_admitted() -> None:
    names = [
        "block-size",
        "config",
        "enable-eplb",
        "seed",
        "tensor-parallel-size",
        "trust-remote-code",
        "no-such-option",
    ]
    assert [problem.path for problem in check_admission(names)] == [
        "block-size",
        "config",
        "no-such-option",
        "seed",
        "tensor-parallel-size",
    ]


@pytest.mark.parametrize("name", ["--trust-remote-code", "trust-remote-cod"])
def test_a_slip_in_what_is_admitted_is_answered_with_the_option_that_was_meant(name: str) -> None:
    (problem,) = check_admission([name])
    assert "did you mean trust-remote-code?" in problem.sentence()


def test_a_version_without_a_table_is_told_no_more_than_a_plan_needs() -> None:
    features = {"quantization": "spec.model.quantization"}
    (problem,) = check_features(features, "0.40.0")
    assert problem.sentence() == (
        "spec.model.quantization: the options of vLLM 0.40.0 are not known to this release, "
        "which therefore passes only the options that a plan needs; leave it out or use vLLM 0.32.0 or 0.33.0"
    )
    assert check_features(features, "0.33.1") == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"enable-prefix-caching": True, "seed": 7, "max-logprobs": "5"}, []),
        ({"override-generation-config": {"temperature": 0.2}}, []),
        ({"uvicorn_log_level": "debug"}, []),
        ({"max-num-seq": 4}, [("EngineArgumentUnknown", "max-num-seq")]),
        ({"--seed": 4}, [("EngineArgumentUnknown", "--seed")]),
        (
            {"no-enable-prefix-caching": True},
            [("EngineArgumentUnknown", "no-enable-prefix-caching")],
        ),
        ({"seed": "seven"}, [("EngineArgumentInvalid", "seed")]),
        ({"seed": 7.5}, [("EngineArgumentInvalid", "seed")]),
        ({"seed": True}, [("EngineArgumentInvalid", "seed")]),
        ({"seed": None}, [("EngineArgumentInvalid", "seed")]),
        ({"seed": [1, 2]}, [("EngineArgumentInvalid", "seed")]),
        ({"response-role": {"a": 1}}, [("EngineArgumentInvalid", "response-role")]),
        ({"override-generation-config": "[1]", "ignore-patterns": ["a.example", "b"]}, []),
        ({"default-chat-template-kwargs": {"a": {"b": [1, None]}}}, []),
        ({"numa-bind-nodes": [0, 1], "custom-histogram-buckets": {"a": [0.1, 1]}}, []),
        ({"numa-bind-nodes": [0, "one"]}, [("EngineArgumentInvalid", "numa-bind-nodes")]),
        ({"ignore-patterns": ["a b", "--port=1"]}, [("EngineArgumentInvalid", "ignore-patterns")]),
        ({"ignore-patterns": []}, [("EngineArgumentInvalid", "ignore-patterns")]),
        ({"compilation-config": {"mode": 3}, "cudagraph-capture-sizes": [1, 2]}, []),
        ({"compilation-config": [1]}, [("EngineArgumentInvalid", "compilation-config")]),
        (
            {"compilation-config": {"cache_dir": 1}},
            [("EngineArgumentInvalid", "compilation-config")],
        ),
        ({"reasoning-config": {"reasoning_end_str": "8k"}}, []),
        ({"max-num-queued-tokens": "1.5k", "max-num-batched-tokens": "8k"}, []),
        ({"max-num-queued-tokens": "1.5K"}, [("EngineArgumentInvalid", "max-num-queued-tokens")]),
        ({"max-num-queued-reqs": "None", "attention-backend": ""}, []),
        ({"moe-backend": "Deep-Gemm", "reasoning-parser": "NONE"}, []),
        ({"disable-hybrid-kv-cache-manager": False, "trust-remote-code": False}, []),
        (
            {"disable-hybrid-kv-cache-manager": True},
            [("EngineArgumentForbidden", "disable-hybrid-kv-cache-manager")],
        ),
        ({"limit-mm-per-prompt": {"image": 2, "video": 0}, "mm-processor-cache-gb": 0}, []),
        ({"mm-processor-cache-gb": 32}, [("EngineArgumentForbidden", "mm-processor-cache-gb")]),
        (
            {"kv-transfer-config": {"kv_connector": "a"}},
            [("EngineArgumentOwned", "kv-transfer-config")],
        ),
        ({"max-log-len": "many"}, [("EngineArgumentInvalid", "max-log-len")]),
        ({"enable-prefix-caching": "yes"}, [("EngineArgumentInvalid", "enable-prefix-caching")]),
        ({"uvicorn-log-level": "loud"}, [("EngineArgumentInvalid", "uvicorn-log-level")]),
        (
            {"override-generation-config": "{"},
            [("EngineArgumentInvalid", "override-generation-config")],
        ),
        (
            {"device-memory-utilization": 0.5},
            [("EngineArgumentUnknown", "device-memory-utilization")],
        ),
        ({"block-size": 32, "cudagraph-capture-sizes": "1 2 4"}, []),
        ({"block-size": 48}, [("EngineArgumentInvalid", "block-size")]),
        (
            {"cudagraph-capture-sizes": "1 --port 1"},
            [("EngineArgumentInvalid", "cudagraph-capture-sizes")],
        ),
        ({"enable-chunked-prefill": False}, [("EngineArgumentInvalid", "enable-chunked-prefill")]),
        ({"gpu-memory-utilization": 1.5}, [("EngineArgumentInvalid", "gpu-memory-utilization")]),
        (
            {"max-num-seqs": 64, "max-num-batched-tokens": 32},
            [("EngineArgumentInvalid", "max-num-batched-tokens")],
        ),
        ({"compilation-config": '{"cudagraph_mode": "NONE", "mode": 3}'}, []),
        (
            {"compilation-config": '{"cache_dir": "/"}'},
            [("EngineArgumentInvalid", "compilation-config")],
        ),
        ({"enable-eplb": True}, [("EngineArgumentForbidden", "enable-eplb")]),
        ({"tool-call-parser": "hermes", "reasoning-parser": "none"}, []),
        ({"tool-call-parser": "own"}, [("EngineArgumentInvalid", "tool-call-parser")]),
        ({"generation-config": "vllm", "tokenizer-mode": "deepseek_v4"}, []),
        ({"reasoning-config": '{"reasoning_start_str": "<think>"}'}, []),
        (
            {"reasoning-config": '{"no_such_key": 1}'},
            [("EngineArgumentInvalid", "reasoning-config")],
        ),
        ({"reasoning-config": "3"}, [("EngineArgumentInvalid", "reasoning-config")]),
        ({"generation-config": "/etc"}, [("EngineArgumentForbidden", "generation-config")]),
        (
            {"log-error-stack": True, "log_error_stack": False},
            [("EngineArgumentTwice", "log_error_stack")],
        ),
    ],
)
def test_each_argument_gets_its_verdict(
    arguments: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    assert codes(arguments) == expected


RECIPES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/engines/recipe-options.json").read_text(encoding="utf-8")
)


def test_no_option_that_public_recipes_name_is_one_that_nobody_can_admit() -> None:
    plugins = {"tool-parser-plugin": "a.py", "reasoning-parser-plugin": "a.py"}

    def problems(name: str, value: object) -> tuple[object, ...]:
        arguments = {name: value} | (plugins if name.endswith("-parser") else {})
        return check_arguments(arguments, "0.33.0", POLICY.admissible)

    assert [row for row in RECIPES["options"] if problems(*row)] == []
    unheard_of = RECIPES["refused by the parser of 0.33"]
    assert [row for row in unheard_of if not problems(*row)] == []


@pytest.mark.parametrize("name", ["compilation-config", "limit-mm-per-prompt", "media-io-kwargs"])
def test_json_text_of_a_recipe_may_be_written_as_an_object_and_is_told_alike(name: str) -> None:
    texts = [value for option, value in RECIPES["options"] if option == name]
    assert texts
    for text in texts:
        told = argument_list({name: json.loads(text)}, "0.33.0")
        assert check_arguments({name: json.loads(text)}, "0.33.0", POLICY.admissible) == ()
        assert json.loads(told[0].partition("=")[2]) == json.loads(text)


def test_traces_go_to_the_collectors_that_the_administrator_names_and_to_no_other() -> None:
    def verdict(endpoint: str) -> list[str]:
        found = check_arguments(
            {"otlp-traces-endpoint": endpoint}, "0.33.0", collectors=["grpc://otel:4317"]
        )
        return [problem.code for problem in found]

    assert verdict("grpc://otel:4317") == []
    assert verdict("grpc://otel:4317.example") == ["EngineArgumentForbidden"]


def test_a_list_is_told_as_a_word_for_each_item() -> None:
    told = {"ignore-patterns": ["a b", "c"], "cudagraph-capture-sizes": "1 2"}
    assert argument_list(told, "0.33.0") == (
        "--cudagraph-capture-sizes",
        "1",
        "2",
        "--ignore-patterns",
        "a b",
        "c",
    )


def test_a_misspelt_option_is_answered_with_the_nearest_one() -> None:
    (problem,) = check_arguments({"enable-prefix-cachin": True}, "0.33.0")
    assert problem.remedy == "did you mean enable-prefix-caching?"


def test_a_patch_release_has_the_options_of_its_minor_version() -> None:
    assert option_table("0.33.2") == option_table("0.33.0")


def test_a_version_without_an_option_list_takes_no_arguments_of_a_user() -> None:
    assert codes({"seed": 7}, "0.40.0") == [("EngineArgumentUnchecked", "seed")]
    assert codes({}, "0.40.0") == []


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (
            "0.32.0",
            ("--no-disable-uvicorn-access-log", "--no-enable-prefix-caching", "--enforce-eager"),
        ),
        (
            "0.33.0",
            ("--enable-uvicorn-access-log", "--no-enable-prefix-caching", "--enforce-eager"),
        ),
        (
            "0.40.0",
            ("--no-disable-uvicorn-access-log", "--no-enable-prefix-caching", "--enforce-eager"),
        ),
    ],
)
def test_switches_are_turned_off_in_the_words_of_the_version(
    version: str, words: tuple[str, ...]
) -> None:
    arguments = {
        "enforce-eager": True,
        "enable-prefix-caching": False,
        "disable_uvicorn_access_log": False,
    }
    assert argument_list(arguments, version) == words


def test_a_value_never_becomes_a_word_of_its_own() -> None:
    arguments = {
        "response-role": "--trust-remote-code",
        "override-generation-config": {"b": " ", "a": [1]},
    }
    assert argument_list(arguments, "0.33.0") == (
        '--override-generation-config={"a":[1],"b":" "}',
        "--response-role=--trust-remote-code",
    )
