"""The values that fit the chart to a company: one of each with all that it changes, and a wrong one
with what Helm says of it.
"""

from typing import Any, Final

from tests.support.builders_chart import EVERY_POLICY, GONE, NEW, POLICIES, SYSTEM

POD: Final = "Deployment/shardwright spec.template.spec"
JOBS = "ValidatingAdmissionPolicy/shardwright-jobs"
CONTAINER: Final = f"{POD}.containers.0"
BUDGET: Final = "PodDisruptionBudget/shardwright spec"
ACCOUNTS: Final = (
    "ClusterRoleBinding/shardwright subjects.0.name",
    "RoleBinding/shardwright-leader subjects.0.name",
)
KINDS: Final = (
    "ClusterRole/shardwright",
    "ClusterRole/shardwright-edit",
    "ClusterRole/shardwright-namespaces",
    "ClusterRole/shardwright-nodes",
    "ClusterRole/shardwright-view",
    "ClusterRoleBinding/shardwright",
    "ConfigMap/shardwright-catalogue",
    "ConfigMap/shardwright-settings",
    "CustomResourceDefinition/shardedmodels.shardwright.io",
    "Deployment/shardwright",
    "NetworkPolicy/shardwright",
    "PodDisruptionBudget/shardwright",
    "Role/shardwright-leader",
    "RoleBinding/shardwright-leader",
    "Secret/shardwright-signing",
    "Service/shardwright-metrics",
    "ServiceAccount/shardwright",
    "ServiceAccount/shardwright-signing",
)
"""What the chart labels, beside the policies."""
REQUIRED: Final = (
    f"{POD}"
    ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"
)
TERM: Final = {"key": "pool", "operator": "In", "values": ["system"]}


def of_account(name: str) -> dict[str, Any]:
    """Return what says that the operator runs as another service account."""
    user = f"system:serviceaccount:{SYSTEM}:{name}"
    policy = "spec.matchConditions.0.expression"
    return {
        f"{POD}.serviceAccountName": name,
        **dict.fromkeys(ACCOUNTS, name),
        **{
            f"ValidatingAdmissionPolicy/{policy_name} {policy}": f"request.userInfo.username == '{user}'"
            for policy_name in POLICIES
        },
    }


def runs(image: str) -> dict[str, str]:
    """Return where the operator's image stands: in its pod, and in what its Jobs may run."""
    return {f"{CONTAINER}.image": image, f"{JOBS} spec.variables.0.expression": f"'{image}'"}


EFFECTS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "global.imageRegistry": (
        "mirror.example/proxy",
        runs("mirror.example/proxy/shardwright/operator:0.1.0"),
    ),
    "commonLabels": (
        {"cost-centre": "7", "app.kubernetes.io/name": "other"},
        {
            "Deployment/shardwright spec.template.metadata.labels.cost-centre": "7",
            **{f"{name} metadata.labels.cost-centre": "7" for name in KINDS},
            (
                "CustomResourceDefinition/shardedmodels.shardwright.io "
                "metadata.labels.app.kubernetes.io/name"
            ): "other",
            **{
                f"{kind}/{name} metadata.labels.cost-centre": "7"
                for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
                for name in EVERY_POLICY
            },
        },
    ),
    "serviceAccount.name": (
        "operators",
        {
            **of_account("operators"),
            "ServiceAccount/shardwright": GONE,
            "ServiceAccount/operators": NEW,
        },
    ),
    "serviceAccount.automount": (
        True,
        {"ServiceAccount/shardwright automountServiceAccountToken": True},
    ),
    "podDisruptionBudget.minAvailable": ("50%", {f"{BUDGET}.minAvailable": "50%"}),
    "podDisruptionBudget.maxUnavailable": (
        0,
        {f"{BUDGET}.maxUnavailable": 0, f"{BUDGET}.minAvailable": GONE},
    ),
    "affinity": (
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [TERM]}]
                }
            }
        },
        {
            f"{REQUIRED}.matchExpressions.0.key": "pool",
            f"{REQUIRED}.matchExpressions.0.operator": "In",
            f"{REQUIRED}.matchExpressions.0.values.0": "system",
        },
    ),
    "topologySpreadConstraints": (
        [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            {
                "maxSkew": 1,
                "topologyKey": "rack",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"a": "b"}},
            },
        ],
        {
            f"{POD}.topologySpreadConstraints.0.maxSkew": 2,
            f"{POD}.topologySpreadConstraints.0.topologyKey": "zone",
            f"{POD}.topologySpreadConstraints.0.whenUnsatisfiable": "DoNotSchedule",
            f"{POD}.topologySpreadConstraints.1.maxSkew": 1,
            f"{POD}.topologySpreadConstraints.1.topologyKey": "rack",
            f"{POD}.topologySpreadConstraints.1.whenUnsatisfiable": "ScheduleAnyway",
            f"{POD}.topologySpreadConstraints.1.labelSelector.matchLabels.a": "b",
        },
    ),
    "podAnnotations": (
        {"example.com/team": "serving"},
        {"Deployment/shardwright spec.template.metadata.annotations.example.com/team": "serving"},
    ),
    "podLabels": (
        {"team": "serving", "app.kubernetes.io/name": "other"},
        {"Deployment/shardwright spec.template.metadata.labels.team": "serving"},
    ),
    "podSecurityContext": (
        {"runAsUser": None, "runAsGroup": None, "fsGroup": None, "supplementalGroups": [7]},
        {
            f"{POD}.securityContext.runAsUser": GONE,
            f"{POD}.securityContext.runAsGroup": GONE,
            f"{POD}.securityContext.fsGroup": GONE,
            f"{POD}.securityContext.supplementalGroups.0": 7,
        },
    ),
    "securityContext": (
        None,
        {
            f"{CONTAINER}.securityContext.allowPrivilegeEscalation": GONE,
            f"{CONTAINER}.securityContext.readOnlyRootFilesystem": GONE,
            f"{CONTAINER}.securityContext.capabilities.drop.0": GONE,
        },
    ),
    "dnsPolicy": ("Default", {f"{POD}.dnsPolicy": "Default"}),
    "dnsConfig": (
        {"options": [{"name": "ndots", "value": "2"}]},
        {f"{POD}.dnsConfig.options.0.name": "ndots", f"{POD}.dnsConfig.options.0.value": "2"},
    ),
    "extraEnv": (
        [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        {
            f"{CONTAINER}.env.3.name": "HTTPS_PROXY",
            f"{CONTAINER}.env.3.value": "http://proxy.example:3128",
        },
    ),
    "extraArgs": (["--workers=32"], {f"{CONTAINER}.args.22": "--workers=32"}),
    "extraObjects": (
        [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "{{ .Release.Name }}-object"},
            },
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Namespace }}-text}}",
        ],
        {"ConfigMap/shardwright-object": NEW, f"ConfigMap/{SYSTEM}-text": NEW},
    ),
}
TESTED_APART: Final = {
    "fullnameOverride",
    "serviceAccount.create",
    "plans.enabled",
    "watchNamespaces",
    "clusterPods",
    "dra.enabled",
    "prometheus.url",
    "router.image",
    "inferencePools.enabled",
}
"""What changes everything, what needs another value beside it, and what `test_several.py` is
about.
"""

