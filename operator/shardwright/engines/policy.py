"""Which engine arguments a user may set, and why not the others.

What is not listed as allowed is refused: a new engine version cannot smuggle an option in. The administrator of the
operator can admit what is dangerous, never what would contradict the plan or replace what the operator relies on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a user may say to an engine, by the options' names with dashes.

    ``missing`` are options that fields of the spec turn into elsewhere and that this engine cannot be told, each with why.
    ``counted`` are options that a user may set because the planner counts with them, and what the plan takes from them.
    """

    allowed: frozenset[str]
    owned: Mapping[str, str]
    dangerous: Mapping[str, str]
    incompatible: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)


ALLOWED: Final = frozenset(
    {
        # answers
        "chat-template-content-format",
        "default-chat-template-kwargs",
        "enable-auto-tool-choice",
        "enable-force-include-usage",
        "enable-prompt-tokens-details",
        "enable-request-id-headers",
        "exclude-tools-when-tool-choice-none",
        "logprobs-mode",
        "max-logprobs",
        "override-generation-config",
        "reasoning-parser",
        "response-role",
        "return-tokens-as-token-ids",
        "tool-call-parser",
        # logs and metrics
        "cudagraph-metrics",
        "disable-access-log-for-endpoints",
        "disable-uvicorn-access-log",
        "enable-log-requests",
        "enable-mfu-metrics",
        "enable-server-load-tracking",
        "kv-cache-metrics",
        "log-error-stack",
        "max-log-len",
        "uvicorn-log-level",
        # scheduling and kernels, as far as memory and limits stay as planned
        "async-scheduling",
        "attention-backend",
        "disable-cascade-attn",
        "disable-custom-all-reduce",
        "enable-ep-weight-filter",
        "enable-flashinfer-autotune",
        "enable-prefix-caching",
        "enforce-eager",
        "expert-placement-strategy",
        "linear-backend",
        "max-num-queued-reqs",
        "max-num-queued-tokens",
        "moe-backend",
        "numa-bind",
        "prefix-caching-hash-algo",
        "safetensors-load-strategy",
        "scheduling-policy",
        "seed",
        "stream-interval",
        "use-tqdm-on-load",
    }
)
"""Options that change neither the plan nor who may do what in the pod."""

COUNTED: Final[Mapping[str, str]] = {
    "dtype": "the type that the model computes in: weights, K/V and activations; `spec.model.quantization` goes before it",
    "kv-cache-memory-bytes": "what every rank keeps for K/V, whatever else is free; a whole number of bytes",
}
"""Options that a user may set because the planner counts with them, and what the plan takes from them."""

OWNED: Final[Mapping[str, str]] = {
    "all2all-backend": "leave it out; it is the one that the plan is priced for",
    "data-parallel-address": "leave it out; it is the first pod of the group",
    "data-parallel-rpc-port": "leave it out; it is the first pod of the group",
    "data-parallel-size": "set it through spec.replicas, or spec.parallelism.attentionData beside experts",
    "data-parallel-size-local": "leave it out; it follows from the plan",
    "data-parallel-start-rank": "leave it out; it follows from the index of the pod",
    "decode-context-parallel-size": "set it through spec.parallelism.context",
    "distributed-executor-backend": "set it through spec.engine.executor: Ray; groups of pods run on mp otherwise",
    "distributed-timeout-seconds": "leave it out; it follows from the bytes to load",
    "cpu-distributed-timeout-seconds": "leave it out; it follows from the bytes to load",
    "device-ids": "leave it out; a pod has exactly the GPUs of its ranks",
    "enable-expert-parallel": "set it through spec.parallelism.expert",
    "enable-lora": "set it through spec.model.adapters",
    "gpu-memory-utilization": "leave it out; the plan's memory is computed with the engine's default",
    "headless": "leave it out; every rank but the first is headless",
    "host": "leave it out; the server listens on all addresses of the pod",
    "kv-cache-dtype": "set it through spec.workload.kvCacheQuantization",
    "load-format": "set it through spec.model.loadFormat",
    "lora-modules": "set it through spec.model.adapters",
    "master-addr": "leave it out; it is the first pod of the group",
    "master-port": "leave it out; it is the first pod of the group",
    "max-lora-rank": "set it through spec.model.maxAdapterRank",
    "max-loras": "leave it out; every adapter of spec.model.adapters has a slot",
    "max-model-len": "set it through spec.workload.maxModelLen",
    "max-num-batched-tokens": "leave it out; the plan's memory is computed with it",
    "max-num-seqs": "set it through spec.workload.concurrency",
    "model": "set it through spec.model.id",
    "nnodes": "leave it out; the plan says how many nodes a group has",
    "node-rank": "leave it out; it is the index of the pod",
    "pipeline-parallel-size": "set it through spec.parallelism.pipeline",
    "port": "leave it out; the client Service listens on port 8000",
    "quantization": "set it through spec.model.quantization",
    "revision": "set it through spec.model.revision",
    "served-model-name": "set it through spec.model.servedName",
    "shutdown-timeout": "leave it out; it is part of the drain",
    "speculative-config": "set it through spec.workload.promptLookup or draftModel; EAGLE heads and MTP layers are not supported",
    "tensor-parallel-size": "set it through spec.parallelism.tensor",
}
"""Options that shardwright renders itself, and where to say it instead."""

