"""Two real engines behind the router as it is rendered, started by the program of its pods: requests
find their prefixes, and nobody is let through without the key.

Takes two minutes: two engines start, and 12 prefixes are asked 6 times each, twice.
"""

from __future__ import annotations

import json
import random
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardwright.rendering.router_pods import arguments
from tests.engine import environment
from tests.engine.environment import Environment
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for
from tests.kind import tiny_model
from tests.support.builders_deployment import a_deployment, a_plan

PROGRAM = Path(__file__).parents[2] / "operator/shardwright/rendering/programs/router.py"
PREFIXES, TIMES, AT_ONCE, TOKENS = 12, 6, 8, 640
BLOCK = 32
KEY = "secret"
QUIET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_API_KEY": KEY,
    "PATH": "/usr/bin:/bin",
}
SECONDS = 400

pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.fixture(scope="module")
def installed() -> Environment:
    found = environment.installed()
    assert found is not None, "the engine is not installed: run `make test-engine`"
    return found


@pytest.fixture(scope="module")
def engines(
    installed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    """Two engines on the CPU that give the router the tokens of prompts; their ports."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([installed.python, tiny_model.__file__, folder], check=True, timeout=SECONDS)
    ports = free_port(), free_port()
    with ExitStack() as running:
        for port in ports:
            serve = ("-m", "vllm.entrypoints.cli.main", "serve", str(folder / "tiny"))
            told = ("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port))
            sizes = ("--max-model-len", "4096", "--max-num-seqs", "16", "--block-size", str(BLOCK))
            how = ("--dtype", "float16", "--enforce-eager", "--enable-scale-out")
            words = (installed.python, *serve, *told, *sizes, *how)
            running.enter_context(started(words, QUIET | {"HOME": str(folder)}, folder))
        there = [f"http://127.0.0.1:{port}/health" for port in ports]
        wait_for(lambda: all(map(answers, there)), SECONDS, "both engines")
        yield ports


@contextmanager
def started(words: tuple[Any, ...], variables: dict[str, str], folder: Path) -> Iterator[None]:
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(
            words, env=variables, stdout=log, stderr=log, cwd=folder, start_new_session=True
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def routed(
    installed: Environment, engines: tuple[int, int], folder: Path, policy: str
) -> Iterator[int]:
    """Start the router by its pods' program, with what it is told but for where engines are."""
    words, port = list(arguments(a_plan(), a_deployment())), free_port()
    kept = words[words.index("--policy") + 2 :]  # before it: where engines are looked for
    there = [f"http://127.0.0.1:{engine}" for engine in engines]
    own = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    program = (installed.python, PROGRAM, *own, "--worker-urls", *there, "--policy", policy, *kept)
    variables = QUIET | {"PYTHONPATH": str(environment.router(installed)), "HOME": str(folder)}
    with started(program, variables, folder):
        wait_for(lambda: status_of(port, KEY) == 200, 60, "the router")
        yield port


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(port: int, prompt: str, key: str) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    url = f"http://127.0.0.1:{port}/v1/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def status_of(port: int, key: str) -> int:
    try:
        ask(port, "w1", key)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0  # it does not run yet
    return 200


def counted(engine: int, what: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{engine}/metrics", timeout=5) as told:
        lines = told.read().decode().splitlines()
    name = f"vllm:prefix_cache_{what}_total{{"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def asked(port: int, engines: tuple[int, int], seed: int) -> tuple[float, float, float]:
    """Ask, and return the share of tokens that hit, the most that could, and the larger engine's
    share of all tokens.
    """
    drawn = random.Random(seed)  # noqa: S311 - a sequence

    def words(count: int) -> str:
        return " ".join(f"w{drawn.randrange(3, 500)}" for _ in range(count))

    prefixes = [words(TOKENS) for _ in range(PREFIXES)]
    prompts = [f"{prefix} {words(10)}" for prefix in prefixes for _ in range(TIMES)]
    drawn.shuffle(prompts)
    before = [(counted(engine, "hits"), counted(engine, "queries")) for engine in engines]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = list(pool.map(lambda prompt: ask(port, prompt, KEY)["usage"], prompts))
    after = [(counted(engine, "hits"), counted(engine, "queries")) for engine in engines]
    hits, queries = (
        [now[i] - then[i] for now, then in zip(after, before, strict=True)] for i in (0, 1)
    )
    cached = PREFIXES * (TIMES - 1) * (TOKENS // BLOCK * BLOCK)
    most = cached / sum(usage["prompt_tokens"] for usage in told)
    return sum(hits) / sum(queries), most, max(queries) / sum(queries)


def test_requests_find_their_prefixes_and_neither_engine_is_left_idle(
    installed: Environment, engines: tuple[int, int], tmp_path: Path
) -> None:
    with routed(installed, engines, tmp_path, "round_robin") as port:
        at_random, _, _ = asked(port, engines, seed=1)
    with routed(installed, engines, tmp_path, "cache_aware") as port:
        refused = [status_of(port, key) for key in ("", "another")]
        found, most, largest = asked(port, engines, seed=2)

    assert refused == [401, 401]
    assert found >= at_random + 0.7 * (most - at_random), (at_random, found, most)
    assert largest <= 0.75
