"""Models by their ids alone: the hub, what is kept of it, ``--offline`` and ``--config``."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from shardwright.cli.completion import completions
from shardwright.cli.main import main
from shardwright.hub import checkpoint
from tests.support.builders_cli import Files, a_foreign_pod, a_listed_node, a_manifest
from tests.support.builders_model import a_config
from tests.support.loopback_hub import (
    COMMIT,
    OLDER,
    Handler,
    LoopbackHub,
    Repository,
    a_hub,
    giving,
)

Capture = pytest.CaptureFixture[str]
CONFIG = json.dumps(a_config(hidden_size=4096, vocab_size=128256)).encode()
INDEX = b'{"metadata": {"total_size": 2147483648}}'
QUANTIZATION = json.dumps({"quantization": {"quant_algo": "NVFP4"}}).encode()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
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


def _planned(files: Files, *manifests: dict[str, Any], words: tuple[str, ...] = ()) -> int:
    files.manifests(*manifests)
    return main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml", "-o", "json", *words])


@pytest.mark.usefixtures("hub")
def test_a_model_that_is_not_built_in_is_planned_by_its_id(files: Files, capsys: Capture) -> None:
    assert _planned(files, a_manifest(model="us/ours")) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["items"][0]["model"] == {"id": "us/ours", "parameters": 1_554_059_264}
    assert err == (
        f"note: us/ours: config.json of commit {COMMIT}, the newest: spec.model.revision pins it\n"
    )


@pytest.mark.usefixtures("hub")
def test_gpus_are_counted_for_a_model_of_the_hub(capsys: Capture) -> None:
    words = ["size", "us/ours", "--gpus", "H100", "--concurrency", "1", "-o", "json"]
    assert main(words) == 0

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


def test_offline_nobody_is_asked_and_the_way_out_is_said_with_the_id_that_is_meant(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    assert _planned(files, a_manifest(model="Qwen/qwen3-8b"), words=("--offline",)) == 2

    assert capsys.readouterr().err == (
        "error[HubModelMissing]: model.yaml: spec.model.id: 'Qwen/qwen3-8b' at main is not in the "
        f"cache {files.folder / 'hf' / 'hub'}, and the hub must not be asked, did you mean "
        "'Qwen/Qwen3-8B'?; give its config.json with --config FILE, or leave --offline and "
        "HF_HUB_OFFLINE out\n"
    )
    assert hub.seen == []


def test_what_was_read_is_kept_and_then_nobody_is_asked(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG, "hf_quant_config.json": QUANTIZATION}
    )
    assert _planned(files, a_manifest(model="us/ours")) == 0
    first, seen = capsys.readouterr().out, list(hub.seen)
    kept = next((files.folder / "caches/shardwright/hub").glob("*/models--us--ours"))
    os.utime(kept / "refs" / "main", (0, 0))

    assert _planned(files, a_manifest(model="us/ours"), words=("--offline",)) == 0

    assert (hub.seen, (again := capsys.readouterr()).out) == (seen, first)
    assert again.err == (
        f"note: us/ours: config.json of commit {COMMIT}, read on 1970-01-01; 'shardwright fetch "
        "us/ours' reads the newest\n"
    )
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_fetch_asks_again_and_the_other_commands_then_take_what_it_has_read(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    assert _planned(files, a_manifest(model="us/ours")) == 0
    smaller = json.dumps(a_config(hidden_size=4096, vocab_size=128256, num_hidden_layers=4))
    hub.repositories["us/ours"] = Repository(files={"config.json": smaller.encode()})
    hub.answers.clear()
    assert main(["fetch", "us/ours"]) == 0
    capsys.readouterr()

    assert _planned(files, a_manifest(model="us/ours"), words=("--offline",)) == 0

    assert json.loads(capsys.readouterr().out)["items"][0]["model"]["parameters"] == 1_302_368_256


@pytest.mark.parametrize("spoilt", ["{", "[]", "\udcff"])
def test_what_is_kept_and_cannot_be_read_is_read_again(
    spoilt: str, hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    assert _planned(files, a_manifest(model="us/ours")) == 0
    kept = next((files.folder / "caches").glob("**/snapshots/*/config.json"))
    kept.write_bytes(spoilt.encode(errors="surrogateescape"))
    asked = len(hub.seen)

    assert _planned(files, a_manifest(model="us/ours")) == 0, capsys.readouterr().err
    assert len(hub.seen) == 2 * asked
    assert kept.read_bytes() == CONFIG


def test_another_hub_has_its_own_models(
    hub: LoopbackHub, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _planned(files, a_manifest(model="us/ours")) == 0
    asked = len(hub.seen)
    with a_hub() as other:
        monkeypatch.setenv("HF_ENDPOINT", other.url)

        assert _planned(files, a_manifest(model="us/ours")) == 2
        assert (len(hub.seen), other.seen != []) == (asked, True)


def test_a_folder_that_takes_nothing_is_a_note(
    hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    (files.folder / "caches").write_text("a file")

    assert _planned(files, a_manifest(model="us/ours")) == 0
    assert hub.seen
    assert capsys.readouterr().err.splitlines()[1] == (
        "note: us/ours: its config cannot be kept: File exists"
    )


def test_no_answer_within_three_seconds_is_one_line_that_names_the_ways_without_it(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert checkpoint.PATIENCE_SECONDS == 3
    monkeypatch.setattr(checkpoint, "PATIENCE_SECONDS", 0.2)
    asked = Event()
    hub.answers["/us/ours/resolve/main/config.json"] = lambda _: (asked.wait(30), None)[1]

    code = main(["plan", "us/ours", "--gpus", "1xH100"])
    asked.set()

    assert code == 3
    host = hub.url.partition("://")[2]
    assert capsys.readouterr().err == (
        f"error[HubUnavailable]: MODEL: {host} did not answer in full within 0 s; try again, or "
        "give its config.json with --config FILE (--offline asks nobody)\n"
    )


@pytest.mark.parametrize(
    "weights",
    [{"uri": "pvc://models/ours"}, {"uri": "s3://ours/ours"}],
    ids=["on a claim", "in a bucket"],
)
def test_the_hub_is_told_no_id_of_weights_that_are_elsewhere(
    weights: dict[str, Any], hub: LoopbackHub, files: Files, capsys: Capture
) -> None:
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["weights"] = weights

    assert _planned(files, manifest) == 2
    assert capsys.readouterr().err.startswith("error[ModelUnknown]: model.yaml: spec.model.id: ")
    assert hub.seen == []


def test_the_hub_gets_the_id_and_the_token_alone(
    hub: LoopbackHub, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, dict[str, str]]] = []

    def seen(request: Handler) -> None:
        sent.append((request.path, dict(request.headers)))
        request.reply(200, CONFIG, X_Repo_Commit=COMMIT)

    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    hub.answers["/us/ours/resolve/main/config.json"] = seen

    assert _planned(files, a_manifest(model="us/ours")) == 0
    assert sent == [
        (
            "/us/ours/resolve/main/config.json",
            {
                "Host": hub.url.partition("://")[2],
                "User-Agent": "shardwright",
                "Accept-Encoding": "identity",
                "Authorization": "Bearer hf_reader",
                "Connection": "close",
            },
        )
    ]


def test_completing_an_id_asks_nobody(hub: LoopbackHub) -> None:
    assert completions(["plan", "us/"]) == []
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
    assert "error[HubUnavailable]: model.yaml: spec.model.id: 127.0.0.1:" in capsys.readouterr().err


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
    assert _planned(files, manifest, config_map, words=("--offline",)) == 0, capsys.readouterr().err


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


@pytest.mark.usefixtures("hub")
def test_a_model_that_is_typed_is_fetched_and_its_problems_are_of_what_was_typed(
    capsys: Capture,
) -> None:
    assert main(["plan", "us/ours", "--gpus", "1xH100", "-o", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)["items"][0]

    assert main(["plan", "us/other", "--gpus", "1xH100"]) == 2
    assert planned["model"]["parameters"] == 1_554_059_264
    assert capsys.readouterr().err.startswith(
        "error[HubModelMissing]: MODEL: 'us/other' is not on "
    )
