"""No field of the spec is decoration: changing it changes something that one can see.

What one can see: the model and the request that the planner gets, the nodes it may use, the objects
that are rendered for one and the same plan, the choice between keeping a plan and making a new one,
and the rules by which groups live (what they do is in ``tests/unit/reconcile``).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.errors import InputError
from shardwright.hardware.nodes import read_node
from shardwright.pipeline.assembly import bundle_for, plan_serving
from shardwright.planning.report import Plan
from shardwright.reconcile.group import life_rules
from shardwright.reconcile.plan_choice import PlanChoice, RecordState, Wanted, choose
from shardwright.resolving.model import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_deployment import a_plan
from tests.support.builders_nodes import a_gb200_rack, a_node
from tests.support.builders_resource import A_CONFIG, A_DRAFT, Manifest, a_sharded_model
from tests.support.builders_subject import ADMITTING
from tests.support.schema_cases import Steps, fields

A_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
MAY_BE_A_HALF: Final = "llama-prefill"
"""A name that a half of a pair may have."""

A_REASONING_MODEL: Final = "Qwen/Qwen3-0.6B"
"""Of a family whose parsers are told to the engine."""

CONFIG_MAPS: Final = {("a", "config.json"): json.dumps(A_CONFIG)}
"""Name and key → text; what is not here does not exist."""

TAINTED: Final = {"key": "dedicated", "value": "llm", "effect": "NoExecute"}
NODES: Final = (
    a_node("plain", allocatable={"rdma/a": "1"}),
    a_node("blue", labels={"example.com/pool": "blue"}),
    a_node("tainted", taints=[TAINTED]),
    *a_gb200_rack(trays=2),
    a_node(
        "cut",
        labels={
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            "nvidia.com/gpu.memory": "9984",
        },
    ),
)
TOLERATION: Final = {
    "key": "dedicated",
    "operator": "Equal",
    "value": "llm",
    "effect": "NoExecute",
    "tolerationSeconds": 9,
}

IN_ONE_IMAGE: Final = {"image": "registry.internal/server", "version": "1.2.1"}

AN_ADAPTER: Final = [{"name": "a", "uri": "pvc://a"}]

Pair = tuple[Manifest, Manifest]


def _model(before: Manifest, after: Manifest) -> Pair:
    return {"model": {"id": A_MODEL} | before}, {"model": {"id": A_MODEL} | after}


def _unproven(changed: Manifest) -> Pair:
    stated = {"weightBytes": 16 * 10**9, "kvBytesPerToken": 65536}
    pinned = {"parallelism": {"tensor": 2, "pipeline": 1}}
    return (
        {"model": {"id": "acme/day-zero", "unproven": stated}} | pinned,
        {"model": {"id": "acme/day-zero", "unproven": stated | changed}} | pinned,
    )


def _weights(before: Manifest, after: Manifest, **both: Any) -> Pair:
    return _model({"weights": both | before}, {"weights": both | after})


def _cache(before: Manifest, after: Manifest) -> Pair:
    return _weights({"cache": before}, {"cache": after})


def _image(before: Manifest, after: Manifest) -> Pair:
    return _weights({"image": before}, {"image": after}, uri="oci://registry.internal/llama")


def _store(before: Manifest, after: Manifest, uri: str = "s3://models/llama") -> Pair:
    return _weights({"objectStore": before}, {"objectStore": after}, uri=uri)


def _adapter(before: Manifest, after: Manifest) -> Pair:
    return _model(*({"adapters": [AN_ADAPTER[0] | one]} for one in (before, after)))


def _under(name: str, before: Manifest, after: Manifest) -> Pair:
    return {name: before}, {name: after}


def _variable(before: Manifest, after: Manifest) -> Pair:
    return _under("engine", {"env": [before]}, {"env": [after]})


def _speculation(before: Manifest, after: Manifest) -> Pair:
    usual = {"method": "PromptLookup", "tokens": 3, "acceptancePercent": 60}
    return _under("engine", {"speculation": usual | before}, {"speculation": usual | after})


def _head(before: Manifest, after: Manifest) -> Pair:
    head = A_DRAFT["head"]
    return _speculation(
        *({"method": "DraftModel", "head": head | changed} for changed in (before, after))
    )


def _toleration(before: Manifest, after: Manifest) -> Pair:
    return _under("placement", {"tolerations": [before]}, {"tolerations": [after]})


def _network(before: Manifest, after: Manifest) -> Pair:
    return _under("pod", {"network": before}, {"network": after})


def _volume(before: Manifest, after: Manifest) -> Pair:
    usual = {"name": "own", "mountPath": "/mnt/own"}
    return _under("pod", {"volumes": [usual | before]}, {"volumes": [usual | after]})


def _explicit(before: Manifest, after: Manifest) -> Pair:
    return _network(
        *({"rdma": "Explicit", "resources": [resource]} for resource in (before, after))
    )


def _routed(before: Manifest, after: Manifest) -> Pair:
    return _under("routing", *({"mode": "Router"} | one for one in (before, after)))


def _picked(before: Manifest, after: Manifest) -> Pair:
    pool = {"mode": "InferencePool"}
    return _under("routing", *(pool | {"endpointPicker": one} for one in (before, after)))


def _apart(before: Manifest, after: Manifest) -> Pair:
    return tuple(  # type: ignore[return-value]
        {"routing": {"mode": "Router"}, "disaggregation": {"mode": "Auto"} | one}
        for one in (before, after)
    )


BEFORE_AND_AFTER: Final[Mapping[str, Pair]] = {
    "model.id": _model({}, {"id": "Qwen/Qwen2.5-7B-Instruct"}),
    "model.unproven.weightBytes": _unproven({"weightBytes": 17 * 10**9}),
    "model.unproven.kvBytesPerToken": _unproven({"kvBytesPerToken": 32768}),
    "model.servedName": _model({}, {"servedName": "llama"}),
    "model.loadFormat": _model({}, {"loadFormat": "Safetensors"}),
    "model.weights.cache.claimName": _cache({"claimName": "a"}, {"claimName": "b"}),
    "model.weights.cache.storage": _cache({"storage": "1Gi"}, {"storage": "2Gi"}),
    "model.weights.cache.storageClassName": _cache(
        {"storage": "1Gi"}, {"storage": "1Gi", "storageClassName": "a"}
    ),
    "model.config": _model({}, {"config": A_CONFIG | {"num_hidden_layers": 16}}),
    "model.configMapRef.name": _model(
        {"configMapRef": {"name": "a"}}, {"configMapRef": {"name": "b"}}
    ),
    "model.configMapRef.key": _model(
        {"configMapRef": {"name": "a"}}, {"configMapRef": {"name": "a", "key": "other.json"}}
    ),
    "model.revision": _model({}, {"revision": "f" * 40}),
    "model.weights.uri": _weights({"uri": "pvc://a"}, {"uri": "pvc://b"}),
    "model.weights.secretRef.name": _weights(
        {"secretRef": {"name": "a"}}, {"secretRef": {"name": "b"}}
    ),
    "model.weights.secretRef.key": _weights(
        {"secretRef": {"name": "a"}}, {"secretRef": {"name": "a", "key": "b"}}
    ),
    "model.weights.objectStore.endpoint": _store({}, {"endpoint": "https://minio"}),
    "model.weights.objectStore.region": _store({}, {"region": "eu-central-1"}),
    "model.weights.objectStore.addressing": _store({}, {"addressing": "Path"}),
    "model.weights.objectStore.caConfigMapRef.name": _store(
        {"caConfigMapRef": {"name": "a"}}, {"caConfigMapRef": {"name": "b"}}
    ),
    "model.weights.objectStore.caConfigMapRef.key": _store(
        {"caConfigMapRef": {"name": "a"}}, {"caConfigMapRef": {"name": "a", "key": "b"}}
    ),
    "model.weights.objectStore.account": _store(
        {"account": "one"}, {"account": "two"}, "az://models/llama"
    ),
    "model.weights.objectStore.concurrency": _store({}, {"concurrency": 16}),
    "model.weights.objectStore.bufferGigabytes": _store({}, {"bufferGigabytes": 20}),
    "model.weights.objectStore.megabytesPerSecond": _store({}, {"megabytesPerSecond": 250}),
    "model.weights.image.pullPolicy": _image({}, {"pullPolicy": "Always"}),
    "model.weights.image.path": _image({}, {"path": "llama"}),
    "model.adapters[0].name": _adapter({}, {"name": "b"}),
    "model.adapters[0].uri": _adapter({}, {"uri": "pvc://a/b"}),
    "model.maxAdapterRank": _model(
        {"adapters": AN_ADAPTER}, {"adapters": AN_ADAPTER, "maxAdapterRank": 32}
    ),
    "model.quantization": _model({}, {"quantization": "FP8"}),
    "engine.name": _under("engine", IN_ONE_IMAGE, IN_ONE_IMAGE | {"name": "TensorRTLLM"}),
    "engine.image": _under("engine", {}, {"image": "registry.internal/vllm-openai:v0.33.0"}),
    "engine.version": _under("engine", {}, {"version": "0.32.0"}),
    "engine.args.seed": _under("engine", {}, {"args": {"seed": 7}}),
    "engine.executor": _under("engine", {}, {"executor": "Ray"}),
    "engine.familyDefaults": (
        {"model": {"id": A_REASONING_MODEL}},
        {"model": {"id": A_REASONING_MODEL}, "engine": {"familyDefaults": "None"}},
    ),
    "engine.apiKeySecretRef.name": _under(
        "engine", *({"apiKeySecretRef": {"name": name}} for name in ("a", "b"))
    ),
    "engine.apiKeySecretRef.key": _under(
        "engine", *({"apiKeySecretRef": {"name": "a"} | key} for key in ({}, {"key": "b"}))
    ),
    "engine.mediaDomains[0]": _under(
        "engine", *({"mediaDomains": [host]} for host in ("a.example", "b.example"))
    ),
    "engine.env[0].name": _variable(
        {"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_DEBUG_FILE", "value": "INFO"}
    ),
    "engine.env[0].value": _variable(
        {"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_DEBUG", "value": "WARN"}
    ),
    "workload.inputTokens": _under("workload", {}, {"inputTokens": 4096}),
    "workload.outputTokens": _under("workload", {}, {"outputTokens": 256}),
    "workload.concurrency": _under("workload", {}, {"concurrency": 65}),
    "workload.requestsPerSecond": _under("workload", {}, {"requestsPerSecond": 2.5}),
    "workload.prefixCacheHitPercent": _under("workload", {}, {"prefixCacheHitPercent": 50}),
    "workload.expertImbalancePercent": _under("workload", {}, {"expertImbalancePercent": 200}),
    "engine.speculation.method": (
        {"engine": {"speculation": {"method": "PromptLookup", "tokens": 3}}},
        {
            "model": {"id": "Qwen/Qwen3.5-27B"},
            "engine": {"speculation": {"method": "MTP", "tokens": 3}},
        },
    ),
    "engine.speculation.tokens": _speculation({}, {"tokens": 4}),
    "engine.speculation.acceptancePercent": _speculation({}, {"acceptancePercent": 80}),
    "engine.speculation.head.id": _head({}, {"id": "meta-llama/Llama-3.2-3B-Instruct"}),
    "engine.speculation.head.config": _head({}, {"config": A_CONFIG | {"num_hidden_layers": 16}}),
    "engine.speculation.head.uri": _head({}, {"uri": "pvc://a/b"}),
    "engine.maxModelLen": _under("engine", {}, {"maxModelLen": 8192}),
    "engine.kvOffload.hostMemory": _under(
        "engine", {"kvOffload": {}}, {"kvOffload": {"hostMemory": "64Gi"}}
    ),
    "engine.kvCacheQuantization": _under("engine", {}, {"kvCacheQuantization": "FP8"}),
    "objective.optimizeFor": _under("objective", {}, {"optimizeFor": "Latency"}),
    "objective.ttftMilliseconds": _under("objective", {}, {"ttftMilliseconds": 1000}),
    "objective.tpotMilliseconds": _under("objective", {}, {"tpotMilliseconds": 50}),
    "objective.statistic": _under("objective", {}, {"statistic": "P95"}),
    "replicas": ({}, {"replicas": 2}),
    "scaling.minReplicas": _under(
        "scaling", {"maxReplicas": 4}, {"maxReplicas": 4, "minReplicas": 2}
    ),
    "scaling.maxReplicas": _under("scaling", {"maxReplicas": 4}, {"maxReplicas": 5}),
    "scaling.idleSeconds": _under(
        "scaling", {"maxReplicas": 4}, {"maxReplicas": 4, "idleSeconds": 600}
    ),
    "serving.overload": _under("serving", {}, {"overload": "Refuse"}),
    "serving.order": _under("serving", {}, {"order": "Priority"}),
    "budget.gpus": _under("budget", {}, {"gpus": 4}),
    "budget.nodes": _under("budget", {}, {"nodes": 1}),
    "budget.fill": _under("budget", {"gpus": 4}, {"gpus": 4, "fill": True}),
    "parallelism.tensor": _under("parallelism", {}, {"tensor": 2}),
    "parallelism.pipeline": _under("parallelism", {}, {"pipeline": 2}),
    "parallelism.expert": _under("parallelism", {}, {"expert": 1}),
    "parallelism.dataParallelAttention": _under("parallelism", {}, {"dataParallelAttention": 1}),
    "parallelism.context": _under("parallelism", {}, {"context": 1}),
    "parallelism.partition[0]": _under(
        "parallelism", {"partition": [16, 16]}, {"partition": [17, 15]}
    ),
    "placement.nodeSelector.example.com/pool": _under(
        "placement", {}, {"nodeSelector": {"example.com/pool": "blue"}}
    ),
    "placement.migProfile": _under("placement", {}, {"migProfile": "1g.10gb"}),
    "placement.tolerations[0].key": _toleration(TOLERATION, TOLERATION | {"key": "other"}),
    "placement.tolerations[0].operator": _toleration(
        {"key": "a"}, {"key": "a", "operator": "Exists"}
    ),
    "placement.tolerations[0].value": _toleration(TOLERATION, TOLERATION | {"value": "other"}),
    "placement.tolerations[0].effect": _toleration(
        {"operator": "Exists"}, {"operator": "Exists", "effect": "NoSchedule"}
    ),
    "placement.tolerations[0].tolerationSeconds": _toleration(
        TOLERATION, TOLERATION | {"tolerationSeconds": 10}
    ),
    "placement.scheduler": _under("placement", {}, {"scheduler": "Native"}),
    "placement.queue": _under(
        "placement", {"scheduler": "Kueue", "queue": "a"}, {"scheduler": "Kueue", "queue": "b"}
    ),
    "placement.schedulerName": _under(
        "placement",
        {"scheduler": "Coscheduling"},
        {"scheduler": "Coscheduling", "schedulerName": "a"},
    ),
    "pod.resources.cpu": _under("pod", {}, {"resources": {"cpu": 11}}),
    "pod.resources.memory": _under("pod", {}, {"resources": {"memory": "7Gi"}}),
    "pod.resources.ephemeralStorage": _under(
        "pod", {}, {"resources": {"ephemeralStorage": "70Gi"}}
    ),
    "pod.readOnlyRootFilesystem": _under("pod", {}, {"readOnlyRootFilesystem": False}),
    "pod.runtimeClassName": _under("pod", {}, {"runtimeClassName": "nvidia"}),
    "pod.priorityClassName": _under("pod", {}, {"priorityClassName": "serving"}),
    "pod.imagePullSecrets[0].name": _under("pod", {}, {"imagePullSecrets": [{"name": "registry"}]}),
    "pod.labels.team": _under("pod", {"labels": {"team": "a"}}, {"labels": {"team": "b"}}),
    "pod.annotations.example.com/cost-centre": _under(
        "pod", *({"annotations": {"example.com/cost-centre": it}} for it in "12")
    ),
    "pod.serviceAccountName": _under("pod", {}, {"serviceAccountName": "reader"}),
    "pod.imagePullPolicy": _under("pod", {}, {"imagePullPolicy": "Always"}),
    "pod.volumes[0].name": _volume(
        {"configMap": {"name": "a"}}, {"configMap": {"name": "a"}, "name": "other"}
    ),
    "pod.volumes[0].mountPath": _volume(
        {"configMap": {"name": "a"}}, {"configMap": {"name": "a"}, "mountPath": "/srv/a"}
    ),
    "pod.volumes[0].configMap.name": _volume(
        {"configMap": {"name": "a"}}, {"configMap": {"name": "b"}}
    ),
    "pod.volumes[0].secret.secretName": _volume(
        {"secret": {"secretName": "a"}}, {"secret": {"secretName": "b"}}
    ),
    "pod.volumes[0].pvc.claimName": _volume(
        {"pvc": {"claimName": "a"}}, {"pvc": {"claimName": "b"}}
    ),
    "pod.volumes[0].pvc.readOnly": _volume(
        {"pvc": {"claimName": "a"}}, {"pvc": {"claimName": "a", "readOnly": False}}
    ),
    "pod.volumes[0].emptyDir.sizeLimit": _volume(
        {"emptyDir": {"sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "2Gi"}}
    ),
    "pod.topologySpread.topologyKey": _under(
        "pod", {}, {"topologySpread": {"topologyKey": "topology.kubernetes.io/zone"}}
    ),
    "routing.mode": ({}, {"routing": {"mode": "Router"}}),
    "routing.replicas": _routed({}, {"replicas": 2}),
    "routing.serviceAccountName": _routed({}, {"serviceAccountName": "a"}),
    "routing.endpointPicker.name": _picked({"name": "a"}, {"name": "b"}),
    "routing.endpointPicker.port": _picked({"name": "a"}, {"name": "a", "port": 9003}),
    "disaggregation.mode": _apart({"mode": "Off"}, {"mode": "Auto"}),
    "disaggregation.prefillGroups": _apart(
        {"prefillGroups": 1, "decodeGroups": 2}, {"prefillGroups": 2, "decodeGroups": 2}
    ),
    "disaggregation.decodeGroups": _apart(
        {"prefillGroups": 1, "decodeGroups": 2}, {"prefillGroups": 1, "decodeGroups": 1}
    ),
    "pod.network.rdma": _network({}, {"rdma": "None"}),
    "pod.network.resources[0].name": _explicit({"name": "rdma/a"}, {"name": "rdma/b"}),
    "pod.network.resources[0].count": _explicit({"name": "rdma/a"}, {"name": "rdma/a", "count": 2}),
    "pod.network.attachments[0]": _network({"attachments": ["a"]}, {"attachments": ["b"]}),
    "pod.network.plugins[0]": _network({}, {"plugins": ["EFA"]}),
    "pod.network.computeDomain": _network({}, {"computeDomain": "None"}),
    "pod.network.lockMemory": _network({}, {"lockMemory": True}),
    "restart.delaySeconds": _under("restart", {}, {"delaySeconds": 31}),
    "restart.maxDelaySeconds": _under("restart", {}, {"maxDelaySeconds": 601}),
    "restart.stableSeconds": _under("restart", {}, {"stableSeconds": 601}),
    "restart.budget": _under("restart", {}, {"budget": 7}),
    "restart.onBudgetSpent": _under("restart", {}, {"onBudgetSpent": "Stop"}),
    "readiness.tokens": _under("readiness", {}, {"tokens": False}),
    "readiness.silenceSeconds": _under("readiness", {}, {"silenceSeconds": 61}),
    "readiness.idleSeconds": _under("readiness", {}, {"idleSeconds": 31}),
    "rollout.maxSurge": _under("rollout", {}, {"maxSurge": 1}),
    "rollout.maxUnavailable": _under("rollout", {}, {"maxUnavailable": 2}),
    "rollout.minGroups": ({"replicas": 2}, {"replicas": 2, "rollout": {"minGroups": 2}}),
    "rollout.minReadySeconds": _under("rollout", {}, {"minReadySeconds": 60}),
    "rollout.partition": _under("rollout", {}, {"partition": 1}),
    "rollout.progressDeadlineSeconds": _under("rollout", {}, {"progressDeadlineSeconds": 1200}),
    "rollout.drainSeconds": _under("rollout", {}, {"drainSeconds": 120}),
    "rollout.onUpgrade": _under("rollout", {}, {"onUpgrade": "Roll"}),
    "rollout.onFailure": _under("rollout", {}, {"onFailure": "RollBack"}),
    "phase": ({}, {"phase": "Prefill"}),
    "replan": ({"replan": "WhenInvalid"}, {"replan": "Always"}),
}
"""Path → a spec and one that differs in that field alone."""

ON_TWO_NODES: Final = a_plan(rdma=(("rdma/a", 1),))
SEEN_BY_THE_CONTROLLER: Final = ("mode", "paused")
"""Acted on by ``controller``; its tests and those on the control plane show the effect."""


def test_the_table_has_every_field() -> None:
    leaves = {_dotted(steps) for steps, schema in fields() if not _has_fields(schema)}

    assert leaves == {*BEFORE_AND_AFTER, *SEEN_BY_THE_CONTROLLER}


@pytest.mark.parametrize("path", BEFORE_AND_AFTER)
def test_changing_a_field_changes_something_that_one_can_see(path: str, the_plan: Plan) -> None:
    before, after = (
        parse_manifest(a_sharded_model(MAY_BE_A_HALF, **spec)) for spec in BEFORE_AND_AFTER[path]
    )

    plan = ON_TWO_NODES if path.startswith(("pod.network", "engine.executor")) else the_plan
    assert what_one_sees(before, plan) != what_one_sees(after, plan)


def test_leaving_everything_as_it_is_changes_nothing(the_plan: Plan) -> None:
    resource = parse_manifest(a_sharded_model())

    assert what_one_sees(resource, the_plan) == what_one_sees(resource, the_plan)


@pytest.fixture(scope="module")
def the_plan() -> Plan:
    """One plan for all: what changes is not the planner's mood."""
    resource = parse_manifest(a_sharded_model())
    subject = resolve(Question(resource=resource))
    report = plan_serving(subject, take_stock(subject, facts(), ()))
    assert isinstance(report.outcome, Plan)
    return report.outcome


