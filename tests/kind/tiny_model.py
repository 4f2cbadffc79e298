"""Writes tiny random models that a real engine can serve, run by the engine's own Python:
`tiny_model.py FOLDER`.

Small enough for a CPU and large enough that their answers wander: the weights are drawn with a
fixed seed, wide, so that the most likely token leads by far and rounding does not decide.
`FOLDER/tiny` is a Llama, `FOLDER/swapped` the same with two layers exchanged, `FOLDER/experts` a
mixture of experts, `FOLDER/head` an EAGLE-3 head for the first.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, WIDE, WORDS, CONTEXT = (4, 256, 8, 4, 32, 512, 512, 131_072)
EXPERTS, CHOSEN, EXPERT_WIDE = 8, 2, 128
STATES_OF = (1, 2, 3)  # layers whose states an EAGLE-3 head combines
SEED = 20261121

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "vocab_size": WORDS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "torch_dtype": "float16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""The Llama's config.json, which the chart's catalogue has."""

CONFIG_OF_EXPERTS: dict[str, Any] = CONFIG | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "moe_intermediate_size": EXPERT_WIDE,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
"""The same with Qwen3's experts in every layer."""


CONFIG_OF_HEAD: dict[str, Any] = {
    **CONFIG,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": WORDS,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(STATES_OF)},
}
"""An EAGLE-3 head that drafts for the Llama, of the states of so many of its layers."""


def write(folder: Path, *, swapped: bool = False, experts: bool = False) -> None:
    """Write config, weights and a tokenizer of one word per token."""
    torch = importlib.import_module(
        "torch"
    )  # the engine's environment has it, the project's has not
    save_file = importlib.import_module("safetensors.torch").save_file

    folder.mkdir(parents=True, exist_ok=True)
    draw = torch.Generator().manual_seed(SEED)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain / columns**0.5).to(torch.float16)

    tensors = {
        "model.embed_tokens.weight": matrix(WORDS, HIDDEN, HIDDEN**0.5),
        "lm_head.weight": matrix(WORDS, HIDDEN, 4.0),
    }
    tensors["model.norm.weight"] = torch.ones(HIDDEN, dtype=torch.float16)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes = {
            "q": (HEADS * HEAD, HIDDEN),
            "k": (KV_HEADS * HEAD, HIDDEN),
            "v": (KV_HEADS * HEAD, HIDDEN),
            "o": (HIDDEN, HEADS * HEAD),
        }
        tensors |= {
            f"{prefix}.self_attn.{name}_proj.weight": matrix(*shape, 2.0)
            for name, shape in shapes.items()
        }
        for mlp in (f"mlp.experts.{expert}" for expert in range(EXPERTS)) if experts else ("mlp",):
            wide = EXPERT_WIDE if experts else WIDE
            tensors |= {
                f"{prefix}.{mlp}.{name}_proj.weight": matrix(wide, HIDDEN, 2.0)
                for name in ("gate", "up")
            }
            tensors[f"{prefix}.{mlp}.down_proj.weight"] = matrix(HIDDEN, wide, 2.0)
        if experts:
            tensors[f"{prefix}.mlp.gate.weight"] = matrix(EXPERTS, HIDDEN, 4.0)
            tensors |= {
                f"{prefix}.self_attn.{name}_norm.weight": torch.ones(HEAD, dtype=torch.float16)
                for name in "qk"
            }
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = torch.ones(HIDDEN, dtype=torch.float16)
    if swapped:
        tensors = {_swapped(name): tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", CONFIG_OF_EXPERTS if experts else CONFIG)
    _write_tokenizer(folder)


def write_head(folder: Path) -> None:
    """Write an EAGLE-3 head: one layer, whose attention reads an embedding and states at once."""
    torch = importlib.import_module("torch")
    save_file = importlib.import_module("safetensors.torch").save_file

    folder.mkdir(parents=True, exist_ok=True)
    draw = torch.Generator().manual_seed(SEED)
    shapes = {
        "fc": (HIDDEN, len(STATES_OF) * HIDDEN),
        "lm_head": (WORDS, HIDDEN),
        "midlayer.self_attn.q_proj": (HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.k_proj": (KV_HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.v_proj": (KV_HEADS * HEAD, 2 * HIDDEN),
        "midlayer.self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "midlayer.mlp.gate_proj": (WIDE, HIDDEN),
        "midlayer.mlp.up_proj": (WIDE, HIDDEN),
        "midlayer.mlp.down_proj": (HIDDEN, WIDE),
    }
    tensors = {
        f"{name}.weight": torch.randn(*shape, generator=draw) / shape[1] ** 0.5
        for name, shape in shapes.items()
    }
    for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"midlayer.{norm}.weight"] = torch.ones(HIDDEN)
    tensors["norm.weight"] = torch.ones(HIDDEN)
    halves = {name: tensor.to(torch.float16) for name, tensor in tensors.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", CONFIG_OF_HEAD)


def _swapped(name: str) -> str:
    return {"model.layers.1": "model.layers.2", "model.layers.2": "model.layers.1"}.get(
        name[:14], name[:14]
    ) + name[14:]


def _write_tokenizer(folder: Path) -> None:
    special = ["<unk>", "<s>", "</s>"]
    words = [*special, *(f"w{number}" for number in range(len(special), WORDS))]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, word in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": "<unk>",
        },
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write(root / "tiny")
    write(root / "swapped", swapped=True)
    write(root / "experts", experts=True)
    write_head(root / "head")
