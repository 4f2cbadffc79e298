"""ShardedModels as manifests: the smallest one, and complete ones for tests that want every
field.
"""

import copy
from typing import Any

Manifest = dict[str, Any]

A_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""Llama-3.1-8B, as far as its shape goes."""

A_COMMIT = "f" * 40

A_DRAFT: Manifest = {
    "method": "DraftModel",
    "tokens": 3,
    "acceptancePercent": 60,
    "head": {
        "id": "meta-llama/Llama-3.2-1B-Instruct",
        "uri": f"hf://meta-llama/Llama-3.2-1B-Instruct@{A_COMMIT}",
    },
}
"""Speculation by a model of the same vocabulary."""

A_STORE: Manifest = {
    "uri": "s3://models/llama/8b",
    "secretRef": {"name": "store"},
    "objectStore": {
        "endpoint": "https://minio.example:9000",
        "region": "eu-central-1",
        "addressing": "Path",
        "caConfigMapRef": {"name": "authority", "key": "ca.crt"},
        "concurrency": 16,
        "bufferGigabytes": 20,
        "megabytesPerSecond": 2_000,
    },
}
"""Weights in an object store of which everything is said that can be said of one that speaks S3."""

_COMPLETE: Manifest = {
    "model": {
        "id": "meta-llama/Llama-3.1-8B-Instruct",
        "servedName": "llama",
        "config": A_CONFIG,
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "weights": {
            "uri": "hf://meta-llama/Llama-3.1-8B-Instruct",
            "secretRef": {"name": "hub", "key": "token"},
            "cache": {"storage": "100Gi", "storageClassName": "fast"},
        },
        "loadFormat": "Safetensors",
        "quantization": "BF16",
        "adapters": [{"name": "support", "uri": f"hf://acme/support@{A_COMMIT}"}],
        "maxAdapterRank": 64,
        "unproven": {"weightBytes": 812_000_000_000, "kvBytesPerToken": 35_136},
    },
    "engine": {
        "name": "vLLM",
        "image": "registry.internal:5000/vllm/vllm-openai:v0.33.0",
        "version": "0.33.0",
        "args": {"seed": 7},
        "familyDefaults": "None",
        "executor": "Ray",
        "maxModelLen": 4096,
        "kvCacheQuantization": "FP8",
        "kvOffload": {"hostMemory": "64Gi"},
        "speculation": {"method": "PromptLookup", "tokens": 3, "acceptancePercent": 60},
        "apiKeySecretRef": {"name": "clients", "key": "key"},
        "mediaDomains": ["images.example.com"],
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
    },
    "workload": {
        "inputTokens": 1024,
        "outputTokens": 256,
        "concurrency": 16,
        "prefixCacheHitPercent": 30,
        "expertImbalancePercent": 130,
    },
    "objective": {
        "optimizeFor": "Latency",
        "ttftMilliseconds": 2000,
        "tpotMilliseconds": 50,
        "statistic": "P95",
    },
    "replicas": 2,
    "scaling": {"minReplicas": 1, "maxReplicas": 4, "idleSeconds": 600},
    "serving": {"overload": "Refuse", "order": "Priority"},
    "routing": {"mode": "Router", "replicas": 2, "serviceAccountName": "router"},
    "budget": {"gpus": 16, "nodes": 2, "fill": False},
    "parallelism": {
        "tensor": 4,
        "pipeline": 1,
        "expert": 1,
        "dataParallelAttention": 1,
        "context": 1,
        "partition": [32],
    },
    "placement": {
        "nodeSelector": {"example.com/pool": "blue"},
        "migProfile": "3g.40gb",
        "tolerations": [
            {
                "key": "dedicated",
                "operator": "Equal",
                "value": "llm",
                "effect": "NoExecute",
                "tolerationSeconds": 60,
            }
        ],
        "scheduler": "Kueue",
        "queue": "serving",
    },
    "pod": {
        "resources": {"cpu": "16", "memory": "64Gi", "ephemeralStorage": "300Gi"},
        "readOnlyRootFilesystem": False,
        "runtimeClassName": "nvidia",
        "priorityClassName": "serving",
        "labels": {"team": "search"},
        "annotations": {"example.com/cost-centre": "42"},
        "serviceAccountName": "reader",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [
            {
                "name": "keys",
                "mountPath": "/etc/ssl/certs/own/keys",
                "secret": {"secretName": "keys"},
            }
        ],
        "topologySpread": {"topologyKey": "topology.kubernetes.io/zone"},
        "network": {
            "rdma": "Explicit",
            "resources": [{"name": "rdma/hca", "count": 8}],
            "attachments": ["fabric/rail-0"],
            "computeDomain": "None",
            "lockMemory": True,
            "plugins": ["EFA"],
        },
    },
    "restart": {
        "delaySeconds": 10,
        "maxDelaySeconds": 60,
        "stableSeconds": 300,
        "budget": 3,
        "onBudgetSpent": "Stop",
    },
    "readiness": {"tokens": True, "silenceSeconds": 90, "idleSeconds": 15},
    "rollout": {
        "maxUnavailable": 2,
        "maxSurge": 1,
        "drainSeconds": 240,
        "onUpgrade": "Roll",
        "onFailure": "RollBack",
        "minReadySeconds": 60,
        "progressDeadlineSeconds": 1200,
        "minGroups": 2,
        "partition": 1,
    },
    "replan": "Always",
    "mode": "PlanOnly",
    "paused": True,
}


def a_sharded_model(name: str = "llama", namespace: str = "default", **spec: Any) -> Manifest:
    """Return the smallest useful manifest, with the given fields of the spec beside the model or
    instead of it.
    """
    return {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}} | spec,
    }


def complete_specs() -> tuple[Manifest, ...]:
    """Return valid specs that together have every field: those that exclude each other stand
    apart.
    """
    first = copy.deepcopy(_COMPLETE)
    second = copy.deepcopy(_COMPLETE)
    second["model"] = {
        "id": "meta-llama/Llama-3.1-8B-Instruct",
        "configMapRef": {"name": "llama-config", "key": "config.json"},
        "weights": {"uri": "pvc://weights/llama/8b"},
        "quantization": "Auto",
        "adapters": [{"name": "support", "uri": "pvc://adapters/support/v3"}],
    }
    del second["workload"]["concurrency"]
    head = {"id": "acme/head", "config": A_CONFIG}
    second["engine"]["speculation"] = {
        "method": "EAGLE3",
        "tokens": 3,
        "acceptancePercent": 60,
        "head": head | {"uri": "pvc://drafts/llama/eagle"},
    }
    second["workload"]["requestsPerSecond"] = 2.5
    del second["placement"]["queue"]
    second["placement"] |= {
        "scheduler": "Coscheduling",
        "schedulerName": "scheduler-plugins-scheduler",
    }
    third = copy.deepcopy(_COMPLETE)
    third["model"]["weights"]["cache"] = {"claimName": "downloads"}
    third["engine"]["speculation"] = {
        "method": "DraftModel",
        "head": head | {"uri": f"hf://acme/head@{A_COMMIT}"},
    }
    second["pod"]["volumes"] = [
        {"name": "files", "mountPath": "/mnt/files", "configMap": {"name": "files"}}
    ]
    third["pod"]["volumes"] = [
        {"name": "data", "mountPath": "/data/own", "pvc": {"claimName": "data", "readOnly": False}}
    ]
    fourth = copy.deepcopy(second)
    fourth["pod"]["volumes"] = [
        {"name": "scratch", "mountPath": "/srv/scratch", "emptyDir": {"sizeLimit": "10Gi"}}
    ]
    fourth["model"]["weights"] = {
        "uri": "oci://registry.internal/models/llama:8b",
        "image": {"pullPolicy": "IfNotPresent", "path": "llama/8b"},
    }
    fifth, sixth = copy.deepcopy(fourth), copy.deepcopy(fourth)
    fifth["model"]["weights"] = A_STORE
    sixth["routing"] = {"mode": "InferencePool", "endpointPicker": {"name": "epp", "port": 9002}}
    sixth["model"]["weights"] = {"uri": "az://models/llama", "objectStore": {"account": "weights"}}
    seventh = copy.deepcopy(first)
    seventh["disaggregation"] = {"mode": "Auto", "prefillGroups": 1, "decodeGroups": 2}
    seventh["model"] = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    del seventh["engine"]["kvOffload"], seventh["engine"]["speculation"], seventh["scaling"]
    eighth = copy.deepcopy(seventh) | {"phase": "Decode"}
    del eighth["disaggregation"]
    return first, second, third, fourth, fifth, sixth, seventh, eighth
