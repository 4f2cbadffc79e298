"""Subject to plan to objects."""

import json
from dataclasses import replace
from typing import Any

from shardwright.layouts.layout import Layout
from shardwright.pipeline.assembly import OnCluster, bundle_for, plan_serving, record_of
from shardwright.rendering.bundle import of_kind
from shardwright.resolving.model import Question
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import (
    LARGE,
    TRTLLM,
    a_resource,
    a_subject,
    plan_of,
    problems_of,
    stock,
)
from tests.support.rendered import pod_of


def test_a_model_of_the_catalogue_is_planned_and_rendered() -> None:
    subject = a_subject(**LARGE)

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(3))))

    assert plan.layout == Layout(tensor=8, pipeline=2)
    assert [
        item["metadata"]["name"]
        for item in of_kind(bundle_for(subject, plan).objects, "StatefulSet")
    ] == ["llama-0"]


def test_the_same_question_has_the_same_bytes() -> None:
    subject = a_subject()
    nodes = stock(subject, h100_nodes(2))

    assert plan_serving(subject, nodes) == plan_serving(a_subject(), nodes)


class TestArgumentsThatArePlannedWith:
    """What an argument says of the memory of a rank is in the plan and on the command line."""

    def test_type_and_cache_are_the_plans_and_the_engines(self) -> None:
        pins = {"tensor": 8}
        plain = a_subject(parallelism=pins)
        subject = a_subject(
            parallelism=pins, engine={"args": {"dtype": "float32", "kv-cache-memory-bytes": 2**30}}
        )

        plan, usual = (
            plan_of(plan_serving(one, stock(one, h100_nodes(1)))) for one in (subject, plain)
        )

        stage, of_plain = plan.stages[0], usual.stages[0]
        assert (stage.kv_cache_bytes, stage.weights_bytes) == (2**30, 2 * of_plain.weights_bytes)
        assert stage.kv_bytes_per_token == 2 * of_plain.kv_bytes_per_token
        assert {"--dtype=float32", "--kv-cache-memory-bytes=1073741824"} <= set(
            pod_of(bundle_for(subject, plan))["containers"][0]["args"]
        )

    def test_what_one_gpu_may_keep_for_k_v_makes_the_planner_cut(self) -> None:
        load = {"inputTokens": 3000, "outputTokens": 1000, "concurrency": 1}
        longest = {"maxModelLen": 8192}
        pinned = longest | {"args": {"kv-cache-memory-bytes": 2**29}}
        whole, cut = (a_subject(workload=load, engine=engine) for engine in (longest, pinned))

        degrees = [
            plan_of(plan_serving(one, stock(one, h100_nodes(1)))).layout.gpus_per_replica
            for one in (whole, cut)
        ]

        assert degrees[0] < degrees[1]

    def test_the_type_in_the_model_goes_before_the_argument(self) -> None:
        model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP16"}
        subject = a_subject(model=model, engine={"args": {"dtype": "float32"}})

        plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

        assert subject.model.dtype == "fp16"
        assert "--dtype=float16" in pod_of(bundle_for(subject, plan))["containers"][0]["args"]

    def test_a_type_that_quantized_weights_do_not_take_is_refused_where_it_stands(self) -> None:
        resource = a_resource(
            model={"id": "deepseek-ai/DeepSeek-V3"}, engine={"args": {"dtype": "float32"}}
        )

        assert problems_of(Question(resource=resource)) == [
            ("QuantizationNotApplicable", "spec.engine.args.dtype")
        ]


def test_no_replicas_hold_no_node_and_show_the_plan_of_one() -> None:
    one, none = a_subject(**LARGE), a_subject(**LARGE, replicas=0)
    nodes = h100_nodes(2)

    plan = plan_of(plan_serving(none, stock(none, nodes)))

    of_one = plan_of(plan_serving(one, stock(one, nodes)))
    assert plan == replace(of_one, groups=(), layout=replace(of_one.layout, replicas=0))
    assert of_kind(bundle_for(none, plan).objects, "StatefulSet") == ()


def test_a_record_holds_what_the_report_said() -> None:
    subject = a_subject()
    report = plan_serving(subject, stock(subject, h100_nodes(1)))

    record = record_of(subject, report)

    assert record is not None
    assert record.report() == report
    assert (record.input_hash, record.cut_hash) == (subject.input_hash, subject.cut_hash)


