"""Files that wait run beside files that compute, and the longest ones first."""

from pathlib import Path

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.support.spreading import FILE_SECONDS, WAITING, LongestFirst, next_file

ROOT = Path(__file__).parents[3]
UPGRADE, WAITS, CHART = (
    "tests/controlplane/test_upgrade.py",
    "tests/controlplane/test_x.py",
    "tests/chart/test_x.py",
)
CRASH, COMPUTES = "tests/crash/test_in_memory.py", "tests/unit/test_x.py"


def order(left: dict[str, int], *, waiting_first: bool) -> list[str]:
    """Return the files in the order in which one process alone would take them."""
    found: list[str] = []
    while rest := {file: tests for file, tests in left.items() if file not in found}:
        found.append(next_file(rest, waiting_first=waiting_first))
    return found


def test_a_process_takes_its_own_kind_first_and_of_each_kind_the_longest() -> None:
    left = {COMPUTES: 900, CRASH: 47, CHART: 2, WAITS: 3, UPGRADE: 1}

    assert order(left, waiting_first=True) == [UPGRADE, WAITS, CHART, CRASH, COMPUTES]
    assert order(left, waiting_first=False) == [CRASH, COMPUTES, UPGRADE, WAITS, CHART]


def test_many_short_tests_with_a_control_plane_do_not_come_before_what_is_known_to_be_long() -> (
    None
):
    assert order(
        {"tests/controlplane/test_cases.py": 700, "tests/controlplane/test_tenants.py": 12},
        waiting_first=True,
    ) == ["tests/controlplane/test_tenants.py", "tests/controlplane/test_cases.py"]


def test_every_file_with_a_measured_time_exists() -> None:
    assert [file for file in (*FILE_SECONDS, *WAITING) if not (ROOT / file).exists()] == []


def test_pytest_xdist_still_hands_out_files_where_the_order_is_chosen() -> None:
    """That is not in its promises, and another name there would leave the order to it, with nothing
    else to see.
    """
    (chosen,) = (name for name in vars(LongestFirst) if not name.startswith("__"))

    assert callable(getattr(LoadFileScheduling, chosen))
