"""Of vLLM's own server, built as a pod with a key starts it, every route but health and metrics asks
for the key: in each supported version, routes of development mode among them.
"""

import json
import subprocess
from pathlib import Path

import pytest

from shardwright.rendering.deployment import SecretKey
from shardwright.rendering.render import render
from shardwright.rendering.scripts import SCRIPTS_DIR
from tests.engine import environment
from tests.engine.checker import PREFIX
from tests.engine.launches import VERSIONS
from tests.engine.questions import QUIET
from tests.support.builders_deployment import a_deployment, a_small_plan
from tests.support.rendered import engine_of

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "operator/shardwright/rendering/programs"
OPEN = {"GET /health", "HEAD /health", "GET /metrics", "HEAD /metrics"}
NAMED_BY_THE_REVIEW = {"POST /invocations", "POST /tokenize", "POST /scale_elastic_ep"}
SECONDS = 300

pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_route_but_health_and_metrics_asks_for_the_key(version: str, tmp_path: Path) -> None:
    answers = asked(version, tmp_path)

    routes = set(answers["nothing"])
    assert routes >= NAMED_BY_THE_REVIEW | {"POST /sleep", "GET /v1/models"}
    refused = (401, 1008)  # of HTTP and of a websocket
    for who in ("nothing", "another"):
        let_in = {one for one, status in answers[who].items() if status not in refused}
        assert let_in <= OPEN, let_in
    assert {one for one, status in answers["key"].items() if status in refused} == set()


def asked(version: str, home: Path) -> dict[str, dict[str, int]]:
    """Return the statuses of all routes by who asks."""
    installed = environment.installed()
    assert installed is not None, "the engine is not installed: run `make test-engine`"
    key = SecretKey(name="clients", key="api-key")
    bundle = render(a_small_plan(), a_deployment(api_key=key, engine_version=version))
    scripts = home / SCRIPTS_DIR.removeprefix("/")
    scripts.mkdir(parents=True)
    (scripts / "key_guard.py").write_text((PROGRAMS / "key_guard.py").read_text())
    own = installed.variables(version)
    done = subprocess.run(
        [installed.python, Path(__file__).with_name("guarded.py"), *engine_of(bundle)["args"][1:]],
        env={
            **QUIET,
            **own,
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": ":".join(filter(None, [own.get("PYTHONPATH"), str(ROOT), str(scripts)])),
            "VLLM_API_KEY": "the-key",
            "VLLM_SERVER_DEV_MODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [one for one in done.stdout.splitlines() if one.startswith(PREFIX)]
    found: dict[str, dict[str, int]] = json.loads(line.removeprefix(PREFIX))
    return found
