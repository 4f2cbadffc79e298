"""``spec.engine.speculation``: what the planner gets, and what is refused before a layout is looked
at.
"""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.errors import InputError, Problem
from shardwright.layouts.layout import DraftMethod
from shardwright.modelspec.catalogue import find_model
from shardwright.resolving.model import Question
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_model import A_HEAD
from tests.support.builders_resource import A_COMMIT, Manifest, a_sharded_model

URI = f"hf://acme/head@{A_COMMIT}"
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def a_speculating_subject(model: str, load: Manifest, **speculation: Any) -> Subject:
    manifest = a_sharded_model(
        model={"id": model}, workload=load, engine={"speculation": speculation}
    )
    return resolve(Question(resource=parse_manifest(manifest)))


def speculating(model: str, **fields: Any) -> Subject:
    return a_speculating_subject(model, {}, **fields)


def refused(model: str, **fields: Any) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        speculating(model, **fields)
    return list(caught.value.problems)


def a_head(**fields: Any) -> Manifest:
    return {"id": "acme/head", "uri": URI, "config": A_HEAD} | fields


def test_what_is_left_out_is_assumed_and_planned() -> None:
    load = speculating("Qwen/Qwen3.5-27B", method="MTP").request.workload

    assert (load.draft_acceptance, load.draft_acceptance_band) == (0.75, 0.2)
    assert load.draft_choices == tuple(range(1, 9))


def test_a_stated_acceptance_and_number_of_drafts_are_taken_without_a_band() -> None:
    load = speculating(
        "Qwen/Qwen3.5-27B", method="MTP", tokens=2, acceptancePercent=80
    ).request.workload

    assert (load.draft_acceptance, load.draft_acceptance_band) == (0.8, 0.0)
    assert (load.draft_tokens, load.draft_choices) == (2, ())


def test_mtp_layers_come_out_of_the_models_own_config() -> None:
    subject = speculating("deepseek-ai/DeepSeek-V3", method="MTP")

    drafter = subject.traits.options.drafter
    assert drafter is not None
    assert (drafter.method, len(drafter.model.layers)) == (DraftMethod.MTP, 1)
    assert [weight.name for weight in drafter.borrowed] == ["lm_head"]
    assert subject.deployment.drafting.draft_model is None


def test_mtp_layers_are_quantized_while_loading_as_their_target_is() -> None:
    manifest = a_sharded_model(
        model={"id": "Qwen/Qwen3.5-27B", "quantization": "FP8"},
        engine={"speculation": {"method": "MTP"}},
    )
    drafter = resolve(Question(resource=parse_manifest(manifest))).traits.options.drafter

    assert drafter is not None
    assert "fp8" in {weight.storage.name for weight in drafter.model.weights}


def test_a_model_without_mtp_layers_is_refused_by_name() -> None:
    (problem,) = refused(LLAMA_8B, method="MTP")

    assert problem.sentence() == (
        "spec.engine.speculation.method: the MTP layers of meta-llama/Llama-3.1-8B-Instruct are "
        "not counted, or its config.json has none; use EAGLE3, DraftModel or PromptLookup"
    )


def two_mtp_layers(tokens: int) -> Subject:
    entry = find_model("deepseek-ai/DeepSeek-V3")
    assert entry is not None
    manifest = a_sharded_model(
        model={"id": "acme/two", "config": {**entry.config, "num_nextn_predict_layers": 2}},
        engine={"speculation": {"method": "MTP", "tokens": tokens}},
    )
    return resolve(Question(resource=parse_manifest(manifest)))


def test_two_mtp_layers_draft_one_token_or_whole_rounds() -> None:
    assert [two_mtp_layers(n).request.workload.draft_tokens for n in (1, 2, 4)] == [1, 2, 4]

    with pytest.raises(InputError) as caught:
        two_mtp_layers(5)

    (problem,) = caught.value.problems
    assert problem.sentence() == (
        "spec.engine.speculation.tokens: 5 drafted tokens must be a multiple of the 2 MTP layers "
        "of acme/two, or fewer, 1 left over; use 4, or leave tokens out"
    )


def test_a_head_is_held_beside_its_target() -> None:
    drafter = speculating(LLAMA_8B, method="EAGLE3", head=a_head()).traits.options.drafter

    assert drafter is not None
    assert (drafter.method, drafter.model.source) == (DraftMethod.EAGLE3, "acme/head")


def test_the_positions_of_a_head_are_its_targets() -> None:
    """Its config says 2,048, which is the length that it was trained with."""
    subject = a_speculating_subject(LLAMA_8B, {"inputTokens": 8000}, method="EAGLE3", head=a_head())

    assert subject.request.workload.max_model_len > 2048


@pytest.mark.parametrize(
    ("model", "head", "code", "path"),
    [
        (LLAMA_8B, {"config": None}, "ModelUnknown", "head.id"),
        (
            LLAMA_8B,
            {"config": A_HEAD | {"vocab_size": 32000}},
            "DraftVocabularyDiffers",
            "head.config.vocab_size",
        ),
        (
            LLAMA_8B,
            {"config": A_HEAD | {"hidden_size": "wide"}},
            "ConfigInvalid",
            "head.config.hidden_size",
        ),
        (
            "mistralai/Mixtral-8x7B-Instruct-v0.1",
            {"config": A_HEAD | {"vocab_size": 32000}},
            "DraftNotSupported",
            "head.id",
        ),
    ],
)
def test_a_head_that_is_unknown_or_of_another_model_is_refused(
    model: str, head: Manifest, code: str, path: str
) -> None:
    (problem, *_) = refused(model, method="EAGLE3", head=a_head(**head))

    assert (problem.code, problem.path) == (code, f"spec.engine.speculation.{path}")


def test_a_draft_model_is_refused_at_its_own_field() -> None:
    (problem,) = refused(
        "Qwen/Qwen2.5-72B-Instruct",
        method="DraftModel",
        head={"id": "Qwen/Qwen2.5-0.5B", "uri": URI},
    )

    assert problem.path == "spec.engine.speculation.head.id"
