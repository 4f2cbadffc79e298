"""Adapters beside the model: where they are mounted or downloaded to, and what the engine is
told.
"""

import json
from dataclasses import replace
from typing import Any

from shardwright.layouts.layout import DraftMethod
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import (
    Adapters,
    CacheClaim,
    ClaimPath,
    Deployment,
    HubCommit,
    ImagePath,
    SecretKey,
    ServedAdapter,
)
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan
from tests.support.rendered import engine_of, environment_of, pod_of

ON_CLAIM = ServedAdapter(name="support", source=ClaimPath(claim="adapters", path="support/v3"))
ON_THE_SAME = ServedAdapter(name="sql", source=ClaimPath(claim="adapters", path=""))
ON_THE_HUB = ServedAdapter(
    name="team/poems:v2", source=HubCommit(id="acme/poems", revision="a" * 40)
)


def deployment_with(*adapters: ServedAdapter, rank: int = 16, **changes: Any) -> Deployment:
    return a_deployment(adapters=Adapters(served=adapters, rank=rank), **changes)


def said_of_adapters(deployment: Deployment) -> list[str]:
    """Return the words that the engine is told from the switch on."""
    words = engine_of(render(a_plan(), deployment))["args"]
    return [str(word) for word in words[words.index("--enable-lora") :]]


def test_every_adapter_has_a_slot_and_the_name_that_clients_ask_for() -> None:
    assert said_of_adapters(deployment_with(ON_CLAIM, ON_THE_SAME, ON_THE_HUB, rank=64)) == [
        "--enable-lora",
        *("--max-loras", "3", "--max-lora-rank", "64", "--lora-modules"),
        "support=/adapters/0/support/v3",
        "sql=/adapters/0",
        f"team/poems:v2=/cache/adapters/acme/poems/{'a' * 40}",
    ]


