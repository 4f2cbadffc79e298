"""Each engine's traits are its own: every figure says where it comes from, or that it is assumed."""

from dataclasses import fields

import pytest

from shardwright.engines.registry import BY_LOWER_NAME, traits_of
from shardwright.layouts.layout import (
    BatchRules,
    CutRules,
    EngineOptions,
    EngineSupport,
    MemoryRules,
    Repeats,
)
from shardwright.layouts.stages import split_layers

ENGINES = sorted(BY_LOWER_NAME.values())
NO_FIGURES = {"runs_on", "image", "unproven", "proven_first"}
PARTS = (BatchRules, MemoryRules, CutRules, Repeats, EngineSupport, EngineOptions)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_figure_names_its_source(engine: str) -> None:
    figures = [field.name for part in PARTS for field in fields(part)]
    said_of_all = {"released", "warnings"}

    assert set(traits_of(engine, None).sources) == said_of_all | set(figures) - NO_FIGURES
    assert len(set(figures)) == len(figures)


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "vLLM"])
def test_no_figure_of_another_engine_rests_on_the_source_of_vllm(engine: str) -> None:
    sources = traits_of(engine, None).sources

    assert [name for name, source in sources.items() if source.startswith("vLLM")] == []


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "vLLM"])
def test_no_architecture_is_treated_as_a_class_of_vllm(engine: str) -> None:
    own = traits_of(engine, None)

    assert [
        field.name
        for part in (own.cuts, own.repeats, own.support)
        for field in fields(part)
        if isinstance(getattr(part, field.name), frozenset)
        and getattr(part, field.name)
        and not own.sources[field.name].startswith(engine)
    ] == []


@pytest.mark.parametrize(
    ("engine", "sizes"),
    [("vLLM", [31, 32, 32, 31]), ("TensorRT-LLM", [32, 32, 31, 31]), ("SGLang", [31, 31, 32, 32])],
)
def test_layers_that_do_not_divide_go_where_the_engine_puts_them(
    engine: str, sizes: list[int]
) -> None:
    stages = split_layers(126, 4, traits_of(engine, None).cuts.remainder)

    assert [end - first for first, end in stages] == sizes
