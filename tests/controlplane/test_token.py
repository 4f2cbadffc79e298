"""What the operator's own token is worth in other hands: attacks with it on a real API server,
under the chart's policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from shardwright.costs.workload import Phase
from shardwright.reconcile.drift import drifted_fields
from shardwright.rendering.deployment import Owner, PairMember, PodNetwork, SecretKey
from shardwright.rendering.fetch_job import Fetcher, HubFetch, fetch_job
from tests.engine.launches import Launch, first_deployable
from tests.harness.api import Api, ApiError, Manifest
from tests.harness.compute_domains import compute_domains
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_small_plan,
    a_trtllm_deployment,
)
from tests.support.builders_resource import a_sharded_model
from tests.support.operator import SYSTEM, operator_api
from tests.support.stored import (
    IMAGE_VOLUME,
    MORE,
    NATIVE,
    PATHS,
    ROUTED,
    differences,
    objects_of,
    pods,
    runnable,
    stored,
)

pytestmark = pytest.mark.controlplane

MODELS = "served"
OTHERS = "other-tenants"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
CONFIG_MAPS = f"/api/v1/namespaces/{MODELS}/configmaps"
OWNER = {
    "apiVersion": "shardwright.io/v1alpha1",
    "kind": "ShardedModel",
    "name": "m",
    "controller": True,
}


LOCKED = Launch(
    id="locked memory",
    plan=a_plan(rdma=(("rdma/hca", 1),)),
    deployment=a_deployment(network=PodNetwork(lock_memory=True)),
    config={},
)

SEEDED = Launch(
    id="Secrets of names that nobody can foresee",
    plan=a_plan(),
    deployment=a_trtllm_deployment(secret_seed="5eed"),
    config={},
)

PAIRED = tuple(
    Launch(
        id=f"{phase} of a pair",
        plan=a_small_plan(),
        deployment=replace(
            ROUTED.deployment,
            owner=Owner(name=f"llama-{phase.lower()}", namespace=MODELS, uid=phase),
            half=PairMember(phase=phase, pair="llama"),
            router=ROUTED.deployment.router if phase is Phase.DECODE else None,
        ),
        config={},
    )
    for phase in (Phase.PREFILL, Phase.DECODE)
)


@pytest.fixture(scope="module")
def cluster(gated: ControlPlane) -> Iterator[ControlPlane]:
    """A namespace with a model in it, and one of somebody else, with objects of theirs."""
    gated.create_namespace(MODELS)
    gated.create_namespace(OTHERS)
    path = f"/apis/shardwright.io/v1alpha1/namespaces/{MODELS}/shardedmodels"
    gated.api.create(path, {**a_sharded_model(), "metadata": {"name": "m", "namespace": MODELS}})
    gated.api.create(
        f"/api/v1/namespaces/{OTHERS}/configmaps",
        {"metadata": {"name": "theirs-plan"}, "data": {"a": "1"}},
    )
    gated.api.create(f"/api/v1/namespaces/{OTHERS}/pods", a_bare_pod("theirs-0"))
    yield gated
    for name in (MODELS, OTHERS):
        gated.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def stolen(cluster: ControlPlane) -> Iterator[Api]:
    """A client with the token of the operator, which has made something for a model that does not
    exist.
    """
    found = operator_api(cluster)
    found.create(CONFIG_MAPS, owned("ConfigMap", "nobody-plan"))
    yield found
    found.close()


def a_bare_pod(name: str) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "c"}]}}


@cache
def _first() -> Launch:
    """Return a launch; the attacks are written when this module is read, by every process of a
    run.
    """
    return first_deployable()


def a_group(**pod: Any) -> Manifest:
    """Return a StatefulSet as the operator makes it, and its pods with other fields."""
    item = deepcopy(
        next(item for item in objects_of(_first(), MODELS) if item["kind"] == "StatefulSet")
    )
    item["spec"]["template"]["spec"] |= pod
    return item


def in_container(**fields: Any) -> Manifest:
    """Return the same with other fields of its container; what is a mapping there is added to."""
    item = a_group()
    (container,) = item["spec"]["template"]["spec"]["containers"]
    container |= {
        name: {**container.get(name, {}), **it} if isinstance(it, dict) else it
        for name, it in fields.items()
    }
    return item


def owned(kind: str, name: str, **fields: Any) -> Manifest:
    uid = "6f9d1f6e-0c5b-4b3e-9b1f-2a7c1d0e4f55"
    return {
        "kind": kind,
        "metadata": {"name": name, "ownerReferences": [{**OWNER, "uid": uid}]},
        **fields,
    }


@dataclass(frozen=True)
class Attack:
    """A request with the operator's token, and what the API server says to it."""

    said: str
    body: Manifest
    namespace: str = MODELS

    @property
    def path(self) -> str:
        return {**PATHS, "Job": JOBS}[self.body["kind"]].format(self.namespace)


