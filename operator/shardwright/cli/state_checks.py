"""What stops an installation, or its models, at this moment: pure functions over what was read.

``doctor_checks`` has the list, in which causes come before what follows from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

from shardwright.api.conditions import Reason
from shardwright.api.routing import ROUTER_ACCOUNT
from shardwright.cli.diagnosis import Finding, kubectl, names, read
from shardwright.cli.live_models import condition_of
from shardwright.cli.present_states import (
    ANSWER_SECONDS,
    EvictionBudget,
    Key,
    NodeState,
    PlacedPod,
    Unanswered,
    key_of,
    words_in,
)
from shardwright.cli.taking_stock import InstalledOperator, TakenStock, at
from shardwright.hardware.untrusted import mappings, text_or_empty

_AT_REST: Final = frozenset({Reason.PAUSED, Reason.PLAN_ONLY, Reason.SCALED_TO_ZERO, Reason.ASLEEP})
"""Why a model is not ready that wants nothing."""

_REFUSED: Final = frozenset({Reason.PODS_REFUSED, Reason.QUOTA_EXCEEDED, Reason.OBJECT_REFUSED})
"""Why a model is not ready that a quota may hold up."""

_SAID_WORDS: Final = 300
"""Unit: characters of the API server's own words that a finding quotes."""


def find_troubles_of_lease(operator: InstalledOperator) -> Iterator[Finding]:
    """Yield why an installation writes nothing, or another process does."""
    lease, pods = operator.lease, operator.pods
    if lease is None:
        return
    stranger = bool(lease.holder) and pods is not None and lease.holder not in pods
    who = (
        f"{lease.holder}{', which is no pod of the operator,' if stranger else ''} holds the Lease"
    )
    seconds = lease.unrenewed_seconds
    if not lease.holder:
        reason, said = "NobodyLeads", "nobody holds the Lease, so nothing is written"
    elif seconds is not None:
        reason = "LeaseNotRenewed"
        said = f"{who} and has not renewed it in {seconds:g} s: nothing is written"
    elif stranger:
        reason, said = "LeaseOfAnother", f"{who} and renews it: that process writes"
    else:
        return
    log = ("logs --tail=50 ", lease.holder) if lease.holder else ("logs deployment/", operator.name)
    command = kubectl(
        *(("get lease -o yaml ", operator.name) if stranger else log), operator.namespace
    )
    it = f"{operator.namespace}/{operator.name}"
    yield Finding(reason, f"{it}: {said}", command, (operator.name,), operator.namespace)


def find_unanswered(stock: TakenStock) -> Iterator[Finding]:
    """Yield the edits that the operator has not looked at."""
    answers = read(stock.present.answers)
    if not answers.waiting:
        return
    first, others = answers.waiting[0], len(answers.waiting) - 1
    working = bool(answers.answered)
    why = (
        f"; it has looked at {answers.answered} others meanwhile"
        if working
        else "; if the Lease is renewed, its worker process or a request of it hangs"
    )
    yield Finding(
        "EditsWait" if working else "EditsUnanswered",
        f"{_unanswered(first)}{f', and {others} more models' if others else ''}: the operator has "
        f"not looked in {ANSWER_SECONDS:g} s{why}",
        _log_of(stock),
        tuple(_id(one.key) for one in answers.waiting),
        first.key[0],
        # Where others are answered it is busy, not stopped.
        wrong=not working,
    )


def _unanswered(one: Unanswered) -> str:
    seen = f"the one before is {one.observed}" if one.observed else "none was ever looked at"
    return f"{_id(one.key)} waits with generation {one.generation} ({seen})"


def _log_of(stock: TakenStock) -> str:
    for operator in stock.operators or ():
        return kubectl("logs --tail=50 deployment/", operator.name, operator.namespace)
    return "kubectl get deployments -A -l app.kubernetes.io/name=shardwright-operator"


