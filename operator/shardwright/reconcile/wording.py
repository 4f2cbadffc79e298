"""How are waits, failures, rollbacks, better plans and the API server's refusals said to people?
Sentences are made last, from facts, and nothing reads them back.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from shardwright.api.record import Cause, Rollback
from shardwright.costs.workload import Phase
from shardwright.errors import Problem
from shardwright.planning.gain import GAIN_MIN, Better, Prospect
from shardwright.planning.phrases import copies
from shardwright.planning.report import NoPlan
from shardwright.planning.sentences import ways_sentence
from shardwright.reconcile.members import Awaited, Failure, GroupState, Wait
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.snapshot import Refusal
from shardwright.reconcile.write_cause import Contest
from shardwright.reconcile.writes import (
    Apply,
    DropRevision,
    ObjectKey,
    Why,
    shown_name,
    written_kind,
    written_name,
)
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Deployment, Owner
from shardwright.rendering.fixes import Fix
from shardwright.rendering.gang_scheduling import ALPHA_GROUPS
from shardwright.rendering.labels import is_managed
from shardwright.rendering.network_policies import ANY_POD

LINE_LENGTH: Final = 200
"""Characters that a sentence quotes of a container's last line; status.groups has all that is
kept of it.
"""

_HUB_REFUSAL: Final = re.compile(
    r"GatedRepo|gated repo|Access to model \S+ is restricted|40[13] Client "
    r"Error.*(?:huggingface|/resolve/|/api/models/)"
)
"""What the hub's client says of 401 and 403. Source: huggingface_hub 2.4, ``hf_raise_for_status``;
transformers.
"""

_HUB_REFUSES: Final = (
    "; the Hugging Face hub refuses the model (401 or 403): accept its terms there, and name a "
    "Secret with a token of that "
    "account in spec.model.weights.secretRef"
)

SHOWN: Final = 3
"""How many things of a kind are named; assumed: the first ones tell what is wrong."""

_WORDS: Final = {
    Awaited.DELETION: "the StatefulSet is being deleted",
    Awaited.EARLIER_PODS: "pods of an earlier StatefulSet are still there",
    Awaited.PODS_GONE: "waiting for all pods to be gone",
    Awaited.LATE_POD: "{ranks} on node {said} should be gone by now",
    Awaited.STOP: "stops as a whole before it starts again",
    Awaited.STOP_AGAIN: "was scaled up while it stopped",
    Awaited.NODES: "waits for the autoscaler to make {said}",
    Awaited.LATE_NODES: "{said} should have been made by now: look at what the autoscaler "
    "says of the pods",
    Awaited.ROOM: "pods of others have taken GPUs of its nodes; starts again as a whole when "
    "there is room",
    Awaited.PAUSE: "restarts at {said}",
    Awaited.CHANGE: "its engine has failed {said} times in a row",
    Awaited.TURN: "serves as it was until it is its turn",
    Awaited.PARTITION: "keeps its pods until spec.rollout.partition is lowered",
    Awaited.STOPPED_ROLLOUT: "serves as it was: {said} does not come up with the changed pods",
    Awaited.OVERDUE: "has had its nodes for {said} s and is not ready",
    Awaited.FORMER: "{said} serves meanwhile",
    Awaited.FORMER_TOO: "{said} is not ready either",
    Awaited.PODS_CREATED: "{said} pods not created yet",
    Awaited.POD: "{ranks}: {said}",
    Awaited.NODE_GONE: "{ranks}: node {said} is gone",
    Awaited.PROBE: "{ranks}: runs, but its readiness probe fails",
    Awaited.PEERS: "{ranks}: runs, and has not met all ranks of its group",
    Awaited.START: "{ranks}: starting",
}

POD_SECURITY: Final = "violates PodSecurity"
"""What the API server says of a pod that the namespace's Pod Security level keeps out. Source:
Kubernetes 1.36 ``plugin/pkg/admission/security/podsecurity``.
"""

WEBHOOK: Final = "admission webhook"
POLICY: Final = "ValidatingAdmissionPolicy"

FIXED_FIELDS: Final = "updates to statefulset spec for fields other than"
"""What the API server says of a change that a StatefulSet does not take (its claims, its selector).
Source: Kubernetes 1.36 ``pkg/apis/apps/validation``.
"""

_REMEDIES: Final[Mapping[str, str]] = {
    "schedulingGroup": "turn on the feature gate GenericWorkload (in Kubernetes 1.36 "
    "GangScheduling, too), or choose another spec.placement.scheduler",
    "volumes[models]": "turn on the feature gate ImageVolume (Kubernetes 1.35 has it on), or "
    "choose another source in spec.model.weights",  # with its mounts
}
"""By field: what brings it back."""

_REMEDY: Final = (
    "turn on the feature gate behind it or upgrade the CustomResourceDefinition of that kind, "
    "or remove what asks for it"
)

_RETRY: Final = "or retry it with 'kubectl shardwright rollout retry'"
NO_PLACE_ASKED: Final = f"running groups are kept; change the spec, {_RETRY}"
"""What happens to a revision without a place, and how that ends."""


def alpha_groups_sentence() -> str:
    """Return what must be done before Kubernetes is upgraded, if the API of PodGroups goes."""
    how = "docs/howto/gang-scheduling.md says how"
    return (
        f"PodGroups are written as {ALPHA_GROUPS}, which Kubernetes 1.37 does not have: they "
        f"must go before the upgrade ({how})"
    )


def waiting_sentence(state: GroupState) -> str:
    """Return why a group waits, or ""."""
    of_group = [wait for wait in state.waits if not wait.ranks or wait.what is Awaited.LATE_POD]
    of_ranks = [wait for wait in state.waits if wait not in of_group]
    return "; ".join(_sentence(wait) for wait in (*of_group, *of_ranks[:SHOWN]))


def _sentence(wait: Wait) -> str:
    s = "s" if len(wait.ranks) > 1 else ""
    ranks = f"rank{s} {', '.join(map(str, wait.ranks))}"
    return _WORDS[wait.what].format(ranks=ranks, said=wait.said)


def failure_sentence(state: GroupState) -> str:
    """Return why a group failed last."""
    if state.last_failure is None:
        return "has not failed"
    return failed_sentence(state.last_failure, state.restarts)


def failed_sentence(failure: Failure, restarts: int) -> str:
    """Return the sentence on a failure of a group that has restarted so often."""
    where = f", container {failure.container}" if failure.container else ""
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    said = failure.message.splitlines()[-1:]
    quoted = "".join(f": {line[:LINE_LENGTH]}" for line in said)
    hub = _HUB_REFUSES if _HUB_REFUSAL.search(failure.message) else ""
    return f"rank {failure.rank}{where}: {failure.reason}{code}, restart {restarts}{quoted}{hub}"


def not_ready_sentence(state: GroupState) -> str:
    """Return a group's wait and, if it failed before, why: readers must see the cause first."""
    waits = f"{state.name}: {waiting_sentence(state) or state.situation}"
    return f"{waits}; it failed: {failure_sentence(state)}" if state.failing else waits


