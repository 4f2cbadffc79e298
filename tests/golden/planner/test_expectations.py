"""What an expert would nod at: layouts and codes as values, so that a better fit of the cost model
may move the figures.

Each case states model and dtype, GPUs and link, load, objective, replicas; the engine is vLLM 0.33
where nothing else is said. The load is 2,048 + 512 tokens. Links: NVLink 4 in an H100 or H200 node
and 400 Gb/s per GPU between nodes, PCIe 4 x16 in an L40S node, NVLink 5 over all trays of an NVL72.
"""

import pytest

from shardwright.api.planner_request import to_request
from shardwright.api.resource import parse_manifest
from shardwright.engines.vllm import traits as vllm
from shardwright.errors import InputError
from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Layout
from shardwright.planning.planner import make_plan
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.planning.request import OptimizeFor, Request
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, an_nvl72_pool
from tests.support.builders_resource import a_sharded_model

BALANCED, LATENCY, THROUGHPUT = (OptimizeFor.BALANCED, OptimizeFor.LATENCY, OptimizeFor.THROUGHPUT)
TWO_H100_NODES = a_pool(nodes=2)
L40S_NODE = a_pool("L40S-48GB")


def _report(model: str, pool: Pool, request: Request, version: str = "0.33.0") -> Report:
    return make_plan(a_model(model), an_inventory(pool), request, vllm.traits(version))


def _plan(report: Report) -> Plan:
    assert isinstance(report.outcome, Plan), report.outcome
    return report.outcome


def _cut(layout: Layout) -> tuple[int, int]:
    return layout.tensor, layout.pipeline


def _examples(report: Report) -> dict[str, str]:
    return {item.code: f"{item.example} {item.nearest_miss}" for item in report.excluded}


class Test405BOnTwoNodesOfEightH100:
    """Llama-3.1-405B BF16, 64 requests in flight, one replica."""

    def test_balanced_cuts_tensor_8_inside_nodes_and_pipeline_2_across(self) -> None:
        plan = _plan(_report("llama-405b", TWO_H100_NODES, a_request(BALANCED)))

        assert (_cut(plan.layout), plan.tensor_link, plan.pipeline_link) == (
            (8, 2),
            "NVLink4 NVSwitch",
            "400 Gb/s RDMA",
        )
        assert plan.carries_load

    def test_balanced_names_what_tensor_16_loses_on_the_network(self) -> None:
        report = _report("llama-405b", TWO_H100_NODES, a_request(BALANCED))

        flat = next(other for other in report.alternatives if _cut(other.layout) == (16, 1))
        assert "less throughput per GPU" in flat.loses
        assert flat.loses.endswith("more per token for tensor communication")

    def test_latency_has_tensor_16_among_the_alternatives(self) -> None:
        report = _report("llama-405b", TWO_H100_NODES, a_request(LATENCY))

        assert _cut(_plan(report).layout) == (8, 2)
        assert (16, 1) in [_cut(other.layout) for other in report.alternatives]

    def test_fp8_weights_fit_one_node(self) -> None:
        plan = _plan(_report("llama-405b-fp8", TWO_H100_NODES, a_request(BALANCED, replicas=2)))

        assert (plan.nodes_per_replica, plan.layout.replicas) == (1, 2)
        assert _cut(plan.layout) == (8, 1)


class Test70BOnEightL40SWithoutNvlink:
    """Llama-3.3-70B BF16; PCIe is the only link between GPUs."""

    def test_throughput_uses_the_pcie_root_less_than_tensor_8(self) -> None:
        plan = _plan(_report("llama-70b", L40S_NODE, a_request(THROUGHPUT)))
        flat = _plan(_report("llama-70b", L40S_NODE, a_request(THROUGHPUT, tensor=8)))

        assert plan.layout.tensor < 8
        mine, its = (
            one.performance.output_tokens_per_second / one.layout.gpus for one in (plan, flat)
        )
        assert mine > 1.3 * its

    def test_throughput_of_the_whole_node_is_pipelines_or_replicas_too(self) -> None:
        plan = _plan(
            _report(
                "llama-70b", L40S_NODE, a_request(THROUGHPUT, fill=True, max_gpus=8, replicas=64)
            )
        )

        assert plan.layout.tensor < 8

    def test_one_request_is_fastest_on_all_eight(self) -> None:
        plan = _plan(_report("llama-70b", L40S_NODE, a_request(LATENCY, concurrency=1)))

        assert _cut(plan.layout) == (8, 1)


class Test40HeadsAnd10KvHeadsOnEightH100:
    """A dense BF16 model of 110 B parameters, too big for one GPU, 64 requests in flight, one
    replica.
    """

    def test_tensor_4_and_8_fail_the_k_v_heads_and_5_does_not(self) -> None:
        report = _report("40-heads-110b", a_pool(), a_request())
        refused = {
            tensor: _report("40-heads-110b", a_pool(), a_request(tensor=tensor, pipeline=1)).outcome
            for tensor in (4, 5, 8)
        }

        assert isinstance(refused[5], Plan)
        for tensor in (4, 8):
            outcome = refused[tensor]
            assert isinstance(outcome, NoPlan)
            assert outcome.problem.code == "KvHeadsNotDivisible"
            assert (
                f"10 K/V heads must be divisible by tensor {tensor} or divide it"
                in outcome.problem.sentence()
            )
            assert "use tensor 1, 2, 5, 10, 20 or 40" in outcome.problem.sentence()
        assert "KvHeadsNotDivisible" in _examples(report)
        assert _plan(report).layout.tensor in (2, 5)


