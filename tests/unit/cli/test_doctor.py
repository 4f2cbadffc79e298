"""What the checks of ``doctor`` find in what was read of a cluster: findings, their words, and the probe of its
pod.
"""

import socket
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from shardwright import __version__
from shardwright.api.network_policy import LabelSelector, NetworkPolicies, Peer
from shardwright.api.settings import Settings
from shardwright.cli.diagnosis import Enforcement, Result
from shardwright.cli.doctor import lines_of
from shardwright.cli.doctor_checks import CHECKS, Examined, examine
from shardwright.cli.main import main
from shardwright.cli.output import print_lines
from shardwright.cli.present_states import Answers, NodeState, PresentState, SeenLease
from shardwright.cli.taking_stock import (
    InstalledOperator,
    Rights,
    RouterAccount,
    TakenStock,
    read_operator,
)
from shardwright.cli.trial import PROBE, Measured
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import Stated
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from tests.support.builders_cli import a_listed_node
from tests.support.hostile import ODD_TEXTS

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
LONG_AGO = "2026-11-24T10:00:00Z"
JUST_NOW = "2026-11-24T11:50:00Z"
GATEWAY = Peer(pod_selector=LabelSelector(match_labels={"app": "gateway"}))
ANYBODY = Peer(namespace_selector=LabelSelector())
OPERATOR = InstalledOperator(
    namespace="shardwright-system",
    name="shardwright",
    version=__version__,
    account="shardwright",
    wanted=2,
    ready=2,
    lease=SeenLease(holder="a"),
    pods=frozenset({"a", "b"}),
    installation="shardwright-system/shardwright",
    settings=Settings(),
)
ACCOUNT = "system:serviceaccount:shardwright-system:shardwright"
CLAIMS_COMMAND = (
    "kubectl get clusterrole --ignore-not-found shardwright-nodes shardwright-namespaces -o "
    "custom-columns="
    r"'NAME:.metadata.name,FOR:.metadata.annotations.shardwright\.io/installation'"
)
UNSEEN = (
    f"{ACCOUNT} may do nothing in team-b, which it watches, and sees no pods there: "
    "no model there is served, and GPUs in use there count as free"
)
OTHERS = (
    "shardwright-system/shardwright: nodes without the label shardwright.io/node-set are not for "
    "shardwright-system/shardwright: ClusterRole shardwright-nodes says else/where; "
    "give it nodes of its own with nodeSet, or uninstall one of the two"
)
CLAIMS = dict.fromkeys(
    ("shardwright-nodes", "shardwright-namespaces"), "shardwright-system/shardwright"
)


def read(node: dict[str, Any]) -> NodeFacts | NodeExclusion:
    found = read_node(node)
    assert found is not None
    return found


def a_stock(**changed: Any) -> TakenStock:
    """Return what was read where nothing is wrong."""
    fine = TakenStock(
        now=NOW,
        program="shardwright",
        version={"major": "1", "minor": "36+"},
        served=True,
        operators=(OPERATOR,),
        rights={ACCOUNT: Rights()},
        claims=CLAIMS,
        nodes={"": (read(a_listed_node("n1")),)},
        node_states={"n1": NodeState()},
        present=PresentState(answers=Answers(), pods=(), budgets=(), quotas=(), deaf=()),
        classes=(a_class("fast"), a_class("standard", default=True)),
        models=(a_diagnosed_model("m", ready="True"),),
        router_accounts=(RouterAccount("models", "shardwright-router"),),
        fetches=(),
        measured=Measured(enforcement=Enforcement.ENFORCED),
    )
    return replace(fine, **changed)


def sets_of(**names: list[str]) -> dict[str, Any]:
    """Return nodes by their sets."""
    return {
        node_set: [read(a_listed_node(name)) for name in nodes] for node_set, nodes in names.items()
    }


def a_class(name: str, *, default: bool = False) -> dict[str, Any]:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": mark}}


def a_diagnosed_model(
    name: str,
    *,
    ready: str = "False",
    since: str = LONG_AGO,
    reason: str = "Progressing",
    cache: dict[str, str] | None = None,
    **others: str,
) -> dict[str, Any]:
    first = {
        "type": "Ready",
        "status": ready,
        "reason": reason,
        "message": "why",
        "lastTransitionTime": since,
    }
    more = ({"type": kind, "status": status} for kind, status in others.items())
    return {
        "metadata": {"namespace": "models", "name": name},
        "spec": {"model": {"weights": {"cache": cache}}},
        "status": {"conditions": [first, *more]},
    }


