"""Compare the memory that the planner computes with what engines printed, row by row.

    python benchmarks/memory.py --data ../shared/groundtruth [--markdown]

Signed errors are ours over published; above zero in the K/V columns means that we promise more than
there is.
"""

import argparse
import csv
import json
import runpy
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shardwright.costs.memory import Frame, ReplicaMemory, memory_at, stage_holds
from shardwright.costs.working_memory import DRIVER_BYTES, Device
from shardwright.costs.workload import Workload, limits_to_try
from shardwright.engines.vllm.traits import traits
from shardwright.errors import InputError
from shardwright.hardware.gpus import Gpu, load_gpus
from shardwright.layouts.layout import Layout
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.units import GIB

Row = Mapping[str, str]

STORED: Final[Mapping[str, Mapping[str, Any]]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "int8-w8a8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
            }
        },
    },
    "int4": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "int4-gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "int4-awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
}
"""How weights of a precision are stored where the model's own config has them in 16 bits."""

CLASSES: Final = {
    "80GB-class": "H100-SXM-80GB",
    "80GB-class (presumed)": "H100-SXM-80GB",
    "A100-40GB": "A100-SXM4-40GB",
}
"""Rows that stand for a GPU of which a source states the size alone."""

MODELS: Final = {"0.5B Qwen2-class": "Qwen--Qwen2.5-0.5B", "opt-125m": "facebook--opt-125m"}
"""Files of models that the scorer has no name for."""

STAND_IN: Final = "RTX-A6000-48GB"
"""The row whose memory is replaced where a source prints the total of a GPU without its name."""

COMPONENTS: Final = (
    ("weights", "weights_gib_per_gpu"),
    ("activations", "activation_peak_gib_per_gpu"),
    ("K/V space", "kv_avail_gib_per_gpu"),
    ("K/V tokens", "kv_tokens_reported"),
)


class NotComputableError(Exception):
    """A row lacks what a computation needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours and the published figure of each component of one row: GiB per GPU, and tokens of the
    replica.
    """

    row: Row
    memory: ReplicaMemory
    pairs: Mapping[str, tuple[float, float | None]]

    def error(self, name: str) -> float | None:
        """Return the signed error of one component."""
        ours, published = self.pairs[name]
        return None if published is None or published <= 0 else ours / published - 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/groundtruth"))
    parser.add_argument("--half", default="dev")
    parser.add_argument(
        "--markdown", action="store_true", help="print the tables of docs/memory.md"
    )
    options = parser.parse_args()
    rows = list(
        csv.DictReader((options.data / f"memory_{options.half}.csv").open(encoding="utf-8"))
    )
    done, undone = [], []
    for row in rows:
        try:
            done.append(compare(row, options.data))
        except (NotComputableError, InputError) as reason:
            undone.append((row["row_id"], str(reason).splitlines()[0]))
    (print_markdown if options.markdown else print_table)(done, undone)
    print_summary(done)
    return 0


def compare(row: Row, data: Path) -> Comparison:
    model = model_of(row, data)
    device = device_of(row)
    layout = Layout(tensor=int(row["tp"]), pipeline=int(row["pp"]), expert=int(row["ep"]))
    if layout.expert > layout.gpus_per_replica:
        raise NotComputableError("one rank of a data-parallel group")
    engine = traits(row["engine_version"])
    if stated := number(row["gpu_memory_utilization"]):
        memory = replace(engine.memory, memory_utilization=stated)
        engine = replace(engine, memory=memory)
    length = int(number(row["max_model_len"]) or model.max_context_tokens)
    load = Workload(
        input_tokens=length // 2,
        output_tokens=length // 2,
        concurrency=1,
        max_model_len=length,
        kv_cache_dtype="fp8" if row["kv_dtype"].startswith("fp8") else "auto",
    )
    holds = stage_holds(model, layout, load.kv_cache_dtype, engine)
    frame = Frame(
        model=model, layout=layout, holds=holds, device=device, traits=engine, mean_tokens=length
    )
    memory = memory_at(frame, next(limits_to_try(load, engine, device.gpu, 1)))
    return Comparison(row=row, memory=memory, pairs=dict(pairs(row, memory)))


def pairs(row: Row, memory: ReplicaMemory) -> Iterator[tuple[str, tuple[float, float | None]]]:
    fullest = min(memory.stages, key=lambda stage: stage.kv_cache_bytes)
    ours = {
        "weights": memory.stages[0].weights_bytes / GIB,  # engines print rank 0
        "activations": fullest.activations_bytes / GIB,
        "K/V space": fullest.kv_cache_bytes / GIB,
        "K/V tokens": float(memory.kv_tokens),
    }
    for name, column in COMPONENTS:
        yield name, (ours[name], number(row[column]))


