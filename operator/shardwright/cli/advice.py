"""Which commands should the user run next? Decided by a model's reason and its groups' pods."""

from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from shardwright.api.conditions import Reason
from shardwright.cli.model_state import ENGINE, ModelState, StandingGroup
from shardwright.reconcile.life_rules import RESTART

MOST: Final = 3
"""Commands shown for a model. Basis: assumed, the first ones lead to the cause."""

Advice = tuple[str, str]
"""A command, and its purpose."""


def advice(standing: ModelState, program: str) -> tuple[Advice, ...]:
    """Return the commands to run for a model, none if it is ready, for our name ``program``."""
    if standing.ready == "True":
        return ()
    kubectl = f"kubectl -n {standing.namespace}"
    waiting = (
        group for group in standing.groups if (group.pods or group.missing) and not group.ready
    )
    found = (*(_of_group(kubectl, group) for group in waiting), _of_model(standing, program))
    return tuple(islice(dict.fromkeys(found), MOST))


def _of_group(kubectl: str, group: StandingGroup) -> Advice:
    """Return what to run for the first of a group's pods that holds the others up."""
    if group.missing:
        command = f"{kubectl} describe statefulset {group.name}"
        return command, "why its pods are not created"
    pod = min(group.pods, key=lambda one: (one.ready, one.runs, one.rank))
    if pod.failure and pod.failure.container:
        command = f"{kubectl} logs {pod.name} -c {pod.failure.container} --previous"
        return command, "what its engine said last"
    if pod.deleting and pod.node:
        command = f"kubectl describe node {pod.node}"
        return command, "why the node does not give the pod back"
    if pod.runs:
        return f"{kubectl} logs -f {pod.name} -c {ENGINE}", "what its engine says"
    return f"{kubectl} describe pod {pod.name}", "what the pod waits for"


_EDIT: Final = ("kubectl -n {n} edit smodel {m}", "correct what the message names")
_EXPLAIN: Final = ("{p} explain {m} -n {n}", "what was ruled out, and what comes closest")
_RETRY: Final = (
    "{p} rollout retry {m} -n {n}",
    "have the spec tried again, once the cause is gone",
)
_HISTORY: Final = ("{p} rollout history {m} -n {n}", "which revisions there are")
_QUOTA: Final = ("kubectl -n {n} describe resourcequota,limitrange", "what the namespace may have")
_EVENTS: Final = ("kubectl -n {n} events --for smodel/{m}", "what has happened to it")
_OPERATOR: Final = (
    "kubectl get pods -A -l app.kubernetes.io/name=shardwright-operator",
    "whether the operator runs",
)

BY_REASON: Final[Mapping[str, Advice]] = MappingProxyType(
    {
        Reason.PAUSED: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"paused":false}}}}'""",
            "go on",
        ),
        Reason.SCALED_TO_ZERO: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"replicas":null}}}}'""",
            "run as many groups as the plan says",
        ),
        Reason.PLAN_ONLY: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"mode":"Deploy"}}}}'""",
            "deploy it",
        ),
        Reason.INSUFFICIENT_CAPACITY: _EXPLAIN,
        Reason.NOTHING_FITS: _EXPLAIN,
        Reason.NOT_DEPLOYABLE: _EXPLAIN,
        Reason.INVALID_SPEC: _EDIT,
        Reason.MODEL_UNKNOWN: _EDIT,
        Reason.CONFIG_MISSING: _EDIT,
        Reason.CONFIG_INVALID: _EDIT,
        Reason.QUOTA_EXCEEDED: _QUOTA,
        Reason.PODS_REFUSED: _QUOTA,
        Reason.RESTART_BUDGET_SPENT: (
            f'kubectl -n {{n}} annotate smodel {{m}} {RESTART}="$(date +%s)" --overwrite',
            "start it again, once the cause is gone",
        ),
        Reason.ROLLED_BACK: _RETRY,
        Reason.REVISION_UNUSABLE: _HISTORY,
        Reason.WAITING_FOR_QUOTA: (
            "kubectl -n {n} get workloads.kueue.x-k8s.io",
            "what its queue says",
        ),
        Reason.POD_SECURITY_FORBIDS: (
            "kubectl get namespace {n} --show-labels",
            "which Pod Security level it has",
        ),
        Reason.CLUSTER_READING: _OPERATOR,
        "": _OPERATOR,
    }
)
"""The command for each reason of Ready; other reasons get the model's events. {n} is the namespace,
{m} the model, {p} the name we are called by.
"""


def _of_model(standing: ModelState, program: str) -> Advice:
    # A status of another generation says nothing about this spec: look at the operator then.
    command, purpose = (
        _OPERATOR if not standing.current else BY_REASON.get(standing.reason, _EVENTS)
    )
    said = {"n": standing.namespace, "m": standing.name, "p": program}
    return command.format(**said), purpose