REFUSALS: Final[dict[str, tuple[Any, str]]] = {
    "global.imageRegistry": (
        "https://mirror.example",
        "'/global/imageRegistry': 'https://mirror.example' does not match pattern",
    ),
    "plans.enabled": ("yes", "'/plans/enabled': got string, want boolean"),
    "fullnameOverride": ("4us", "'/fullnameOverride': '4us' does not match pattern"),
    "commonLabels": ({"a": "b c"}, "'/commonLabels/a': 'b c' does not match pattern"),
    "serviceAccount.create": ("no", "'/serviceAccount/create': got string, want boolean"),
    "serviceAccount.name": (
        "Operators",
        "'/serviceAccount/name': 'Operators' does not match pattern",
    ),
    "serviceAccount.automount": (0, "'/serviceAccount/automount': got number, want boolean"),
    "podDisruptionBudget.minAvailable": (
        "half",
        "'/podDisruptionBudget/minAvailable': 'half' does not match pattern",
    ),
    "podDisruptionBudget.maxUnavailable": (
        -1,
        "'/podDisruptionBudget/maxUnavailable': minimum: got -1, want 0",
    ),
    "affinity": (
        {"nodeAffinty": {}},
        "'/affinity': additional properties 'nodeAffinty' not allowed",
    ),
    "topologySpreadConstraints": (
        [{"maxSkew": 1, "topologyKey": "zone"}],
        "'/topologySpreadConstraints/0': missing property 'whenUnsatisfiable'",
    ),
    "podAnnotations": ({"a": 1}, "'/podAnnotations/a': got number, want string"),
    "podLabels": ({"a": "b c"}, "'/podLabels/a': 'b c' does not match pattern"),
    "podSecurityContext": (
        {"runAsUsr": 1},
        "'/podSecurityContext': additional properties 'runAsUsr' not allowed",
    ),
    "securityContext": (
        {"privileged": "no"},
        "'/securityContext/privileged': got string, want null or boolean",
    ),
    "dnsPolicy": (
        "Cluster",
        (
            "'/dnsPolicy': value must be one of '', 'ClusterFirst', 'ClusterFirstWithHostNet', "
            "'Default', 'None'"
        ),
    ),
    "dnsConfig": ({"servers": []}, "'/dnsConfig': additional properties 'servers' not allowed"),
    "extraEnv": ([{"value": "x"}], "'/extraEnv/0': missing property 'name'"),
    "extraArgs": (["--kubeconfig=x"], "'/extraArgs/0': '--kubeconfig=x' does not match pattern"),
    "extraObjects": ([7], "'/extraObjects/0': got number, want string or object"),
}
