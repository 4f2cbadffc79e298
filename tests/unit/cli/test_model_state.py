"""What ``status`` says: what the operator has written, how far the pods are, and what to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shardwright.api.conditions import Reason
from shardwright.cli.model_state import BY_REASON, ModelState, advice, read_pods, standing_of
from shardwright.cli.output import print_lines
from shardwright.cli.status import detail_lines, document, table_lines
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.members import Failure
from tests.support.builders_live import a_live_model
from tests.support.builders_reconcile import NOON
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.small_cluster import SmallCluster

PROGRAM = "kubectl shardwright"
FULL, LIGHT = "\N{FULL BLOCK}", "\N{LIGHT SHADE}"


def _after(seconds: float, spec: Mapping[str, Any] = TWO_NODES, nodes: int = 3) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, dict(spec))
    operator.run(seconds)
    return operator


def _standing(
    operator: Operator, *, pods: Iterable[Mapping[str, Any]] | None = None, may_see: bool = True
) -> ModelState:
    model = a_live_model(operator)
    seen = list(model.pods or ()) if pods is None else list(pods)
    by_group = read_pods(operator.cluster.sets().values(), seen) if may_see else {}
    return standing_of(model.content, by_group, operator.cluster.now)


def _pods(operator: Operator, **engines: str | None) -> list[dict[str, Any]]:
    """Return the pods with engines that run since a time, or wait for their image (None), by
    rank.
    """
    changed = []
    for name, pod in operator.cluster.pods.items():
        started = engines.get(f"rank{name.rpartition('-')[2]}")
        state = (
            {"running": {"startedAt": started}}
            if started
            else {"waiting": {"reason": "ImagePullBackOff"}}
        )
        status = {
            "name": "engine",
            "state": state,
            "ready": False,
            "restartCount": 0,
            "started": False,
        }
        phase = {"phase": "Running" if started else "Pending", "containerStatuses": [status]}
        changed.append({**pod, "status": {**pod["status"], **phase}})
    return changed


def _lines(standing: ModelState, operator: Operator, width: int = 110) -> list[str]:
    return [one.plain() for one in detail_lines(standing, operator.cluster.now, width, PROGRAM)]


def test_the_state_of_a_serving_model_is_its_plan_its_address_and_its_groups() -> None:
    operator = _after(600, {**ONE_NODE, "replicas": 2})

    assert _lines(_standing(operator), operator) == [
        "llama in models: ready for 7m",
        "  Plan    TP8 on 16 GPUs of 2 nodes (NVIDIA-H100-80GB-HBM3)",
        "  Serves  http://llama.models.svc.cluster.local:8000, to pods of the namespace models",
        "  llama-0  ready",
        "  llama-1  ready",
    ]
    table = [
        one.plain()
        for one in table_lines([_standing(operator)], operator.cluster.now, 110, namespaces=False)
    ]
    assert table == [
        "NAME   READY  REASON   LAYOUT  GPUS  SINCE",
        "llama  2/2    Serving  TP8     16    7m",
    ]
    wide = [
        one.plain()
        for one in table_lines(
            [_standing(operator)], operator.cluster.now, 60, namespaces=True, wide=True
        )
    ]
    assert wide[1].endswith("  http://llama.models.svc.cluster.local:8000")
    assert len(wide) == 2


@pytest.mark.parametrize("name", ["llama-3-1-405b-instruct", "a-model-of-" + "a-long-name-" * 4])
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_list_stays_a_list_at_80_columns_and_names_what_it_leaves_out(
    name: str, *, namespaces: bool
) -> None:
    operator = _after(600, {**ONE_NODE, "replicas": 2})
    one = replace(_standing(operator), reason=Reason.PROGRESS_DEADLINE_EXCEEDED)
    two = replace(one, name=name, namespace="llm-serving-of-team-a", layout="TP8·PP2·DP4·EP32")

    header, *rows = (
        item.plain() for item in table_lines([one, two], NOON, 80, namespaces=namespaces)
    )

    assert header.split()[namespaces] == "NAME"
    assert [row.split()[namespaces] for row in rows[:2]] == ["llama", name]
    assert all("2/2" in row and "ProgressDeadlineExceeded" in row for row in rows[:2])
    assert len(rows) <= 3


def test_what_is_said_beside_the_plan_stands_in_one_column() -> None:
    operator = _after(600, ONE_NODE)
    engine = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    operator.edit(engine=engine)
    operator.run(1200)
    operator.annotations = {ROLLBACK_TO: "1"}
    operator.run(1200)

    asked, plan, serves = _lines(_standing(operator), operator)[1:4]

    assert asked.startswith("  Asked   revision 3 (")
    assert plan.startswith("  Plan    TP8 on 8 GPUs of 1 node")
    assert serves.startswith("  Serves  http://")


def test_a_plan_of_one_gpu_that_is_only_shown() -> None:
    operator = _after(60, {"mode": "PlanOnly", "replicas": 2})
    standing = _standing(operator)
    (_, row) = table_lines([standing], operator.cluster.now, 110, namespaces=False)

    assert row.plain().split() == [*("llama", "-", "PlanOnly", "TP1", "2", row.plain().split()[5])]
    one = replace(standing, gpus=1)
    assert _lines(one, operator)[1].startswith("  Plan  TP1 on 1 GPU of ")


@pytest.mark.parametrize(
    ("model", "reason", "said"),
    [
        (
            "meta-lama/Llama-3.1-8B-Instrct",
            Reason.CONFIG_FETCHING,
            ("  Model  not built in; did you mean meta-llama/Llama-3.1-8B-Instruct or "),
        ),
        ("acme/own-model-of-ours", Reason.CONFIG_FETCHING, ""),
        ("meta-lama/Llama-3.1-8B-Instrct", Reason.QUOTA_EXCEEDED, ""),
    ],
)
def test_a_model_that_is_looked_for_may_be_a_misspelt_one(
    model: str, reason: Reason, said: str
) -> None:
    operator = _after(20)
    content = dict(a_live_model(operator).content)
    ready = {"type": "Ready", "status": "False", "reason": reason}
    content |= {
        "spec": {**content["spec"], "model": {"id": model}},
        "status": {"conditions": [ready]},
    }
    standing = standing_of(content, {}, operator.cluster.now)

    line = _lines(standing, operator, 140)[1]

    assert line.startswith(said or "What to run")


def test_the_pod_that_holds_the_others_up_is_the_first_to_look_at() -> None:
    operator = _after(20)
    started = NOON.isoformat().replace("+00:00", "Z")
    lines = _lines(_standing(operator, pods=_pods(operator, rank0=started, rank1=None)), operator)

    assert lines[4:] == [
        "  llama-0  not ready",
        "    on h100-0, h100-1: ranks 0, 1: starting",
        "What to run",
        "  kubectl -n models describe pod llama-0-1  # what the pod waits for",
        "  kubectl -n models events --for smodel/llama  # what has happened to it",
    ]


@pytest.mark.parametrize(
    ("member", "command"),
    [
        ({"runs": True}, "kubectl -n models logs -f llama-0-1 -c engine"),
        ({"deleting": True}, "kubectl describe node h100-1"),
        (
            {"failure": Failure(rank=1, reason="Error", container="engine")},
            "kubectl -n models logs llama-0-1 -c engine --previous",
        ),
    ],
)
def test_what_is_to_be_run_for_a_pod_follows_from_how_far_it_is(
    member: dict[str, Any], command: str
) -> None:
    standing = _standing(_after(20))
    (group,) = standing.groups
    first, second = group.pods
    pods = (replace(first, ready=True), replace(second, **{"runs": False} | member))

    asked = replace(standing, groups=(replace(group, pods=pods),))

    assert advice(asked, PROGRAM)[0][0] == command


@pytest.mark.parametrize("created", [0, 1])
def test_a_group_whose_pods_are_not_created_leads_to_its_stateful_set(created: int) -> None:
    operator = _after(20)
    pods = _pods(operator, rank0=NOON.isoformat())[:created]
    standing = _standing(operator, pods=pods)

    assert advice(standing, PROGRAM)[0] == (
        "kubectl -n models describe statefulset llama-0",
        "why its pods are not created",
    )
    assert standing.groups[0].loading is None


def test_pods_of_a_former_stateful_set_are_not_those_of_the_group() -> None:
    operator = _after(20)
    former = [
        {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
        for pod in operator.cluster.pods.values()
        for one in pod["metadata"]["ownerReferences"]
        for owner in [{**one, "uid": "former"}]
    ]
    standing = _standing(operator, pods=former)

    assert (standing.groups[0].pods, standing.groups[0].missing) == ((), 2)


def test_a_stateful_set_of_another_model_has_no_pods_of_the_group() -> None:
    operator = _after(20)
    content = a_live_model(operator).content
    other = {**content, "metadata": {**content["metadata"], "uid": "other"}}
    by_group = read_pods(operator.cluster.sets().values(), operator.cluster.pods.values())

    assert standing_of(other, by_group, NOON).groups[0].pods == ()


def test_a_bar_shows_how_much_of_a_start_is_over() -> None:
    """It begins when the last engine does: before that a start takes no time."""
    operator = _after(20)
    most = operator.status["engine"]["startBudget"]["loadSeconds"]
    last = operator.cluster.now - timedelta(seconds=most / 4)
    pods = _pods(
        operator, rank0=(last - timedelta(seconds=600)).isoformat(), rank1=last.isoformat()
    )
    standing = _standing(operator, pods=pods)

    assert (standing.groups[0].loading, standing.most_seconds) == (most / 4, most)
    assert (
        _lines(standing, operator)[4]
        == f"  llama-0  not ready  {FULL * 5}{LIGHT * 15}  526 s of at most 35 min"
    )


def test_without_the_right_to_see_pods_the_status_speaks() -> None:
    operator = _after(20)

    assert _lines(_standing(operator, may_see=False), operator)[4:] == [
        "  llama-0  not ready",
        "    on h100-0, h100-1: ranks 0, 1: starting",
        "What to run",
        "  kubectl -n models events --for smodel/llama  # what has happened to it",
    ]


FAILED = {
    "rank": 1,
    "container": "engine",
    "exitCode": 137,
    "reason": "Error",
    "message": "loading\nout of \x1b[2J memory",
}


def _failed(operator: Operator, **group: Any) -> ModelState:
    """Return the state of a model whose status says why its first group failed last."""
    content = a_live_model(operator).content
    (shown,) = content["status"]["groups"]
    groups = [{**shown, "restarts": 3, "lastFailure": FAILED, **group}]
    status = {**content["status"], "groups": groups}
    return standing_of({**content, "status": status}, {}, NOON)


def test_a_group_that_failed_says_why_with_the_last_line_of_its_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator = _after(20)
    standing = _failed(operator)

    print_lines(detail_lines(standing, NOON, 110, PROGRAM), width=110)

    assert capsys.readouterr().out.splitlines()[6] == (
        "    failed: rank 1, container engine: Error with exit code 137, restart 3: out of "
        "\\x1b[2J memory"
    )
    assert document(standing, PROGRAM)["groups"][0]["lastFailure"] == FAILED
    served = _lines(_failed(operator, ready=True), operator)
    assert not [line for line in served if "failed" in line]


@pytest.mark.parametrize("said", ["gone", {"rank": "one", "exitCode": [], "message": 7}])
def test_a_failure_that_somebody_else_has_written_ends_nothing(said: Any) -> None:
    operator = _after(20)

    assert _lines(_failed(operator, lastFailure=said), operator)


def test_where_nothing_fits_the_planner_is_asked_why() -> None:
    operator = _after(20, nodes=1)
    standing = _standing(operator)

    assert (standing.ready, standing.reason) == ("False", "NothingFits")
    assert [command for command, _ in advice(standing, PROGRAM)] == [
        "kubectl shardwright explain llama -n models"
    ]


def test_a_model_that_nobody_has_looked_at() -> None:
    operator = _after(0)
    content = {**a_live_model(operator).content, "status": {"observedGeneration": -1}}
    standing = standing_of(content, {}, NOON)

    assert (standing.ready, standing.current) == ("Unknown", False)
    assert advice(standing, PROGRAM)[0][1] == "whether the operator runs"


@pytest.mark.parametrize("reason", [word for word in BY_REASON if word])
def test_advice_is_given_for_reasons_that_there_are(reason: str) -> None:
    assert reason in set(Reason)


def test_a_change_that_was_taken_back_is_tried_again_once_its_cause_is_gone() -> None:
    operator = _after(20)
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "RolledBack",
        "message": "its spec did not come up",
    }
    back = {
        "type": "RolledBack",
        "status": "True",
        "reason": "EngineFailed",
        "message": "revision 1 runs",
    }
    content = a_live_model(operator).content
    content = {**content, "status": {**content["status"], "conditions": [ready, back]}}

    standing = standing_of(content, {}, NOON)

    assert [one["message"] for one in standing.conditions] == ["revision 1 runs"]
    assert [command for command, _ in advice(standing, PROGRAM)] == [
        "kubectl shardwright rollout retry llama -n models"
    ]


def test_a_command_to_copy_is_never_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    operator = _after(0)
    content = {**a_live_model(operator).content, "status": {"observedGeneration": -1}}
    standing = standing_of(content, {}, NOON)

    print_lines(detail_lines(standing, NOON, 60, PROGRAM), width=60)

    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "  kubectl get pods -A -l app.kubernetes.io/name=shardwright-operator"
    )


def test_the_state_of_a_model_as_data_has_what_the_text_says() -> None:
    operator = _after(20)
    item = document(_standing(operator, pods=_pods(operator, rank0=NOON.isoformat())), PROGRAM)

    assert item["metadata"] == {"name": "llama", "namespace": "models"}
    assert (item["ready"], item["condition"], item["current"]) == ("0/1", "False", True)
    assert item["plan"]["gpus"] == 16
    assert item["groups"] == [
        {
            "name": "llama-0",
            "ready": False,
            "nodes": ["h100-0", "h100-1"],
            "message": "ranks 0, 1: starting",
            "restarts": 0,
            "lastFailure": None,
            "loading": None,
        }
    ]
