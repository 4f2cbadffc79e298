"""Which engine a resource means, and what cannot be asked of it."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.api.admission import UserPolicy
from shardwright.api.resource import parse_manifest
from shardwright.api.settings import Settings
from shardwright.errors import InputError
from shardwright.pipeline.assembly import bundle_for, plan_serving
from shardwright.rendering.place import pod_template
from shardwright.resolving.engine import FEATURES
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_deployment import a_plan
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import (
    ADMITTING,
    TRTLLM,
    a_resource,
    a_subject,
    plan_of,
    problems_of,
    stock,
)


def test_arguments_that_the_engine_does_not_take_are_refused_where_they_stand() -> None:
    resource = a_resource(engine={"args": {"trust-remote-code": True, "no-such-option": 1}})

    assert {path for _, path in problems_of(Question(resource=resource))} == {
        "spec.engine.args.trust-remote-code",
        "spec.engine.args.no-such-option",
    }


def test_an_image_that_does_not_tell_its_version_needs_it_stated() -> None:
    resource = a_resource(engine={"image": "registry.internal/server:stable"})

    assert problems_of(Question(resource=resource)) == [
        ("EngineVersionUnknown", "spec.engine.version")
    ]


def test_a_version_without_options_is_asked_for_nothing_beside_a_plan() -> None:
    resource = a_resource(
        engine={
            "version": "0.40.0",
            "args": {"seed": 1},
            "kvCacheQuantization": "FP8",
            "speculation": {"method": "PromptLookup"},
        },
        model={"id": "meta-llama/Llama-3.1-8B-Instruct", "quantization": "FP8"},
    )

    assert problems_of(Question(resource=resource)) == [
        ("EngineArgumentUnchecked", "spec.engine.args.seed"),
        ("EngineArgumentUnchecked", "spec.model.quantization"),
        ("EngineArgumentUnchecked", "spec.engine.kvCacheQuantization"),
        ("EngineArgumentUnchecked", "spec.engine.speculation"),
    ]
    assert a_subject(engine={"version": "0.40.0"}).traits.version == "0.40.0"


KEY = {"apiKeySecretRef": {"name": "clients"}}


def test_tensorrt_llm_needs_an_image_and_nvidia_gpus_whoever_names_the_image() -> None:
    assert problems_of(Question(resource=a_resource(engine={"name": "TensorRTLLM"}))) == [
        ("EngineImageUnnamed", "spec.engine.image")
    ]
    assert a_subject(engine=TRTLLM).traits.support.runs_on == ("nvidia.com/gpu",)


ROCM_ONLY = Settings(policy=UserPolicy(admitted_images=["vllm/vllm-openai-rocm"]))


@pytest.mark.parametrize(
    ("image", "runs_on"),
    [
        (None, ("nvidia.com/gpu", "amd.com/gpu")),
        ("vllm/vllm-openai:v0.33.0", ("nvidia.com/gpu",)),
        ("registry.example/vllm-rocm:v0.33.0", ("amd.com/gpu",)),
        ("rocm/vllm:rocm7.0.0_vllm_0.33.0_20261101", ("amd.com/gpu",)),
        ("registry.example/vllm:v0.33.0", None),
        ("docker.io/vllm/vllm-openai:v0.33.0", ("nvidia.com/gpu",)),
        ("registry.example/vllm:v0.33.0-cu130", ("nvidia.com/gpu",)),
        ("registry.example/cuda/vllm:v0.33.0", ("nvidia.com/gpu",)),
        ("registry.example/amd/vllm-openai:v0.33.0", None),
        ("registry.example/vllm/vllm-openai:v0.33.0", None),
        ("procmgmt/vllm:v0.33.0", None),
        ("barracuda/vllm:v0.33.0", None),
        ("rocm.example/vllm:v0.33.0", None),
    ],
)
def test_an_image_runs_on_the_gpus_that_its_name_tells(
    image: str | None, runs_on: tuple[str, ...] | None
) -> None:
    assert a_subject(engine={"image": image} if image else {}).traits.support.runs_on == runs_on


def test_of_the_images_by_default_those_count_that_are_admitted() -> None:
    subject = resolve(Question(resource=a_resource(), settings=ROCM_ONLY))

    assert subject.traits.support.runs_on == ("amd.com/gpu",)


def test_a_plan_starts_nothing_where_the_image_for_its_gpus_is_not_admitted_any_more() -> None:
    kept = a_subject()
    on_nvidia = plan_of(plan_serving(kept, stock(kept, h100_nodes(1))))
    since = resolve(Question(resource=a_resource(), settings=ROCM_ONLY))

    assert bundle_for(kept, on_nvidia).objects
    with pytest.raises(InputError) as caught:
        bundle_for(since, on_nvidia)
    assert [(problem.code, problem.path, problem.what) for problem in caught.value.problems] == [
        ("ImageNotAdmitted", "spec.engine.image", "vllm/vllm-openai:v0.33.0")
    ]
    assert bundle_for(since, replace(on_nvidia, resource="amd.com/gpu")).objects


def test_the_image_by_default_is_the_one_for_the_gpus_of_the_plan() -> None:
    deployment = a_subject(engine={"version": "0.32.0"}).deployment

    assert deployment.on("amd.com/gpu").image == "vllm/vllm-openai-rocm:v0.32.0"
    assert deployment.on("nvidia.com/gpu").image == deployment.image == "vllm/vllm-openai:v0.32.0"
    assert (
        a_subject(engine={"image": "own/vllm:v0.33.0"}).deployment.on("amd.com/gpu").image
        == "own/vllm:v0.33.0"
    )


def test_what_tensorrt_llm_cannot_be_told_is_refused_where_it_stands() -> None:
    said = {"servedName": "llama", "loadFormat": "Safetensors", "quantization": "FP8"}
    model = {
        "id": "meta-llama/Llama-3.1-8B-Instruct",
        "adapters": [{"name": "a", "uri": "pvc://a"}],
    } | said
    root = {"network": {"lockMemory": True}}
    engine = TRTLLM | KEY | {"mediaDomains": ["images.example.com"]}

    load = {"scaling": {"maxReplicas": 2}, "serving": {"overload": "Refuse", "order": "Priority"}}
    asked = a_resource(engine=engine, model=model, pod=root, **load)

    assert problems_of(Question(resource=asked, settings=ADMITTING)) == [
        ("EngineFeatureMissing", "spec.model.quantization"),
        ("EngineFeatureMissing", "spec.model.servedName"),
        ("EngineFeatureMissing", "spec.model.loadFormat"),
        ("EngineFeatureMissing", "spec.pod.network.lockMemory"),
        ("EngineFeatureMissing", "spec.engine.mediaDomains"),
        ("EngineFeatureMissing", "spec.engine.apiKeySecretRef"),
        ("EngineFeatureMissing", "spec.model.adapters"),
        ("EngineFeatureMissing", "spec.scaling"),
        ("EngineFeatureMissing", "spec.serving.overload"),
        ("EngineFeatureMissing", "spec.serving.order"),
    ]
    a_subject(pod=root, engine=KEY, **load)  # vLLM can


OF_PODS: dict[str, dict[str, Any]] = {
    "quantization": {"model": {"quantization": "FP8"}},
    "dtype": {"model": {"quantization": "FP16"}},
    "served-model-name": {"model": {"servedName": "llama"}},
    "kv-cache-dtype": {"engine": {"kvCacheQuantization": "FP8"}},
    "load-format": {"model": {"loadFormat": "Safetensors"}},
    "model-loader-extra-config": {"model": {"weights": {"uri": "s3://models/llama"}}},
    "allowed-media-domains": {"engine": {"mediaDomains": ["images.example.com"]}},
    "api-key": {"engine": {"apiKeySecretRef": {"name": "clients"}}},
    "enable-lora": {"model": {"adapters": [{"name": "a", "uri": "pvc://a"}]}},
    "max-num-queued-reqs": {"serving": {"overload": "Refuse"}},
    "scheduling-policy": {"serving": {"order": "Priority"}},
    "speculative-config": {"engine": {"speculation": {"method": "PromptLookup", "tokens": 3}}},
    "kv-transfer-config": {"phase": "Prefill"},
}
"""By the option that it turns into: what is asked, of every part that pods of any plan show."""

OF_THE_PLAN = {"kv-offloading-size", "lock-memory", "requests-in-flight"}


def pod_of(engine: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return the pods of a plan, None if what is asked is refused."""
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"} | asked.get("model", {})
    spec = asked | {"model": model, "engine": engine | asked.get("engine", {})}
    try:
        # Named so that it may be a half of a pair.
        resource = parse_manifest(a_sharded_model("llama-prefill", **spec))
        subject = resolve(Question(resource=resource, settings=ADMITTING))
    except InputError:
        return None
    return dict(pod_template(a_plan(), subject.deployment, 0))


