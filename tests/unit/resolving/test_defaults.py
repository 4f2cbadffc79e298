"""What the administrator says for all resources."""

import json

import pytest

from shardwright.api.admission import UserPolicy
from shardwright.api.settings import Settings, read_settings
from shardwright.pipeline.assembly import bundle_for, engine_status, plan_serving
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import LARGE, TRTLLM, a_resource, plan_of, problems_of, stock
from tests.support.rendered import pod_of


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

        pod = pod_of(
            bundle_for(subject, plan_of(plan_serving(subject, stock(subject, h100_nodes(1)))))
        )
        engine = pod["containers"][0]
        assert (pod["runtimeClassName"], engine["image"], subject.traits.version) == (
            "nvidia",
            self.MIRROR,
            "0.32.0",
        )
        assert {"--seed=9", "--trust-remote-code"} <= set(engine["args"])
        assert engine_status(subject) == {
            "engine": {
                "name": "vLLM",
                "version": "0.32.0",
                "image": self.MIRROR,
                "defaults": [
                    "engine.args.seed",
                    "engine.args.trust-remote-code",
                    "engine.image",
                    "pod.runtimeClassName",
                ],
            }
        }

    def test_the_start_up_budget_of_an_engine_is_in_its_status(self) -> None:
        subject = resolve(
            Question(
                resource=a_resource(model=LARGE["model"] | {"weights": {"uri": "pvc://models"}})
            )
        )

        status = engine_status(
            subject, plan_of(plan_serving(subject, stock(subject, h100_nodes(2))))
        )

        assert status["engine"]["startBudget"] == {
            "loadSeconds": 2104,  # 406 GB at 500 MB/s, twice
            "basis": "2104 s: 180 s start, 378.0 GiB read from its volume at 500 MB/s (assumed) x "
            "2, 300 s compilation; "
            "at least 600 s; from when all ranks have met, for which there is no limit",
        }

    def test_new_defaults_ask_for_a_new_plan_of_what_they_change_alone(self) -> None:
        plain, own = (a_resource(), a_resource(engine={"image": "own/vllm-openai:v0.33.0"}))
        settings = read_settings(json.dumps({"engineDefaults": {"engine": {"image": self.MIRROR}}}))

        before, after = (
            [resolve(Question(resource=item, settings=said)) for item in (plain, own)]
            for said in (Settings(), settings)
        )

        assert [
            one.input_hash == other.input_hash for one, other in zip(before, after, strict=True)
        ] == [False, True]

    def test_traces_go_to_a_collector_that_is_admitted(self) -> None:
        resource = a_resource(engine={"args": {"otlp-traces-endpoint": "grpc://otel:4317"}})
        said = json.dumps({"policy": {"admittedTraceCollectors": ["grpc://otel:4317"]}})

        resolve(Question(resource=resource, settings=read_settings(said)))
        assert problems_of(Question(resource=resource)) == [
            ("EngineArgumentForbidden", "spec.engine.args.otlp-traces-endpoint")
        ]

    def test_what_is_admitted_may_be_set_by_users(self) -> None:
        resource = a_resource(engine={"args": {"trust-remote-code": True, "middleware": "a.b"}})
        settings = Settings(policy=UserPolicy(admitted_arguments=["trust-remote-code"]))

        assert problems_of(Question(resource=resource, settings=settings)) == [
            ("EngineArgumentForbidden", "spec.engine.args.middleware")
        ]

    @pytest.mark.parametrize(
        ("default", "own", "refused"),
        [
            ({"image": "mirror/a", "version": "0.33.0"}, {"version": "0.32.0"}, True),
            ({"image": "mirror/a", "version": "0.33.0"}, {"version": "0.33.0"}, False),
            (
                {"image": "mirror/a", "version": "0.33.0"},
                {"version": "0.32.0", "image": "mirror/b"},
                False,
            ),
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
            ({"policy": {"admittedRuntimeClasses": []}}, True),
            ({"policy": {"admittedRuntimeClasses": ["gvisor"]}}, False),
            ({"engineDefaults": {"pod": {"runtimeClassName": "gvisor"}}}, False),
        ],
    )
    def test_a_runtime_class_that_nobody_admits_is_refused(
        self, settings: dict[str, object], *, refused: bool
    ) -> None:
        said = read_settings(json.dumps(settings))
        question = Question(resource=a_resource(pod={"runtimeClassName": "gvisor"}), settings=said)

        if refused:
            assert problems_of(question) == [
                ("RuntimeClassNotAdmitted", "spec.pod.runtimeClassName")
            ]
        else:
            resolve(question)

    @pytest.mark.parametrize(
        ("settings", "executor", "refused"),
        [
            ({}, "Ray", True),
            ({"policy": {"admittedExecutors": ["Native"]}}, "Ray", True),
            ({"policy": {"admittedExecutors": ["Ray"]}}, "Ray", False),
            ({"engineDefaults": {"engine": {"executor": "Ray"}}}, "Ray", False),
            ({"engineDefaults": {"engine": {"executor": "Ray"}}}, None, False),
            ({}, "Native", False),
        ],
    )
    def test_an_executor_that_nobody_admits_is_refused(
        self, settings: dict[str, object], executor: str | None, *, refused: bool
    ) -> None:
        named = {} if executor is None else {"executor": executor}
        question = Question(
            resource=a_resource(engine={"name": "vLLM", **named}),
            settings=read_settings(json.dumps(settings)),
        )

        if refused:
            assert problems_of(question) == [("ExecutorNotAdmitted", "spec.engine.executor")]
        else:
            resolve(question)

    @pytest.mark.parametrize(
        ("settings", "name", "refused"),
        [
            ({}, "serving", False),
            ({}, "system-node-critical", True),
            ({"policy": {"admittedPriorityClasses": {"default": ["serving"]}}}, "serving", False),
            ({"policy": {"admittedPriorityClasses": {"default": ["serving"]}}}, "batch", True),
            ({"policy": {"admittedPriorityClasses": {"*": ["serving"]}}}, "batch", True),
            (
                {"policy": {"admittedPriorityClasses": {"*": [], "default": ["batch"]}}},
                "batch",
                False,
            ),
            ({"policy": {"admittedPriorityClasses": {"other": []}}}, "batch", False),
            (
                {
                    "policy": {"admittedPriorityClasses": {"*": []}},
                    "engineDefaults": {"pod": {"priorityClassName": "batch"}},
                },
                "batch",
                False,
            ),
        ],
    )
    def test_which_priority_classes_may_be_named_is_said_for_each_namespace(
        self, settings: dict[str, object], name: str, *, refused: bool
    ) -> None:
        said = read_settings(json.dumps(settings))
        question = Question(resource=a_resource(pod={"priorityClassName": name}), settings=said)

        if refused:
            assert problems_of(question) == [
                ("PriorityClassNotAdmitted", "spec.pod.priorityClassName")
            ]
        else:
            resolve(question)

    def test_the_runtime_class_of_nvidia_is_admitted_where_nobody_says_anything(self) -> None:
        resolve(Question(resource=a_resource(pod={"runtimeClassName": "nvidia"})))

    def test_a_default_that_no_plan_can_live_with_is_refused_where_it_stands(self) -> None:
        settings = read_settings(
            json.dumps({"engineDefaults": {"engine": {"args": {"cpu-offload-gb": 32}}}})
        )

        assert problems_of(Question(resource=a_resource(), settings=settings)) == [
            ("EngineArgumentForbidden", "engineDefaults.engine.args.cpu-offload-gb")
        ]


def test_defaults_for_one_engine_are_not_those_of_another() -> None:
    settings = read_settings(
        json.dumps({"engineDefaults": {"engine": TRTLLM | {"args": {"log_level": "debug"}}}})
    )
    mine, other = (
        resolve(Question(resource=a_resource(engine={"name": name}), settings=settings))
        for name in ("TensorRTLLM", "vLLM")
    )

    assert mine.defaulted == ("engine.args.log_level", "engine.image")
    assert mine.traits.version == "1.2.1"
    assert other.defaulted == ()