def rollback_sentence(
    rollback: Rollback, number: int | None, image: str, *, placed: bool = True
) -> str:
    """Return which revision runs in place of the spec, why, and until when.

    >>> asked = Rollback(to="b6", instead_of="0c", cause=Cause.ASKED)
    >>> rollback_sentence(asked, 2, "vllm/vllm-openai:v0.32.0")
    'revision 2 (vllm/vllm-openai:v0.32.0) runs in place of the spec, as asked, until the spec changes'
    >>> rollback_sentence(asked, 2, "vllm/vllm-openai:v0.32.0", placed=False).partition(": ")[0]
    'revision 2 (vllm/vllm-openai:v0.32.0) is to run in place of the spec, as asked, and has no place'
    >>> failed = Rollback(to="b6", instead_of="b6", cause=Cause.ENGINE_FAILED, group="llama-0")
    >>> rollback_sentence(failed, 2, "vllm").partition("; ")[0]
    'revision 2 (vllm) runs with pods of an earlier release in place of those of this one, with which llama-0 failed again and again'
    """  # noqa: E501 - a sentence as it is said
    which = _revision_named(number) + ("" if number is None else f" ({image})")
    instead, fix = "in place of the spec", "correct the spec"
    if rollback.to == rollback.instead_of:
        instead = "with pods of an earlier release in place of those of this one"
        fix = "change the spec"
    runs = f"{which} {'runs' if placed else 'is to run'} {instead}"
    if rollback.cause is Cause.ASKED:
        no_place = f"and has no place: {NO_PLACE_ASKED}"
        return f"{runs}, as asked, {'until the spec changes' if placed else no_place}"
    late = rollback.cause is Cause.PROGRESS_DEADLINE_EXCEEDED
    why = "was not ready in time" if late else "failed again and again"
    said = f" ({rollback.said[:LINE_LENGTH]})" if rollback.said else ""
    if not placed:
        said += "; no nodes are free for it, so the groups that run are kept"
    return f"{runs}, with which {rollback.group} {why}{said}; {fix}, {_RETRY}"