DANGEROUS: Final[Mapping[str, str]] = {
    "additional-config": "reaches into platform plugins",
    "allow-credentials": "weakens the browser boundary of the server",
    "allowed-headers": "weakens the browser boundary of the server",
    "allowed-local-media-path": "lets requests read files of the pod",
    "allowed-media-domains": "lets requests fetch from other hosts",
    "allowed-methods": "weakens the browser boundary of the server",
    "allowed-origins": "weakens the browser boundary of the server",
    "chat-template": "reads a file or runs a template of its own",
    "code-revision": "selects code of the model's publisher",
    "config-format": "can name a plugin",
    "download-dir": "writes to a path of its own",
    "ec-transfer-config": "opens connections to other hosts",
    "generation-config": "reads a path of its own",
    "io-processor-plugin": "loads code",
    "kv-events-config": "opens connections to other hosts",
    "log-config-file": "reads a file that can name code",
    "logging-config": "can name code",
    "logits-processors": "loads code",
    "middleware": "loads code",
    "model-class-overrides": "loads code",
    "model-loader-extra-config": "can name other sources of weights",
    "otlp-traces-endpoint": "sends traces with prompts to another host",
    "profiler-config": "writes files and opens endpoints",
    "reasoning-parser-plugin": "loads code",
    "scheduler-cls": "loads code",
    "tokenizer": "loads another repository",
    "tokenizer-mode": "can name a plugin",
    "tool-parser-plugin": "loads code",
    "tool-server": "gives requests tools that run code",
    "trust-remote-code": "runs code of the model's publisher",
    "trust-request-chat-template": "runs templates out of requests",
    "trust-request-mm-kwargs": "takes processor settings out of requests",
    "weight-transfer-config": "opens connections to other hosts",
    "worker-cls": "loads code",
    "worker-extension-cls": "loads code",
}
"""Options that are refused for what they could do unless the administrator admits them, and what that is."""

INCOMPATIBLE: Final[Mapping[str, str]] = {
    "api-key": "would put a secret into the pod's arguments; use spec.engine.apiKeySecretRef",
    "config": "would set every other option from a file",
    "grpc": "replaces the HTTP server that probes and clients use",
    "hf-config-path": "reads another model's configuration",
    "hf-overrides": "changes the model that was planned",
    "hf-token": "would put a secret into the pod's arguments; use spec.model.weights.huggingFace.tokenSecretRef",
    "kv-offloading-backend": "moves K/V out of the GPU, and K/V offload is out of scope",
    "kv-offloading-size": "moves K/V out of the GPU, and K/V offload is out of scope",
    "kv-transfer-config": "opens connections to other hosts; disaggregated prefill and K/V offload are out of scope",
    "ssl-ca-certs": "takes the plain HTTP port away that probes and clients use; TLS ends before the pod",
    "ssl-certfile": "takes the plain HTTP port away that probes and clients use; TLS ends before the pod",
    "ssl-keyfile": "takes the plain HTTP port away that probes and clients use; TLS ends before the pod",
    "uds": "replaces the HTTP server that probes and clients use",
}
"""Options that nobody can admit, and what they would break."""

UNLISTED: Final = "could change the memory or the limits that the plan was computed with"
"""Why an option that is on no list is refused."""

VLLM: Final = Policy(allowed=ALLOWED, owned=OWNED, dangerous=DANGEROUS, incompatible=INCOMPATIBLE, counted=COUNTED)
"""The policy for ``vllm serve``."""
