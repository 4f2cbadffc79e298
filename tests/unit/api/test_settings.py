"""The administrator's settings: what is read, what is refused, and how a spec is merged with
them.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from shardwright.api.admission import NamespaceLimits, UserPolicy
from shardwright.api.pod_spec import Pod, Resources, TopologySpread
from shardwright.api.resource import parse_manifest
from shardwright.api.settings import Settings, read_settings, with_defaults
from shardwright.api.spec import ApiKeyReference, Spec
from shardwright.errors import InputError
from shardwright.hardware.gpus import Stated
from shardwright.hardware.taints import TaintState
from tests.support.builders_resource import a_sharded_model, complete_specs

MIRROR = "mirror.example/vllm-openai:v0.33.0"
DEFAULTS: dict[str, Any] = {
    "engine": {
        "image": MIRROR,
        "version": "0.33.0",
        "args": {"seed": 3, "enable-prefix-caching": False},
        "executor": "Ray",
        "apiKeySecretRef": {"name": "clients"},
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_IB_HCA", "value": "mlx5"}],
    },
    "pod": {
        "runtimeClassName": "nvidia",
        "priorityClassName": "serving",
        "resources": {"cpu": 8, "memory": "64Gi", "ephemeralStorage": "500Gi"},
        "imagePullSecrets": [{"name": "mirror"}],
        "readOnlyRootFilesystem": False,
        "labels": {"team": "platform", "tier": "gpu"},
        "annotations": {"example.com/owner": "platform"},
        "serviceAccountName": "models",
        "imagePullPolicy": "Always",
        "volumes": [
            {"name": "ca", "mountPath": "/etc/ssl/certs/own", "configMap": {"name": "ca"}},
            {"name": "pki", "mountPath": "/etc/pki/ca-trust/own", "configMap": {"name": "pki"}},
            {"name": "data", "mountPath": "/mnt/data", "configMap": {"name": "data"}},
        ],
        "topologySpread": {"topologyKey": "topology.kubernetes.io/zone"},
    },
}


def settings(**content: Any) -> Settings:
    return read_settings(json.dumps({"engineDefaults": DEFAULTS} | content))


def spec(**fields: Any) -> Spec:
    return parse_manifest(a_sharded_model(**fields)).spec


def problems(content: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as refused:
        read_settings(content if isinstance(content, str) else json.dumps(content))
    return [(problem.code, problem.path) for problem in refused.value.problems]


@pytest.mark.parametrize(
    "text", ["", "{}", "engineDefaults: {}\npolicy: {admittedArguments: []}\n", "engineDefaults:\n"]
)
def test_nothing_is_said_where_nothing_is_written(text: str) -> None:
    assert read_settings(text) == Settings()


def test_a_spec_that_says_nothing_gets_everything_and_is_told_so() -> None:
    merged, applied = with_defaults(spec(), settings())

    assert merged == spec(**DEFAULTS)
    assert applied == (
        "engine.apiKeySecretRef",
        "engine.args.enable-prefix-caching",
        "engine.args.seed",
        "engine.env.NCCL_DEBUG",
        "engine.env.NCCL_IB_HCA",
        "engine.executor",
        "engine.image",
        "engine.version",
        "pod.annotations.example.com/owner",
        "pod.imagePullPolicy",
        "pod.imagePullSecrets.mirror",
        "pod.labels.team",
        "pod.labels.tier",
        "pod.priorityClassName",
        "pod.readOnlyRootFilesystem",
        "pod.resources.cpu",
        "pod.resources.ephemeralStorage",
        "pod.resources.memory",
        "pod.runtimeClassName",
        "pod.serviceAccountName",
        "pod.topologySpread",
        "pod.volumes.ca",
        "pod.volumes.data",
        "pod.volumes.pki",
    )


@pytest.mark.parametrize("name", Pod.model_fields)
def test_every_field_of_the_pods_is_taken_from_the_defaults(name: str) -> None:
    field = to_camel(name)
    pod = {field: complete_specs()[0]["pod"][field]}

    merged, applied = with_defaults(spec(), settings(engineDefaults={"pod": pod}))

    assert getattr(merged.pod, name) == getattr(spec(pod=pod).pod, name)
    assert applied
    assert all(path.startswith(f"pod.{field}") for path in applied)


def test_what_a_spec_says_wins_entry_by_entry() -> None:
    own = spec(
        engine={
            "image": "own/vllm:v0.32.0",
            "args": {"enable_prefix_caching": True},
            "executor": "Native",
            "apiKeySecretRef": {"name": "own"},
            "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        },
        pod={
            "runtimeClassName": "kata",
            "priorityClassName": "batch",
            "readOnlyRootFilesystem": True,
            "resources": {"cpu": 2},
            "labels": {"team": "search"},
            "annotations": {"example.com/owner": "search"},
            "serviceAccountName": "own",
            "imagePullPolicy": "Never",
            "volumes": [
                {"name": "ca", "mountPath": "/mnt/ca", "configMap": {"name": "own"}},
                {"name": "own", "mountPath": "/mnt/data", "configMap": {"name": "own"}},
            ],
            "topologySpread": {"topologyKey": "kubernetes.io/hostname"},
        },
    )

    merged, applied = with_defaults(own, settings())

    assert (merged.engine.image, merged.engine.version) == (
        "own/vllm:v0.32.0",
        None,
    )  # not the version of another image
    assert merged.engine.args == {"enable_prefix_caching": True, "seed": 3}
    assert merged.engine.executor == "Native"
    assert merged.engine.api_key_secret_ref == ApiKeyReference(name="own", key="api-key")
    assert [(item.name, item.value) for item in merged.engine.env] == [
        ("NCCL_DEBUG", "WARN"),
        ("NCCL_IB_HCA", "mlx5"),
    ]
    assert merged.pod
    assert merged.pod.resources
    assert (merged.pod.runtime_class_name, merged.pod.priority_class_name) == ("kata", "batch")
    assert merged.pod.resources == Resources(cpu="2", memory="64Gi", ephemeral_storage="500Gi")
    assert merged.pod.read_only_root_filesystem
    assert (merged.pod.labels, merged.pod.annotations) == (
        {"team": "search", "tier": "gpu"},
        {"example.com/owner": "search"},
    )
    assert (merged.pod.service_account_name, merged.pod.image_pull_policy) == ("own", "Never")
    assert merged.pod.topology_spread == TopologySpread(topology_key="kubernetes.io/hostname")
    # neither a second volume of a name, nor one at a folder that is taken
    assert [(volume.name, volume.mount_path) for volume in merged.pod.volumes or ()] == [
        ("ca", "/mnt/ca"),
        ("own", "/mnt/data"),
        ("pki", "/etc/pki/ca-trust/own"),
    ]
    assert applied == (
        "engine.args.seed",
        "engine.env.NCCL_IB_HCA",
        "pod.imagePullSecrets.mirror",
        "pod.labels.tier",
        "pod.resources.ephemeralStorage",
        "pod.resources.memory",
        "pod.volumes.pki",
    )


@pytest.mark.parametrize("path", ["/mnt/data/own", "/mnt/data"])
def test_a_volume_of_the_defaults_gives_way_to_one_that_is_inside_it_or_around_it(
    path: str,
) -> None:
    given = {
        "name": "given",
        "mountPath": "/mnt/data/own" if path == "/mnt/data" else "/mnt/data",
        "configMap": {"name": "a"},
    }
    own = spec(pod={"volumes": [{"name": "own", "mountPath": path, "configMap": {"name": "a"}}]})

    merged, _ = with_defaults(
        own, read_settings(json.dumps({"engineDefaults": {"pod": {"volumes": [given]}}}))
    )

    assert merged.pod
    assert [volume.name for volume in merged.pod.volumes or ()] == ["own"]


def test_without_defaults_a_spec_is_left_alone() -> None:
    own = spec(engine={"args": {"seed": 1}})

    assert with_defaults(own, Settings()) == (own, ())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"engineDefaults": {"engine": {"image": "-"}}},
            [("BadFormat", "engineDefaults.engine.image")],
        ),
        (
            {"engineDefaults": {"pod": {"resources": {"cpu": True}}}},
            [("WrongType", "engineDefaults.pod.resources.cpu")],
        ),
        (
            {"engineDefaults": {"engine": {"env": [{"name": "VLLM_PORT"}]}}},
            [("EnvironmentForbidden", "engineDefaults.engine.env[0].name")],
        ),
        (
            {"engineDefaults": {"engine": {"imag": "a"}}},
            [("UnknownField", "engineDefaults.engine.imag")],
        ),
        ({"engineDefaults": {"replicas": 2}}, [("UnknownField", "engineDefaults.replicas")]),
        ({"engineDefaults": []}, []),
        ({"engineDefaults": ["engine"]}, [("WrongType", "engineDefaults")]),
        ({"defaults": {}}, [("UnknownField", "defaults")]),
        (
            {"engineDefaults": {"engine": {"maxModelLen": 8192}}},
            [("UnknownField", "engineDefaults.engine.maxModelLen")],
        ),
        ({"policy": ["nvidia"]}, [("WrongType", "policy")]),
        ({"policy": {"admitted": []}}, [("UnknownField", "policy.admitted")]),
        ("a: [", [("ManifestUnreadable", "")]),
    ],
)
def test_each_setting_gets_its_verdict(content: Any, expected: list[tuple[str, str]]) -> None:
    if expected:
        assert problems(content) == expected
    else:
        read_settings(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("admittedArguments", "trust-remote-code", ("WrongType", "")),
        (
            "admittedArguments",
            ["trust-remote-code", "config"],
            ("EngineArgumentNotAdmissible", ".config"),
        ),
        ("admittedArguments", ["seed"], ("EngineArgumentNotAdmissible", ".seed")),
        ("admittedExecutors", "Ray", ("WrongType", "")),
        ("admittedExecutors", ["Slurm"], ("NotAllowed", "[0]")),
        ("admittedExecutors", ["Ray", "Native"], None),
        ("admittedRuntimeClasses", "nvidia", ("WrongType", "")),
        ("admittedRuntimeClasses", [], None),
        ("admittedPriorityClasses", ["serving"], ("WrongType", "")),
        ("admittedPriorityClasses", {"models": "serving"}, ("WrongType", ".models")),
        ("admittedPriorityClasses", {"models": ["serving"], "*": []}, None),
    ],
)
def test_each_admission_gets_its_verdict(
    name: str, value: object, refused: tuple[str, str] | None
) -> None:
    content = {"policy": {name: value}}
    if refused:
        code, path = refused
        assert problems(content) == [(code, f"policy.{name}{path}")]
    else:
        read_settings(json.dumps(content))


def _nulls_of_policy() -> Iterator[tuple[str, object]]:
    """Yield every field of the policy as null, and with a null at each level under it."""
    for field in UserPolicy.model_fields.values():
        name, kind = str(field.alias), str(field.annotation)
        yield name, None
        if kind.startswith("list"):
            yield f"{name}[0]", [None]
        if kind.startswith("dict"):
            yield f"{name}.team", {"team": None}
        if kind.startswith("dict") and "list" in kind:
            yield f"{name}.*[0]", {"*": [None]}
    for field in NamespaceLimits.model_fields.values():
        yield f"namespaceLimits.*.{field.alias}", {"*": {str(field.alias): None}}


@pytest.mark.parametrize(("path", "value"), list(_nulls_of_policy()))
def test_no_null_in_the_policy_admits_or_limits_anything(path: str, value: object) -> None:
    name = path.partition(".")[0].removesuffix("[0]")

    assert problems({"policy": {name: value}}) == [("WrongType", f"policy.{path}")]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (
            {"engineDefaults": {"engine": {"kv_cache_quantization": "FP8"}}},
            "engineDefaults.engine.kv_cache_quantization",
        ),
        (
            {"engineDefaults": {"pod": {"runtime_class_name": "a"}}},
            "engineDefaults.pod.runtime_class_name",
        ),
        ({"policy": {"admitted_images": ["a"]}}, "policy.admitted_images"),
    ],
)
def test_a_field_has_one_name_and_it_is_not_that_of_the_program(content: object, path: str) -> None:
    with pytest.raises(InputError) as refused:
        read_settings(json.dumps(content))

    (problem,) = refused.value.problems
    assert (problem.code, problem.path) == ("UnknownField", path)
    assert problem.what == "is not a field of the settings"


def test_two_documents_are_not_settings() -> None:
    assert problems("{}\n---\n{}\n") == [("UnknownField", "a second document")]


def test_limits_of_a_namespace_are_its_own_or_those_of_all_others() -> None:
    found = read_settings(
        '{"policy": {"namespaceLimits": {"team": {"gpus": 8}, "*": {"models": 3, "waiting": 0}}}}'
    )

    assert found.limits_of("team") == NamespaceLimits(gpus=8)
    assert found.limits_of("others") == NamespaceLimits(models=3, waiting=0)
    assert read_settings("").limits_of("team") == NamespaceLimits()


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        (["team"], "namespaceLimits"),
        ({"team": 3}, "namespaceLimits.team"),
        ({"team": {"pods": 3}}, "namespaceLimits.team.pods"),
        ({"team": {"gpus": -1}}, "namespaceLimits.team.gpus"),
        ({"team": {"gpus": True}}, "namespaceLimits.team.gpus"),
        ({"*": {"models": "3"}}, "namespaceLimits.*.models"),
    ],
)
def test_limits_that_are_none_are_refused_with_their_path(limits: object, path: str) -> None:
    with pytest.raises(InputError) as raised:
        read_settings(json.dumps({"policy": {"namespaceLimits": limits}}))

    assert [problem.path for problem in raised.value.problems] == [f"policy.{path}"]


def test_what_is_stated_of_nodes_is_read() -> None:
    prefix = "node-restriction.kubernetes.io/"
    states = {"example.com/warm-up": "Passes", "storage.example.com/*": "Ends"}
    said = {
        "trustedLabelPrefix": prefix,
        "gpuHourPrices": {"H100-SXM-80GB": 2},
        "nodeSet": "team",
        "taintStates": states,
        "rdmaResources": ["openshift.io/rdma"],
    }

    assert read_settings(json.dumps(said)).stated == Stated(
        prices={"H100-SXM-80GB": 2.0},
        label_prefix=prefix,
        node_set="team",
        rdma_resources=frozenset({"openshift.io/rdma"}),
        taint_states={key: TaintState(state) for key, state in states.items()},
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"trustedLabelPrefix": "a.example"}, ("BadFormat", "trustedLabelPrefix")),
        ({"nodeSet": "a.b"}, ("BadFormat", "nodeSet")),
        ({"rdmaResources": ["rdma"]}, ("BadFormat", "rdmaResources[0]")),
        ({"taintStates": {"a b": "Passes"}}, ("BadFormat", "taintStates.a b")),
        ({"taintStates": {"*": "Passes"}}, ("BadFormat", "taintStates.*")),
        ({"taintStates": {"a": "Repair"}}, ("NotAllowed", "taintStates.a")),
        ({"gpuHourPrices": {"H100": 2}}, ("GpuUnknown", "gpuHourPrices.H100")),
        ({"gpuHourPrices": {"H100-SXM-80GB": -1}}, ("OutOfRange", "gpuHourPrices.H100-SXM-80GB")),
        ({"gpuHourPrices": {"H100-SXM-80GB": "2"}}, ("WrongType", "gpuHourPrices.H100-SXM-80GB")),
    ],
)
def test_what_cannot_be_stated_of_nodes_is_refused(content: Any, expected: tuple[str, str]) -> None:
    assert problems(content) == [expected]


def test_proven_images_go_first_only_if_the_administrator_says_so() -> None:
    assert [
        read_settings(said).proven_images_first for said in ("", "provenImagesFirst: true")
    ] == [False, True]
    assert problems({"provenImagesFirst": "yes"}) == [("WrongType", "provenImagesFirst")]


@pytest.mark.parametrize(
    ("said", "keeps"),
    [
        ({}, True),
        ({"rollout": {"onUpgrade": "Keep"}}, True),
        ({"rollout": {"onUpgrade": "Roll"}}, False),
    ],
)
def test_groups_are_kept_through_a_release_unless_the_administrator_says_roll(
    *, said: dict[str, Any], keeps: bool
) -> None:
    assert read_settings(json.dumps(said)).keeps_templates is keeps


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ({"onUpgrade": "Always"}, "rollout.onUpgrade"),
        ({"onRelease": "Roll"}, "rollout.onRelease"),
        ("Roll", "rollout"),
    ],
)
def test_anything_else_is_refused_by_its_path(said: object, path: str) -> None:
    with pytest.raises(InputError) as refused:
        read_settings(json.dumps({"rollout": said}))

    assert [problem.path for problem in refused.value.problems] == [path]
