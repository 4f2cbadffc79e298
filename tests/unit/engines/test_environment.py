"""Environment variables of a user."""

import pytest

from shardwright.engines.environment import REFUSED, check_environment


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_IB_HCA", "VLLM_LOGGING_LEVEL", "HF_ENDPOINT", "https_proxy", "TZ"])
def test_settings_of_engine_libraries_and_hub_may_be_set(name: str) -> None:
    assert check_environment([name]) == ()


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "PYTHONPATH", "PATH", "HOME", "BASH_ENV", "HF_TOKEN", "POD_INDEX", "SHARDWRIGHT_LEADER", "USER", *REFUSED],
)
def test_what_loads_code_holds_secrets_or_is_ours_may_not(name: str) -> None:
    assert [(problem.code, problem.path) for problem in check_environment([name])] == [("EnvironmentForbidden", name)]


def test_the_values_are_not_part_of_the_message() -> None:
    (problem,) = check_environment(["VLLM_PLUGINS"])
    assert problem.sentence() == "VLLM_PLUGINS: VLLM_PLUGINS is not allowed, because it loads code; leave it out"
