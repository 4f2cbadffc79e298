"""Which arguments a user may give TensorRT-LLM, and why not the others; names with dashes, as
:mod:`shardwright.engines.policy`.

An argument is an option of ``trtllm-serve`` (main at commit 029e223, for 1.2 without the four that
it lacks) or a key of its configuration file. A key of an object is named by its path; the tables in
``data`` say from which file they come.
"""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.options import Rules
from shardwright.engines.policy import Policy, Tables
from shardwright.engines.trtllm.pins import check_pins, read_pins

ALLOWED: Final = frozenset(
    {
        # answers
        "guided-decoding-backend",
        "reasoning-parser",
        "stream-interval",
        "tool-parser",
        # logs and metrics
        "enable-iter-req-stats",
        "enable-layerwise-nvtx-marker",
        "kv-cache-config.iteration-stats-interval",
        "log-level",
        "max-stats-len",
        "print-iter-log",
        "prometheus-metrics-config",
        "return-perf-metrics",
        # scheduling and kernels, as far as memory and limits stay as planned
        "allreduce-strategy",
        "attention-dp-config",
        "batch-wait-max-tokens-ratio",
        "batch-wait-timeout-iters",
        "batch-wait-timeout-ms",
        "disable-overlap-scheduler",
        "enable-autotuner",
        "enable-lm-head-tp-in-adp",
        "enable-min-latency",
        "garbage-collection-gen0-threshold",
        "moe-config",
        "num-postprocess-workers",
        "nvfp4-gemm-config",
        "scheduler-config.context-chunking-policy",
        "scheduler-config.enable-prefix-aware-scheduling",
        "scheduler-config.use-python-scheduler",
        "scheduler-config.waiting-queue-policy",
        "use-cute-dsl-bf16-bmm",
        "use-cute-dsl-bf16-gemm",
        "use-cute-dsl-blockscaling-bmm",
        "use-cute-dsl-blockscaling-mm",
        # which blocks of K/V answer a request again, out of the memory that there is
        "kv-cache-config.block-reuse-config",
        "kv-cache-config.copy-on-partial-reuse",
        "kv-cache-config.enable-block-reuse",
        "kv-cache-config.enable-partial-reuse",
        # which drafts are accepted, and when none are made
        "speculative-config.acceptance-length-threshold",
        "speculative-config.acceptance-rate-threshold",
        "speculative-config.acceptance-rate-window-size",
        "speculative-config.acceptance-window",
        "speculative-config.advanced-sampling-mode",
        "speculative-config.allow-advanced-sampling",
        "speculative-config.begin-thinking-phase-token",
        "speculative-config.end-thinking-phase-token",
        "speculative-config.max-concurrency",
        "speculative-config.relaxed-delta",
        "speculative-config.relaxed-topk",
        "speculative-config.use-rejection-sampling",
        "speculative-config.use-relaxed-acceptance-for-thinking",
    }
)
"""Arguments that change neither the plan nor who may do what in the pod."""

COUNTED: Final[Mapping[str, str]] = {
    "cuda-graph-config.batch-sizes": "the batches that graphs are captured for",
    "cuda-graph-config.enable-padding": "the batches that graphs are captured for",
    "cuda-graph-config.max-batch-size": "the batches that graphs are captured for",
    "disable-mm-encoder": "whether the towers for images and sound are held",
    "dtype": "the type that the model computes in",
    "enable-chunked-prefill": "whether a long prompt is computed in several steps",
    "kv-cache-config.free-gpu-memory-fraction": "the share of the memory beside all else for K/V",
    "kv-cache-config.mamba-ssm-cache-dtype": "the type of recurrent states",
    "kv-cache-config.tokens-per-block": "the tokens of a block of K/V",
    "max-batch-size": "how many requests run at once",
    "max-num-tokens": "the tokens of a batch",
}
"""Arguments that the planner counts with, each with the part of a plan that it settles."""

