"""Options of ``sglang serve`` that a user may set: every option of 0.5.23 is of one class."""

from collections.abc import Mapping
from typing import Final

from shardwright.engines.options import Rules
from shardwright.engines.policy import Policy, Tables
from shardwright.engines.sglang.pins import read_pins


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _all(reason: str, text: str) -> dict[str, str]:
    return dict.fromkeys(_names(text), reason)


ALLOWED: Final = frozenset(
    _names("""
    abort-on-priority-when-disabled allow-auto-truncate
    asr-max-buffer-seconds asr-max-concurrent-sessions attention-backend batch-notify-size
    bf16-gemm-backend boundary-reduction bucket-e2e-request-latency bucket-inter-token-latency
    bucket-time-to-first-token constrained-json-disable-any-whitespace
    constrained-json-max-whitespace-cnt constrained-json-whitespace-pattern
    decode-attention-backend decode-log-interval default-chat-template-kwargs
    default-priority-value disable-aiter-allreduce-fusion-in-decode
    disable-aiter-allreduce-fusion-in-prefill disable-chunked-prefix-cache
    disable-cuda-graph-padding disable-custom-all-reduce disable-fast-image-processor
    disable-flashinfer-autotune disable-flashinfer-cutlass-moe-fp4-allgather
    disable-outlines-disk-cache disable-overlap-schedule disable-priority-preemption
    disable-radix-cache disable-tokenizer-batch-decode dsa-decode-backend
    dsa-paged-mqa-logits-backend dsa-prefill-backend dsa-topk-backend dsa-triton-union
    dsv4-attn-backend dsv4-prefill-backend dynamic-batch-tokenizer-batch-size
    dynamic-batch-tokenizer-batch-timeout enable-attn-tp-input-scattered enable-cache-report
    enable-deterministic-inference enable-dsa-fused-indexer enable-dynamic-batch-tokenizer
    enable-fused-moe-sum-all-reduce enable-fused-qk-norm-rope enable-lean-attention
    enable-mfu-metrics enable-mamba-cache-stochastic-rounding enable-nccl-nvls
    enable-precise-embedding-interpolation enable-priority-scheduling
    enable-request-time-stats-logging enable-strict-thinking enable-tf32-matmul
    enable-tokenizer-batch-encode enforce-disable-flashinfer-allreduce-fusion fastapi-root-path
    flashinfer-allreduce-fusion-backend flashinfer-autotune-skip-ops
    flashinfer-mla-disable-ragged flashinfer-mxfp4-moe-precision fp4-gemm-backend
    fp8-gemm-backend gc-threshold gc-warning-threshold-secs generation-tokens-buckets
    grammar-backend grpc-response-timeout-secs hf-chat-template-name
    image-processor-backend incremental-streaming-output limit-mm-data-per-request
    linear-attn-backend linear-attn-decode-backend linear-attn-prefill-backend
    linear-attn-verify-backend load-balance-method log-level log-level-http log-requests
    log-requests-format log-requests-level lora-eviction-policy mamba-backend
    mamba-cache-philox-rounds max-queued-requests media-url-max-file-size-mb
    mm-attention-backend mm-io-worker-num mm-processor-worker-num moe-runner-backend numa-node
    preferred-sampling-params prefill-attention-backend prefill-max-requests pre-warm-nccl
    priority-scheduling-preemption-threshold prompt-tokens-buckets qsa-indexer-dtype
    radix-eviction-policy random-seed reasoning-parser retraction-policy sampling-backend
    sampling-defaults sampling-mask-max-tokens schedule-conservativeness
    schedule-low-priority-values-first schedule-policy scheduler-recv-interval
    show-time-cost skip-server-warmup sleep-on-idle soft-watchdog-timeout
    speculative-accept-threshold-acc speculative-accept-threshold-single
    speculative-attention-mode speculative-draft-attention-backend speculative-dsa-topk-backend
    speculative-moe-runner-backend speculative-use-block-verification
    speculative-use-rejection-sampling stream-interval stream-response-default-include-usage
    strip-thinking-cache tokenizer-backend tool-call-parser triton-attention-num-kv-splits
    triton-attention-reduce-in-fp32 triton-attention-split-tile-size
    uvicorn-access-log-exclude-prefixes weight-loader-disable-mmap
    weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads weight-version
    """)
)
"""Options that change neither the plan nor who may do what in the pod."""

