"""The sentence about a finding, and the command against it: the words of ``shardwright doctor``.

No command deletes anything.
"""

import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from shardwright.cli.diagnosis import LEAST_KUBERNETES, STUCK_MINUTES
from shardwright.cli.fetch_jobs import SLOW_SECONDS
from shardwright.cli.findings import Ailment, Check, Finding
from shardwright.cluster.claims import INSTALLATION
from shardwright.hardware.stated import NODE_SET
from shardwright.reconcile.fetched import OVERDUE_SECONDS

NAMES_SHOWN: Final = 5
"""Objects that a sentence names; the rest are counted."""

WORDS: Final[Mapping[Check, str]] = MappingProxyType(
    {
        Check.KUBERNETES: "version of the API server",
        Check.RESOURCE: "ShardedModels are served",
        Check.OPERATOR: "operator",
        Check.RIGHTS: "rights of the operator",
        Check.INSTALLATIONS: "claims and node sets of installations",
        Check.NODES: "nodes with GPUs",
        Check.STORAGE: "storage classes of weight caches",
        Check.MODELS: "models and their groups",
        Check.FETCHES: "Jobs that read configs from the hub",
        Check.NETWORK_POLICIES: "network policies are enforced",
    }
)
"""What each check looks at."""


def sentence(finding: Finding) -> str:
    """Return a sentence that states the problem."""
    return _SENTENCES[finding.ailment](finding)


def command(finding: Finding, program: str) -> str:
    """Return the command that shows more of the problem or fixes it. ``program`` is the name the
    user calls us by.
    """
    ours = _OURS.get(finding.ailment)
    return f"{program} {ours}" if ours else _COMMANDS[finding.ailment](finding)


def _names(finding: Finding) -> str:
    shown, more = finding.objects[:NAMES_SHOWN], len(finding.objects) - NAMES_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _in_namespace(finding: Finding) -> str:
    return f"{finding.namespace}/{_names(finding)}"


def _left_out(finding: Finding) -> str:
    first = shlex.quote(finding.objects[0])
    if finding.about == "GpuUnknown":
        return (
            f"kubectl label node {' '.join(map(shlex.quote, finding.objects[:NAMES_SHOWN]))} "
            "shardwright.io/gpu-model=ID"
        )
    if finding.about == "NoAllocatableGpus":
        return f"kubectl get pods -A -o wide --field-selector spec.nodeName={first}"
    return f"kubectl describe node {first}"


def _of_deployment(verb: str) -> Callable[[Finding], str]:
    return lambda finding: (
        f"kubectl -n {shlex.quote(finding.namespace)} {verb}{shlex.quote(finding.objects[0])}"
    )


def _of_model(finding: Finding) -> str:
    return (
        f"kubectl -n {shlex.quote(finding.namespace)} describe smodel "
        f"{shlex.quote(finding.objects[0])}"
    )


def _of_job(finding: Finding) -> str:
    return (
        f"kubectl -n {shlex.quote(finding.namespace)} describe job "
        f"{shlex.quote(finding.objects[0])}"
    )


def _of_its_pods(finding: Finding) -> str:
    selector = shlex.quote(f"batch.kubernetes.io/job-name={finding.objects[0]}")
    return f"kubectl -n {shlex.quote(finding.namespace)} describe pods -l {selector}"


def _who_claims(finding: Finding) -> str:
    columns = f"NAME:.metadata.name,FOR:.metadata.annotations.{INSTALLATION.replace('.', chr(92) + '.')}"  # noqa: E501 - an argument of kubectl
    return (
        f"kubectl get clusterrole --ignore-not-found {' '.join(map(shlex.quote, finding.objects))}"
        f" -o custom-columns='{columns}'"
    )


def _role_of(finding: Finding) -> str:
    return f"kubectl -n {shlex.quote(finding.namespace)} get role,rolebinding shardwright-operator"


def _nodes_of_set(name: str) -> str:
    return (
        f"with the label {NODE_SET}={name}" if name else f"without the label {NODE_SET}"
    )


def _job_for(finding: Finding) -> str:
    """Return which Job it is about, and whose config of which model it reads."""
    of = f" of {finding.about}" if finding.about else ""
    whose = f" for {finding.namespace}/{finding.said}" if finding.said else ""
    return f"Job {_in_namespace(finding)}, which reads the config{of}{whose},"


_LEAST: Final = ".".join(map(str, LEAST_KUBERNETES))