def a_router(pod: Manifest | None = None, **fields: Any) -> Manifest:
    """Return a router as the operator makes it, and its pods and their container with other
    fields.
    """
    [item] = (item for item in objects_of(ROUTED, MODELS) if item["kind"] == "Deployment")
    item = deepcopy(item)
    spec = item["spec"]["template"]["spec"]
    spec |= pod or {}
    (container,) = spec["containers"]
    container |= {
        name: {**container[name], **it} if isinstance(it, dict) else it
        for name, it in fields.items()
    }
    return item


def with_volume(**volume: Any) -> Manifest:
    item = a_group()
    item["spec"]["template"]["spec"]["volumes"] += [{"name": "more", **volume}]
    return item


def with_claims(name: str) -> Manifest:
    item = a_group()
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Ti"}}}
    item["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": name}, "spec": claim}]
    return item


def renamed(item: Manifest, name: str) -> Manifest:
    return {**item, "metadata": {**item["metadata"], "name": name}}


DENIED = "denied request"  # by several policies: which one is said is chance
WHOSE = "only objects that a ShardedModel controls"
WHERE = "the operator writes nothing in namespaces of the system, or in its own"
FIELDS = "pods of the operator have the fields that it renders"
PARTS = "containers of the operator have the fields that it renders"
MOUNTS = "mount empty folders, claims, images, ConfigMaps, their ssh key and token"
CAPABLE = "have no capability, but for IPC_LOCK where it is admitted"
ACCOUNT = (
    "have no service account but the default one and those that are admitted, and no token of it"
)
VARIABLES = "take no variable from a Secret but HF_TOKEN, VLLM_API_KEY and"
SYSTEMIC = "have no priority of the system"
USERS = "run under the runtime's seccomp profile, and as root only to lock memory"
NAMES = "objects of the operator are named after their model"
KEYS = "Secrets of the operator are ssh keys and tokens of its groups"
POLICY = "are about pods of a model or its router, and are named"
SERVICES = "are of type ClusterIP and select pods of a model"
SELECTS = {"selector": {"shardwright.io/model": "m"}, "ports": [{"port": 80}]}
TOKEN = {"serviceAccountToken": {"path": "token"}}
DROPPED = {"drop": ["ALL"]}
A_SECRET = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "k"}}}
A_KEY = {
    "type": "shardwright.io/ssh-key",
    "immutable": True,
    "data": {"id_ed25519": "", "id_ed25519.pub": ""},
}

A_TOKEN = {"type": "shardwright.io/group-token", "immutable": True, "data": {"token": ""}}

GROUPS = {
    "PodDisruptionBudget": "policy/v1",
    "StatefulSet": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}

