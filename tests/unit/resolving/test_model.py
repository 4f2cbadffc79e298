"""Which model a resource means, and where its problems stand."""

import json

import pytest

from shardwright.errors import InputError
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_resource import A_CONFIG
from tests.support.builders_subject import a_resource, a_subject, problems_of


def test_an_inline_config_is_the_model() -> None:
    assert (
        len(
            a_subject(
                model={"id": "me/mine", "config": A_CONFIG | {"num_hidden_layers": 7}}
            ).model.layers
        )
        == 7
    )


def test_the_text_of_a_config_map_is_the_model() -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine"}})

    subject = resolve(
        Question(resource=resource, config_text=json.dumps(A_CONFIG | {"num_hidden_layers": 7}))
    )

    assert len(subject.model.layers) == 7


def test_the_catalogue_of_the_administrator_joins_the_built_in_one() -> None:
    resource = a_resource(model={"id": "me/mine"})

    assert (
        resolve(Question(resource=resource, catalogue={"me/mine": A_CONFIG})).model.architecture
        == "LlamaForCausalLM"
    )


def test_an_unknown_model_is_told_the_command_that_makes_the_config_map() -> None:
    with pytest.raises(InputError, match="kubectl create configmap") as caught:
        a_subject(model={"id": "me/mine"})

    assert [(problem.code, problem.path) for problem in caught.value.problems] == [
        ("ModelUnknown", "spec.model.id")
    ]


def test_a_missing_config_map_is_named() -> None:
    resource = a_resource(
        model={"id": "me/mine", "configMapRef": {"name": "mine", "key": "c.json"}}
    )

    with pytest.raises(InputError, match=r"key c\.json of ConfigMap mine") as caught:
        resolve(Question(resource=resource))

    assert [(problem.code, problem.path) for problem in caught.value.problems] == [
        ("ConfigMissing", "spec.model.configMapRef")
    ]


def test_problems_of_a_config_stand_under_the_field_that_gave_it() -> None:
    broken = {key: value for key, value in A_CONFIG.items() if key != "hidden_size"}

    inline = problems_of(Question(resource=a_resource(model={"id": "me/mine", "config": broken})))
    by_reference = problems_of(
        Question(
            resource=a_resource(model={"id": "me/mine", "configMapRef": {"name": "x"}}),
            config_text=json.dumps(broken),
        )
    )

    assert {path for _, path in inline} == {"spec.model.config.hidden_size"}
    assert {path for _, path in by_reference} == {"spec.model.configMapRef.hidden_size"}


def test_quantizing_what_is_quantized_is_refused_where_it_stands() -> None:
    resource = a_resource(model={"id": "deepseek-ai/DeepSeek-V3", "quantization": "BF16"})

    assert [path for _, path in problems_of(Question(resource=resource))] == [
        "spec.model.quantization"
    ]


def test_equal_models_are_one_object_so_that_what_is_kept_for_one_serves_the_other() -> None:
    quantized = {"model": {"id": "meta-llama/Llama-3.1-70B-Instruct", "quantization": "FP8"}}

    assert a_subject(**quantized).model is a_subject(**quantized, replicas=2).model
