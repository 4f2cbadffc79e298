"""What can be said of the scripts without running them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardwright.engines.registry import SGLANG, TENSORRT_LLM, VLLM, EngineDefinition
from shardwright.rendering.scripts import (
    RayJoining,
    ScriptPaths,
    ScriptSettings,
    ScriptTimes,
    SshJoining,
    TokenWatch,
    scripts,
)
from shardwright.units import KIB

SHELLCHECK = shutil.which(
    "shellcheck", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin"
)


@pytest.mark.parametrize("engine", [VLLM, TENSORRT_LLM, SGLANG], ids=["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("silence", [0, 60])
@pytest.mark.parametrize("ranks", [1, 2, 16])
def test_shellcheck_finds_nothing(
    ranks: int, silence: int, engine: EngineDefinition, tmp_path: Path
) -> None:
    assert SHELLCHECK is not None
    over_ssh = engine is TENSORRT_LLM and ranks > 1
    settings = ScriptSettings(
        ranks=ranks,
        tokens=TokenWatch(silence_seconds=silence),
        engine=engine,
        demands_key=engine is not TENSORRT_LLM,
        ssh=SshJoining(joins=over_ssh, shared_variables=("HF_HOME", "USER")),
    )
    for name, text in scripts(settings).items():
        if name.endswith(".sh"):
            (tmp_path / name).write_text(text)
            found = subprocess.run(
                [SHELLCHECK, str(tmp_path / name)], capture_output=True, text=True, check=False
            )
            assert (found.returncode, found.stdout) == (0, "")


def test_shellcheck_finds_nothing_in_the_scripts_of_a_group_that_ray_joins(tmp_path: Path) -> None:
    assert SHELLCHECK is not None
    launch = tmp_path / "launch.sh"
    launch.write_text(
        scripts(ScriptSettings(engine=VLLM, ranks=2, ray=RayJoining(joins=True)))["launch.sh"]
    )
    found = subprocess.run([SHELLCHECK, str(launch)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_group_of_one_pod_knows_no_rendezvous() -> None:
    alone = scripts(ScriptSettings(engine=VLLM, ranks=1))
    assert sorted(alone) == ["drain.sh", "environment.sh", "launch.sh", "probe.sh"]
    assert not any(
        re.search(r"rendezvous|SHARDWRIGHT|headless|\.py\b", text) for text in alone.values()
    )


def test_only_a_group_over_ssh_has_what_ssh_needs() -> None:
    found = scripts(ScriptSettings(ranks=2, engine=TENSORRT_LLM, ssh=SshJoining(joins=True)))
    assert sorted(found) == [
        *(
            "drain.sh",
            "environment.sh",
            "launch.sh",
            "passwd",
            "probe.sh",
            "remote.sh",
            "rendezvous.py",
            "ssh_config",
            "sshd_config",
        )
    ]
    assert "shardwright:x:10001:10001:" in found["passwd"]


def test_nothing_is_left_of_the_template_language_and_folders_are_quoted() -> None:
    for text in scripts(
        ScriptSettings(engine=VLLM, ranks=2, paths=ScriptPaths(run_dir="/a b/$(c)"))
    ).values():
        assert not re.search(r"\{%|%\}|\{#|\}\}", text)
        assert "/a b/$(c)" not in text.replace("'/a b/$(c)'", "")


def test_all_scripts_fit_a_configmap_many_times_over() -> None:
    assert sum(map(len, scripts(ScriptSettings(engine=VLLM, ranks=2)).values())) < 32 * KIB


def test_scripts_are_those_of_their_settings_whatever_was_rendered_before() -> None:
    one, other = (
        ScriptSettings(engine=VLLM, ranks=1),
        ScriptSettings(engine=VLLM, ranks=1, times=ScriptTimes(start_seconds=4242)),
    )
    assert "4242" not in scripts(one)["launch.sh"]
    assert "4242" in scripts(other)["launch.sh"]
    assert scripts(one) == scripts(ScriptSettings(engine=VLLM, ranks=1)) != scripts(other)