COUNTED: Final[Mapping[str, str]] = {
    "dtype": (
        "the type that the model computes in: weights, K/V and activations; "
        "`spec.model.quantization` goes before it"
    )
}
"""Options that a user may set because the planner counts with them."""

_DEGREE: Final = "leave it out; it follows from the plan"
_SPECULATION: Final = "set it through spec.engine.speculation"
_LENGTH: Final = "leave it out; it is the length of a step, which the plan settles"

OWNED: Final[Mapping[str, str]] = {
    "allowed-media-domains": "set it through spec.engine.mediaDomains",
    "api-key": "set it through spec.engine.apiKeySecretRef",
    "attn-dp-size": "set it through spec.parallelism.dataParallelAttention",
    "base-gpu-id": "leave it out; a pod has exactly the GPUs of its ranks",
    "chunked-prefill-size": _LENGTH,
    "context-length": "set it through spec.engine.maxModelLen",
    "cuda-graph-max-bs-decode": "leave it out; it follows from the requests that run at once",
    "dcp-size": "set it through spec.parallelism.context",
    "device": "leave it out; it follows from the image",
    "dist-init-addr": "leave it out; it is the first pod of the group",
    "dist-timeout": "leave it out; it follows from the bytes to load",
    "dp-size": "set it through spec.replicas, or spec.parallelism.dataParallelAttention",
    "enable-dp-attention": "set it through spec.parallelism.dataParallelAttention",
    "enable-metrics": "leave it out; readiness reads the metrics, so they are always on",
    "ep-size": "set it through spec.parallelism.expert",
    "gpu-id-step": "leave it out; a pod has exactly the GPUs of its ranks",
    "host": "leave it out; probes and clients use it",
    "kv-cache-dtype": "set it through spec.engine.kvCacheQuantization",
    "load-format": "set it through spec.model.loadFormat",
    "max-prefill-tokens": _LENGTH,
    "max-running-requests": "set it through spec.workload.concurrency",
    "mem-fraction-static": "leave it out; it is what the plan has for weights and K/V",
    "model-path": "set it through spec.model.id",
    "nccl-port": "leave it out; a free port is found",
    "nnodes": _DEGREE,
    "node-rank": "leave it out; it follows from the index of the pod",
    "port": "leave it out; probes and clients use it",
    "pp-size": "set it through spec.parallelism.pipeline",
    "quantization": "set it through spec.model.quantization",
    "revision": "set it through spec.model.revision",
    "served-model-name": "set it through spec.model.servedName",
    "speculative-algorithm": _SPECULATION,
    "speculative-draft-model-path": _SPECULATION,
    "speculative-draft-model-revision": _SPECULATION,
    "speculative-eagle-topk": _SPECULATION,
    "speculative-ngram-max-bfs-breadth": _SPECULATION,
    "speculative-ngram-min-bfs-breadth": _SPECULATION,
    "speculative-num-draft-tokens": _SPECULATION,
    "speculative-num-steps": _SPECULATION,
    "tp-size": "set it through spec.parallelism.tensor",
    "watchdog-timeout": "leave it out; it ends an engine whose peer is gone",
}
"""Options that shardwright renders itself, each with the remedy."""

_CODE: Final = "loads code"
_FILE: Final = "reads a file of its own"
_WRITES: Final = "writes to a path of its own"
_OTHER_HOST: Final = "opens connections to other hosts"
_TOKENIZER: Final = "loads another repository"