def found(stock: TakenStock, check: str) -> Examined:
    return next(one for one in examine(stock) if one.check.name == check)


def said(stock: TakenStock, check: str) -> list[tuple[str, str]]:
    """Return the sentence and the command of each finding."""
    return [(finding.message, finding.command) for finding in found(stock, check).findings]


def test_where_nothing_is_wrong_every_check_is_fine() -> None:
    assert [(one.check.name, one.result, one.findings) for one in examine(a_stock())] == [
        (check.name, Result.FINE, ()) for check in CHECKS
    ]


def test_what_may_not_be_read_is_neither_fine_nor_wrong() -> None:
    stock = a_stock(
        operators=None,
        rights=None,
        claims=None,
        nodes=None,
        node_states=None,
        present=PresentState(),
        classes=None,
        models=None,
        router_accounts=None,
        fetches=None,
        measured=None,
    )

    results = {one.check.name: one.result for one in examine(stock)}

    of_the_operator = ("Operator", "Rights", "Installations")
    present = ("Answers", "Writes", "PlannedNodes", "Quotas", "Budgets")
    unread = (
        *of_the_operator,
        *present,
        "Routers",
        "Nodes",
        "Storage",
        "Models",
        "ConfigFetches",
        "Clients",
    )
    assert results == {
        "Kubernetes": Result.FINE,
        "ShardedModels": Result.FINE,
        **dict.fromkeys(unread, Result.UNREAD),
        "NetworkPolicies": Result.SKIPPED,
    }


def test_a_cluster_that_is_older_than_the_chart_takes_is_wrong() -> None:
    assert found(a_stock(version={"major": "1", "minor": "34"}), "Kubernetes").result is Result.FINE
    assert said(a_stock(version={"major": "1", "minor": "33+"}), "Kubernetes") == [
        ("Kubernetes 1.33 must be at least 1.34", "kubectl version")
    ]


@pytest.mark.parametrize(
    "version",
    [
        {},
        {"major": "1", "minor": "x"},
        {"major": "1", "minor": 36},
        {"major": "\u0661", "minor": "1"},
    ],
)
def test_a_version_that_is_none_is_unread(version: dict[str, Any]) -> None:
    assert found(a_stock(version=version), "Kubernetes").result is Result.UNREAD


def test_a_missing_definition_comes_with_the_command_that_installs_it() -> None:
    assert said(a_stock(served=False), "ShardedModels") == [
        (
            "the API server does not serve ShardedModels: the CustomResourceDefinition is missing",
            "shardwright crd | kubectl apply --server-side -f -",
        )
    ]


def test_an_operator_that_does_not_run_or_lead_is_wrong_and_one_of_another_release_is_noted() -> (
    None
):
    down = replace(OPERATOR, ready=0, lease=SeenLease())
    one_of_two, older = replace(OPERATOR, ready=1), replace(OPERATOR, version="0.9")

    results = [
        found(a_stock(operators=some), "Operator")
        for some in ((), (down,), (one_of_two,), (older,))
    ]

    assert [(one.result, [finding.reason for finding in one.findings]) for one in results] == [
        (Result.WRONG, ["NotInstalled"]),
        (Result.WRONG, ["NotReady", "NobodyLeads"]),
        (Result.NOTED, ["NotReady"]),
        (Result.NOTED, ["OtherVersion"]),
    ]
    assert said(a_stock(operators=(down,)), "Operator") == [
        (
            "shardwright-system/shardwright: 0 of 2 pods of the operator are ready",
            "kubectl -n shardwright-system describe deployment shardwright",
        ),
        (
            "shardwright-system/shardwright: nobody holds the Lease, so nothing is written",
            "kubectl -n shardwright-system logs deployment/shardwright",
        ),
    ]


def test_a_lease_that_may_not_be_read_says_nothing_of_who_leads() -> None:
    operator = replace(OPERATOR, lease=None)

    assert found(a_stock(operators=(operator,)), "Operator").result is Result.FINE


def test_a_router_whose_account_is_missing_or_sees_no_pods_is_wrong_with_the_command() -> None:
    account = RouterAccount("models", "mine", exists=False, sees_pods=False)

    assert said(a_stock(router_accounts=(account,)), "Routers") == [
        (
            "service account models/mine is not there: no pod of a router starts",
            "kubectl -n models create serviceaccount mine",
        ),
        (
            (
                "service account models/mine may not list and watch pods of its namespace: a router "
                "sees no group"
            ),
            (
                "kubectl -n models create rolebinding mine --clusterrole=shardwright-router "
                "--serviceaccount=models:mine"
            ),
        ),
    ]


