"""How `make test` spreads the test files over its processes: what waits beside what computes, and
the longest first.

A file with a control plane mostly waits, for pods and for clocks; the others compute. Were one kind
run after the other, the cores would first be fought over and then stand idle. So the last process
begins with the files that compute and the others with those that wait; whichever has no more of its
own kind takes from the other. Long files come first: one that came last would leave every other
process idle while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

WAITING: Final = ("tests/controlplane/", "tests/harness_selftest/", "tests/chart/")
"""Folders of tests with a control plane."""

FILE_SECONDS: Final[Mapping[str, int]] = {
    "tests/crash/test_in_memory.py": 144,
    "tests/controlplane/test_costly.py": 120,
    "tests/controlplane/test_blast_radius.py": 115,
    "tests/chart/test_installed.py": 105,
    "tests/controlplane/test_tenants.py": 99,
    "tests/controlplane/test_autoscaled.py": 81,
    "tests/controlplane/test_closed_namespace.py": 70,
    "tests/controlplane/test_waiting.py": 60,
    "tests/controlplane/test_compute_domains.py": 60,
    "tests/controlplane/test_upgrade.py": 59,
    "tests/controlplane/test_secrets.py": 57,
    "tests/programs/controller/test_worker.py": 43,
    "tests/unit/cli/test_typed.py": 43,
    "tests/controlplane/test_cli.py": 42,
    "tests/property/test_history_laws.py": 40,
    "tests/harness_selftest/test_control_plane.py": 39,
    "tests/controlplane/test_token.py": 37,
    "tests/unit/cli/test_first_screen.py": 32,
    "tests/unit/pages/test_page.py": 29,
    "tests/property/test_cause_laws.py": 28,
    "tests/controlplane/test_stored_fields.py": 28,
    "tests/harness_selftest/test_pods_and_nodes.py": 22,
    "tests/controlplane/test_wait_recipes.py": 17,
    "tests/controlplane/test_caches.py": 16,
    "tests/unit/pipeline/test_replanning.py": 16,
    "tests/unit/controller/test_record_trust.py": 12,
    "tests/property/test_left_out_laws.py": 12,
    "tests/unit/reconcile/test_stopped_rollouts.py": 12,
    "tests/controlplane/test_writes.py": 11,
    "tests/alerts/test_rules.py": 11,
    "tests/property/test_plan_laws.py": 10,
    "tests/property/test_plan_cache_laws.py": 10,
    "tests/crash/test_histories.py": 10,
}
"""What whole files take, seconds of the clock where a file waits and of CPU where it computes.
Basis: measured, one run on a machine with other work; some have fewer tests since. Only their order
matters.
"""

_WAITING_TEST_SECONDS: Final = 6.0
"""What a test with a control plane takes in a file that is not listed. Basis: assumed."""

_WAITING_FILE_SECONDS_MAX: Final = 60.0
"""What such a file takes at most, however many tests it has. Basis: assumed."""

_COMPUTING_TEST_SECONDS: Final = 0.03
"""What any other test takes in a file that is not listed. Basis: assumed."""


def next_file(left: Mapping[str, int], *, waiting_first: bool) -> str:
    """Return the file that a process is to run next, of those that are left with their numbers of
    tests.
    """
    return max(
        left,
        key=lambda file: (file.startswith(WAITING) is waiting_first, _seconds(file, left[file])),
    )


def _seconds(file: str, tests: int) -> float:
    assumed = (
        min(tests * _WAITING_TEST_SECONDS, _WAITING_FILE_SECONDS_MAX)
        if file.startswith(WAITING)
        else tests * _COMPUTING_TEST_SECONDS
    )
    return FILE_SECONDS.get(file, assumed)


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Files are run whole, each by one process, as `--dist loadfile` says; this chooses which one
    is next.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        left = {file: len(tests) for file, tests in self.workqueue.items()}
        last = node.gateway.id == f"gw{self.numnodes - 1}"
        self.workqueue.move_to_end(next_file(left, waiting_first=not last), last=False)
        super()._assign_work_unit(node)