DANGEROUS: Final[Mapping[str, str]] = {
    "chat-template": "reads a file or runs a template of its own",
    "completion-template": "reads a file or runs a template of its own",
    "crash-dump-folder": "writes requests to a path of its own",
    "custom-weight-loader": _CODE,
    "debug-tensor-dump-input-file": _FILE,
    "debug-tensor-dump-layers": _WRITES,
    "debug-tensor-dump-output-folder": _WRITES,
    "download-dir": _WRITES,
    "enable-custom-logit-processor": "runs code out of requests",
    "enable-response-store": "keeps answers without a limit, for whoever asks for them",
    "enable-trace": "sends traces with prompts to another host",
    "export-metrics-to-file": _WRITES,
    "export-metrics-to-file-dir": _WRITES,
    "extra-metric-labels": "adds labels to the metrics that readiness and rules read",
    "file-storage-path": _WRITES,
    "forward-hooks": _CODE,
    "forward-pass-metrics-ipc-name": _WRITES,
    "init-expert-location": _FILE,
    "kv-events-config": _OTHER_HOST,
    "load-publish-endpoint": _OTHER_HOST,
    "log-requests-target": "writes requests to a path of its own",
    "model-checksum": _FILE,
    "model-config-parser": "can name a plugin",
    "model-impl": "can name code of the model's publisher",
    "msprobe-dump-config": _FILE,
    "otlp-service-name": "sends traces with prompts to another host",
    "otlp-traces-endpoint": "sends traces with prompts to another host",
    "quantization-param-path": _FILE,
    "radix-cache-backend": _CODE,
    "return-hidden-states-mode": "shows the model's inner states to clients",
    "spec-trace-dir": _WRITES,
    "speculative-adaptive-config": _FILE,
    "speculative-dspark-confidence-sts-path": _FILE,
    "speculative-dspark-sps-table-path": _FILE,
    "speculative-ngram-external-corpus-path": _FILE,
    "speculative-token-map": _FILE,
    "tokenizer-metrics-allowed-custom-labels": "lets requests name labels of metrics",
    "tokenizer-metrics-custom-labels-header": "lets requests name labels of metrics",
    "tokenizer-mode": _TOKENIZER,
    "tokenizer-path": _TOKENIZER,
    "tool-server": "gives requests tools that run code",
    "trace-modules": "sends traces with prompts to another host",
    "trust-mm-content-hashes": "takes what a client says of an image for its content",
    "trust-remote-code": "runs code of the model's publisher",
    "trust-request-chat-template": "runs templates out of requests",
    "warmups": _CODE,
}
"""Dangerous options, each with its danger; refused unless the administrator admits them."""

_GENERATES: Final = "takes text generation away, and only that is planned"
_HTTP: Final = "replaces the one HTTP server that probes and clients use"
_TLS: Final = "takes the plain HTTP port away that probes and clients use; TLS ends before the pod"
_SPLIT: Final = "opens connections to other hosts; halves of a pair are for vLLM"
_WEIGHTS: Final = "keeps weights out of the GPU, but the plan counts them there"
_MODEL: Final = "changes the model that was planned"
_SECRET: Final = "would put a secret into the pod's arguments"  # noqa: S105 - a reason
_RANKS: Final = "changes the ranks, but a group lives and dies as one"
_KEEPS: Final = "keeps K/V in the memory of the pod or elsewhere, which is not planned for it"
_ADAPTERS: Final = "is of adapters, which are not planned for it"


