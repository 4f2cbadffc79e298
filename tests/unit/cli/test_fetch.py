"""Models by their ids alone: ``--fetch``, ``fetch`` and the folders of ``--config``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.main import main
from tests.support.builders_cli import Files, a_foreign_pod, a_listed_node, a_manifest
from tests.support.builders_model import a_config
from tests.support.loopback_hub import COMMIT, OLDER, LoopbackHub, Repository, a_hub, giving

Capture = pytest.CaptureFixture[str]
CONFIG = json.dumps(a_config(hidden_size=4096, vocab_size=128256)).encode()
INDEX = b'{"metadata": {"total_size": 2147483648}}'
QUANTIZATION = json.dumps({"quantization": {"quant_algo": "NVFP4"}}).encode()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_PROXY", "*")
    files = Files(tmp_path)
    files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])
    return files


@pytest.fixture
def hub(files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    assert files.folder.is_dir()
    with a_hub(
        us__ours=Repository(files={"config.json": CONFIG, "model.safetensors.index.json": INDEX})
    ) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


def _planned(
    files: Files, *manifests: dict[str, Any], words: tuple[str, ...] = ("--fetch",)
) -> int:
    files.manifests(*manifests)
    return main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml", "-o", "json", *words])


@pytest.mark.usefixtures("hub")
def test_a_model_that_is_not_built_in_is_planned_by_its_id(files: Files, capsys: Capture) -> None:
    assert _planned(files, a_manifest(model="us/ours")) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["items"][0]["model"] == {"id": "us/ours", "parameters": 1_554_059_264}
    assert err == (
        f"note: us/ours: config.json of commit {COMMIT}, the newest: spec.model.revision pins it; "
        "its tensors have 2.0 GiB by "
        "model.safetensors.index.json, 2.9 GiB are counted (without scales of quantization)\n"
    )


@pytest.mark.usefixtures("hub")
def test_gpus_are_counted_for_a_model_of_the_hub(capsys: Capture) -> None:
    assert (
        main(["size", "us/ours", "--gpus", "H100", "--concurrency", "1", "--fetch", "-o", "json"])
        == 0
    )

    assert json.loads(capsys.readouterr().out)["sizes"][0]["gpus"] == 1


def test_the_quantization_file_counts(hub: LoopbackHub, files: Files, capsys: Capture) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG, "hf_quant_config.json": QUANTIZATION}
    )
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["quantization"] = (
        "FP8"  # refused of weights that are quantized already
    )

    assert _planned(files, manifest) == 2
    assert "modelopt weights cannot become FP8" in capsys.readouterr().err


def test_a_model_is_fetched_once_at_each_commit_that_is_named(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    older = json.dumps(a_config(hidden_size=4096, vocab_size=128256, num_hidden_layers=4)).encode()
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG}, older={"config.json": older}
    )
    pinned = a_manifest("c", model="us/ours")
    pinned["spec"]["model"]["revision"] = OLDER

    assert (
        _planned(files, a_manifest("a", model="us/ours"), a_manifest("b", model="us/ours"), pinned)
        == 0
    )

    out, err = capsys.readouterr()
    assert [document["model"]["parameters"] for document in json.loads(out)["items"]] == [
        1_554_059_264,
        1_554_059_264,
        1_302_368_256,
    ]
    assert [
        path for path, _ in hub.seen if path.endswith("/config.json") and "/resolve/" in path
    ] == ["/us/ours/resolve/main/config.json", f"/us/ours/resolve/{OLDER}/config.json"]
    assert err.splitlines()[1] == f"note: us/ours: config.json of commit {OLDER}"


def test_nothing_is_asked_of_a_model_whose_config_is_there(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    inline = a_manifest("b", model="us/others")
    inline["spec"]["model"]["config"] = json.loads(CONFIG)

    assert _planned(files, a_manifest("a", model="Qwen/Qwen3-0.6B"), inline) == 0
    assert hub.seen == []
    assert capsys.readouterr().err == ""


def test_without_the_option_nothing_is_asked_and_the_message_names_it(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    assert _planned(files, a_manifest(model="us/ours"), words=()) == 2
    assert (
        "; --fetch reads it from the hub, --config FILE takes its config.json, "
        in capsys.readouterr().err
    )
    assert hub.seen == []


def test_a_draft_model_is_fetched_too(hub: LoopbackHub, files: Files, capsys: Capture) -> None:
    hub.repositories["us/draft"] = Repository(
        files={"config.json": json.dumps(a_config(vocab_size=128256)).encode()}
    )
    head = {"id": "us/draft", "uri": f"hf://us/draft@{COMMIT}"}
    drafts = {"speculation": {"method": "DraftModel", "head": head}}

    assert _planned(files, a_manifest(model="us/ours", engine=drafts)) == 0, capsys.readouterr().err
    assert "note: us/draft: config.json of commit" in capsys.readouterr().err


@pytest.mark.usefixtures("hub")
def test_every_model_that_the_hub_does_not_give_is_named_with_its_field(
    files: Files, capsys: Capture
) -> None:
    head = {"id": "us/draft", "uri": f"hf://us/draft@{COMMIT}"}
    drafts = {"speculation": {"method": "DraftModel", "head": head}}

    assert (
        _planned(
            files, a_manifest("a", model="us/none"), a_manifest("b", model="us/ours", engine=drafts)
        )
        == 2
    )

    out, err = capsys.readouterr()
    assert [item["path"] for item in json.loads(out)["items"]] == [
        "model.yaml: spec.model.id",
        "model.yaml: spec.engine.speculation.head.id",
    ]
    assert [
        line.partition(" is not on")[0] for line in err.splitlines() if line.startswith("error")
    ] == [
        "error[HubModelMissing]: model.yaml: spec.model.id: 'us/none'",
        "error[HubModelMissing]: model.yaml: spec.engine.speculation.head.id: 'us/draft'",
    ]


def test_a_hub_that_cannot_be_asked_is_no_fault_of_the_input(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    hub.answers["/us/ours/resolve/main/config.json"] = giving(b"", 429, Retry_After="5")

    assert _planned(files, a_manifest(model="us/ours")) == 3
    assert "error[HubUnavailable]: 127.0.0.1:" in capsys.readouterr().err


def test_the_token_of_the_environment_is_used(
    hub: LoopbackHub, files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG}, gated=True, readers=frozenset({"hf_reader"})
    )
    monkeypatch.setenv("HF_TOKEN", "hf_reader")

    assert _planned(files, a_manifest(model="us/ours")) == 0, capsys.readouterr().err


def test_fetch_prints_a_config_map_that_a_model_can_name(
    files: Files, hub: LoopbackHub, capsys: Capture
) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG, "hf_quant_config.json": b"{}"}
    )

    assert main(["fetch", "us/ours"]) == 0

    out, err = capsys.readouterr()
    config_map = yaml.safe_load(out)
    assert config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map["metadata"]["name"],
            "annotations": {
                "shardwright.io/hub-model": "us/ours",
                "shardwright.io/hub-commit": COMMIT,
            },
        },
        "immutable": True,
        "data": {"config.json": CONFIG.decode(), "hf_quant_config.json": "{}"},
    }
    name = config_map["metadata"]["name"]
    assert name.startswith("us-ours-")
    assert name.endswith("-0123456789ab")
    assert err == (
        f"note: set spec.model to {{id: us/ours, revision: {COMMIT}, configMapRef: {{name: {name}"
        "}}\n"
    )
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"] |= {"revision": COMMIT, "configMapRef": {"name": name}}
    assert _planned(files, manifest, config_map, words=()) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_fetch_refuses_what_is_no_id_and_no_commit(capsys: Capture) -> None:
    assert main(["fetch", "../etc", "--revision", "main"]) == 2

    assert capsys.readouterr().err.splitlines() == [
        "error[BadFormat]: MODEL: '../etc' must be the id of a repository of the hub, as org/name",
        "error[BadFormat]: --revision: 'main' must be a commit: 40 hexadecimal digits",
    ]


def test_offline_the_cache_of_the_hub_is_read_alone(
    hub: LoopbackHub, files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    _in_cache(files.folder / "hf" / "hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    assert _planned(files, a_manifest(model="us/ours")) == 0, capsys.readouterr().err
    assert hub.seen == []


def test_config_takes_a_models_folder_of_the_cache(files: Files, capsys: Capture) -> None:
    folder = _in_cache(files.folder / "cache")

    assert _planned(files, a_manifest(model="us/ours"), words=("--config", str(folder))) == 0, (
        capsys.readouterr().err
    )


def test_config_takes_no_folder_without_a_config(files: Files, capsys: Capture) -> None:
    (files.folder / "empty").mkdir()

    assert _planned(files, a_manifest(model="us/ours"), words=("--config", "empty")) == 2
    assert capsys.readouterr().err == (
        "error[FileUnreadable]: empty: no config.json is in it; give the folder of a checkpoint, "
        "or models--ORG--NAME of the "
        "cache of the hub\n"
    )


def _in_cache(cache: Path) -> Path:
    model = cache / "models--us--ours"
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT / "config.json").write_bytes(CONFIG)
    return model


def test_a_model_that_is_typed_is_fetched_and_its_problems_are_of_what_was_typed(
    hub: LoopbackHub, capsys: Capture
) -> None:
    assert main(["plan", "us/ours", "--gpus", "1xH100", "--fetch", "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)["items"][0]
    hub.repositories = {}

    assert main(["plan", "us/ours", "--gpus", "1xH100", "--fetch"]) == 2
    assert planned["model"]["parameters"] == 1_554_059_264
    assert capsys.readouterr().err.startswith("error[HubModelMissing]: MODEL: 'us/ours' is not on ")