def find_refused_writes(stock: TakenStock) -> Iterator[Finding]:
    """Yield the webhooks that do not answer, and what the API server did not take of models."""
    told: dict[str, list[Key]] = {}
    for model in read(stock.models):
        ready = condition_of(model, "Ready")
        if ready.get("reason") == Reason.API_UNAVAILABLE:
            said = text_or_empty(ready.get("message"))[:_SAID_WORDS]
            told.setdefault(said, []).append(key_of(model))
    for webhook in read(stock.present.deaf):
        yield Finding(
            "WebhookDeaf",
            f"webhook {webhook.name} of {webhook.kind} {webhook.configuration} must agree to what "
            f"is written, and no pod behind Service {_id(webhook.service)} is ready",
            kubectl(
                "get endpointslices -l kubernetes.io/service-name=", *reversed(webhook.service)
            ),
            (webhook.configuration,),
            # One that looks at other namespaces alone is in nobody's way here.
            wrong=bool(told),
        )
    for said, models in told.items():
        objects = tuple(sorted(map(_id, models)))
        message = f"{names(objects)}: {Reason.API_UNAVAILABLE}: {said}"
        command = kubectl("describe smodel ", models[0][1], models[0][0])
        yield Finding("WritesFail", message, command, objects, models[0][0])


def find_planned_nodes(stock: TakenStock) -> Iterator[Finding]:
    """Yield the planned nodes that are gone, not ready or cordoned, with the groups on them."""
    states = read(stock.node_states)
    told: dict[tuple[str, bool], dict[str, list[str]]] = {}
    for model in read(stock.models):
        for group in mappings(at(model, "status").get("groups")):
            serves = group.get("ready") is True
            for node in words_in(group.get("nodes")):
                if node and (what := _in_the_way(states.get(node))):
                    wrong = what != _CORDONED or not serves
                    of_group = f"{key_of(model)[0]}/{text_or_empty(group.get('name'))}"
                    told.setdefault((what, wrong), {}).setdefault(node, []).append(of_group)
    for (what, wrong), nodes in sorted(told.items()):
        those = tuple(sorted(nodes))
        groups = sorted({group for several in nodes.values() for group in several})
        message = f"{names(those)} {what}; planned on by {names(groups)}"
        command = kubectl("describe node ", those[0]) if what != _GONE else "kubectl get nodes"
        yield Finding(_REASONS[what], message, command, those, wrong=wrong)


_GONE, _UNREADY, _CORDONED = "does not exist", "is not ready", "is cordoned"
_REASONS: Final = {
    _GONE: "PlannedNodeGone",
    _UNREADY: "PlannedNodeNotReady",
    _CORDONED: "PlannedNodeCordoned",
}


def _in_the_way(state: NodeState | None) -> str:
    if state is None:
        return _GONE
    if not state.ready:
        return _UNREADY
    return _CORDONED if state.cordoned else ""


def find_full_quotas(stock: TakenStock) -> Iterator[Finding]:
    """Yield the used-up quotas of namespaces in which a model lacks something."""
    waiting: dict[str, dict[str, bool]] = {}
    for model in read(stock.models):
        ready, partly = condition_of(model, "Ready"), condition_of(model, "PartlyPlaced")
        reasons = {one.get("reason") for one in (ready, partly) if one}
        if (ready.get("status") == "True" and not partly) or not _AT_REST.isdisjoint(reasons):
            continue
        namespace, name = key_of(model)
        waiting.setdefault(namespace, {})[name] = not _REFUSED.isdisjoint(reasons)
    for quota in read(stock.present.quotas):
        namespace, name = quota.key
        if not (models := waiting.get(namespace)):
            continue
        spent = [f"{what} {limit}" for what, limit in quota.spent.items()]
        yield Finding(
            "QuotaSpent",
            f"ResourceQuota {_id(quota.key)} is used up ({names(spent)}): nothing more of that is "
            f"let in; waiting there: {names(sorted(models))}",
            kubectl("describe resourcequota ", name, namespace),
            (name,),
            namespace,
            # A quota may be used to its end by what runs, while a model only loads.
            wrong=any(models.values()),
        )