def facts() -> list[Any]:
    return [read_node(node) for node in NODES]


def what_one_sees(resource: ShardedModel, plan: Plan) -> tuple[Any, ...]:
    reference = resource.spec.model.config_map_ref
    text = CONFIG_MAPS.get((reference.name, reference.key)) if reference else None
    try:
        subject = resolve(Question(resource=resource, config_text=text, settings=ADMITTING))
    except InputError as error:
        return (str(error),)
    bundle = bundle_for(subject, plan)
    stock, fate = take_stock(subject, facts(), ()), fate_of_a_valid_plan(subject, plan)
    return (
        subject.model,
        subject.traits.options.drafter,
        subject.request,
        stock,
        bundle,
        fate,
        subject.intent.least(None),
        life_rules(subject.intent, {}),
    )


def fate_of_a_valid_plan(subject: Subject, plan: Plan) -> PlanChoice:
    """Return what becomes of a plan that was made for this spec and still fits the cluster."""
    intent = subject.intent
    wanted = Wanted(
        input_hash=subject.input_hash,
        cut_hash=subject.cut_hash,
        replan=intent.replan,
        replicas=intent.replicas,
    )
    record = PlanRecord(
        input_hash=subject.input_hash, cut_hash=subject.cut_hash, generation=1, plan=plan
    )
    return choose(record, wanted, RecordState(leaving=False))


def _has_fields(schema: Mapping[str, Any]) -> bool:
    return any(key in schema for key in ("properties", "items", "additionalProperties"))


def _dotted(steps: Steps) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps
    ).removeprefix(".")
