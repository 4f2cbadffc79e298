"""For every rule between fields one spec that breaks it and one that keeps it, next to the
limit.
"""

from dataclasses import dataclass
from typing import Any

from tests.support.builders_resource import A_CONFIG, Manifest

REVISION = "0123456789abcdef0123456789abcdef01234567"
CLAIM = {"uri": "pvc://x"}
IMAGE = {"uri": "oci://x"}
HUB = {"uri": "hf://a/b"}
LONGEST_KEY = f"{'a' * 253}/{'b' * 63}"


@dataclass(frozen=True, slots=True)
class RuleCase:
    """Fields of the spec beside the smallest manifest's."""

    code: str
    broken: Manifest
    kept: Manifest

    def __str__(self) -> str:
        return self.code


def _model(**fields: Any) -> Manifest:
    return {"model": {"id": "a/b"} | fields}


def _adapted(*adapters: Manifest, **fields: Any) -> Manifest:
    return _model(adapters=list(adapters), **fields)


def _cached(**fields: Any) -> Manifest:
    return _model(weights={"cache": fields})


def _placed(**fields: Any) -> Manifest:
    return {"placement": fields}


def _apart(**fields: Any) -> Manifest:
    return {"disaggregation": {"mode": "Auto"} | fields, "routing": {"mode": "Router"}}


def _paired(**fields: Any) -> Manifest:
    return _apart() | fields


def _speculating(method: str, **fields: Any) -> Manifest:
    return {"engine": {"speculation": {"method": method} | fields}}


_OF_ONE_GROUP: tuple[Manifest, ...] = (
    {"engine": {"kvOffload": {}}},
    _speculating("PromptLookup"),
    _adapted({"name": "a", "uri": "pvc://a"}),
)
"""K/V that no other group finds."""


HEAD = {"id": "a/b"} | CLAIM


def _adapter_at(uri: str) -> Manifest:
    return _adapted({"name": "x", "uri": uri})


def _head_at(uri: str) -> Manifest:
    return _speculating("EAGLE3", head={"id": "a/b", "uri": uri})


def _toleration(**fields: Any) -> Manifest:
    return {"placement": {"tolerations": [fields]}}


def _network(**fields: Any) -> Manifest:
    return {"pod": {"network": fields}}


def _pod(**fields: Any) -> Manifest:
    return {"pod": fields}


def _mounted(**kinds: Any) -> Manifest:
    return _pod(volumes=[{"name": "own", "mountPath": "/mnt/own", **kinds}])


def _mounted_at(path: str) -> Manifest:
    return _pod(volumes=[_a_volume("own", path)])


def _a_volume(name: str, path: str) -> Manifest:
    return {"name": name, "mountPath": path, "configMap": {"name": "files"}}


def _explicit(name: str) -> Manifest:
    return _network(rdma="Explicit", resources=[{"name": name}])


S3: Manifest = {"uri": "s3://models/llama"}
GCS: Manifest = {"uri": "gs://models/llama"}
AZURE: Manifest = {"uri": "az://models/llama", "objectStore": {"account": "abc"}}
SECRET: Manifest = {"secretRef": {"name": "a"}}
KEY: Manifest = {"secretRef": {"name": "a", "key": "b"}}