@pytest.mark.parametrize("engine", [{}, TRTLLM, {"name": "SGLang"}])
def test_no_engine_passes_over_what_is_asked_of_it(engine: dict[str, Any]) -> None:
    plain = pod_of(engine, {})

    assert {row.option for row in FEATURES} == OF_PODS.keys() | OF_THE_PLAN
    assert [name for name, asked in OF_PODS.items() if pod_of(engine, asked) == plain] == []


MTP = {"speculation": {"method": "MTP"}}


def test_tensorrt_llm_drafts_with_mtp_layers_where_its_documents_have_them() -> None:
    drafter = a_subject(model={"id": "deepseek-ai/DeepSeek-V3"}, engine=TRTLLM | MTP).traits
    assert drafter.options.drafter is not None

    llama = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    assert problems_of(Question(resource=a_resource(model=llama, engine=TRTLLM | MTP))) == [
        ("DraftNotSupported", "spec.engine.speculation.method")
    ]


def test_how_drafts_are_accepted_is_refused_where_none_are_made() -> None:
    accepted = {"args": {"speculative_config": {"relaxed_topk": 10}}}

    assert problems_of(Question(resource=a_resource(engine=TRTLLM | accepted))) == [
        ("EngineArgumentInvalid", "spec.engine.args.speculative_config")
    ]
    deepseek = {"id": "deepseek-ai/DeepSeek-V3"}
    a_subject(model=deepseek, engine=TRTLLM | MTP | accepted)


