"""The catalogue: exact ids, aliases that share a config, extensions that win, and the way out of an
unknown id.
"""

import json
from datetime import date
from importlib.resources import files

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import (
    Listing,
    find_model,
    known_ids,
    listing_of,
    model_unknown,
    read_catalogue_extension,
)
from tests.support.builders_model import a_config, catalogued, window


@pytest.mark.parametrize(
    ("alias", "model_id"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("NousResearch/Meta-Llama-3.1-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"),
    ],
)
def test_an_alias_has_the_config_of_its_model(alias: str, model_id: str) -> None:
    assert catalogued(alias).config_hash == catalogued(model_id).config_hash


def test_an_alias_overrides_the_fields_that_differ() -> None:
    assert catalogued("Qwen/Qwen2.5-7B-Instruct").max_context_tokens == 32768
    assert catalogued("Qwen/Qwen2.5-7B").max_context_tokens == 131072
    assert window(catalogued("mistralai/Mistral-7B-Instruct-v0.2").layers[0]) is None


def test_an_entry_says_where_it_comes_from() -> None:
    entry = find_model("openai/gpt-oss-120b")
    assert entry is not None
    assert (entry.id, entry.revision) == ("openai/gpt-oss-120b", None)
    assert entry.source.startswith("github.com/")


@pytest.mark.parametrize(
    "wrong", ["meta-llama/llama-3.1-8b-instruct", "Llama-3.1-8B-Instruct", "openai/gpt-oss", ""]
)
def test_ids_are_exact(wrong: str) -> None:
    assert find_model(wrong) is None


def test_an_extension_of_the_catalogue_adds_models_and_overrides_built_in_ones() -> None:
    extra = read_catalogue_extension(
        {"me/mine": json.dumps(a_config()), "openai/gpt-oss-20b": json.dumps(a_config())}
    )
    mine = find_model("me/mine", extra)
    assert mine is not None
    assert mine.config == a_config()
    gpt_oss = find_model("openai/gpt-oss-20b", extra)
    assert gpt_oss is not None
    assert gpt_oss.config == a_config()


def test_every_bad_text_of_an_extension_is_named() -> None:
    with pytest.raises(InputError) as refusal:
        read_catalogue_extension({"me/one": "{", "me/two": "{}", "me/three": "[]"})
    assert [problem.what.split()[0] for problem in refusal.value.problems] == ["me/one", "me/three"]


def test_an_unknown_id_says_how_to_make_it_known() -> None:
    problem = model_unknown("me/mine")
    assert problem.code == "ModelUnknown"
    assert problem.what == "'me/mine'"
    assert problem.limit == f"is not among the {len(known_ids())} models of the catalogue"
    assert problem.remedy == (
        "make a ConfigMap of its config.json with `shardwright fetch me/mine | kubectl apply "
        "--server-side -f -` or "
        "`kubectl create configmap NAME --from-file=config.json=./config.json` and name it in "
        "spec.model.configMapRef"
    )
    assert problem.gap == ""


def test_an_id_that_differs_in_case_only_is_what_was_meant() -> None:
    assert model_unknown("QWEN/qwen3-8b").gap == "did you mean 'Qwen/Qwen3-8B'?"
    assert model_unknown("me/Mine", {"me/mine": {}}).gap == "did you mean 'me/mine'?"


def test_the_nearest_ids_are_named_also_those_of_another_owner_and_no_distant_ones() -> None:
    assert (
        model_unknown("Qwen/Qwen3-8").gap
        == "the nearest are 'Qwen/Qwen3-8B', 'Qwen/Qwen3-4B', 'Qwen/Qwen3-14B'"
    )
    assert model_unknown("Llama-3.1-8B-Instruct").gap.startswith(
        "the nearest are 'meta-llama/Llama-3.1-8B-Instruct', "
    )
    assert model_unknown("me/mine-7b", {"us/mine-7b": {}}).gap == "the nearest is 'us/mine-7b'"
    assert model_unknown("me/mine", {"me/something-else": {}}).gap == ""


def test_the_days_of_release_are_of_built_in_models() -> None:
    rows = json.loads((files("shardwright.modelspec") / "listed.json").read_text())

    assert [model_id for model_id in rows if model_id not in known_ids()] == []
    days = [date.fromisoformat(row["released"]) for row in rows.values()]
    assert date(2023, 1, 1) < min(days) < max(days) < date(2026, 11, 1)
    assert listing_of("Qwen/Qwen3-8B") == Listing(
        released="2025-04-19", source="gpustack 2.3.0 (PyPI)"
    )
    assert listing_of("me/mine") is None


def test_every_config_file_is_listed_and_every_row_has_its_file() -> None:
    folder = files("shardwright.modelspec") / "configs"
    rows = json.loads((folder / "index.json").read_text())
    on_disk = {item.name for item in folder.iterdir()} - {"index.json"}
    assert {row["file"] for row in rows.values()} == on_disk
    assert all(row["source"] for row in rows.values())
    assert all(
        "note" in row
        for model_id, row in rows.items()
        if model_id.replace("/", "--") + ".json" != row["file"]
    )