def test_rights_that_are_missing_are_named_with_the_account() -> None:
    rights = {ACCOUNT: Rights(missing=("list nodes", "watch nodes"))}

    assert said(a_stock(rights=rights), "Rights") == [
        (
            f"{ACCOUNT} may not list nodes, watch nodes",
            f"kubectl auth can-i list nodes --as={ACCOUNT}",
        )
    ]


def test_a_watched_namespace_without_its_role_is_named_once_and_what_it_costs_with_it() -> None:
    stocks = [
        a_stock(rights={ACCOUNT: Rights(closed=("team-b",), sees_pods=sees)})
        for sees in (True, False)
    ]

    command_of_both = "kubectl -n team-b get role,rolebinding shardwright-operator"
    assert [said(stock, "Rights") for stock in stocks] == [
        [
            (
                f"{ACCOUNT} may do nothing in team-b, which it watches: no model there is served",
                command_of_both,
            )
        ],
        [(UNSEEN, command_of_both)],
    ]


def test_an_installation_whose_claim_names_another_is_wrong() -> None:
    others = a_stock(claims=CLAIMS | {"shardwright-nodes": "else/where"})

    assert said(others, "Installations") == [(OTHERS, CLAIMS_COMMAND)]
    assert found(others, "Installations").result is Result.WRONG


def test_each_namespace_whose_claim_names_another_installation_is_wrong() -> None:
    watches = ("team-a", "team-b")
    claims = CLAIMS | {f"shardwright-namespace-{name}": "else/where" for name in watches}
    of_some = a_stock(operators=(replace(OPERATOR, watches=watches),), claims=claims)
    assert [finding.message for finding in found(of_some, "Installations").findings] == [
        f"shardwright-system/shardwright: namespace {name} is not for {OPERATOR.installation}: "
        "ClusterRole "
        f"shardwright-namespace-{name} says else/where; have each installation watch its own "
        "with watchNamespaces"
        for name in watches
    ]


@pytest.mark.parametrize("unknown", [{"installation": ""}, {"settings": None}])
def test_an_installation_of_which_it_is_not_known_what_it_is_for_is_not_compared_with_claims(
    unknown: dict[str, Any],
) -> None:
    stock = a_stock(operators=(replace(OPERATOR, **unknown),), claims={}, nodes=sets_of(x=["n1"]))

    assert "ClaimNotHeld" not in {
        finding.reason for finding in found(stock, "Installations").findings
    }


def test_nodes_of_a_set_that_no_installation_has_are_wrong_and_a_set_without_nodes_is_noted() -> (
    None
):
    other = replace(
        OPERATOR,
        namespace="b-system",
        name="b",
        installation="b-system/b",
        settings=Settings(stated=Stated(node_set="b")),
        watches=("team-b",),
    )
    first = replace(OPERATOR, watches=("team-a",))
    claims = {"shardwright-nodes": first.installation, "shardwright-nodes-b": "b-system/b"}
    fine, two_sets = {"": ["n1"], "b": ["n2"]}, {"": ["n1"], "B": ["n2", "n3"]}

    stocks = [
        a_stock(
            operators=(first, other), claims=claims, nodes=None if sets is None else sets_of(**sets)
        )
        for sets in (fine, two_sets, {"b": ["n2"]}, {}, None)
    ]

    assert [found(stock, "Installations").result for stock in stocks] == [
        Result.FINE,
        Result.WRONG,
        Result.NOTED,
        Result.FINE,
        Result.FINE,
    ]
    assert said(stocks[1], "Installations") == [
        (
            "n2, n3: nodes with the label shardwright.io/node-set=B are for no installation",
            "kubectl get nodes -L shardwright.io/node-set",
        ),
        (
            "b-system/b plans on nodes with the label shardwright.io/node-set=b, and none has GPUs",
            "kubectl get nodes -L shardwright.io/node-set",
        ),
    ]


def a_fetch_job(name: str, *conditions: str, created: str = JUST_NOW) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "models",
            "name": name,
            "creationTimestamp": created,
            "annotations": {"shardwright.io/hub-model": "acme/llama"},
            "ownerReferences": [{"kind": "ShardedModel", "name": "ours"}],
        },
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]},
    }