_SENTENCES: Final[Mapping[Ailment, Callable[[Finding], str]]] = MappingProxyType(
    {
        Ailment.KUBERNETES_TOO_OLD: lambda it: (
            f"Kubernetes {it.about} must be at least {_LEAST}"
        ),
        Ailment.NOT_SERVED: lambda _: (
            "the API server does not serve ShardedModels: the CustomResourceDefinition is missing"
        ),
        Ailment.NOT_INSTALLED: lambda _: (
            "no Deployment of the operator is in any namespace"
        ),
        Ailment.NOT_READY: lambda it: (
            f"{_in_namespace(it)}: {it.about} pods of the operator are ready"
        ),
        Ailment.NOBODY_LEADS: lambda it: (
            f"{_in_namespace(it)}: nobody holds the Lease, so nothing is written"
        ),
        Ailment.OTHER_VERSION: lambda it: (
            f"{_in_namespace(it)} is of version {it.about or 'unknown'}: it may plan otherwise "
            "than this command"
        ),
        Ailment.RIGHTS_MISSING: lambda it: f"{it.about} may not {_names(it)}",
        Ailment.NAMESPACE_CLOSED: lambda it: (
            f"{it.about} may do nothing in {_names(it)}, which it watches: no model there is served"
        ),
        Ailment.NAMESPACE_UNSEEN: lambda it: (
            f"{it.about} may do nothing in {_names(it)}, which it watches, and sees no pods "
            "there: no model there is served, "
            "and GPUs in use there count as free"
        ),
        Ailment.CLAIM_NOT_HELD: lambda it: f"{it.namespace}/{it.about}: {it.said}",
        Ailment.NODE_SET_OF_NOBODY: lambda it: (
            f"{_names(it)}: nodes {_nodes_of_set(it.about)} are for no installation"
        ),
        Ailment.NODE_SET_EMPTY: lambda it: (
            f"{_in_namespace(it)} plans on nodes {_nodes_of_set(it.about)}, and none has GPUs"
        ),
        Ailment.NO_GPUS: lambda _: (
            "no node has GPUs that can be planned: right where an autoscaler adds them"
        ),
        Ailment.NODE_LEFT_OUT: lambda it: f"{_names(it)}: {it.about}: {it.said}",
        Ailment.NODE_WARNS: lambda it: f"{_names(it)}: {it.said}",
        Ailment.CLASS_MISSING: lambda it: (
            f"the StorageClass {it.about} does not exist; claims of {_names(it)} wait for it"
        ),
        Ailment.NO_DEFAULT_CLASS: lambda it: (
            f"no StorageClass is the default; claims of {_names(it)} name none and wait"
        ),
        Ailment.MODEL_STALLED: lambda it: (
            f"{_in_namespace(it)} waits for you: {it.about}: {it.said}"
        ),
        Ailment.MODEL_STUCK: lambda it: (
            f"{_in_namespace(it)} has not been ready for more "
            f"than {STUCK_MINUTES} minutes: {it.about}: {it.said}"
        ),
        Ailment.FETCH_FAILED: lambda it: f"{_job_for(it)} has failed",
        Ailment.FETCH_SUSPENDED: lambda it: (
            f"{_job_for(it)} is suspended: a queue or a webhook has to admit it"
        ),
        Ailment.FETCH_OVERDUE: lambda it: (
            f"{_job_for(it)} has not ended {OVERDUE_SECONDS} s after it was made: Kubernetes' Job "
            "controller has not taken it up"
        ),
        Ailment.FETCH_SLOW: lambda it: (
            f"{_job_for(it)} has run for more than {SLOW_SECONDS} "
            "s: its pod may have no node or no image"
        ),
        Ailment.POLICIES_NOT_ENFORCED: lambda _: (
            "a pod reached what its NetworkPolicy closes: "
            "whoever has a pod in the cluster reaches the ranks of every model"
        ),
        Ailment.POLICIES_UNCLEAR: lambda it: (
            f"whether NetworkPolicies are enforced could not be measured: {it.said}"
        ),
    }
)

_OURS: Final[Mapping[Ailment, str]] = MappingProxyType(
    {
        Ailment.NOT_SERVED: "crd | kubectl apply --server-side -f -",
        Ailment.POLICIES_UNCLEAR: "doctor --network-policies --image IMAGE",
    }
)
"""Commands of this program, without its name."""

_COMMANDS: Final[Mapping[Ailment, Callable[[Finding], str]]] = MappingProxyType(
    {
        Ailment.KUBERNETES_TOO_OLD: lambda _: "kubectl version",
        Ailment.NOT_INSTALLED: lambda _: (
            "helm install shardwright charts/shardwright -n shardwright-system --create-namespace"
        ),
        Ailment.NOT_READY: _of_deployment("describe deployment "),
        Ailment.NOBODY_LEADS: _of_deployment("logs deployment/"),
        Ailment.OTHER_VERSION: _of_deployment("get deployment -o wide "),
        Ailment.RIGHTS_MISSING: lambda it: (
            f"kubectl auth can-i {it.objects[0]} --as={shlex.quote(it.about)}"
        ),
        Ailment.NAMESPACE_CLOSED: _role_of,
        Ailment.NAMESPACE_UNSEEN: _role_of,
        Ailment.CLAIM_NOT_HELD: _who_claims,
        Ailment.NODE_SET_OF_NOBODY: lambda _: f"kubectl get nodes -L {NODE_SET}",
        Ailment.NODE_SET_EMPTY: lambda _: f"kubectl get nodes -L {NODE_SET}",
        Ailment.NO_GPUS: lambda _: (
            "kubectl get nodes -o "
            "custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu"
        ),
        Ailment.NODE_LEFT_OUT: _left_out,
        Ailment.NODE_WARNS: lambda it: (
            f"kubectl describe node {shlex.quote(it.objects[0])}"
        ),
        Ailment.CLASS_MISSING: lambda _: "kubectl get storageclass",
        Ailment.NO_DEFAULT_CLASS: lambda _: (
            "kubectl patch storageclass NAME -p "
            """'{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}'"""
        ),
        Ailment.MODEL_STALLED: _of_model,
        Ailment.MODEL_STUCK: _of_model,
        Ailment.FETCH_FAILED: _of_job,
        Ailment.FETCH_SUSPENDED: _of_job,
        Ailment.FETCH_OVERDUE: _of_job,
        Ailment.FETCH_SLOW: _of_its_pods,
        Ailment.POLICIES_NOT_ENFORCED: lambda _: (
            "kubectl -n kube-system get daemonsets"
        ),
    }
)
