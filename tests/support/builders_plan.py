"""Models, pools and requests for the planner's tests: catalogue GPUs, configs written out, no
files.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from shardwright.costs.workload import Workload
from shardwright.engines.vllm import traits as vllm
from shardwright.errors import Problem
from shardwright.hardware.gpus import Gpu, Link, load_gpus
from shardwright.hardware.inventory import Inventory, Node, NodeExclusion, Pool
from shardwright.hardware.topology import RDMA_LATENCY_SECONDS
from shardwright.layouts.layout import EngineTraits, SearchSpace
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.planning.request import Objective, OptimizeFor, Request
from tests.support.parts import with_parts

_LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
}


def _llama(
    hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, **more: object
) -> dict[str, Any]:
    return {
        **_LLAMA,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


FP8_BLOCKS = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama-8b": _llama(4096, 14336, 32, 32, 8),
    "llama-70b": _llama(8192, 28672, 80, 64, 8),
    "llama-70b-fp8": _llama(8192, 28672, 80, 64, 8, quantization_config=FP8_BLOCKS),
    "llama-405b": _llama(16384, 53248, 126, 128, 8),
    "llama-405b-fp8": _llama(16384, 53248, 126, 128, 8, quantization_config=FP8_BLOCKS),
    "40-heads-110b": _llama(
        10240, 35840, 80, 40, 10, vocab_size=32000
    ),  # no published model: every degree says something
    "qwen3-235b-fp8": {
        **_llama(
            4096, 12288, 94, 64, 4, max_position_embeddings=40960, vocab_size=151936, head_dim=128
        ),
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "quantization_config": FP8_BLOCKS,
    },
    "qwen2.5-7b": {
        **_llama(3584, 18944, 28, 28, 4, max_position_embeddings=32768, vocab_size=152064),
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "sliding_window": 131072,
        "use_sliding_window": False,
        "max_window_layers": 28,
    },
    "qwen3-30b-a3b": {
        **_llama(
            2048, 6144, 48, 32, 4, max_position_embeddings=40960, vocab_size=151936, head_dim=128
        ),
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    "deepseek-v3": {
        **_llama(7168, 18432, 61, 128, 128, vocab_size=129280, max_position_embeddings=163840),
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "moe_intermediate_size": 2048,
        "num_nextn_predict_layers": 1,
        "quantization_config": FP8_BLOCKS,
    },
}


@cache
def a_model(name: str = "llama-8b") -> ModelSpec:
    """Return one of the models above."""
    return read_model(CONFIGS[name], source=name)


@cache
def _newest_vllm() -> EngineTraits:
    return vllm.traits("0.33.0")


def vllm_traits(**figures: object) -> EngineTraits:
    """Return the traits of the newest vLLM that the tests know, with these figures instead of its
    own.
    """
    return with_parts(_newest_vllm(), **figures) if figures else _newest_vllm()


def a_network(gbps: float = 400, latency_seconds: float = RDMA_LATENCY_SECONDS) -> Link:
    """Return a link between nodes, per GPU."""
    return Link(
        name=f"{gbps:g} Gb/s RDMA",
        bytes_per_second=gbps * 1e9 / 8,
        latency_seconds=latency_seconds,
        basis="stated",
        source="test",
    )


def a_pool(
    gpu: Gpu | str = "H100-SXM-80GB",
    nodes: int = 1,
    *,
    name: str = "",
    gpus_per_node: int = 8,
    domain_gpus: int | None = None,
    domain_nodes: int = 1,
    network: Link | None = None,
    free: Mapping[int, int] = {},
) -> Pool:
    """Return a pool of alike nodes.

    ``free`` maps a node's number to its free GPUs (all of them where it is left out).
    ``domain_nodes`` consecutive nodes share a scale-up domain; four consecutive nodes share a leaf.
    """
    row = load_gpus()[gpu] if isinstance(gpu, str) else gpu
    name = name or row.id.lower()
    reach = (
        min(row.scale_up_gpus, gpus_per_node) if domain_nodes == 1 else domain_nodes * gpus_per_node
    )
    return Pool(
        name=name,
        gpu=row,
        product=row.id,
        gpus_per_node=gpus_per_node,
        domain_gpus=domain_gpus if domain_gpus is not None else reach,
        network=network or a_network(),
        resource="nvidia.com/gpu",
        architecture="amd64",
        nodes=tuple(
            Node(
                name=f"{name}-{index:05d}",
                gpus=gpus_per_node,
                free=free.get(index, gpus_per_node),
                domain=_domain(name, index, domain_nodes, row),
                path=(("leaf", f"{name}-leaf-{index // 4}"), ("zone", "a")),
                labels={},
            )
            for index in range(nodes)
        ),
        joins_pods=domain_nodes > 1,
    )


def _domain(name: str, index: int, domain_nodes: int, gpu: Gpu) -> str:
    if domain_nodes > 1:
        return f"{name}-clique-{index // domain_nodes}"
    return f"{name}-{index:05d}" if gpu.scale_up else ""


def an_nvl72_pool(trays: int = 18, gpu: str = "GB200-NVL-186GB", **more: Any) -> Pool:
    """Return trays of four GPUs in cliques of up to 18."""
    return a_pool(
        gpu,
        trays,
        gpus_per_node=4,
        domain_nodes=min(18, trays),
        domain_gpus=min(18, trays) * 4,
        **more,
    )


def an_inventory(
    *pools: Pool, excluded: Mapping[str, str] = {}, product: str = "H100-SXM-80GB"
) -> Inventory:
    """Return an inventory; ``excluded`` maps names of nodes with ``product`` to the code that keeps
    each out.
    """
    return Inventory(
        pools=pools,
        excluded=tuple(
            NodeExclusion(
                node=node, product=product, problem=Problem(code=code, what="the node is out")
            )
            for node, code in excluded.items()
        ),
    )


def a_request(
    optimize_for: OptimizeFor = OptimizeFor.BALANCED,
    *,
    input_tokens: int = 2048,
    output_tokens: int = 512,
    concurrency: int = 64,
    max_model_len: int | None = None,
    ttft_seconds: float | None = None,
    tpot_seconds: float | None = None,
    **space: Any,
) -> Request:
    """Return a request with the defaults of the resource; further arguments go to the search
    space.
    """
    wanted = -(-(input_tokens + output_tokens) // 1024) * 1024
    return Request(
        workload=Workload(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency,
            max_model_len=max_model_len or wanted,
        ),
        objective=Objective(
            optimize_for=optimize_for, ttft_seconds=ttft_seconds, tpot_seconds=tpot_seconds
        ),
        space=SearchSpace(**space),
    )


def with_scale_up(gpu: str, **changes: Any) -> Gpu:
    """Return a catalogue GPU with its scale-up link changed."""
    row = load_gpus()[gpu]
    assert row.scale_up is not None
    return replace(row, scale_up=replace(row.scale_up, **changes))
