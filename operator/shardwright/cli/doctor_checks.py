"""The checks of ``doctor``, in order: each yields what is wrong, with a command."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from shlex import quote
from typing import Final

from shardwright import __version__
from shardwright.cli.diagnosis import (
    NAMES_SHOWN,
    Enforcement,
    Finding,
    NotMadeError,
    Result,
    kubectl,
    names,
    read,
)
from shardwright.cli.live_models import condition_of
from shardwright.cli.present_states import Object, key_of
from shardwright.cli.state_checks import (
    find_budgets,
    find_full_quotas,
    find_planned_nodes,
    find_refused_writes,
    find_router_accounts,
    find_troubles_of_lease,
    find_unanswered,
)
from shardwright.cli.taking_stock import InstalledOperator, TakenStock, at
from shardwright.cluster.claims import INSTALLATION
from shardwright.cluster.device_stock import NodeEntry
from shardwright.hardware.facts import NodeFacts
from shardwright.hardware.gpus import NODE_SET
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.scheduling import WHOLE, cut_otherwise
from shardwright.hardware.untrusted import mappings, text_or_empty, time
from shardwright.reconcile.fetched import OVERDUE_SECONDS, JobState, age_seconds, state_of
from shardwright.rendering.fetch_job import HUB_MODEL
from shardwright.rendering.labels import KIND
from shardwright.rendering.network_policies import ANY_POD
from shardwright.resolving.intent import network_rules_of

LEAST_KUBERNETES: Final = (1, 34)
"""Oldest minor release that is supported. Source: kubeVersion of the chart."""

STUCK_MINUTES: Final = 60
"""Unit: minutes. Basis: assumed; the largest models load within half an hour at 1 GB/s."""

SLOW_SECONDS: Final = 60
"""Age of a Job that should have finished. Basis: it reads for at most 60 s; beyond that a node, an
image or a Secret holds it up.
"""

DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

_MEANT: Final = frozenset(
    {"MigEnabled", "VirtualGpu", "GpuPassthrough", "GpuShared", "AcceleratorNotSupported"}
)
"""Why a node is left out that somebody set up in this way on purpose."""

_FETCHES: Final = {
    JobState.FAILED: ("FetchFailed", "has failed"),
    JobState.SUSPENDED: ("FetchSuspended", "is suspended: a queue or a webhook has to admit it"),
    JobState.OVERDUE: (
        "FetchOverdue",
        (
            f"has not ended {OVERDUE_SECONDS} s after it was made: Kubernetes' Job controller has "
            "not taken it up"
        ),
    ),
}

_SLOW: Final = f"has run for more than {SLOW_SECONDS} s: its pod may have no node or no image"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name for programs, what it examines, and its function, which raises NotMadeError
    if it cannot be made.
    """

    name: str
    what: str
    find: Callable[[TakenStock], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Examined:
    """A check with its findings."""

    check: Check
    result: Result
    findings: tuple[Finding, ...] = ()


def examine(stock: TakenStock) -> tuple[Examined, ...]:
    """Return all checks in order, each with its findings."""
    return tuple(made(check, stock) for check in CHECKS)


def made(check: Check, stock: TakenStock) -> Examined:
    """Return a check with its findings."""
    try:
        found = tuple(check.find(stock))
    except NotMadeError as error:
        return Examined(check, error.result)
    if any(finding.wrong for finding in found):
        return Examined(check, Result.WRONG, found)
    return Examined(check, Result.NOTED if found else Result.FINE, found)


def _kubernetes(stock: TakenStock) -> Iterator[Finding]:
    # Clouds append a plus to the minor release.
    said = [text_or_empty(stock.version.get(part)).rstrip("+") for part in ("major", "minor")]
    if not all(part.isascii() and part.isdigit() for part in said):
        raise NotMadeError(Result.UNREAD)
    if tuple(map(int, said)) < LEAST_KUBERNETES:
        least = ".".join(map(str, LEAST_KUBERNETES))
        message = f"Kubernetes {'.'.join(said)} must be at least {least}"
        yield Finding("KubernetesTooOld", message, "kubectl version")


def _resource(stock: TakenStock) -> Iterator[Finding]:
    if not stock.served:
        yield Finding(
            "NotServed",
            "the API server does not serve ShardedModels: the CustomResourceDefinition is missing",
            f"{stock.program} crd | kubectl apply --server-side -f -",
        )


def _operator(stock: TakenStock) -> Iterator[Finding]:
    if not read(stock.operators):
        yield Finding(
            "NotInstalled",
            "no Deployment of the operator is in any namespace",
            "helm install shardwright charts/shardwright -n shardwright-system --create-namespace",
        )
    for one in read(stock.operators):
        if one.ready == 0 or one.ready < one.wanted:
            yield _of_operator(
                one,
                "NotReady",
                f": {one.ready} of {one.wanted} pods of the operator are ready",
                "describe deployment ",
                wrong=one.ready == 0,
            )
        yield from find_troubles_of_lease(one)
        if one.version != __version__:
            yield _of_operator(
                one,
                "OtherVersion",
                f" is of version {one.version or 'unknown'}: it may plan otherwise than this "
                "command",
                "get deployment -o wide ",
                wrong=False,
            )


def _of_operator(
    it: InstalledOperator, reason: str, said: str, verb: str, *, wrong: bool = True
) -> Finding:
    message = f"{it.namespace}/{it.name}{said}"
    command = kubectl(verb, it.name, it.namespace)
    return Finding(reason, message, command, (it.name,), it.namespace, wrong)


def _rights(stock: TakenStock) -> Iterator[Finding]:
    for account, found in read(stock.rights).items():
        if found.missing:
            yield Finding(
                "RightsMissing",
                f"{account} may not {names(found.missing)}",
                f"kubectl auth can-i {found.missing[0]} --as={quote(account)}",
                found.missing,
            )
        for namespace in found.closed:
            unseen, free = (
                ("", "")
                if found.sees_pods
                else (", and sees no pods there", ", and GPUs in use there count as free")
            )
            message = (
                f"{account} may do nothing in {namespace}, which it watches{unseen}: no model "
                f"there is served{free}"
            )
            reason = "NamespaceClosed" if found.sees_pods else "NamespaceUnseen"
            command = kubectl("get role,rolebinding ", "shardwright-operator", namespace)
            yield Finding(reason, message, command, (namespace,), namespace)


def _installations(stock: TakenStock) -> Iterator[Finding]:
    claims, operators = read(stock.claims), stock.operators or ()
    for one in operators:
        if (installation := one.as_installation) is None:
            continue
        for said in installation.complaints(claims):
            message = f"{one.namespace}/{one.name}: {said}"
            command = _who_claims(installation.claims)
            objects = installation.claims
            yield Finding("ClaimNotHeld", message, command, objects, one.namespace)
    if not operators or not stock.nodes:
        return
    ours = {one.settings.stated.node_set: one for one in operators if one.settings}
    command = f"kubectl get nodes -L {NODE_SET}"
    if all(one.settings for one in operators):
        for name in sorted(stock.nodes.keys() - ours.keys()):
            objects = tuple(map(_name, stock.nodes[name]))
            message = f"{names(objects)}: nodes {_of_set(name)} are for no installation"
            wrong = bool(name)
            yield Finding("NodeSetOfNobody", message, command, objects, wrong=wrong)
    for name, one in ours.items():
        if name in stock.nodes:
            continue
        why = f"plans on nodes {_of_set(name)}, and none has GPUs"
        message = f"{one.namespace}/{one.name} {why}"
        objects = (one.name,)
        yield Finding("NodeSetEmpty", message, command, objects, one.namespace, False)


def _who_claims(claims: Iterable[str]) -> str:
    annotation = INSTALLATION.replace(".", "\\.")
    return (
        f"kubectl get clusterrole --ignore-not-found {' '.join(map(quote, claims))} -o "
        f"custom-columns='NAME:.metadata.name,FOR:.metadata.annotations.{annotation}'"
    )


def _of_set(name: str) -> str:
    return f"with the label {NODE_SET}={name}" if name else f"without the label {NODE_SET}"


def _name(node: NodeEntry) -> str:
    return node.node if isinstance(node, NodeExclusion) else node.name


def _nodes(stock: TakenStock) -> Iterator[Finding]:
    """Yield one finding for all nodes with the same problem."""
    nodes = [node for several in read(stock.nodes).values() for node in several]
    if not any(isinstance(node, NodeFacts) for node in nodes):
        yield Finding(
            "NoGpus",
            "no node has GPUs that can be planned: right where an autoscaler adds them",
            "kubectl get nodes -o "
            "custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu",
            wrong=False,
        )
    told: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        # Why models without special requests do not use it.
        problem = node.problem if isinstance(node, NodeExclusion) else cut_otherwise(node, WHOLE)
        if problem:
            told.setdefault((problem.code, problem.sentence()), []).append(_name(node))
        elif isinstance(node, NodeFacts):
            for warning in node.warnings:
                told.setdefault(("", warning), []).append(node.name)
    for code, said in sorted(told, key=lambda what: (not what[0], what)):
        those = sorted(told[code, said])
        yield Finding(
            "NodeLeftOut" if code else "NodeWarns",
            f"{names(those)}: {code and f'{code}: '}{said}",
            _of_left_out(code, those),
            tuple(those),
            wrong=bool(code) and code not in _MEANT,
        )


def _of_left_out(code: str, nodes: list[str]) -> str:
    if code == "GpuUnknown":
        those = " ".join(map(quote, nodes[:NAMES_SHOWN]))
        return f"kubectl label node {those} shardwright.io/gpu-model=ID"
    if code == "NoAllocatableGpus":
        return kubectl("get pods -A -o wide --field-selector spec.nodeName=", nodes[0])
    return kubectl("describe node ", nodes[0])


def _storage(stock: TakenStock) -> Iterator[Finding]:
    models = read(stock.models)
    classes = {
        key_of(item)[1]: at(item, "metadata", "annotations").get(DEFAULT_CLASS) == "true"
        for item in read(stock.classes)
    }
    wanting: dict[str, list[str]] = {}
    for item in models:
        cache = at(item, "spec", "model", "weights", "cache")
        name = text_or_empty(cache.get("storageClassName"))
        found = name in classes if name else any(classes.values())
        if cache.get("storage") and not found:
            wanting.setdefault(name, []).append("/".join(key_of(item)))
    for name, those in sorted(wanting.items()):
        objects = tuple(sorted(those))
        claims = f"claims of {names(objects)}"
        if name:
            message = f"the StorageClass {name} does not exist; {claims} wait for it"
            command = "kubectl get storageclass"
            yield Finding("StorageClassMissing", message, command, objects)
        else:
            message = f"no StorageClass is the default; {claims} name none and wait"
            patch = f'{{"metadata":{{"annotations":{{"{DEFAULT_CLASS}":"true"}}}}}}'
            command = f"kubectl patch storageclass NAME -p '{patch}'"
            yield Finding("NoDefaultStorageClass", message, command, objects)


def _models(stock: TakenStock) -> Iterator[Finding]:
    for item in read(stock.models):
        ready, stalled = condition_of(item, "Ready"), _is(item, "Stalled")
        since = time(ready.get("lastTransitionTime"))
        stuck = since and stock.now - since > timedelta(minutes=STUCK_MINUTES)
        # A paused model waits for nothing.
        under_way = _is(item, "Reconciling") or _is(item, "Degraded")
        if _is(item, "Ready") or not (stalled or (stuck and under_way)):
            continue
        namespace, name = key_of(item)
        why = ": ".join(text_or_empty(ready.get(part)) for part in ("reason", "message"))
        stuck_for = f"has not been ready for more than {STUCK_MINUTES} minutes"
        how = "waits for you" if stalled else stuck_for
        yield Finding(
            "ModelStalled" if stalled else "ModelStuck",
            f"{namespace}/{name} {how}: {why}",
            kubectl("describe smodel ", name, namespace),
            (name,),
            namespace,
        )


def _is(model: Object, condition: str) -> bool:
    return condition_of(model, condition).get("status") == "True"


def _fetches(stock: TakenStock) -> Iterator[Finding]:
    for item in read(stock.fetches):
        metadata = at(item, "metadata")
        created = metadata.get("creationTimestamp")
        job = {
            "metadata": {"creationTimestamp": created if time(created) else None},
            "status": {"conditions": mappings(at(item, "status").get("conditions"))},
        }
        state, age = state_of(job, stock.now), age_seconds(job, stock.now)
        slow = state is JobState.RUNNING and age is not None and age > SLOW_SECONDS
        if not slow and state not in _FETCHES:
            continue
        reason, how = ("FetchSlow", _SLOW) if slow else _FETCHES[state]
        namespace, name = key_of(item)
        owners = mappings(metadata.get("ownerReferences"))
        owner = next((one.get("name") for one in owners if one.get("kind") == KIND), "")
        whose = f" for {namespace}/{owner}" if text_or_empty(owner) else ""
        model = text_or_empty(at(metadata, "annotations").get(HUB_MODEL))
        config = f"the config{f' of {model}' if model else ''}{whose}"
        kind, shown = ("pods -l", f"batch.kubernetes.io/job-name={name}") if slow else ("job", name)
        yield Finding(
            reason,
            f"Job {namespace}/{name}, which reads {config}, {how}",
            kubectl(f"describe {kind} ", shown, namespace),
            (name,),
            namespace,
            # A node or an image may still be coming.
            not slow,
        )


def _network_policies(stock: TakenStock) -> Iterator[Finding]:
    if stock.measured is None:
        raise NotMadeError(Result.SKIPPED)
    if stock.measured.enforcement is Enforcement.IGNORED:
        yield Finding(
            "NetworkPoliciesNotEnforced",
            "a pod reached the API server although its egress policy forbids it: "
            "policies around the ranks of models may stop nobody either",
            "kubectl -n kube-system get daemonsets",
        )
    elif stock.measured.enforcement is not Enforcement.ENFORCED:
        yield Finding(
            "NetworkPoliciesUnclear",
            f"whether NetworkPolicies are enforced could not be measured: {stock.measured.trouble}",
            f"{stock.program} doctor --network-policies --image IMAGE",
            wrong=False,
        )


def _clients(stock: TakenStock) -> Iterator[Finding]:
    for one in read(stock.operators):
        if one.settings is None:
            raise NotMadeError(Result.UNREAD)
        rules = network_rules_of(one.settings.network_policy)
        if rules is None or ANY_POD in (*rules.clients, *rules.metrics):
            yield _of_operator(
                one,
                "OpenToEverybody",
                " lets every pod of the cluster send requests to its models: name clients and "
                "metrics in networkPolicy, or demand a key with engine.apiKeySecretRef",
                "get deployment ",
                wrong=False,
            )


CHECKS: Final = (
    Check("Kubernetes", "version of the API server", _kubernetes),
    Check("ShardedModels", "ShardedModels are served", _resource),
    Check("Operator", "operator", _operator),
    Check("Rights", "rights of the operator", _rights),
    Check("Installations", "claims and node sets of installations", _installations),
    Check("Answers", "edits are looked at", find_unanswered),
    Check("Writes", "writes are taken", find_refused_writes),
    Check("PlannedNodes", "nodes under plans", find_planned_nodes),
    Check("Quotas", "quotas", find_full_quotas),
    Check("Budgets", "disruption budgets", find_budgets),
    Check("Routers", "service accounts of routers", find_router_accounts),
    Check("Nodes", "nodes with GPUs", _nodes),
    Check("Storage", "storage classes of weight caches", _storage),
    Check("Models", "models and their groups", _models),
    Check("ConfigFetches", "Jobs that read configs from the hub", _fetches),
    Check("Clients", "only named clients and the own namespace reach models", _clients),
    Check("NetworkPolicies", "network policies are enforced", _network_policies),
)
"""Causes before what follows from them: the first finding that is wrong is where to begin."""
