"""A model's pod template: one for all groups and all ranks, as a StatefulSet has only one.

A rank reads its number from its own labels. ``place`` adds what follows from a group's place:
affinity, group labels, templates of claims, names of made Secrets, the leader's address, the
namespace's limits and the pull policy.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from shardwright.costs import host
from shardwright.costs.host import Storage
from shardwright.engines.environment import TMP_DIR, written_folders
from shardwright.engines.launch import NO_HOST, Serving, Start, attention_replicas_per_pod
from shardwright.engines.registry import ENGINES
from shardwright.hardware.scheduling import usual_tolerations
from shardwright.planning import drain
from shardwright.planning.report import Plan
from shardwright.rendering import (
    group_token,
    halves,
    names,
    network,
    pod_resources,
    ray,
    ssh,
    volumes,
)
from shardwright.rendering.bundle import HUB_TOKEN_VARIABLE, TEMPLATE_HASH, digest, literal
from shardwright.rendering.deployment import Deployment, OwnMarks, SecretKey
from shardwright.rendering.guards import guard_label, guards_for
from shardwright.rendering.labels import MODEL_ANNOTATION, common_labels
from shardwright.rendering.names import LEADER_VARIABLE
from shardwright.rendering.pod_resources import workers_per_pod
from shardwright.rendering.scripts import (
    HTTP_PORT,
    REMEMBERED,
    RENDEZVOUS_PORT,
    SCRIPTS_DIR,
    RankNetwork,
    RayJoining,
    ScriptSettings,
    ScriptTimes,
    SshJoining,
    TokenWatch,
    scripts,
)
from shardwright.rendering.ssh import USER_ID

PROBE_TIMEOUT_SECONDS: Final = 5

NO_LIMIT: Final = 2**31 - 1
"""The most failures of a probe that the API takes. The kubelet cannot tell ranks that wait for each
other from an engine that does not come up: the launch script ends the latter, by its start-up
budget.
"""


def shared_memory_bytes(plan: Plan, deployment: Deployment) -> int:
    """Return the bytes of one pod's shared memory."""
    # The engine keeps this K/V in a file of /dev/shm: the volume must hold it beside the rest (ADR
    # 33).
    kept = plan.host_cache.region_bytes if plan.host_cache else 0
    return (
        host.shared_memory_bytes(workers_per_pod(plan), over_ray=ray.joins(plan, deployment)) + kept
    )


def script_settings(plan: Plan, deployment: Deployment) -> ScriptSettings:
    """Return the settings for a plan's scripts."""
    engine = ENGINES[deployment.engine]
    joined_over_ssh = ssh.joins(plan, deployment)
    return ScriptSettings(
        engine=engine,
        demands_key=deployment.serving.api_key is not None,
        ranks=plan.nodes_per_replica,
        workers=workers_per_pod(plan),
        attention_replicas=attention_replicas_per_pod(plan),
        downloads=bool(volumes.downloads(deployment)),
        shm_bytes=shared_memory_bytes(plan, deployment),
        variables=tuple(_fixed_environment(plan, deployment).items()),
        ssh=SshJoining(
            joins=joined_over_ssh,
            shared_variables=_shared_variables(plan, deployment) if joined_over_ssh else (),
        ),
        ray=RayJoining(joins=ray.joins(plan, deployment)),
        network=RankNetwork(rdma=bool(plan.rdma), tcp_only=not deployment.pods.network.rdma),
        times=ScriptTimes(
            # The engine gives up within its own budget and says why; the script waits longer, so
            # that this message is not lost.
            start_seconds=start_budget(plan, deployment).load_seconds
            + pod_resources.LAST_WORDS_SECONDS,
            drain_seconds=_drain_seconds(plan, deployment),
            lease_seconds=halves.lease_seconds(deployment),
        ),
        tokens=TokenWatch(
            silence_seconds=deployment.serving.silence_seconds,
            idle_seconds=deployment.serving.idle_seconds,
        ),
    )


def scripts_of(plan: Plan, deployment: Deployment) -> Mapping[str, str]:
    """Return the scripts a resource's pods mount, and the files its engine reads."""
    return {**scripts(script_settings(plan, deployment)), **_engine_files(plan, deployment)}


def scripts_name(plan: Plan, deployment: Deployment) -> str:
    """Return the name of the scripts' ConfigMap."""
    files = tuple(_engine_files(plan, deployment).items())
    return names.scripts_configmap(
        deployment.base, _scripts_digest(script_settings(plan, deployment), files)
    )


