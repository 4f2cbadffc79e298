"""The configurations that TensorRT-LLM recommends can be written word for word: what fields of the
spec say goes there, and all else into ``spec.engine.args``.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.api.admission import UserPolicy
from shardwright.api.settings import Settings
from shardwright.engines.options import check_arguments
from shardwright.engines.trtllm.policy import RULES
from shardwright.modelspec.catalogue import find_model
from shardwright.pipeline.assembly import bundle_for, plan_serving
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import of_kind
from shardwright.resolving.model import Question
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_nodes import a_node
from tests.support.builders_subject import a_resource, plan_of, stock
from tests.support.rendered import pod_of

FILE = Path(__file__).parents[2] / "data/engines/trtllm-recommended.yaml"
ROWS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))
PLANNED = [row for row in ROWS if row["model"]]
TRUSTED = "trust_remote_code"


def _ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["file"] for row in rows]


def _moved(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a configuration says through fields of the spec, and what stays arguments."""
    left: dict[str, Any] = {
        key: dict(value) if isinstance(value, dict) else value for key, value in config.items()
    }
    ranks, experts = left.pop("tensor_parallel_size"), left.pop("moe_expert_parallel_size")
    data = left.pop("enable_attention_dp", False) and ranks > 1
    stages = left.pop("pipeline_parallel_size", 1)
    degrees = {"dataParallelAttention": ranks} if data else {"tensor": ranks}
    engine: dict[str, Any] = {}
    if length := left.pop("max_seq_len", None):
        engine["maxModelLen"] = length
    if left.get("kv_cache_config", {}).pop("dtype", None) == "fp8":
        engine["kvCacheQuantization"] = "FP8"
    if drafts := left.get("speculative_config", {}):
        assert drafts.pop("decoding_type") == "MTP"
        length = drafts.pop("max_draft_len", None) or drafts.pop("num_nextn_predict_layers")
        engine["speculation"] = {"method": "MTP", "tokens": length}
    engine["env"] = [
        {"name": name, "value": str(value)} for name, value in left.pop("env_overrides", {}).items()
    ]
    arguments = {key: value for key, value in left.items() if value != {}}
    return (
        {"parallelism": {**degrees, "expert": experts, "pipeline": stages}, "engine": engine},
        arguments,
    )


def _subject(row: dict[str, Any]) -> Subject:
    said, arguments = _moved(row["config"])
    engine = {
        "name": "TensorRTLLM",
        "image": f"registry.internal/nvidia/tensorrt-llm/release:{row['version']}",
        "args": arguments,
        **said["engine"],
    }
    resource = a_resource(
        model={"id": row["model"], **({"config": _in_fp8(row)} if "weights" in row else {})},
        engine=engine,
        parallelism=said["parallelism"],
        workload={"inputTokens": 1024, "outputTokens": 1024, "concurrency": 16},
    )
    settings = Settings(policy=UserPolicy(admitted_arguments=["trust-remote-code"]))
    return resolve(Question(resource=resource, settings=settings))


def _in_fp8(row: dict[str, Any]) -> dict[str, Any]:
    """Return the config of the weights that a file is for, which are in a repository of their own."""
    entry = find_model(row["model"], {})
    assert entry is not None
    return {
        **entry.config,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"},
    }


def _configuration(subject: Subject, plan: Plan) -> dict[str, Any]:
    for item in of_kind(bundle_for(subject, plan).objects, "ConfigMap"):
        if "trtllm.yaml" in item["data"]:
            found: dict[str, Any] = json.loads(item["data"]["trtllm.yaml"])
            return found
    raise AssertionError("no configuration file")


def _holds(found: Any, said: Any) -> bool:
    if isinstance(said, dict):
        return all(_holds(found.get(key), value) for key, value in said.items())
    return bool(found == said)


@pytest.mark.parametrize("row", ROWS, ids=_ids(ROWS))
def test_only_what_a_field_of_the_spec_says_is_refused_and_that_field_is_named(
    row: dict[str, Any],
) -> None:
    problems = check_arguments(row["config"], row["version"], {TRUSTED}, rules=RULES)

    assert {problem.code for problem in problems} <= {
        "EngineArgumentOwned",
        "EngineArgumentForbidden",
    }
    assert [
        problem
        for problem in problems
        if "spec." not in problem.remedy and "spec.engine.env" not in problem.gap
    ] == []


@pytest.mark.parametrize("row", ROWS, ids=_ids(ROWS))
def test_all_else_is_taken_as_it_stands(row: dict[str, Any]) -> None:
    _, arguments = _moved(row["config"])

    assert check_arguments(arguments, row["version"], {TRUSTED}, rules=RULES) == ()


@pytest.mark.parametrize("row", PLANNED, ids=_ids(PLANNED))
def test_a_recommended_configuration_is_planned_and_rendered_word_for_word(
    row: dict[str, Any],
) -> None:
    subject = _subject(row)
    nodes = [a_node("b200-0", product="NVIDIA-B200", gpus=8)]

    plan = plan_of(plan_serving(subject, stock(subject, nodes)))

    assert plan.layout.gpus_per_replica == row["gpus"]
    drafted = "speculative_config" in row["config"]
    assert [stage.draft_bytes > 0 for stage in plan.stages] == [drafted]
    found, said = _configuration(subject, plan), dict(row["config"])
    words = pod_of(bundle_for(subject, plan))["containers"][0]["args"]
    # Degrees and limits are on the command line.
    for key, flag in (
        ("tensor_parallel_size", "--tp_size"),
        ("moe_expert_parallel_size", "--ep_size"),
        ("max_batch_size", "--max_batch_size"),
        ("max_num_tokens", "--max_num_tokens"),
        ("max_seq_len", "--max_seq_len"),
    ):
        value = said.pop(key, None)
        if value is not None and (flag, value) != ("--ep_size", 1):
            assert words[words.index(flag) + 1] == str(value)
    said.pop("env_overrides", None)
    assert _holds(found, said)