class TestQwen7BWith28HeadsOnEightH100:
    """Qwen2.5-7B BF16: 28 heads, 4 K/V heads, a vocabulary of 152,064."""

    def test_throughput_of_the_node_is_one_gpu_a_replica(self) -> None:
        """1,024 requests in flight: fewer would leave eight GPUs idle in part, and larger groups
        would be faster.
        """
        request = a_request(THROUGHPUT, concurrency=1024, fill=True, max_gpus=8, replicas=1000)
        plan = _plan(_report("qwen2.5-7b", a_pool(), request))

        assert (plan.layout.gpus_per_replica, plan.layout.replicas) == (1, 8)

    def test_latency_is_tensor_4(self) -> None:
        report = _report("qwen2.5-7b", a_pool(), a_request(LATENCY, concurrency=1))

        assert _cut(_plan(report).layout) == (4, 1)

    @pytest.mark.parametrize(
        ("tensor", "code"), [(8, "HeadsNotDivisible"), (7, "KvHeadsNotDivisible")]
    )
    def test_8_fails_the_heads_and_7_the_kv_heads(self, tensor: int, code: str) -> None:
        outcome = _report("qwen2.5-7b", a_pool(), a_request(tensor=tensor, pipeline=1)).outcome

        assert isinstance(outcome, NoPlan)
        assert code in outcome.problem.code or code in _examples(
            _report("qwen2.5-7b", a_pool(), a_request(tensor=tensor))
        )


@pytest.mark.parametrize("expert", [1, 8])
def test_qwen3_235b_in_fp8_starts_at_tensor_8_with_and_without_whole_experts(expert: int) -> None:
    """vLLM 0.32 refines the scales of a slice of 1,536 / 8 = 192 columns; 8 H100, 64 requests in
    flight, Balanced.
    """
    plan = _plan(
        _report(
            "qwen3-235b-fp8", a_pool(), a_request(tensor=8, pipeline=1, expert=expert), "0.32.0"
        )
    )

    assert plan.layout == Layout(tensor=8, expert=expert)


class TestDeepSeekV3InFp8:
    """671 B parameters, 256 experts, latent attention."""

    def test_16_h200_are_two_replicas_rather_than_one_wide_expert_group_over_the_network(
        self,
    ) -> None:
        """256 requests in flight, Throughput, the whole of 16 GPUs."""
        pool = a_pool("H200-SXM-141GB", 2)
        whole = a_request(THROUGHPUT, concurrency=256, fill=True, max_gpus=16, replicas=256)
        plan = _plan(_report("deepseek-v3", pool, whole))
        wide = _plan(
            _report(
                "deepseek-v3",
                pool,
                a_request(THROUGHPUT, concurrency=256, tensor=1, attention_data=16),
            )
        )

        assert (plan.layout.replicas, plan.layout.gpus_per_replica) == (2, 8)
        assert (
            plan.performance.output_tokens_per_second
            > 1.3 * wide.performance.output_tokens_per_second
        )

    @pytest.mark.parametrize("goal", [BALANCED, THROUGHPUT])
    def test_32_gpus_of_a_rack_are_attention_data_beside_experts(self, goal: OptimizeFor) -> None:
        """1,024 requests in flight, the whole of 8 trays, NVLink over all of them."""
        request = a_request(goal, concurrency=1024, fill=True, max_gpus=32, replicas=1024)
        report = _report("deepseek-v3", an_nvl72_pool(8), request)

        layout = _plan(report).layout
        assert layout.attention_data > 1
        assert layout.expert == layout.tensor * layout.attention_data
        assert (
            max(one.tensor for one in (layout, *(other.layout for other in report.alternatives)))
            <= 16
        )

    def test_attention_replicas_over_trays_are_deployed_with_a_compute_domain(self) -> None:
        request = a_request(THROUGHPUT, concurrency=1024, tensor=1, attention_data=32)

        plan = _plan(_report("deepseek-v3", an_nvl72_pool(8), request))
        assert (plan.undeployable, plan.compute_domain) == (None, True)


class TestLlama8BOnOneL4:
    """BF16, 24 GB: 15 GiB of weights leave little for K/V."""

    def test_llama_8b_on_one_l4_runs_what_fits_and_names_fp8(self) -> None:
        plan = _plan(_report("llama-8b", a_pool("L4-24GB", gpus_per_node=1), a_request()))

        assert plan.layout == Layout()
        assert not plan.carries_load
        assert plan.performance.running_requests < 64
        assert any(
            "model.quantization FP8 would free up to 7.5 GiB" in warning
            for warning in plan.warnings
        )


class TestWhatCannotBe:
    """Each is an answer, with the constraint that binds and the way out."""

    def test_input_longer_than_the_context(self) -> None:
        spec = parse_manifest(a_sharded_model(workload={"inputTokens": 200_000})).spec

        with pytest.raises(InputError) as caught:
            to_request(spec, a_model("llama-8b"))

        (problem,) = caught.value.problems
        assert (problem.code, problem.path) == ("ContextTooLong", "spec.workload.inputTokens")
        assert "69,440 too many" in problem.sentence()

    def test_an_impossible_latency_names_the_limit_the_closest_layout_and_where_its_time_goes(
        self,
    ) -> None:
        outcome = _report("llama-70b", a_pool(), a_request(tpot_seconds=0.001)).outcome

        assert isinstance(outcome, NoPlan)
        assert not outcome.heals_by_itself
        assert outcome.problem.code == "TpotLimitExceeded"
        assert outcome.problem.remedy.startswith(
            "closest is TP8 on h100-sxm-80gb; a token's time goes to "
        )

    def test_nothing_free_is_waited_for(self) -> None:
        busy = a_pool(nodes=2, free={0: 0, 1: 0})

        outcome = _report("llama-70b", busy, a_request()).outcome

        assert isinstance(outcome, NoPlan)
        assert outcome.heals_by_itself
        assert outcome.problem.code == "InsufficientCapacity"