def test_nothing_that_fits_leaves_no_record() -> None:
    subject = a_subject(**LARGE)

    assert record_of(subject, plan_serving(subject, stock(subject, h100_nodes(1)))) is None


def test_a_model_on_tensorrt_llm_is_planned_by_its_rules_and_rendered_with_a_key() -> None:
    subject = a_subject(**LARGE, engine=TRTLLM)

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(3))))
    bundle = bundle_for(subject, plan)

    assert (subject.traits.name, subject.traits.version, plan.memory_utilization) == (
        "TensorRT-LLM",
        "1.2.1",
        0.9,
    )
    assert plan.layout == Layout(tensor=8, pipeline=2)
    assert [warning.partition(":")[0] for warning in plan.warnings] == [
        "meta-llama/Llama-3.1-405B-Instruct is gated, and no token is named",
        "TensorRT-LLM",
    ]
    assert len(bundle.keys) == 2
    assert "trtllm.yaml" in of_kind(bundle.objects, "ConfigMap")[0]["data"]


def test_k_v_of_tensorrt_llm_is_its_share_of_what_is_free_beside_everything_else() -> None:
    shares = {}
    for share in (0.9, 0.45):
        own = {"args": {"kv_cache_config": {"free_gpu_memory_fraction": share}}}
        subject = a_subject(engine=TRTLLM | own, parallelism={"tensor": 1})
        plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
        (shares[share],) = plan.stages

    most, half = shares[0.9], shares[0.45]
    assert abs(most.kv_cache_bytes - 2 * half.kv_cache_bytes) <= 2
    assert most.budget_bytes - most.kv_cache_bytes == half.budget_bytes - half.kv_cache_bytes


def test_mtp_layers_of_tensorrt_llm_stand_on_its_last_stage() -> None:
    drafts = {"speculation": {"method": "MTP", "tokens": 1}}
    subject = a_subject(
        model={"id": "deepseek-ai/DeepSeek-V3"},
        engine=TRTLLM | drafts,
        parallelism={"tensor": 8, "pipeline": 2},
    )

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert [stage.draft_bytes > 0 for stage in plan.stages] == [False, True]


def test_computing_in_another_type_and_a_smaller_cache_reach_tensorrt_llm() -> None:
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP16"}
    subject = a_subject(engine=TRTLLM | {"kvCacheQuantization": "FP8"}, model=model)

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
    said = json.loads(
        of_kind(bundle_for(subject, plan).objects, "ConfigMap")[0]["data"]["trtllm.yaml"]
    )

    assert (said["dtype"], said["kv_cache_config"]["dtype"]) == ("float16", "fp8")


def test_where_the_bytes_of_kv_are_told_lighter_weights_are_no_advice() -> None:
    def advice(**engine: Any) -> list[str]:
        subject = a_subject(
            workload={"concurrency": 256}, parallelism={"tensor": 1, "pipeline": 1}, engine=engine
        )
        plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
        return [
            warning.partition(" would")[0]
            for warning in plan.warnings
            if warning.startswith("requests queue for K/V")
        ]

    assert advice(args={"kv-cache-memory-bytes": 2**30}) == [
        "requests queue for K/V: spec.engine.args.kv-cache-memory-bytes says how much there is"
    ]


def test_what_only_the_cluster_knows_is_in_the_objects() -> None:
    subject = a_subject(**LARGE)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    here = bundle_for(subject, plan, OnCluster(domain="models.internal"), generations=(3,))

    (group,) = of_kind(here.objects, "StatefulSet")
    assert group["metadata"]["name"] == "llama-0-g3"
    assert "models.internal" in json.dumps(pod_of(here))


def test_a_scheduler_is_told_of_groups_in_the_version_that_the_cluster_has() -> None:
    subject = a_subject(placement={"scheduler": "Coscheduling"})
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

    versions = [
        {
            item["apiVersion"]
            for item in bundle_for(subject, plan, OnCluster(scheduling_api=api)).objects
            if item["kind"] == "PodGroup"
        }
        for api in (None, "scheduling.x-k8s.io/v9")
    ]

    assert versions == [{"scheduling.x-k8s.io/v1alpha1"}, {"scheduling.x-k8s.io/v9"}]