def _revision_named(number: int | None) -> str:
    return "an earlier revision" if number is None else f"revision {number}"


def no_place_sentence(number: int | None) -> str:
    """Return the sentence that the revision to restore has no place, and when that ends.

    >>> no_place_sentence(1).partition(":")[0]
    'revision 1, which is being restored, needs this'
    """
    return f"{_revision_named(number)}, which is being restored, needs this: {NO_PLACE_ASKED}"


def hand_over_sentence(owner: Owner, groups: int) -> str:
    """Return how many groups the plan says that run, and how that number is handed over.

    >>> hand_over_sentence(Owner(name="llama", namespace="models", uid=""), 4).partition(";")[0]
    'the plan says that 4 groups run, as spec.replicas is left out'
    """
    groups_run = "1 group runs" if groups == 1 else f"{groups} groups run"
    kubectl = f"kubectl -n {owner.namespace}"
    return (
        f"the plan says that {groups_run}, as spec.replicas is left out; HPA and KEDA need the "
        f"number there: hand it over with `{kubectl} scale smodel {owner.name} "
        f"--replicas={groups}`, have it planned again with `{kubectl} patch smodel {owner.name} "
        """--type=merge -p '{"spec":{"replicas":null}}'`; neither restarts a group"""
    )


def no_room_sentence(none: NoPlan) -> str:
    """Return why groups have no place, and what would give them one."""
    return "; ".join(filter(None, (none.problem.sentence(), ways_sentence(none.ways_out))))


def serving_sentence(serving: int, updated: int, wanted: int) -> str:
    """Return how many of the wanted groups serve, and how many as the spec says if they are fewer.

    >>> serving_sentence(3, 3, 3), serving_sentence(2, 1, 3)
    ('3 of 3 serve', '2 of 3 serve, 1 of 3 as the spec says')
    """
    said = f"{serving} of {wanted} serve"
    return said if updated == serving else f"{said}, {updated} of {wanted} as the spec says"


def placed_sentence(placed: int, missing: int, least: int = 1) -> str:
    """Return how many of the wanted groups have a place, and that they are fewer than ``least``.

    >>> placed_sentence(3, 1), placed_sentence(1, 3, least=2)
    ('3 of 4 placed', '1 of 4 placed, fewer than the 2 of spec.rollout.minGroups')
    """
    said = f"{placed} of {placed + missing} placed"
    return said if placed >= least else f"{said}, fewer than the {least} of spec.rollout.minGroups"


def better_sentence(found: Better) -> str:
    """Return which plan would be better, by how much, and when it replaces the current plan.

    >>> from shardwright.layouts.layout import Layout
    >>> from shardwright.planning.request import OptimizeFor
    >>> better_sentence(
    ...     Better(layout=Layout(tensor=8), pool="h200", objective=OptimizeFor.LATENCY, gain=0.07)
    ... )
    'TP8 on h200 would be 7% better by Latency; with spec.replan: Always a plan that serves gives way to one that is 10% better, at most once an hour'
    >>> found = Better(
    ...     layout=Layout(), pool="a100", objective=OptimizeFor.THROUGHPUT, gain=0.5, relisted=True
    ... )
    >>> better_sentence(found).partition("; ")[2]
    'by list prices that the plan was not made with: it stands until the spec changes'
    """  # noqa: E501 - a sentence as it is said
    better = f"a plan that serves gives way to one that is {GAIN_MIN:.0%} better"
    until = f"with spec.replan: Always {better}, at most once an hour"
    if found.relisted:
        why = "by list prices that the plan was not made with"
        until = f"{why}: it stands until the spec changes"
    return f"{copies(found.layout)} on {found.pool} would {_brings(found)}; {until}"


def _brings(found: Better) -> str:
    if found.gain is None:
        return "carry the load"
    return f"be {found.gain:.0%} better by {found.objective}"


