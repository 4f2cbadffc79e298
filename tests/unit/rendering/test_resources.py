"""What pods are bounded by: memory and disk by default, folders to write to, and what goes before
that.
"""

from typing import Any

import pytest

from shardwright.engines.environment import BELOW_OWN
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.deployment import CacheClaim, Ceiling, ClaimPath, Deployment, HubCommit
from shardwright.rendering.render import render
from shardwright.units import GIB
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_stage,
    a_trtllm_deployment,
)
from tests.support.rendered import engine_of, environment_of, pod_of

WEIGHTS = ClaimPath(claim="weights", path="")
DRAFT = HubCommit(id="acme/draft", revision="0" * 40)
DEPLOYMENTS = {
    "from the hub": a_deployment(),
    "from a claim": a_deployment(claim=ClaimPath(claim="weights", path="")),
    "kept on a shared claim": a_deployment(cache=CacheClaim(claim="hub")),
    "kept on claims of the pods": a_deployment(cache=CacheClaim(storage="1Ti")),
    "over Ray": a_deployment(over_ray=True),
    "TensorRT-LLM": a_trtllm_deployment(),
}


def bounds(
    plan: Plan, deployment: Deployment, part: str = "limits"
) -> tuple[str | None, str | None]:
    """Return what the engine's container has of memory and of local disk."""
    found = engine_of(render(plan, deployment))["resources"][part]
    return found.get("memory"), found.get("ephemeral-storage")


def containers(deployment: Deployment, plan: Plan | None = None) -> list[dict[str, Any]]:
    pod = pod_of(render(plan or a_plan(), deployment))
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.mark.parametrize(
    ("layout", "nodes", "cores"),
    [
        (Layout(), 1, "2"),
        (Layout(tensor=8), 1, "9"),
        (Layout(attention_data=8, expert=8), 1, "23"),
        (Layout(tensor=4, attention_data=4, expert=16), 2, "11"),
        (Layout(tensor=8, attention_data=2, expert=16), 2, "9"),
    ],
)
def test_cores_follow_the_workers_the_engines_and_their_servers_of_a_pod(
    layout: Layout, nodes: int, cores: str
) -> None:
    found = engine_of(render(a_plan_of(layout, nodes), a_deployment()))["resources"]["requests"]
    assert found["cpu"] == cores


def test_ranks_of_one_engine_need_cores_for_one_engine() -> None:
    plan = a_plan_of(Layout(attention_data=8, expert=8))

    assert engine_of(render(plan, a_trtllm_deployment()))["resources"]["requests"]["cpu"] == "9"


def test_memory_is_requested_for_the_tokens_of_requests_that_may_be_very_long() -> None:
    """A worker's table has 4 bytes for each: 1,024 requests of 262,144 tokens are in its reserve."""
    usual, long = (
        bounds(a_small_plan(max_sequences=1024, max_model_len=length), a_deployment(), "requests")[
            0
        ]
        for length in (262_144, 1_048_576)
    )
    assert (usual, long) == ("9728Mi", "12800Mi")


def test_pods_request_the_disk_that_is_planned_for_them_unless_somebody_states_it() -> None:
    planned = a_small_plan(disk_bytes=17 * GIB)
    found = [
        bounds(plan, deployment, "requests")[1]
        for plan, deployment in (
            (planned, a_deployment()),
            (planned, a_deployment(ephemeral_storage="40Gi")),
            (a_small_plan(), a_deployment()),
        )
    ]
    assert found == ["17Gi", "40Gi", "0"]


@pytest.mark.parametrize("case", DEPLOYMENTS)
def test_no_container_writes_to_its_image(case: str) -> None:
    assert all(
        item["securityContext"]["readOnlyRootFilesystem"] for item in containers(DEPLOYMENTS[case])
    )


@pytest.mark.parametrize("case", DEPLOYMENTS)
def test_every_folder_that_a_library_is_told_to_write_to_is_on_a_volume_that_can_be_written(
    case: str,
) -> None:
    bundle = render(a_plan(), DEPLOYMENTS[case])
    told = environment_of(bundle)
    writable = tuple(
        f"{item['mountPath']}/"
        for item in engine_of(bundle)["volumeMounts"]
        if not item.get("readOnly")
    )

    assert [
        name for name in (*BELOW_OWN, "TMPDIR") if not f"{told[name]}/".startswith(writable)
    ] == []


def test_an_image_that_writes_elsewhere_can_be_let() -> None:
    deployment = a_deployment(read_only_root=False, cache=CacheClaim(claim="hub"))

    assert [
        "readOnlyRootFilesystem" in item["securityContext"] for item in containers(deployment)
    ] == [False, False]


def test_an_admitted_folder_goes_before_ours_and_one_that_cannot_be_admitted_does_not() -> None:
    chosen = environment_of(
        render(
            a_plan(),
            a_deployment(environment=(("TRITON_CACHE_DIR", "/cache/k"), ("HOME", "/root"))),
        )
    )

    assert (chosen["TRITON_CACHE_DIR"], chosen["HOME"]) == ("/cache/k", "/cache/own/home")


def test_what_the_launch_script_keeps_of_a_start_is_bounded() -> None:
    volumes = {item["name"]: item for item in pod_of(render(a_plan(), a_deployment()))["volumes"]}

    assert volumes["run"]["emptyDir"] == {"sizeLimit": "16Mi"}