CREATES: dict[str, Attack] = {
    "a pod in kube-system": Attack(WHERE, {"kind": "Pod", **a_bare_pod("esc")}, "kube-system"),
    "a pod": Attack("creates pods only as dry runs", {"kind": "Pod", **a_bare_pod("esc")}),
    "aws-auth": Attack(
        DENIED, {"kind": "ConfigMap", "metadata": {"name": "aws-auth"}}, "kube-system"
    ),
    "aws-auth of a model": Attack(DENIED, owned("ConfigMap", "aws-auth"), "kube-system"),
    "settings of its own": Attack(WHERE, owned("ConfigMap", "shardwright-plan"), SYSTEM),
    "a ConfigMap of nobody": Attack(WHOSE, {"kind": "ConfigMap", "metadata": {"name": "m-plan"}}),
    "a ConfigMap of another name": Attack(
        "keep a plan, scripts or a model's config", owned("ConfigMap", "kube-root-ca.crt")
    ),
    "a Service of nobody": Attack(
        WHOSE, {"kind": "Service", "metadata": {"name": "m"}, "spec": SELECTS}
    ),
    "a Service that takes all pods": Attack(
        SERVICES, owned("Service", "m", spec={"ports": [{"port": 80}]})
    ),
    "a Service that leads elsewhere": Attack(
        SERVICES,
        owned("Service", "m", spec={"type": "ExternalName", "externalName": "evil.example"}),
    ),
    "a Service on every node": Attack(
        SERVICES, owned("Service", "m", spec={**SELECTS, "type": "NodePort"})
    ),
    "a Service with an address of somebody": Attack(
        "gives no Service external addresses",
        owned("Service", "m", spec={**SELECTS, "externalIPs": ["192.0.2.1"]}),
    ),
    "a budget that stops each drain": Attack(
        "are about pods of a model",
        owned("PodDisruptionBudget", "m", spec={"maxUnavailable": 0, "selector": {}}),
    ),
    "a Secret of another type": Attack(
        KEYS,
        owned(
            "Secret",
            "m-ssh-0123456789",
            type="kubernetes.io/dockerconfigjson",
            data={".dockerconfigjson": "e30="},
        ),
    ),
    "a Secret of another name": Attack(KEYS, owned("Secret", "m-registry", **A_KEY)),
    "a Secret with other keys": Attack(
        KEYS, owned("Secret", "m-ssh-0123456789", **{**A_KEY, "data": {"tls.key": ""}})
    ),
    "a token of another name": Attack(KEYS, owned("Secret", "m-ssh-0123456789", **A_TOKEN)),
    "a token that changes": Attack(
        KEYS, owned("Secret", "m-token-0123456789", **{**A_TOKEN, "immutable": False})
    ),
    "a token with other keys": Attack(
        KEYS, owned("Secret", "m-token-0123456789", **{**A_TOKEN, "data": {"password": ""}})
    ),
    "a NetworkPolicy of all pods": Attack(
        POLICY,
        owned(
            "NetworkPolicy",
            "m-network",
            spec={"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"]},
        ),
    ),
    "a NetworkPolicy of another name": Attack(
        POLICY,
        owned(
            "NetworkPolicy",
            "m-others",
            spec={"podSelector": {"matchLabels": SELECTS["selector"]}, "ingress": [{}]},
        ),
    ),
    "a Secret of nobody": Attack(
        WHOSE, {"kind": "Secret", "metadata": {"name": "m-ssh-0123456789"}, **A_KEY}
    ),
    "a group of nobody": Attack(WHOSE, {**a_group(), "metadata": {"name": "m-0"}}),
    "a group of a Deployment": Attack(
        WHOSE,
        {
            **a_group(),
            "metadata": owned("", "m-0")["metadata"]
            | {
                "ownerReferences": [
                    {**OWNER, "uid": "1", "apiVersion": "apps/v1", "kind": "Deployment"}
                ]
            },
        },
    ),
    "a Service in kube-system": Attack(
        WHERE, owned("Service", "kube-dns", spec=SELECTS), "kube-system"
    ),
    "a group with another account": Attack(
        ACCOUNT, a_group(serviceAccountName="clusterrole-aggregation-controller")
    ),
    "a group with an account by its old name": Attack(ACCOUNT, a_group(serviceAccount="builder")),
    "a group with a token": Attack(ACCOUNT, a_group(automountServiceAccountToken=True)),
    "a group with a projected token": Attack(MOUNTS, with_volume(projected={"sources": [TOKEN]})),
    "a group with the host's files": Attack(MOUNTS, with_volume(hostPath={"path": "/"})),
    "a group with a driver's files": Attack(
        MOUNTS, with_volume(csi={"driver": "secrets-store.csi.k8s.io"})
    ),
    "a group with a Secret": Attack(MOUNTS, with_volume(secret={"secretName": "theirs"})),
    "a group with the host's processes": Attack(FIELDS, a_group(hostPID=True)),
    "a group with the host's memory": Attack(FIELDS, a_group(hostIPC=True)),
    "a group past the scheduler": Attack(FIELDS, a_group(nodeName="control-plane-0")),
    "a group with a port of the host": Attack(
        PARTS, in_container(ports=[{"containerPort": 80, "hostPort": 80}])
    ),
    "a group with a capability": Attack(
        CAPABLE,
        in_container(securityContext={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
    ),
    "a group that keeps its capabilities": Attack(
        CAPABLE, in_container(securityContext={"capabilities": {}})
    ),
    "a group that becomes more": Attack(
        CAPABLE, in_container(securityContext={"allowPrivilegeEscalation": True})
    ),
    "a group that may call anything": Attack(
        "the runtime's seccomp profile",
        a_group(securityContext={"seccompProfile": {"type": "Unconfined"}, "runAsUser": 1}),
    ),
    "a group with a privileged first container": Attack(
        PARTS,
        a_group(
            initContainers=[{"name": "i", "image": "i", "securityContext": {"privileged": True}}]
        ),
    ),
    "a group with all keys of a Secret": Attack(
        PARTS, in_container(envFrom=[{"secretRef": {"name": "theirs"}}])
    ),
    "a group with a key of a Secret": Attack(VARIABLES, in_container(env=[A_SECRET])),
}


def a_read(
    name: str = "", container: Manifest | None = None, pod: Manifest | None = None, **spec: Any
) -> Manifest:
    """Return the Job that reads a config, with other fields."""
    fetcher = Fetcher(
        image="registry.example/shardwright/operator:0.1.0", pull_policy="IfNotPresent"
    )
    token = SecretKey(name="hub", key="token")
    fetch = HubFetch(
        fetcher=fetcher,
        model="a/b",
        revision=None,
        hub_token=token,
        environment=(),
        pull_secrets=(),
    )
    job = fetch_job(
        Owner(name="m", namespace=MODELS, uid="6f9d1f6e-0c5b-4b3e-9b1f-2a7c1d0e4f55"), fetch
    )
    job["metadata"]["name"] = name or job["metadata"]["name"]
    job["spec"] |= spec
    template = job["spec"]["template"]["spec"]
    template["initContainers"][0] |= container or {}
    template |= pod or {}
    return job


RUNS = "run the program of its own image that reads a config"
HARMLESS = "have no rights, no files and no devices"
ENDS = "read the config of a model, are named so, end, and are never changed"
A_KEY_OF_A_SECRET = {"secretKeyRef": {"name": "theirs", "key": "k"}}
BENT_CONTAINERS = {
    "privileged": {"privileged": True, "allowPrivilegeEscalation": True},
    "without seccomp": {"seccompProfile": {"type": "Unconfined"}},
    "without AppArmor": {"appArmorProfile": {"type": "Unconfined"}},
    "of another SELinux label": {"seLinuxOptions": {"type": "spc_t"}},
    "with the whole of /proc": {"procMount": "Default"},
    "as root": {"runAsUser": 0},
}
BENT_PODS: dict[str, Manifest] = {
    "with the host's network": {"hostNetwork": True},
    "with sysctls": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "with groups of others": {"securityContext": {"supplementalGroups": [0]}},
    "with names of others": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["hub"]}]},
    "with devices of others": {
        "resourceClaims": [{"name": "compute-domain-channel", "resourceClaimName": "theirs"}]
    },
}
OF_THE_SYSTEM = {"priorityClassName": "system-node-critical"}
ELSEWHERE = {"httpGet": {"host": "169.254.169.254", "port": 80}}