INCOMPATIBLE: Final[Mapping[str, str]] = {
    "config": "would set every other option from a file",
    "enable-memory-saver": "lets requests take weights out of the GPU",
    "startup-weight-load-mode": "starts without weights, but readiness means tokens",
    **_all(_SECRET, "admin-api-key ssl-keyfile-password"),
    **_all(
        _GENERATES,
        "is-embedding prefill-only-disable-kv-cache encoder-only language-only enable-mis "
        "dllm-algorithm dllm-algorithm-config dllm-fdfo skip-tokenizer-init",
    ),
    **_all(
        _HTTP,
        "smg-grpc-mode grpc-mode grpc-port sidecar sidecar-args enable-http2 "
        "enable-http-worker-reuseport http2-max-concurrent-streams "
        "http2-initial-connection-window-size smg-http-sidecar-port tokenizer-worker-num "
        "detokenizer-worker-num",
    ),
    **_all(_TLS, "ssl-keyfile ssl-certfile ssl-ca-certs enable-ssl-refresh"),
    **_all(
        _SPLIT,
        "disaggregation-mode disaggregation-transfer-backend disaggregation-bootstrap-port "
        "disaggregation-ib-device disaggregation-decode-enable-radix-cache "
        "disaggregation-decode-enable-offload-kvcache disaggregation-decode-retraction-backup "
        "disaggregation-decode-extra-slots disaggregation-decode-polling-interval "
        "disaggregation-enable-kv-checksum disaggregation-decode-host-receive-threshold "
        "disaggregation-decode-allocation-policy enable-pd-role-switch optimistic-prefill-attempts "
        "num-reserved-decode-tokens encoder-transfer-backend encoder-urls encoder-bootstrap-port "
        "encoder-register-urls enable-adaptive-dispatch-to-encoder engine-info-bootstrap-port "
        "decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank "
        "decoupled-spec-role dwdp-size",
    ),
    **_all(
        "loads weights from other hosts",
        "remote-instance-weight-loader-seed-instance-ip "
        "remote-instance-weight-loader-seed-instance-service-port "
        "remote-instance-weight-loader-send-weights-group-ports "
        "remote-instance-weight-loader-backend "
        "remote-instance-weight-loader-start-seed-via-transfer-engine modelexpress-config "
        "checkpoint-engine-wait-weights-before-ready weight-cache-mode weight-cache-socket "
        "weight-cache-timeout decrypted-config-file decrypted-draft-config-file "
        "delete-ckpt-after-loading model-loader-extra-config",
    ),
    **_all(
        _WEIGHTS,
        "cpu-offload-gb offload-group-size offload-num-in-group offload-prefetch-step offload-mode "
        "ple-offload-embedding ple-offload-backend ple-offload-dir kt-weight-path kt-method "
        "kt-cpuinfer kt-threadpool-count kt-num-gpu-experts kt-max-deferred-experts-per-token "
        "enable-paged-experts paged-experts-num-resident enable-weights-cpu-backup "
        "enable-draft-weights-cpu-backup",
    ),
    **_all(
        _MODEL,
        "json-model-override-args modelopt-quant modelopt-checkpoint-restore-path "
        "modelopt-checkpoint-save-path modelopt-export-path quantize-and-serve rl-quant-profile "
        "rl-on-policy-target enable-multimodal speculative-draft-model-quantization",
    ),
    **_all(
        _RANKS,
        "use-ray elastic-ep-backend enable-elastic-expert-backup elastic-ep-join-mode "
        "elastic-ep-join-rank-offset elastic-ep-initial-size max-ep-size "
        "elastic-ep-scale-timeout mooncake-ib-device gated-launch-port",
    ),
    **_all(
        _KEEPS,
        "enable-hierarchical-cache hicache-host-memory-mode hicache-ratio hicache-size "
        "hicache-write-policy hicache-io-backend hicache-mem-layout hicache-storage-backend "
        "hicache-storage-prefetch-policy hicache-storage-backend-extra-config "
        "hicache-storage-prefetch-retry-poll-interval hicache-storage-prefetch-retry-max-attempts "
        "hicache-host-memory-fraction enable-unified-cache-external-linker "
        "unified-cache-external-linker-backend unified-cache-external-linker-config "
        "enable-linker-mla-dedup enable-lmcache lmcache-config-file enable-flexkv "
        "flexkv-config-file enable-mm-global-cache mm-global-cache-backend",
    ),
    **_all(
        _ADAPTERS,
        "enable-lora enable-lora-overlap-loading max-lora-rank lora-target-modules lora-paths "
        "max-loaded-loras max-loras-per-batch lora-backend max-lora-chunk-size "
        "experts-shared-outer-loras lora-use-virtual-experts lora-strict-loading "
        "lora-drain-wait-threshold uno-lora-path",
    ),
    **_all(
        "is of GPUs that no image is rendered for",
        "mlx-enable-sampling monokernel-backend enable-amd-monokernel "
        "enable-aiter-allreduce-fusion c128-page-size fuseep-mode",
    ),
}
"""Options that nobody can admit, each with the reason."""

