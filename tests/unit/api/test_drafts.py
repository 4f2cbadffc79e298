"""A draft model in ``spec.engine.speculation``: what is refused before a layout is looked at, and what the planner
gets.
"""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.errors import InputError, Problem
from shardwright.resolving.model import Question
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_model import a_config
from tests.support.builders_resource import A_COMMIT, A_CONFIG, A_DRAFT, Manifest, a_sharded_model


def question(draft: Manifest, **spec: Any) -> Question:
    speculation = A_DRAFT | {"head": A_DRAFT["head"] | draft}
    engine: Manifest = {"speculation": speculation} | spec.pop("engine", {})
    target = {"id": "meta-llama/Llama-3.1-70B-Instruct"} | spec.pop("model", {})
    manifest = a_sharded_model(model=target, engine=engine, **spec)
    return Question(resource=parse_manifest(manifest))


def a_drafting_subject(draft: Manifest, **spec: Any) -> Subject:
    return resolve(question(draft, **spec))


def refused(draft: Manifest, **spec: Any) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        resolve(question(draft, **spec))
    return list(caught.value.problems)


def config(**changes: object) -> Manifest:
    return {"config": a_config(vocab_size=128256, max_position_embeddings=131072, **changes)}


def test_the_planner_gets_the_draft_model_and_how_often_it_is_right() -> None:
    speculation = A_DRAFT | {"tokens": 4, "acceptancePercent": 80}
    subject = a_drafting_subject({}, engine={"speculation": speculation})

    drafter, load = subject.traits.options.drafter, subject.request.workload
    assert drafter is not None
    assert (drafter.model.source, load.draft_tokens) == ("meta-llama/Llama-3.2-1B-Instruct", 4)
    assert (load.draft_tokens, load.draft_acceptance) == (4, 0.8)
    assert (
        resolve(Question(resource=parse_manifest(a_sharded_model()))).traits.options.drafter is None
    )


def test_the_config_of_a_draft_model_may_be_given_instead_of_the_catalogues() -> None:
    drafter = a_drafting_subject(
        {"id": "acme/own"} | config(num_hidden_layers=3)
    ).traits.options.drafter

    assert drafter is not None
    assert (drafter.model.source, len(drafter.model.layers)) == ("acme/own", 3)


def test_a_draft_model_is_computed_in_the_type_of_its_target() -> None:
    drafter = a_drafting_subject({}, model={"quantization": "FP16"}).traits.options.drafter

    assert drafter is not None
    assert (drafter.model.dtype, {weight.storage.name for weight in drafter.model.weights}) == (
        "fp16",
        {"fp16"},
    )


def test_a_draft_model_keeps_its_stored_type_where_its_target_is_quantized_while_loading() -> None:
    subject = a_drafting_subject({}, model={"quantization": "FP8"})

    assert subject.traits.options.drafter is not None
    assert "fp8" not in {
        weight.storage.name for weight in subject.traits.options.drafter.model.weights
    }


def test_another_config_asks_for_another_plan() -> None:
    one, other = (
        a_drafting_subject({"id": "acme/own"} | config(num_hidden_layers=layers))
        for layers in (2, 3)
    )
    catalogues = ({"acme/own": A_CONFIG | {"num_hidden_layers": layers}} for layers in (2, 3))
    known = [
        resolve(
            Question(resource=question({"id": "acme/own"}).resource, catalogue=catalogue)
        ).input_hash
        for catalogue in catalogues
    ]

    assert one.input_hash != other.input_hash
    assert known[0] != known[1]


def test_an_id_that_no_catalogue_has_needs_its_config() -> None:
    (problem,) = refused({"id": "acme/own"})

    assert (problem.code, problem.path) == ("ModelUnknown", "spec.engine.speculation.head.id")
    assert problem.remedy == "set spec.engine.speculation.head.config to its config.json"


def test_a_config_that_cannot_be_read_is_refused_where_it_stands() -> None:
    (problem,) = refused(config(hidden_size="wide"))

    assert problem.path == "spec.engine.speculation.head.config.hidden_size"


def test_another_vocabulary_is_refused() -> None:
    (problem,) = refused({"id": "Qwen/Qwen2.5-0.5B"}, model={"id": "Qwen/Qwen2.5-72B-Instruct"})

    assert problem.path == "spec.engine.speculation.head.id"
    assert problem.sentence() == (
        "spec.engine.speculation.head.id: a draft model with a vocabulary of 151,936 tokens must have "
        "the 152,064 of "
        "Qwen/Qwen2.5-72B-Instruct, 128 apart; use a draft model of the same family"
    )


MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize("architecture", ["MixtralForCausalLM", "Phi3ForCausalLM"])
def test_a_draft_model_may_be_of_any_family(architecture: str) -> None:
    drafter = a_drafting_subject(
        {"id": "a/b"} | config(architectures=[architecture], **MIXTURE)
    ).traits.options.drafter

    assert drafter is not None
    assert drafter.model.architecture == architecture


def test_an_architecture_that_the_engine_makes_mtp_layers_of_is_refused() -> None:
    (problem, *_) = refused({"id": "zai-org/GLM-4.5-Air"})

    assert problem.code == "DraftNotSupported"
    assert (
        "Glm4MoeForCausalLM is not loaded as one by vLLM 0.33.0, which makes MTP layers of it"
        in (problem.sentence())
    )


@pytest.mark.parametrize("word", ["EAGLE-x", "x-eagle3", "x-DFlash-y", "dspark"])
def test_a_name_by_which_the_engine_takes_another_method_is_refused(word: str) -> None:
    (of_hub,) = refused({"uri": f"hf://acme/{word}@{A_COMMIT}"} | config())
    (of_claim,) = refused({"uri": f"pvc://drafts/a/{word}"} | config())

    assert {(problem.code, problem.path) for problem in (of_hub, of_claim)} == {
        ("DraftOfOtherMethod", "spec.engine.speculation.head.uri")
    }
    a_drafting_subject({"id": f"acme/{word}", "uri": f"pvc://{word.lower()}/a"} | config())


WINDOWS = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096}


def test_layers_that_keep_something_else_are_refused_of_both_models() -> None:
    (of_draft,) = refused(config(**WINDOWS))
    recurrent = refused({}, model={"id": "Qwen/Qwen3.5-27B"})

    assert (of_draft.code, of_draft.path) == ("DraftCacheUnknown", "spec.engine.speculation.head")
    assert [problem.code for problem in recurrent] == [
        "DraftVocabularyDiffers",
        "DraftCacheUnknown",
    ]
    assert "the K/V of Qwen/Qwen3.5-27B must be of one kind" in recurrent[1].sentence()


def test_requests_are_no_longer_than_the_draft_model_takes() -> None:
    short = {"id": "acme/own"} | {
        "config": a_config(vocab_size=128256, max_position_embeddings=3000)
    }

    (pinned,) = refused(short, engine={"maxModelLen": 3001})
    (needed,) = refused(short, workload={"inputTokens": 2900, "outputTokens": 101})

    assert [problem.path for problem in (pinned, needed)] == [
        "spec.engine.maxModelLen",
        "spec.workload.inputTokens",
    ]
    assert pinned.sentence() == (
        "spec.engine.maxModelLen: 3,001 tokens must be at most the 3,000 of acme/own, 1 too "
        "many; "
        "lower it, or use a draft model with a longer context"
    )
    assert a_drafting_subject(short).request.workload.open_model_len == 3000
