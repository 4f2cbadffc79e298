"""What vLLM's own classes say about weights, K/V bytes and refusals, one case at a time."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.quantized import apply_quantization
from shardwright.modelspec.read import read_model
from tests.support.builders_model import catalogued

_FOLDER = Path(__file__).parents[1] / "data" / "oracle"
_CACHE = "cache.json"

LOOSE = Path(__file__).parents[1] / "data" / "configs"
"""Configs that are read but stand in no catalogue."""


STRICTER_THAN_VLLM = {
    # eight ranks without any expert
    "mixtral tp16 ep (8 experts over 16)": "ExpertsFewerThanRanks",
    "tiny pp16": "MoreStagesThanLayers",  # accepted, then dies at start with ZeroDivisionError
    # slices of no whole number of groups: the count of scales is rounded down, and they belong to
    # other slices
    "llama8b-gptq tensor 32 nodes 4": "QuantizationBlockNotDivisible",
    "qwen30-gptq tensor 8": "QuantizationBlockNotDivisible",
    "mixtral-awq tensor 32 nodes 4": "QuantizationBlockNotDivisible",
    "q3m-awq tensor 8": "QuantizationBlockNotDivisible",
    "mx tensor 16 experts whole": "ExpertsFewerThanRanks",
    # built, but a window is no shared cache: v1/kv_cache_interface.py asserts it when memory is
    # dealt out
    "XiaomiMiMo/MiMo-V2-Flash tensor 16 pipeline 1 context 2": "ContextDegreeImpossible",
}
"""Cases that vLLM's checks let pass and that we refuse, with our reason."""


@dataclass(frozen=True)
class OracleCase:
    """One layout of one model; ``stages`` are (weight bytes, K/V bytes per token), empty when
    refused.

    Only a test that runs reads its model: every process that collects tests makes all cases.
    """

    name: str
    file: str
    """The file of the oracle that holds the case: the config may be there."""
    source: str
    """The id of the model, and with ``quantization`` which spec it is."""
    quantization: str
    layout: Layout
    kv_cache_dtype: str
    accepted: bool
    stages: tuple[tuple[int, int | None], ...]
    message: str

    @property
    def model(self) -> ModelSpec:
        """The model as vLLM was given it."""
        return _model(self.file, self.source, self.quantization)


@dataclass(frozen=True)
class CacheCase:
    """How vLLM deals out so many bytes of K/V cache on a rank."""

    source: str
    layout: Layout
    kv_cache_dtype: str
    available_bytes: int
    max_model_len: int
    in_flight_tokens: int
    blocks: int
    bytes_per_block: int
    blocks_per_request: int

    @property
    def model(self) -> ModelSpec:
        """The model as vLLM was given it."""
        return _model(_CACHE, self.source, "Auto")


@cache
def oracle_cases() -> tuple[OracleCase, ...]:
    """Return the cases of every file of the oracle that is about weights."""
    return tuple(
        _case(path.name, row)
        for path in sorted(_FOLDER.glob("*.json"))
        if path.name != _CACHE
        for row in _content(path.name)["cases"]
    )


def cache_cases() -> tuple[CacheCase, ...]:
    """Return how vLLM deals out its cache, one case at a time."""
    return tuple(_cache_case(row) for row in _content(_CACHE)["cases"])


def _cache_case(row: dict[str, Any]) -> CacheCase:
    return CacheCase(
        source=row["model"],
        layout=Layout(tensor=row["tensor"], context=row["context"]),
        kv_cache_dtype=row["kvCacheDtype"],
        available_bytes=row["availableBytes"],
        max_model_len=row["maxModelLen"],
        in_flight_tokens=row["inFlightTokens"],
        blocks=row["blocks"],
        bytes_per_block=row["bytesPerBlock"],
        blocks_per_request=row["blocksPerRequest"],
    )


@cache
def _content(file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((_FOLDER / file).read_text())
    return content


@cache
def _loose_configs() -> dict[str, Any]:
    """Return the configs that stand in no catalogue, by id."""
    return {
        path.stem.replace("--", "/", 1): json.loads(path.read_text())
        for path in sorted(LOOSE.glob("*.json"))
    }


@cache
def _model(file: str, source: str, quantization: str) -> ModelSpec:
    return apply_quantization(_read(file, source), quantization)


@cache
def _read(file: str, source: str) -> ModelSpec:
    config = _content(file).get("configs", {}).get(source, _loose_configs().get(source))
    return read_model(config, source=source) if config else catalogued(source)


def _case(file: str, row: dict[str, Any]) -> OracleCase:
    ranks = row["tensor"] * row["attentionData"]
    return OracleCase(
        name=row["name"],
        file=file,
        source=row["model"],
        quantization=row.get("quantization", "Auto"),
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
