"""Options of ``vllm serve`` that can do more than serve a model, and those that would break a plan.

An administrator may admit the former, and nobody the latter.
"""

from collections.abc import Mapping
from typing import Final

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

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "chat-template": frozenset(
        {
            "examples/tool_chat_template_deepseekv3.jinja",
            "examples/tool_chat_template_deepseekv31.jinja",
            "examples/tool_chat_template_gemma4.jinja",
        }
    ),
    "generation-config": frozenset({"auto", "vllm"}),
    "tokenizer-mode": frozenset(
        {"auto", "cohere", "deepseek_v32", "deepseek_v4", "hf", "inkling", "kimi_k3", "mistral"}
    ),
}
"""Values of them that everybody may set: they name files and modes of the engine itself, no path
and no plugin.
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
    "kv-transfer-config": "opens connections to other hosts; disaggregated prefill is out of scope",
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
