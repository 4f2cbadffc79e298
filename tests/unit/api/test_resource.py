"""How the parser says what is wrong, and what it takes all the same."""

from typing import Any

import pytest

from shardwright.api.free_form import CONFIG_MAX_BYTES
from shardwright.api.resource import parse_manifest, read_stored
from shardwright.errors import InputError, Problem
from tests.support.builders_resource import Manifest, a_sharded_model, complete_specs


def problems_of(manifest: Manifest) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        parse_manifest(manifest)
    return list(caught.value.problems)


def sentences(**spec: Any) -> list[str]:
    return [problem.sentence() for problem in problems_of(a_sharded_model(**spec))]


def test_the_smallest_manifest_gets_the_documented_defaults() -> None:
    spec = parse_manifest(a_sharded_model()).spec

    assert (spec.replicas, spec.replan, spec.mode, spec.paused) == (
        None,
        "WhenInvalid",
        "Deploy",
        False,
    )
    assert (spec.workload.input_tokens, spec.workload.output_tokens) == (2048, 512)
    assert (spec.engine.name, spec.objective.optimize_for, spec.model.quantization) == (
        "vLLM",
        "Balanced",
        "Auto",
    )


def test_a_misspelt_field_gets_the_right_name_as_a_hint() -> None:
    assert sentences(workload={"concurency": 8}) == [
        "spec.workload.concurency: is not a field of this resource; did you mean concurrency?"
    ]


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ({"workload": {"input_tokens": 8}}, "spec.workload.input_tokens"),
        ({"engine": {"max_model_len": 4096}}, "spec.engine.max_model_len"),
        ({"model": {"id": "a", "load_format": "Auto"}}, "spec.model.load_format"),
    ],
)
def test_a_field_has_one_name_and_it_is_not_that_of_the_program(
    manifest: dict[str, Any], path: str
) -> None:
    (problem,) = problems_of(a_sharded_model(**manifest))

    assert (problem.code, problem.path) == ("UnknownField", path)


@pytest.mark.parametrize(
    "uri", ["HF://a/b", "http://models/llama", "pvc://a..b-.c/x", "pvc://a-/x", "pvc://a.-b"]
)
def test_an_address_that_is_none_is_told_the_forms_that_are_taken(uri: str) -> None:
    (of_weights,) = sentences(model={"id": "a/b", "weights": {"uri": uri}})
    (of_adapter,) = sentences(model={"id": "a/b", "adapters": [{"name": "x", "uri": uri}]})

    assert of_weights == (
        f'spec.model.weights.uri: "{uri}" must be hf://ID, s3://BUCKET/PATH, gs://BUCKET/PATH, '
        "az://CONTAINER/PATH, pvc://CLAIM/PATH or oci://IMAGE; write one of these forms"
    )
    assert of_adapter == (
        f'spec.model.adapters[0].uri: "{uri}" must be hf://ID@COMMIT or pvc://CLAIM/PATH; '
        "write one of these forms"
    )


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"uri": "pvc://x", "cache": {"claimName": "x"}}, "cache"),
        ({"objectStore": {"concurrency": 8}}, "objectStore"),
        ({"image": {"path": "a"}}, "image"),
    ],
)
def test_what_is_of_another_address_is_named(settings: dict[str, Any], field: str) -> None:
    (problem,) = problems_of(a_sharded_model(model={"id": "a/b", "weights": settings}))

    assert problem.path == f"spec.model.weights.{field}"
    assert problem.what.startswith(f"{field} must come with a uri ")


def test_an_unknown_field_without_a_near_name_gets_the_known_ones() -> None:
    assert sentences(budget={"money": 8}) == [
        "spec.budget.money: is not a field of this resource; known here: fill, gpus, nodes"
    ]


def test_a_value_out_of_range_is_told_the_range_and_the_gap() -> None:
    assert sentences(replicas=1001) == [
        "spec.replicas: 1,001 must be from 0 to 1,000, 1 too many; set it to 1,000 or less"
    ]


