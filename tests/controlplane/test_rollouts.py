"""A change goes to the canary, from there to one group after another, and no further, or back,
where it does not come up.
"""

import pytest

from shardwright.cli.main import main
from shardwright.rendering.bundle import TEMPLATE_HASH
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models

pytestmark = pytest.mark.controlplane

CHANGED = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}


def pods(models: Models) -> dict[str, tuple[str, str]]:
    """Return uid and template of the pods, by name."""
    found = (pod["metadata"] for pod in models.pods())
    return {
        metadata["name"]: (metadata["uid"], metadata["labels"][TEMPLATE_HASH]) for metadata in found
    }


def test_a_canary_is_alone_until_the_partition_is_lowered_and_stops_a_change_that_fails_on_it(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    models.create("llama", replicas=3, rollout={"partition": 2})
    models.wait_ready("llama")
    before = pods(models)

    models.change("llama", engine=CHANGED)
    wait_for(lambda: pods(models)["llama-2-0"][1] != before["llama-2-0"][1], 60, "the canary")
    models.wait_ready("llama")
    canary = pods(models)
    assert {name for name in before if canary[name] != before[name]} == {"llama-2-0"}
    assert models.condition("llama", "RolloutPending")["reason"] == "HeldByPartition"

    models.delete("Pod", "llama-0-0")
    wait_for(
        lambda: pods(models)["llama-0-0"][0] != before["llama-0-0"][0], 60, "a new pod in its place"
    )
    models.wait_ready("llama")
    assert pods(models)["llama-0-0"][1] == before["llama-0-0"][1]

    control_plane.pods.crash_loop(
        models.namespace, "llama-2-0", message="CUDA error: invalid argument"
    )
    wait_for(lambda: models.condition("llama")["status"] == "False", 30, "the canary to fail")
    stood = pods(models)
    models.change("llama", rollout={"partition": 0})
    wait_for(
        lambda: models.condition("llama", "RolloutStopped")["reason"] == "EngineFailed",
        30,
        "the rollout to stop",
    )
    assert "CUDA error: invalid argument" in models.condition("llama", "RolloutStopped")["message"]
    models.wait_events("RolloutStopped")
    assert pods(models) == stood

    control_plane.pods.recover(models.namespace, "llama-2-0")
    others = {(name, before[name][1]) for name in ("llama-0-0", "llama-1-0")}
    wait_for(
        lambda: others.isdisjoint((name, pod[1]) for name, pod in pods(models).items()),
        90,
        "the other groups",
    )
    models.wait_ready("llama")
    assert pods(models)["llama-2-0"] == stood["llama-2-0"]
    assert models.condition("llama", "RolloutStopped")["status"] == "False"


def revisions(models: Models) -> list[tuple[int, bool]]:
    """Return the number of each revision of the model, and whether it runs."""
    return [
        (item["revision"], item["runs"])
        for item in models.get("ShardedModel", "llama")["status"].get("revisions", ())
    ]


def serves_with(models: Models, value: str) -> None:
    """Have the engine say what NCCL does in other words, and wait until the revision is kept."""
    number = revisions(models)[-1][0]
    models.change("llama", engine={"env": [{"name": "NCCL_DEBUG", "value": value}]})
    wait_for(lambda: revisions(models)[-1] == (number + 1, True), 60, f"revision {number + 1}")


def test_a_change_with_which_the_engine_keeps_failing_is_taken_back_and_all_groups_serve(
    models: Models, fleet: Fleet, control_plane: ControlPlane
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    models.create("llama", replicas=2, rollout={"partition": 1, "onFailure": "RollBack"})
    models.wait_ready("llama")
    wait_for(lambda: revisions(models) == [(1, True)], 15, "what serves to be kept")
    before = pods(models)

    models.change("llama", engine=CHANGED)
    wait_for(lambda: pods(models)["llama-1-0"][1] != before["llama-1-0"][1], 60, "the canary")
    control_plane.pods.crash_loop(
        models.namespace, "llama-1-0", message="CUDA error: invalid argument"
    )

    models.wait_reason("llama", "RolledBack", 120)
    after = pods(models)
    assert (after["llama-0-0"], after["llama-1-0"][1]) == (
        before["llama-0-0"],
        before["llama-1-0"][1],
    )
    assert models.condition("llama", "Stalled")["status"] == "True"
    back = models.condition("llama", "RolledBack")
    assert (back["status"], back["reason"]) == ("True", "EngineFailed")
    assert (
        "with which llama-1 failed again and again (CUDA error: invalid argument)"
        in back["message"]
    )
    models.wait_events("RolledBack")

    models.change("llama", engine={"env": [{"name": "NCCL_DEBUG", "value": "VERSION"}]})
    models.wait_ready("llama")
    assert models.condition("llama", "RolledBack")["status"] == "False"


def test_somebody_goes_back_and_a_forged_revision_is_not_believed(
    models: Models, fleet: Fleet, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    models.create("llama")
    models.wait_ready("llama")
    wait_for(lambda: revisions(models) == [(1, True)], 15, "what serves to be kept")
    first = pods(models)["llama-0-0"][1]
    command = ["--namespace", models.namespace, "--kubeconfig", str(control_plane.kubeconfig)]
    serves_with(models, "INFO")

    assert (
        main(["rollout", "undo", "nobody", *command])
        == main(["rollout", "undo", "llama", "--to-revision", "9", *command])
        == 2
    )
    assert main(["rollout", "undo", "llama", *command]) == 0
    wait_for(lambda: revisions(models) == [(2, False), (3, True)], 60, "the first one to run again")
    assert (pods(models)["llama-0-0"][1], models.condition("llama", "RolledBack")["reason"]) == (
        first,
        "Asked",
    )

    capsys.readouterr()
    assert main(["rollout", "history", "llama", *command]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["REVISION", "RUNS"],
        ["2", "no"],
        ["3", "yes"],
    ]

    serves_with(models, "WARN")
    serves_with(models, "VERSION")
    kept = {
        item["revision"]: item
        for item in models.all("ControllerRevision")
        if "-revision-" in item["metadata"]["name"]
    }
    assert [number for number, _ in revisions(models)] == [3, 4, 5]
    assert len(kept) == 3

    forged = {
        **kept[4],
        "metadata": {
            key: kept[4]["metadata"][key] for key in ("name", "labels", "ownerReferences")
        },
    }
    models.delete("ControllerRevision", forged["metadata"]["name"])
    models.post("ControllerRevision", {**forged, "data": kept[5]["data"]})
    served = pods(models)
    assert main(["rollout", "undo", "llama", "--to-revision", "4", *command]) == 0
    assert "another in its place" in models.wait_reason("llama", "RevisionUnusable")["message"]
    assert pods(models) == served
    assert main(["rollout", "retry", "llama", *command]) == 0
    models.wait_reason("llama", "Serving")
    assert pods(models) == served


def test_who_may_edit_a_namespace_may_not_write_revisions(control_plane: ControlPlane) -> None:
    role = control_plane.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit")
    verbs = {
        verb
        for rule in role["rules"]
        if "controllerrevisions" in rule.get("resources", ())
        for verb in rule["verbs"]
    }
    assert verbs == {"get", "list", "watch"}
