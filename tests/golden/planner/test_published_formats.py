"""Published figures of weights in 4 bits, which the coefficients were not fitted to: a set of its
own.
"""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli.predict import Cases, answer

TABLE = Path(__file__).parents[2] / "data" / "published-formats.csv"
AWQ: Mapping[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def _rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _speed(row: Mapping[str, str], stored: str) -> Mapping[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
        "max_position_embeddings": 40960,
        "head_dim": 128,
        "hidden_size": int(row["hidden"]),
        "intermediate_size": int(row["intermediate"]),
        "num_hidden_layers": int(row["layers"]),
        "num_attention_heads": int(row["heads"]),
        "num_key_value_heads": int(row["kv_heads"]),
        **({"quantization_config": AWQ} if stored == "awq" else {}),
    }
    case = {
        "id": row["model"],
        "model": {"config": config},
        "engine": {"name": "vllm", "version": "0.33.0"},
        "hardware": {"gpuProduct": row["gpu"], "gpusPerNode": 1, "nodes": 1},
        "parallelism": {},
        "workload": {
            "inputTokens": 1024,
            "outputTokens": 512,
            "concurrency": int(row["concurrency"]),
        },
    }
    found: Mapping[str, Any] = answer(json.dumps(case), Cases())["performance"]
    return found


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['model']} on {row['gpu']}")
def test_4_bits_are_predicted_within_a_fifth_of_what_was_published_and_called_modelled(
    row: Mapping[str, str],
) -> None:
    quantized = _speed(row, row["format"])
    rate = quantized["outputTokensPerSecond"]
    if row["plain"]:
        rate /= _speed(row, row["plain"])["outputTokensPerSecond"]

    assert rate == pytest.approx(float(row["published"]), rel=0.2)
    assert quantized["basis"] == "modelled"