CREATES |= {
    "a Job in kube-system": Attack(WHERE, a_read(), "kube-system"),
    "a Job of nobody": Attack(WHOSE, {**a_read(), "metadata": {"name": "m-fetch-0a1b2c3d"}}),
    "a Job of another name": Attack(ENDS, a_read(name="m-backup")),
    "a Job that does not end": Attack(ENDS, a_read(activeDeadlineSeconds=86_400)),
    "a Job that stays": Attack(ENDS, a_read(ttlSecondsAfterFinished=None)),
    "a Job that is tried again and again": Attack(ENDS, a_read(backoffLimit=10**6)),
    "many pods of a Job": Attack(ENDS, a_read(parallelism=100)),
    "a Job of another program": Attack(
        RUNS, a_read(container={"command": ["python", "-c", "import os"]})
    ),
    "a Job of another image": Attack(RUNS, a_read(container={"image": "registry.example/evil"})),
    "a Job with another account": Attack(HARMLESS, a_read(pod={"serviceAccountName": "builder"})),
    "a Job with a token": Attack(HARMLESS, a_read(pod={"automountServiceAccountToken": True})),
    "a Job with files": Attack(
        HARMLESS, a_read(pod={"volumes": [{"name": "tmp", "secret": {"secretName": "theirs"}}]})
    ),
    "a Job with GPUs": Attack(
        HARMLESS, a_read(container={"resources": {"limits": {"nvidia.com/gpu": "8"}}})
    ),
    "a Job of the system": Attack(SYSTEMIC, a_read(pod=OF_THE_SYSTEM)),
    "a Job without a user": Attack(
        USERS, a_read(pod={"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}})
    ),
    "a Job with a key of a Secret": Attack(
        "take no variable from a Secret but HF_TOKEN",
        a_read(container={"env": [{"name": "X", "valueFrom": A_KEY_OF_A_SECRET}]}),
    ),
    "a Job with all keys of a Secret": Attack(
        PARTS, a_read(container={"envFrom": [{"secretRef": {"name": "theirs"}}]})
    ),
    "a group of the system": Attack(SYSTEMIC, a_group(**OF_THE_SYSTEM)),
    "a group that locks memory unasked": Attack(
        CAPABLE,
        in_container(securityContext={"capabilities": {"add": ["IPC_LOCK"], **DROPPED}}),
        OTHERS,
    ),
    "a group that has the kubelet ask others": Attack(
        PARTS, in_container(lifecycle={"preStop": ELSEWHERE})
    ),
    "a group that has the kubelet ask others first": Attack(
        PARTS, in_container(lifecycle={"postStart": ELSEWHERE})
    ),
    "a group whose probes ask others": Attack(
        PARTS, in_container(livenessProbe={"exec": None, **ELSEWHERE})
    ),
    "a group whose probes reach others": Attack(
        PARTS,
        in_container(
            startupProbe={"exec": None, "tcpSocket": {"host": "169.254.169.254", "port": 80}}
        ),
    ),
    "a group that takes storage": Attack("for their cache alone", with_claims("more")),
    "a Service of another name": Attack(NAMES, owned("Service", "vault", spec=SELECTS)),
    "a budget of another name": Attack(
        NAMES,
        owned(
            "PodDisruptionBudget",
            "theirs",
            spec={"maxUnavailable": 0, "selector": {"matchLabels": SELECTS["selector"]}},
        ),
    ),
    "a group of another name": Attack(NAMES, renamed(a_group(), "theirs")),
}
ROUTERS_RUN = "routers run the image that the administrator names, with one program"
ROUTERS_ARE = "routers have the service account shardwright-router or one that is admitted"
ROUTERS_HAVE = "pods of routers have no files but their program, and no devices"
TWICE = {"name": "more", "image": "registry.example/evil"}

CREATES |= {
    "many routers": Attack(
        "are routers of models, are named so, and have at most four pods",
        {**a_router(), "spec": {**a_router()["spec"], "replicas": 100}},
    ),
    "a Deployment of another name": Attack(
        "are routers of models", renamed(a_router(), "llama-405b-web")
    ),
    "a router of another image": Attack(ROUTERS_RUN, a_router(image="registry.example/evil")),
    "a router of another program": Attack(ROUTERS_RUN, a_router(command=["python", "-c", "1"])),
    "a router with a Secret": Attack(ROUTERS_RUN, a_router(env=[A_SECRET])),
    "a router with one more container": Attack(ROUTERS_RUN, a_router({"initContainers": [TWICE]})),
    "a router of another account": Attack(ROUTERS_ARE, a_router({"serviceAccountName": "builder"})),
    "a router of the default account": Attack(ROUTERS_ARE, a_router({"serviceAccountName": None})),
    "a router with files": Attack(
        ROUTERS_HAVE,
        a_router({"volumes": [{"name": "scripts", "secret": {"secretName": "theirs"}}]}),
    ),
    "a router with GPUs": Attack(
        ROUTERS_HAVE, a_router(resources={"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}})
    ),
}
for said, fields in BENT_CONTAINERS.items():
    CREATES[f"a router {said}"] = Attack(PARTS, a_router(securityContext=fields))
    CREATES[f"a group {said}"] = Attack(PARTS, in_container(securityContext=fields))
    CREATES[f"a Job {said}"] = Attack(PARTS, a_read(container={"securityContext": fields}))
for said, fields in BENT_PODS.items():
    CREATES[f"a router {said}"] = Attack(FIELDS, a_router(fields))
    CREATES[f"a group {said}"] = Attack(FIELDS, a_group(**fields))
    CREATES[f"a Job {said}"] = Attack(FIELDS, a_read(pod=fields))


@pytest.mark.parametrize("attack", CREATES.values(), ids=CREATES)
def test_the_token_creates_nothing_that_the_operator_would_not(stolen: Api, attack: Attack) -> None:
    item = {**attack.body, "metadata": {**attack.body["metadata"], "namespace": attack.namespace}}
    item.setdefault("apiVersion", GROUPS.get(item["kind"], "v1"))

    with pytest.raises(ApiError) as refused:
        stolen.create(attack.path, item)

    assert attack.said in refused.value.message


def test_the_token_bends_nothing_of_others(cluster: ControlPlane, stolen: Api) -> None:
    theirs, root = (
        f"/api/v1/namespaces/{OTHERS}",
        "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt",
    )
    mine = {"metadata": {"ownerReferences": [{**OWNER, "uid": "1"}]}}

    with pytest.raises(ApiError, match=WHOSE):
        stolen.patch(f"{theirs}/configmaps/theirs-plan", {"data": {"a": "2"}})
    with pytest.raises(ApiError, match="changes no object's owner"):
        stolen.patch(f"{theirs}/configmaps/theirs-plan", mine)
    with pytest.raises(ApiError, match=WHOSE):
        stolen.delete(f"{theirs}/configmaps/theirs-plan")
    with pytest.raises(ApiError, match="deletes only pods of its own groups"):
        stolen.delete(f"{theirs}/pods/theirs-0")
    with pytest.raises(ApiError, match=DENIED):
        stolen.patch(root, {"data": {"ca.crt": ""}})
    with pytest.raises(ApiError, match="cannot list resource"):
        stolen.get(f"{theirs}/secrets")
    assert cluster.api.get(f"{theirs}/configmaps/theirs-plan")["data"] == {"a": "1"}
    assert "deletionTimestamp" not in cluster.api.get(f"{theirs}/pods/theirs-0")["metadata"]


def test_the_token_signs_no_lease_and_no_event_of_others(stolen: Api) -> None:
    lease = {"metadata": {"name": "another"}, "spec": {"holderIdentity": "me"}}
    event = {
        "metadata": {"name": "x"},
        "reportingController": "kubelet",
        "reportingInstance": "x",
        "action": "Kill",
    }
    about = {
        "reason": "Killed",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "namespace": MODELS, "name": "m"},
    }

    with pytest.raises(ApiError, match="the operator has one Lease"):
        stolen.create(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases", lease)
    with pytest.raises(ApiError, match="are about ShardedModels, and say who wrote them"):
        stolen.create(f"/apis/events.k8s.io/v1/namespaces/{MODELS}/events", {**event, **about})


def test_the_token_makes_and_deletes_revisions_of_models_and_none_of_others(
    cluster: ControlPlane, stolen: Api
) -> None:
    revisions, theirs = (
        f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"
        for namespace in (MODELS, OTHERS)
    )
    fields = {"apiVersion": "apps/v1", "revision": 1, "data": {"zlib": ""}}
    cluster.api.create(theirs, {"metadata": {"name": "theirs-revision-0123456789"}, **fields})

    made = owned("ControllerRevision", "m-revision-0123456789", **fields)
    # Else the garbage collector may delete it first.
    made["metadata"]["ownerReferences"][0]["uid"] = _uid(cluster)
    stolen.create(revisions, made)
    with pytest.raises(
        ApiError, match="are revisions of models, are named so, and are never changed"
    ):
        stolen.create(revisions, owned("ControllerRevision", "m-7c9b6f5d4", **fields))
    with pytest.raises(ApiError, match=WHOSE):
        stolen.delete(f"{theirs}/theirs-revision-0123456789")
    stolen.delete(f"{revisions}/m-revision-0123456789")


def test_the_token_does_all_that_the_operator_does(cluster: ControlPlane, stolen: Api) -> None:
    rack = next(launch for launch in runnable() if launch.plan.compute_domain)
    launches = (*MORE, rack, LOCKED, SEEDED, NATIVE, IMAGE_VOLUME, ROUTED, *PAIRED)
    with compute_domains(cluster):
        assert differences(stolen, MODELS, launches) == {}
    read = stolen.request("POST", JOBS.format(MODELS), a_read(), query={"dryRun": "All"})
    assert drifted_fields(a_read(), {"apiVersion": "batch/v1", "kind": "Job", **read}) == ()
    for name, pod in pods(MODELS, launches[:1]):
        assert stored(stolen, pod, MODELS)["metadata"]["name"], name


def test_groups_have_only_the_account_and_secrets_that_are_admitted_in_their_namespace(
    cluster: ControlPlane, stolen: Api
) -> None:
    policy = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/shardwright-statefulsets"
    )
    delivered = cluster.api.get(policy)["spec"]["variables"]
    named = {
        "accounts": f'["*/","*/everywhere","{MODELS}/","{MODELS}/reader"]',
        "mounted": f'["{MODELS}/","{MODELS}/*","/ours"]',
    }
    variables = [
        item | {"expression": named.get(item["name"], item["expression"])} for item in delivered
    ]

    def verdict(body: Manifest, namespace: str = MODELS) -> str:
        item = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        try:
            stolen.create(f"{PATHS['StatefulSet'].format(namespace)}?dryRun=All", item)
        except ApiError as error:
            return next(said for said in (ACCOUNT, MOUNTS) if said in error.message)
        return ""

    cluster.api.patch(policy, {"spec": {"variables": variables}})
    try:
        wait_for(
            lambda: not verdict(a_group(serviceAccountName="reader")),
            60,
            "the policy to be in force",
        )
        assert verdict(a_group(serviceAccountName="everywhere")) == ACCOUNT
        assert verdict(a_group(serviceAccountName="everywhere"), OTHERS) == ""
        assert verdict(a_group(serviceAccountName="reader"), OTHERS) == ACCOUNT
        assert (
            verdict(a_group(serviceAccountName="reader", automountServiceAccountToken=True))
            == ACCOUNT
        )
        assert verdict(with_volume(secret={"secretName": "any"})) == ""
        assert verdict(with_volume(secret={"secretName": "any"}), OTHERS) == MOUNTS
        assert verdict(with_volume(secret={"secretName": "ours"}), OTHERS) == ""
    finally:
        cluster.api.patch(policy, {"spec": {"variables": delivered}})


def test_a_group_that_its_tenant_has_bent_is_scaled_and_set_right_and_bent_no_further(
    cluster: ControlPlane, stolen: Api
) -> None:
    groups = PATHS["StatefulSet"].format(MODELS)
    good = renamed(a_group(), "m-0")
    good["metadata"]["ownerReferences"] = [
        {**OWNER, "uid": _uid(cluster), "blockOwnerDeletion": True}
    ]
    path = f"{groups}/{stolen.create(groups, good)['metadata']['name']}"
    host, own = (
        {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
        {"hostNetwork": False, "dnsPolicy": "ClusterFirst"},
    )
    cluster.api.patch(path, {"spec": {"template": {"spec": host}}})

    assert stolen.patch(path, {"spec": {"replicas": 0}})["spec"]["replicas"] == 0
    with pytest.raises(ApiError, match=FIELDS):
        stolen.patch(path, {"spec": {"template": {"spec": {"hostPID": True}}}})
    assert (
        "hostNetwork"
        not in stolen.patch(path, {"spec": {"template": {"spec": own}}})["spec"]["template"]["spec"]
    )
    stolen.delete(path)


def test_what_the_token_makes_for_a_model_that_does_not_exist_goes_again(
    cluster: ControlPlane, stolen: Api
) -> None:
    del stolen
    wait_for(lambda: "nobody-plan" not in _names(cluster), 180, "the garbage collector to take it")


def _uid(cluster: ControlPlane) -> str:
    path = f"/apis/shardwright.io/v1alpha1/namespaces/{MODELS}/shardedmodels/m"
    return str(cluster.api.get(path)["metadata"]["uid"])


def _names(cluster: ControlPlane) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.api.get(CONFIG_MAPS)["items"]}
