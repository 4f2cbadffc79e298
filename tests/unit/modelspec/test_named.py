"""Classes that differ from Llama's in biases, norms and windows have the bytes of vLLM's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.costs.kvcache import kv_bytes_per_token
from shardwright.costs.weight_bytes import stage_weight_parts
from shardwright.engines.vllm.traits import traits
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import GroupedAttention
from shardwright.modelspec.read import read_model

ORACLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/engines/named-classes.json").read_text(encoding="utf-8")
)
VLLM = traits("0.33.0")


@pytest.mark.parametrize("name", sorted(ORACLE["bytes"]))
def test_a_rank_of_two_has_the_bytes_of_the_class(name: str) -> None:
    model, layout = read_model(ORACLE["configs"][name], source=name), Layout(tensor=2)

    weights = stage_weight_parts(model, layout, VLLM)[0].total_bytes
    kept = kv_bytes_per_token(model, layout, 0, "auto", VLLM)

    assert [weights, kept] == ORACLE["bytes"][name]
    assert not model.warnings


@pytest.mark.parametrize(
    ("name", "window"), [("Exaone4ForCausalLM", 1024), ("Cohere2ForCausalLM", 1025)]
)
def test_windows_are_those_of_the_layers_that_slide(name: str, window: int) -> None:
    model = read_model(ORACLE["configs"][name], source=name)
    kinds = [layer.attention for layer in model.layers]
    assert [kind.window for kind in kinds if isinstance(kind, GroupedAttention)] == [window, None]
