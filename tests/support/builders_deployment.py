"""Plans and deployments for the tests of rendering: plain values, no planner."""

from dataclasses import replace
from typing import Any

from shardwright.costs.estimates import Performance, StageMemory, TimeShare
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import Deployment, Owner
from shardwright.rendering.fetch_job import Fetcher, HubFetch
from shardwright.units import GIB
from tests.support.parts import with_parts


def a_stage(stage: int = 0, **changes: Any) -> StageMemory:
    """Return one stage of Llama-3.1-405B (FP8 would differ) on TP8 x PP2; bytes are plausible, not
    exact.
    """
    memory = StageMemory(
        stage=stage,
        layers=(63 * stage, 63 * (stage + 1)),
        weights_bytes=48 * GIB,
        activations_bytes=2 * GIB,
        overhead_bytes=3 * GIB,
        kv_cache_bytes=20 * GIB,
        budget_bytes=73 * GIB,
        kv_bytes_per_token=32256,
    )
    return replace(memory, **changes)


def a_performance(**changes: Any) -> Performance:
    """Return a prediction with every field set."""
    performance = Performance(
        ttft_seconds=0.8,
        tpot_seconds=0.042,
        output_tokens_per_second=1500.0,
        requests_per_second=2.9,
        low=1200.0,
        high=1800.0,
        basis="modelled",
        running_requests=64,
        decode_shares=(TimeShare(name="Weights", seconds=0.03),),
        prefill_shares=(TimeShare(name="Compute", seconds=0.5),),
    )
    return replace(performance, **changes)


def a_plan(**changes: Any) -> Plan:
    """Return Llama-3.1-405B on two nodes of 8 x H100: tensor 8 x pipeline 2, one group."""
    plan = Plan(
        layout=Layout(tensor=8, pipeline=2),
        pool="h100",
        product="NVIDIA-H100-80GB-HBM3",
        resource="nvidia.com/gpu",
        architecture="amd64",
        groups=(("h100-a-01", "h100-a-02"),),
        nodes_per_replica=2,
        gpus_per_node=8,
        tensor_link="NVLink4 NVSwitch",
        pipeline_link="400G RDMA",
        stages=(a_stage(0), a_stage(1)),
        kv_tokens=660_000,
        max_model_len=3072,
        max_sequences=64,
        max_batched_tokens=8192,
        memory_utilization=0.92,
        load_bytes_per_node=405 * 10**9,
        performance=a_performance(),
        carries_load=True,
        reasons=("does not fit one node",),
    )
    return replace(plan, **changes)


def a_small_plan(**changes: Any) -> Plan:
    """Return Llama-3.1-8B on one GPU of one node."""
    single: dict[str, Any] = {
        "layout": Layout(),
        "groups": (("h100-a-01",),),
        "nodes_per_replica": 1,
        "gpus_per_node": 1,
        "tensor_link": "",
        "pipeline_link": "",
        "stages": (a_stage(0, layers=(0, 32), weights_bytes=15 * GIB),),
        "load_bytes_per_node": 16 * 10**9,
    }
    return a_plan(**(single | changes))


def a_plan_of(layout: Layout, nodes: int = 1, **changes: Any) -> Plan:
    """Return a plan of ``layout`` with ``nodes`` nodes per replica, every replica on nodes of its
    own.
    """
    groups = tuple(
        tuple(f"node-{group}-{node}" for node in range(nodes)) for group in range(layout.replicas)
    )
    shape = {"layout": layout, "groups": groups, "nodes_per_replica": nodes}
    return a_plan(**shape, gpus_per_node=layout.gpus_per_replica // nodes, **changes)


def an_owner(**changes: Any) -> Owner:
    """Return the ShardedModel llama-405b in namespace models."""
    return replace(
        Owner(name="llama-405b", namespace="models", uid="6f9d1f6e-0c5b-4b3e-9b1f-2a7c1d0e4f55"),
        **changes,
    )


def a_deployment(**changes: Any) -> Deployment:
    """Return how to run Llama-3.1-405B from the hub with everything at its default."""
    deployment = Deployment(
        owner=an_owner(),
        engine="vLLM",
        engine_version="0.33.0",
        image="vllm/vllm-openai:v0.33.0",
        model="meta-llama/Llama-3.1-405B-Instruct",
    )
    return with_parts(deployment, **changes)


def a_trtllm_deployment(**changes: Any) -> Deployment:
    """Return the same with TensorRT-LLM from an image that tells its version."""
    engine = {
        "engine": "TensorRTLLM",
        "engine_version": "1.2.1",
        "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1",
    }
    return a_deployment(**(engine | changes))


def an_sglang_deployment(**changes: Any) -> Deployment:
    """Return the same with the newest SGLang."""
    engine = {"engine": "SGLang", "engine_version": "0.5.23", "image": "lmsysorg/sglang:v0.5.23"}
    return a_deployment(**(engine | changes))


def a_hub_fetch(model: str = "acme/llama") -> HubFetch:
    """A config of a public repository, read with nothing that a user says."""
    return HubFetch(
        fetcher=Fetcher(image="registry.example/operator:1", pull_policy="IfNotPresent"),
        model=model,
        revision=None,
        hub_token=None,
        environment=(),
        pull_secrets=(),
    )
