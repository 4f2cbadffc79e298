"""The programs of the pods run on an engine's image, which has nothing of ours: they are held to
its standard library.
"""

import ast
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.engines.registry import ENGINES, EngineDefinition
from shardwright.rendering import programs
from shardwright.rendering.deployment import RouterOptions
from shardwright.rendering.programs import counters_sglang, counters_trtllm, counters_vllm
from shardwright.rendering.programs.serving import Counters
from shardwright.rendering.router_pods import scripts_of
from shardwright.rendering.scripts import ScriptSettings, TokenWatch, scripts
from tests.harness.controlplane import free_port
from tests.support.builders_deployment import a_deployment

FOLDER = Path(programs.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
EVERYTHING = ScriptSettings(
    engine=ENGINES["vLLM"],
    ranks=2,
    tokens=TokenWatch(silence_seconds=60),
    downloads=True,
    demands_key=True,
)
OF_THE_IMAGE = {"weights.py": {"huggingface_hub"}}
"""What the image has beside Python, by the program that uses it."""

VLLM: type[Counters] = counters_vllm.Counters
SGLANG: type[Counters] = counters_sglang.Counters
TRTLLM: type[Counters] = counters_trtllm.Counters


def imported(path: Path) -> set[str]:
    """Return the top-level names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_program_imports_the_standard_library_and_nothing_of_ours(path: Path) -> None:
    assert imported(path) - sys.stdlib_module_names == OF_THE_IMAGE.get(path.name, set())


def test_pods_mount_the_programs_as_they_stand_and_each_is_mounted_somewhere() -> None:
    mounted = {
        name: text
        for engine in ENGINES.values()
        for name, text in scripts(replace(EVERYTHING, engine=engine)).items()
        if name.endswith(".py")
    }
    routed = a_deployment(router=RouterOptions(image="router:1", account="router"))
    assert mounted | scripts_of(routed)["data"] == {path.name: path.read_text() for path in FILES}


@pytest.mark.parametrize(
    ("name", "counters", "key"),
    [
        ("vLLM", "counters_vllm.py", "VLLM_API_KEY"),
        ("TensorRTLLM", "counters_trtllm.py", "SHARDWRIGHT_API_KEY"),
        ("SGLang", "counters_sglang.py", "SHARDWRIGHT_API_KEY"),
    ],
)
def test_the_watcher_has_the_counters_and_the_key_of_its_engine(
    name: str, counters: str, key: str
) -> None:
    engine = ENGINES[name]
    found = scripts(ScriptSettings(ranks=1, engine=engine, tokens=TokenWatch(silence_seconds=60)))
    assert sorted(name for name in found if name.endswith(".py")) == [counters, "serving.py"]
    assert f"set -- {counters.removesuffix('.py')} {key} " in found["launch.sh"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_program_is_read_where_there_is_nothing_but_python(path: Path) -> None:
    alone = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({str(path)!r})"]
    assert subprocess.run(alone, capture_output=True, text=True, check=False).stderr == ""


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_the_watcher_finds_its_counters_in_a_volume_as_the_kubelet_lays_it_out(
    engine: EngineDefinition, tmp_path: Path
) -> None:
    (tmp_path / "..version").mkdir()
    (tmp_path / "..data").symlink_to("..version")
    for name, text in scripts(replace(EVERYTHING, engine=engine)).items():
        (tmp_path / "..version" / name).write_text(text)
        (tmp_path / name).symlink_to(f"..data/{name}")

    silence, idle, poll, stale = (
        "60",
        "30",
        "60",
        "0.1",
    )  # its first look is its last: the alarm ends it in the pause
    arguments = (
        f"counters_{engine.label}",
        engine.api_key_variable,
        str(free_port()),
        str(tmp_path / "tokens"),
        silence,
        idle,
        poll,
        stale,
    )
    command = [sys.executable, str(tmp_path / "serving.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stderr) == (-signal.SIGALRM, "")


def test_vllm_tells_its_tokens_and_its_open_requests_over_all_replicas() -> None:
    told = (
        "# TYPE vllm:generation_tokens_total counter\n"
        'vllm:generation_tokens_total{engine="0",model_name="m"} 10.0\n'
        'vllm:generation_tokens_total{engine="1",model_name="m"} 5.0\n'
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0\n'
        'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0\n'
        'vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 3.0\n'
    )
    assert VLLM().read(told, 7) == (118.0, 3.0)


def test_sglang_tells_the_tokens_of_requests_that_have_ended_and_of_those_that_run() -> None:
    told = (
        "# TYPE sglang:generation_tokens_total counter\n"
        'sglang:generation_tokens_total{is_streaming="true",model_name="m"} 10.0\n'
        'sglang:generation_tokens_total{is_streaming="false",model_name="m"} 5.0\n'
        'sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 100.0\n'
        'sglang:realtime_tokens_total{mode="decode",model_name="m"} 3.0\n'
        'sglang:num_running_reqs{model_name="m"} 2.0\n'
    )
    assert SGLANG().read(told, 7) == (118.0, 0.0)


def test_sglang_has_no_counters_before_its_first_request_and_has_done_nothing() -> None:
    assert SGLANG().read("", 0) == (0.0, 0.0)


def test_vllm_without_its_counters_says_nothing() -> None:
    assert VLLM().read('vllm:num_requests_running{engine="0"} 0.0\n', 0) is None


def test_tensorrt_llm_tells_every_iteration_once_so_the_last_one_is_kept() -> None:
    counters = TRTLLM()
    assert counters.read('[{"iter": 4}, {"iter": 5}]', 0) == (5, 0.0)
    assert counters.read("[]", 0) == (5, 0.0)
    assert counters.read('["{\\"iter\\": 9}"]', 0) == (9, 0.0)


def test_an_empty_answer_of_tensorrt_llm_is_progress_as_others_read_its_iterations_too() -> None:
    counters = TRTLLM()
    assert [counters.read('[{"iter": 4}]', 0), counters.read("[]", 1)] == [(4, 0.0), (5, 0.0)]