def find_budgets(stock: TakenStock) -> Iterator[Finding]:
    """Yield the disruption budgets that keep pods of models on nodes that are drained."""
    budgets, states = read(stock.present.budgets), read(stock.node_states)
    pods = [pod for pod in read(stock.present.pods) if not pod.ends]
    over = {pod.key: [budget for budget in budgets if budget.covers(pod)] for pod in pods}
    yield from _two_at_once(over)
    for budget in budgets:
        theirs = [pod for pod in pods if over[pod.key] == [budget]]
        held = [pod for pod in theirs if states.get(pod.node, NodeState()).cordoned]
        # Ours allows nothing for as long as a group is down; that is said of the group.
        if budget.allowed > 0 or not (held or (theirs and not budget.ours)):
            continue
        yield _that_allows_nothing(budget, held or theirs, drained=bool(held))


def _two_at_once(over: Mapping[Key, Sequence[EvictionBudget]]) -> Iterator[Finding]:
    told: dict[tuple[Key, ...], list[str]] = {}
    for pod, budgets in over.items():
        if len(budgets) > 1:
            told.setdefault(tuple(sorted(one.key for one in budgets)), []).append(pod[1])
    for keys, pods in told.items():
        namespace, theirs = keys[0][0], tuple(name for _, name in keys)
        message = (
            f"pods {names(pods)} of {namespace} are under the PodDisruptionBudgets {names(theirs)}:"
            " Kubernetes evicts no pod that is under two, so a drain waits for ever"
        )
        yield Finding(
            "TwoBudgets", message, kubectl("get pdb", namespace=namespace), theirs, namespace
        )


def _that_allows_nothing(
    budget: EvictionBudget, pods: Sequence[PlacedPod], *, drained: bool
) -> Finding:
    namespace, name = budget.key
    whose = "the operator's, until all groups are ready" if budget.ours else "not the operator's"
    nodes = sorted({pod.node for pod in pods})
    those = names([pod.key[1] for pod in pods])
    so = (
        f"the drain of {names(nodes)} waits for {those}"
        if drained
        else f"{those} cannot be evicted"
    )
    return Finding(
        "BudgetBlocksDrain" if drained else "BudgetAllowsNothing",
        f"PodDisruptionBudget {_id(budget.key)} ({whose}) allows no eviction: {so}",
        kubectl("describe pdb ", name, namespace),
        (name,),
        namespace,
        wrong=drained,
    )


def find_router_accounts(stock: TakenStock) -> Iterator[Finding]:
    """Yield the service accounts by which routers would start, or see groups, and do not."""
    for one in read(stock.router_accounts):
        where, it = (one.namespace, one.name), f"service account {one.namespace}/{one.name}"
        if not one.exists:
            said, command = "is not there: no pod of a router starts", _ACCOUNT
            yield _of_router("RouterAccountMissing", f"{it} {said}", command, where)
        if not one.sees_pods:
            said = "may not list and watch pods of its namespace: a router sees no group"
            yield _of_router("RouterSeesNoPods", f"{it} {said}", _BINDING, where)


def _of_router(reason: str, message: str, command: str, account: tuple[str, str]) -> Finding:
    namespace, name = account
    return Finding(
        reason, message, command.format(n=quote(namespace), a=quote(name)), (name,), namespace
    )


_ACCOUNT: Final = "kubectl -n {n} create serviceaccount {a}"
_BINDING: Final = (
    f"kubectl -n {{n}} create rolebinding {{a}} --clusterrole={ROUTER_ACCOUNT} "
    "--serviceaccount={n}:{a}"
)


def _id(key: Key) -> str:
    return "/".join(key)
