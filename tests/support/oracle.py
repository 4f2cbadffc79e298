"""What vLLM's own classes say about weights, K/V bytes and refusals, one case at a time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwright.layouts.layout import Layout
from shardwright.modelspec.quantization import apply_quantization
from shardwright.modelspec.read import read_model
from shardwright.modelspec.spec import ModelSpec
from tests.support.builders_model import catalogued

_FOLDER = Path(__file__).parents[1] / "data" / "oracle"


@dataclass(frozen=True)
class OracleCase:
    """One layout of one model; ``stages`` are (weight bytes, K/V bytes per token), empty when refused."""

    name: str
    model: ModelSpec
    layout: Layout
    kv_cache_dtype: str
    accepted: bool
    stages: tuple[tuple[int, int], ...]
    message: str


def oracle_cases() -> tuple[OracleCase, ...]:
    """Return the cases of every file of the oracle."""
    return tuple(case for path in sorted(_FOLDER.glob("*.json")) for case in _cases(path))


def _cases(path: Path) -> list[OracleCase]:
    content = json.loads(path.read_text())
    models = {case["model"] for case in content["cases"]}
    specs = {name: _model(name, content["configs"]) for name in models}
    return [_case(row, specs[row["model"]]) for row in content["cases"]]


def _model(name: str, configs: dict[str, Any]) -> ModelSpec:
    return read_model(configs[name], source=name) if name in configs else catalogued(name)


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
        ),
        kv_cache_dtype=row.get("kvCacheDtype", "auto"),
        accepted=row["accepted"],
        stages=tuple((weights, kv) for weights, kv in row.get("stages", [])),
        message=row.get("message", ""),
    )
