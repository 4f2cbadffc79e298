"""Laws of reading models: every JSON object is answered, parts sum to the total, order does not
matter.
"""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model, known_ids
from shardwright.modelspec.config_json import parse_config
from shardwright.modelspec.families import FAMILIES
from shardwright.modelspec.model_spec import ModelSpec, PipelineRole
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model
from tests.support.builders_model import a_config, a_moe_config, catalogued

EVERY_ID = st.sampled_from(known_ids())

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=12,
)


def _real_configs() -> list[dict[str, Any]]:
    entries = [find_model(model_id) for model_id in known_ids()]
    return [dict(entry.config) for entry in entries if entry is not None]


REAL = [*_real_configs(), a_config(), a_moe_config()]
FIELDS = sorted({name for config in REAL for name in config} | {"text_config"})


@st.composite
def spoiled_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a real config with some fields replaced, removed or of another architecture."""
    config = dict(draw(st.sampled_from(REAL)))
    if draw(st.booleans()):
        config["architectures"] = [draw(st.sampled_from(sorted(FAMILIES)))]
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=4)):
        config[name] = draw(json_values | st.integers(0, 200))
    return config


def _answer(config: dict[str, Any]) -> ModelSpec | InputError:
    try:
        return read_model(config, source="a law")
    except InputError as error:
        return error


@given(
    st.dictionaries(st.text(max_size=10) | st.sampled_from(FIELDS), json_values, max_size=6)
    | spoiled_configs()
)
def test_every_json_object_is_a_model_or_a_list_of_problems(config: dict[str, Any]) -> None:
    answer = _answer(config)
    if isinstance(answer, InputError):
        assert answer.problems
        assert all(problem.code and problem.what for problem in answer.problems)
    else:
        assert answer.parameters > 0
        assert answer.max_context_tokens > 0


@given(st.text(max_size=200) | json_values.map(json.dumps))
def test_every_text_is_a_config_or_a_problem(text: str) -> None:
    try:
        answer: object = parse_config(text, source="a law")
    except InputError as error:
        answer = error.problems
    assert isinstance(answer, dict) or (isinstance(answer, tuple) and len(answer) == 1)


@given(EVERY_ID, st.randoms(use_true_random=False))
def test_the_order_of_fields_does_not_matter(model_id: str, order: random.Random) -> None:
    entry = find_model(model_id)
    assert entry is not None
    names = list(entry.config)
    order.shuffle(names)
    shuffled = json.loads(json.dumps({name: entry.config[name] for name in names}))
    assert read_model(shuffled, source=model_id) == read_model(entry.config, source=model_id)


@given(EVERY_ID)
def test_every_weight_stands_at_an_end_or_in_one_layer(model_id: str) -> None:
    model = catalogued(model_id)
    in_layers = [weight for weight in model.weights if weight.part is PipelineRole.LAYER]
    assert {weight.layer for weight in in_layers} == set(range(len(model.layers)))
    assert all(
        weight.layer is None for weight in model.weights if weight.part is not PipelineRole.LAYER
    )
    assert len({(weight.layer, weight.name) for weight in model.weights}) == len(model.weights)


@given(EVERY_ID)
def test_quantizing_moves_no_parameter(model_id: str) -> None:
    model = catalogued(model_id)
    if model.quantization is None:
        assert apply_quantization(model, "FP8").parameters == model.parameters
