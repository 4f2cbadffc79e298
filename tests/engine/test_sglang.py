"""SGLang's own parser and resolution take what is rendered for it, and mean what the plan means."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.engines.launch import NO_HOST
from shardwright.engines.policy import option_table
from shardwright.engines.sglang import arguments
from shardwright.engines.sglang.policy import RULES
from shardwright.rendering.place import pod_template
from tests.engine import environment
from tests.engine.launches import FEATURES, LLAMA, Launch, planned
from tests.engine.questions import Answer, Engine
from tests.engine.sglang_classes import CHECKER, DATA, VERSION, classes_of
from tests.support.builders_cli import a_listed_node
from tests.support.ranks import expanded

OF_VLLM = {
    "K/V in the memory of the node",
    "K/V in the memory of two nodes",
    "a compilation config",
    "adapters of a claim and of the hub",
    "adapters of experts",
    "adapters of experts in slices",
    "another name",
    "answers alone, on two nodes",
    "arguments of a user",
    "drafts beside adapters",
    "nothing captured",
    "options that the plan counts",
    "prompts alone",
    "tensor over the trays of a rack",
    "uneven layers",
}
"""What SGLang is not told, or is told by options of its own."""

OF_SGLANG: dict[str, dict[str, Any]] = {
    "hosts for media": {"engine": {"mediaDomains": ["a.example", "b.example"]}},
    "a name of its own": {"model": {"id": LLAMA, "servedName": "llama/8b"}},
    "experts in sets": {
        "model": {"id": "Qwen/Qwen3-30B-A3B"},
        "parallelism": {"tensor": 4, "dataParallelAttention": 1, "expert": 2},
    },
    "arguments of a user": {
        "engine": {
            "args": {
                "bucket-time-to-first-token": "0.1 0.5",
                "default-chat-template-kwargs": {"enable_thinking": False},
                "disable-radix-cache": True,
                "dtype": "float16",
                "limit-mm-data-per-request": '{"image": 1}',
                "reasoning-parser": "qwen3",
                "schedule-policy": "lpm",
                "tool-call-parser": "qwen25",
            }
        }
    },
}
SPECS = {name: spec for name, spec in FEATURES.items() if name not in OF_VLLM} | OF_SGLANG


@pytest.fixture(scope="module")
def sources() -> Path:
    """Return where SGLang's sources are."""
    installed = environment.installed()
    assert installed is not None, "the engine is not installed: run `make test-engine`"
    return environment.sglang(installed)


@pytest.fixture(scope="module")
def sglang(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Start SGLang's checker."""
    installed = environment.installed()
    assert installed is not None
    log = tmp_path_factory.mktemp("sglang") / "log"
    found = Engine(installed, VERSION, log, (str(CHECKER), str(sources)))
    try:
        yield found
    finally:
        found.close()


def launch_of(name: str) -> Launch:
    spec = {"model": {"id": LLAMA}} | SPECS[name]
    engine = {"name": "SGLang", "version": VERSION} | spec.get("engine", {})
    manifest = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "m"},
        "spec": spec | {"engine": engine},
    }
    launch = planned(name, parse_manifest(manifest), [a_listed_node("a"), a_listed_node("b")])
    assert launch is not None, name
    return launch


def job(launch: Launch, rank: int, folder: Path) -> dict[str, Any]:
    """Return the question about a rank: what all ranks share, and what the launch script adds."""
    container = pod_template(launch.plan, launch.deployment, 0)["spec"]["containers"][0]
    nodes = launch.plan.nodes_per_replica
    role = ["--node-rank", str(rank), "--dist-init-addr", f"10.0.0.1:{arguments.PEER_PORT}"]
    places = {
        kind: folder / f"{launch.id.replace('/', '--')}-{kind}" for kind in ("model", "draft")
    }
    for kind, config in (("model", launch.config), ("draft", launch.draft)):
        if config is not None:
            places[kind].mkdir(exist_ok=True)
            (places[kind] / "config.json").write_text(json.dumps(config))
    return {
        "arguments": [*map(expanded, container["args"]), *(role if nodes > 1 else ())],
        "environment": {},
        "model": str(places["model"]),
        "draft": str(places["draft"]) if launch.draft is not None else None,
    }


def meant(launch: Launch, rank: int) -> dict[str, Any]:
    plan, layout, serving = launch.plan, launch.plan.layout, launch.deployment.serving
    drafted = launch.deployment.drafting.draft_tokens or plan.draft_tokens
    return {
        "tp_size": layout.tensor * layout.attention_data,
        "pp_size": layout.pipeline,
        "attn_dp_size": layout.attention_data,
        "ep_size": layout.expert,
        "dcp_size": 1,
        "nnodes": plan.nodes_per_replica,
        "node_rank": rank,
        "context_length": plan.max_model_len,
        "max_running_requests": plan.max_sequences * layout.attention_data,
        "chunked_prefill_size": plan.max_batched_tokens,  # of a replica of the attention
        "mem_fraction_static": arguments.static_fraction(plan),
        "kv_cache_dtype": "fp8_e4m3" if serving.kv_cache_dtype == "fp8" else "auto",
        "load_format": launch.deployment.weights.load_format or "auto",
        "served_model_name": serving.served_name or launch.deployment.model,
        "allowed_media_domains": [*(serving.media_domains or (NO_HOST,))],
        "speculative_num_draft_tokens": drafted + 1 if drafted else None,
        "enable_metrics": True,
    }


@pytest.mark.parametrize("name", SPECS)
def test_sglang_takes_the_arguments_and_means_what_the_plan_means(
    name: str, sglang: Engine, tmp_path: Path
) -> None:
    launch = launch_of(name)
    for rank in range(launch.plan.nodes_per_replica):
        answer = sglang.ask(job(launch, rank, tmp_path)).result()

        assert answer.get("message", "") == ""
        assert answer["resolved"] == meant(launch, rank)


REFUSED = {
    "an option that it does not have": (["--no-such-option"], "parse"),
    "a name with a colon": (["--served-model-name", "llama:8b"], "config"),
    "a choice that it does not have": (["--schedule-policy", "no-such"], "parse"),
    "replicas of the attention that do not divide": (
        ["--tp-size", "8", "--attn-dp-size", "3"],
        "config",
    ),
    "nodes that do not divide": (["--tp-size", "8", "--nnodes", "3"], "config"),
    "drafts over stages": (["--pp-size", "2", "--speculative-algorithm", "NGRAM"], "config"),
    "drafts looked up by replicas": (
        ["--tp-size", "2", "--attn-dp-size", "2", "--speculative-algorithm", "NGRAM"],
        "config",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_we_refuse_it_refuses(case: str, sglang: Engine, tmp_path: Path) -> None:
    words, stage = REFUSED[case]
    asked = job(launch_of("weights on a claim"), 0, tmp_path)
    alone = ["--model-path", asked["model"], *words]

    assert sglang.ask(asked | {"arguments": alone}).result().get("stage", "") == stage


def test_the_table_is_that_of_its_parser(sglang: Engine) -> None:
    found: Answer = sglang.ask({"lists": True}).result()
    written = json.loads((DATA / f"options-{VERSION}.json").read_text())

    assert written["options"] == found["options"]
    assert len(option_table(VERSION, RULES.tables) or {}) == len(found["options"])


def test_the_classes_without_stages_and_with_eagle3_are_those_of_its_source(sources: Path) -> None:
    written = json.loads((DATA / f"classes-{VERSION}.json").read_text())
    found = classes_of(sources)

    assert {name: written[name] for name in found} == found