def test_jobs_that_read_no_config_are_named_with_the_command_that_shows_why() -> None:
    new, a_while_ago = "2026-11-24T11:59:30Z", "2026-11-24T11:58:00Z"
    jobs = (
        a_fetch_job("failed", "Failed"),
        a_fetch_job("held", "Suspended"),
        a_fetch_job("late"),
        a_fetch_job("slow", created=a_while_ago),
        a_fetch_job("new", created=new),
        a_fetch_job("done", "Complete"),
    )
    stock = a_stock(fetches=jobs)
    subject = "which reads the config of acme/llama for models/ours,"

    assert said(stock, "ConfigFetches") == [
        (f"Job models/failed, {subject} has failed", "kubectl -n models describe job failed"),
        (
            f"Job models/held, {subject} is suspended: a queue or a webhook has to admit it",
            "kubectl -n models describe job held",
        ),
        (
            (
                f"Job models/late, {subject} has not ended 360 s after it was made: Kubernetes' "
                "Job "
                "controller has not taken it up"
            ),
            "kubectl -n models describe job late",
        ),
        (
            (
                f"Job models/slow, {subject} has run for more than 60 s: its pod may have no node "
                "or no image"
            ),
            "kubectl -n models describe pods -l batch.kubernetes.io/job-name=slow",
        ),
    ]
    assert [finding.wrong for finding in found(stock, "ConfigFetches").findings] == [
        True,
        True,
        True,
        False,
    ]


