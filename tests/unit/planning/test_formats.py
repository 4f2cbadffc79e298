"""Number formats: which GPUs vLLM has kernels on for weights that are stored so, by the method that
stored them.
"""

from dataclasses import replace

import pytest

from shardwright.hardware.gpus import load_gpus
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.planning.engine_limits import dtype_problems
from tests.support.builders_plan import CONFIGS, vllm_traits


def _stored(quantization: dict[str, object]) -> ModelSpec:
    return read_model({**CONFIGS["llama-8b"], "quantization_config": quantization}, source="a test")


def _quark(dtype: str, scheme: str, **more: object) -> dict[str, object]:
    weight = {"dtype": dtype, "qscheme": scheme, **more}
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight, "input_tensors": {**weight, "is_dynamic": True}},
    }


def _torchao(kind: str) -> dict[str, object]:
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": {}}}}


@pytest.mark.parametrize(
    ("quantization", "too_old", "least"),
    [
        (_quark("fp8_e4m3", "per_tensor"), "A100-SXM4-80GB", "L40S-48GB"),
        (_torchao("Float8DynamicActivationFloat8WeightConfig"), "A100-SXM4-80GB", "L4-24GB"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "T4-16GB", "A100-SXM4-80GB"),
        (
            {"quant_method": "inc", "bits": 4, "group_size": 32, "data_type": "mx_fp"},
            "T4-16GB",
            "A10G-24GB",
        ),
    ],
    ids=["Quark FP8", "TorchAO FP8", "ModelOpt FP8", "AutoRound MXFP4"],
)
def test_a_format_runs_on_the_gpus_that_its_own_method_has_kernels_for(
    quantization: dict[str, object], too_old: str, least: str
) -> None:
    model = replace(_stored(quantization), dtype="fp16")  # Turing has no unit for BF16

    (problem,) = dtype_problems(model, load_gpus()[too_old], "auto", vllm_traits())
    assert (problem.code, problem.path) == ("DtypeNotSupported", "spec.model.quantization")
    assert list(dtype_problems(model, load_gpus()[least], "auto", vllm_traits())) == []


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "fp8", "activation_scheme": "dynamic"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        _torchao("Float8WeightOnlyConfig"),
        {"quant_method": "awq", "bits": 4, "group_size": 128},
    ],
    ids=["FP8", "NVFP4", "FP8 weights alone", "AWQ"],
)
def test_what_marlin_widens_runs_from_turing_on(quantization: dict[str, object]) -> None:
    model = replace(_stored(quantization), dtype="fp16")
    assert list(dtype_problems(model, load_gpus()["T4-16GB"], "auto", vllm_traits())) == []


def test_nobody_is_told_to_compute_in_fp16_what_the_gpu_is_too_old_for() -> None:
    gpt_oss = read_model(
        {**CONFIGS["qwen3-30b-a3b"], "quantization_config": {"quant_method": "mxfp4"}},
        source="a test",
    )
    problems = list(dtype_problems(gpt_oss, load_gpus()["T4-16GB"], "auto", vllm_traits()))
    stored, computed = problems
    assert (stored.what, stored.gap) == ("the weights stored as mxfp4", "T4-16GB has 7.5")
    assert stored.limit == "need compute capability 8.0 with vLLM 0.33.0"
    assert computed.what == "the model computes in bf16"
    assert stored.remedy == computed.remedy == "select other GPUs or other weights"
