"""Subjects as tests ask them, the stock of a few nodes, and the plan that comes of both."""

from typing import Any, Final

import pytest

from shardwright.api.admission import UserPolicy
from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.api.settings import RouterSetting, Settings
from shardwright.errors import InputError
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import GpuUsage, read_node
from shardwright.pipeline.assembly import Supply, plan_serving, with_ways_out
from shardwright.pipeline.replanning import Ground, Held
from shardwright.planning.report import Plan, Report
from shardwright.resolving.model import Question
from shardwright.resolving.stock import reservations_of, take_stock
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_resource import a_sharded_model

OWN = ("default", "llama")

LARGE = {"model": {"id": "meta-llama/Llama-3.1-405B-Instruct"}}

TRTLLM = {"name": "TensorRTLLM", "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1"}


ADMITTING: Final = Settings(
    policy=UserPolicy(
        admitted_executors=["Ray"],
        admitted_attachment_namespaces=["*"],
        admitted_lock_memory=["*"],
        admitted_service_accounts={"*": ["*"]},
        admitted_secret_volumes={"*": ["*"]},
        admitted_pod_keys=["*"],
    ),
    prometheus_url="http://prometheus.monitoring:9090",
    router=RouterSetting(image="registry.internal/vllm-router:0.1.17"),
)
"""An administrator who leaves users whatever the spec has a field for."""


def a_resource(**spec: Any) -> ShardedModel:
    return parse_manifest(a_sharded_model(**spec))


def a_subject(**spec: Any) -> Subject:
    return resolve(Question(resource=a_resource(**spec), settings=ADMITTING))


def stock(subject: Subject, nodes: list[dict[str, Any]]) -> Inventory:
    return take_stock(subject, [fact for node in nodes if (fact := read_node(node))], ())


def supply(subject: Subject, nodes: list[dict[str, Any]]) -> Supply:
    """Return the stock of these nodes, whatever terms the pods have."""
    return Supply(inventory=stock(subject, nodes), restock=lambda other: stock(other, nodes))


def advised(subject: Subject, nodes: list[dict[str, Any]]) -> Report:
    """Return the answer with what would help."""
    there = supply(subject, nodes)
    return with_ways_out(subject, there, plan_serving(subject, there.inventory))


def ground(
    subject: Subject,
    nodes: list[dict[str, Any]],
    held: tuple[Held, ...] = (),
    worst: tuple[int, ...] = (),
) -> Ground:
    return Ground(inventory=stock(subject, nodes), held=held, worst=worst)


def plan_of(report: Report) -> Plan:
    assert isinstance(report.outcome, Plan), report.outcome
    return report.outcome


def problems_of(question: Question) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        resolve(question)
    return [(problem.code, problem.path) for problem in caught.value.problems]


def pods_of(plan: Plan, *generations: int, owner: tuple[str, str] = OWN) -> list[GpuUsage]:
    """Return the bound pods of all groups of a plan."""
    kept = reservations_of(owner, plan, generations)
    return [
        GpuUsage(
            node=item.node, resource="nvidia.com/gpu", gpus=item.gpus, owner=owner, group=item.group
        )
        for item in kept
    ]


def h100_facts(count: int) -> list[Any]:
    return [fact for node in h100_nodes(count) if (fact := read_node(node))]
