"""What to say of a finding, and what to type: the words of ``shardwright doctor``."""

import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from shardwright.cli.diagnosis import LEAST_KUBERNETES, STUCK_MINUTES, Ailment, Check, Finding

NAMES_SHOWN: Final = 5
"""Objects that a sentence names; the rest are counted."""

WORDS: Final[Mapping[Check, str]] = MappingProxyType(
    {
        Check.KUBERNETES: "version of the API server",
        Check.RESOURCE: "ShardedModels are served",
        Check.OPERATOR: "operator",
        Check.RIGHTS: "rights of the operator",
        Check.NODES: "nodes with GPUs",
        Check.STORAGE: "storage classes of weight caches",
        Check.MODELS: "models and their groups",
        Check.NETWORK_POLICIES: "network policies are enforced",
    }
)
"""What each check looks at."""


def sentence(finding: Finding) -> str:
    """Return what is wrong."""
    return _SENTENCES[finding.ailment](finding)


def command(finding: Finding, program: str) -> str:
    """Return what to type, which shows more of it or mends it; ``program`` is how the user calls us."""
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
        return f"kubectl label node {' '.join(map(shlex.quote, finding.objects[:NAMES_SHOWN]))} shardwright.io/gpu-model=ID"
    if finding.about == "NoAllocatableGpus":
        return f"kubectl get pods -A -o wide --field-selector spec.nodeName={first}"
    return f"kubectl describe node {first}"


def _of_deployment(verb: str) -> Callable[[Finding], str]:
    return lambda finding: f"kubectl -n {shlex.quote(finding.namespace)} {verb}{shlex.quote(finding.objects[0])}"


def _of_model(finding: Finding) -> str:
    return f"kubectl -n {shlex.quote(finding.namespace)} describe smodel {shlex.quote(finding.objects[0])}"


_LEAST: Final = ".".join(map(str, LEAST_KUBERNETES))

_SENTENCES: Final[Mapping[Ailment, Callable[[Finding], str]]] = MappingProxyType(
    {
        Ailment.KUBERNETES_TOO_OLD: lambda it: f"Kubernetes {it.about} must be at least {_LEAST}",
        Ailment.NOT_SERVED: lambda _: "the API server does not serve ShardedModels: the CustomResourceDefinition is missing",
        Ailment.NOT_INSTALLED: lambda _: "no Deployment of the operator is in any namespace",
        Ailment.NOT_READY: lambda it: f"{_in_namespace(it)}: {it.about} pods of the operator are ready",
        Ailment.NOBODY_LEADS: lambda it: f"{_in_namespace(it)}: nobody holds the Lease, so nothing is written",
        Ailment.OTHER_VERSION: lambda it: (
            f"{_in_namespace(it)} is of version {it.about or 'unknown'}: it may plan otherwise than this command"
        ),
        Ailment.RIGHTS_MISSING: lambda it: f"{it.about} may not {_names(it)}",
        Ailment.NO_GPUS: lambda _: "no node has GPUs that can be planned: right where an autoscaler adds them",
        Ailment.NODE_LEFT_OUT: lambda it: f"{_names(it)}: {it.about}: {it.said}",
        Ailment.NODE_WARNS: lambda it: f"{_names(it)}: {it.said}",
        Ailment.CLASS_MISSING: lambda it: f"the StorageClass {it.about} does not exist; claims of {_names(it)} wait for it",
        Ailment.NO_DEFAULT_CLASS: lambda it: f"no StorageClass is the default; claims of {_names(it)} name none and wait",
        Ailment.MODEL_STALLED: lambda it: f"{_in_namespace(it)} waits for you: {it.about}: {it.said}",
        Ailment.MODEL_STUCK: lambda it: (
            f"{_in_namespace(it)} has not been ready for more than {STUCK_MINUTES} minutes: {it.about}: {it.said}"
        ),
        Ailment.POLICIES_NOT_ENFORCED: lambda _: (
            "a pod was reached on a port that its NetworkPolicy closes: "
            "whoever has a pod in the cluster reaches the ranks of every model"
        ),
        Ailment.POLICIES_UNCLEAR: lambda it: f"whether NetworkPolicies are enforced could not be measured: {it.said}",
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
        Ailment.NOT_INSTALLED: lambda _: "helm install shardwright charts/shardwright -n shardwright-system --create-namespace",
        Ailment.NOT_READY: _of_deployment("describe deployment "),
        Ailment.NOBODY_LEADS: _of_deployment("logs deployment/"),
        Ailment.OTHER_VERSION: _of_deployment("get deployment -o wide "),
        Ailment.RIGHTS_MISSING: lambda it: f"kubectl auth can-i {it.objects[0]} --as={shlex.quote(it.about)}",
        Ailment.NO_GPUS: lambda _: (
            "kubectl get nodes -o custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu"
        ),
        Ailment.NODE_LEFT_OUT: _left_out,
        Ailment.NODE_WARNS: lambda it: f"kubectl describe node {shlex.quote(it.objects[0])}",
        Ailment.CLASS_MISSING: lambda _: "kubectl get storageclass",
        Ailment.NO_DEFAULT_CLASS: lambda _: (
            "kubectl patch storageclass NAME -p "
            """'{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"true"}}}'"""
        ),
        Ailment.MODEL_STALLED: _of_model,
        Ailment.MODEL_STUCK: _of_model,
        Ailment.POLICIES_NOT_ENFORCED: lambda _: "kubectl -n kube-system get daemonsets",
    }
)
