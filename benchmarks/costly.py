"""What questions cost the worker: all models of the catalogue, and specs that are made to cost as
much as the API server admits.

python -m benchmarks.costly [--nodes 5000] [--cpu-seconds 10] [--memory-mib 192]
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from shardwright.controller.budget import Failed, QuestionBudget
from shardwright.controller.metrics import Metrics
from shardwright.controller.planner_process import Memo, PlannerProcess
from shardwright.controller.queue import Priority
from shardwright.hardware.pools import build_inventory
from shardwright.modelspec.catalogue import known_ids
from shardwright.reconcile.plan_choice import PlanChoice
from shardwright.reconcile.planner_work import MakePlan, Resolve, Stock
from shardwright.reconcile.snapshot import Ask
from shardwright.resolving.subject import Administration, Subject
from shardwright.units import MIB
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import h100_facts
from tests.support.deep_model import DEEP_CONFIG

KEY = ("models", "model")
ASK = Ask(on=None, choice=PlanChoice.REPLAN)
SPARSE = DEEP_CONFIG | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "intermediate_size": 256,
}
WAYS = "(a|b)" * 6  # 64 of them, the most that are followed


def asked(name: str, config: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    model = {"id": name, "config": config} if config else {"id": name}
    return {"model": model, "replicas": 1, **spec}


def quantized(**method: Any) -> dict[str, Any]:
    return asked("hostile/model", DEEP_CONFIG | {"quantization_config": method})


def specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is asked, by what it is."""
    for name in known_ids():
        yield name, asked(name)
    yield (
        "1,000 replicas of a small model",
        asked("meta-llama/Llama-3.1-8B-Instruct", replicas=1000),
    )
    yield "1,024 layers", asked("hostile/model", DEEP_CONFIG)
    yield "1,024 layers of 256 experts", asked("hostile/model", SPARSE)
    patterns = [f"re:.*x{number}{WAYS}.*" for number in range(64)]
    yield (
        "FP8, 64 patterns of 64 ways",
        quantized(quant_method="fp8", activation_scheme="dynamic", modules_to_not_convert=patterns),
    )
    yield (
        "AWQ, 4,096 entries",
        quantized(
            quant_method="awq",
            bits=4,
            group_size=128,
            modules_to_not_convert=[f"m{number}" for number in range(4096)],
        ),
    )
    groups = {
        f"group_{number}": {
            "targets": [f"re:.*{number}{WAYS}.*"],
            "weights": {"num_bits": 8, "type": "float"},
        }
        for number in range(64)
    }
    yield (
        "compressed-tensors, 64 groups of 64 ways",
        quantized(
            quant_method="compressed-tensors",
            format="float-quantized",
            config_groups=groups,
            ignore=[],
        ),
    )
    long = f"re:{WAYS}({'|'.join('c' * 100_000)})"
    yield (
        "a pattern of 200 KB",
        quantized(quant_method="fp8", activation_scheme="dynamic", modules_to_not_convert=[long]),
    )


class Bench:
    """One worker, and what it has cost so far."""

    def __init__(self, budget: QuestionBudget, nodes: int) -> None:
        self._metrics = Metrics()
        self._worker = PlannerProcess(budget, self._metrics)
        self._whole = build_inventory(h100_facts(nodes), ())

    async def run(self) -> None:
        print(f"{'':45} {'read':>8} {'planned':>8} {'clock':>8} {'peak':>8}")
        for name, spec in specs():
            began = monotonic()
            read, subject = await self._cost(
                Resolve(
                    text=json.dumps(_content(spec)),
                    config_text=None,
                    administration=Administration(),
                )
            )
            planned = "-"
            if isinstance(subject, Subject):
                stock = Stock(whole=self._whole, taken={})
                planned, _ = await self._cost(MakePlan(subject=subject, ask=ASK, stock=stock))
            elif not isinstance(subject, Failed):
                read = "refused"
            print(
                f"{name:45} {read:>8} {planned:>8} {monotonic() - began:7.2f}s {self._peak():7.0f}"
                "M",
                flush=True,
            )
        self._worker.stop()

    async def _cost(self, work: Resolve | MakePlan) -> tuple[str, object]:
        before = self._seconds(work)
        outcome = await self._worker.ask(KEY, Priority.NEW, work, Memo())
        return outcome.fault.value if isinstance(
            outcome, Failed
        ) else f"{self._seconds(work) - before:.3f}s", outcome

    def _seconds(self, work: Resolve | MakePlan) -> float:
        question = {"question": type(work).__name__}
        return (
            self._metrics.registry.get_sample_value(
                "shardwright_worker_cpu_seconds_total", question
            )
            or 0.0
        )

    def _peak(self) -> float:
        lines = Path(f"/proc/{self._worker.pid}/status").read_text().splitlines()
        return next(
            (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0
        )


def _content(spec: dict[str, Any]) -> dict[str, Any]:
    manifest = a_sharded_model("model", "models")
    metadata = {**manifest["metadata"], "uid": "uid", "generation": 1}
    return {**manifest, "metadata": metadata, "spec": spec}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cpu-seconds", type=float, default=10.0)
    parser.add_argument("--memory-mib", type=int, default=192)
    options = parser.parse_args()
    budget = QuestionBudget(cpu_seconds=options.cpu_seconds, memory_bytes=options.memory_mib * MIB)
    asyncio.run(Bench(budget, options.nodes).run())
