"""Which hub the environment names, as whom it is asked, and its cache."""

import json
from pathlib import Path

import pytest

from shardwright.errors import InputError
from shardwright.hub.checkpoint import Checkpoint, fetch, read_folder
from shardwright.hub.places import Hub, hub_of
from tests.support.builders_model import a_config
from tests.support.loopback_hub import COMMIT, OLDER

CONFIG = json.dumps(a_config())


def a_cache(folder: Path, *, newest: str = COMMIT) -> Path:
    """Return the folder of us/ours in a cache as the hub's client keeps it: links to blobs, and the
    newest commit by name.
    """
    model = folder / "models--us--ours"
    (model / "blobs").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(newest)
    for commit, layers in ((COMMIT, 8), (OLDER, 4)):
        (model / "blobs" / commit).write_text(json.dumps(a_config(num_hidden_layers=layers)))
        (model / "snapshots" / commit).mkdir(parents=True)
        (model / "snapshots" / commit / "config.json").symlink_to(f"../../blobs/{commit}")
    return model


def said(environment: dict[str, str]) -> str:
    with pytest.raises(InputError) as caught:
        hub_of(environment)
    (problem,) = caught.value.problems
    return f"{problem.code}: {problem.sentence()}"


def test_without_a_word_it_is_the_public_hub_as_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert hub_of({}) == Hub(
        endpoint="https://huggingface.co", cache=tmp_path / ".cache/huggingface/hub"
    )


def test_the_environment_is_that_of_the_hubs_own_client(tmp_path: Path) -> None:
    stated = {
        "HF_ENDPOINT": "https://mirror.example/hub/",
        "HF_TOKEN": " hf_secret\n",
        "HF_HUB_CACHE": str(tmp_path / "kept"),
    }

    assert hub_of(stated) == Hub(
        endpoint="https://mirror.example/hub", token="hf_secret", cache=tmp_path / "kept"
    )
    assert hub_of({"XDG_CACHE_HOME": "/caches"}).cache == Path("/caches/huggingface/hub")
    assert hub_of({"HF_HOME": "/home/hf"}).cache == Path("/home/hf/hub")
    assert [hub_of({"HF_HUB_OFFLINE": word}).offline for word in ("1", "true", "on", "0", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_token_that_a_login_has_kept_is_used_unless_it_is_unwanted(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_kept\n")
    home = {"HF_HOME": str(tmp_path)}

    assert hub_of(home).token == "hf_kept"
    assert hub_of(home | {"HF_TOKEN": "hf_set"}).token == "hf_set"
    assert hub_of(home | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token is None
    assert hub_of(home | {"HF_HUB_OFFLINE": "1"}).token is None
    assert hub_of({"HF_HOME": str(tmp_path / "none")}).token is None


@pytest.mark.parametrize("token", ["two words", "one\r\nX-Other: a", "caf\u00e9", "a" * 1025])
def test_what_is_no_token_is_refused_and_not_shown(token: str, tmp_path: Path) -> None:
    message = said({"HF_TOKEN": token, "HF_HOME": str(tmp_path)})

    assert message == (
        "HubSettingInvalid: HF_TOKEN holds something other than a token; put the token alone there"
    )


def test_a_token_is_in_no_representation(tmp_path: Path) -> None:
    assert "hf_secret" not in repr(hub_of({"HF_TOKEN": "hf_secret", "HF_HOME": str(tmp_path)}))


@pytest.mark.parametrize(
    "address",
    [
        "huggingface.co",
        "file:///etc",
        "ftp://hub.example",
        "https://",
        "https://me:word@hub.example",
        "https://h:99999",
        "https://[a",
        "https://hub.example/?a",
        "https://hub.example/#a",
        "https://hub.example/a b",
        "https://h\u00fcb.example",
    ],
)
def test_what_is_no_address_of_a_hub_is_refused(address: str) -> None:
    assert said({"HF_ENDPOINT": address}) == (
        "HubSettingInvalid: HF_ENDPOINT is not the address of a hub; set it as "
        "https://huggingface.co, or unset it"
    )


def test_offline_the_cache_gives_the_newest_commit_that_it_knows_or_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    a_cache(tmp_path)
    offline = Hub(offline=True, cache=tmp_path)

    found = fetch(offline, "us/ours", None)

    assert found == Checkpoint(files={"config.json": CONFIG}, commit=COMMIT, tensor_bytes=None)
    assert fetch(offline, "us/ours", OLDER).commit == OLDER


@pytest.mark.parametrize(("model", "revision"), [("us/others", None), ("us/ours", "f" * 40)])
def test_offline_what_is_not_in_the_cache_is_named_with_the_ways_out(
    tmp_path: Path, model: str, revision: str | None
) -> None:
    a_cache(tmp_path)

    with pytest.raises(InputError) as caught:
        fetch(Hub(offline=True, cache=tmp_path), model, revision)

    (problem,) = caught.value.problems
    wanted = revision or "main"
    assert problem.code == "HubModelMissing"
    assert problem.sentence() == (
        f"{model!r} at {wanted} is not in the cache {tmp_path}, and the hub must not be asked; "
        "give its config.json with --config FILE, or leave --offline and HF_HUB_OFFLINE out"
    )


def test_a_folder_is_read_with_what_stands_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "hf_quant_config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 7}}')

    files = {"config.json": CONFIG, "hf_quant_config.json": "{}"}
    assert read_folder(tmp_path) == Checkpoint(files=files, commit=None, tensor_bytes=7)


def test_a_models_folder_of_the_cache_is_that_of_its_newest_commit(tmp_path: Path) -> None:
    model = a_cache(tmp_path, newest=OLDER)

    newest, named = read_folder(model), read_folder(model / "snapshots" / COMMIT)

    assert [found and found.commit for found in (newest, named)] == [OLDER, COMMIT]


@pytest.mark.parametrize("newest", ["../elsewhere", "", "main", "f" * 40])
def test_a_cache_without_the_newest_commit_is_no_checkpoint_whatever_its_name_leads_to(
    tmp_path: Path, newest: str
) -> None:
    model = a_cache(tmp_path, newest=newest)
    for folder in (model / "elsewhere", model / "snapshots"):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(CONFIG)

    assert read_folder(tmp_path) is None
    assert read_folder(model) is None


def test_a_file_that_no_checkpoint_has_so_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b" " * (4 * 1024**2 + 1))

    with pytest.raises(InputError, match=r"config\.json is larger than the limit of 4194304 bytes"):
        read_folder(tmp_path)