@lru_cache(maxsize=REMEMBERED)
def _scripts_digest(settings: ScriptSettings, files: tuple[tuple[str, str], ...]) -> str:
    return digest({**scripts(settings), **dict(files)})


def _engine_files(plan: Plan, deployment: Deployment) -> Mapping[str, str]:
    return ENGINES[deployment.engine].files(plan, _serving(plan, deployment))


def start_budget(plan: Plan, deployment: Deployment) -> pod_resources.StartBudget:
    """Return the time a resource's engines may take to serve."""
    return _budget(plan, deployment, downloads=False)  # another container has done that


def start_deadline_seconds(plan: Plan, deployment: Deployment) -> int:
    """Return the seconds in which a group with nodes must be ready, image and weights included."""
    budget = _budget(plan, deployment, downloads=deployment.weights.claim is None)
    return pod_resources.IMAGE_SECONDS + budget.load_seconds


def _drain_seconds(plan: Plan, deployment: Deployment) -> int:
    stated = deployment.serving.drain_seconds
    # A plan that was kept without one has pods with the least.
    return (plan.drain_seconds or drain.LEAST_SECONDS) if stated is None else stated


def _budget(plan: Plan, deployment: Deployment, *, downloads: bool) -> pod_resources.StartBudget:
    store, storage = deployment.weights.object_store, Storage.CLAIM
    if store is not None:
        storage = Storage.OBJECT_STORE
    elif downloads:
        storage = Storage.HUB
    return pod_resources.start_budget(
        plan,
        storage=storage,
        stated_bytes_per_second=store.bytes_per_second if store else None,
        quantizes=deployment.weights.quantization is not None,
    )


