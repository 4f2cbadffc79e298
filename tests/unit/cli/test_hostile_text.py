"""Whatever text is in the files: what the program prints does nothing to a terminal, and its
documents mean what was written.
"""

import json
import os
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.main import main
from shardwright.engines.vllm.environment import VARIABLES
from tests.support.builders_cli import Files, a_listed_node, a_manifest
from tests.support.hostile_text import HOSTILE, is_harmless

WRITABLE = {
    name: text.replace("\0", "")
    for name, text in HOSTILE.items()
    if name not in {"half of a pair", "long"}
}


class Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


def run(
    folder: Path, *words: str, kind: type[TextIOWrapper] = TextIOWrapper
) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error, which must be UTF-8."""
    out, err = (kind(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, _written(out), _written(err)


def _written(stream: TextIOWrapper) -> str:
    written = stream.detach()
    assert isinstance(written, BytesIO)
    return written.getvalue().decode()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.manifests(a_manifest())
    files.cluster([a_listed_node("n1")])
    return files


def hostile_cluster(files: Files) -> None:
    """Write nodes whose taints, names and labels hold all that is hostile; in JSON, which can say
    all of it.
    """
    nodes = []
    for number, text in enumerate(HOSTILE.values()):
        tainted, named, labelled = (
            a_listed_node(f"t{number}"),
            a_listed_node(text),
            a_listed_node(f"l{number}"),
        )
        tainted["spec"] = {"taints": [{"key": text, "value": text, "effect": "NoSchedule"}]}
        for key in labelled["metadata"]["labels"]:
            labelled["metadata"]["labels"][key] = text
        labelled["metadata"]["labels"][text] = text
        nodes += [tainted, named, labelled]
    files.cluster_json(nodes)


@pytest.mark.parametrize("output", ["text", "json"])
def test_taints_names_and_labels_of_nodes_do_nothing_to_who_reads_of_them(
    files: Files, output: str
) -> None:
    hostile_cluster(files)
    code, out, err = run(
        files.folder, "explain", "-f", "model.yaml", "--nodes", "nodes.json", "-o", output
    )
    assert (code, err) == (1, "")
    assert is_harmless(out)
    assert "must be tolerated" in out
    assert output != "json" or json.loads(out)


def test_neither_do_they_in_colours(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    hostile_cluster(files)
    words = ("explain", "-f", "model.yaml", "--nodes", "nodes.json")
    code, out, _ = run(files.folder, *words, kind=Terminal)
    assert code == 1
    assert "\x1b[1;31m" in out
    styles = "".join(
        part.partition("m")[2] if index else part for index, part in enumerate(out.split("\x1b["))
    )
    assert is_harmless(styles)


def test_a_kind_is_printed_on_one_line_that_ends(files: Files) -> None:
    files.raw(
        "model.yaml",
        json.dumps(
            {"kind": "List", "items": [{"kind": text} for text in HOSTILE.values()]}
        ).encode(),
    )
    code, out, err = run(files.folder, "plan", "-f", "model.yaml", "--nodes", "nodes.yaml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert is_harmless(err)
    assert len(err) < 5000


@pytest.mark.parametrize("field", ["name", "model", "apiVersion", "key", "engine", "argument"])
def test_words_of_a_manifest_are_printed_harmless_where_they_are_refused(
    files: Files, field: str
) -> None:
    manifests = []
    for text in HOSTILE.values():
        manifest: dict[str, Any] = a_manifest()
        spec = manifest["spec"]
        match field:
            case "name":
                manifest["metadata"]["name"] = text
            case "model":
                spec["model"]["id"] = text
            case "apiVersion":
                manifest["apiVersion"] = text
            case "key":
                spec[text] = text
            case "engine":
                spec["engine"] = {"name": text, "image": text, "version": text}
            case "argument":
                spec["engine"] = {"arguments": {text: text}}
        manifests.append(manifest)
    files.raw("model.yaml", json.dumps({"kind": "List", "items": manifests}).encode())
    code, out, err = run(files.folder, "plan", "-f", "model.yaml", "--nodes", "nodes.yaml")
    assert (code, out) == (2, "")
    assert is_harmless(err)
    assert all(line.startswith("error[") for line in err.splitlines())


def test_names_of_files_and_words_of_the_command_line_are_printed_harmless(files: Files) -> None:
    for text in ("\x1b[31m.yaml", "\u202eb.yaml", os.fsdecode(b"\xff\x1b.yaml"), "a\nb.yaml"):
        for words in (
            ("plan", "-f", text),
            (text,),
            ("plan", f"--{text}"),
            ("models", "--search", text),
            ("gpus", text),
        ):
            _, out, err = run(
                files.folder, *words, "--nodes=nodes.yaml" if words[0] == "plan" else "-o=json"
            )
            assert is_harmless(out), words
            assert is_harmless(err), words


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_a_rendered_document_means_what_the_manifest_says(files: Files, output: str) -> None:
    env = [
        {"name": name, "value": text}
        for name, text in zip(sorted(VARIABLES), WRITABLE.values(), strict=False)
    ]
    assert len(env) == len(WRITABLE)
    manifest = a_manifest(engine={"env": env})
    files.raw("model.yaml", json.dumps(manifest).encode())
    code, out, err = run(
        files.folder,
        "render",
        "--scripts",
        *("-f", "model.yaml", "--nodes", "nodes.yaml", "-o", output),
    )
    assert (code, err) == (0, "")
    assert is_harmless(out)
    objects = json.loads(out)["items"] if output == "json" else list(yaml.safe_load_all(out))
    (group,) = (item for item in objects if item["kind"] == "StatefulSet")
    rendered = {
        item["name"]: item.get("value")
        for item in group["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    expected = {item["name"]: item["value"].replace("$(", "$$(") for item in env}
    assert {name: value for name, value in rendered.items() if name in expected} == expected


def test_what_is_nested_beyond_reason_ends_in_one_sentence(files: Files) -> None:
    files.raw("model.yaml", b"[" * 100_000)
    assert run(files.folder, "plan", "-f", "model.yaml", "--nodes", "nodes.yaml") == (
        2,
        "",
        (
            "error[ManifestUnreadable]: model.yaml: line 1: lists and objects are nested more "
            "than 128 levels deep; correct it\n"
        ),
    )