OWNED: Final[Mapping[str, str]] = {
    "backend": "leave it out; plans are made for the PyTorch backend",
    "context-parallel-size": "leave it out; no plan for TensorRT-LLM shares the K/V of a request",
    "cp-config": "leave it out; no plan for TensorRT-LLM shares the K/V of a request",
    "enable-attention-dp": "set it through spec.parallelism.dataParallelAttention beside experts",
    "enable-iter-perf-stats": "leave it out; readiness reads the iterations",
    "free-gpu-memory-fraction": "write it into kv_cache_config",
    "gpus-per-node": "leave it out; a pod has exactly the GPUs of its ranks",
    "host": "leave it out; the server listens on all addresses of the pod",
    "kv-cache-config.dtype": "set it through spec.engine.kvCacheQuantization",
    "kv-cache-dtype": "set it through spec.engine.kvCacheQuantization",
    "load-format": "leave it out; the engine reads weights in one way",
    "max-seq-len": "set it through spec.engine.maxModelLen",
    "model": "set it through spec.model.id",
    "moe-cluster-parallel-size": "set it through spec.parallelism.expert",
    "moe-expert-parallel-size": "set it through spec.parallelism.expert",
    "moe-tensor-parallel-size": "set it through spec.parallelism.expert",
    "orchestrator-type": "leave it out; groups of pods run on MPI",
    "pipeline-parallel-size": "set it through spec.parallelism.pipeline",
    "port": "leave it out; the client Service listens on port 8000",
    "pp-partition": "set it through spec.parallelism.partition",
    "revision": "set it through spec.model.revision",
    "speculative-config.decoding-type": "set it through spec.engine.speculation.method",
    "speculative-config.max-draft-len": "set it through spec.engine.speculation.tokens",
    "speculative-config.num-nextn-predict-layers": "set it through spec.engine.speculation.tokens",
    "speculative-config.speculative-model": "set it through spec.engine.speculation.head",
    "speculative-config.speculative-model-dir": "set it through spec.engine.speculation.head",
    "served-model-name": (
        "leave it out; clients name the model by its id, or the name of the folder on the claim"
    ),
    "tensor-parallel-size": "set it through spec.parallelism.tensor",
}
"""Arguments that shardwright renders itself, each with the remedy."""

DANGEROUS: Final[Mapping[str, str]] = {
    "allow-request-chat-template": "runs templates out of requests",
    "chat-template": "reads a file or runs a template of its own",
    "checkpoint-format": "can name a plugin",
    "custom-module-dirs": "loads code",
    "custom-tokenizer": "loads code",
    "generation-config": "reads a path of its own",
    "moe-config.load-balancer": "may read a file of its own, and takes memory for more experts",
    "media-io-kwargs": "lets requests fetch from other hosts",
    "middleware": "loads code",
    "otlp-traces-endpoint": "sends traces with prompts to another host",
    "post-processor-hook": "loads code",
    "telemetry": "sends data to another host",
    "tokenizer": "loads another repository",
    "tokenizer-mode": "can name a plugin",
    "tokenizer-revision": "loads another repository",
    "trust-remote-code": "runs code of the model's publisher",
}
"""Dangerous arguments, each with its danger; refused unless the administrator admits them."""

INCOMPATIBLE: Final[Mapping[str, str]] = {
    "cache-transceiver-config": ("opens connections to other hosts; halves of a pair are for vLLM"),
    "config": "would set every other option from a file",
    "disagg-cluster-uri": "opens connections to other hosts; halves of a pair are for vLLM",
    "cuda-graph-config.mode": "is of models that generate no text, which are not planned",
    "cuda-graph-config.max-num-token": "is of models that generate no text, which are not planned",
    "cuda-graph-config.max-seq-len": "is of models that generate no text, which are not planned",
    "cuda-graph-config.num-tokens": "is of models that generate no text, which are not planned",
    "cuda-graph-config.seq-lens": "is of models that generate no text, which are not planned",
    "env-overrides": "would set variables that the operator sets or refuses; use spec.engine.env",
    "kv-cache-config.disk-cache-path": "writes to a path of its own; K/V offload is not planned",
    "kv-cache-config.disk-cache-size": "takes disk of the pod that is not planned for",
    "kv-cache-config.host-cache-size": "takes memory of the pod that is not planned for",
    "kv-cache-config.kv-events-config": "opens connections to other hosts",
    "grpc": "replaces the HTTP server that probes and clients use",
    "kv-connector-config": "loads code, and K/V offload is out of scope",
    "metadata-server-config-file": (
        "opens connections to other hosts; halves of a pair are for vLLM"
    ),
    "model-kwargs": "changes the model that was planned",
    "num-serve-frontends": "replaces the one HTTP server that probes and clients use",
    "ray-worker-extension-cls": (
        "loads code into workers of Ray, which no group of TensorRT-LLM runs on"
    ),
    "report-addr": "opens connections to other hosts; halves of a pair are for vLLM",
    "server-role": "opens connections to other hosts; halves of a pair are for vLLM",
}
"""Arguments that nobody can admit, each with the reason."""