def bare_template(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    """Return the template of all groups, without what ``place`` adds."""
    engine = ENGINES[deployment.engine]
    own = dict(deployment.pods.marks.labels)
    labels = {
        # Ours come after, so that no label of a user takes a pod out of its group.
        **own,
        **common_labels(deployment.base, engine.label, deployment.engine_version),
        **guard_label(guards_for(deployment)),
        **halves.labels_of(deployment),
    }
    annotations = {
        **dict(deployment.pods.marks.annotations),
        MODEL_ANNOTATION: deployment.owner.name,
        **network.annotations(plan, deployment),
    }
    return {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": _spec(plan, deployment),
    }


def _spec(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    spec: dict[str, Any] = {
        # No engine asks the API server anything, so none gets a token for it.
        "automountServiceAccountToken": False,
        # Else a Service named vllm would set VLLM_PORT, which vLLM reads as a setting of its own.
        "enableServiceLinks": False,
        "securityContext": _pod_security(plan, deployment),
        "terminationGracePeriodSeconds": pod_resources.grace_seconds(
            _drain_seconds(plan, deployment) + halves.lease_seconds(deployment)
        ),
        "tolerations": _tolerations(plan, deployment),
        "containers": [_container(plan, deployment)],
        "volumes": _volumes(plan, deployment),
    }
    if claims := pod_resources.names_of(plan):
        spec["resourceClaims"] = [{"name": name} for name in claims]
    if volumes.downloads(deployment):
        spec["initContainers"] = [_download(plan, deployment)]
    if deployment.pods.marks.account is not None:
        spec["serviceAccountName"] = deployment.pods.marks.account
    if deployment.pods.node_selector:
        spec["nodeSelector"] = dict(deployment.pods.node_selector)
    if deployment.pods.runtime_class is not None:
        spec["runtimeClassName"] = deployment.pods.runtime_class
    if deployment.pods.priority_class is not None:
        spec["priorityClassName"] = deployment.pods.priority_class
    if deployment.pods.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in deployment.pods.image_pull_secrets]
    return spec


def _pod_security(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    restricted = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        # Else the kubelet changes the group of every file of a volume at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return (
        network.with_locked_memory(restricted)
        if network.locks_memory(plan, deployment)
        else restricted
    )


def _tolerations(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    usual = [dict(item) for item in usual_tolerations(plan.resource, plan.architecture)]
    return [
        *usual,
        *(dict(item) for item in deployment.pods.tolerations if dict(item) not in usual),
    ]


def _container(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    return {
        "name": "engine",
        "image": deployment.image,
        "imagePullPolicy": OwnMarks().pull_policy,
        "command": ["/bin/bash", "/etc/shardwright/launch.sh"],
        "args": [
            literal(word)
            for word in ENGINES[deployment.engine].arguments(plan, _serving(plan, deployment))
        ],
        "env": _environment(plan, deployment),
        "ports": _ports(plan, deployment),
        "resources": pod_resources.of_engine(plan, deployment),
        "securityContext": _container_security(
            deployment, ("IPC_LOCK",) if network.locks_memory(plan, deployment) else ()
        ),
        # If an engine leaves no message, the status can at least show the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe("startup", period_seconds=5, failures=NO_LIMIT),
        "readinessProbe": _probe("readiness", period_seconds=5, failures=3),
        "livenessProbe": _probe("liveness", period_seconds=10, failures=6),
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/bash", "/etc/shardwright/drain.sh"]}}},
        "volumeMounts": [
            *_mounts(deployment),
            *group_token.mounts(plan),
            *ssh.mounts(plan, deployment),
            *volumes.own_mounts(deployment),
        ],
    }


def _serving(plan: Plan, deployment: Deployment) -> Serving:
    return Serving(
        model=volumes.model_source(deployment),
        served_name=deployment.serving.served_name or deployment.model,
        version=deployment.engine_version,
        load_seconds=start_budget(plan, deployment).load_seconds,
        drain_seconds=pod_resources.SHUTDOWN_SECONDS,
        execute_seconds=pod_resources.EXECUTE_SECONDS,
        revision=deployment.weights.revision if deployment.weights.from_hub else None,
        load_format=deployment.weights.load_format,
        reader=_reader(plan, deployment),
        quantization=deployment.weights.quantization,
        kv_cache_dtype=deployment.serving.kv_cache_dtype,
        drafts_by=deployment.drafting.drafts_by,
        draft_tokens=deployment.drafting.draft_tokens or plan.draft_tokens,
        draft_model=volumes.draft_folder(deployment),
        adapters=volumes.adapter_folders(deployment),
        adapter_rank=deployment.serving.adapters.rank,
        arguments=deployment.serving.arguments or {},
        files_dir=SCRIPTS_DIR,
        over_ray=ray.joins(plan, deployment),
        media_domains=deployment.serving.media_domains or (NO_HOST,),
        guarded=deployment.serving.api_key is not None,
        refuses=deployment.serving.refuses,
        by_priority=deployment.serving.by_priority,
        gives_tokens=deployment.serving.gives_tokens,
        phase=deployment.phase,
    )


def _reader(plan: Plan, deployment: Deployment) -> Mapping[str, object]:
    store = deployment.weights.object_store
    return volumes.loader_options(store, workers_per_pod(plan)) if store else {}


def _environment(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    engine = ENGINES[deployment.engine]
    ours = [
        _field("POD_NAME", "metadata.name"),
        _field(engine.address_variable, "status.podIP"),
        *_group_environment(plan),
        *halves.environment(deployment),
        *({"name": name, "value": value} for name, value in network.environment(plan).items()),
        *volumes.environment(deployment.weights.object_store),
        *_secret(engine.api_key_variable, deployment.serving.api_key),
    ]
    taken = {*_names(ours), *_fixed_environment(plan, deployment)}
    return [*ours, *_users_environment(deployment, taken)]


def _names(variables: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (variable["name"] for variable in variables)


def _fixed_environment(plan: Plan, deployment: Deployment) -> dict[str, str]:
    """Return what every engine of such a plan has alike: ``launch.sh`` sets it."""
    start = Start(
        own_dir=volumes.OWN_DIR,
        load_seconds=start_budget(plan, deployment).load_seconds,
        execute_seconds=pod_resources.EXECUTE_SECONDS,
    )
    return {
        "HF_HOME": volumes.hub_dir(deployment),
        # All files are there: a restart must not depend on whether the hub can be reached.
        "HF_HUB_OFFLINE": "1",
        **written_folders(volumes.OWN_DIR, dict(deployment.serving.environment)),
        **ENGINES[deployment.engine].environment(plan, start),
    }


def _shared_variables(plan: Plan, deployment: Deployment) -> tuple[str, ...]:
    """Return the variables alike on every rank: no secret, no folder of one pod."""
    folders = (volumes.OWN_DIR, TMP_DIR)
    set_here = _fixed_environment(plan, deployment) | network.environment(plan)
    fixed = (name for name, value in set_here.items() if not value.startswith(folders))
    return tuple(sorted({*fixed, *(name for name, _ in deployment.serving.environment)}))


def _users_environment(deployment: Deployment, ours: Collection[str]) -> list[dict[str, Any]]:
    taken = {*ours, HUB_TOKEN_VARIABLE, ENGINES[deployment.engine].api_key_variable}
    return [
        {"name": name, "value": literal(value)}
        for name, value in deployment.serving.environment
        # Of two variables of one name Kubernetes takes the last, which would be the user's.
        if name not in taken
    ]


def _download(plan: Plan, deployment: Deployment) -> dict[str, Any]:
    ours = [
        {"name": "HF_HOME", "value": volumes.HUB_DIR},
        *_secret(HUB_TOKEN_VARIABLE, deployment.weights.hub_token),
    ]
    # The container that downloads sees no weights of a claim, and no key of the group. It alone has
    # the hub's token, and the cache as a whole: it runs no code of the model's.
    mounts = [
        _SCRIPTS_MOUNT,
        {"name": "cache", "mountPath": volumes.CACHE_DIR},
        {"name": "tmp", "mountPath": TMP_DIR},
    ]
    return {
        "name": "weights",
        "image": deployment.image,
        "imagePullPolicy": OwnMarks().pull_policy,
        "command": ["python3", "/etc/shardwright/weights.py"],
        "args": [literal(word) for item in volumes.downloads(deployment) for word in item],
        "env": [*ours, *_users_environment(deployment, tuple(_names(ours)))],
        "resources": pod_resources.of_download(plan, deployment),
        "securityContext": _container_security(deployment),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _container_security(deployment: Deployment, added: tuple[str, ...] = ()) -> dict[str, Any]:
    capabilities = {"drop": ["ALL"]} | ({"add": list(added)} if added else {})
    root = {"readOnlyRootFilesystem": True} if deployment.pods.read_only_root else {}
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities, **root}


def _group_environment(plan: Plan) -> list[dict[str, Any]]:
    if plan.nodes_per_replica == 1:
        return []
    return [
        {"name": LEADER_VARIABLE},
        # The rendezvous turns away ranks of another template: revisions must not mix in a group
        # (ADR 15).
        _field("SHARDWRIGHT_GENERATION", f"metadata.labels['{TEMPLATE_HASH}']"),
    ]


def _secret(name: str, key: SecretKey | None) -> list[dict[str, Any]]:
    return (
        []
        if key is None
        else [{"name": name, "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}]
    )


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _ports(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    named = {"http": HTTP_PORT, **halves.ports(deployment)}
    if plan.nodes_per_replica > 1:
        named |= dict([ray.peer_port(plan, deployment)]) | {"rendezvous": RENDEZVOUS_PORT}
    return [
        {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in named.items()
    ]


def _probe(name: str, *, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "exec": {"command": ["/bin/bash", "/etc/shardwright/probe.sh", name]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _volumes(plan: Plan, deployment: Deployment) -> list[dict[str, Any]]:
    shared_memory = pod_resources.quantity(shared_memory_bytes(plan, deployment))
    scripts_map = scripts_name(plan, deployment)
    return [
        {"name": "scripts", "configMap": {"name": scripts_map}},
        # vLLM 0.32 refuses the 64 MiB that a container gets by default: one queue alone has 160 MiB
        # (engine-measurements.md 2).
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
        *volumes.volume(deployment),
        {"name": "run", "emptyDir": {"sizeLimit": pod_resources.quantity(pod_resources.RUN_BYTES)}},
        # The root cannot be written (ADR 21). No limit of its own: the pod's limit of local disk
        # counts its volumes.
        {"name": "tmp", "emptyDir": {}},
        *group_token.volumes(plan),
        *ssh.volumes(plan, deployment, scripts_map),
        *volumes.source_volumes(deployment),
        *volumes.store_volumes(deployment),
        *volumes.own_volumes(deployment),
    ]


_SCRIPTS_MOUNT: Final = {"name": "scripts", "mountPath": SCRIPTS_DIR, "readOnly": True}
_PATHS: Final = {
    "run": "/run/shardwright",
    "shm": "/dev/shm",  # noqa: S108 - a volume of the pod
    "tmp": TMP_DIR,
}


def _mounts(deployment: Deployment) -> list[dict[str, Any]]:
    return [
        _SCRIPTS_MOUNT,
        *volumes.cache_mounts(deployment),
        *({"name": name, "mountPath": path} for name, path in _PATHS.items()),
        *volumes.source_mounts(deployment),
        *volumes.store_mounts(deployment),
    ]
