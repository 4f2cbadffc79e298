"""The spec as instructions for rendering."""

from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.engines.vllm.releases import DEFAULT_IMAGE
from shardwright.hardware.capabilities import Capability
from shardwright.layouts.layout import DraftMethod
from shardwright.rendering.deployment import (
    Adapters,
    Autoscaling,
    CacheClaim,
    ClaimPath,
    ClusterTerms,
    Deployment,
    DraftingOptions,
    HubCommit,
    ImagePath,
    Owner,
    OwnMarks,
    OwnVolume,
    PodNetwork,
    PodOptions,
    RouterOptions,
    Scheduling,
    SecretKey,
    ServedAdapter,
    ServingOptions,
    VolumeKind,
    WeightSource,
)
from shardwright.resolving.intent import terms_of, to_deployment
from tests.support.builders_resource import a_sharded_model, complete_specs


def deployment_of(stored_quantization: str | None = None, **spec: Any) -> Deployment:
    resource = parse_manifest(a_sharded_model(**spec))
    return to_deployment(resource, engine_version="0.33.0", stored_quantization=stored_quantization)


def test_a_complete_spec_is_handed_over_field_by_field() -> None:
    manifest = a_sharded_model(namespace="team") | {"spec": complete_specs()[0]}
    manifest["metadata"]["uid"] = "1234"

    deployment = to_deployment(
        parse_manifest(manifest), engine_version="0.33.0", stored_quantization=None
    )

    assert deployment == Deployment(
        owner=Owner(name="llama", namespace="team", uid="1234"),
        engine="vLLM",
        engine_version="0.33.0",
        image="registry.internal:5000/vllm/vllm-openai:v0.33.0",
        model="meta-llama/Llama-3.1-8B-Instruct",
        weights=WeightSource(
            revision="0123456789abcdef0123456789abcdef01234567",
            hub_token=SecretKey(name="hub", key="token"),
            cache=CacheClaim(storage="100Gi", storage_class="fast"),
            load_format="safetensors",
        ),
        serving=ServingOptions(
            served_name="llama",
            kv_cache_dtype="fp8",
            adapters=Adapters(
                served=(
                    ServedAdapter(
                        name="support", source=HubCommit(id="acme/support", revision="f" * 40)
                    ),
                ),
                rank=64,
            ),
            silence_seconds=90,
            idle_seconds=15,
            drain_seconds=240,
            gives_tokens=True,
            arguments={"dtype": "bfloat16", "seed": 7},
            over_ray=True,
            environment=(("NCCL_DEBUG", "WARN"),),
            api_key=SecretKey(name="clients", key="key"),
            refuses=True,
            by_priority=True,
            media_domains=("images.example.com",),
        ),
        autoscaling=Autoscaling(least=1, most=4, idle_seconds=600),
        drafting=DraftingOptions(drafts_by=DraftMethod.PROMPT_LOOKUP, draft_tokens=3),
        pods=PodOptions(
            node_selector=(("example.com/pool", "blue"),),
            tolerations=(
                {
                    "key": "dedicated",
                    "operator": "Equal",
                    "value": "llm",
                    "effect": "NoExecute",
                    "tolerationSeconds": 60,
                },
            ),
            cpu="16",
            memory="64Gi",
            ephemeral_storage="300Gi",
            read_only_root=False,
            runtime_class="nvidia",
            priority_class="serving",
            image_pull_secrets=("registry",),
            marks=OwnMarks(
                labels=(("team", "search"),),
                annotations=(("example.com/cost-centre", "42"),),
                account="reader",
                pull_policy="Always",
            ),
            volumes=(
                OwnVolume(
                    name="keys",
                    path="/etc/ssl/certs/own/keys",
                    kind=VolumeKind.SECRET,
                    source="keys",
                ),
            ),
            network=PodNetwork(rdma=True, attachments=("fabric/rail-0",), lock_memory=True),
        ),
        cluster=ClusterTerms(
            scheduling=Scheduling(
                integration="Kueue", api_version="kueue.x-k8s.io/v1beta2", queue="serving"
            )
        ),
        router=RouterOptions(account="router", replicas=2),
    )