RULE_CASES = (
    RuleCase(
        "ConfigTwice",
        _model(config=A_CONFIG, configMapRef={"name": "x"}),
        _model(configMapRef={"name": "x"}),
    ),
    *(
        RuleCase(
            "RevisionWithoutHub",
            _model(revision=REVISION, weights=weights),
            _model(weights=weights),
        )
        for weights in (CLAIM, IMAGE, S3)
    ),
    RuleCase(
        "RevisionWithoutHub",
        _model(revision=REVISION, weights=CLAIM),
        _model(revision=REVISION, weights=HUB),
    ),
    RuleCase("WeightsOfAnotherModel", _model(weights={"uri": "hf://a/c"}), _model(weights=HUB)),
    *(
        RuleCase(
            "TooLong",
            _model(weights={"uri": f"{start}{'a' * (most + 1)}{end}"} | more),
            _model(weights={"uri": f"{start}{'a' * most}{end}"} | more),
        )
        for start, most, end, more in (
            ("pvc://", 253, "", {}),
            ("pvc://", 253, "/x", {}),
            ("pvc://x/", 1024, "", {}),
            (f"pvc://{'x' * 252}/", 1024, "", {}),
            ("oci://", 512, "", {}),
            ("s3://models/", 1024 - len("s3://models/"), "", {}),
            ("gs://models/", 1024 - len("gs://models/"), "", {}),
            ("az://models/", 1024 - len("az://models/"), "", {"objectStore": {"account": "abc"}}),
        )
    ),
    *(
        RuleCase("TooLong", at(f"{start}{'a' * (most + 1)}{end}"), at(f"{start}{'a' * most}{end}"))
        for start, most, end in (("pvc://", 253, "/x"), ("pvc://x/", 1024, ""))
        for at in (_adapter_at, _head_at)
    ),
    *(
        RuleCase(
            "WeightsSettings",
            _model(weights=elsewhere | settings),
            _model(weights=there | settings),
        )
        for settings, there, elsewhere in (
            ({"cache": {"claimName": "x"}}, HUB, CLAIM),
            ({"cache": {"claimName": "x"}}, {}, S3),
            ({"objectStore": {"concurrency": 8}}, GCS, IMAGE),
            ({"objectStore": {"concurrency": 8}}, S3, {}),
            ({"image": {"path": "a"}}, IMAGE, CLAIM),
            ({"image": {"path": "a"}}, IMAGE, {}),
        )
    ),
    *(
        RuleCase("WeightsSecret", _model(weights=broken), _model(weights=kept))
        for broken, kept in (
            (GCS | SECRET, S3 | SECRET),
            (CLAIM | SECRET, SECRET),
            (IMAGE | SECRET, HUB | KEY),
            (S3 | KEY, KEY),
            (AZURE | KEY, AZURE | SECRET),
        )
    ),
    RuleCase(
        "StoreNotStreamed",
        _model(loadFormat="Safetensors", weights=S3),
        _model(loadFormat="RunAIStreamer", weights=S3),
    ),
    RuleCase(
        "StoreOfS3",
        _model(weights=GCS | {"objectStore": {"endpoint": "https://minio"}}),
        _model(weights=S3 | {"objectStore": {"endpoint": "https://minio"}}),
    ),
    RuleCase("StoreAccount", _model(weights={"uri": "az://models/llama"}), _model(weights=AZURE)),
    RuleCase(
        "StoreAccount", _model(weights=S3 | {"objectStore": {"account": "abc"}}), _model(weights=S3)
    ),
    RuleCase("CacheKind", _cached(claimName="a", storage="1Gi"), _cached(storage="1Gi")),
    RuleCase("CacheKind", _cached(), _cached(claimName="a")),
    RuleCase(
        "CacheClass",
        _cached(claimName="a", storageClassName="b"),
        _cached(storage="1Gi", storageClassName="b"),
    ),
    RuleCase(
        "ShardsWithoutClaim", _model(loadFormat="ShardedState"), _model(loadFormat="Safetensors")
    ),
    RuleCase(
        "ShardsWithoutClaim",
        _model(loadFormat="ShardedState", weights=HUB),
        _model(loadFormat="ShardedState", weights=CLAIM),
    ),
    RuleCase(
        "ShardsWithoutClaim",
        _model(loadFormat="ShardedState"),
        _model(loadFormat="ShardedState", weights=IMAGE),
    ),
    RuleCase(
        "AdapterNameTaken",
        _adapted({"name": "a/b", **CLAIM}),
        _adapted({"name": "a/b", **CLAIM}, servedName="c"),
    ),
    RuleCase(
        "AdapterNameTaken",
        _adapted({"name": "c", **CLAIM}, servedName="c"),
        _adapted({"name": "a/b:c", **CLAIM}, servedName="c"),
    ),
    RuleCase(
        "RankWithoutAdapters",
        _model(maxAdapterRank=8),
        _adapted({"name": "x", **CLAIM}, maxAdapterRank=8),
    ),
    RuleCase("RankWithoutAdapters", _adapted(maxAdapterRank=8), _adapted()),
    RuleCase(
        "EnvironmentForbidden",
        {"engine": {"env": [{"name": "VLLM_HOST_IP", "value": "x"}]}},
        {"engine": {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}},
    ),
    RuleCase(
        "EnvironmentForbidden",
        {"engine": {"env": [{"name": "LD_PRELOAD", "value": "x"}]}},
        {"engine": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}},
    ),
    RuleCase(
        "EnvironmentForbidden",
        {"engine": {"env": [{"name": "HF_TOKEN", "value": "x"}]}},
        {"engine": {"env": [{"name": "NCCL_NET_PLUGIN", "value": "x"}]}},
    ),
    RuleCase(
        "RayWithoutVLLM",
        {"engine": {"name": "TensorRTLLM", "executor": "Ray"}},
        {"engine": {"name": "TensorRTLLM", "executor": "Native"}},
    ),
    RuleCase(
        "RoutingWithoutRouter",
        {"routing": {"mode": "Service", "replicas": 2}},
        {"routing": {"mode": "Router", "replicas": 2}},
    ),
    RuleCase(
        "RoutingWithoutRouter",
        {"routing": {"serviceAccountName": "a"}},
        {"routing": {"mode": "Router", "serviceAccountName": "a"}},
    ),
    RuleCase(
        "PickerOfPool",
        {"routing": {"mode": "InferencePool"}},
        {"routing": {"mode": "InferencePool", "endpointPicker": {"name": "a"}}},
    ),
    RuleCase(
        "PickerOfPool",
        {"routing": {"mode": "Router", "endpointPicker": {"name": "a"}}},
        {"routing": {"mode": "Router"}},
    ),
    RuleCase(
        "RouterWithoutVLLM",
        *(
            {"engine": {"name": engine}, "routing": {"mode": "Router"}}
            for engine in ("TensorRTLLM", "vLLM")
        ),
    ),
    RuleCase("PairWithoutRouter", {"disaggregation": {"mode": "Auto"}}, _paired()),
    RuleCase(
        "PairWithoutRouter",
        {"disaggregation": {"mode": "On"}, "routing": {"mode": "Service"}},
        {"disaggregation": {"mode": "Off"}, "routing": {"mode": "Service"}},
    ),
    RuleCase("PairGroups", _apart(prefillGroups=1), _apart(prefillGroups=1, decodeGroups=1)),
    RuleCase("PairGroups", _apart(mode="Off", prefillGroups=1, decodeGroups=1), _apart(mode="Off")),
    RuleCase("PairWithPipeline", *(_paired(parallelism={"pipeline": stages}) for stages in (2, 1))),
    RuleCase(
        "PairWithPipeline",
        *(_paired(parallelism={"partition": layers}) for layers in ([16, 16], [32])),
    ),
    *(
        RuleCase("PairExcludes", _paired(**fields), fields)
        for fields in (
            *_OF_ONE_GROUP,
            _model(unproven={"weightBytes": 10**9, "kvBytesPerToken": 100})
            | {"parallelism": {"tensor": 1, "pipeline": 1}},
            {"budget": {"fill": True, "gpus": 8}},
            {"scaling": {"maxReplicas": 2}},
        )
    ),
    *(RuleCase("PhaseOfPlainKv", {"phase": "Decode", **alone}, alone) for alone in _OF_ONE_GROUP),
    *(
        RuleCase("PhaseWithPair", wrong | {"phase": "Prefill"}, wrong | {"phase": "Whole"})
        for wrong in ({"scaling": {"maxReplicas": 2}}, {"disaggregation": {"mode": "Off"}})
    ),
    RuleCase(
        "PhaseInStages",
        *({"phase": "Prefill", "parallelism": {"pipeline": stages}} for stages in (2, 1)),
    ),
    RuleCase(
        "PhaseInStages",
        *({"phase": "Decode", "parallelism": {"partition": cut}} for cut in ([16, 16], [32])),
    ),
    *(
        RuleCase("PhaseRouted", wrong, right)
        for wrong, right in (
            (
                {"phase": "Prefill", "routing": {"mode": "Router"}},
                {"phase": "Decode", "routing": {"mode": "Router"}},
            ),
            (
                {
                    "phase": "Decode",
                    "routing": {"mode": "InferencePool", "endpointPicker": {"name": "a"}},
                },
                {"phase": "Decode", "routing": {"mode": "Service"}},
            ),
        )
    ),
    RuleCase(
        "RequestsExceedModelLength",
        *(
            {
                "workload": {"inputTokens": 1000, "outputTokens": output},
                "engine": {"maxModelLen": 1024},
            }
            for output in (25, 24)
        ),
    ),
    RuleCase(
        "ArrivalTwice",
        {"workload": {"concurrency": 8, "requestsPerSecond": 1}},
        {"workload": {"requestsPerSecond": 1}},
    ),
    RuleCase("HeadOfMethod", _speculating("DraftModel"), _speculating("MTP")),
    RuleCase("HeadOfMethod", _speculating("MTP", head=HEAD), _speculating("EAGLE3", head=HEAD)),
    RuleCase(
        "DraftOfShards",
        _model(loadFormat="ShardedState", weights=CLAIM) | _speculating("MTP"),
        _model(loadFormat="ShardedState", weights=CLAIM) | _speculating("PromptLookup"),
    ),
    RuleCase(
        "DraftOfShards",
        _model(loadFormat="ShardedState", weights=CLAIM) | _speculating("DraftModel", head=HEAD),
        _model(loadFormat="FastSafetensors", weights=CLAIM) | _speculating("DraftModel", head=HEAD),
    ),
    RuleCase(
        "ExpertNotTensor",
        {"parallelism": {"tensor": 8, "expert": 4}},
        {"parallelism": {"tensor": 8, "expert": 8}},
    ),
    RuleCase(
        "ExpertNotTensor",
        {"parallelism": {"tensor": 4, "dataParallelAttention": 2, "expert": 4}},
        {"parallelism": {"tensor": 4, "dataParallelAttention": 2, "expert": 8}},
    ),
    RuleCase(
        "ExpertNotTensor",
        {"parallelism": {"tensor": 8, "dataParallelAttention": 1, "expert": 4}},
        {
            "parallelism": {"tensor": 8, "dataParallelAttention": 1, "expert": 4},
            "engine": {"name": "TensorRTLLM"},
        },
    ),
    RuleCase(
        "ExpertNotTensor",
        {
            "parallelism": {"tensor": 8, "dataParallelAttention": 1, "expert": 3},
            "engine": {"name": "TensorRTLLM"},
        },
        {"parallelism": {"tensor": 8, "expert": 2}, "engine": {"name": "TensorRTLLM"}},
    ),
    RuleCase(
        "ContextNotDivisor",
        {"parallelism": {"tensor": 8, "context": 3}},
        {"parallelism": {"tensor": 8, "context": 4}},
    ),
    RuleCase(
        "PartitionStages",
        {"parallelism": {"pipeline": 3, "partition": [16, 16]}},
        {"parallelism": {"pipeline": 2, "partition": [16, 16]}},
    ),
    RuleCase(
        "FillWithoutBudget", {"budget": {"fill": True}}, {"budget": {"fill": True, "nodes": 1}}
    ),
    RuleCase(
        "FillWithReplicas",
        {"replicas": 1, "budget": {"fill": True, "gpus": 8}},
        {"replicas": 0, "budget": {"fill": True, "gpus": 8}},
    ),
    RuleCase(
        "PinsExceedBudget",
        {"replicas": 2, "parallelism": {"tensor": 8, "pipeline": 2}, "budget": {"gpus": 31}},
        {"replicas": 2, "parallelism": {"tensor": 8, "pipeline": 2}, "budget": {"gpus": 32}},
    ),
    RuleCase(
        "PinsExceedBudget",
        {"parallelism": {"tensor": 4, "dataParallelAttention": 2}, "budget": {"gpus": 7}},
        {"parallelism": {"tensor": 4, "dataParallelAttention": 2}, "budget": {"gpus": 8}},
    ),
    RuleCase(
        "PinsExceedBudget",
        {"replicas": 2, "budget": {"gpus": 1}},
        {"replicas": 2, "budget": {"gpus": 2}},
    ),
    RuleCase(
        "ScalingFills",
        {"scaling": {"maxReplicas": 2}, "budget": {"fill": True, "gpus": 8}},
        {"scaling": {"maxReplicas": 2}, "budget": {"fill": False, "gpus": 8}},
    ),
    RuleCase(
        "ScalingExceedsBudget",
        {"scaling": {"maxReplicas": 3}, "parallelism": {"tensor": 4}, "budget": {"gpus": 11}},
        {"scaling": {"maxReplicas": 3}, "parallelism": {"tensor": 4}, "budget": {"gpus": 12}},
    ),
    RuleCase(
        "ScalingBounds",
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
        {"scaling": {"minReplicas": 2, "maxReplicas": 2}},
    ),
    RuleCase(
        "ScalingToZero",
        {"scaling": {"minReplicas": 0, "maxReplicas": 2}},
        {"scaling": {"minReplicas": 1, "maxReplicas": 2}},
    ),
    RuleCase(
        "ScalingToZero",
        {"scaling": {"minReplicas": 0, "maxReplicas": 2}, "routing": {"mode": "Service"}},
        {"scaling": {"minReplicas": 0, "maxReplicas": 2}, "routing": {"mode": "Router"}},
    ),
    RuleCase(
        "BadLabelKey",
        {"placement": {"nodeSelector": {"-bad": "x"}}},
        {"placement": {"nodeSelector": {"nvidia.com/gpu.product": "x"}}},
    ),
    RuleCase(
        "BadLabelKey",
        {"placement": {"nodeSelector": {"a" * 64: "x"}}},
        {"placement": {"nodeSelector": {"a" * 63: "x"}}},
    ),
    RuleCase(
        "BadLabelKey",
        _placed(nodeSelector={"a" + LONGEST_KEY: "x"}),
        _placed(nodeSelector={LONGEST_KEY: "x"}),
    ),
    RuleCase(
        "KueueWithoutQueue", _placed(scheduler="Kueue"), _placed(scheduler="Kueue", queue="serving")
    ),
    RuleCase(
        "QueueWithoutScheduler",
        _placed(queue="serving"),
        _placed(scheduler="Kueue", queue="serving"),
    ),
    RuleCase(
        "QueueWithoutScheduler",
        _placed(scheduler="Native", queue="serving"),
        _placed(scheduler="Native"),
    ),
    RuleCase(
        "SchedulerNameNotUsed",
        _placed(scheduler="Native", schedulerName="gangs"),
        _placed(scheduler="Coscheduling", schedulerName="default-scheduler"),
    ),
    RuleCase(
        "KaiGroupsOnePod",
        _placed(scheduler="Coscheduling", schedulerName="kai-scheduler"),
        _placed(scheduler="Coscheduling", schedulerName="gangs"),
    ),
    RuleCase(
        "TolerationValue",
        _toleration(key="a", operator="Exists", value="x"),
        _toleration(key="a", operator="Equal", value="x"),
    ),
    RuleCase(
        "TolerationKey", _toleration(operator="Equal", value="x"), _toleration(operator="Exists")
    ),
    RuleCase(
        "TolerationSeconds",
        _toleration(key="a", effect="NoSchedule", tolerationSeconds=1),
        _toleration(key="a", effect="NoExecute", tolerationSeconds=1),
    ),
    RuleCase(
        "RdmaResources",
        _network(rdma="Explicit"),
        _network(rdma="Explicit", resources=[{"name": "rdma/hca"}]),
    ),
    RuleCase("RdmaResources", _network(resources=[{"name": "rdma/hca"}]), _network(resources=[])),
    RuleCase("RdmaResourceName", _explicit("nvidia.com/gpu"), _explicit("nvidia.com/hostdev")),
    RuleCase("RdmaResourceName", _explicit("amd.com/gpu"), _explicit("amd.com/nic")),
    RuleCase(
        "RdmaResourceName",
        _explicit("nvidia.com/mig-1g.10gb"),
        _explicit("nvidia.com/sriov_rdma_vf"),
    ),
    RuleCase(
        "RdmaResourceName", _explicit("requests.kubernetes.io/x"), _explicit("mykubernetes.io/x")
    ),
    RuleCase(
        "RdmaResourceName", _explicit("kubernetes.io/batch-cpu"), _explicit("vpc.amazonaws.com/efa")
    ),
    RuleCase(
        "LockMemoryWithoutRdma",
        _network(rdma="None", lockMemory=True),
        _network(rdma="Auto", lockMemory=True),
    ),
    RuleCase("BadLabelKey", _pod(labels={"-bad": "x"}), _pod(labels={"team": "x"})),
    RuleCase(
        "BadLabelKey",
        _pod(annotations={"a b": "x"}),
        _pod(annotations={"example.com/a": "any text: {}"}),
    ),
    *(
        RuleCase("ReservedKey", _pod(labels={key: "x"}), _pod(labels={open_key: "x"}))
        for key, open_key in (
            ("shardwright.io/group", "notshardwright.io/group"),
            ("app.kubernetes.io/name", "app.kubernetes.io/part-of"),
            ("apps.kubernetes.io/pod-index", "kubernetes.io.example.com/pod-index"),
            ("kueue.x-k8s.io/queue-name", "kueue.example.com/queue-name"),
            ("controller-revision-hash", "revision-hash"),
            ("aadpodidbinding", "aadpodid"),
        )
    ),
    *(
        RuleCase("ReservedKey", _pod(annotations={key: "x"}), _pod(annotations={open_key: "x"}))
        for key, open_key in (
            ("k8s.v1.cni.cncf.io/networks", "networks"),
            (
                "container.apparmor.security.beta.kubernetes.io/engine",
                "cluster-autoscaler.kubernetes.io/safe-to-evict",
            ),
            ("cdi.k8s.io/gpus", "prometheus.io/scrape"),
            ("io.kubernetes.cri-o.Devices", "io.kubernetes.other"),
        )
    ),
    RuleCase(
        "VolumeKind",
        _mounted(configMap={"name": "a"}, pvc={"claimName": "a"}),
        _mounted(pvc={"claimName": "a"}),
    ),
    RuleCase("VolumeKind", _mounted(), _mounted(emptyDir={"sizeLimit": "1Gi"})),
    *(
        RuleCase("ReservedMountPath", _mounted_at(path), _mounted_at(fine))
        for path, fine in (
            ("/etc/shardwright", "/mnt/shardwright"),
            ("/cache", "/data/cache"),
            ("/mnt", "/mnt/a/b"),
            ("/etc/ssl/certs", "/etc/ssl/certs/own"),
            ("/etc/ssl/own", "/etc/ssl/certs/a/b"),
            ("/etc/pki/tls", "/etc/pki/ca-trust/source"),
            ("/usr/local/lib/python3.12", "/srv/python3.12"),
            ("/mntother/a", "/mnt/other/a"),
        )
    ),
    RuleCase(
        "MountPathTwice",
        _pod(volumes=[_a_volume("a", "/mnt/x"), _a_volume("b", "/mnt/x")]),
        _pod(volumes=[_a_volume("a", "/mnt/x"), _a_volume("b", "/mnt/y")]),
    ),
    *(
        RuleCase(
            "MountPathTwice",
            _pod(volumes=[_a_volume("a", first), _a_volume("b", second)]),
            _pod(volumes=[_a_volume("a", "/mnt/x"), _a_volume("b", "/mnt/xy")]),
        )
        for first, second in (("/mnt/x", "/mnt/x/y"), ("/mnt/x/y/z", "/mnt/x"))
    ),
    RuleCase(
        "RestartDelays",
        {"restart": {"delaySeconds": 61, "maxDelaySeconds": 60}},
        {"restart": {"delaySeconds": 60, "maxDelaySeconds": 60}},
    ),
)
