"""The next commands to type, decided on facts: the reason of a model, and the waits of its groups.

Types nothing itself, and has nothing to say of a model that is ready.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Final

from shardwright.api.conditions import Reason
from shardwright.cli.model_state import ENGINE, ModelState, StandingGroup
from shardwright.reconcile.life_rules import RESTART
from shardwright.reconcile.states import Awaited, Wait

MOST: Final = 3
"""How many commands are shown for a model; assumed: the first ones lead to the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A command, and its purpose."""

    command: str
    purpose: str


def advice(standing: ModelState, program: str) -> tuple[Advice, ...]:
    """Return the commands to type for a model that is not ready. ``program`` is the name the user
    calls us by.
    """
    if standing.ready == "True":
        return ()
    found = (*_of_groups(standing), *_of_model(standing, program))
    return tuple(islice(dict.fromkeys(found), MOST))


def _of_groups(standing: ModelState) -> Iterator[Advice]:
    for group in standing.groups:
        if group.state and not group.ready:
            yield from _of_failure(standing, group)
            for wait in group.waited_for or group.state.waits:
                yield from _of_wait(standing, group, wait)


def _of_failure(standing: ModelState, group: StandingGroup) -> Iterator[Advice]:
    state = group.state
    if (
        state
        and state.failing
        and state.last_failure
        and state.last_failure.container
        and not state.waits
    ):
        pod, container = (
            f"{group.name}-{state.last_failure.rank}",
            state.last_failure.container,
        )
        yield Advice(
            command=f"kubectl -n {standing.namespace} logs {pod} -c {container} --previous",
            purpose="what its engine said last",
        )


def _of_wait(
    standing: ModelState, group: StandingGroup, wait: Wait
) -> Iterator[Advice]:
    kubectl = f"kubectl -n {standing.namespace}"
    pod = f"{group.name}-{min(wait.ranks, default=0)}"
    if wait.what is Awaited.POD:
        yield Advice(
            command=f"{kubectl} describe pod {pod}", purpose="what the pod waits for"
        )
    elif wait.what in {Awaited.START, Awaited.PEERS, Awaited.PROBE, Awaited.OVERDUE}:
        yield Advice(
            command=f"{kubectl} logs -f {pod} -c {ENGINE}",
            purpose="what its engine says",
        )
    elif wait.what is Awaited.PODS_CREATED:
        yield Advice(
            command=f"{kubectl} describe statefulset {group.name}",
            purpose="why its pods are not created",
        )
    elif wait.what is Awaited.LATE_POD:
        yield Advice(
            command=f"kubectl describe node {wait.said}",
            purpose="why the node does not give the pod back",
        )
    elif wait.what is Awaited.CHANGE:
        yield Advice(
            command=f'{kubectl} annotate smodel {standing.name} {RESTART}="$(date +%s)" '
            "--overwrite",
            purpose="start it again, once the cause is gone",
        )
    elif wait.what in {Awaited.NODES, Awaited.LATE_NODES}:
        yield Advice(
            command=f"{kubectl} describe pod {pod}",
            purpose="what the autoscaler says of its pods",
        )


Template = tuple[str, str]
"""A command with {n} for the namespace, {m} for the model, {p} for how we are called; and its
purpose.
"""

_EDIT: Final = ("kubectl -n {n} edit smodel {m}", "correct what the message names")
_EXPLAIN: Final = (
    "{p} explain {m} -n {n}",
    "what was ruled out, and what comes closest",
)
_RETRY: Final = (
    "{p} rollout retry {m} -n {n}",
    "have the spec tried again, once the cause is gone",
)
_HISTORY: Final = ("{p} rollout history {m} -n {n}", "which revisions there are")
_QUOTA: Final = (
    "kubectl -n {n} describe resourcequota,limitrange",
    "what the namespace may have",
)
_EVENTS: Final = ("kubectl -n {n} events --for smodel/{m}", "what has happened to it")
_OPERATOR: Final = (
    "kubectl get pods -A -l app.kubernetes.io/name=shardwright-operator",
    "whether the operator runs",
)

BY_REASON: Final[Mapping[str, Template]] = MappingProxyType(
    {
        Reason.PAUSED: (
            """kubectl -n {n} patch smodel {m} --type merge -p '{{"spec":{{"paused":false}}}}'""",
            "go on",
        ),
        Reason.SCALED_TO_ZERO: (
            "kubectl -n {n} scale smodel {m} --replicas 1",
            "run it",
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
"""What to run for a reason of Ready; any other one has its events."""


def _of_model(standing: ModelState, program: str) -> Iterator[Advice]:
    # A status of another generation says nothing of this spec: then the operator is to be looked
    # at.
    command, purpose = (
        _OPERATOR if not standing.current else BY_REASON.get(standing.reason, _EVENTS)
    )
    yield Advice(
        command=command.format(n=standing.namespace, m=standing.name, p=program),
        purpose=purpose,
    )