def test_nodes_are_named_together_where_the_same_is_to_be_said_of_them() -> None:
    nodes = [a_listed_node(f"n{number}") for number in range(7)]
    for node in nodes:
        node["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-X9"
    gone = a_listed_node("gone")
    gone["status"]["allocatable"]["nvidia.com/gpu"] = "0"

    unknown, none = said(
        a_stock(nodes={"": [*map(read, [*nodes, gone, a_listed_node("good")])]}), "Nodes"
    )

    assert unknown[0].startswith(
        "n0, n1, n2, n3, n4 and 2 more: GpuUnknown: nvidia.com/gpu.product 'NVIDIA-X9' must name "
        "a GPU "
    )
    assert unknown[1] == "kubectl label node n0 n1 n2 n3 n4 shardwright.io/gpu-model=ID"
    assert none[0].startswith(
        "gone: NoAllocatableGpus: allocatable nvidia.com/gpu 0 must be at least 1"
    )
    assert none[1] == "kubectl get pods -A -o wide --field-selector spec.nodeName=gone"


def test_a_node_that_somebody_has_cut_up_on_purpose_and_a_cluster_without_gpus_are_noted() -> None:
    cut = a_listed_node("cut")
    cut["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        "nvidia.com/gpu.memory": "9984",
    }

    sliced, none = (found(a_stock(nodes={"": nodes}), "Nodes") for nodes in ((read(cut),), ()))

    assert [(finding.reason, finding.wrong) for finding in sliced.findings] == [
        ("NodeLeftOut", False)
    ]
    assert [finding.reason for finding in none.findings] == ["NoGpus"]
    assert (sliced.result, none.result) == (Result.NOTED, Result.NOTED)


def test_claims_for_which_there_is_no_storage_class_are_named() -> None:
    named, default = (
        a_diagnosed_model("m", ready="True", cache={"storage": "1Ti", "storageClassName": name})
        for name in ("slow", "")
    )

    assert said(a_stock(models=(named,)), "Storage") == [
        (
            "the StorageClass slow does not exist; claims of models/m wait for it",
            "kubectl get storageclass",
        )
    ]
    assert found(a_stock(models=(default,)), "Storage").result is Result.FINE
    (none,) = found(a_stock(models=(default,), classes=(a_class("fast"),)), "Storage").findings
    assert (none.reason, none.objects) == ("NoDefaultStorageClass", ("models/m",))


def test_models_that_wait_for_somebody_and_groups_that_have_not_come_up_for_an_hour_are_named() -> (
    None
):
    models = (
        a_diagnosed_model("stalled", since=JUST_NOW, reason="InvalidSpec", Stalled="True"),
        a_diagnosed_model("stuck", Reconciling="True"),
        a_diagnosed_model("failed", Degraded="True", reason="GroupsNotReady"),
        a_diagnosed_model("young", since=JUST_NOW, Reconciling="True"),
        a_diagnosed_model("paused", reason="Paused"),
        a_diagnosed_model("new", since=""),
    )

    assert said(a_stock(models=models), "Models") == [
        (
            "models/stalled waits for you: InvalidSpec: why",
            "kubectl -n models describe smodel stalled",
        ),
        (
            "models/stuck has not been ready for more than 60 minutes: Progressing: why",
            "kubectl -n models describe smodel stuck",
        ),
        (
            "models/failed has not been ready for more than 60 minutes: GroupsNotReady: why",
            "kubectl -n models describe smodel failed",
        ),
    ]


@pytest.mark.parametrize(
    ("policies", "reasons"),
    [
        (NetworkPolicies(), []),
        (NetworkPolicies(clients=[GATEWAY]), []),
        (NetworkPolicies(clients=[GATEWAY], metrics=[ANYBODY]), ["OpenToEverybody"]),
        (NetworkPolicies(enabled=False), ["OpenToEverybody"]),
    ],
)
def test_requests_of_the_whole_cluster_are_worth_a_note(
    policies: NetworkPolicies, reasons: list[str]
) -> None:
    operator = replace(OPERATOR, settings=Settings(network_policy=policies))
    clients = found(a_stock(operators=(operator,)), "Clients")
    assert [one.reason for one in clients.findings] == reasons
    assert clients.result is (Result.NOTED if reasons else Result.FINE)


def test_who_may_is_not_known_where_the_settings_are_not() -> None:
    operator = replace(OPERATOR, settings=None)
    assert found(a_stock(operators=(operator,)), "Clients").result is Result.UNREAD


def test_policies_that_are_not_enforced_are_wrong_and_a_trial_that_says_nothing_is_noted() -> None:
    ignored = found(a_stock(measured=Measured(enforcement=Enforcement.IGNORED)), "NetworkPolicies")
    unclear = a_stock(
        measured=Measured(enforcement=Enforcement.UNCLEAR, trouble="pod p is Pending for too long")
    )

    assert (ignored.result, ignored.findings[0].reason) == (
        Result.WRONG,
        "NetworkPoliciesNotEnforced",
    )
    assert ignored.findings[0].message.startswith(
        "a pod reached the API server although its egress policy forbids it"
    )
    assert found(unclear, "NetworkPolicies").result is Result.NOTED
    assert said(unclear, "NetworkPolicies")[0][0] == (
        "whether NetworkPolicies are enforced could not be measured: pod p is Pending for too long"
    )


def test_commands_are_those_of_the_program_that_was_called() -> None:
    unclear = Measured(enforcement=Enforcement.UNCLEAR)
    stock = a_stock(served=False, measured=unclear, program="kubectl shardwright")
    findings = [finding for one in examine(stock) for finding in one.findings]

    assert [finding.command for finding in findings] == [
        "kubectl shardwright crd | kubectl apply --server-side -f -",
        "kubectl shardwright doctor --network-policies --image IMAGE",
    ]


def test_sentences_are_wrapped_and_what_is_to_be_copied_stays_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    examined = [
        found(
            a_stock(models=(a_diagnosed_model("stuck", Reconciling="True"),), measured=None), check
        )
        for check in ("Models", "NetworkPolicies")
    ]

    print_lines(lines_of(examined, 60), width=60)

    assert capsys.readouterr().out.splitlines() == [
        "WRONG models/stuck has not been ready for more than 60",
        "      minutes: Progressing: why",
        "        $ kubectl -n models describe smodel stuck",
        "-     network policies are enforced (not measured:",
        "      --network-policies does, with a short-lived pod)",
    ]


@pytest.mark.parametrize("flag", ["--image", "--trial-namespace"])
def test_what_is_said_of_pods_that_nobody_has_asked_for_is_refused(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", flag, "models"]) == 2

    assert capsys.readouterr().err.startswith(
        f"error[NotTogether]: {flag}: is of the pod that measures;"
    )


@pytest.mark.parametrize("odd", [None, 7, "x", [], [1], {}, {"a": []}, *ODD_TEXTS])
def test_whatever_a_model_and_a_deployment_hold_is_read(odd: Any) -> None:
    parts = ("metadata", "spec", "status")
    nested = {
        "conditions": [{"type": odd, "status": odd, "lastTransitionTime": odd}],
        "model": {"weights": odd},
        "replicas": odd,
    }

    owned = nested | {
        "ownerReferences": [{"kind": "ShardedModel", "name": odd}],
        "creationTimestamp": odd,
    }
    for part in parts:
        read_operator({part: odd}, SeenLease(), {"data": odd})
    for objects in ([{part: odd} for part in parts], [dict.fromkeys(parts, owned)]):
        examine(
            a_stock(
                models=objects,
                fetches=objects,
                classes=objects,
                version={"major": odd, "minor": odd},
            )
        )


def test_the_probe_says_whether_the_api_server_answers_the_pod() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert _asks(server.getsockname()[1]) == 0
        closed = server.getsockname()[1]

    assert _asks(closed) == 1


def _asks(port: int) -> int:
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=where, check=False, timeout=60, capture_output=True
    )
    return done.returncode
