"""The values of the chart: each is described, checked with a message, and does something."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.settings import ConfigFetch, Settings, read_settings
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import (
    CHART,
    EVERY_POLICY,
    GONE,
    NEW,
    default_of,
    defaults,
    described_values,
    difference,
    named,
    render,
    schema,
)
from tests.support.settings_delivered import IMAGE, SETTINGS, settings_text
from tests.support.values_fitted import EFFECTS as FITTED
from tests.support.values_fitted import REFUSALS as WRONG
from tests.support.values_fitted import TESTED_APART, runs

DIGEST = f"sha256:{'0a' * 32}"
POD = "Deployment/shardwright spec.template.spec"
CONTAINER = f"{POD}.containers.0"
POLICY = "NetworkPolicy/shardwright spec.ingress.0"
SCRAPED, MEASURED, TOLD = (
    "ServiceMonitor/shardwright",
    "PodMonitor/shardwright-vllm",
    "PrometheusRule/shardwright",
)
DRAWN = ("ConfigMap/shardwright-dashboard-fleet", "ConfigMap/shardwright-dashboard-model")
# As in real configs: not all of it is JSON to a strict reader.
CONFIG = (
    '{\n  "hidden_act": "silu",\n  "eps": 1e-05, "limit": Infinity,\n  "note": "größer '
    '\\u2264 <1>"\n}\n'
)


A_GPU = {
    "computeCapability": "10.7",
    "memoryGigabytesPerSecond": 22000,
    "memoryMiB": 294912,
    "product": "NVIDIA-R200",
    "source": "data sheet",
    "teraflops": {"bf16": 4000},
}
GPUS_DIGEST = sha256(json.dumps([A_GPU], separators=(",", ":")).encode()).hexdigest()[:16]
"""The operator reads them when it starts, and starts anew for others."""
A_POOL = {
    "allocatable": {"nvidia.com/gpu": 8},
    "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "maxNodes": 4,
    "name": "spot",
    "selector": {"karpenter.sh/nodepool": "spot"},
}


A_RIGHT = ("apiGroups.0", "resources.0", "verbs.0", "verbs.1")
"""Fields of the rule about Jobs, the last one that is always there."""


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()[:16]


POOLS_DIGEST = _digest([A_POOL])
"""These, too."""


MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
THE_HUB = {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}


@pytest.fixture(scope="module")
def as_delivered(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane)


GROUPS = "ValidatingAdmissionPolicy/shardwright-statefulsets"
ROUTERS = "ValidatingAdmissionPolicy/shardwright-routers"
MIRRORED: dict[str, Any] = {
    "engine": {"image": "mirror.example/vllm-openai:v0.33.0"},
    "pod": {
        "serviceAccountName": "models",
        "volumes": [
            {"name": "a", "mountPath": "/mnt/a", "secret": {"secretName": "licence"}},
            {"name": "b", "mountPath": "/mnt/b", "configMap": {"name": "files"}},
        ],
    },
}
"""What the defaults name, the policies let the operator's pods have."""

EFFECTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "replicas": (
        1,
        {"Deployment/shardwright spec.replicas": 1, "PodDisruptionBudget/shardwright": GONE},
    ),
    "image.repository": ("mirror.example:5000/ai/op", runs("mirror.example:5000/ai/op:0.1.0")),
    "image.tag": ("v9", runs(f"{IMAGE}:v9")),
    "image.digest": (DIGEST, runs(f"{IMAGE}@{DIGEST}")),
    "image.pullPolicy": ("Always", {f"{CONTAINER}.imagePullPolicy": "Always"}),
    "imagePullSecrets": ([{"name": "pull"}], {f"{POD}.imagePullSecrets.0.name": "pull"}),
    "clusterDomain": ("k8s.example", {f"{CONTAINER}.args.5": "--cluster-domain=k8s.example"}),
    "logLevel": ("DEBUG", {f"{CONTAINER}.args.6": "--log-level=DEBUG"}),
    "maxMovingGroups": (2, {f"{CONTAINER}.args.9": "--max-moving-groups=2"}),
    "kubeApi.qps": (1000000, {f"{CONTAINER}.args.10": "--kube-api-qps=1000000"}),
    "kubeApi.burst": (1000000, {f"{CONTAINER}.args.11": "--kube-api-burst=1000000"}),
    "worker.cpuSeconds": (3, {f"{CONTAINER}.args.12": "--question-cpu-seconds=3"}),
    "worker.memoryMiB": (65536, {f"{CONTAINER}.args.13": "--worker-memory-mib=65536"}),
    "lease.durationSeconds": (60, {f"{CONTAINER}.args.14": "--lease-duration-seconds=60"}),
    "lease.renewDeadlineSeconds": (
        12,
        {f"{CONTAINER}.args.15": "--lease-renew-deadline-seconds=12"},
    ),
    "lease.retrySeconds": (1, {f"{CONTAINER}.args.16": "--lease-retry-seconds=1"}),
    "metrics.maxModelSeries": (10000000, {f"{CONTAINER}.args.19": "--max-model-series=10000000"}),
    "metrics.authentication": (
        "TokenReview",
        {
            f"{CONTAINER}.args.20": "--metrics-authentication=TokenReview",
            "ClusterRole/shardwright rules.20.apiGroups.0": "authentication.k8s.io",
            "ClusterRole/shardwright rules.20.resources.0": "tokenreviews",
            "ClusterRole/shardwright rules.20.verbs.0": "create",
            "ClusterRole/shardwright rules.21.apiGroups.0": "authorization.k8s.io",
            "ClusterRole/shardwright rules.21.resources.0": "subjectaccessreviews",
            "ClusterRole/shardwright rules.21.verbs.0": "create",
        },
    ),
    "metrics.serviceMonitor.enabled": (True, {SCRAPED: NEW}),
    "metrics.serviceMonitor.labels": (
        {"release": "ours"},
        {f"{SCRAPED} metadata.labels.release": "ours"},
    ),
    "metrics.podMonitor.enabled": (True, {MEASURED: NEW}),
    "metrics.podMonitor.labels": (
        {"release": "ours"},
        {f"{MEASURED} metadata.labels.release": "ours"},
    ),
    "metrics.prometheusRule.enabled": (True, {TOLD: NEW}),
    "metrics.dashboards.enabled": (True, dict.fromkeys(DRAWN, NEW)),
    "metrics.dashboards.labels": (
        {"team": "ai"},
        {f"{drawn} metadata.labels.team": "ai" for drawn in DRAWN},
    ),
    "metrics.prometheusRule.labels": (
        {"release": "ours"},
        {f"{TOLD} metadata.labels.release": "ours"},
    ),
    "catalogue": (
        {"acme/llama-3.1-8b": "{}"},
        {"ConfigMap/shardwright-catalogue data.models.json": '{\n  "acme/llama-3.1-8b": "{}"\n}\n'},
    ),
    "engineDefaults": (
        MIRRORED,
        {
            f"{SETTINGS}": settings_text(MIRRORED),
            f"{GROUPS} spec.variables.0.expression": '["/models"]',
            f"{ROUTERS} spec.variables.0.expression": '["/models"]',
            f"{GROUPS} spec.variables.2.expression": '["/licence"]',
        },
    ),
    "policy.admittedArguments": (
        ["trust-remote-code"],
        {f"{SETTINGS}": settings_text({}, {"admittedArguments": ["trust-remote-code"]})},
    ),
    "policy.admittedTraceCollectors": (
        ["grpc://otel:4317"],
        {f"{SETTINGS}": settings_text({}, {"admittedTraceCollectors": ["grpc://otel:4317"]})},
    ),
    "policy.admittedRuntimeClasses": (
        ["gvisor"],
        {f"{SETTINGS}": settings_text({}, {"admittedRuntimeClasses": ["gvisor"]})},
    ),
    "policy.admittedPriorityClasses": (
        {"models": ["serving"], "*": []},
        {
            f"{SETTINGS}": settings_text(
                {}, {"admittedPriorityClasses": {"*": [], "models": ["serving"]}}
            )
        },
    ),
    "policy.admittedEnvironment": (
        ["HF_ENDPOINT"],
        {f"{SETTINGS}": settings_text({}, {"admittedEnvironment": ["HF_ENDPOINT"]})},
    ),
    "policy.admittedImages": (
        ["vllm"],
        {f"{SETTINGS}": settings_text({}, {"admittedImages": ["vllm"]})},
    ),
    "policy.admittedModels": (
        ["meta-llama"],
        {f"{SETTINGS}": settings_text({}, {"admittedModels": ["meta-llama"]})},
    ),
    "policy.requireRevision": (
        "Deny",
        {f"{SETTINGS}": settings_text({}, {"requireRevision": "Deny"})},
    ),
    "policy.admittedAttachmentNamespaces": (
        ["nets"],
        {f"{SETTINGS}": settings_text({}, {"admittedAttachmentNamespaces": ["nets"]})},
    ),
    "policy.admittedLockMemory": (
        ["hpc"],
        {
            f"{SETTINGS}": settings_text({}, {"admittedLockMemory": ["hpc"]}),
            f"{GROUPS} spec.variables.4.expression": '["hpc"]',
        },
    ),
    "policy.admittedServiceAccounts": (
        {"team": ["reader"], "*": []},
        {
            f"{SETTINGS}": settings_text(
                {}, {"admittedServiceAccounts": {"team": ["reader"], "*": []}}
            ),
            f"{GROUPS} spec.variables.0.expression": '["*/","team/","team/reader"]',
            f"{ROUTERS} spec.variables.0.expression": '["*/","team/","team/reader"]',
        },
    ),
    "policy.admittedSecretVolumes": (
        {"*": ["licence"]},
        {
            f"{SETTINGS}": settings_text({}, {"admittedSecretVolumes": {"*": ["licence"]}}),
            f"{GROUPS} spec.variables.2.expression": '["*/","*/licence"]',
        },
    ),
    "policy.admittedPodKeys": (
        ["example.com"],
        {f"{SETTINGS}": settings_text({}, {"admittedPodKeys": ["example.com"]})},
    ),
    "policy.namespaceLimits": (
        {"team": {"gpus": 64}, "*": {"models": 20, "waiting": 5}},
        {
            f"{SETTINGS}": settings_text(
                {}, {"namespaceLimits": {"*": {"models": 20, "waiting": 5}, "team": {"gpus": 64}}}
            )
        },
    ),
    "configFetch.enabled": (
        False,
        {
            SETTINGS: settings_text({}, configFetch={"enabled": False}),
            **dict.fromkeys(
                (f"ClusterRole/shardwright rules.19.{field}" for field in A_RIGHT), GONE
            ),
        },
    ),
    "rollout.onUpgrade": ("Roll", {f"{SETTINGS}": settings_text({}, on_upgrade="Roll")}),
    "provenImagesFirst": (True, {f"{SETTINGS}": settings_text({}, provenImagesFirst=True)}),
    "gpus": (
        [A_GPU],
        {
            f"{SETTINGS}": settings_text({}, gpus=[A_GPU]),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/gpus": GPUS_DIGEST,
        },
    ),
    "gpuHourPrices": (
        {"H100-SXM-80GB": 2.5},
        {
            f"{SETTINGS}": settings_text({}, gpuHourPrices={"H100-SXM-80GB": 2.5}),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/nodes": _digest(
                [{"H100-SXM-80GB": 2.5}, "", "", {}, []]
            ),
        },
    ),
    "trustedLabelPrefix": (
        "node-restriction.kubernetes.io/",
        {
            f"{SETTINGS}": settings_text({}, trustedLabelPrefix="node-restriction.kubernetes.io/"),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/nodes": _digest(
                [{}, "node-restriction.kubernetes.io/", "", {}, []]
            ),
        },
    ),
    "nodeSet": (
        "team",
        {
            f"{SETTINGS}": settings_text({}, nodeSet="team"),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/nodes": _digest(
                [{}, "", "team", {}, []]
            ),
            "ClusterRole/shardwright-nodes": GONE,
            "ClusterRole/shardwright-nodes-team": NEW,
            "ClusterRole/shardwright rules.2.resourceNames.0": "shardwright-nodes-team",
        },
    ),
    "taintStates": (
        {"example.com/warm-up": "Passes"},
        {
            f"{SETTINGS}": settings_text({}, taintStates={"example.com/warm-up": "Passes"}),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/nodes": _digest(
                [{}, "", "", {"example.com/warm-up": "Passes"}, []]
            ),
        },
    ),
    "rdmaResources": (
        ["openshift.io/rdma"],
        {
            f"{SETTINGS}": settings_text({}, rdmaResources=["openshift.io/rdma"]),
            "Deployment/shardwright spec.template.metadata.annotations.shardwright.io/nodes": _digest(
                [{}, "", "", {}, ["openshift.io/rdma"]]
            ),
        },
    ),
    "autoscaledPools": (
        [A_POOL],
        {
            f"{SETTINGS}": settings_text({}, pools=[A_POOL]),
            (
                "Deployment/shardwright "
                "spec.template.metadata.annotations.shardwright.io/autoscaled-pools"
            ): POOLS_DIGEST,
        },
    ),
    "schedulers": (
        ["Native", "Coscheduling"],
        {
            "ClusterRole/shardwright rules.20.apiGroups.0": "scheduling.k8s.io",
            "ClusterRole/shardwright rules.20.apiGroups.1": "scheduling.x-k8s.io",
            "ClusterRole/shardwright rules.20.resources.0": "podgroups",
            **{
                f"ClusterRole/shardwright rules.20.verbs.{index}": verb
                for index, verb in enumerate(("get", "list", "watch", "create", "patch", "delete"))
            },
        },
    ),
    "policy.admittedExecutors": (
        ["Ray"],
        {SETTINGS: settings_text({}, {"admittedExecutors": ["Ray"]})},
    ),
    "networkPolicy.enabled": (
        False,
        {
            SETTINGS: settings_text({}, network={"enabled": False}),
            "NetworkPolicy/shardwright": GONE,
        },
    ),
    "networkPolicy.clients": (
        [MONITORING],
        {SETTINGS: settings_text({}, network={"clients": [MONITORING]})},
    ),
    "networkPolicy.metrics": (
        [MONITORING],
        {
            SETTINGS: settings_text({}, network={"metrics": [MONITORING]}),
            f"{POLICY}.from.0.namespaceSelector.matchLabels.kubernetes.io/metadata.name": "monitoring",
        },
    ),
    "networkPolicy.egress.restricted": (
        True,
        {SETTINGS: settings_text({}, network={"egress": {"restricted": True, "rules": []}})},
    ),
    "networkPolicy.egress.rules": (
        [THE_HUB],
        {
            SETTINGS: settings_text(
                {}, network={"egress": {"restricted": False, "rules": [THE_HUB]}}
            )
        },
    ),
    "signingKeys.existingSecret": (
        "keys-of-ours",
        {
            "ServiceAccount/shardwright-signing": GONE,
            "Secret/shardwright-signing": GONE,
            f"{POD}.volumes.3.secret.secretName": "keys-of-ours",
            f"{POD}.volumes.3.secret.items.0.key": "keys",
        },
    ),
    "crds.enabled": (False, {"CustomResourceDefinition/shardedmodels.shardwright.io": GONE}),
    "crds.keep": (
        False,
        {
            (
                "CustomResourceDefinition/shardedmodels.shardwright.io "
                "metadata.annotations.helm.sh/resource-policy"
            ): GONE,
            "Secret/shardwright-signing metadata.annotations.helm.sh/resource-policy": GONE,
            "ServiceAccount/shardwright-signing metadata.annotations.helm.sh/resource-policy": GONE,
        },
    ),
    "serviceAccount.annotations": (
        {"example.com/role": "12"},
        {"ServiceAccount/shardwright metadata.annotations.example.com/role": "12"},
    ),
    "rbac.aggregate": (
        False,
        {"ClusterRole/shardwright-view": GONE, "ClusterRole/shardwright-edit": GONE},
    ),
    "admissionPolicies.enabled": (
        False,
        {
            f"{kind}/{name}": GONE
            for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
            for name in EVERY_POLICY
        },
    ),
    "resources.requests": ({"cpu": 1}, {f"{CONTAINER}.resources.requests.cpu": 1}),
    "resources.limits": (
        {"memory": None},
        {f"{CONTAINER}.resources.limits.memory": GONE, f"{CONTAINER}.resources.limits": {}},
    ),
    "podDisruptionBudget.enabled": (False, {"PodDisruptionBudget/shardwright": GONE}),
    "nodeSelector": (
        {"kubernetes.io/arch": "amd64"},
        {f"{POD}.nodeSelector.kubernetes.io/arch": "amd64"},
    ),
    "tolerations": (
        [{"key": "control-plane", "operator": "Exists", "effect": "NoSchedule"}],
        {
            f"{POD}.tolerations.0.key": "control-plane",
            f"{POD}.tolerations.0.operator": "Exists",
            f"{POD}.tolerations.0.effect": "NoSchedule",
        },
    ),
    "priorityClassName": ("infrastructure", {f"{POD}.priorityClassName": "infrastructure"}),
}
REFUSALS: dict[str, tuple[Any, str]] = {
    "replicas": (0, "'/replicas': minimum: got 0, want 1"),
    "image.repository": (
        "ghcr.io/a/b:v1",
        "'/image/repository': 'ghcr.io/a/b:v1' does not match pattern",
    ),
    "image.tag": ("a b", "'/image/tag': 'a b' does not match pattern"),
    "image.digest": ("sha256:12", "'/image/digest': 'sha256:12' does not match pattern"),
    "image.pullPolicy": (
        "Sometimes",
        "'/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
    ),
    "imagePullSecrets": (["pull"], "'/imagePullSecrets/0': got string, want object"),
    "clusterDomain": ("k8s.example.", "'/clusterDomain': 'k8s.example.' does not match pattern"),
    "logLevel": ("debug", "'/logLevel': value must be one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
    "maxMovingGroups": (0, "'/maxMovingGroups': minimum: got 0, want 1"),
    "kubeApi.qps": (0, "'/kubeApi/qps': minimum: got 0, want 1"),
    "kubeApi.burst": (2.5, "'/kubeApi/burst': got number, want integer"),
    "worker.cpuSeconds": (0, "'/worker/cpuSeconds': minimum: got 0, want 1"),
    "worker.memoryMiB": (32, "'/worker/memoryMiB': minimum: got 32, want 64"),
    "lease.durationSeconds": (3600, "'/lease/durationSeconds': maximum: got 3,600, want 600"),
    "lease.renewDeadlineSeconds": (
        "10s",
        "'/lease/renewDeadlineSeconds': got string, want integer",
    ),
    "lease.retrySeconds": (-1, "'/lease/retrySeconds': minimum: got -1, want 1"),
    "metrics.maxModelSeries": (0, "'/metrics/maxModelSeries': minimum: got 0, want 1"),
    "metrics.authentication": (
        "Basic",
        "'/metrics/authentication': value must be one of 'None', 'TokenReview'",
    ),
    "metrics.serviceMonitor.enabled": (
        "yes",
        "'/metrics/serviceMonitor/enabled': got string, want boolean",
    ),
    "metrics.serviceMonitor.labels": (
        {"a": 1},
        "'/metrics/serviceMonitor/labels/a': got number, want string",
    ),
    "metrics.podMonitor.enabled": (1, "'/metrics/podMonitor/enabled': got number, want boolean"),
    "metrics.podMonitor.labels": (
        {"a": 2.5},
        "'/metrics/podMonitor/labels/a': got number, want string",
    ),
    "metrics.prometheusRule.enabled": (
        "no",
        "'/metrics/prometheusRule/enabled': got string, want boolean",
    ),
    "metrics.dashboards.enabled": ("no", "'/metrics/dashboards/enabled': got string, want boolean"),
    "metrics.dashboards.labels": (
        {"a": 1},
        "'/metrics/dashboards/labels/a': got number, want string",
    ),
    "metrics.prometheusRule.labels": (
        {"a": True},
        "'/metrics/prometheusRule/labels/a': got boolean, want string",
    ),
    "catalogue": (
        {"acme/llama": "./config.json"},
        "'/catalogue/acme~1llama': './config.json' does not match pattern",
    ),
    "engineDefaults": (
        {"engine": {"image": "-"}},
        "'/engineDefaults/engine/image': '-' does not match pattern",
    ),
    "policy.admittedArguments": (
        ["--config"],
        "'/policy/admittedArguments/0': '--config' does not match pattern",
    ),
    "policy.admittedTraceCollectors": (
        ["otel collector"],
        "'/policy/admittedTraceCollectors/0': 'otel collector' does not match pattern",
    ),
    "policy.admittedPriorityClasses": (
        {"models": ["High"]},
        "'/policy/admittedPriorityClasses/models/0': 'High' does not match pattern",
    ),
    "policy.admittedEnvironment": (
        ["A B"],
        "'/policy/admittedEnvironment/0': 'A B' does not match pattern",
    ),
    "policy.admittedImages": (["/a"], "'/policy/admittedImages/0': '/a' does not match pattern"),
    "policy.admittedModels": (["a b"], "'/policy/admittedModels/0': 'a b' does not match pattern"),
    "watchNamespaces": (["Team"], "'/watchNamespaces/0': 'Team' does not match pattern"),
    "clusterPods": ("no", "'/clusterPods': got string, want boolean"),
    "nodeSet": ("a.b", "'/nodeSet': 'a.b' does not match pattern"),
    "policy.requireRevision": (
        "warn",
        "'/policy/requireRevision': value must be one of 'Off', 'Warn', 'Deny'",
    ),
    "policy.admittedAttachmentNamespaces": (
        ["Nets"],
        "'/policy/admittedAttachmentNamespaces/0': 'Nets' does not match pattern",
    ),
    "policy.admittedLockMemory": (
        [True],
        "'/policy/admittedLockMemory/0': got boolean, want string",
    ),
    "policy.admittedServiceAccounts": (
        {"team": ["A"]},
        "'/policy/admittedServiceAccounts/team/0': 'A' does not match pattern",
    ),
    "policy.admittedSecretVolumes": (
        {"team": "a"},
        "'/policy/admittedSecretVolumes/team': got string, want array",
    ),
    "policy.admittedPodKeys": (
        ["a/b"],
        "'/policy/admittedPodKeys/0': 'a/b' does not match pattern",
    ),
    "policy.namespaceLimits": (
        {"team": {"gpus": -1}},
        "'/policy/namespaceLimits/team/gpus': minimum: got -1, want 0",
    ),
    "prometheus.url": ("prometheus:9090", "'/prometheus/url': 'prometheus:9090' does not match"),
    "router.image": (7, "'/router/image': got number, want string"),
    "inferencePools.enabled": ("yes", "'/inferencePools/enabled': got string, want boolean"),
    "provenImagesFirst": ("AMD", "'/provenImagesFirst': got string, want boolean"),
    "rollout.onUpgrade": ("Always", "'/rollout/onUpgrade': value must be one of 'Keep', 'Roll'"),
    "policy.admittedRuntimeClasses": (
        ["Kata"],
        "'/policy/admittedRuntimeClasses/0': 'Kata' does not match pattern",
    ),
    "gpus": ([A_GPU | {"memoryMiB": 12}], "'/gpus/0/memoryMiB': minimum: got 12, want 1,024"),
    "gpuHourPrices": (
        {"H100-SXM-80GB": 0},
        "'/gpuHourPrices/H100-SXM-80GB': minimum: got 0, want 0.0001",
    ),
    "taintStates": (
        {"a": "Tolerate"},
        "'/taintStates/a': value must be one of 'Reserved', 'Passes', 'Ends'",
    ),
    "rdmaResources": (["rdma"], "'/rdmaResources/0': 'rdma' does not match pattern"),
    "trustedLabelPrefix": (
        "a.example",
        "'/trustedLabelPrefix': 'a.example' does not match pattern",
    ),
    "autoscaledPools": (
        [A_POOL | {"maxNodes": 0}],
        "'/autoscaledPools/0/maxNodes': minimum: got 0, want 1",
    ),
    "schedulers": (["Kueue"], "'/schedulers/0': value must be one of 'Native', 'Coscheduling'"),
    "policy.admittedExecutors": (
        ["Slurm"],
        "'/policy/admittedExecutors/0': value must be one of 'Native', 'Ray'",
    ),
    "configFetch.enabled": ("no", "'/configFetch/enabled': got string, want boolean"),
    "dra.enabled": ("no", "'/dra/enabled': got string, want boolean"),
    "networkPolicy.enabled": ("yes", "'/networkPolicy/enabled': got string, want boolean"),
    "networkPolicy.clients": (
        [{"pods": {}}],
        "'/networkPolicy/clients/0': additional properties 'pods' not allowed",
    ),
    "networkPolicy.metrics": ("monitoring", "'/networkPolicy/metrics': got string, want array"),
    "networkPolicy.egress.restricted": (
        1,
        "'/networkPolicy/egress/restricted': got number, want boolean",
    ),
    "networkPolicy.egress.rules": (
        [{"ports": [{"port": 0}]}],
        "'/networkPolicy/egress/rules/0/ports/0/port': minimum: got 0, want 1",
    ),
    "signingKeys.existingSecret": (
        "Keys",
        "'/signingKeys/existingSecret': 'Keys' does not match pattern",
    ),
    "crds.enabled": ("yes", "'/crds/enabled': got string, want boolean"),
    "crds.keep": (1, "'/crds/keep': got number, want boolean"),
    "serviceAccount.annotations": (
        {"example.com/role": 12},
        "'/serviceAccount/annotations/example.com~1role': got number, want string",
    ),
    "rbac.aggregate": ("no", "'/rbac/aggregate': got string, want boolean"),
    "admissionPolicies.enabled": ("yes", "'/admissionPolicies/enabled': got string, want boolean"),
    "resources.requests": (
        {"memory": "256MB"},
        "'/resources/requests/memory': '256MB' does not match pattern",
    ),
    "resources.limits": (
        {"cpu": True},
        "'/resources/limits/cpu': got boolean, want number or string",
    ),
    "podDisruptionBudget.enabled": (2, "'/podDisruptionBudget/enabled': got number, want boolean"),
    "nodeSelector": ({"gpu": True}, "'/nodeSelector/gpu': got boolean, want string"),
    "tolerations": (
        [{"effect": "None"}],
        (
            "'/tolerations/0/effect': value must be one of 'NoSchedule', 'PreferNoSchedule', "
            "'NoExecute'"
        ),
    ),
    "priorityClassName": ("High", "'/priorityClassName': 'High' does not match pattern"),
}


def test_every_value_has_a_default_a_description_an_effect_and_a_refusal() -> None:
    described = described_values()

    assert set(EFFECTS) | set(FITTED) | TESTED_APART == set(REFUSALS) | set(WRONG) == set(described)
    assert not set(EFFECTS) & set(FITTED)
    assert all(text.endswith((".", ").")) for text in described.values())
    assert {path.split(".")[0] for path in described} == set(defaults())
    assert [path for path in described if default_of(path) is None] == []


def _leaves(node: Mapping[str, Any], described: set[str], at: str = "") -> Iterator[str]:
    for name, value in node.items():
        path = f"{at}{name}"
        if path in described or not isinstance(value, dict):
            yield path
        else:
            yield from _leaves(value, described, f"{path}.")


def test_no_default_is_unknown_to_the_schema() -> None:
    described = set(described_values())
    assert set(_leaves(defaults(), described)) == described
    assert schema()["additionalProperties"] is False


def _apart(path: str) -> set[str]:
    """Return what no two values of one rendering may share: the part of the values that they are
    in, and what they change.

    Rules and variables are found by their numbers, which others of the same object move. Labels of
    all objects are also of one that is there for its own labels alone.
    """
    labels = {"labels"} if path.lower().endswith("labels") else set()
    changed = {
        re.sub(r" (rules|spec\.variables)\..*", "", item)
        for item in (EFFECTS | FITTED)[path][1]
        if item != SETTINGS
    }
    whole = {item for item in changed if " " not in item}
    return {path.partition(".")[0], *labels, *changed, *(f"whole {item}" for item in whole)}


def _meet(one: set[str], other: set[str]) -> bool:
    return bool(one & other) or any(
        f"whole {item.partition(' ')[0]}" in mine
        for mine, theirs in ((one, other), (other, one))
        for item in theirs
    )


def _together(paths: Iterable[str]) -> list[list[str]]:
    """Return the values by rendering: those that have nothing to do with each other share one."""
    found: list[tuple[list[str], set[str]]] = []
    for path in paths:
        apart = _apart(path)
        for members, taken in found:
            if not _meet(apart, taken):
                members.append(path)
                taken.update(apart)
                break
        else:
            found.append(([path], apart))
    return [members for members, _ in found]


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    return new


def _changes(old: Any, new: Any) -> Any:
    """Return those parts of a JSON object that are otherwise than in another one."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {
        key: _changes(old.get(key), value) for key, value in new.items() if old.get(key) != value
    }


def _expected(paths: Iterable[str]) -> dict[str, Any]:
    """Return what all of these values change together."""
    found = [(EFFECTS | FITTED)[path][1] for path in paths]
    settings = delivered = json.loads(settings_text({}))
    for effect in found:
        if SETTINGS in effect:
            settings = _merged(settings, _changes(delivered, json.loads(effect[SETTINGS])))
    changed = {path: value for effect in found for path, value in effect.items()}
    if SETTINGS in changed:
        changed[SETTINGS] = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    return changed


@pytest.mark.parametrize("paths", _together(EFFECTS | FITTED), ids=" ".join)
def test_each_value_changes_just_what_it_says(
    control_plane: ControlPlane, as_delivered: list[Manifest], tmp_path: Path, paths: list[str]
) -> None:
    before = as_delivered
    # Labels are of an object that is there only where it is asked for.
    of_what = [path.removesuffix("labels") for path in paths if path.endswith(".labels")]
    switched_on = [word for name in of_what for word in ("--set", f"{name}enabled=true")]
    if switched_on:
        before = render(control_plane, *switched_on)
    values = _values(tmp_path, {path: (EFFECTS | FITTED)[path][0] for path in paths})

    after = render(control_plane, *switched_on, "--values", values)

    assert difference(before, after) == _expected(paths)


def test_each_wrong_value_is_refused_with_its_path_and_the_limit(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    wrong = {path: value for path, (value, _) in (REFUSALS | WRONG).items()}

    said = _template(control_plane, "--values", _values(tmp_path, wrong))
    _says_just(said, [message for _, message in (REFUSALS | WRONG).values()])


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        (
            "replica=2,image.name=x,crds.install=true,resources.claims=x,catalogue.a b=x",
            (
                "'': additional properties 'replica' not allowed",
                "'/image': additional properties 'name' not allowed",
                "'/crds': additional properties 'install' not allowed",
                "'/resources': additional properties 'claims' not allowed",
                "'/catalogue': additional properties 'a b' not allowed",
            ),
        ),
        ("replicas=two", ("'/replicas': got string, want integer",)),
        ("replicas=6", ("'/replicas': maximum: got 6, want 5",)),
    ],
)
def test_unknown_values_are_refused(
    control_plane: ControlPlane, flags: str, messages: tuple[str, ...]
) -> None:
    _says_just(_template(control_plane, "--set", flags), messages)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "lease.durationSeconds=10",
            "lease.renewDeadlineSeconds (10) must be less than lease.durationSeconds (10)",
        ),
        (
            "lease.retrySeconds=6",
            "lease.retrySeconds (6) must be at most half of lease.renewDeadlineSeconds (10)",
        ),
    ],
)
def test_timings_of_the_lease_that_contradict_each_other_are_refused(
    control_plane: ControlPlane, flags: str, message: str
) -> None:
    assert message in control_plane.helm(
        "template", "shardwright", str(CHART), *NAMED, "--set", flags, check=False
    )


def test_plans_are_served_only_where_the_api_server_is_asked_who_asks(
    control_plane: ControlPlane,
) -> None:
    known = render(control_plane, "--set", "metrics.authentication=TokenReview")
    shown = render(control_plane, "--set", "metrics.authentication=TokenReview,plans.enabled=true")
    refused = control_plane.helm(
        "template", "shardwright", str(CHART), *NAMED, "--set", "plans.enabled=true", check=False
    )

    assert difference(known, shown) == {f"{CONTAINER}.args.22": "--plans"}
    assert "set metrics.authentication to TokenReview" in refused


def test_what_a_parent_chart_hands_down_is_ignored(
    control_plane: ControlPlane, as_delivered: list[Manifest]
) -> None:
    assert render(control_plane, "--set", "global.region=eu") == as_delivered


def test_a_digest_wins_over_a_tag(
    control_plane: ControlPlane, as_delivered: list[Manifest]
) -> None:
    both = render(control_plane, "--set", f"image.tag=v9,image.digest={DIGEST}")

    assert difference(as_delivered, both) == runs(f"{IMAGE}@{DIGEST}")


def test_a_config_from_a_file_reaches_the_catalogue_unchanged(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(CONFIG)

    objects = render(control_plane, "--set-file", rf"catalogue.acme/llama-3\.1-8b={file}")

    text = named(objects, "ConfigMap", "-catalogue")["data"]["models.json"]
    assert json.loads(text) == {"acme/llama-3.1-8b": CONFIG}


def test_what_the_chart_delivers_is_what_the_operator_reads(as_delivered: list[Manifest]) -> None:
    assert read_settings(
        named(as_delivered, "ConfigMap", "-settings")["data"]["settings.json"]
    ) == Settings(config_fetch=ConfigFetch(enabled=True))


def _says_just(said: str, messages: Collection[str]) -> None:
    """Check that helm names each of these mistakes and no other, however it groups them."""
    assert [message for message in messages if f"- at {message}" not in said] == []
    assert said.count("- at ") - said.count(": validation failed\n") == len(messages)


def _template(control_plane: ControlPlane, *arguments: str) -> str:
    said = control_plane.helm(
        "template", "shardwright", str(CHART), *NAMED, *arguments, check=False
    )
    assert said.startswith("Error: values don't meet the specifications of the schema(s)"), said
    return said


def _values(folder: Path, values: Mapping[str, Any]) -> str:
    """Return a file that sets values by their dotted paths."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        inner = value
        for step in reversed(path.split(".")):
            inner = {step: inner}
        nested = _merged(nested, inner)
    file = folder / "values.yaml"
    file.write_text(json.dumps(nested))
    return str(file)
