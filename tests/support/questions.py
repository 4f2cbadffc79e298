"""Questions to the planner that nobody wrote down: models of all families in all formats, fleets of
the whole catalogue, loads.

Each follows from a seed alone. What holds for every one of them is in
:mod:`tests.support.plan_laws`.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from shardwright.costs.workload import Workload
from shardwright.engines.vllm import traits as vllm
from shardwright.hardware.gpus import Gpu, load_gpus
from shardwright.hardware.inventory import Inventory, Pool
from shardwright.layouts.layout import EngineTraits, SearchSpace
from shardwright.modelspec.catalogue import find_model, known_ids
from shardwright.modelspec.computed import stored_as
from shardwright.modelspec.model_spec import ModelSpec
from shardwright.modelspec.read import read_model
from shardwright.planning.request import Objective, OptimizeFor, Request
from tests.support.builders_plan import a_network, a_pool

FORMATS: Final = ("", "", "", "bf16", "fp8", "fp8", "int8", "int4", "int4", "nvfp4", "mxfp4")
"""How weights are stored; empty: as the config says."""

SERVED: Final = ("NVIDIA", "AMD")


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question; ``stored`` and ``model_id`` name the model again in words."""

    seed: int
    model_id: str
    stored: str
    model: ModelSpec
    inventory: Inventory
    request: Request
    traits: EngineTraits

    def __str__(self) -> str:
        load, space = self.request.workload, self.request.space
        fleet = ", ".join(
            f"{len(pool.nodes)} x {pool.gpus_per_node} {pool.gpu.id} ({pool.domain_gpus} joined)"
            for pool in self.inventory.pools
        )
        rate = f" at {load.requests_per_second:g}/s" if load.requests_per_second else ""
        return (
            f"seed {self.seed}: {self.model_id} {self.stored or 'as it is'} on {fleet}; "
            f"{load.concurrency} x "
            f"{load.input_tokens} + {load.output_tokens}{rate}, "
            f"{self.request.objective.optimize_for.value}, "
            f"replicas {space.replicas}, fill {space.fill}"
        )


def a_question(seed: int) -> Question:
    """Return the question of a seed; most fleets are small, so that there is time for many."""
    dice = random.Random(seed)  # noqa: S311 - the same question for the same seed is what is wanted
    model_id, stored, model = _model(dice)
    pools = _pools(dice, dice.choices((6, 24, 128), weights=(90, 8, 2))[0])
    return Question(
        seed=seed,
        model_id=model_id,
        stored=stored,
        model=model,
        inventory=Inventory(pools=pools),
        request=_request(dice, model),
        traits=_traits(),
    )


@cache
def _traits() -> EngineTraits:
    return vllm.traits("0.33.0")


@cache
def _models() -> Sequence[str]:
    """Return one id of every config of the catalogue."""
    alike: dict[str, str] = {}
    for model_id in known_ids():
        entry = find_model(model_id)
        assert entry is not None
        alike.setdefault(json.dumps(dict(entry.config), sort_keys=True), model_id)
    return sorted(alike.values())


@cache
def _read(model_id: str, stored: str) -> ModelSpec:
    entry = find_model(model_id)
    assert entry is not None, model_id
    model = read_model(entry.config, source=model_id)
    return stored_as(model, stored) if stored else model


def _model(dice: random.Random) -> tuple[str, str, ModelSpec]:
    model_id = dice.choice(_models())
    stored = dice.choice(FORMATS)
    return model_id, stored, _read(model_id, stored)


def _logarithmic(dice: random.Random, least: float, most: float) -> int:
    return round(math.exp(dice.uniform(math.log(least), math.log(most))))


def _pools(dice: random.Random, most_nodes: int) -> tuple[Pool, ...]:
    kinds = dice.choices((1, 2, 3), weights=(8, 3, 1))[0]
    pools = tuple(_pool(dice, f"pool-{index}", most_nodes) for index in range(kinds))
    if dice.random() < 0.2:
        return tuple(
            replace(pool, gpu_hour_price=round(pool.gpu.worth * dice.uniform(1, 4), 2))
            for pool in pools
        )
    return pools


def _pool(dice: random.Random, name: str, most_nodes: int) -> Pool:
    catalogue = [gpu for gpu in load_gpus().values() if gpu.vendor in SERVED]
    gpu, nodes = dice.choice(catalogue), _logarithmic(dice, 1, most_nodes)
    network = a_network(dice.choice((10, 25, 50, 100, 200, 400, 800)))
    if gpu.scale_up_gpus > 16:
        trays = max(1, min(18, nodes))
        joined = (
            trays // 2 if trays % 2 == 0 and trays % 4 else trays
        )  # racks of 2, 6, 10, 14 and 18 trays are two cliques
        return a_pool(
            gpu,
            trays,
            name=name,
            gpus_per_node=4,
            domain_nodes=joined,
            domain_gpus=4 * joined,
            network=network,
        )
    gpus = (
        dice.choice((1, 2, 4, 8, 8, 8)) if gpu.id != "A100-SXM4-40GB" else dice.choice((4, 8, 16))
    )
    return a_pool(
        gpu,
        nodes,
        name=name,
        gpus_per_node=gpus,
        domain_gpus=_joined(dice, gpu, gpus),
        network=network,
    )


def _joined(dice: random.Random, gpu: Gpu, gpus: int) -> int:
    """Return how many GPUs of a node a scale-up link joins: all of a board, pairs where bridges are
    an option, or none.
    """
    if gpu.scale_up is None:
        return 1
    return (
        min(gpus, gpu.scale_up_gpus)
        if "optional" not in gpu.scale_up.name or dice.random() < 0.5
        else 1
    )


def _request(dice: random.Random, model: ModelSpec) -> Request:
    longest = min(1_000_000, model.max_context_tokens or 8192)
    outputs = min(_logarithmic(dice, 1, 8192), max(1, longest // 2))
    inputs = max(1, min(_logarithmic(dice, 1, 1_000_000), longest - outputs))
    fill = dice.random() < 0.15
    replicas = dice.choices((None, 1, 2, 4), weights=(20, 3, 1, 1))[0]
    rate = (
        round(math.exp(dice.uniform(math.log(0.02), math.log(100))), 3)
        if dice.random() < 0.3
        else None
    )
    concurrency = _logarithmic(dice, 1, 4096)
    space = SearchSpace(
        replicas=concurrency if fill else replicas,
        fill=fill,
        max_gpus=2 ** dice.randint(0, 7) if fill else None,
    )
    workload = Workload(
        input_tokens=inputs,
        output_tokens=outputs,
        concurrency=concurrency,
        max_model_len=min(longest, inputs + outputs + dice.choice((0, 512, 4096))),
        requests_per_second=rate,
        prefix_cache_hit_rate=dice.choice((0.0, 0.0, 0.0, 0.5, 0.95)),
        draft_tokens=(drafts := dice.choice((0, 0, 0, 0, 3))),
        draft_acceptance=dice.choice((0.3, 0.8)) if drafts else 0.0,
    )
    limit = dice.choice((None, None, None, 0.02, 0.05, 0.2))
    objective = Objective(optimize_for=dice.choice(list(OptimizeFor)), tpot_seconds=limit)
    return Request(workload=workload, objective=objective, space=space)
