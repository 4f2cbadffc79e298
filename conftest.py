"""Options, plugins and markers of the whole suite."""

import os
import sys
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.support.spreading import LongestFirst

pytest_plugins = ["tests.harness.plugin", "tests.support.cpu_cap"]

# What pytest makes of the asserts of 600 files takes 14 s of CPU, in each process that runs tests:
# it is kept, whatever the environment says.
sys.dont_write_bytecode = False

# No test asks the public hub: those that ask one serve it themselves, and say so.
os.environ["HF_HUB_OFFLINE"] = "1"

# A machine that is busy is slow, not wrong. What must pass tries the same examples every time, so
# that a change is judged by
# what it changes; `--hypothesis-profile=explore` looks for new ones, and what it finds becomes a
# test of its own.
hypothesis.settings.register_profile(
    "same",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
    max_examples=50,
)
hypothesis.settings.register_profile(
    "explore",
    hypothesis.settings.get_profile("same"),
    derandomize=False,
    max_examples=1000,
    print_blob=True,
)
hypothesis.settings.load_profile("same")

_OF_THE_HARNESS = Path(__file__).parent / "tests" / "harness_selftest"
_OF_THE_ENGINE = Path(__file__).parent / "tests" / "engine"
_OF_OTHER_VERSIONS = Path(__file__).parent / "tests" / "versions"
_OF_MPI = Path(__file__).parent / "tests" / "mpi"
_OF_THE_BROWSER = Path(__file__).parent / "tests" / "browser"
_COSTS = Path(__file__).parent / "operator" / "shardwright" / "costs"
_OF_AUTOSCALERS = Path(__file__).parent / "tests" / "controlplane" / "autoscaling"
_OF_RECOVERY = Path(__file__).parent / "tests" / "controlplane" / "recovery"
_OF_QUEUES = Path(__file__).parent / "tests" / "controlplane" / "queues"
_OF_RIGHTS = Path(__file__).parent / "tests" / "rights"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switches: rewrite golden files instead of comparing with them; collect what needs the
    real engine.
    """
    parser.addoption(
        "--engine",
        action="store_true",
        help="collect the tests on the real engine too (make test-engine)",
    )
    parser.addoption(
        "--versions",
        action="store_true",
        help="collect the tests on older API servers too (make test-versions)",
    )
    parser.addoption(
        "--browser",
        action="store_true",
        help="collect the tests in Chromium too (make test-browser)",
    )
    parser.addoption(
        "--mpi",
        action="store_true",
        help="collect the tests with ssh and Open MPI too (make test-mpi)",
    )
    parser.addoption(
        "--autoscaling",
        action="store_true",
        help="collect the tests with KEDA too (make test-autoscaling)",
    )
    parser.addoption(
        "--recovery",
        action="store_true",
        help="collect how long groups take to come back too (make recovery)",
    )
    parser.addoption(
        "--queues",
        action="store_true",
        help="collect the tests with Kueue and Coscheduling too (make test-queues)",
    )
    parser.addoption(
        "--rights",
        action="store_true",
        help="collect what judges the requests of the control plane tests",
    )
    parser.addoption(
        "--faults",
        action="store_true",
        help="run the faults too that take their time (make faults)",
    )
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="rewrite golden files; read the diff before you commit",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave alone what is not asked for: the real engine takes 7 GB, an API server minutes to
    build, Open MPI and Chromium root.

    What judges a run of the control plane tests comes after them.
    """
    options = {
        _OF_THE_ENGINE: "--engine",
        _OF_OTHER_VERSIONS: "--versions",
        _OF_MPI: "--mpi",
        _OF_RIGHTS: "--rights",
        _OF_AUTOSCALERS: "--autoscaling",
        _OF_RECOVERY: "--recovery",
        _OF_QUEUES: "--queues",
        _OF_THE_BROWSER: "--browser",
    }
    asked = options.get(collection_path)
    return True if asked and not config.getoption(asked) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that needs the loopback control plane, so that `-m "not controlplane"` leaves
    out just those.

    Faults that take their time are left out unless they are asked for.
    """
    if not config.getoption("--faults"):
        items[:] = [item for item in items if item.get_closest_marker("faults") is None]
    for item in items:
        if item.path.is_relative_to(_OF_THE_ENGINE):
            item.add_marker(pytest.mark.engine)
        if "control_plane" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(
            _OF_THE_HARNESS
        ):
            item.add_marker(pytest.mark.controlplane)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Spread files by what they cost, where `--dist loadfile` keeps each of them whole."""
    return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on who runs it: pytest-xdist states a terminal of 80 columns, a person's
    shell another one.
    """
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _worked_examples(request: pytest.FixtureRequest) -> None:
    """Name what the worked numbers of the cost model start from, for its doctests alone."""
    if isinstance(request.node, pytest.DoctestItem) and request.path.is_relative_to(_COSTS):
        from tests.support.worked_examples import worked_examples  # noqa: PLC0415

        request.getfixturevalue("doctest_namespace").update(worked_examples())


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """Return whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-goldens"))
