"""Resource to plan to objects, and what becomes of a plan when the number of replicas changes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.record import PlanRecord
from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.api.settings import Settings, read_settings
from shardwright.errors import InputError
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.nodes import GpuUsage, read_node
from shardwright.layouts.layout import Layout
from shardwright.pipeline import (
    Question,
    Subject,
    bundle_for,
    engine_status,
    plan_serving,
    record_of,
    reservations_of,
    resolve,
    take_stock,
)
from shardwright.planning.report import NoPlan, Plan, Report
from shardwright.replanning import KEPT, mend, place_beside, plan_anew, rehouse, rescale
from tests.support.builders_nodes import a_gb200_rack, a_node, an_l40s_node, h100_nodes
from tests.support.builders_resource import A_CONFIG, A_DRAFT, a_sharded_model, complete_specs
from tests.support.rendered import pod_of

LARGE = {"model": {"id": "meta-llama/Llama-3.1-405B-Instruct"}}


def a_resource(**spec: Any) -> ShardedModel:
    return parse_manifest(a_sharded_model(**spec))


def a_subject(**spec: Any) -> Subject:
    return resolve(Question(resource=a_resource(**spec)))


def stock(subject: Subject, nodes: list[dict[str, Any]]) -> Inventory:
    return take_stock(subject.resource, [fact for node in nodes if (fact := read_node(node))], ())


def plan_of(report: Report) -> Plan:
    assert isinstance(report.outcome, Plan), report.outcome
    return report.outcome


def problems_of(question: Question) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        resolve(question)
    return [(problem.code, problem.path) for problem in caught.value.problems]


def test_a_model_of_the_catalogue_is_planned_and_rendered() -> None:
    subject = a_subject(**LARGE)

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(3))))

    assert plan.layout == Layout(tensor=8, pipeline=2)
    assert [item["metadata"]["name"] for item in bundle_for(subject, plan).of_kind("StatefulSet")] == ["llama-0"]


def test_the_same_question_has_the_same_bytes() -> None:
    subject = a_subject()
    nodes = stock(subject, h100_nodes(2))

    assert plan_serving(subject, nodes) == plan_serving(a_subject(), nodes)


def test_an_inline_config_is_the_model() -> None:
    assert len(a_subject(model={"id": "me/mine", "config": A_CONFIG | {"num_hidden_layers": 7}}).model.layers) == 7


def test_the_text_of_a_config_map_is_the_model() -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine"}})

    subject = resolve(Question(resource=resource, config_text=json.dumps(A_CONFIG | {"num_hidden_layers": 7})))

    assert len(subject.model.layers) == 7


def test_the_catalogue_of_the_administrator_joins_the_built_in_one() -> None:
    resource = a_resource(model={"id": "me/mine"})

    assert resolve(Question(resource=resource, catalogue={"me/mine": A_CONFIG})).model.architecture == "LlamaForCausalLM"


def test_an_unknown_model_is_told_the_command_that_makes_the_config_map() -> None:
    with pytest.raises(InputError, match="kubectl create configmap") as caught:
        a_subject(model={"id": "me/mine"})

    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("ModelUnknown", "spec.model.id")]


def test_a_missing_config_map_is_named() -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine", "key": "c.json"}})

    with pytest.raises(InputError, match=r"key c\.json of ConfigMap mine") as caught:
        resolve(Question(resource=resource))

    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("ConfigMissing", "spec.model.configMapRef")]


def test_problems_of_a_config_stand_under_the_field_that_gave_it() -> None:
    broken = {key: value for key, value in A_CONFIG.items() if key != "hidden_size"}

    inline = problems_of(Question(resource=a_resource(model={"id": "me/mine", "config": broken})))
    by_reference = problems_of(
        Question(resource=a_resource(model={"id": "me/mine", "configMapRef": {"name": "x"}}), config_text=json.dumps(broken))
    )

    assert {path for _, path in inline} == {"spec.model.config.hidden_size"}
    assert {path for _, path in by_reference} == {"spec.model.configMapRef.hidden_size"}


def test_arguments_that_the_engine_does_not_take_are_refused_where_they_stand() -> None:
    resource = a_resource(engine={"args": {"trust-remote-code": True, "no-such-option": 1}})

    assert {path for _, path in problems_of(Question(resource=resource))} == {
        "spec.engine.args.trust-remote-code",
        "spec.engine.args.no-such-option",
    }


def test_an_image_that_does_not_tell_its_version_needs_it_stated() -> None:
    resource = a_resource(engine={"image": "registry.internal/server:stable"})

    assert problems_of(Question(resource=resource)) == [("EngineVersionUnknown", "spec.engine.version")]


def test_a_version_without_options_is_asked_for_nothing_beside_a_plan() -> None:
    resource = a_resource(
        engine={"version": "0.40.0", "args": {"seed": 1}},
        model={"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP8"},
        workload={"kvCacheQuantization": "FP8", "promptLookup": {"draftTokens": 2, "acceptancePercent": 50}},
    )

    assert problems_of(Question(resource=resource)) == [
        ("EngineArgumentUnchecked", "spec.engine.args.seed"),
        ("EngineArgumentUnchecked", "spec.model.quantization"),
        ("EngineArgumentUnchecked", "spec.workload.kvCacheQuantization"),
        ("EngineArgumentUnchecked", "spec.workload.promptLookup"),
    ]
    assert a_subject(engine={"version": "0.40.0"}).traits.version == "0.40.0"


class TestTheAdministrator:
    """What is said for all resources enters before anything is planned."""

    MIRROR = "mirror.example/vllm-openai:v0.32.0"

    def test_defaults_reach_plan_pods_and_status(self) -> None:
        defaults = {
            "engine": {"image": self.MIRROR, "args": {"seed": 9, "trust-remote-code": True}},
            "pod": {"runtimeClassName": "nvidia"},
        }
        settings = read_settings(json.dumps({"engineDefaults": defaults}))

        subject = resolve(Question(resource=a_resource(), settings=settings))

        pod = pod_of(bundle_for(subject, plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))))
        engine = pod["containers"][0]
        assert (pod["runtimeClassName"], engine["image"], subject.traits.version) == ("nvidia", self.MIRROR, "0.32.0")
        assert {"--seed=9", "--trust-remote-code"} <= set(engine["args"])
        assert engine_status(subject) == {
            "engine": {
                "name": "vLLM",
                "version": "0.32.0",
                "image": self.MIRROR,
                "defaults": ["engine.args.seed", "engine.args.trust-remote-code", "engine.image", "pod.runtimeClassName"],
            }
        }

    def test_the_start_up_budget_of_an_engine_is_in_its_status(self) -> None:
        subject = resolve(Question(resource=a_resource(model=LARGE["model"] | {"weights": {"pvc": {"claimName": "models"}}})))

        status = engine_status(subject, plan_of(plan_serving(subject, stock(subject, h100_nodes(2)))))

        assert status["engine"]["startBudget"] == {
            "loadSeconds": 2104,  # 406 GB at 500 MB/s, twice
            "basis": "2104 s: 180 s start, 378.0 GiB read from its volume at 500 MB/s (assumed) x 2, 300 s compilation; "
            "at least 600 s; from when all ranks have met, for which there is no limit",
        }

    def test_new_defaults_ask_for_a_new_plan_of_what_they_change_alone(self) -> None:
        plain, own = a_resource(), a_resource(engine={"image": "own/vllm-openai:v0.33.0"})
        settings = read_settings(json.dumps({"engineDefaults": {"engine": {"image": self.MIRROR}}}))

        before, after = (
            [resolve(Question(resource=item, settings=said)) for item in (plain, own)] for said in (Settings(), settings)
        )

        assert [one.input_hash == other.input_hash for one, other in zip(before, after, strict=True)] == [False, True]

    def test_what_is_admitted_may_be_set_by_users(self) -> None:
        resource = a_resource(engine={"args": {"trust-remote-code": True, "middleware": "a.b"}})
        settings = Settings(admitted=frozenset({"trust-remote-code"}))

        assert problems_of(Question(resource=resource, settings=settings)) == [
            ("EngineArgumentForbidden", "spec.engine.args.middleware")
        ]

    @pytest.mark.parametrize(
        ("default", "own", "refused"),
        [
            ({"image": "mirror/a", "version": "0.33.0"}, {"version": "0.32.0"}, True),
            ({"image": "mirror/a", "version": "0.33.0"}, {"version": "0.33.0"}, False),
            ({"image": "mirror/a", "version": "0.33.0"}, {"version": "0.32.0", "image": "mirror/b"}, False),
            ({"image": "mirror/a", "version": "0.33.0"}, {}, False),
            ({"image": "mirror/a"}, {"version": "0.32.0"}, False),
            ({"version": "0.33.0"}, {"version": "0.32.0"}, False),
            (
                {"name": "TensorRTLLM", "image": "mirror/a", "version": "1.2.1"},
                {"version": "0.32.0"},
                False,
            ),
        ],
    )
    def test_a_version_that_is_not_that_of_the_default_image_is_refused(
        self, default: dict[str, object], own: dict[str, object], *, refused: bool
    ) -> None:
        said = read_settings(json.dumps({"engineDefaults": {"engine": default}}))
        question = Question(resource=a_resource(engine=own), settings=said)

        if refused:
            assert problems_of(question) == [("EngineVersionMismatch", "spec.engine.version")]
        else:
            resolve(question)

    @pytest.mark.parametrize(
        ("settings", "refused"),
        [
            ({}, True),
            ({"admittedRuntimeClasses": []}, True),
            ({"admittedRuntimeClasses": ["gvisor"]}, False),
            ({"engineDefaults": {"pod": {"runtimeClassName": "gvisor"}}}, False),
        ],
    )
    def test_a_runtime_class_that_nobody_admits_is_refused(self, settings: dict[str, object], *, refused: bool) -> None:
        said = read_settings(json.dumps(settings))
        question = Question(resource=a_resource(pod={"runtimeClassName": "gvisor"}), settings=said)

        if refused:
            assert problems_of(question) == [("RuntimeClassNotAdmitted", "spec.pod.runtimeClassName")]
        else:
            resolve(question)

    def test_the_runtime_class_of_nvidia_is_admitted_where_nobody_says_anything(self) -> None:
        resolve(Question(resource=a_resource(pod={"runtimeClassName": "nvidia"})))

    def test_a_default_that_no_plan_can_live_with_is_refused_where_it_stands(self) -> None:
        settings = read_settings(json.dumps({"engineDefaults": {"engine": {"args": {"block-size": 32}}}}))

        assert problems_of(Question(resource=a_resource(), settings=settings)) == [
            ("EngineArgumentForbidden", "engineDefaults.engine.args.block-size")
        ]


class TestArgumentsThatArePlannedWith:
    """What an argument says of the memory of a rank is in the plan and on the command line."""

    def test_type_and_cache_are_the_plans_and_the_engines(self) -> None:
        pins = {"tensor": 8}
        plain = a_subject(parallelism=pins)
        subject = a_subject(parallelism=pins, engine={"args": {"dtype": "float32", "kv-cache-memory-bytes": 2**30}})

        plan, usual = (plan_of(plan_serving(one, stock(one, h100_nodes(1)))) for one in (subject, plain))

        stage, of_plain = plan.stages[0], usual.stages[0]
        assert (stage.kv_cache_bytes, stage.weights_bytes) == (2**30, 2 * of_plain.weights_bytes)
        assert stage.kv_bytes_per_token == 2 * of_plain.kv_bytes_per_token
        assert {"--dtype=float32", "--kv-cache-memory-bytes=1073741824"} <= set(
            pod_of(bundle_for(subject, plan))["containers"][0]["args"]
        )

    def test_what_one_gpu_may_keep_for_k_v_makes_the_planner_cut(self) -> None:
        load = {"inputTokens": 3000, "outputTokens": 1000, "concurrency": 1, "maxModelLen": 8192}
        pinned = {"args": {"kv-cache-memory-bytes": 2**29}}
        whole, cut = a_subject(workload=load), a_subject(workload=load, engine=pinned)

        degrees = [plan_of(plan_serving(one, stock(one, h100_nodes(1)))).layout.gpus_per_replica for one in (whole, cut)]

        assert degrees[0] < degrees[1]

    def test_the_type_in_the_model_goes_before_the_argument(self) -> None:
        model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP16"}
        subject = a_subject(model=model, engine={"args": {"dtype": "float32"}})

        plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

        assert subject.model.dtype == "fp16"
        assert "--dtype=float16" in pod_of(bundle_for(subject, plan))["containers"][0]["args"]

    def test_a_type_that_quantized_weights_do_not_take_is_refused_where_it_stands(self) -> None:
        resource = a_resource(model={"id": "deepseek-ai/DeepSeek-V3"}, engine={"args": {"dtype": "float32"}})

        assert problems_of(Question(resource=resource)) == [("QuantizationNotApplicable", "spec.engine.args.dtype")]


def test_quantizing_what_is_quantized_is_refused_where_it_stands() -> None:
    resource = a_resource(model={"id": "deepseek-ai/DeepSeek-V3", "quantization": "BF16"})

    assert [path for _, path in problems_of(Question(resource=resource))] == ["spec.model.quantization"]


def test_selector_and_tolerations_decide_which_nodes_count() -> None:
    taint = {"key": "dedicated", "value": "llm", "effect": "NoSchedule"}
    nodes = [a_node("blue", labels={"pool": "blue"}, taints=[taint]), a_node("red", labels={"pool": "red"})]
    placement = {"nodeSelector": {"pool": "blue"}, "tolerations": [{"key": "dedicated", "value": "llm"}]}

    inventory = stock(a_subject(placement=placement), nodes)

    assert [node.name for pool in inventory.pools for node in pool.nodes] == ["blue"]


@pytest.mark.parametrize(
    "spec",
    [
        {"paused": True},
        {"mode": "PlanOnly"},
        {"replan": "Always"},
        {"restart": {"budget": 1}},
        {"rollout": {"maxUnavailable": 3}},
        {"readiness": {"tokens": False}},
    ],
)
def test_what_to_do_with_a_plan_makes_no_new_plan_necessary(spec: dict[str, Any]) -> None:
    assert a_subject(**spec).input_hash == a_subject().input_hash


def test_every_other_field_makes_a_new_plan_necessary() -> None:
    complete = complete_specs()[0]
    names = set(complete) - {"paused", "mode", "replan", "restart", "rollout", "readiness", "model"}

    hashes = [a_subject(**{name: complete[name]}).input_hash for name in sorted(names)]

    assert len({a_subject().input_hash, *hashes}) == len(names) + 1


def test_another_config_makes_a_new_plan_necessary() -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine"}})
    texts = (json.dumps(A_CONFIG), json.dumps(A_CONFIG | {"num_hidden_layers": 7}))

    first, second = (resolve(Question(resource=resource, config_text=text)) for text in texts)

    assert first.input_hash != second.input_hash
    assert first.cut_hash != second.cut_hash


def test_the_number_of_replicas_alone_keeps_the_cut() -> None:
    one, two = a_subject(), a_subject(replicas=2)

    assert one.input_hash != two.input_hash
    assert one.cut_hash == two.cut_hash


def test_no_replicas_hold_no_node_and_show_the_plan_of_one() -> None:
    one, none = a_subject(**LARGE), a_subject(**LARGE, replicas=0)
    nodes = h100_nodes(2)

    plan = plan_of(plan_serving(none, stock(none, nodes)))

    of_one = plan_of(plan_serving(one, stock(one, nodes)))
    assert plan == replace(of_one, groups=(), layout=replace(of_one.layout, replicas=0))
    assert bundle_for(none, plan).of_kind("StatefulSet") == ()


def test_growing_adds_groups_and_moves_none() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = replace(plan_of(plan_serving(before, stock(before, h100_nodes(4)))), groups=(("h100-02", "h100-01"),))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(4))))

    assert plan.groups == (("h100-02", "h100-01"), ("h100-00", "h100-03"))
    assert plan.layout == Layout(tensor=8, pipeline=2, replicas=2)


def test_growing_fills_up_nodes_that_a_group_holds_in_part() -> None:
    pins = {"parallelism": {"tensor": 2, "pipeline": 1}}
    before, after = a_subject(**pins), a_subject(**pins, replicas=5)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(2))))

    assert plan.groups[0] == kept.groups[0]
    assert sorted(plan.groups) == [("h100-00",)] * 4 + [("h100-01",)]


def test_growing_keeps_the_cut_although_another_would_now_be_better() -> None:
    before, after = a_subject(), a_subject(replicas=8)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(2))))

    assert replace(plan.layout, replicas=1) == kept.layout


def test_shrinking_drops_the_last_groups() -> None:
    before, after = a_subject(**LARGE, replicas=3), a_subject(**LARGE, replicas=1)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(6))))

    plan = plan_of(rescale(after, kept, stock(after, h100_nodes(6))))

    assert plan.groups == kept.groups[:1]
    assert plan.layout.replicas == 1


def test_equal_models_are_one_object_so_that_what_is_kept_for_one_serves_the_other() -> None:
    quantized = {"model": {"id": "meta-llama/Llama-3.1-70B-Instruct", "quantization": "FP8"}}

    assert a_subject(**quantized).model is a_subject(**quantized, replicas=2).model


def test_growing_says_that_the_cut_was_kept() -> None:
    before, after = a_subject(), a_subject(replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    assert plan_of(rescale(after, kept, stock(after, h100_nodes(2)))).reasons[0] == KEPT


def test_growing_beyond_the_pool_does_not_wait_for_nodes_of_another_kind() -> None:
    before, after = a_subject(), a_subject(replicas=99)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))
    away = an_l40s_node("l40s-away")
    away["spec"] = {"unschedulable": True}

    outcome = rescale(after, kept, stock(after, [*h100_nodes(2), away])).outcome

    assert isinstance(outcome, NoPlan)
    assert (outcome.problem.code, outcome.heals_by_itself) == ("PoolTooSmall", False)


def test_growing_stays_in_the_pool_of_the_plan() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    report = rescale(after, kept, stock(after, [*h100_nodes(2), *(an_l40s_node(f"l40s-{i}") for i in range(9))]))

    assert isinstance(report.outcome, NoPlan)


def test_growing_finds_the_pool_although_a_label_has_renamed_it() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(4))))
    relabelled = [a_node(f"h100-0{index}", network_gbps=200) for index in range(4)]

    plan = plan_of(rescale(after, kept, stock(after, relabelled)))

    assert (plan.pool, len(plan.groups), plan.groups[0]) == (kept.pool, 2, kept.groups[0])


def test_a_limit_on_latency_that_all_replicas_meet_together_lets_the_last_one_in() -> None:
    spec = {
        "model": {"id": "meta-llama/Llama-3.1-70B-Instruct"},
        "parallelism": {"tensor": 4, "pipeline": 1},
        "objective": {"tpotMilliseconds": 35},
    }
    before, after = a_subject(**spec, replicas=2), a_subject(**spec, replicas=3)
    kept = plan_of(plan_serving(before, stock(before, h100_nodes(2))))

    assert len(plan_of(rescale(after, kept, stock(after, h100_nodes(2)))).groups) == 3


def test_another_number_of_replicas_starts_no_running_group_anew() -> None:
    spec = {"workload": {"concurrency": 10}, "parallelism": {"tensor": 1, "pipeline": 1}}
    before, after = a_subject(**spec), a_subject(**spec, replicas=2)
    nodes = [a_node(f"l4-{index}", product="NVIDIA-L4", gpus=1) for index in range(2)]
    kept = plan_of(plan_serving(before, stock(before, nodes)))

    grown = plan_of(rescale(after, kept, stock(after, nodes)))

    first, same = (bundle_for(after, plan).of_kind("StatefulSet")[0]["spec"] for plan in (kept, grown))
    assert first == same
    assert grown.performance.output_tokens_per_second > kept.performance.output_tokens_per_second


def test_growing_where_pods_would_not_be_as_those_that_there_are_adds_nothing_and_says_why() -> None:
    """The group has the trays of one rack and a ComputeDomain; those of two racks can have none."""
    spec = {**LARGE, "parallelism": {"tensor": 4, "pipeline": 3}}
    before, after = a_subject(**spec), a_subject(**spec, replicas=2)
    kept = plan_of(plan_serving(before, stock(before, a_gb200_rack(trays=3))))
    assert kept.compute_domain

    apart = [*a_gb200_rack(trays=5), *a_gb200_rack(trays=1, clique=2, prefix="other")]
    outcome = rescale(after, kept, stock(after, apart)).outcome

    assert isinstance(outcome, NoPlan)
    assert outcome.heals_by_itself
    assert outcome.problem.sentence() == (
        "tensor 4 x pipeline 3 on gb200-nvl-186gb-4x-400g must run in the same pods as the groups that there are, "
        "what is free has no nodes that share an NVLink domain, unlike the plan; free or add nodes as those of the plan; "
        "spec.replan: Always plans all groups anew"
    )


@pytest.mark.parametrize(("offered", "more"), [("8", True), ("16", True), ("4", False)])
def test_growing_asks_new_nodes_for_the_rdma_devices_that_the_pods_request(offered: str, *, more: bool) -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    nodes = [a_node(f"h100-{index}", allocatable={"rdma/ib": "8" if index < 2 else offered}) for index in range(4)]
    kept = plan_of(plan_serving(before, stock(before, nodes[:2])))

    grown = rescale(after, kept, stock(after, nodes)).outcome

    assert kept.rdma == (("rdma/ib", 8),)
    assert isinstance(grown, Plan) is more


def lose(nodes: int, *lost: str, of: int = 2) -> tuple[Plan, Plan, NoPlan | None]:
    """Return the plan of groups on two nodes each, and what becomes of it without some of its nodes, but ``nodes`` in all."""
    subject = a_subject(**LARGE, replicas=of)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2 * of))))
    plan = replace(plan, groups=tuple((f"h100-{first:02}", f"h100-{first + 1:02}") for first in range(0, 2 * of, 2)))
    left = [node for node in h100_nodes(nodes) if node["metadata"]["name"] not in lost]
    leaving = frozenset(index for index, group in enumerate(plan.groups) if set(group).intersection(lost))
    return plan, *rehouse(subject, plan, stock(subject, left), leaving)


def test_a_group_that_lost_a_node_moves_as_a_whole_and_the_others_stay() -> None:
    plan, moved, short = lose(6, "h100-01")

    assert (moved, short) == (replace(plan, groups=(("h100-00", "h100-04"), ("h100-02", "h100-03"))), None)


def test_a_group_that_lost_a_node_and_finds_no_other_stays_where_it_is_and_says_why() -> None:
    plan, moved, short = lose(4, "h100-03")

    assert moved == plan
    assert short is not None
    assert short.problem.code == "InsufficientCapacity"


def test_of_the_groups_that_lost_nodes_as_many_move_as_have_room_and_each_keeps_its_index() -> None:
    plan, moved, short = lose(10, "h100-01", "h100-05", "h100-07", of=4)  # h100-00, -04, -06, -08 and -09 are free

    assert moved.groups == (("h100-00", "h100-04"), ("h100-02", "h100-03"), ("h100-06", "h100-08"), plan.groups[3])
    assert short is not None
    assert short.problem.sentence().startswith(
        "tensor 16 needs 2 nodes of h100-sxm-80gb-8x-400g with 8 free GPUs each, 1 free of 7"
    )


def a_record_of(subject: Subject, nodes: list[dict[str, Any]]) -> PlanRecord:
    record = record_of(subject, plan_serving(subject, stock(subject, nodes)))
    assert record is not None
    return replace(record, generations=(1,))


def test_a_model_that_lost_all_its_groups_is_planned_anew_on_other_hardware() -> None:
    subject = a_subject()
    record = a_record_of(subject, h100_nodes(1))

    found = mend(subject, record, stock(subject, [an_l40s_node("l40s-0")]), frozenset({0}))

    assert found.record is not None
    assert (found.record.plan.pool != record.plan.pool, found.record.plan.groups) == (True, (("l40s-0",),))


def test_a_lost_group_moves_while_there_is_no_room_for_more_and_more_are_still_wanted_afterwards() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=3)
    record, left = a_record_of(before, h100_nodes(2)), h100_nodes(4)[1:]

    found = mend(after, record, stock(after, left), frozenset({0}))

    assert found.record == replace(record, plan=replace(record.plan, groups=(("h100-01", "h100-02"),)))
    assert found.short is not None
    assert found.report == found.record.report()


def test_a_lost_group_moves_and_more_are_added_where_there_is_room_for_both() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, replicas=2)
    record, left = a_record_of(before, h100_nodes(2)), h100_nodes(5)[1:]

    found = mend(after, record, stock(after, left), frozenset({0}))

    assert found.record is not None
    assert found.short is None
    assert found.record.plan.groups == (("h100-01", "h100-02"), ("h100-03", "h100-04"))
    assert (found.record.input_hash, found.record.generations) == (after.input_hash, (1,))


def test_a_new_plan_leaves_the_generation_that_a_group_is_to_have() -> None:
    before, after = a_subject(**LARGE), a_subject(**LARGE, workload={"concurrency": 7})
    record = a_record_of(before, h100_nodes(2))

    found = plan_anew(after, record, stock(after, h100_nodes(2)))

    assert found.record is not None
    assert (found.record.input_hash, found.record.generations) == (after.input_hash, (1,))


OWN = ("default", "llama")


def pods_of(plan: Plan, *generations: int, owner: tuple[str, str] = OWN) -> list[GpuUsage]:
    """Return the bound pods of all groups of a plan."""
    kept = reservations_of(owner, plan, generations)
    return [GpuUsage(node=item.node, resource="nvidia.com/gpu", gpus=item.gpus, owner=owner, group=item.group) for item in kept]


def free_of(inventory: Inventory) -> dict[str, int]:
    return {node.name: node.free for pool in inventory.pools for node in pool.nodes}


def h100_facts(count: int) -> list[Any]:
    return [fact for node in h100_nodes(count) if (fact := read_node(node))]


def beside(subject: Subject, plan: Plan, nodes: int, group: int = 0) -> tuple[str, ...] | None:
    """Return a second place for a group whose plan is kept and whose pods are all bound."""
    kept = reservations_of(OWN, plan)
    return place_beside(subject, plan, take_stock(subject.resource, h100_facts(nodes), pods_of(plan), kept, beside=group))


def test_a_second_place_for_a_group_is_on_gpus_that_no_pod_and_no_plan_holds() -> None:
    subject = a_subject(**LARGE)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert beside(subject, plan, nodes=4) == ("h100-02", "h100-03")
    assert beside(subject, plan, nodes=3) is None


def test_a_group_that_shares_a_node_may_have_its_second_place_there() -> None:
    subject = a_subject(parallelism={"tensor": 2, "pipeline": 1}, replicas=3)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

    assert beside(subject, plan, nodes=1, group=1) == ("h100-00",)


def test_nodes_of_a_plan_that_are_not_bound_yet_are_a_second_place_of_that_group_only() -> None:
    subject = a_subject(**LARGE, replicas=2)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(4))))
    for group in (0, 1):
        inventory = take_stock(subject.resource, h100_facts(4), (), reservations_of(OWN, plan), beside=group)
        assert place_beside(subject, plan, inventory) == plan.groups[group]


def two_quarters() -> Plan:
    """Return a plan of two groups, each with a quarter of the one node."""
    subject = a_subject(parallelism={"tensor": 2, "pipeline": 1}, replicas=2)
    return plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))


@pytest.mark.parametrize(
    ("bound", "generations", "free"),
    [
        ((0, 0), (), 4),
        ((0, 0), (0, 1), 2),  # the second one is to start beside its former self, there
        ((0, 1), (0, 1), 4),
        ((0, 1), (), 4),  # was made anew because of a lost node: only its pods tell
    ],
)
def test_what_a_plan_keeps_is_counted_once_and_whoever_holds_it_is_of_the_generation_that_stands(
    bound: tuple[int, ...], generations: tuple[int, ...], free: int
) -> None:
    plan, other = two_quarters(), ("default", "qwen")

    inventory = take_stock(
        a_resource(), h100_facts(1), pods_of(plan, *bound, owner=other), reservations_of(other, plan, generations)
    )

    assert free_of(inventory) == {"h100-00": free}


def test_a_pod_of_one_group_does_not_hide_what_is_kept_for_another() -> None:
    """The first group still holds what it had under an earlier plan; the second has no pod yet."""
    plan, other = two_quarters(), ("default", "qwen")
    first = replace(pods_of(plan, owner=other)[0], gpus=4)

    inventory = take_stock(a_resource(), h100_facts(1), [first], reservations_of(other, plan))

    assert free_of(inventory) == {"h100-00": 2}


def surging(*former: str) -> tuple[Plan, list[GpuUsage]]:
    """Return a plan whose group starts on h100-02 and -03 as the next generation, and the pods of the former one."""
    subject = a_subject(**LARGE)
    plan = replace(plan_of(plan_serving(subject, stock(subject, h100_nodes(2)))), groups=(("h100-02", "h100-03"),))
    return plan, pods_of(replace(plan, groups=(former,)), 0)


@pytest.mark.parametrize("started", [True, False])
def test_what_a_former_generation_holds_is_free_for_its_model_only_when_it_is_gone(*, started: bool) -> None:
    plan, pods = surging("h100-00", "h100-01")
    pods += pods_of(plan, 1) if started else []
    kept = list(reservations_of(OWN, plan, (1,)))

    free = free_of(take_stock(a_resource(), h100_facts(4), pods, kept))
    vacated = free_of(take_stock(a_resource(), h100_facts(4), pods, kept, vacated=True))

    assert free == {"h100-00": 0, "h100-01": 0, "h100-02": 8, "h100-03": 8}
    assert set(vacated.values()) == {8}


SMALL = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    "model",
    [
        {"weights": {"pvc": {"claimName": "weights"}}},
        {"weights": {"huggingFace": {"cache": {"claimName": "downloads"}}}},
        {"adapters": [{"name": "support", "pvc": {"claimName": "adapters"}}]},
    ],
    ids=["weights", "cache", "adapters"],
)
def test_a_claim_that_one_node_has_mounted_is_not_asked_of_another(model: dict[str, Any]) -> None:
    one_gpu = {"model": {"id": SMALL} | model, "parallelism": {"tensor": 8, "pipeline": 1}}
    alone, on_two = a_subject(**one_gpu), a_subject(**one_gpu, replicas=2)
    plans = [plan_of(plan_serving(subject, stock(subject, h100_nodes(2)))) for subject in (alone, on_two)]

    assert beside(alone, plans[0], nodes=3) is None
    assert beside(on_two, plans[1], nodes=3) == ("h100-02",)


def test_an_image_is_no_claim_and_may_be_asked_of_another_node() -> None:
    subject = a_subject(
        model={"id": SMALL, "weights": {"image": {"reference": "registry.internal/llama"}}},
        parallelism={"tensor": 8, "pipeline": 1},
    )
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert beside(subject, plan, nodes=3) == ("h100-01",)


def test_a_second_pod_on_the_node_that_has_mounted_the_claim_may_start_there() -> None:
    subject = a_subject(
        model={"id": SMALL, "weights": {"pvc": {"claimName": "weights"}}}, parallelism={"tensor": 1, "pipeline": 1}
    )
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))

    assert beside(subject, plan, nodes=1) == ("h100-00",)


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [({"gpus": 31}, False), ({"gpus": 32}, True), ({"nodes": 3}, False), ({"nodes": 4}, True)],
)
def test_a_second_place_stays_within_the_budget(budget: dict[str, int], *, allowed: bool) -> None:
    subject = a_subject(**LARGE, budget=budget)
    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))

    assert (beside(subject, plan, nodes=4) is not None) is allowed


def test_growing_from_none_plans_anew() -> None:
    none, one = a_subject(**LARGE, replicas=0), a_subject(**LARGE)
    nodes = h100_nodes(2)
    kept = plan_of(plan_serving(none, stock(none, nodes)))

    assert rescale(one, kept, stock(one, nodes)) == plan_serving(one, stock(one, nodes))


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


TRTLLM = {"name": "TensorRTLLM", "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1"}
KEY = {"apiKeySecretRef": {"name": "clients"}}


def test_a_model_on_tensorrt_llm_is_planned_by_its_rules_and_rendered_with_a_key() -> None:
    subject = a_subject(**LARGE, engine=TRTLLM)

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(3))))
    bundle = bundle_for(subject, plan)

    assert (subject.traits.name, subject.traits.version, plan.memory_utilization) == ("TensorRT-LLM", "1.2.1", 0.95)
    assert plan.layout == Layout(tensor=8, pipeline=2)
    assert [warning.partition(":")[0] for warning in plan.warnings] == [
        "every new pod downloads the weights from the hub",
        "the ranks of a group may load different commits, each the newest when it downloads",
        "TensorRT-LLM",
    ]
    assert len(bundle.keys) == 1
    assert "trtllm.yaml" in bundle.of_kind("ConfigMap")[0]["data"]


def test_tensorrt_llm_needs_an_image_and_nvidia_gpus_whoever_names_the_image() -> None:
    assert problems_of(Question(resource=a_resource(engine={"name": "TensorRTLLM"}))) == [
        ("EngineImageUnnamed", "spec.engine.image")
    ]
    assert a_subject(engine=TRTLLM).traits.runs_on == frozenset({"nvidia.com/gpu"})
    assert a_subject(engine={"image": "vllm/vllm-openai:v0.33.0"}).traits.runs_on is None


def test_what_tensorrt_llm_cannot_be_told_is_refused_where_it_stands() -> None:
    said = {"servedName": "llama", "loadFormat": "Safetensors", "quantization": "FP8"}
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "adapters": [{"name": "a", "pvc": {"claimName": "a"}}]} | said
    lookup = {"promptLookup": {"draftTokens": 3, "acceptancePercent": 50}}

    root = {"network": {"lockMemory": True}}
    engine = TRTLLM | KEY

    assert problems_of(Question(resource=a_resource(engine=engine, model=model, workload=lookup, pod=root))) == [
        ("EngineFeatureMissing", "spec.model.quantization"),
        ("EngineFeatureMissing", "spec.model.servedName"),
        ("EngineFeatureMissing", "spec.model.loadFormat"),
        ("EngineFeatureMissing", "spec.pod.network.lockMemory"),
        ("EngineFeatureMissing", "spec.engine.apiKeySecretRef"),
        ("EngineFeatureMissing", "spec.model.adapters"),
        ("EngineFeatureMissing", "spec.workload.promptLookup"),
    ]
    a_subject(pod=root, engine=KEY)  # vLLM can
    draft = {"draftModel": A_DRAFT | {"pvc": {"claimName": "a"}}}
    assert problems_of(Question(resource=a_resource(engine=TRTLLM, workload=draft))) == [
        ("EngineFeatureMissing", "spec.workload.draftModel")
    ]


def test_computing_in_another_type_and_a_smaller_cache_reach_tensorrt_llm() -> None:
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP16"}
    subject = a_subject(engine=TRTLLM, model=model, workload={"kvCacheQuantization": "FP8"})

    plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
    said = json.loads(bundle_for(subject, plan).of_kind("ConfigMap")[0]["data"]["trtllm.yaml"])

    assert (said["dtype"], said["kv_cache_config"]["dtype"]) == ("float16", "fp8")


def test_defaults_for_one_engine_are_not_those_of_another() -> None:
    settings = read_settings(json.dumps({"engineDefaults": {"engine": TRTLLM | {"args": {"log_level": "debug"}}}}))
    mine, other = (
        resolve(Question(resource=a_resource(engine={"name": name}), settings=settings)) for name in ("TensorRTLLM", "vLLM")
    )

    assert mine.defaulted == ("engine.args.log_level", "engine.image")
    assert mine.traits.version == "1.2.1"
    assert other.defaulted == ()


def test_where_the_bytes_of_kv_are_told_lighter_weights_are_no_advice() -> None:
    def advice(**engine: Any) -> list[str]:
        subject = a_subject(workload={"concurrency": 256}, parallelism={"tensor": 1, "pipeline": 1}, engine=engine)
        plan = plan_of(plan_serving(subject, stock(subject, h100_nodes(1))))
        return [warning.partition(" would")[0] for warning in plan.warnings if warning.startswith("requests queue for K/V")]

    assert advice(args={"kv-cache-memory-bytes": 2**30}) == [
        "requests queue for K/V: engine.args.kv-cache-memory-bytes says how much there is"
    ]
