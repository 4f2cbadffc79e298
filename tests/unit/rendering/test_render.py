"""Plan to bundle: which objects, and what is in them."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from shardwright.errors import InputError, Problem
from shardwright.hardware.scheduling import usual_tolerations
from shardwright.layouts.layout import DraftMethod, Layout
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import (
    CONTENT_HASH,
    OWN_HASH,
    TEMPLATE_HASH,
    Bundle,
    content_hash,
    digest,
    of_kind,
    plan_hash,
    template_hash,
)
from shardwright.rendering.deployment import (
    Adapters,
    CacheClaim,
    Ceiling,
    ClaimPath,
    Deployment,
    HubCommit,
    ImagePath,
    PodNetwork,
    Scheduling,
    SecretKey,
    ServedAdapter,
)
from shardwright.rendering.render import asked_of, render
from shardwright.units import GIB
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
    an_owner,
)
from tests.support.parts import with_parts
from tests.support.rendered import by_name, engine_of, environment_of, pod_of

FULL = a_deployment(
    revision="0" * 40,
    hub_token=SecretKey(name="hub", key="token"),
    quantization="fp8",
    kv_cache_dtype="fp8",
    arguments={"seed": 3},
    environment=(("NCCL_DEBUG", "INFO"),),
    node_selector=(("team", "a"),),
    tolerations=(
        {"key": "dedicated", "operator": "Equal", "value": "llm", "effect": "NoSchedule"},
    ),
    cpu="12",
    memory="200Gi",
    ephemeral_storage="300Gi",
    runtime_class="nvidia",
    priority_class="serving",
    image_pull_secrets=("mirror",),
)
ON_CLAIM = a_deployment(claim=ClaimPath(claim="weights", path="/llama/405b/"), revision="abc")

ADAPTERS = Adapters(
    served=(
        ServedAdapter(name="a", source=ClaimPath(claim="adapters", path="a")),
        ServedAdapter(name="b", source=HubCommit(id="acme/b", revision="0" * 40)),
    )
)

CASES = {
    "one GPU": (a_small_plan(), a_deployment()),
    "one node": (a_plan_of(Layout(tensor=8)), a_deployment()),
    "two nodes": (a_plan(), a_deployment()),
    "three groups": (a_plan_of(Layout(tensor=4, pipeline=2, replicas=3), nodes=2), FULL),
    "from a claim": (a_plan(), ON_CLAIM),
    "from an image": (
        a_plan(),
        a_deployment(weights_image=ImagePath(reference="a/b", path="", pull_policy="Always")),
    ),
    "with adapters": (a_plan(), a_deployment(adapters=ADAPTERS)),
    "kept on a shared claim": (
        a_plan(),
        a_deployment(cache=CacheClaim(claim="hub"), served_name="llama"),
    ),
    "kept on claims of the pods": (
        a_plan(),
        a_deployment(cache=CacheClaim(storage="1Ti"), load_format="safetensors"),
    ),
    "with RDMA": (
        a_plan(rdma=(("rdma/hca", 1),)),
        a_deployment(network=PodNetwork(attachments=("a",), lock_memory=True)),
    ),
    "over trays of a rack": (a_plan(compute_domain=True), a_deployment()),
    "over Ray": (a_plan(), a_deployment(over_ray=True)),
    "scaled to zero": (a_plan(groups=()), a_deployment()),
    "TensorRT-LLM in one pod": (a_small_plan(), a_trtllm_deployment()),
    "TensorRT-LLM on two nodes": (a_plan(), a_trtllm_deployment(cache=CacheClaim(storage="1Ti"))),
    "another version": (
        a_plan(),
        a_deployment(engine_version="0.40.0", image="vllm/vllm-openai:v0.40.0"),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kubernetes", ["1.34", "1.37"])
def test_every_object_has_the_shape_that_kubernetes_publishes(case: str, kubernetes: str) -> None:
    for item in render(*CASES[case]).objects:
        if item["kind"] == "ComputeDomain":
            continue
        kubernetes_validate.validate(dict(item), kubernetes, strict=True)


def test_the_objects_come_in_the_order_in_which_they_are_needed() -> None:
    bundle = render(a_plan_of(Layout(tensor=8, pipeline=2, replicas=2), nodes=2), a_deployment())
    assert [(item["kind"], item["metadata"]["name"]) for item in bundle.objects] == [
        ("ConfigMap", "llama-405b-scripts-58efffb3"),
        ("NetworkPolicy", "llama-405b-network"),
        ("Service", "llama-405b"),
        ("Service", "llama-405b-0-peers"),
        ("Service", "llama-405b-1-peers"),
        ("PodDisruptionBudget", "llama-405b"),
        ("StatefulSet", "llama-405b-0"),
        ("StatefulSet", "llama-405b-1"),
    ]


@pytest.mark.parametrize("case", ["two nodes", "TensorRT-LLM on two nodes"])
def test_other_scripts_have_another_name_so_that_those_of_running_pods_never_change(
    case: str,
) -> None:
    plan, deployment = CASES[case]
    found = []
    for one in (
        deployment,
        with_parts(deployment, silence_seconds=60),
        with_parts(deployment, cpu="3"),
    ):
        bundle = render(plan, one)
        (scripts,) = of_kind(bundle.objects, "ConfigMap")
        mounted = {v["configMap"]["name"] for v in pod_of(bundle)["volumes"] if "configMap" in v}
        assert (mounted, scripts["immutable"]) == ({scripts["metadata"]["name"]}, True)
        found.append(scripts["metadata"]["name"])

    assert found[0] == found[2] != found[1]


def test_every_object_is_controlled_by_its_resource_and_knows_its_own_content() -> None:
    for item in render(a_plan(), a_deployment()).objects:
        assert item["metadata"]["namespace"] == "models"
        assert item["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "shardwright.io/v1alpha1",
                "kind": "ShardedModel",
                "name": "llama-405b",
                "uid": an_owner().uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert item["metadata"]["annotations"]["shardwright.io/content-hash"] == content_hash(item)


def test_the_clients_reach_leaders_only_and_the_peers_reach_everybody_early() -> None:
    named = by_name(render(a_plan(), a_deployment()))
    client, peers = (
        named["Service", "llama-405b"]["spec"],
        named["Service", "llama-405b-0-peers"]["spec"],
    )
    assert client["selector"] == {
        "shardwright.io/model": "llama-405b",
        "apps.kubernetes.io/pod-index": "0",
    }
    assert [(port["name"], port["port"], port["targetPort"]) for port in client["ports"]] == [
        ("http", 8000, 8000)
    ]
    assert (peers["clusterIP"], peers["publishNotReadyAddresses"]) == ("None", True)
    assert peers["selector"] == {
        "shardwright.io/model": "llama-405b",
        "shardwright.io/group": "llama-405b-0",
    }


def test_a_group_is_one_stateful_set_that_only_the_operator_rolls() -> None:
    (item,) = of_kind(render(a_plan(), a_deployment()).objects, "StatefulSet")
    spec = item["spec"]
    assert {
        key: spec[key]
        for key in ("replicas", "serviceName", "podManagementPolicy", "updateStrategy")
    } == {
        "replicas": 2,
        "serviceName": "llama-405b-0-peers",
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
    }


def test_pods_go_to_exactly_the_planned_nodes_and_never_two_to_one() -> None:
    affinity = pod_of(render(a_plan(), a_deployment()))["affinity"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    assert affinity["nodeAffinity"][required]["nodeSelectorTerms"] == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in ("h100-a-01", "h100-a-02")
    ]
    assert affinity["podAntiAffinity"][required] == [
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {
                "matchLabels": {
                    "shardwright.io/model": "llama-405b",
                    "shardwright.io/group": "llama-405b-0",
                }
            },
        }
    ]
    assert "podAntiAffinity" not in pod_of(render(a_small_plan(), a_deployment()))["affinity"]


def test_pods_over_trays_claim_a_channel_of_the_compute_domain_of_their_group() -> None:
    layout = Layout(tensor=8, replicas=2)
    bundle = render(a_plan_of(layout, nodes=2, compute_domain=True), a_deployment())
    domains = of_kind(bundle.objects, "ComputeDomain")
    assert [item["metadata"]["name"] for item in domains] == ["llama-405b-0", "llama-405b-1"]
    for group, (domain, item) in enumerate(
        zip(domains, of_kind(bundle.objects, "StatefulSet"), strict=True)
    ):
        template = {"name": f"llama-405b-{group}-channel"}
        assert domain["apiVersion"] == "resource.nvidia.com/v1beta1"
        assert domain["spec"] == {
            "numNodes": 0,
            "channel": {"allocationMode": "Single", "resourceClaimTemplate": template},
        }
        spec = item["spec"]["template"]["spec"]
        claim = {"name": "compute-domain-channel", "resourceClaimTemplateName": template["name"]}
        assert spec["resourceClaims"] == [claim]
        assert spec["containers"][0]["resources"]["claims"] == [{"name": "compute-domain-channel"}]
    kinds = [item["kind"] for item in bundle.objects]
    assert kinds.index("ComputeDomain") < kinds.index("StatefulSet")


def test_attention_replicas_on_several_nodes_are_told_their_number_a_pod_and_no_nodes() -> None:
    args = engine_of(
        render(a_plan_of(Layout(tensor=4, attention_data=4, expert=16), nodes=2), a_deployment())
    )["args"]
    told = {name: value for name, value in pairwise(args) if name.startswith("--data-parallel")}
    assert told == {
        "--data-parallel-size": "4",
        "--data-parallel-size-local": "2",
        "--data-parallel-rpc-port": "13345",
    }
    assert {
        "--nnodes",
        "--device-ids",
        "--master-port",
        "--distributed-executor-backend",
    }.isdisjoint(args)
    assert "--enable-expert-parallel" in args


def test_without_a_compute_domain_pods_claim_nothing() -> None:
    bundle = render(a_plan(), a_deployment())
    assert of_kind(bundle.objects, "ComputeDomain") == ()
    assert "resourceClaims" not in pod_of(bundle)
    assert "claims" not in engine_of(bundle)["resources"]


RDMA = (("rdma/hca", 1), ("vpc.amazonaws.com/efa", 32))


def test_a_pod_requests_the_rdma_devices_of_the_plan_beside_its_gpus() -> None:
    resources = engine_of(render(a_plan(rdma=RDMA), a_deployment()))["resources"]
    devices = {"nvidia.com/gpu": "8", "rdma/hca": "1", "vpc.amazonaws.com/efa": "32"}
    assert resources["limits"] == {"memory": "542Gi", "ephemeral-storage": "1559Gi"} | devices
    assert (
        resources["requests"] == {"cpu": "9", "memory": "41Gi", "ephemeral-storage": "0"} | devices
    )


def test_networks_are_attached_to_pods_of_groups_over_several_nodes_only() -> None:
    deployment = a_deployment(network=PodNetwork(attachments=("fabric/rail-0", "rail-1", "rail-1")))
    wanted = {"k8s.v1.cni.cncf.io/networks": "fabric/rail-0,rail-1,rail-1"}
    for plan, attached in (
        (a_plan(), wanted),
        (a_small_plan(), {}),
        (a_plan_of(Layout(tensor=8)), {}),
    ):
        (item,) = of_kind(render(plan, deployment).objects, "StatefulSet")
        annotations = item["spec"]["template"]["metadata"]["annotations"]
        assert {key: value for key, value in annotations.items() if "cni" in key} == attached


def test_networks_of_gke_are_attached_by_its_annotations_and_nccl_takes_no_other() -> None:
    networks = tuple((f"networking.gke.io.networks/rdma-{nic}", 1) for nic in range(2))
    bundle = render(a_plan(rdma=networks), a_deployment())
    (item,) = of_kind(bundle.objects, "StatefulSet")
    annotations = item["spec"]["template"]["metadata"]["annotations"]

    assert {key: value for key, value in annotations.items() if "gke" in key} == {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": (
            '[{"interfaceName":"eth0","network":"default"},'
            '{"interfaceName":"eth1","network":"rdma-0"},'
            '{"interfaceName":"eth2","network":"rdma-1"}]'
        ),
    }
    assert {"name": "NCCL_NET", "value": "gIB"} in engine_of(bundle)["env"]


@pytest.mark.parametrize(
    ("plan", "deployment", "user", "capabilities"),
    [
        pytest.param(
            a_plan(rdma=RDMA), a_deployment(), 10001, {"drop": ["ALL"]}, id="not asked for"
        ),
        pytest.param(
            a_plan(rdma=RDMA),
            a_deployment(network=PodNetwork(lock_memory=True)),
            0,
            {"drop": ["ALL"], "add": ["IPC_LOCK"]},
            id="asked for",
        ),
        pytest.param(
            a_plan(),
            a_deployment(network=PodNetwork(lock_memory=True)),
            10001,
            {"drop": ["ALL"]},
            id="without RDMA devices",
        ),
        pytest.param(
            a_small_plan(),
            a_deployment(network=PodNetwork(lock_memory=True)),
            10001,
            {"drop": ["ALL"]},
            id="on one node",
        ),
    ],
)
def test_pods_lock_memory_as_root_only_where_that_is_asked_for_and_of_use(
    plan: Plan, deployment: Deployment, user: int, capabilities: dict[str, Any]
) -> None:
    bundle = render(plan, deployment)
    context = pod_of(bundle)["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"], context["fsGroup"]) == (
        user,
        user != 0,
        10001,
    )
    assert engine_of(bundle)["securityContext"]["capabilities"] == capabilities


@pytest.mark.parametrize(
    ("plan", "gpus", "shm", "memory", "disk"),
    [
        (a_small_plan(), "1", "1536Mi", ("9728Mi", "41Gi"), ("0", "80Gi")),
        (a_plan_of(Layout(tensor=2)), "2", "2Gi", ("14Gi", "140Gi"), ("0", "805Gi")),
        (a_plan(), "8", "5Gi", ("41Gi", "542Gi"), ("0", "1559Gi")),
        (
            a_plan_of(Layout(tensor=4, pipeline=2), nodes=1),
            "8",
            "5Gi",
            ("41Gi", "542Gi"),
            ("0", "805Gi"),
        ),
        (a_plan(resource="amd.com/gpu"), "8", "5Gi", ("41Gi", "542Gi"), ("0", "1559Gi")),
    ],
)
def test_a_pod_gets_as_many_gpus_as_it_has_workers_and_memory_and_disk_for_them(
    plan: Plan, gpus: str, shm: str, memory: tuple[str, str], disk: tuple[str, str]
) -> None:
    bundle = render(plan, a_deployment())
    requests = {
        "cpu": str(1 + int(gpus)),
        "memory": memory[0],
        "ephemeral-storage": disk[0],
        plan.resource: gpus,
    }
    limits = {"memory": memory[1], "ephemeral-storage": disk[1], plan.resource: gpus}
    assert engine_of(bundle)["resources"] == {"requests": requests, "limits": limits}
    volumes = {volume["name"]: volume for volume in pod_of(bundle)["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": shm}


def test_pods_that_ray_joins_have_room_for_it_and_are_met_at_its_port() -> None:
    bundle = render(a_plan(), a_deployment(over_ray=True))
    engine = engine_of(bundle)
    volumes = {volume["name"]: volume for volume in pod_of(bundle)["volumes"]}
    peers = by_name(bundle)["Service", "llama-405b-0-peers"]["spec"]["ports"]

    assert (
        engine["resources"]["requests"]["memory"] == "42880Mi"
    )  # 41 GiB, 640 MiB of processes, 256 MiB of objects
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "5376Mi"}
    assert [port["name"] for port in engine["ports"]] == ["http", "ray", "rendezvous"]
    assert [(port["name"], port["port"]) for port in peers] == [("ray", 6379)]


def test_one_pod_is_the_same_with_ray() -> None:
    assert render(a_small_plan(), a_deployment(over_ray=True)) == render(
        a_small_plan(), a_deployment()
    )


@pytest.mark.parametrize(
    ("resource", "architecture", "keys"),
    [
        ("nvidia.com/gpu", "amd64", ["nvidia.com/gpu", "sku"]),
        ("nvidia.com/gpu", "arm64", ["nvidia.com/gpu", "kubernetes.io/arch", "sku"]),
        ("amd.com/gpu", "amd64", ["amd.com/gpu", "sku"]),
    ],
)
def test_pods_tolerate_the_taints_of_their_nodes_vendor_and_architecture(
    resource: str, architecture: str, keys: list[str]
) -> None:
    plan = replace(a_plan(resource=resource), architecture=architecture)

    tolerations = pod_of(render(plan, a_deployment()))["tolerations"]
    assert [toleration["key"] for toleration in tolerations] == keys


def test_what_the_user_says_about_the_pod_is_there() -> None:
    bundle = render(a_plan(), FULL)
    pod, engine = pod_of(bundle), engine_of(bundle)
    assert pod["nodeSelector"] == {"team": "a"}
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["priorityClassName"] == "serving"
    assert "priorityClassName" not in pod_of(render(a_plan(), a_deployment()))
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    dedicated = {"key": "dedicated", "operator": "Equal", "value": "llm", "effect": "NoSchedule"}
    usual = usual_tolerations("nvidia.com/gpu", "amd64")
    assert pod["tolerations"] == [*map(dict, usual), dedicated]
    bounds = {"memory": "200Gi", "ephemeral-storage": "300Gi", "nvidia.com/gpu": "8"}
    assert engine["resources"] == {"requests": {"cpu": "12", **bounds}, "limits": bounds}
    environment = environment_of(bundle)
    assert environment["NCCL_DEBUG"] == "INFO"
    assert "HF_TOKEN" not in environment  # of the container that downloads alone
    (download,) = pod["initContainers"]
    token = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": token} in download["env"]
    words = engine["args"]
    assert words[words.index("--revision") + 1] == "0" * 40
    assert {"--seed=3", "--quantization", "fp8"} <= set(words)


def test_weights_on_a_claim_are_read_from_there_and_the_engine_is_offline() -> None:
    bundle = render(a_plan(), ON_CLAIM)
    volumes = {volume["name"]: volume for volume in pod_of(bundle)["volumes"]}
    mounts = {mount["name"]: mount for mount in engine_of(bundle)["volumeMounts"]}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}
    assert mounts["models"] == {"name": "models", "mountPath": "/models", "readOnly": True}
    words = engine_of(bundle)["args"]
    assert words[:3] == [
        "/models/llama/405b",
        "--served-model-name",
        "meta-llama/Llama-3.1-405B-Instruct",
    ]
    assert "--revision" not in words
    assert environment_of(bundle)["HF_HUB_OFFLINE"] == "1"
    assert "initContainers" not in pod_of(bundle)


def test_the_pod_satisfies_pod_security_restricted_and_holds_no_token() -> None:
    pod, engine = pod_of(render(a_plan(), FULL)), engine_of(render(a_plan(), FULL))
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert engine["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"}.isdisjoint(pod)
    assert [item["securityContext"] for item in pod["initContainers"]] == [
        engine["securityContext"]
    ]


def test_the_environment_of_a_group_is_complete() -> None:
    assert environment_of(render(a_plan(), a_deployment())) == {
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "VLLM_HOST_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "SHARDWRIGHT_LEADER": "llama-405b-0-0.llama-405b-0-peers.models.svc.cluster.local",
        "SHARDWRIGHT_GENERATION": {
            "fieldRef": {"fieldPath": "metadata.labels['shardwright.io/template-hash']"}
        },
        "HF_HOME": "/cache/huggingface",
        "HF_HUB_OFFLINE": "1",
        "HF_MODULES_CACHE": "/cache/own/home/.cache/huggingface/modules",
        "HOME": "/cache/own/home",
        "CUDA_CACHE_PATH": "/cache/own/home/.nv/ComputeCache",
        "FLASHINFER_WORKSPACE_BASE": "/cache/own/home",
        "TMPDIR": "/tmp",
        "TORCHINDUCTOR_CACHE_DIR": "/cache/own/inductor",
        "TRITON_CACHE_DIR": "/cache/own/home/.triton/cache",
        "XDG_CACHE_HOME": "/cache/own/home/.cache",
        "XDG_CONFIG_HOME": "/cache/own/home/.config",
        "USER": "vllm",
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        "VLLM_CACHE_ROOT": "/cache/own/vllm",
        "VLLM_ENGINE_READY_TIMEOUT_S": "2100",
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "120",
    }


def test_a_variable_of_the_user_never_replaces_one_of_ours() -> None:
    theirs = (("VLLM_HOST_IP", "10.0.0.1"), ("HF_TOKEN", "x"), ("HOME", "/root"))
    environment = environment_of(render(a_plan(), with_parts(FULL, environment=theirs)))
    assert environment == {
        name: value
        for name, value in environment_of(render(a_plan(), FULL)).items()
        if name != "NCCL_DEBUG"
    }


@pytest.mark.parametrize(
    ("plan", "deployment", "load"),
    [
        (
            a_small_plan(),
            a_deployment(),
            600,
        ),  # what is loaded is there: 480 + 2 x 16 GB / 500 MB/s, and the least
        (a_plan(), a_deployment(), 2100),  # each rank reads its half
        (a_plan(), ON_CLAIM, 2100),  # 480 + 2 x 405 GB / 500 MB/s
    ],
)
def test_the_start_up_budget_follows_from_the_bytes_to_load(
    plan: Plan, deployment: Deployment, load: int
) -> None:
    bundle = render(plan, deployment)
    engine = engine_of(bundle)
    (launch,) = (
        item["data"]["launch.sh"]
        for item in of_kind(bundle.objects, "ConfigMap")
        if "launch.sh" in item["data"]
    )
    assert re.findall(r"^  sleep (\d+)$", launch, re.MULTILINE) == [str(load + 60)]
    assert (
        engine["startupProbe"]["failureThreshold"] == 2**31 - 1
    )  # the launch script keeps the budget
    assert environment_of(bundle)["VLLM_ENGINE_READY_TIMEOUT_S"] == str(load)
    words = engine["args"]
    assert words[words.index("--cpu-distributed-timeout-seconds") + 1] == str(load)


def test_the_start_up_budget_is_spelled_out() -> None:
    (item,) = of_kind(render(a_plan(), a_deployment()).objects, "StatefulSet")
    assert item["metadata"]["annotations"]["shardwright.io/start-up-budget"] == (
        "2100 s: 180 s start, 377.2 GiB read from its volume at 500 MB/s (assumed) x 2, 300 s compilation; "
        "at least 600 s; "
        "from when all ranks have met, for which there is no limit"
    )


def test_a_rank_has_time_to_drain_before_it_is_killed() -> None:
    bundle = render(a_plan(drain_seconds=120), a_deployment())
    engine = engine_of(bundle)
    words = engine["args"]
    assert pod_of(bundle)["terminationGracePeriodSeconds"] == 5 + 120 + 10 + 30
    assert "SECONDS < 125" in _drain_script(bundle)
    assert words[words.index("--shutdown-timeout") + 1] == "10"
    assert engine["lifecycle"] == {
        "preStop": {"exec": {"command": ["/bin/bash", "/etc/shardwright/drain.sh"]}}
    }


def _drain_script(bundle: Bundle) -> str:
    return next(
        str(item["data"]["drain.sh"])
        for item in of_kind(bundle.objects, "ConfigMap")
        if "drain.sh" in item["data"]
    )


def test_a_drain_that_somebody_states_is_rendered_whatever_the_answers_need() -> None:
    bundle = render(a_plan(drain_seconds=120), a_deployment(drain_seconds=1200))

    assert pod_of(bundle)["terminationGracePeriodSeconds"] == 1245
    assert "SECONDS < 1205" in _drain_script(bundle)


def test_another_drain_asks_for_no_other_pods_of_a_group_that_runs() -> None:
    """Its template is written and comes with the next restart (ADR 15)."""
    plans = (a_plan(), a_plan(drain_seconds=960))
    marks = [
        asked_of(plan, a_deployment(asked="spec", drain_seconds=stated), 0)
        for plan in plans
        for stated in (None, 1200)
    ]

    assert len(set(marks)) == 1


def test_what_the_engine_makes_fp8_while_loading_is_read_at_its_size_in_the_files() -> None:
    def size(quantization: str | None) -> float:
        (item,) = of_kind(
            render(a_plan(), a_deployment(quantization=quantization)).objects, "StatefulSet"
        )
        found = re.search(
            r"([0-9.,]+) GiB", item["metadata"]["annotations"]["shardwright.io/start-up-budget"]
        )
        assert found
        return float(found[1].replace(",", ""))

    assert size("fp8") == pytest.approx(2 * size(None), rel=0.01)


def test_only_our_scripts_are_run_by_a_shell() -> None:
    engine = engine_of(render(a_plan(), FULL))
    assert engine["command"] == ["/bin/bash", "/etc/shardwright/launch.sh"]
    for probe in ("startup", "readiness", "liveness"):
        assert engine[f"{probe}Probe"]["exec"]["command"] == [
            "/bin/bash",
            "/etc/shardwright/probe.sh",
            probe,
        ]


@pytest.mark.parametrize(
    ("layout", "nodes", "ready_pods", "least"),
    [
        (Layout(tensor=8, pipeline=2), 2, None, 1),
        (Layout(replicas=3), 1, None, 2),
        (Layout(tensor=8, pipeline=2, replicas=3), 2, None, 5),
        (Layout(tensor=8, pipeline=2, replicas=3), 2, 2, 1),
    ],
)
def test_one_disruption_budget_lets_one_pod_go_at_a_time(
    layout: Layout, nodes: int, ready_pods: int | None, least: int
) -> None:
    (item,) = of_kind(
        render(a_plan_of(layout, nodes=nodes), a_deployment(), ready_pods=ready_pods).objects,
        "PodDisruptionBudget",
    )
    assert item["spec"] == {
        "minAvailable": least,
        "selector": {"matchLabels": {"shardwright.io/model": "llama-405b"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


@pytest.mark.parametrize(
    ("layout", "nodes", "ready_pods"),
    [(Layout(), 1, None), (Layout(tensor=8, pipeline=2), 2, 0), (Layout(replicas=3), 1, 1)],
)
def test_there_is_no_disruption_budget_where_it_would_allow_everything(
    layout: Layout, nodes: int, ready_pods: int | None
) -> None:
    bundle = render(a_plan_of(layout, nodes=nodes), a_deployment(), ready_pods=ready_pods)
    assert of_kind(bundle.objects, "PodDisruptionBudget") == ()


def test_pods_carry_the_hash_of_their_template_and_the_name_of_their_resource() -> None:
    (item,) = of_kind(
        render(a_plan(), a_deployment(owner=an_owner(name="qwen2.5-7b"))).objects, "StatefulSet"
    )
    template = item["spec"]["template"]
    labels = dict(template["metadata"]["labels"])
    carried = labels.pop("shardwright.io/template-hash")
    assert carried == template_hash(
        {**template, "metadata": {**template["metadata"], "labels": labels}}
    )
    assert carried == item["metadata"]["annotations"]["shardwright.io/template-hash"]
    assert template["metadata"]["annotations"]["shardwright.io/model-name"] == "qwen2.5-7b"


@pytest.mark.parametrize(
    "changed",
    [
        {"image": "vllm/vllm-openai:v0.33.1"},
        {"environment": (("NCCL_DEBUG", "INFO"),)},
        {"memory": "1Ti"},
        {"kv_cache_dtype": "fp8"},
    ],
)
def test_the_template_hash_changes_with_everything_that_pods_are_made_of(
    changed: dict[str, Any],
) -> None:
    assert template_of(a_plan(), a_deployment()) != template_of(a_plan(), a_deployment(**changed))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("scheduler", ["", "Kueue", "Coscheduling"])
def test_pods_that_a_limit_range_changes_carry_the_template_hash_they_would_have_without_it(
    case: str, scheduler: str
) -> None:
    told = Scheduling(integration=scheduler, api_version="", queue="serving") if scheduler else None
    plan, deployment = (CASES[case][0], with_parts(CASES[case][1], memory=None, scheduling=told))
    limited = with_parts(deployment, ceilings=(Ceiling(resource="memory", most_bytes=20 * GIB),))

    own, found = (
        of_kind(render(plan, item).objects, "StatefulSet") for item in (deployment, limited)
    )

    assert [labels_of(item)[OWN_HASH] for item in found] == [
        labels_of(item)[TEMPLATE_HASH] for item in own
    ]
    assert all(OWN_HASH not in labels_of(item) for item in own)
    assert all(labels_of(item)[OWN_HASH] != labels_of(item)[TEMPLATE_HASH] for item in found)
    assert all(
        item["metadata"]["annotations"][CONTENT_HASH] == content_hash(item) for item in found
    )


@pytest.mark.parametrize("case", CASES)
def test_pods_with_a_pull_policy_of_their_own_say_of_which_template_they_would_be_without_it(
    case: str,
) -> None:
    plan, deployment = CASES[case]
    pulling = with_parts(deployment, marks=replace(deployment.pods.marks, pull_policy="Always"))

    own, found = (
        of_kind(render(plan, item).objects, "StatefulSet") for item in (deployment, pulling)
    )

    assert [labels_of(item)[OWN_HASH] for item in found] == [
        labels_of(item)[TEMPLATE_HASH] for item in own
    ]


def test_a_limit_range_that_changes_nothing_of_pods_leaves_them_as_they_are() -> None:
    high = Ceiling(resource="memory", most_bytes=4096 * GIB)
    assert render(a_plan(), a_deployment(ceilings=(high,))) == render(a_plan(), a_deployment())


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = item["spec"]["template"]["metadata"]["labels"]
    return labels


def test_a_prediction_that_changes_restarts_nothing() -> None:
    plan = a_plan()
    faster = replace(
        plan, performance=replace(plan.performance, tpot_seconds=0.01), reasons=("another",)
    )
    assert template_of(plan, a_deployment()) == template_of(faster, a_deployment())


def template_of(plan: Plan, deployment: Deployment) -> str:
    (item,) = of_kind(render(plan, deployment).objects, "StatefulSet")
    return str(item["spec"]["template"]["metadata"]["labels"]["shardwright.io/template-hash"])


def test_a_plan_that_can_only_be_shown_is_not_rendered() -> None:
    problem = Problem(code="TensorAcrossNodes", what="tensor 16 across trays")
    with pytest.raises(InputError) as caught:
        render(a_plan(undeployable=problem), a_deployment())
    assert caught.value.problems == (problem,)


def test_attention_replicas_and_shared_k_v_are_said_to_the_engine() -> None:
    plan = a_plan_of(Layout(tensor=4, attention_data=2, expert=8, context=4))

    words = _arguments(plan)

    assert {name: words[words.index(name) + 1] for name in words if "parallel-size" in name} == {
        "--tensor-parallel-size": "4",
        "--pipeline-parallel-size": "1",
        "--data-parallel-size": "2",
        "--decode-context-parallel-size": "4",
    }
    assert "--enable-expert-parallel" in words


def test_tokens_of_attention_replicas_meet_in_the_experts_as_the_plan_prices_it() -> None:
    words = _arguments(a_plan_of(Layout(tensor=4, attention_data=2, expert=8)))

    assert words[words.index("--all2all-backend") + 1] == "allgather_reducescatter"
    assert "--all2all-backend" not in _arguments(a_plan_of(Layout(tensor=8, expert=8)))


def test_degrees_of_one_are_left_to_the_engine() -> None:
    assert not {"--data-parallel-size", "--decode-context-parallel-size"} & set(
        _arguments(a_plan())
    )


def test_uneven_stages_are_the_same_setting_on_every_pod() -> None:
    uneven = a_plan(layout=Layout(tensor=8, pipeline=2, partition=(64, 62)))

    found = [
        environment_of(render(plan, a_deployment())).get("VLLM_PP_LAYER_PARTITION")
        for plan in (uneven, a_plan())
    ]
    assert found == ["64,62", None]


def _container(plan: Plan) -> dict[str, Any]:
    (item,) = of_kind(render(plan, a_deployment()).objects, "StatefulSet")
    container: dict[str, Any] = item["spec"]["template"]["spec"]["containers"][0]
    return container


def _arguments(plan: Plan) -> list[str]:
    return list(_container(plan)["args"])


LOOKED_UP = {"drafts_by": DraftMethod.PROMPT_LOOKUP, "draft_tokens": 3}


def _speculation(plan: Plan, **deployment: Any) -> dict[str, Any]:
    (item,) = of_kind(render(plan, a_deployment(**deployment)).objects, "StatefulSet")
    words = item["spec"]["template"]["spec"]["containers"][0]["args"]
    said: dict[str, Any] = json.loads(words[words.index("--speculative-config") + 1])
    return said


@pytest.mark.parametrize(
    ("method", "draft", "said"),
    [
        (DraftMethod.MTP, None, {"method": "mtp"}),
        (
            DraftMethod.EAGLE3,
            HubCommit(id="acme/head", revision="a" * 40),
            {"method": "eagle3", "model": f"/cache/drafts/acme/head/{'a' * 40}"},
        ),
    ],
)
def test_the_number_of_drafts_is_the_plans_where_nobody_states_it(
    method: DraftMethod, draft: HubCommit | None, said: dict[str, Any]
) -> None:
    plan, asked = replace(a_plan(), draft_tokens=2), {"draft_model": draft}

    planned = _speculation(plan, drafts_by=method, **asked)
    stated = _speculation(plan, drafts_by=method, draft_tokens=4, **asked)

    assert planned == said | {"num_speculative_tokens": 2}
    assert stated == said | {"num_speculative_tokens": 4}


def test_drafts_are_looked_up_in_the_prompt_without_a_draft_model() -> None:
    (item,) = of_kind(render(a_plan(), a_deployment(**LOOKED_UP)).objects, "StatefulSet")
    words = item["spec"]["template"]["spec"]["containers"][0]["args"]

    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 3,
    }
    assert "--speculative-config" not in _arguments(a_plan())


def test_a_draft_model_is_named_by_its_folder() -> None:
    draft = HubCommit(id="acme/draft", revision="a" * 40)
    (item,) = of_kind(
        render(
            a_plan(),
            a_deployment(drafts_by=DraftMethod.DRAFT_MODEL, draft_tokens=3, draft_model=draft),
        ).objects,
        "StatefulSet",
    )
    words = item["spec"]["template"]["spec"]["containers"][0]["args"]

    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "draft_model",
        "model": f"/cache/drafts/acme/draft/{'a' * 40}",
        "num_speculative_tokens": 3,
    }


def test_the_hash_of_a_plan_is_that_of_all_its_fields_as_plain_data() -> None:
    plan = a_plan()
    later = (
        "claimed",
        "disk_bytes",
        "drain_seconds",
        "draft_tokens",
        "gpu_price",
        "host_cache",
        "numbers",
        "replica_rate",
        "replica_requests",
        "uncounted",
    )  # absent where they say nothing
    said = {name: value for name, value in asdict(plan).items() if name not in later}
    assert plan_hash(plan) == digest(said)[:16]
    assert plan_hash(replace(plan, numbers=(1,))) == digest(said | {"numbers": (1,)})[:16]
    assert (
        plan_hash(replace(plan, uncounted=("enable-eplb",)))
        == digest(said | {"uncounted": ("enable-eplb",)})[:16]
    )
    assert plan_hash(
        replace(plan, performance=replace(plan.performance, ttft_seconds=9.5))
    ) != plan_hash(plan)
