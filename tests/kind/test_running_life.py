"""A group of two pods that is broken on real kubelets: a clear condition with the cause, and
service again by itself.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardwright.costs.host import host_memory_bytes
from shardwright.rendering.pod_resources import DISK_BASE_BYTES
from shardwright.units import KIB, MIB
from tests.harness.waiting import wait_for
from tests.kind import faults, release, serving
from tests.kind.breaking import (
    CHANGED,
    ENGINE,
    FAILED,
    FOLLOWER,
    LEADER,
    NOTICED_SECONDS,
    PROMPT,
    QUICK,
    broken,
    kill,
)
from tests.kind.faults import Fault
from tests.kind.serving import LONG, NAMESPACE, ONE_AT_A_TIME, Facts, Served

pytestmark = pytest.mark.timeout(1800)

SOON = (*QUICK, f"engine: {{{LONG}, args: {{max-logprobs: 5}}}}")
"""Quick settings, and an argument by which the pods show that they have them."""

WRITTEN = "/cache /tmp /run/shardwright"
MEMORY_PEAK = (
    "cat /sys/fs/cgroup/memory.peak 2>/dev/null || cat "
    "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"
)
"""Prints the bytes that the container has had at the most, with files that are cached and its
shared memory: cgroup v2, or v1.
"""

SILENT = 78
"""What a launcher ends with whose engine brings no tokens (rendering/templates/launch.sh.j2)."""


@pytest.fixture
def group(pipeline: tuple[Served, Facts]) -> Served:
    """Two pods, a pipeline stage in each, that serve."""
    served, _ = pipeline
    served.wait_ready()
    return served


@pytest.fixture
def quick(group: Served) -> Served:
    """The same, with the quick settings, whether the roll to them came before or not."""
    group.write(ONE_AT_A_TIME, further=SOON)
    wait_for(lambda: _has_soon(group), NOTICED_SECONDS, "pods with the quick settings", 0.5)
    group.wait_ready()
    return group


@pytest.mark.parametrize("rank", [LEADER, FOLLOWER])
def test_a_serving_rank_writes_to_its_volumes_only_and_stays_within_its_default_requests(
    group: Served, rank: int
) -> None:
    options = group.inside(rank, "grep ' / ' /proc/mounts").split()[3].split(",")
    written = (
        sum(int(line.split()[0]) for line in group.inside(rank, f"du -sk {WRITTEN}").splitlines())
        * KIB
    )
    taken = int(group.inside(rank, MEMORY_PEAK))

    assert options[0] == "ro"
    assert written < DISK_BASE_BYTES
    assert taken < host_memory_bytes(1)
    said = (
        f"{written // MIB} MiB on the disk, {taken // MIB} MiB of memory at the most, files "
        "included"
    )
    faults.seen.append(Fault(f"a root that nobody can write to, rank {rank}", said, 0, "serves"))


def test_a_killed_follower_takes_the_group_through_zero_and_it_serves_again(group: Served) -> None:
    broken(group, "a killed follower", lambda: kill(group, FOLLOWER), first=[FAILED])

    assert group.failure()["rank"] == FOLLOWER


def test_a_change_of_the_pods_rolls_the_group_and_no_revisions_mix(group: Served) -> None:
    before = group.uids()

    broken(group, "a roll", lambda: group.write(ONE_AT_A_TIME, further=SOON), first=[CHANGED])

    assert _has_soon(group)
    assert not before & group.uids()


def test_a_stopped_follower_ends_the_group_once_it_brings_no_tokens(quick: Served) -> None:
    """The follower only stands still: it is the leader that finds it out, and ends."""
    with ThreadPoolExecutor() as asking:
        broken(
            quick,
            "a SIGSTOPped follower",
            lambda: _stop(quick, asking),
            first=[FAILED],
            then=f"exit code {SILENT}",
        )

    failure = quick.failure()
    assert (failure["rank"], failure["container"], failure["exitCode"]) == (
        LEADER,
        "engine",
        SILENT,
    )
    assert f"shardwright: rank {LEADER}: the engine brings no tokens" in failure["message"]


def test_a_restart_goes_on_when_the_operator_is_killed_in_the_middle(group: Served) -> None:
    def kill_both() -> None:
        kill(group, FOLLOWER)
        wait_for(lambda: _replicas(group) == 0, NOTICED_SECONDS, "the group to go to zero", 0.2)
        words = ["delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"]
        group.cluster.kubectl("-n", release.NAMESPACE, *words)

    what = "a killed follower, and the operator killed in the middle of the restart"
    broken(
        group, what, kill_both, first=[FAILED, "Progressing", "ClusterReading"]
    )  # the next one may be the first to say so

    assert group.failure()["rank"] == FOLLOWER


def test_nothing_of_a_deleted_group_is_left(group: Served) -> None:
    kinds = "statefulsets,services,configmaps,pods,poddisruptionbudgets,networkpolicies"
    began = time.monotonic()

    group.delete()
    faults.seen.append(
        Fault("deletion", "all pods gone", time.monotonic() - began, "nothing is left")
    )

    wait_for(
        lambda: (
            len(group.cluster.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").split()) == 2
        ),
        60,
        "the rest to go",
    )
    listed = group.cluster.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name")
    assert set(listed.split()) == {"configmap/kube-root-ca.crt", f"pod/{serving.CLIENT}"}


def _has_soon(group: Served) -> bool:
    pods = group.pods()
    return bool(pods) and all(
        "--max-logprobs=5" in pod["spec"]["containers"][0]["args"] for pod in pods
    )


def _stop(group: Served, asking: ThreadPoolExecutor) -> None:
    group.inside(FOLLOWER, f"kill -STOP -- -{ENGINE}")
    asking.submit(group.ask, PROMPT)


def _replicas(group: Served) -> int:
    return int(
        group.cluster.get("statefulset", f"{group.name}-0", "-n", NAMESPACE)["spec"]["replicas"]
    )
