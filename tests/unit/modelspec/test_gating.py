"""Which repositories are gated: a fact of an id, of a family or of an organisation, with
its source, or not known."""

import csv
import re
from importlib.resources import files

import pytest

from shardwright.api.weights_source import MODEL_ID
from shardwright.modelspec.catalogue import Gating, RepositoryGate, gate_of

TABLE = files("shardwright.modelspec").joinpath("gating.csv").read_text("utf-8")
ROWS = tuple(csv.DictReader(TABLE.splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_row_says_where_and_when_it_was_read(row: dict[str, str]) -> None:
    assert row["gated"] in {"yes", "no"}
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["read"])
    assert row["source"]


@pytest.mark.parametrize(
    ("model_id", "gating"),
    [
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", Gating.GATED),
        ("google/gemma-2-9b-it", Gating.GATED),
        ("google/gemma-3-27b-it", Gating.GATED),
        ("google/gemma-4-26B-A4B-it", Gating.OPEN),
        ("Qwen/Qwen3-8B", Gating.OPEN),
        ("Qwen/Qwen3-8B-FP8", Gating.UNKNOWN),
        ("mistralai/Mistral-7B-Instruct-v0.3", Gating.OPEN),
        ("mistralai/Mistral-Nemo-Instruct-2407", Gating.UNKNOWN),
        ("acme/meta-llama/ours", Gating.UNKNOWN),
    ],
)
def test_whether_a_repository_is_gated_is_a_fact_or_unknown(model_id: str, gating: Gating) -> None:
    assert gate_of(model_id).gating is gating


def test_what_is_unknown_names_no_source() -> None:
    assert gate_of("acme/ours") == RepositoryGate(gating=Gating.UNKNOWN)


def test_every_row_is_about_a_repository_or_about_all_of_some_beginning() -> None:
    exact = [row["id"] for row in ROWS if not row["id"].endswith(("/", "-"))]

    assert [model_id for model_id in exact if not re.fullmatch(MODEL_ID, model_id)] == []