def test_the_image_that_must_be_admitted_is_that_of_the_version_that_is_kept() -> None:
    def asked(tag: str) -> Question:
        policy = UserPolicy(admitted_images=[f"vllm/vllm-openai:{tag}"])
        return Question(
            resource=a_resource(), settings=Settings(policy=policy), kept_version="0.32.0"
        )

    assert resolve(asked("v0.32.0")).deployment.image == "vllm/vllm-openai:v0.32.0"
    assert problems_of(asked("v0.33.0")) == [("ImageNotAdmitted", "spec.engine.image")]


TOKEN = {"weights": {"secretRef": {"name": "hub-token"}}}


@pytest.mark.parametrize(
    ("model", "gated"),
    [
        ({"id": "meta-llama/Llama-3.1-8B-Instruct"}, ("meta-llama/Llama-3.1-8B-Instruct",)),
        ({"id": "meta-llama/Llama-3.1-8B-Instruct", **TOKEN}, ()),
        ({"id": "meta-llama/Llama-3.1-8B-Instruct", "weights": {"uri": "pvc://a"}}, ()),
        ({"id": "Qwen/Qwen2.5-7B-Instruct"}, ()),
    ],
)
def test_a_gated_model_that_pods_download_without_a_token_is_known(
    model: dict[str, Any], gated: tuple[str, ...]
) -> None:
    assert a_subject(model=model).request.gated == gated
