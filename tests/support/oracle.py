"""What vLLM's own classes say about weights, K/V bytes and refusals, one case at a time."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shardwright.layouts.layout import Layout
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec
from tests.support.builders_model import catalogued

_FOLDER = Path(__file__).parents[1] / "data" / "oracle"
_CACHE = "cache.json"

LOOSE = Path(__file__).parents[1] / "data" / "configs"
"""Configs that are read but stand in no catalogue."""


@dataclass(frozen=True)
class OracleCase:
    """One layout of one model; ``stages`` are (weight bytes, K/V bytes per token), empty when
    refused.
    """

    name: str
    model: ModelSpec
    layout: Layout
    kv_cache_dtype: str
    accepted: bool
    stages: tuple[tuple[int, int | None], ...]
    message: str


@dataclass(frozen=True)
class CacheCase:
    """How vLLM deals out so many bytes of K/V cache on a rank."""

    model: ModelSpec
    layout: Layout
    kv_cache_dtype: str
    available_bytes: int
    max_model_len: int
    in_flight_tokens: int
    blocks: int
    bytes_per_block: int
    blocks_per_request: int


@cache
def oracle_cases() -> tuple[OracleCase, ...]:
    """Return the cases of every file of the oracle that is about weights."""
    return tuple(
        case
        for path in sorted(_FOLDER.glob("*.json"))
        if path.name != _CACHE
        for case in _cases(path)
    )


def cache_cases() -> tuple[CacheCase, ...]:
    """Return how vLLM deals out its cache, one case at a time."""
    return tuple(
        _cache_case(row) for row in json.loads((_FOLDER / _CACHE).read_text())["cases"]
    )


def _cache_case(row: dict[str, Any]) -> CacheCase:
    return CacheCase(
        model=_model(row["model"], _loose_configs()),
        layout=Layout(tensor=row["tensor"], context=row["context"]),
        kv_cache_dtype=row["kvCacheDtype"],
        available_bytes=row["availableBytes"],
        max_model_len=row["maxModelLen"],
        in_flight_tokens=row["inFlightTokens"],
        blocks=row["blocks"],
        bytes_per_block=row["bytesPerBlock"],
        blocks_per_request=row["blocksPerRequest"],
    )


def _loose_configs() -> dict[str, Any]:
    """Return the configs that stand in no catalogue, by id."""
    return {
        path.stem.replace("--", "/", 1): json.loads(path.read_text())
        for path in sorted(LOOSE.glob("*.json"))
    }


def _cases(path: Path) -> list[OracleCase]:
    content = json.loads(path.read_text())
    models = {case["model"] for case in content["cases"]}
    configs = {**_loose_configs(), **content["configs"]}
    specs = {name: _model(name, configs) for name in models}
    return [_case(row, specs[row["model"]]) for row in content["cases"]]


def _model(name: str, configs: dict[str, Any]) -> ModelSpec:
    return (
        read_model(configs[name], source=name) if name in configs else catalogued(name)
    )


def _case(row: dict[str, Any], model: ModelSpec) -> OracleCase:
    ranks = row["tensor"] * row["attentionData"]
    return OracleCase(
        name=row["name"],
        model=apply_quantization(model, row.get("quantization", "Auto")),
        layout=Layout(
            tensor=row["tensor"],
            pipeline=row["pipeline"],
            attention_data=row["attentionData"],
            expert=ranks if row["expertParallel"] else 1,
            context=row.get("context", 1),
            partition=tuple(row.get("partition", ())),
        ),
        kv_cache_dtype=row.get("kvCacheDtype", "auto"),
        accepted=row["accepted"],
        stages=tuple((weights, kv) for weights, kv in row.get("stages", [])),
        message=row.get("message", ""),
    )