MISSING: Final[Mapping[str, str]] = {
    "allowed-media-domains": "trtllm-serve has no option for it: requests name any host",
    "api-key": "trtllm-serve has no option for it: it serves everybody who reaches it",
    "enable-lora": (
        "trtllm-serve has no option that names adapters for clients: a request would "
        "bring a path of its own"
    ),
    "kv-offloading-size": "what its host_cache_size takes of a pod's memory is not planned for",
    "kv-transfer-config": "how its groups hand K/V to each other was not tried",
    "lock-memory": (
        "pods that lock memory run as root, and its ranks are started by ssh and mpirun as an "
        "ordinary user"
    ),
    "load-format": "it reads weights in one way of its own",
    "max-num-queued-reqs": "it has no option that limits its queue",
    "requests-in-flight": "its metrics for Prometheus do not say how many requests are in flight",
    "scheduling-policy": "trtllm-serve has no option by which requests are served out of turn",
    "model-loader-extra-config": "it reads no object store: copy the weights to a claim",
    "quantization": (
        "weights that it quantizes while loading are not planned for; use weights that are "
        "stored quantized"
    ),
    "served-model-name": (
        "version 1.2 has no option for it, and that of 1.3 is not used: it serves under the id, or "
        "the name of the folder on the claim"
    ),
}
"""Options that fields of the spec turn into for vLLM, and that TensorRT-LLM cannot be told."""

UNCOUNTED: Final[Mapping[str, str]] = {
    "attn-backend": "the memory of K/V, which the engine does not measure with VANILLA",
    "kv-cache-config.avg-seq-len": "the memory of K/V",
    "kv-cache-config.enable-kv-pool-rebalance": "the memory of K/V",
    "kv-cache-config.enable-swa-scratch-reuse": "the memory of K/V",
    "kv-cache-config.max-attention-window": "the tokens of K/V that windows keep",
    "kv-cache-config.max-gpu-total-bytes": "the memory of K/V",
    "kv-cache-config.max-tokens": "the memory of K/V",
    "kv-cache-config.pool-ratio": "the memory of K/V",
    "kv-cache-config.use-kv-cache-manager-v2": "the memory of K/V",
    "kv-cache-config.use-uvm": "the memory of K/V",
    "scheduler-config.capacity-scheduler-policy": "how many requests run at once",
    "scheduler-config.dynamic-batch-config": "the limits of a batch",
    "sparse-attention-config": "the tokens that attention reads, and memory",
    "speculative-config.draft-len-schedule": "how many tokens are drafted",
    "torch-compile-config": "the memory of graphs",
}
"""Arguments that an administrator may admit, each with the part of a plan that it may change."""

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "attn-backend": frozenset({"TRTLLM", "FLASHINFER"}),
    "cuda-graph-config.mode": frozenset({"decode"}),
    "kv-cache-config.dtype": frozenset({"auto"}),
    "kv-cache-config.use-kv-cache-manager-v2": frozenset({"false"}),
    "scheduler-config.capacity-scheduler-policy": frozenset({"GUARANTEED_NO_EVICT"}),
}
"""Values of them that everybody may set: those that plans are made for."""

POLICY: Final = Policy(
    allowed=ALLOWED,
    owned=OWNED,
    dangerous=DANGEROUS,
    incompatible=INCOMPATIBLE,
    missing=MISSING,
    counted=COUNTED,
    uncounted=UNCOUNTED,
    harmless=HARMLESS,
    collector="otlp-traces-endpoint",
)
"""The policy for ``trtllm-serve``."""

RULES: Final = Rules(
    tables=Tables(
        engine="TensorRT-LLM", folder="trtllm", versions=("1.2.0", "1.3.0", "1.4.0"), keyed=True
    ),
    policy=POLICY,
    pins=read_pins,
    check_pins=check_pins,
)
