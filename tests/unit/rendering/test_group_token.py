"""The token that the ranks of a group know each other by."""

from base64 import b64decode

from shardwright.cluster.writer import with_new_key
from shardwright.layouts.layout import Layout
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
)
from tests.support.rendered import engine_of, pod_of

TWO_PODS = render(a_plan(), a_deployment())


def test_groups_of_several_pods_have_one_secret_of_their_model_without_any_content() -> None:
    (secret,) = render(
        a_plan_of(Layout(tensor=8, pipeline=2, replicas=3), nodes=2), a_deployment()
    ).keys
    assert (secret["kind"], secret["type"], secret["immutable"]) == (
        "Secret",
        "shardwright.io/group-token",
        True,
    )
    assert {"data", "stringData"} & set(secret) == set()


def test_every_engine_has_it_as_a_file_that_only_its_own_group_reads() -> None:
    for bundle in (TWO_PODS, render(a_plan(), a_trtllm_deployment())):
        (volume,) = [volume for volume in pod_of(bundle)["volumes"] if volume["name"] == "group"]
        (mount,) = [
            mount for mount in engine_of(bundle)["volumeMounts"] if mount["name"] == "group"
        ]
        assert volume["secret"] == {
            "secretName": bundle.keys[0]["metadata"]["name"],
            "defaultMode": 0o440,
        }
        assert mount == {"name": "group", "mountPath": "/etc/shardwright-group", "readOnly": True}


def test_one_pod_has_nobody_to_meet() -> None:
    alone = render(a_small_plan(), a_deployment())
    assert alone.keys == ()
    assert "group" not in {volume["name"] for volume in pod_of(alone)["volumes"]}


def test_every_token_that_is_made_has_256_bits_that_no_other_has() -> None:
    (secret,) = TWO_PODS.keys
    tokens = [b64decode(with_new_key(secret)["data"]["token"]).decode() for _ in range(3)]
    assert [len(bytes.fromhex(token)) for token in tokens] == [32, 32, 32]
    assert len(set(tokens)) == 3
