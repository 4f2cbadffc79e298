"""Environment variables of a user."""

import re
from pathlib import Path

import pytest

from shardwright.engines.environment import (
    COMMON,
    DANGEROUS,
    NEVER,
    UNLISTED,
    check_admitted,
    check_environment,
    is_admissible,
)
from shardwright.engines.trtllm.environment import VARIABLES as TENSORRT_LLM
from shardwright.engines.vllm.environment import VARIABLES as VLLM

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "name", ["NCCL_DEBUG", "NCCL_IB_HCA", "VLLM_LOGGING_LEVEL", "UCX_TLS", "OMP_NUM_THREADS", "TZ"]
)
def test_listed_settings_of_engine_and_libraries_may_be_set(name: str) -> None:
    assert check_environment([name], VLLM) == ()


def test_an_engine_has_settings_of_its_own() -> None:
    assert check_environment(["TLLM_LOG_LEVEL"], TENSORRT_LLM) == ()
    assert [
        problem.path for problem in check_environment(["TLLM_LOG_LEVEL", "NCCL_DEBUG"], VLLM)
    ] == ["TLLM_LOG_LEVEL"]


@pytest.mark.parametrize(
    "name",
    [
        *NEVER,
        *(
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PATH",
            "BASH_ENV",
            "BASH_FUNC_X",
            "HOME",
            "USER",
        ),
        *(
            "HF_TOKEN",
            "S3_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "OPENAI_API_KEY",
            "TOKEN",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_CONNECTION_STRING",
        ),
        *(
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ENDPOINT_SUFFIX",
        ),
        *(
            "POD_INDEX",
            "SHARDWRIGHT_LEADER",
            "VLLM_DP_MASTER_IP",
            "RANK",
            "WORLD_SIZE",
            "OMPI_COMM_WORLD_RANK",
        ),
    ],
)
def test_what_starts_programs_holds_secrets_or_is_ours_nobody_can_admit(name: str) -> None:
    (problem,) = check_environment([name], VLLM, {name})
    assert (problem.code, problem.path, problem.remedy) == (
        "EnvironmentForbidden",
        name,
        "leave it out",
    )
    assert [refused.path for refused in check_admitted([name])] == [name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("VLLM_NCCL_SO_PATH", "loads code"),
        ("CUDA_INJECTION64_PATH", "loads code"),
        ("FI_PROVIDER_PATH", "loads code"),
        ("UCX_MODULE_DIR", "loads code"),
        ("HSA_TOOLS_LIB", "loads code"),
        ("OMP_TOOL_LIBRARIES", "loads code"),
        ("TRITON_CACHE_MANAGER", "loads code"),
        ("TRITON_PTXAS_PATH", "loads code"),
        ("CUDA_HOME", "loads code"),
        ("FLASHINFER_NVCC", "loads code"),
        ("FLASHINFER_EXTRA_LDFLAGS", "loads code"),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "loads code"),
        ("NCCL_ENV_PLUGIN", "loads code"),
        ("NCCL_NETPLUGIN", "loads code"),
        ("NCCL_SOME_FUTURE_PLUGIN", "loads code"),
        ("TORCH_OF_TOMORROW_LIBRARY_PATH", "loads code"),
        ("TRITON_CACHE_DIR", "reads or writes another path"),
        ("TORCH_EXTENSIONS_DIR", "reads or writes another path"),
        ("NCCL_CONF_FILE", "reads or writes another path"),
        ("VLLM_TORCH_PROFILER_DIR", "reads or writes another path"),
        ("VLLM_CONFIG_ROOT", "reads or writes another path"),
        ("HF_ENDPOINT", "sends data to, or takes it from, another host"),
        ("HTTPS_PROXY", "sends data to, or takes it from, another host"),
        ("https_proxy", "sends data to, or takes it from, another host"),
        ("FLASHINFER_CUBINS_REPOSITORY", "sends data to, or takes it from, another host"),
        ("VLLM_USAGE_STATS_SERVER", "sends data to, or takes it from, another host"),
        ("VLLM_MOONCAKE_BOOTSTRAP_PORT", "sends data to, or takes it from, another host"),
        ("NCCL_COMM_ID", "sends data to, or takes it from, another host"),
        ("VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS", "gives requests tools that run code"),
        ("VLLM_USE_MODELSCOPE", "takes weights from another hub"),
        ("VLLM_MLA_DISABLE", UNLISTED),
        ("VLLM_OF_TOMORROW", UNLISTED),
        ("ANYTHING", UNLISTED),
    ],
)
def test_what_is_on_no_list_is_refused_with_what_it_could_do_unless_it_is_admitted(
    name: str, reason: str
) -> None:
    (problem,) = check_environment([name], VLLM)
    assert problem.sentence() == (
        f"{name}: {name} is not allowed, because it {reason}; leave it out, or have it added to "
        "policy.admittedEnvironment of the chart"
    )
    assert check_environment([name], VLLM, {name}) == ()


def test_no_list_holds_what_loads_code_takes_a_path_or_names_a_host() -> None:
    listed = VLLM | TENSORRT_LLM
    assert {
        problem.path for problem in check_environment(listed, ()) if UNLISTED not in problem.gap
    } == {
        "VLLM_DISABLE_COMPILE_CACHE"  # a switch
    }
    assert not listed & (NEVER.keys() | DANGEROUS.keys())
    assert all(is_admissible(name) for name in listed)
    assert COMMON < VLLM


def test_every_setting_of_the_libraries_that_pages_and_examples_tell_to_set_may_be_set() -> None:
    pages = [
        path.read_text()
        for folder in ("docs", "examples")
        for path in (ROOT / folder).rglob("*.[my]*")
        if path.is_file()
    ]
    told = {name for page in pages for name in re.findall(r"\{name: ([A-Z0-9_]+), value", page)}
    assert "NCCL_IB_HCA" in told
    assert check_environment(told, VLLM) == ()


def test_the_values_are_not_part_of_the_message() -> None:
    (problem,) = check_environment(["VLLM_API_KEY"], VLLM)
    assert problem.sentence() == (
        "VLLM_API_KEY: VLLM_API_KEY is not allowed, because it would put a secret into the pod's "
        "template; use "
        "spec.engine.apiKeySecretRef; leave it out"
    )
