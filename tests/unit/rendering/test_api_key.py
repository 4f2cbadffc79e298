"""The key that clients must send: a reference in the pod, nowhere a value, and the watcher sends
it, too.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from shardwright.rendering.bundle import TEMPLATE_HASH, of_kind
from shardwright.rendering.deployment import CacheClaim, Deployment, SecretKey
from shardwright.rendering.guards import GUARDS
from shardwright.rendering.place import bare_pods
from shardwright.rendering.render import render, restored
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_plan, a_small_plan
from tests.support.ranks import Rank, ranks_of
from tests.support.rendered import engine_of, environment_of, pod_of

KEY = SecretKey(name="clients", key="api-key")
REFERENCE = {"secretKeyRef": {"name": "clients", "key": "api-key"}}


def test_the_kubelet_hands_the_key_to_the_engine_and_to_nobody_else() -> None:
    bundle = render(a_plan(), a_deployment(api_key=KEY, cache=CacheClaim(claim="hub")))

    assert environment_of(bundle)["VLLM_API_KEY"] == REFERENCE
    (download,) = pod_of(bundle)["initContainers"]
    assert "VLLM_API_KEY" not in {variable["name"] for variable in download["env"]}
    assert "clients" not in json.dumps(
        [engine_of(bundle)["args"], *map(dict, of_kind(bundle.objects, "ConfigMap"))]
    )
    assert "VLLM_API_KEY" not in environment_of(render(a_plan(), a_deployment()))


def test_only_a_launch_script_whose_engine_demands_a_key_looks_at_it() -> None:
    launch = [
        of_kind(render(a_plan(), a_deployment(api_key=key)).objects, "ConfigMap")[0]["data"][
            "launch.sh"
        ]
        for key in (KEY, None)
    ]
    assert ["VLLM_API_KEY" in text for text in launch] == [True, False]


def test_a_variable_of_the_user_never_replaces_the_key() -> None:
    deployment = a_deployment(api_key=KEY, environment=(("VLLM_API_KEY", "own"),))
    assert environment_of(render(a_plan(), deployment))["VLLM_API_KEY"] == REFERENCE


def test_another_reference_is_another_template() -> None:
    keys = (
        None,
        KEY,
        SecretKey(name="clients", key="next"),
        SecretKey(name="others", key="api-key"),
    )
    bundles = [render(a_plan(), a_deployment(api_key=key)) for key in keys]

    hashes = {
        of_kind(bundle.objects, "StatefulSet")[0]["spec"]["template"]["metadata"]["labels"][
            TEMPLATE_HASH
        ]
        for bundle in bundles
    }
    assert len(hashes) == len(keys)


def protected(tmp_path: Path, **settings: Any) -> Any:
    deployment = a_deployment(api_key=KEY, silence_seconds=1, idle_seconds=1)
    return ranks_of(
        a_small_plan(), deployment, tmp_path, silence_seconds=30, idle_seconds=0.2, **settings
    )


def is_ready(rank: Rank) -> bool:
    return rank.run("probe.sh", "readiness").returncode == 0


def test_an_engine_that_demands_the_key_brings_tokens_to_the_watcher_and_drains(
    tmp_path: Path,
) -> None:
    with protected(tmp_path) as (rank,):
        rank.tell("completion", "hang")
        rank.start()
        wait_for(lambda: "no token has come yet" in rank.run("probe.sh", "readiness").stdout)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://127.0.0.1:{rank.settings.network.http_port}/v1/models")
        assert not is_ready(rank)

        rank.tell("completion", "200")
        wait_for(lambda: is_ready(rank))
        assert "completions" not in rank.log
        assert rank.run("drain.sh").returncode == 0


@pytest.mark.parametrize("key", ["", "two words", "a line\n", "caf\u00e9"])
def test_a_key_that_no_client_could_send_starts_no_engine(key: str, tmp_path: Path) -> None:
    with protected(tmp_path) as (rank,):
        rank.environment["VLLM_API_KEY"] = key
        rank.start()
        assert rank.wait() == 65
        assert rank.last_words == (
            "shardwright: rank 0: the API key is empty, or holds a space, a line break or what is "
            "not ASCII: fix the Secret\n"
        )
        assert not rank.started()


def test_the_engine_loads_the_guard_last_of_all_so_that_it_is_asked_first() -> None:
    args = engine_of(render(a_plan(), a_deployment(api_key=KEY)))["args"]
    assert args[-2:] == ["--middleware", "key_guard.KeyGuard"]
    assert "--middleware" not in engine_of(render(a_plan(), a_deployment()))["args"]


def test_the_engine_finds_the_guard_beside_its_scripts(tmp_path: Path) -> None:
    with protected(tmp_path) as (rank,):
        rank.environment["PYTHONPATH"] = "/of-the-image"
        rank.start()
        folder = rank.root / "scripts"
        assert rank.engine()["environment"]["PYTHONPATH"] == f"/of-the-image:{folder}"
        assert (folder / "key_guard.py").is_file()


def test_a_revision_from_before_the_guard_is_restored_with_it() -> None:
    plan, deployment = a_plan(), a_deployment(api_key=KEY)
    made = bare_pods(plan, deployment).template
    guarded, before = labelled(made, {"own": "1"}), labelled(made, {GUARDS: ""})
    open_to_all = labelled(bare_pods(plan, a_deployment()).template, {"own": "1"})

    def found(template: Mapping[str, Any], deployment: Deployment) -> bool:
        kept = replace(bare_pods(plan, deployment), template=template)
        return restored(kept, plan, plan, deployment) is not None

    assert found(guarded, deployment)
    assert not found(before, deployment)  # this release makes its pods
    assert found(open_to_all, a_deployment())  # no key is asked for


def labelled(template: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a template with these labels beside its own."""
    metadata = template["metadata"]
    return {**template, "metadata": {**metadata, "labels": {**metadata["labels"], **labels}}}
