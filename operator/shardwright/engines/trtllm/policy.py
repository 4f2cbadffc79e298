"""Which arguments a user may give TensorRT-LLM, and why not the others; names with dashes, as
:mod:`shardwright.engines.policy`.

An argument is an option of ``trtllm-serve`` (main at commit 029e223, for 1.2 without the four that
it lacks) or a key of its configuration file (as of the times of 1.2 and 1.3).
"""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.options import Rules
from shardwright.engines.policy import Policy, Tables

ALLOWED: Final = frozenset(
    {
        # answers
        "guided-decoding-backend",
        "reasoning-parser",
        "tool-parser",
        # logs and metrics
        "enable-iter-req-stats",
        "log-level",
        "print-iter-log",
        "return-perf-metrics",
        # scheduling and kernels, as far as memory and limits stay as planned
        "allreduce-strategy",
        "attn-backend",
        "disable-overlap-scheduler",
        "enable-autotuner",
        "num-postprocess-workers",
    }
)
"""Arguments that change neither the plan nor who may do what in the pod."""

OWNED: Final[Mapping[str, str]] = {
    "backend": "leave it out; plans are made for the PyTorch backend",
    "context-parallel-size": "leave it out; no plan for TensorRT-LLM shares the K/V of a request",
    "dtype": "set it through spec.model.quantization",
    "enable-attention-dp": "set it through spec.parallelism.dataParallelAttention beside experts",
    "enable-chunked-prefill": "leave it out; the plan's batches are computed with it",
    "enable-iter-perf-stats": "leave it out; readiness reads the iterations",
    "free-gpu-memory-fraction": "leave it out; it follows from the plan's memory",
    "gpus-per-node": "leave it out; a pod has exactly the GPUs of its ranks",
    "host": "leave it out; the server listens on all addresses of the pod",
    "kv-cache-config": (
        "set its dtype through spec.engine.kvCacheQuantization; the rest follows from the plan"
    ),
    "kv-cache-dtype": "set it through spec.engine.kvCacheQuantization",
    "load-format": "leave it out; the engine reads weights in one way",
    "max-batch-size": "set it through spec.workload.concurrency",
    "max-num-tokens": "leave it out; the plan's memory is computed with it",
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
    "cache-transceiver-config": (
        "opens connections to other hosts; disaggregated prefill is out of scope"
    ),
    "config": "would set every other option from a file",
    "disagg-cluster-uri": "opens connections to other hosts; disaggregated prefill is out of scope",
    "env-overrides": "would set variables that the operator sets or refuses; use spec.engine.env",
    "grpc": "replaces the HTTP server that probes and clients use",
    "kv-connector-config": "loads code, and K/V offload is out of scope",
    "metadata-server-config-file": (
        "opens connections to other hosts; disaggregated prefill is out of scope"
    ),
    "model-kwargs": "changes the model that was planned",
    "num-serve-frontends": "replaces the one HTTP server that probes and clients use",
    "ray-worker-extension-cls": (
        "loads code into workers of Ray, which no group of TensorRT-LLM runs on"
    ),
    "report-addr": "opens connections to other hosts; disaggregated prefill is out of scope",
    "server-role": "opens connections to other hosts; disaggregated prefill is out of scope",
}
"""Arguments that nobody can admit, each with the reason."""

MISSING: Final[Mapping[str, str]] = {
    "api-key": "trtllm-serve has no option for it: it serves everybody who reaches it",
    "enable-lora": (
        "trtllm-serve has no option that names adapters for clients: a request would "
        "bring a path of its own"
    ),
    "kv-offloading-size": "what its host_cache_size takes of a pod's memory is not planned for",
    "lock-memory": (
        "pods that lock memory run as root, and its ranks are started by ssh and mpirun as an "
        "ordinary user"
    ),
    "load-format": "it reads weights in one way of its own",
    "model-loader-extra-config": "it reads no object store: copy the weights to a claim",
    "quantization": (
        "weights that it quantizes while loading are not planned for; use weights that are "
        "stored quantized"
    ),
    "served-model-name": (
        "version 1.2 has no option for it, and that of 1.3 is not used: it serves under the id, or "
        "the name of the folder on the claim"
    ),
    "speculative-config": (
        "its settings for prompt lookup and draft models are not among the keys that this "
        "release knows"
    ),
}
"""Options that fields of the spec turn into for vLLM, and that TensorRT-LLM cannot be told."""

POLICY: Final = Policy(
    allowed=ALLOWED, owned=OWNED, dangerous=DANGEROUS, incompatible=INCOMPATIBLE, missing=MISSING
)
"""The policy for ``trtllm-serve``."""

RULES: Final = Rules(
    tables=Tables(engine="TensorRT-LLM", folder="trtllm", versions=("1.2.0", "1.3.0")),
    policy=POLICY,
)
