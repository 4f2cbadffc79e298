"""What a group of TensorRT-LLM has that one of vLLM has not: a key, a user, an open port; and what
one pod does without.
"""

from shardwright.layouts.layout import Layout
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import CacheClaim, SecretKey
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
    an_owner,
)
from tests.support.rendered import by_name, engine_of, pod_of

TWO_PODS = render(a_plan(), a_trtllm_deployment())
ONE_POD = render(a_small_plan(), a_trtllm_deployment())


def test_a_group_of_several_pods_has_one_secret_of_its_resource_without_any_content() -> None:
    _, secret = render(
        a_plan_of(Layout(tensor=8, pipeline=2, replicas=3), nodes=2), a_trtllm_deployment()
    ).keys
    assert (secret["kind"], secret["type"], secret["immutable"]) == (
        "Secret",
        "shardwright.io/ssh-key",
        True,
    )
    assert {"data", "stringData"} & set(secret) == set()
    assert secret["metadata"]["ownerReferences"][0]["uid"] == an_owner().uid
    assert secret["metadata"]["name"] == pod_of(TWO_PODS)["volumes"][-2]["secret"]["secretName"]


def test_the_secret_of_an_earlier_resource_of_the_same_name_is_another_one() -> None:
    mine = TWO_PODS.keys
    theirs = render(a_plan(), a_trtllm_deployment(owner=an_owner(uid="earlier"))).keys
    assert len({secret["metadata"]["name"] for secret in (*mine, *theirs)}) == 4


def test_the_key_is_for_the_group_of_the_pod_and_the_user_has_an_entry() -> None:
    volumes = {volume["name"]: volume for volume in pod_of(TWO_PODS)["volumes"]}
    mounts = {mount["name"]: mount for mount in engine_of(TWO_PODS)["volumeMounts"]}
    assert volumes["ssh"]["secret"]["defaultMode"] == 0o440
    assert pod_of(TWO_PODS)["securityContext"]["fsGroup"] == 10001
    assert (mounts["passwd"]["mountPath"], mounts["passwd"]["subPath"]) == ("/etc/passwd", "passwd")
    assert (mounts["ssh"]["mountPath"], mounts["ssh"]["readOnly"]) == ("/etc/shardwright-ssh", True)


def test_ranks_meet_at_the_port_of_ssh() -> None:
    assert [(port["name"], port["containerPort"]) for port in engine_of(TWO_PODS)["ports"]] == [
        ("http", 8000),
        ("ssh", 2222),
        ("rendezvous", 29510),
    ]
    peers = by_name(TWO_PODS)["Service", "llama-405b-0-peers"]["spec"]["ports"]
    assert [(port["name"], port["port"]) for port in peers] == [("ssh", 2222)]


def test_one_pod_and_vllm_need_no_key() -> None:
    for bundle in (ONE_POD, render(a_plan(), a_deployment())):
        assert "shardwright.io/ssh-key" not in {secret["type"] for secret in bundle.keys}
        assert {"ssh", "passwd"} & {volume["name"] for volume in pod_of(bundle)["volumes"]} == set()


def test_the_leader_names_no_secret_and_no_folder_of_a_pod_to_the_others() -> None:
    deployment = a_trtllm_deployment(
        hub_token=SecretKey(name="hub", key="token"),
        cache=CacheClaim(claim="hub"),
        environment=(("NCCL_DEBUG", "INFO"),),
    )
    (scripts,) = of_kind(render(a_plan(), deployment).objects, "ConfigMap")
    (line,) = [
        line for line in scripts["data"]["launch.sh"].splitlines() if "for name_told in" in line
    ]
    assert line.strip() == "for name_told in HF_HOME HF_HUB_OFFLINE NCCL_DEBUG USER; do"


def test_labels_name_the_engine() -> None:
    for item in TWO_PODS.objects:
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "trtllm"
        assert item["metadata"]["labels"]["app.kubernetes.io/version"] == "1.2.1"