_HELD: Final = "the memory of a rank"
_SPEED: Final = "the time of a step"
_BOTH: Final = "the memory of a rank and the time of a step"
_CACHE: Final = "the tokens that K/V holds"
_EXCHANGE: Final = "how tokens meet in the experts, which plans price, and memory"
_STATES: Final = "the memory of recurrent states"

UNCOUNTED: Final[Mapping[str, str]] = {
    **_all(
        _CACHE,
        "max-total-tokens page-size swa-full-tokens-ratio disable-hybrid-swa-memory "
        "swa-prefix-tails enable-page-major-kv-layout enable-unified-memory "
        "enable-kv-cache-sharding enable-dsa-cache-layer-split enable-hisparse hisparse-config "
        "enable-session-radix-cache enable-streaming-session radix-eviction-policy-config "
        "enable-encoder-swa-bounded-replay enable-decoder-swa-bounded-replay "
        "prefill-kv-cache-dequant-dtype speculative-draft-kv-cache-dtype "
        "enable-deepseek-v4-fp4-indexer",
    ),
    **_all(
        _STATES,
        "max-mamba-cache-size mamba-ssm-dtype mamba-max-states-per-path mamba-full-memory-ratio "
        "mamba-radix-cache-strategy mamba-track-interval enable-int8-mamba-checkpoint "
        "int8-mamba-ckpt-size enable-linear-replayssm linear-replayssm-cache-len "
        "enable-linear-replayssm-spec",
    ),
    **_all(
        "the memory of graphs, and the time of a step without one",
        "cuda-graph-config cuda-graph-backend-decode cuda-graph-backend-prefill "
        "cuda-graph-max-bs-prefill cuda-graph-bs-decode cuda-graph-bs-prefill "
        "cuda-graph-prefill-max-context cuda-graph-max-seq-len-prefill disable-prefill-cuda-graph "
        "disable-decode-cuda-graph disable-cuda-graph enable-cudagraph-gc enable-torch-compile "
        "enable-torch-compile-debug-mode torch-compile-max-bs enable-profile-cuda-graph "
        "debug-cuda-graph",
    ),
    **_all(
        _EXCHANGE,
        "moe-a2a-backend moe-dp-size deepep-mode deepep-v2-mode deepep-config "
        "deepep-dispatcher-output-dtype flashinfer-a2a-dispatch-type ep-num-redundant-experts "
        "ep-dispatch-algorithm enable-eplb eplb-algorithm eplb-rebalance-num-iterations "
        "eplb-rebalance-layers-per-chunk eplb-min-rebalancing-utilization-threshold "
        "expert-distribution-recorder-mode expert-distribution-recorder-buffer-size "
        "expert-balancedness-report-mode moe-dense-tp-size enable-waterfill "
        "enable-w4a4-mxfp4-megamoe speculative-enable-w4a4-mxfp4-megamoe "
        "speculative-moe-a2a-backend enable-megamoe-for-layernorm-sp",
    ),
    **_all(
        _BOTH,
        "attn-cp-size enable-prefill-cp cp-strategy enable-cp-decode-attn-tp dcp-comm-backend "
        "dcp-replicate-q-proj enable-dp-lm-head enable-tp-lm-head-all-to-all enable-fp32-lm-head "
        "enable-shared-experts-attn-tp shared-experts-tp-size enable-dense-mlp-attn-tp "
        "enable-layernorm-sp disable-attn-tp-gather enable-two-batch-overlap "
        "enable-single-batch-overlap tbo-token-distribution-threshold "
        "disable-shared-experts-fusion enforce-shared-experts-fusion enable-symm-mem "
        "enable-torch-symm-mem enable-mscclpp mm-enable-dp-encoder enable-multi-layer-eagle "
        "speculative-adaptive speculative-draft-window-size speculative-draft-sink-size "
        "speculative-dflash-block-size speculative-dspark-block-size "
        "speculative-dspark-align-verify-tokens-to-graph-tier speculative-draft-load-format "
        "speculative-domino-candidate-pool-size speculative-ngram-match-type "
        "speculative-ngram-max-trie-depth speculative-ngram-capacity "
        "speculative-ngram-external-sam-budget speculative-ngram-external-corpus-max-tokens "
        "enable-pdmux pdmux-config-path sm-group-num enable-nvidia-megakernel "
        "enable-flashinfer-allreduce-fusion enable-quant-communications enable-scattered-sconv",
    ),
    **_all(
        _HELD,
        "enable-return-hidden-states enable-return-routed-experts enable-return-indexer-topk "
        "enable-return-aux-hidden-states return-aux-hidden-state-layer-ids return-input-ids "
        "return-output-ids mm-feature-transport mm-process-config mm-preprocess-cache-size-mb "
        "enable-prefix-mm-cache enable-broadcast-mm-inputs-process language-model-only "
        "kv-canary kv-canary-real-data kv-canary-sweep-interval",
    ),
    **_all(
        _SPEED,
        "enable-mixed-chunk enable-dynamic-chunking prefill-decode-interval "
        "prefill-decode-interval-min-bs num-continuous-decode-steps pp-max-micro-batch-size "
        "pp-async-batch-depth enable-prefill-delayer prefill-delayer-max-delay-passes "
        "prefill-delayer-token-usage-low-watermark prefill-delayer-forward-passes-buckets "
        "prefill-delayer-wait-seconds-buckets prefill-delayer-queue-min-ratio "
        "prefill-delayer-max-delay-ms min-free-slots-delay enable-p2p-check "
        "enable-dp-attention-local-control-broadcast enable-layerwise-nvtx-marker "
        "enable-forward-pass-metrics forward-pass-metrics-worker-id "
        "enable-metrics-for-all-schedulers load-snapshot-publish-interval enable-watermark "
        "watermark-config weight-loader-drop-cache-after-load",
    ),
}
"""Options that an administrator may admit, each with the part of a plan that it may change."""

MISSING: Final[Mapping[str, str]] = {
    "enable-lora": "which classes take adapters, and what their slots take, was not read",
    "kv-offloading-size": "what its hierarchical cache takes of a pod's memory is not planned for",
    "kv-transfer-config": "how its groups hand K/V to each other was not tried",
    "max-num-queued-reqs": (
        "its max-queued-requests, which engine.args takes, limits what waits and not what is in "
        "flight"
    ),
    "model-loader-extra-config": "how it reads object stores was not tried: copy them to a claim",
    "scheduling-policy": (
        "its enable-priority-scheduling, which engine.args takes, also stops requests that run"
    ),
}
"""Options that fields of the spec turn into for vLLM, and that SGLang is not told."""

POLICY: Final = Policy(
    allowed=ALLOWED,
    owned=OWNED,
    dangerous=DANGEROUS,
    incompatible=INCOMPATIBLE,
    missing=MISSING,
    counted=COUNTED,
    uncounted=UNCOUNTED,
    collector="otlp-traces-endpoint",
)
"""The policy for ``sglang serve``."""

RULES: Final = Rules(
    tables=Tables(engine="SGLang", folder="sglang", versions=("0.5.23",), patches_alike=False),
    policy=POLICY,
    pins=read_pins,
)