def test_a_claim_of_several_adapters_is_mounted_once_and_cannot_be_written() -> None:
    pod = pod_of(render(a_plan(), deployment_with(ON_CLAIM, ON_THE_SAME)))

    claimed = [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert claimed == [
        {"name": "adapters-0", "persistentVolumeClaim": {"claimName": "adapters", "readOnly": True}}
    ]
    (engine,) = pod["containers"]
    assert {"name": "adapters-0", "mountPath": "/adapters/0", "readOnly": True} in engine[
        "volumeMounts"
    ]


def test_adapters_on_the_claim_of_the_weights_are_read_from_where_it_is_mounted_already() -> None:
    deployment = deployment_with(ON_CLAIM, claim=ClaimPath(claim="adapters", path="llama"))

    assert said_of_adapters(deployment)[-1] == "support=/models/support/v3"
    assert [volume["name"] for volume in pod_of(render(a_plan(), deployment))["volumes"]].count(
        "models"
    ) == 1


def test_an_adapter_of_the_hub_is_downloaded_at_its_commit_before_the_engine_starts() -> None:
    deployment = deployment_with(ON_THE_HUB, ON_CLAIM, hub_token=SecretKey(name="hub", key="token"))

    (container,) = pod_of(render(a_plan(), deployment))["initContainers"]

    assert container["args"][3:] == [
        "acme/poems",
        "a" * 40,
        f"/cache/adapters/acme/poems/{'a' * 40}",
    ]
    (engine,) = pod_of(render(a_plan(), deployment))["containers"]
    assert {
        "name": "cache",
        "mountPath": "/cache/adapters",
        "subPath": "adapters",
        "readOnly": True,
    } in engine["volumeMounts"]
    assert {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
    } in container["env"]
    assert "weights.py" in of_kind(render(a_plan(), deployment).objects, "ConfigMap")[0]["data"]


def test_model_and_adapters_share_one_download_and_one_cache() -> None:
    bundle = render(a_plan(), deployment_with(ON_THE_HUB, cache=CacheClaim(claim="hub")))

    (container,) = pod_of(bundle)["initContainers"]

    folder = f"/cache/adapters/acme/poems/{'a' * 40}"
    assert container["args"] == [
        "meta-llama/Llama-3.1-405B-Instruct",
        "",
        "",
        "acme/poems",
        "a" * 40,
        folder,
    ]
    assert environment_of(bundle)["HF_HUB_OFFLINE"] == "1"


def test_names_reach_the_engine_as_they_stand() -> None:
    """The API takes no such names; no layer below relies on it."""
    odd = ServedAdapter(name="$(HF_TOKEN) `id`; $x", source=ClaimPath(claim="c", path="$(POD_IP)"))

    assert (
        said_of_adapters(deployment_with(odd))[-1]
        == "$$(HF_TOKEN) `id`; $$x=/adapters/0/$$(POD_IP)"
    )


DRAFT_ON_THE_HUB = HubCommit(id="acme/draft", revision="b" * 40)


def test_a_draft_model_of_the_hub_is_downloaded_after_the_weights_and_before_adapters() -> None:
    drafted: dict[str, Any] = {"draft_tokens": 3, "draft_model": DRAFT_ON_THE_HUB}
    bundle = render(a_plan(), deployment_with(ON_THE_HUB, cache=CacheClaim(claim="hub"), **drafted))

    (container,) = pod_of(bundle)["initContainers"]

    assert container["args"] == [
        *("meta-llama/Llama-3.1-405B-Instruct", "", ""),
        *("acme/draft", "b" * 40, f"/cache/drafts/acme/draft/{'b' * 40}"),
        *("acme/poems", "a" * 40, f"/cache/adapters/acme/poems/{'a' * 40}"),
    ]
    assert environment_of(bundle)["HF_HUB_OFFLINE"] == "1"


def test_a_draft_model_is_downloaded_where_the_weights_lie_on_a_claim() -> None:
    on_claim = a_deployment(
        claim=ClaimPath(claim="weights", path=""),
        drafts_by=DraftMethod.DRAFT_MODEL,
        draft_tokens=3,
        draft_model=DRAFT_ON_THE_HUB,
    )

    (container,) = pod_of(render(a_plan(), on_claim))["initContainers"]

    assert container["args"] == ["acme/draft", "b" * 40, f"/cache/drafts/acme/draft/{'b' * 40}"]


def test_a_draft_model_on_a_claim_is_mounted_once_and_cannot_be_written() -> None:
    def claims_and_folder(draft: ClaimPath, **sources: Any) -> tuple[list[str], str]:
        bundle = render(
            a_plan(),
            a_deployment(
                drafts_by=DraftMethod.DRAFT_MODEL, draft_tokens=3, draft_model=draft, **sources
            ),
        )
        claimed = [
            volume for volume in pod_of(bundle)["volumes"] if "persistentVolumeClaim" in volume
        ]
        assert all(volume["persistentVolumeClaim"]["readOnly"] for volume in claimed)
        words = engine_of(bundle)["args"]
        return [volume["name"] for volume in claimed], json.loads(
            words[words.index("--speculative-config") + 1]
        )["model"]

    draft, weights = (
        ClaimPath(claim="drafts", path="llama/1b"),
        ClaimPath(claim="weights", path="llama/70b"),
    )
    adapters = Adapters(served=(ON_CLAIM,))
    assert claims_and_folder(draft) == (["drafts"], "/drafts/llama/1b")
    assert claims_and_folder(draft, claim=weights) == (["drafts", "models"], "/drafts/llama/1b")
    assert claims_and_folder(replace(draft, claim="weights"), claim=weights) == (
        ["models"],
        "/models/llama/1b",
    )
    assert claims_and_folder(replace(draft, claim="adapters"), adapters=adapters) == (
        ["adapters-0"],
        "/adapters/0/llama/1b",
    )


IMAGE = ImagePath(reference="registry.internal/llama:405b", path="/llama/405b/")


def test_an_image_is_mounted_where_a_claim_would_be_and_the_engine_runs_offline() -> None:
    bundle = render(a_plan(), a_deployment(weights_image=IMAGE, revision="abc"))

    assert {"name": "models", "image": {"reference": "registry.internal/llama:405b"}} in pod_of(
        bundle
    )["volumes"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in engine_of(bundle)[
        "volumeMounts"
    ]
    words = engine_of(bundle)["args"]
    assert (words[0], "--revision" in words, environment_of(bundle)["HF_HUB_OFFLINE"]) == (
        "/models/llama/405b",
        False,
        "1",
    )


def test_the_image_at_its_root_is_pulled_as_the_user_says() -> None:
    bundle = render(
        a_plan(), a_deployment(weights_image=replace(IMAGE, path="", pull_policy="Always"))
    )

    (volume,) = (volume for volume in pod_of(bundle)["volumes"] if volume["name"] == "models")
    assert volume["image"] == {"reference": "registry.internal/llama:405b", "pullPolicy": "Always"}
    assert engine_of(bundle)["args"][0] == "/models"


def test_the_engine_reads_what_a_node_has_pulled_as_from_a_claim() -> None:
    def budget_of(**source: Any) -> str:
        (group,) = of_kind(render(a_plan(), a_deployment(**source)).objects, "StatefulSet")
        return str(group["metadata"]["annotations"]["shardwright.io/start-up-budget"])

    pulled, claimed = (
        budget_of(weights_image=IMAGE),
        budget_of(claim=ClaimPath(claim="c", path="")),
    )
    assert pulled == claimed


def test_adapters_on_claims_stand_beside_an_image() -> None:
    deployment = deployment_with(ON_CLAIM, weights_image=IMAGE)

    assert said_of_adapters(deployment)[-1] == "support=/adapters/0/support/v3"
    names = [volume["name"] for volume in pod_of(render(a_plan(), deployment))["volumes"]]
    assert names[-2:] == ["models", "adapters-0"]


def test_without_adapters_nothing_is_said_of_them() -> None:
    bundle = render(a_plan(), a_deployment())

    assert not [word for word in engine_of(bundle)["args"] if "lora" in word]
    (download,) = pod_of(bundle)["initContainers"]
    assert download["args"] == ["meta-llama/Llama-3.1-405B-Instruct", "", ""]