def model_of(row: Row, data: Path) -> ModelSpec:
    name = scorer(data)["MODELS"].get(row["model"]) or MODELS.get(row["model"])
    path = data / "models" / f"{name}.json"
    if name is None or not path.exists():
        raise NotComputableError(f"no config.json of {row['model']} at hand")
    config = json.loads(path.read_text(encoding="utf-8"))
    precision = row["weight_precision"]
    if precision not in {"bf16", "fp16"} and "quantization_config" not in config:
        if precision not in STORED:
            raise NotComputableError(f"weights stored as {precision}")
        config["quantization_config"] = dict(STORED[precision])
    elif precision == "int4-awq":
        config["quantization_config"] = dict(STORED[precision])
    return read_model(config, source=row["model"])


def device_of(row: Row) -> Device:
    gpu = load_gpus().get(CLASSES.get(row["gpu"], row["gpu"]))
    if gpu is None and not row["gpu_total_gib_reported"]:
        raise NotComputableError(f"the GPU is not stated ({row['gpu']})")
    gpu = gpu or stand_in(float(row["gpu_total_gib_reported"]))
    optional = gpu.scale_up is not None and "optional" in gpu.scale_up.name
    return Device(gpu=gpu, joined_gpus=1 if optional else gpu.scale_up_gpus)


def stand_in(total_gib: float) -> Gpu:
    return replace(load_gpus()[STAND_IN], memory_bytes=int(total_gib * GIB) + DRIVER_BYTES)


def scorer(data: Path) -> Mapping[str, Any]:
    return runpy.run_path(str(data / "score.py"), run_name="scorer")


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def print_table(done: list[Comparison], undone: list[tuple[str, str]]) -> None:
    print(
        f"{'row':8} {'model':18} {'GPU':24} {'layout':8} {'version':11}",
        *(f"{name:>26}" for name, _ in COMPONENTS),
        "  K/V band",
    )
    for item in done:
        row = item.row
        band = max(stage.band_bytes for stage in item.memory.stages) / GIB
        cells = [f"{cell(item, name):>26}" for name, _ in COMPONENTS]
        place = (
            f"{row['row_id']:8} {row['model'][:18]:18} {row['gpu'][:24]:24} "
            f"t{row['tp']}p{row['pp']}"
        ).ljust(61)
        print(place, f"{row['engine_version'][:11]:11}", *cells, f"{band:8.2f}")
    for row_id, reason in undone:
        print(f"{row_id:8} not computable: {reason}")


def print_markdown(done: list[Comparison], undone: list[tuple[str, str]]) -> None:
    print("| row | model, GPU, layout, vLLM | weights | activations | K/V space | K/V tokens |")
    print("|---|---|---|---|---|---|")
    for item in done:
        row = item.row
        what = f"{row['model']}, {row['gpu']}, tensor {row['tp']}" + (
            f" x pipeline {row['pp']}" if row["pp"] != "1" else ""
        )
        print("|", row["row_id"], "|", f"{what}, {row['engine_version'] or '-'}", "|", end=" ")
        print(*(cell(item, name) for name, _ in COMPONENTS), sep=" | ", end=" |\n")
    print("\n| row | why there is nothing to compare |\n|---|---|")
    for row_id, reason in undone:
        print("|", row_id, "|", reason, "|")
    print()


def cell(item: Comparison, name: str) -> str:
    ours, published = item.pairs[name]
    shown = f"{ours:,.0f}" if name == "K/V tokens" else f"{ours:.2f}"
    if published is None:
        return shown
    error = item.error(name)
    against = f"{published:,.0f}" if name == "K/V tokens" else f"{published:.2f}"
    return f"{shown} / {against} ({error:+.1%})" if error is not None else f"{shown} / {against}"


def print_summary(done: list[Comparison]) -> None:
    """Print what the rows of high and medium confidence add up to."""
    sure = [item for item in done if item.row["confidence"] != "low"]
    named = [
        (name, [error for item in sure if (error := item.error(name)) is not None])
        for name, _ in COMPONENTS
    ]
    named.append(("either K/V", [error for item in sure if (error := kv_error(item)) is not None]))
    for name, errors in named:
        bounded = sum(error <= 0.05 for error in errors) / len(errors)  # noqa: PLR2004 - the promise of the planner
        median = statistics.median(map(abs, errors))
        print(
            f"{name:12} {len(errors):3} rows, median absolute error {median:.1%}, at most +5% in "
            f"{bounded:.0%}"
        )
    judged = [(item, off) for item in sure if (off := error_bytes(item)) is not None]
    inside = sum(abs(off) <= item.memory.stages[0].band_bytes for item, off in judged)
    print(f"inside the band of K/V space: {inside} of {len(judged)}")


def kv_error(item: Comparison) -> float | None:
    """Return the signed error of the space for K/V, else of the tokens."""
    space = item.error("K/V space")
    return item.error("K/V tokens") if space is None else space


def error_bytes(item: Comparison) -> float | None:
    ours, published = item.pairs["K/V space"]
    if published is not None:
        return (ours - published) * GIB
    tokens, measured = item.pairs["K/V tokens"]
    return None if measured is None or not tokens else ours * GIB * (1 - measured / tokens)


if __name__ == "__main__":
    sys.exit(main())