@pytest.mark.parametrize(
    ("deployment", "requested", "limit"),
    [
        (a_deployment(), "0", "80Gi"),
        (a_deployment(quantization="fp8"), "0", "110Gi"),
        (a_deployment(claim=ClaimPath(claim="weights", path="")), "0", "50Gi"),
        (a_deployment(cache=CacheClaim(storage="1Ti")), "0", "50Gi"),
        (a_deployment(ephemeral_storage="9Gi"), "9Gi", "9Gi"),
        (a_deployment(ephemeral_storage="0"), "0", None),
        (a_deployment(ephemeral_storage="0.0Gi"), "0.0Gi", None),
    ],
)
def test_a_pod_has_the_disk_for_what_it_downloads_to_it(
    deployment: Deployment, requested: str, limit: str | None
) -> None:
    assert (
        bounds(a_small_plan(), deployment, "requests")[1],
        bounds(a_small_plan(), deployment)[1],
    ) == (requested, limit)


def test_who_states_no_memory_has_no_limit_of_it() -> None:
    deployment = a_deployment(memory="0")

    assert (
        bounds(a_small_plan(), deployment, "requests")[0],
        bounds(a_small_plan(), deployment)[0],
    ) == ("0", None)


@pytest.mark.parametrize(
    ("deployment", "limit"),
    [
        (
            a_deployment(claim=WEIGHTS, draft_model=DRAFT),
            "82Gi",
        ),  # 50 GiB, and twice 2 GiB of each of 8 ranks
        (a_deployment(claim=WEIGHTS, draft_model=DRAFT, cache=CacheClaim(storage="1Ti")), "50Gi"),
        (a_deployment(claim=WEIGHTS, draft_model=ClaimPath(claim="drafts", path="")), "50Gi"),
        (
            a_deployment(draft_model=DRAFT),
            "805Gi",
        ),  # 405 GB are downloaded at once, the draft model among them
    ],
)
def test_a_draft_model_that_is_downloaded_has_room_on_the_disk_wherever_the_model_lies(
    deployment: Deployment, limit: str
) -> None:
    plan = a_plan_of(Layout(tensor=8), stages=(a_stage(draft_bytes=2 * GIB),))

    assert bounds(plan, deployment)[1] == limit


def test_each_rank_may_hold_a_whole_file_of_the_checkpoint_in_memory() -> None:
    # 9.5 GiB requested, 16 GiB to spare, and the file: 14.9 GiB, twice that in 16 bits, at most 50
    # GB
    assert bounds(a_small_plan(), a_deployment())[0] == "41Gi"
    assert bounds(a_small_plan(), a_deployment(quantization="fp8"))[0] == "56Gi"
    assert bounds(a_small_plan(load_bytes_per_node=10**12), a_deployment())[0] == "73Gi"


def test_a_host_that_shares_memory_with_its_gpus_has_that_memory_in_its_limit() -> None:
    assert (
        bounds(a_small_plan(architecture="arm64"), a_deployment())[0] == "120Gi"
    )  # 79.3 GiB of GPU memory more


def test_what_downloads_first_has_the_limits_of_the_engine_and_asks_for_less() -> None:
    download, engine = containers(a_deployment(cache=CacheClaim(storage="1Ti")), a_small_plan())

    assert download["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "0"},
        "limits": {"memory": "41Gi", "ephemeral-storage": "50Gi"},
    }
    assert engine["resources"]["limits"] == {
        **download["resources"]["limits"],
        "nvidia.com/gpu": "1",
    }


def test_what_downloads_first_never_asks_for_more_than_it_may_use() -> None:
    download, _ = containers(
        a_deployment(cache=CacheClaim(storage="1Ti"), memory="512Mi"), a_small_plan()
    )

    assert (
        download["resources"]["requests"]["memory"],
        download["resources"]["limits"]["memory"],
    ) == ("512Mi", "512Mi")


@pytest.mark.parametrize(
    ("ceiling", "limit"),
    [
        (Ceiling(resource="memory", given_bytes=32 * GIB), None),  # the namespace gives one itself
        (Ceiling(resource="memory", given_bytes=90 * GIB, most_bytes=100 * GIB), None),
        (
            Ceiling(resource="memory", given_bytes=100 * GIB, most_bytes=64 * GIB),
            "41Gi",
        ),  # what it gives would be refused
        (
            Ceiling(resource="memory", given_bytes=1 * GIB),
            "41Gi",
        ),  # which would be below the request
        (Ceiling(resource="memory", most_bytes=20 * GIB), "20Gi"),
        (Ceiling(resource="memory", most_bytes=64 * GIB), "41Gi"),
        (
            Ceiling(resource="memory", most_bytes=4 * GIB),
            "9728Mi",
        ),  # the LimitRange refuses it, and is named
    ],
)
def test_a_limit_range_goes_before_the_default(ceiling: Ceiling, limit: str | None) -> None:
    assert bounds(a_small_plan(), a_deployment(ceilings=(ceiling,))) == (limit, "80Gi")


def test_what_the_spec_states_goes_before_a_limit_range() -> None:
    ceiling = Ceiling(resource="memory", given_bytes=32 * GIB, most_bytes=32 * GIB)

    assert bounds(a_small_plan(), a_deployment(memory="64Gi", ceilings=(ceiling,))) == (
        "64Gi",
        "80Gi",
    )
