"""Environment variables of a user."""

import re
from pathlib import Path

import pytest

from shardwright.engines.environment import REFUSED, check_environment

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_IB_HCA", "VLLM_LOGGING_LEVEL", "HF_ENDPOINT", "https_proxy", "TZ"])
def test_settings_of_engine_libraries_and_hub_may_be_set(name: str) -> None:
    assert check_environment([name]) == ()


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "PYTHONPATH", "PATH", "HOME", "BASH_ENV", "HF_TOKEN", "POD_INDEX", "SHARDWRIGHT_LEADER", "USER", *REFUSED],
)
def test_what_loads_code_holds_secrets_or_is_ours_may_not(name: str) -> None:
    assert [(problem.code, problem.path) for problem in check_environment([name])] == [("EnvironmentForbidden", name)]


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_NCCL_SO_PATH",
        "CUDA_INJECTION64_PATH",
        "FI_PROVIDER_PATH",
        "UCX_MODULE_DIR",
        "HSA_TOOLS_LIB",
        "OMP_TOOL_LIBRARIES",
        "TRITON_CACHE_MANAGER",
        "NCCL_ENV_PLUGIN",
        "NCCL_SOME_FUTURE_PLUGIN",
        "TORCH_OF_TOMORROW_LIBRARY_PATH",
    ],
)
def test_what_names_code_to_load_may_not_be_set_whether_we_know_it_or_not(name: str) -> None:
    (problem,) = check_environment([name])
    assert problem.sentence() == f"{name}: {name} is not allowed, because it loads code; leave it out"


def test_every_setting_that_docs_and_examples_name_may_be_set_unless_it_is_refused_by_name() -> None:
    pages = [path.read_text() for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = {name for page in pages for name in re.findall(r"\b(?:NCCL|VLLM|GLOO|UCX|FI|HF_HUB)_[A-Z0-9_]*[A-Z0-9]\b", page)}
    assert "NCCL_IB_HCA" in named
    assert {problem.path for problem in check_environment(named)} <= REFUSED.keys()


def test_the_values_are_not_part_of_the_message() -> None:
    (problem,) = check_environment(["VLLM_PLUGINS"])
    assert problem.sentence() == "VLLM_PLUGINS: VLLM_PLUGINS is not allowed, because it loads code; leave it out"