def test_a_quoted_number_is_told_to_lose_its_quotes() -> None:
    assert sentences(replicas="2") == ['spec.replicas: "2" must be an integer; remove the quotes']


def test_a_word_in_place_of_a_number_has_no_quotes_to_lose() -> None:
    assert sentences(replicas="lots", workload={"requestsPerSecond": "many"}) == [
        'spec.replicas: "lots" must be an integer; write an integer',
        'spec.workload.requestsPerSecond: "many" must be a number; write a number',
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_out_of_range(value: float) -> None:
    (sentence,) = sentences(workload={"requestsPerSecond": value})

    assert sentence.startswith("spec.workload.requestsPerSecond: ")


def test_a_word_outside_an_enum_is_told_the_words_and_the_nearest() -> None:
    assert sentences(objective={"optimizeFor": "latency"}) == [
        (
            'spec.objective.optimizeFor: "latency" must be Balanced, Latency or Throughput; did '
            "you "
            "mean Latency?"
        )
    ]


@pytest.mark.parametrize(
    "image",
    [
        "vllm",
        "vllm:v0.33.0",
        "localhost:5000/vllm",
        "registry.Internal:5000/a/b_c:T-1.2_3",
        f"a/b@sha256:{'0' * 64}",
    ],
)
def test_an_image_is_named_as_container_runtimes_name_it(image: str) -> None:
    assert (
        parse_manifest(
            a_sharded_model(engine={"image": image, "version": "0.33.0"})
        ).spec.engine.image
        == image
    )


@pytest.mark.parametrize(
    "image", ["https://registry.internal/vllm", "vllm:", "a//b", "a/b:c/d", "-a", "a/b@sha256:0"]
)
def test_an_image_that_no_runtime_can_pull_is_refused(image: str) -> None:
    (problem,) = problems_of(a_sharded_model(engine={"image": image, "version": "0.33.0"}))

    assert (problem.code, problem.path) == ("BadFormat", "spec.engine.image")


def test_a_missing_field_is_told_what_it_means() -> None:
    (problem,) = problems_of(a_sharded_model(model={"configMapRef": {}}) | {})[:1]

    assert problem.path == "spec.model.configMapRef.name"
    assert problem.remedy == "set it: Name of the ConfigMap, in the namespace of this resource"


def test_all_problems_are_said_at_once_in_the_order_of_their_paths() -> None:
    found = problems_of(a_sharded_model(replicas=-1, engine={"name": "TGI"}, mode="Dry"))

    assert [problem.path for problem in found] == ["spec.engine.name", "spec.mode", "spec.replicas"]


def test_rules_between_fields_name_the_field_to_change() -> None:
    (sentence,) = sentences(replicas=4, budget={"gpus": 3})

    assert sentence == (
        "spec.budget.gpus: budget.gpus must be at least parallelism.tensor x pipeline x "
        "dataParallelAttention x replicas; raise "
        "budget.gpus or lower one of them"
    )


def test_every_entry_that_is_there_twice_is_named() -> None:
    secret, variable, device = (
        {"name": "registry"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "rdma/hca", "count": 1},
    )
    pod = {
        "imagePullSecrets": [secret, {"name": "other"}, secret],
        "network": {"rdma": "Explicit", "resources": [device, device]},
    }
    adapter = {"name": "support", "uri": "pvc://adapters/support"}

    found = problems_of(
        a_sharded_model(
            model={"id": "a/b", "adapters": [adapter, adapter]},
            engine={"env": [variable, variable, variable]},
            pod=pod,
        )
    )

    assert [(problem.code, problem.path, problem.what) for problem in found] == [
        ("Duplicate", "spec.model.adapters[1]", 'name "support" is there twice'),
        ("Duplicate", "spec.engine.env[1]", 'name "NCCL_DEBUG" is there twice'),
        ("Duplicate", "spec.engine.env[2]", 'name "NCCL_DEBUG" is there twice'),
        ("Duplicate", "spec.pod.imagePullSecrets[2]", 'name "registry" is there twice'),
        ("Duplicate", "spec.pod.network.resources[1]", 'name "rdma/hca" is there twice'),
    ]


def test_another_kind_is_refused_by_name() -> None:
    assert [
        problem.path for problem in problems_of(a_sharded_model() | {"kind": "Deployment"})
    ] == ["kind"]


@pytest.mark.parametrize("spec", complete_specs())
def test_a_parsed_spec_says_what_the_manifest_said(spec: Manifest) -> None:
    parsed = parse_manifest(a_sharded_model() | {"spec": spec}).spec

    assert parsed.model_dump(mode="json", by_alias=True, exclude_unset=True) == spec


def test_metadata_of_any_object_is_taken_and_a_misspelt_field_of_it_is_not() -> None:
    manifest = a_sharded_model()
    written = {
        "labels": {"team": "x"},
        "annotations": {"a": "b"},
        "resourceVersion": "7",
        "managedFields": [{}],
    }

    assert parse_manifest(
        manifest | {"metadata": {**manifest["metadata"], **written}}
    ) == parse_manifest(manifest)
    assert [
        problem.path
        for problem in problems_of(manifest | {"metadata": {**manifest["metadata"], "label": {}}})
    ] == ["metadata.label"]


def test_a_field_of_a_newer_version_is_dropped_from_a_stored_object() -> None:
    stored = a_sharded_model(fleet={"size": 3}) | {"status": {"plan": {"weather": "fine"}}}

    assert read_stored(stored).spec == parse_manifest(a_sharded_model()).spec


def test_a_stored_object_that_breaks_a_rule_of_today_is_refused() -> None:
    with pytest.raises(InputError, match=r"spec\.replicas"):
        read_stored(a_sharded_model(replicas=5000))


def test_a_config_that_is_too_large_is_refused_with_the_way_out() -> None:
    model = {"id": "a/b", "config": {"note": "x" * CONFIG_MAX_BYTES}}
    head = {**model, "uri": "pvc://drafts"}
    engine = {"speculation": {"method": "EAGLE3", "head": head}}

    problems = problems_of(a_sharded_model(model=model, engine=engine))

    paths = ["spec.model.config", "spec.engine.speculation.head.config"]
    assert [problem.path for problem in problems if problem.code == "ConfigTooLarge"] == paths
    assert (
        problems[1]
        .sentence()
        .startswith(
            "spec.engine.speculation.head.config: 262,156 bytes of JSON must be at most 262,144"
        )
    )


def test_nulls_inside_a_config_stay() -> None:
    model = {"id": "a/b", "config": {"head_dim": None}, "revision": None}

    assert parse_manifest(a_sharded_model(model=model)).spec.model.config == {"head_dim": None}


def test_a_bare_number_is_a_quantity() -> None:
    resource = parse_manifest(
        a_sharded_model(pod={"resources": {"cpu": 8, "memory": 68_719_476_736}})
    )

    assert resource.spec.pod is not None
    assert resource.spec.pod.resources is not None
    assert (resource.spec.pod.resources.cpu, resource.spec.pod.resources.memory) == (
        "8",
        "68719476736",
    )


def test_a_shown_value_is_cut_and_carries_no_control_characters() -> None:
    (problem,) = problems_of(a_sharded_model(mode="\x1b[2J" + "x" * 500))

    assert "\x1b" not in problem.what
    assert len(problem.what) < 100


def test_a_key_that_is_no_word_is_shown_escaped() -> None:
    (problem,) = problems_of(a_sharded_model(budget={"\x1b[2J" + "k" * 500: 1}))

    assert problem.path.startswith("spec.budget.\\x1b[2Jkkk")
    assert len(problem.path) < 120