@pytest.mark.parametrize(
    ("kind", "volume"),
    [
        (
            {"configMap": {"name": "a"}},
            OwnVolume(name="v", path="/mnt/v", kind=VolumeKind.CONFIG_MAP, source="a"),
        ),
        (
            {"secret": {"secretName": "a"}},
            OwnVolume(name="v", path="/mnt/v", kind=VolumeKind.SECRET, source="a"),
        ),
        (
            {"pvc": {"claimName": "a"}},
            OwnVolume(name="v", path="/mnt/v", kind=VolumeKind.CLAIM, source="a"),
        ),
        (
            {"pvc": {"claimName": "a", "readOnly": False}},
            OwnVolume(name="v", path="/mnt/v", kind=VolumeKind.CLAIM, source="a", read_only=False),
        ),
        (
            {"emptyDir": {"sizeLimit": "2Gi"}},
            OwnVolume(
                name="v", path="/mnt/v", kind=VolumeKind.SCRATCH, source="2Gi", read_only=False
            ),
        ),
    ],
)
def test_a_volume_is_of_its_kind(kind: dict[str, Any], volume: OwnVolume) -> None:
    assert deployment_of(
        pod={"volumes": [{"name": "v", "mountPath": "/mnt/v", **kind}]}
    ).pods.volumes == (volume,)


def test_weights_on_a_claim_are_read_from_its_folder() -> None:
    deployment = deployment_of(model={"id": "a/b", "weights": {"uri": "pvc://weights/llama/8b"}})

    assert (deployment.weights.claim, deployment.weights.hub_token) == (
        ClaimPath(claim="weights", path="llama/8b"),
        None,
    )


def test_weights_at_the_root_of_a_claim_have_no_folder() -> None:
    deployment = deployment_of(model={"id": "a/b", "weights": {"uri": "pvc://weights"}})

    assert deployment.weights.claim == ClaimPath(claim="weights", path="")


def test_weights_may_come_from_an_image_that_the_kubelet_mounts() -> None:
    reference = "registry.internal/llama@sha256:" + "a" * 64
    weights = {"uri": f"oci://{reference}", "image": {"pullPolicy": "Never", "path": "llama/8b"}}

    deployment = deployment_of(model={"id": "a/b", "weights": weights})

    source = ImagePath(reference=reference, path="llama/8b", pull_policy="Never")
    assert (
        deployment.weights.weights_image,
        deployment.weights.claim,
        deployment.weights.hub_token,
    ) == (source, None, None)
    assert not deployment.weights.from_hub


def test_an_adapter_comes_from_a_claim_and_the_largest_has_rank_16_where_nobody_says_more() -> None:
    adapter = {"name": "support", "uri": "pvc://adapters/support/v3"}

    deployment = deployment_of(model={"id": "a/b", "adapters": [adapter]})

    source = ClaimPath(claim="adapters", path="support/v3")
    assert deployment.serving.adapters == Adapters(
        served=(ServedAdapter(name="support", source=source),), rank=16
    )


def test_without_an_image_the_release_image_of_the_known_version_is_used() -> None:
    assert deployment_of().image == DEFAULT_IMAGE


def test_without_an_image_the_stated_version_chooses_the_tag() -> None:
    assert deployment_of(engine={"version": "0.32.0"}).image == "vllm/vllm-openai:v0.32.0"


@pytest.mark.parametrize(("stored", "made"), [(None, "fp8"), ("compressed-tensors", None)])
def test_what_is_stored_quantized_is_not_quantized_again(
    stored: str | None, made: str | None
) -> None:
    assert (
        deployment_of(stored, model={"id": "a/b", "quantization": "FP8"}).weights.quantization
        == made
    )


def test_a_number_type_is_an_argument_of_the_engine() -> None:
    deployment = deployment_of(model={"id": "a/b", "quantization": "FP16"})

    assert (deployment.weights.quantization, deployment.serving.arguments) == (
        None,
        {"dtype": "float16"},
    )


EFA_IMAGE = "registry.example/vllm-runtime:v0.33.0-efa"


@pytest.mark.parametrize(
    ("image", "said", "plugins"),
    [
        (None, None, ()),
        (None, ["EFA"], (Capability.EFA,)),
        (EFA_IMAGE, None, (Capability.EFA,)),
        (EFA_IMAGE, [], ()),
        ("registry.example/vllm-efa:v0.33.0", None, ()),  # the name of a team's own means nothing
    ],
)
def test_the_plugins_of_an_image_are_those_that_the_spec_says_else_those_that_its_tag_tells(
    image: str | None, said: list[str] | None, plugins: tuple[Capability, ...]
) -> None:
    engine = {} if image is None else {"image": image}
    network = {} if said is None else {"plugins": said}
    spec = parse_manifest(a_sharded_model(engine=engine, pod={"network": network})).spec
    assert terms_of(spec).rdma.plugins == plugins