def anew_sentence(anew: Prospect | None, better: Better | None) -> str:
    """Return the plan that would be made now, and its gain; empty if there is none.

    >>> from shardwright.layouts.layout import Layout
    >>> from shardwright.planning.request import OptimizeFor
    >>> new = Prospect(layout=Layout(tensor=8), pool="h200")
    >>> anew_sentence(
    ...     new, Better(layout=new.layout, pool=new.pool, objective=OptimizeFor.LATENCY, gain=0.07)
    ... )
    'a new plan would be TP8 on h200, and be 7% better by Latency'
    >>> anew_sentence(new, None)
    'a new plan would be TP8 on h200'
    """
    if anew is None:
        return ""
    said = f"a new plan would be {copies(anew.layout)} on {anew.pool}"
    return f"{said}, and {_brings(better)}" if better else said


def fixes_sentence(fixes: Sequence[Fix]) -> str:
    """Return the faults that a newer engine fixes, to end a sentence with; empty if none is known.

    >>> words = {"what": "it could be ended", "source": "https://example.com/1"}
    >>> fixes_sentence([Fix(id="CVE-1", **words, engine="vLLM", version="1.0.0")])
    '; that fixes CVE-1 (it could be ended, https://example.com/1)'
    >>> fixes_sentence([])
    ''
    """
    said = ", ".join(f"{fix.id} ({fix.what}, {fix.source})" for fix in fixes)
    return f"; that fixes {said}" if said else ""


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    >>> named(["a", "b", "c"]), named(["a", "b", "c", "d"])
    ('a, b, c', 'a, b, c and 1 more')
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def contested_sentence(key: ObjectKey, contest: Contest) -> str:
    """Return who keeps undoing an object of ours, and what is done about it."""
    kind, name = key
    who = contest.by or "somebody"
    if not contest.fields:
        return f"{who} keeps deleting {kind} {name}; it is made again each time"
    return (
        f"{who} keeps changing {', '.join(contest.fields[:SHOWN])} of {kind} {name}; it is set "
        "right every few minutes only"
    )


def leftovers_sentence(names: Sequence[str]) -> str:
    """Return that objects of an earlier resource of the name are still there."""
    said = ", ".join(names[:SHOWN])
    return f"{said} of an earlier ShardedModel of this name is still to be deleted"


def field_dropped(content: KubernetesObject, fields: Sequence[str]) -> Problem:
    """Return the problem of an object that would be stored without some of its fields."""
    # The last part of the path is the field; all before it is the place in the pod.
    remedies = (_REMEDIES.get(field.rsplit(".", 1)[-1]) for field in fields)
    return Problem(
        code="FieldDropped",
        what=f"{content['kind']} {content['metadata']['name']}",
        limit="must be stored as it is sent",
        gap=f"but the API server drops {named(fields)}",
        remedy=next((remedy for remedy in remedies if remedy), _REMEDY),
    )


def forbids_pods(message: str) -> bool:
    """Return whether Pod Security has kept a pod out."""
    return POD_SECURITY in message


def pod_security_forbids(stateful_set: KubernetesObject, message: str) -> Problem:
    """Return the problem of pods that the namespace does not admit, in the API server's words."""
    said = message[message.index(POD_SECURITY) :]
    namespace = stateful_set["metadata"]["namespace"]
    return Problem(
        code="PodSecurityForbids",
        what=f"a pod of StatefulSet {stateful_set['metadata']['name']}",
        limit=said,
        gap=f"which namespace {namespace} enforces",
        remedy="use a namespace with the level privileged, or leave out what needs it "
        "(spec.pod.network.lockMemory)",
    )


def problem_of(refusal: Refusal, *, queued: bool) -> Problem:
    """Return the problem of a write that was not taken.

    If groups are ``queued``, their start may be refused while their former GPUs are being given
    back.
    """
    if refusal.problem:
        return refusal.problem
    if refusal.passes:
        return _unavailable(refusal)
    message, write = refusal.message, refusal.write
    starts = isinstance(write, Apply) and write.why is Why.START
    # Kueue's webhook refuses the start while the quota of the former pods is being given back. That
    # passes by itself, so it must not say Stalled.
    if queued and starts and (WEBHOOK in message or POLICY in message):
        return Problem(
            code="WaitingForQuota", what="the queue does not let the group start yet", limit=message
        )
    remedy = ""
    if FIXED_FIELDS in message and isinstance(write, Apply):
        remedy = f"delete StatefulSet {written_name(write)}, it is made anew"
    return Problem(
        code="ObjectRefused", what="the API server refuses an object", limit=message, remedy=remedy
    )


