"""The CRD: each rewrite to a structural schema, and what holds of every field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from shardwright.api.rules import RULES
from shardwright.api.schema import crd, crd_yaml, spec_schema, status_schema
from shardwright.api.structural import structural

KEPT = Path(__file__).parents[3] / "crds" / "shardwright.io_shardedmodels.yaml"


class Part(BaseModel):
    """A part."""

    depth: int = Field(default=1, ge=1, le=9, description="How deep.")


class Whole(BaseModel):
    """A whole."""

    part: Part = Field(default_factory=Part, description="Its part.")
    other: Part | None = Field(default=None, description="Another one.")
    kind: Literal["One"] = "One"
    size: Annotated[int, Field(ge=0, le=2**40)] | None = None
    parts: list[Part] = Field(default_factory=list)


def test_references_are_replaced_by_what_they_refer_to() -> None:
    assert structural(Whole)["properties"]["part"]["properties"] == {
        "depth": {
            "type": "integer",
            "format": "int32",
            "default": 1,
            "minimum": 1,
            "maximum": 9,
            "description": "How deep.",
        }
    }


def test_what_stands_beside_a_reference_wins() -> None:
    assert structural(Whole)["properties"]["part"]["description"] == "Its part."


def test_a_part_whose_fields_have_defaults_fills_itself_in() -> None:
    assert structural(Whole)["properties"]["part"]["default"] == {}


def test_an_optional_part_does_not_fill_itself_in() -> None:
    assert "default" not in structural(Whole)["properties"]["other"]


def test_the_null_of_an_optional_field_is_dropped() -> None:
    assert structural(Whole)["properties"]["size"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "maximum": 2**40,
    }


def test_a_constant_becomes_an_enum_of_one() -> None:
    assert structural(Whole)["properties"]["kind"] == {
        "type": "string",
        "enum": ["One"],
        "default": "One",
    }


def test_fields_inside_list_items_get_their_format_too() -> None:
    assert (
        structural(Whole)["properties"]["parts"]["items"]["properties"]["depth"]["format"]
        == "int32"
    )


@pytest.mark.parametrize(
    "word", ["$ref", "$defs", "title", "const", "exclusiveMinimum", "prefixItems", "allOf"]
)
def test_nothing_is_left_that_a_structural_schema_may_not_have(word: str) -> None:
    assert [path for path, schema in everything() if word in schema] == []


def test_every_field_has_a_description() -> None:
    items = {path for path, _ in everything() if path.endswith(("[]", "{}"))}

    assert [
        path for path, schema in everything() if not schema.get("description") and path not in items
    ] == []


def test_every_field_has_a_bound() -> None:
    assert [path for path, schema in everything() if not is_bounded(schema)] == []


def test_every_list_says_how_it_is_merged() -> None:
    lists = [schema for _, schema in everything() if schema.get("type") == "array"]

    assert {schema.get("x-kubernetes-list-type") for schema in lists} == {"map", "set", "atomic"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_message_of_a_rule_says_what_must_be_and_the_way_out(rule: Any) -> None:
    limit, _, remedy = rule.message.partition("; ")

    assert " must " in limit
    assert remedy
    assert (
        rule.field.rpartition(".")[2] in limit
        or rule.path.rpartition(".")[2].removesuffix("[]") in limit
    )


def test_the_kept_crd_is_the_generated_one() -> None:
    """Run ``shardwright crd > crds/shardwright.io_shardedmodels.yaml`` when this fails."""
    assert KEPT.read_text() == crd_yaml()


def test_the_wide_table_alone_shows_model_and_product() -> None:
    (version,) = crd()["spec"]["versions"]

    assert [
        column["name"] for column in version["additionalPrinterColumns"] if column["priority"]
    ] == ["Model", "Pool", "Tok/s", "Endpoint"]


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from walk("spec", spec_schema())
    yield from walk("status", status_schema())


def walk(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", child)
    if "items" in schema:
        yield from walk(f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        yield from walk(f"{path}{{}}", schema["additionalProperties"])


def is_bounded(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if kind == "object":
        return "properties" in schema or "maxProperties" in schema
    if kind in ("integer", "number"):
        return "enum" in schema or ("minimum" in schema and "maximum" in schema)
    if kind == "string" or schema.get("x-kubernetes-int-or-string"):
        return "enum" in schema or "maxLength" in schema
    return kind == "boolean" or "maxItems" in schema
