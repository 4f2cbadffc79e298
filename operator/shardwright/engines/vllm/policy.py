"""Options of ``vllm serve`` that a user may set.

Every option of 0.32 and 0.33 is here; one that a later version adds is not, and so refused. Some
options can do more than serve a model, and others would break a plan: an administrator may admit
the former, and nobody the latter.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.options import Rules
from shardwright.engines.policy import Policy, Tables
from shardwright.engines.vllm.pins import check_pins, read_pins

DANGEROUS: Final[Mapping[str, str]] = {
    "additional-config": "reaches into platform plugins",
    "allow-credentials": "weakens the browser boundary of the server",
    "allowed-headers": "weakens the browser boundary of the server",
    "allowed-local-media-path": "lets requests read files of the pod",
    "allowed-methods": "weakens the browser boundary of the server",
    "allowed-origins": "weakens the browser boundary of the server",
    "chat-template": "reads a file or runs a template of its own",
    "code-revision": "selects code of the model's publisher",
    "config-format": "can name a plugin",
    "default-mm-loras": "loads adapters from paths of its own",
    "download-dir": "writes to a path of its own",
    "ec-manager-config": "loads code",
    "ec-transfer-config": "opens connections to other hosts",
    "enable-mm-embeds": "takes tensors out of requests",
    "enable-prompt-embeds": "takes tensors out of requests",
    "enable-scale-out": "opens endpoints that take and give tokens in place of text",
    "enable-tokenizer-info-endpoint": (
        "shows chat template and tokenizer to everybody who reaches the server"
    ),
    "enable-trace-replay": "lets requests say what the engine is to answer",
    "generation-config": "reads a path of its own",
    "io-processor-plugin": "loads code",
    "kv-events-config": "opens connections to other hosts",
    "log-config-file": "reads a file that can name code",
    "logging-config": "can name code",
    "logits-processors": "loads code",
    "middleware": "loads code",
    "mm-encoder-fp8-scale-path": "reads a file of its own",
    "mm-encoder-fp8-scale-save-path": "writes to a path of its own",
    "model-class-overrides": "loads code",
    "otlp-traces-endpoint": "sends traces with prompts to another host",
    "profiler-config": "writes files and opens endpoints",
    "ray-workers-use-nsight": "starts another program",
    "reasoning-parser-plugin": "loads code",
    "scheduler-cls": "loads code",
    "structured-outputs-config": "can name a plugin",
    "tokenizer": "loads another repository",
    "tokenizer-mode": "can name a plugin",
    "tokenizer-revision": "selects another tokenizer of the model's publisher",
    "tool-parser-plugin": "loads code",
    "tool-server": "gives requests tools that run code",
    "trust-remote-code": "runs code of the model's publisher",
    "trust-request-chat-template": "runs templates out of requests",
    "trust-request-mm-kwargs": "takes processor settings out of requests",
    "weight-transfer-config": "opens connections to other hosts",
    "worker-cls": "loads code",
    "worker-extension-cls": "loads code",
}
"""Dangerous options, each with its danger; refused unless the administrator admits them."""

_OFF_ANYWAY: Final = (
    "allow-credentials",
    "disable-hybrid-kv-cache-manager",
    "disable-log-stats",
    "disable-sliding-window",
    "enable-elastic-ep",
    "enable-fault-tolerance",
    "enable-mm-embeds",
    "enable-prompt-embeds",
    "enable-scale-out",
    "enable-ssl-refresh",
    "enable-tokenizer-info-endpoint",
    "enable-trace-replay",
    "grpc",
    "mm-encoder-only",
    "ray-workers-use-nsight",
    "skip-tokenizer-init",
    "tokens-only",
    "trust-remote-code",
    "trust-request-chat-template",
    "trust-request-mm-kwargs",
)
"""Switches below that the engine has off by itself: ``false`` asks for nothing."""

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(_OFF_ANYWAY, frozenset({"false"})),
    "chat-template": frozenset(
        {
            "examples/tool_chat_template_deepseekv3.jinja",
            "examples/tool_chat_template_deepseekv31.jinja",
            "examples/tool_chat_template_gemma4.jinja",
        }
    ),
    "generation-config": frozenset({"auto", "vllm"}),
    "mm-processor-cache-gb": frozenset({"0", "1", "2", "3", "4"}),
    "tokenizer-mode": frozenset(
        {"auto", "cohere", "deepseek_v32", "deepseek_v4", "hf", "inkling", "kimi_k3", "mistral"}
    ),
}
"""Values that everybody may set of options that others may not: they name files and modes of the
engine itself, no path and no plugin, or take no more than the engine does without them.
"""

INCOMPATIBLE: Final[Mapping[str, str]] = {
    "api-key": "would put a secret into the pod's arguments; use spec.engine.apiKeySecretRef",
    "api-server-count": "replaces the one HTTP server that probes and readiness read",
    "config": "would set every other option from a file",
    "convert": "turns it into a model that generates no text; only text generation is planned",
    "cpu-offload-gb": "keeps weights out of the GPU, but the plan counts them there",
    "cpu-offload-params": "keeps weights out of the GPU, but the plan counts them there",
    "diffusion-config": (
        "is of models that write by diffusion, and only those that write token by token are planned"
    ),
    "disable-hybrid-kv-cache-manager": (
        "lets windows keep all tokens, but the plan counts windows"
    ),
    "disable-log-stats": "takes the metrics away that readiness reads",
    "disable-sliding-window": "lets windows keep all tokens, but the plan counts windows",
    "elastic-ep-max-dp-size": "changes the number of ranks while the engine runs",
    "enable-elastic-ep": "changes the number of ranks while the engine runs",
    "enable-fault-tolerance": "restarts single ranks, but a group lives and dies as one",
    "enable-flash-late-interaction": ("is of models that generate no text, which are not planned"),
    "enable-ssl-refresh": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "fault-tolerance-config": "restarts single ranks, but a group lives and dies as one",
    "grpc": "replaces the HTTP server that probes and clients use",
    "grpc-port": "replaces the HTTP server that probes and clients use",
    "hf-config-path": "reads another model's configuration",
    "hf-overrides": "changes the model that was planned",
    "hf-token": ("would put a secret into the pod's arguments; use spec.model.weights.secretRef"),
    "max-lora-cls-labels": ("is of models that generate no text, which are not planned"),
    "mm-encoder-only": ("makes an encoder of it that generates no text, which are not planned"),
    "offload-backend": "keeps weights out of the GPU, but the plan counts them there",
    "offload-group-size": "keeps weights out of the GPU, but the plan counts them there",
    "offload-num-in-group": "keeps weights out of the GPU, but the plan counts them there",
    "offload-params": "keeps weights out of the GPU, but the plan counts them there",
    "offload-prefetch-step": "keeps weights out of the GPU, but the plan counts them there",
    "pooler-config": "is of models that generate no text, which are not planned",
    "runner": "turns it into a model that generates no text; only text generation is planned",
    "skip-tokenizer-init": "takes text away from the API that probes and clients use",
    "ssl-ca-certs": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "ssl-cert-reqs": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "ssl-certfile": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "ssl-ciphers": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "ssl-keyfile": (
        "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
    ),
    "tokens-only": "takes text away from the API that probes and clients use",
    "uds": "replaces the HTTP server that probes and clients use",
    "watchdog-config": "writes files of its own and watches what readiness watches",
}
"""Options that nobody can admit, each with the reason."""


ALLOWED: Final = frozenset(
    {
        # answers
        "anthropic-disabled-thinking-effort",
        "chat-template-content-format",
        "cohere-format",
        "cohere-is-reasoning-model",
        "default-chat-template-kwargs",
        "enable-auto-tool-choice",
        "enable-force-include-usage",
        "enable-per-request-metrics",
        "enable-prompt-tokens-details",
        "enable-request-id-headers",
        "exclude-tools-when-tool-choice-none",
        "fingerprint-mode",
        "fingerprint-value",
        "logprobs-mode",
        "max-logprobs",
        "override-generation-config",
        "reasoning-config",
        "reasoning-effort-map",
        "reasoning-parser",
        "response-role",
        "return-tokens-as-token-ids",
        "sse-keep-alive-interval",
        "tool-call-parser",
        "tool-strict-level",
        # images, sound and video in requests
        "interleave-mm-strings",
        "limit-mm-per-prompt",
        "mm-encoder-attn-backend",
        "mm-hasher-algorithm",
        "mm-shm-cache-max-object-size-mb",
        "video-pruning-method",
        "video-pruning-rate",
        # logs, metrics and the server
        "aggregate-engine-logging",
        "cudagraph-metrics",
        "custom-histogram-buckets",
        "disable-access-log-for-endpoints",
        "disable-fastapi-docs",
        "disable-uvicorn-access-log",
        "enable-log-deltas",
        "enable-log-outputs",
        "enable-log-requests",
        "enable-logging-iteration-details",
        "enable-mfu-metrics",
        "enable-offline-docs",
        "enable-server-load-tracking",
        "fail-on-environ-validation",
        "h11-max-header-count",
        "h11-max-incomplete-event-size",
        "jit-monitor-verbose",
        "kv-cache-metrics",
        "kv-cache-metrics-sample",
        "log-error-stack",
        "log-level",
        "max-log-len",
        "per-request-spec-decode-metrics",
        "renderer-num-workers",
        "root-path",
        "show-hidden-metrics-for-version",
        "uvicorn-log-level",
        # scheduling and kernels, as far as memory and limits stay as planned
        "allow-deprecated-quantization",
        "async-scheduling",
        "attention-backend",
        "disable-cascade-attn",
        "disable-custom-all-reduce",
        "enable-ep-weight-filter",
        "enable-flashinfer-autotune",
        "enable-mamba-cache-stochastic-rounding",
        "enable-prefix-caching",
        "expert-placement-strategy",
        "gdn-prefill-backend",
        "ignore-patterns",
        "kda-decode-backend",
        "kda-prefill-backend",
        "linear-backend",
        "mamba-backend",
        "mamba-cache-philox-rounds",
        "mamba-ssu-algorithm",
        "max-num-queued-reqs",
        "max-num-queued-tokens",
        "max-parallel-loading-workers",
        "moe-backend",
        "numa-bind",
        "numa-bind-cpus",
        "numa-bind-nodes",
        "prefix-caching-hash-algo",
        "safetensors-load-strategy",
        "safetensors-prefetch-block-size",
        "safetensors-prefetch-num-threads",
        "scheduling-policy",
        "seed",
        "sparse-indexer-topk-backend",
        "stream-interval",
        "use-tqdm-on-load",
    }
)
"""Options that change neither the plan nor who may do what in the pod."""

COUNTED: Final[Mapping[str, str]] = {
    "block-size": (
        "tokens of a K/V block, 16 to 256, a power of two; kernels that want longer ones get them"
    ),
    "compilation-config": (
        "what its `cudagraph_*` keys capture; `mode`, `custom_ops` and `pass_config` are "
        "taken, not counted"
    ),
    "cudagraph-capture-sizes": "the batches that graphs are captured for, `1 2 4`: their memory",
    "dtype": (
        "the type that the model computes in: weights, K/V and activations; "
        "`spec.model.quantization` goes before it"
    ),
    "enable-chunked-prefill": "`true`, which every plan takes for granted",
    "enforce-eager": "no memory for CUDA graphs; layers wait for the host to launch them",
    "gpu-memory-utilization": "the share of a GPU that the engine may take, 0.1 to 1",
    "kv-cache-memory-bytes": (
        "what every rank keeps for K/V, whatever else is free; a whole number of bytes"
    ),
    "language-model-only": "no weights of towers for images and sound",
    "mamba-ssm-cache-dtype": "the bits of recurrent states",
    "max-cudagraph-capture-size": "the largest batch that graphs are captured for: their memory",
    "max-num-batched-tokens": "the tokens of a step, which the plan neither lowers nor raises",
    "max-num-seqs": (
        "the requests that run at once in a replica, which the plan neither lowers nor raises"
    ),
    "mm-encoder-tp-mode": "`data`: every rank holds the whole tower for images",
}
"""Options that a user may set because the planner counts with them, each with the part of the plan
that it settles.
"""

OWNED: Final[Mapping[str, str]] = {
    "allowed-media-domains": "set it through spec.engine.mediaDomains",
    "all2all-backend": "leave it out; it is the one that the plan is priced for",
    "kv-transfer-config": "set it through spec.phase, for the halves of a pair",
    "cpu-distributed-timeout-seconds": "leave it out; it follows from the bytes to load",
    "data-parallel-address": "leave it out; it is the first pod of the group",
    "data-parallel-backend": "leave it out; it follows from the plan",
    "data-parallel-external-lb": "leave it out; one address serves all attention replicas",
    "data-parallel-hybrid-lb": "leave it out; one address serves all attention replicas",
    "data-parallel-multi-port-external-lb": (
        "leave it out; one address serves all attention replicas"
    ),
    "data-parallel-rank": "leave it out; it follows from the index of the pod",
    "data-parallel-rpc-port": "leave it out; it is the first pod of the group",
    "data-parallel-size": (
        "set it through spec.replicas, or spec.parallelism.dataParallelAttention beside experts"
    ),
    "data-parallel-size-local": "leave it out; it follows from the plan",
    "data-parallel-start-rank": "leave it out; it follows from the index of the pod",
    "data-parallel-supervisor-port": "leave it out; one address serves all attention replicas",
    "decode-context-parallel-size": "set it through spec.parallelism.context",
    "device-ids": "leave it out; a pod has exactly the GPUs of its ranks",
    "distributed-executor-backend": (
        "set it through spec.engine.executor: Ray; groups of pods run on mp otherwise"
    ),
    "distributed-timeout-seconds": "leave it out; it bounds how long ranks take to meet",
    "dp-supervisor-probe-failure-threshold": (
        "leave it out; one address serves all attention replicas"
    ),
    "dp-supervisor-probe-interval-s": "leave it out; one address serves all attention replicas",
    "dp-supervisor-probe-timeout-s": "leave it out; one address serves all attention replicas",
    "enable-expert-parallel": "set it through spec.parallelism.expert",
    "enable-lora": "set it through spec.model.adapters",
    "headless": "leave it out; every rank but the first is headless",
    "host": "leave it out; the server listens on all addresses of the pod",
    "kv-cache-dtype": "set it through spec.engine.kvCacheQuantization",
    "kv-offloading-backend": "set it through spec.engine.kvOffload",
    "kv-offloading-size": "set it through spec.engine.kvOffload",
    "load-format": "set it through spec.model.loadFormat",
    "model-loader-extra-config": "set it through spec.model.weights",
    "lora-modules": "set it through spec.model.adapters",
    "master-addr": "leave it out; it is the first pod of the group",
    "master-port": "leave it out; it is the first pod of the group",
    "max-lora-rank": "set it through spec.model.maxAdapterRank",
    "max-loras": "leave it out; every adapter of spec.model.adapters has a slot",
    "max-model-len": "set it through spec.engine.maxModelLen",
    "model": "set it through spec.model.id",
    "nnodes": "leave it out; the plan says how many nodes a group has",
    "node-rank": "leave it out; it is the index of the pod",
    "num-gpu-blocks-override": "say it in bytes: engine.args.kv-cache-memory-bytes",
    "pipeline-parallel-size": "set it through spec.parallelism.pipeline",
    "port": "leave it out; the client Service listens on port 8000",
    "prefill-context-parallel-size": "leave it out; no plan shares a prompt between ranks",
    "quantization": "set it through spec.model.quantization",
    "quantization-config": "set it through spec.model.quantization",
    "revision": "set it through spec.model.revision",
    "served-model-name": "set it through spec.model.servedName",
    "shutdown-timeout": "leave it out; it is part of the drain",
    "spec-method": "set it through spec.engine.speculation.method",
    "spec-model": "set it through spec.engine.speculation.head",
    "spec-tokens": "set it through spec.engine.speculation.tokens",
    "speculative-config": "set it through spec.engine.speculation",
    "tensor-parallel-size": "set it through spec.parallelism.tensor",
}
"""Options that shardwright renders itself, each with the remedy."""

_HELD: Final = "the memory of a rank"
_SPEED: Final = "the time of a step"
_BOTH: Final = "the memory of a rank and the time of a step"
_HOST: Final = "the memory that a pod takes of its node"

UNCOUNTED: Final[Mapping[str, str]] = {
    "attention-config": _BOTH,
    "aux-output-config": _BOTH,
    "collect-detailed-traces": _SPEED,
    "cp-kv-cache-interleave-size": _SPEED,
    "dbo-decode-token-threshold": _BOTH,
    "dbo-prefill-token-threshold": _BOTH,
    "dcp-comm-backend": _SPEED,
    "dcp-kv-cache-interleave-size": _SPEED,
    "dcp-q-replicate": _BOTH,
    "disable-chunked-mm-input": _BOTH,
    "disable-nccl-for-dp-synchronization": _SPEED,
    "dp-sync-interval": _SPEED,
    "enable-batch-sharded-sampling": _BOTH,
    "enable-cumem-allocator": _HELD,
    "enable-dbo": _BOTH,
    "enable-eplb": _BOTH,
    "enable-hc-sp": _BOTH,
    "enable-layerwise-nvtx-tracing": _SPEED,
    "enable-mamba-shared-prefix-checkpoint": _HELD,
    "enable-mixed-moe-lora-format": _BOTH,
    "enable-moe-shared-loras": _BOTH,
    "enable-nccl-comm-suspend": _HELD,
    "enable-return-routed-experts": _BOTH,
    "enable-shm-tensor-arena": _HOST,
    "enable-sleep-mode": _HELD,
    "enable-tower-connector-lora": _HELD,
    "engram-config": _BOTH,
    "eplb-config": _BOTH,
    "fully-sharded-loras": _BOTH,
    "ir-op-priority": _SPEED,
    "jit-monitor-mode": _SPEED,
    "kernel-config": _SPEED,
    "kv-cache-dtype-skip-layers": _HELD,
    "kv-sharing-fast-prefill": _BOTH,
    "long-prefill-token-threshold": _SPEED,
    "long-prefill-token-threshold-adaptive": _SPEED,
    "lora-dtype": _HELD,
    "lora-target-modules": _HELD,
    "mamba-block-size": _HELD,
    "mamba-cache-dtype": _HELD,
    "mamba-cache-mode": _HELD,
    "max-cpu-loras": _HOST,
    "max-num-active-seqs": _SPEED,
    "max-num-scheduled-tokens": _SPEED,
    "media-io-kwargs": _HELD,
    "mm-device-do-normalize": _HELD,
    "mm-encoder-attn-dtype": _BOTH,
    "mm-encoder-fp8-scale-save-margin": _BOTH,
    "mm-ipc-gpu-memory-gb": _HELD,
    "mm-processor-cache-gb": _HOST,
    "mm-processor-cache-type": _HOST,
    "mm-processor-device": _HELD,
    "mm-processor-kwargs": _HELD,
    "mm-tensor-ipc": _HOST,
    "model-impl": _BOTH,
    "monokernel": _BOTH,
    "optimization-level": _BOTH,
    "performance-mode": _BOTH,
    "prefill-schedule-interval": _SPEED,
    "prefix-cache-retention-interval": _HELD,
    "prefix-match-unit": _HELD,
    "pt-load-map-location": _HELD,
    "replayssm-buffer-len": _HELD,
    "return-sampling-mask": _BOTH,
    "scheduler-reserve-full-isl": _SPEED,
    "skip-mm-profiling": _HELD,
    "sleep-mode-backend": _HELD,
    "sleep-mode-offload-cudagraph": _HELD,
    "sleep-preserve-parameter-names": _HELD,
    "specialize-active-lora": _BOTH,
    "swa-bounded-replay": _HELD,
    "ubatch-size": _BOTH,
    "use-fp64-gumbel": _BOTH,
    "use-replayssm": _BOTH,
    "watermark": _SPEED,
    "watermark-config": _SPEED,
}
"""Options whose effect on a plan nobody has worked out, each with the part that it may change: an
administrator may admit them, and a plan beside one says so.
"""

POLICY: Final = Policy(
    allowed=ALLOWED,
    owned=OWNED,
    dangerous=DANGEROUS,
    incompatible=INCOMPATIBLE,
    counted=COUNTED,
    uncounted=UNCOUNTED,
    harmless=HARMLESS,
    collector="otlp-traces-endpoint",
)
"""The policy for ``vllm serve``."""

RULES: Final = Rules(
    tables=Tables(engine="vLLM", folder="vllm", versions=("0.32.0", "0.33.0")),
    policy=POLICY,
    pins=read_pins,
    check_pins=check_pins,
)
