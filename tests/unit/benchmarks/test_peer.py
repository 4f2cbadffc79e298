"""What of our cases is put to the other planner, and how two sets of predictions are compared."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.peer.comparing import Compared, Published, compared
from benchmarks.peer.questions import REASONS, Question, Unmapped, question

DENSE = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 80}
MIXTURE = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "n_routed_experts": 256,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def a_case(**fields: Any) -> dict[str, Any]:
    case: dict[str, Any] = {
        "id": "row-1",
        "model": {"name": "Llama-3.3-70B", "config": DENSE},
        "weights": "bf16",
        "kvCache": "auto",
        "engine": {"name": "vllm", "version": "0.18.0"},
        "hardware": {"gpuProduct": "NVIDIA-H200", "gpusPerNode": 8, "nodes": 1},
        "parallelism": degrees(tensor=4, pipeline=2),
        "workload": load(64),
    }
    return case | fields


def degrees(**own: int) -> dict[str, int]:
    one = dict.fromkeys(("pipeline", "expert", "attentionData", "replicas"), 1)
    return one | own


def load(concurrency: float | None, arrival: str = "ClosedLoop") -> dict[str, Any]:
    return {
        "inputTokens": 1024,
        "outputTokens": 512,
        "arrival": arrival,
        "concurrency": concurrency,
    }


def test_a_dense_case_is_asked_with_the_batch_of_one_stage() -> None:
    assert question(a_case(weights="fp8")) == Question(
        id="row-1",
        config=DENSE | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
        arguments={
            "database_mode": "HYBRID",
            "system_name": "h200_sxm",
            "backend_name": "vllm",
            "isl": 1024,
            "osl": 512,
            "batch_size": 32,
            "tp_size": 4,
            "pp_size": 2,
            "attention_dp_size": 1,
            "moe_tp_size": 4,
            "moe_ep_size": 1,
        },
    )


def test_a_mixture_is_asked_with_the_batch_of_one_attention_rank_and_its_experts_apart() -> None:
    asked = question(
        a_case(
            model={"name": "DeepSeek-R1", "config": MIXTURE},
            weights="fp8",
            kvCache="fp8",
            engine={"name": "tensorrt-llm", "version": None},
            parallelism=degrees(tensor=8, expert=4, attentionData=8),
        )
    )

    assert asked == Question(
        id="row-1",
        config=MIXTURE,
        arguments={
            "database_mode": "HYBRID",
            "system_name": "h200_sxm",
            "backend_name": "trtllm",
            "isl": 1024,
            "osl": 512,
            "batch_size": 8,
            "tp_size": 1,
            "pp_size": 1,
            "attention_dp_size": 8,
            "moe_tp_size": 2,
            "moe_ep_size": 4,
            "kvcache_quant_mode": "fp8",
        },
    )


def test_a_format_that_the_config_does_not_have_replaces_its_own() -> None:
    model = {"name": "DeepSeek-R1", "config": MIXTURE}
    plain = {name: MIXTURE[name] for name in ("architectures", "n_routed_experts")}

    configs = [question(a_case(model=model, weights=weights)) for weights in ("nvfp4", "bf16")]

    assert [asked.config for asked in configs if isinstance(asked, Question)] == [
        plain | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        plain,
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workload": load(None, "Saturated")}, Unmapped.SATURATED),
        ({"workload": load(64, "StaticBatch")}, Unmapped.STATIC_BATCH),
        ({"hardware": {"gpuProduct": "NVIDIA-A100-SXM4-40GB"}}, Unmapped.GPU),
        ({"workload": load(7)}, Unmapped.SHARES),
        ({"weights": "int4"}, Unmapped.WEIGHTS),
    ],
)
def test_what_cannot_be_asked_has_a_reason(fields: dict[str, Any], reason: Unmapped) -> None:
    assert question(a_case(**fields)) is reason


def test_every_reason_why_a_case_is_unmapped_has_its_words() -> None:
    assert set(REASONS) == set(Unmapped)


def predicted(throughput: float, ttft: float | None = None, *, fits: bool = True) -> dict[str, Any]:
    figures = {"outputTokensPerSecond": throughput, "ttftSeconds": ttft}
    return {"fits": fits, "performance": figures}


def near(*errors: float) -> Any:
    return pytest.approx(errors)


def test_errors_are_of_the_rows_that_both_answer() -> None:
    rows = [
        Published(
            id=name, engine="vllm", model="A", figures={"outputTokensPerSecond": 100.0} | more
        )
        for name, more in {
            "first": {"ttftSeconds": 2.0},
            "second": {},
            "ours only": {"ttftSeconds": 2.0},
            "refused by us": {},
        }.items()
    ]
    ours = {
        "first": predicted(110, 3),
        "second": predicted(70),
        "ours only": predicted(900, 9),
        "refused by us": predicted(100, fits=False),
    }
    theirs = {
        "first": predicted(120),
        "second": predicted(90),
        "ours only": {"refused": "no table"},
        "refused by us": predicted(100),
    }

    every, engine, model = compared(rows, ours, theirs)

    assert every == Compared(
        group="all",
        asked=4,
        ours=3,
        theirs=3,
        both=2,
        errors={"outputTokensPerSecond": near(0.2, 0.15), "ttftSeconds": near(0.5, 1.0)},
    )
    assert (engine.group, model.group) == ("vllm", "vllm, A")
    assert every.errors == engine.errors == model.errors