def _unavailable(refusal: Refusal) -> Problem:
    code = f"HTTP {refusal.code}" if refusal.code else refusal.reason
    return Problem(
        code="ApiUnavailable",
        what=f"{written_kind(refusal.write)} {shown_name(refusal.write)} could not be written",
        limit=f"{code}: {refusal.message}",
        remedy="it is tried again; look at the webhook that is named, or at the API server",
    )


def revision_refused(refusal: Refusal, newest: int | None) -> Problem:
    """Return the problem of a revision that is not kept or deleted; ``newest`` is the last kept."""
    what, cannot = "what all groups serve with", "cannot be kept as a revision"
    gap = "there is nothing to go back to"
    if newest is not None:
        gap = f"a rollback would restore revision {newest}"
    if isinstance(refusal.write, DropRevision):
        what = f"ControllerRevision {refusal.write.name}"
        cannot, gap = "is no longer kept and cannot be deleted", ""
    return Problem(
        code="RevisionRefused",
        what=what,
        limit=f"{cannot}: {refusal.message}",
        gap=gap,
        remedy="fix the cause that is named; it is tried again",
    )


def pods_refused(stateful_set: str, message: str) -> Problem:
    """Return the problem of pods that are not created, in the API server's words."""
    return Problem(
        code="PodsRefused",
        what=f"the pods of StatefulSet {stateful_set}",
        limit=f"are not created: {message}",
        remedy="raise the quota or fix the policy that is named; the group gives its GPUs back "
        "meanwhile",
    )


def place_taken(content: KubernetesObject, live: KubernetesObject, *, leftover: bool) -> Problem:
    """Return the problem of a taken name; a ``leftover`` will go by itself."""
    what = f"{content['kind']} {content['metadata']['name']}"
    if leftover:
        return Problem(code="Progressing", what=leftovers_sentence([what]))
    return name_conflict(what, live)


def name_conflict(what: str, live: KubernetesObject) -> Problem:
    """Return the problem of a name that a foreign object has, with the ways out."""
    orphan = is_managed(live) and not live["metadata"].get("ownerReferences")
    ways = "delete or rename it, or give the ShardedModel another name"
    restored = "give the operator the key that signed it back, and the plan of record beside it"
    return Problem(
        code="NameConflict",
        what=what,
        limit="is needed for this model",
        gap="but exists and is controlled by "
        + ("nobody" if controller_uid(live) is None else "something else"),
        # One with our label and no owner was most likely restored, or left by an earlier model.
        remedy=f"{restored}; else {ways}" if orphan else ways,
        path="metadata.name",
    )


def not_permitted(message: str, namespace: str) -> Problem:
    """Return the problem of a namespace that cannot be read, so that nothing is written."""
    return Problem(
        code="NotPermitted",
        what=f"the operator may not read namespace {namespace}",
        limit=message,
        remedy="give its service account the rights of the chart's ClusterRole, there or "
        "everywhere; it goes on by itself then",
    )


def clients_sentence(deployment: Deployment) -> str:
    """Return who may send requests to a model."""
    rules, namespace = deployment.cluster.network_rules, deployment.owner.namespace
    key = " with the API key" if deployment.serving.api_key else ""
    if rules is None:
        return f"everybody in the cluster{key}: networkPolicy.enabled is false"
    # Groups that compute prompts alone answer no client (``network_policies``).
    inside = deployment.phase is Phase.PREFILL
    clients = () if inside else rules.clients
    said = ["pods of its pair" if inside else f"pods of the namespace {namespace}"]
    if clients:
        said = ["who networkPolicy.clients names"]
    if ANY_POD in (*clients, *rules.metrics):
        said = ["every pod of the cluster"]
    elif rules.metrics:
        said.append("who networkPolicy.metrics names")
    return f"{' and '.join(said)}{key}"


def internal_error(raised: str) -> Problem:
    """Return the problem of a model on which the operator has failed by a bug of its own.

    ``raised`` is the class of the exception. Its message is not told: it may quote a Secret.
    """
    return Problem(
        code="InternalError",
        what=f"the operator failed on this model because of a bug of its own ({raised})",
        remedy="running groups are kept, and the operator tries again; "
        "please report it, the log has the details",
    )


def scheduler_unavailable(scheduler: str, what: str, remedy: str) -> Problem:
    """Return the problem of a scheduler that cannot be told of groups here."""
    return Problem(
        code="SchedulerUnavailable",
        path="spec.placement.scheduler",
        what=scheduler,
        limit=what,
        remedy=f"{remedy}, or choose another scheduler",
    )
