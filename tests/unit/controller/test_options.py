"""The command line of the operator."""

import subprocess
import sys

import pytest

from shardwright.cluster.client import RequestLimits
from shardwright.cluster.leases import LeaseTimings
from shardwright.controller.operator_options import parse_options


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "POD_NAME", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def test_the_options_come_from_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "operator-1")
    monkeypatch.setenv("POD_NAMESPACE", "system")
    options = parse_options(["--port=0", "--no-leader-elect"])
    assert (options.identity, options.lease_namespace, options.leader_elect, options.port) == (
        "operator-1",
        "system",
        False,
        0,
    )
    assert options.kubeconfig is None


def test_two_processes_of_one_host_have_two_names() -> None:
    first, second = parse_options([]), parse_options([])
    assert first.identity != second.identity
    assert parse_options(["--identity=a"]).identity == "a"


@pytest.mark.parametrize(
    ("flags", "watched"), [([], ()), (["--watch-namespaces=b,a,,b"], ("a", "b"))]
)
def test_namespaces_are_named_once_and_in_order(flags: list[str], watched: tuple[str, ...]) -> None:
    assert parse_options(flags).watch_namespaces == watched


def test_limits_and_timings_are_what_the_flags_say() -> None:
    options = parse_options(
        [
            "--kube-api-qps=0.5",
            "--kube-api-burst=7",
            "--lease-duration-seconds=60",
            "--lease-renew-deadline-seconds=40",
            "--lease-retry-seconds=5",
        ]
    )
    assert options.request_limits == RequestLimits(qps=0.5, burst=7)
    assert options.lease_timings == LeaseTimings(
        duration_seconds=60, renew_deadline_seconds=40, retry_seconds=5
    )
    assert parse_options([]).lease_timings == LeaseTimings()
    assert parse_options([]).request_limits == RequestLimits()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--lease-duration-seconds=10", "a leader must stop before others may start"),
        ("--lease-retry-seconds=8", "a leader must be able to try twice before its deadline"),
        ("--kube-api-qps=0", "argument --kube-api-qps: must be more than 0, not 0"),
        ("--kube-api-qps=nan", "argument --kube-api-qps: must be more than 0, not nan"),
        ("--kube-api-burst=0", "argument --kube-api-burst: must be at least 1, not 0"),
        ("--max-moving-groups=0", "argument --max-moving-groups: must be at least 1, not 0"),
        ("--lease-duration-seconds=15.5", "argument --lease-duration-seconds: invalid"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(
    caplog: pytest.LogCaptureFixture, flag: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options([flag])
    assert ended.value.code == 2
    assert message in caplog.text


def test_help_and_a_wrong_option_load_none_of_the_running_parts() -> None:
    program = (
        "import sys\n"
        "from shardwright.controller.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'kopf', 'kubernetes', 'pydantic', 'aiohttp'} & sys.modules.keys()\n"
        "    print('loaded', sorted(heavy))\n"
    )
    for words, code in ((["--help"], 0), (["--port=x"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert done.stdout.endswith("loaded []\n")
