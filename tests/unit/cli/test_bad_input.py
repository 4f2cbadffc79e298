"""Whatever is in the files: one line per problem on stderr, nothing on stdout, exit code 2, never a
traceback.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwright.cli.main import main
from shardwright.modelspec.catalogue import known_ids
from tests.support.builders_cli import Files, a_foreign_pod, a_listed_node, a_manifest
from tests.support.examples import examples

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    Files(tmp_path).cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])
    return Files(tmp_path)


def _errors(capsys: Capture, *words: str) -> list[str]:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def _of_plan(capsys: Capture, *words: str) -> list[str]:
    return _errors(capsys, "plan", "-f", "model.yaml", "--nodes", "nodes.yaml", *words)


@pytest.mark.usefixtures("files")
def test_a_file_that_is_not_there_is_an_error_that_names_it(capsys: Capture) -> None:
    assert _errors(capsys, "plan", "-f", "no.yaml", "--nodes", "nodes.yaml") == [
        (
            "error[FileUnreadable]: no.yaml: No such file or directory; give a file that exists "
            "and "
            "that you may read"
        )
    ]


@pytest.mark.parametrize(
    ("file", "text", "words", "told"),
    [
        (
            "table.txt",
            "NAME STATUS\nn1 Ready\n",
            ("--nodes", "table.txt"),
            (
                "error[ManifestUnreadable]: table.txt: a document is not an object; kubectl prints "
                "objects with '-o json' or '-o yaml'"
            ),
        ),
        (
            "empty.yaml",
            "",
            ("--nodes", "empty.yaml"),
            (
                "error[NoNodes]: empty.yaml: no Node is in it; write one with: kubectl get nodes,pods "
                "-A -o json > nodes.json"
            ),
        ),
        (
            "broken.yaml",
            "kind: [\n",
            ("--nodes", "broken.yaml"),
            (
                "error[ManifestUnreadable]: broken.yaml: while parsing a flow node did not find "
                "expected node content in line 2, column 1; correct the YAML"
            ),
        ),
        (
            "other.yaml",
            "",
            ("--gpus", "8xH100", "--settings", "none"),
            (
                "error[FileUnreadable]: none: No such file or directory; give a file that exists and "
                "that you may read"
            ),
        ),
    ],
)
def test_each_file_is_named_once_and_with_the_way_out(
    file: str, text: str, words: tuple[str, ...], told: str, files: Files, capsys: Capture
) -> None:
    files.raw(file, text.encode())

    assert _errors(capsys, "plan", "meta-llama/Llama-3.1-8B", *words) == [told]


@pytest.mark.parametrize("flag", ["-f", "--nodes"])
def test_a_folder_of_which_nothing_is_read_says_what_would_be(
    flag: str, files: Files, capsys: Capture
) -> None:
    (files.folder / "notes").mkdir()
    (files.folder / "notes" / "model.txt").write_text("kind: ShardedModel")
    other = ["--nodes", "nodes.yaml"] if flag == "-f" else ["-f", "model.yaml"]
    files.manifests(a_manifest())

    assert main(["plan", flag, "notes", *other]) == 2
    assert capsys.readouterr().err == (
        "error[FileUnreadable]: notes: no file in it ends in .json, .yaml, .yml; name a folder "
        "of manifests, or the files\n"
    )


def test_of_a_file_without_end_no_more_is_read_than_is_allowed(
    files: Files, capsys: Capture
) -> None:
    (files.folder / "pipes").mkdir()
    os.mkfifo(files.folder / "pipes" / "never.yaml")

    assert _errors(capsys, "plan", "-f", "/dev/zero", "--gpus", "H100") == [
        (
            "error[FileUnreadable]: /dev/zero: it must have at most 512 MiB, and has more; give a "
            "smaller file"
        )
    ]
    assert "no file in it ends in" in _errors(capsys, "plan", "-f", "pipes", "--gpus", "H100")[0]


LONG = "a" * 300
"""What no file system takes as a name."""


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "words",
    [("-f", LONG, "--nodes", "nodes.yaml"), ("us/ours", "--config", LONG, "--gpus", "8xH100")],
)
def test_a_file_whose_name_is_too_long_is_an_error_that_names_it(
    capsys: Capture, words: tuple[str, ...]
) -> None:
    assert _errors(capsys, "plan", *words) == [
        (
            f"error[FileUnreadable]: {LONG}: File name too long; give a file that exists and that "
            "you may read"
        )
    ]


def test_a_program_gets_problems_as_a_document(capsys: Capture) -> None:
    assert main(["plan", "-f", "none.yaml", "--nodes", "none.yaml", "-o", "json"]) == 2

    out, err = capsys.readouterr()
    what, remedy = ("No such file or directory", "give a file that exists and that you may read")
    assert json.loads(out) == {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ProblemList",
        "items": [
            {
                "code": "FileUnreadable",
                "path": "none.yaml",
                "what": what,
                "remedy": remedy,
                "message": f"none.yaml: {what}; {remedy}",
            }
        ],
    }
    assert err == f"error[FileUnreadable]: none.yaml: {what}; {remedy}\n"


def test_a_file_that_is_not_utf_8_is_refused_with_the_byte(files: Files, capsys: Capture) -> None:
    files.raw("model.yaml", b"kind: \xff")

    assert _of_plan(capsys) == [
        "error[FileUnreadable]: model.yaml: byte 6 is not UTF-8; save it as UTF-8"
    ]


def test_every_problem_of_every_model_is_named_with_its_path(files: Files, capsys: Capture) -> None:
    files.manifests(
        a_manifest("a", replicas=-1, workload={"inputTokens": 0}),
        a_manifest("b", objective={"optimizeFor": "Cheap"}),
    )

    errors = _of_plan(capsys)

    assert [error.split(": ")[:3] for error in errors] == [
        ["error[OutOfRange]", "model.yaml", "spec.replicas"],
        ["error[OutOfRange]", "model.yaml", "spec.workload.inputTokens"],
        ["error[NotAllowed]", "model.yaml", "spec.objective.optimizeFor"],
    ]


@pytest.mark.usefixtures("files")
def test_a_file_without_a_model(capsys: Capture) -> None:
    assert _errors(capsys, "plan", "-f", "nodes.yaml", "--nodes", "nodes.yaml") == [
        (
            "error[NoShardedModel]: nodes.yaml: no ShardedModel is in it, found Node, Pod; write "
            "one with "
            "apiVersion shardwright.io/v1alpha1 and kind ShardedModel"
        )
    ]


def test_a_model_that_is_there_twice(files: Files, capsys: Capture) -> None:
    files.manifests(a_manifest("llama"))
    files.manifests(a_manifest("llama"), name="again.yaml")

    assert _errors(
        capsys, "plan", "-f", "model.yaml", "-f", "again.yaml", "--nodes", "nodes.yaml"
    ) == [
        (
            "error[Duplicate]: again.yaml: ShardedModel llama in namespace default must be there "
            "once, it stands in model.yaml before"
        )
    ]


def test_a_file_without_a_node(files: Files, capsys: Capture) -> None:
    files.manifests(a_manifest())

    assert _errors(capsys, "plan", "-f", "model.yaml", "--nodes", "model.yaml") == [
        (
            "error[NoNodes]: model.yaml: no Node is in it; write one with: kubectl get nodes,pods "
            "-A -o json > nodes.json"
        )
    ]


def test_a_model_that_nobody_knows_and_no_hub_has(files: Files, capsys: Capture) -> None:
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["weights"] = {"uri": "pvc://models"}
    files.manifests(manifest)

    [error] = _of_plan(capsys)

    assert error == (
        "error[ModelUnknown]: model.yaml: spec.model.id: 'us/ours' is not among the "
        f"{len(known_ids())} models of the catalogue; --config FILE takes its config.json, "
        "spec.model.configMapRef a ConfigMap of it, which 'shardwright fetch' prints"
    )


def test_an_unknown_id_is_said_also_where_no_cluster_can_be_asked(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(files.folder / "none"))

    assert main(["plan", "Qwen/qwen3-8b"]) == 3

    [_, error] = capsys.readouterr().err.splitlines()
    assert error == (
        "error[ModelUnknown]: MODEL: 'Qwen/qwen3-8b' is not built in, did you mean "
        "'Qwen/Qwen3-8B'?; with --gpus or --nodes it is read from the hub"
    )
    assert main(["plan", "Qwen/Qwen3-8B"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("word", "read", "others"),
    [
        ("no", "false", "no, n, off and false"),
        ("Off", "false", "no, n, off and false"),
        ("y", "true", "yes, y, on and true"),
    ],
)
def test_a_word_that_yaml_reads_as_a_truth_value_is_said_to_need_quotes(
    word: str, read: str, others: str, files: Files, capsys: Capture
) -> None:
    (files.folder / "model.yaml").write_text(
        "apiVersion: shardwright.io/v1alpha1\nkind: ShardedModel\nmetadata: {name: m}\n"
        f"spec: {{model: {{id: a/b}}, placement: {{nodeSelector: {{pool: {word}}}}}}}\n"
    )

    [error] = _of_plan(capsys)

    assert error == (
        f"error[WrongType]: model.yaml: spec.placement.nodeSelector.pool: {read} must be a "
        f"string; YAML reads {others} as {read}: put the word in quotes, as in "
        f'"{others.partition(",")[0]}"'
    )


def test_a_number_without_quotes_among_our_labels(files: Files, capsys: Capture) -> None:
    node = a_listed_node("n1")
    node["metadata"]["labels"]["shardwright.io/network-gbps-per-gpu"] = 400
    files.manifests(a_manifest())
    files.cluster([node])

    where = "nodes.yaml: metadata.labels of n1"
    assert _of_plan(capsys) == [
        (
            f"error[WrongType]: {where}: shardwright.io/network-gbps-per-gpu: 400 must be text; "
            "put "
            "the value in quotes"
        )
    ]


def test_a_config_map_that_is_not_there(files: Files, capsys: Capture) -> None:
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["configMapRef"] = {"name": "ours"}
    files.manifests(manifest)

    assert _of_plan(capsys) == [
        (
            "error[ConfigMissing]: model.yaml: spec.model.configMapRef: "
            "key config.json of ConfigMap ours does not exist in the namespace "
            "of this resource; kubectl create configmap ours --from-file=config.json=config.json"
        )
    ]


def test_a_config_file_that_is_no_json_is_an_error_that_names_it(
    files: Files, capsys: Capture
) -> None:
    files.manifests(a_manifest())
    files.raw("config.json", b"{")

    [error] = _of_plan(capsys, "--config", "config.json")

    assert error.startswith("error[ConfigInvalid]: config.json: ")


def test_two_configs_for_one_model(files: Files, capsys: Capture) -> None:
    manifest = a_manifest()
    manifest["spec"]["model"]["config"] = {"architectures": ["LlamaForCausalLM"]}
    files.manifests(manifest)
    files.raw("config.json", b"{}")

    assert _of_plan(capsys, "--config", "config.json") == [
        (
            "error[ConfigTwice]: model.yaml: spec.model.config: the model's config is in the "
            "manifest and in --config; leave one of the two out"
        )
    ]


def test_what_is_wrong_in_the_config_file_is_said_of_that_file(
    files: Files, capsys: Capture
) -> None:
    files.manifests(a_manifest("a", "us/ours"))
    files.raw("config.json", b'{"architectures": ["LlamaForCausalLM"], "hidden_size": -1}')

    errors = _of_plan(capsys, "--config", "config.json")

    assert "error[ConfigInvalid]: config.json: hidden_size: -1" in "".join(errors)


def test_a_misspelled_kind_is_shown(files: Files, capsys: Capture) -> None:
    files.manifests({**a_manifest(), "kind": "ShardedModels"})

    (error,) = _of_plan(capsys)
    assert error.startswith(
        "error[NoShardedModel]: model.yaml: no ShardedModel is in it, found ShardedModels; "
    )


# An example is a whole run of the command, in one folder.
FIXTURES = settings(
    examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3)
    ),
    max_leaves=12,
)


@FIXTURES
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_are_bad_input(content: bytes, files: Files) -> None:
    files.raw("model.yaml", content)

    assert main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml"]) == 2
    assert main(["plan", "-f", "nodes.yaml", "--nodes", "model.yaml"]) == 2


FIELDS = (
    "model",
    "workload",
    "objective",
    "replicas",
    "budget",
    "parallelism",
    "placement",
    "pod",
    "engine",
    "mode",
)


@FIXTURES
@given(spec=st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4))
def test_any_spec_gets_an_answer(spec: dict[str, Any], files: Files) -> None:
    files.raw(
        "model.yaml",
        yaml.safe_dump(a_manifest() | {"spec": {"model": {"id": "Qwen/Qwen3-8B"}} | spec}).encode(),
    )

    assert main(["plan", "-f", "model.yaml", "--nodes", "nodes.yaml"]) in {0, 1, 2}


@FIXTURES
@given(
    metadata=anything,
    labels=st.dictionaries(
        st.sampled_from(
            ["nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"]
        ),
        anything,
    ),
    allocatable=anything,
    taints=anything,
)
def test_any_node_gets_an_answer(
    metadata: Any, labels: dict[str, Any], allocatable: Any, taints: Any, files: Files
) -> None:
    node = a_listed_node("n2")
    node["metadata"]["labels"] |= labels
    node["status"]["allocatable"] = allocatable
    node["spec"] = {"taints": taints}
    strange = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": allocatable,
        "status": taints,
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": allocatable,
    }
    files.raw(
        "strange.json", json.dumps([node, strange, pod, config_map]).replace("NaN", "0").encode()
    )
    text = json.dumps(
        {"kind": "List", "items": json.loads((files.folder / "strange.json").read_text())}
    )
    files.raw("strange.json", text.replace("Infinity", "0").encode())
    files.manifests(a_manifest())

    assert main(["plan", "-f", "model.yaml", "--nodes", "strange.json"]) in {0, 1, 2}


def test_a_namespace_beside_another_one_is_refused(files: Files, capsys: Capture) -> None:
    manifest = a_manifest()
    manifest["metadata"]["namespace"] = "theirs"
    words = [
        "plan",
        "-f",
        files.manifests(manifest),
        "--nodes",
        files.cluster([a_listed_node("n1")]),
        "-n",
        "ours",
    ]

    assert main(words) == 2
    assert (
        "metadata.namespace: 'theirs' is not the namespace of -n, ours; leave one of the two out"
        in capsys.readouterr().err
    )


def test_a_url_is_what_server_takes_beside_nothing(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--server", "prod"])

    assert (
        "argument --server: 'prod' is not a URL; alone it lets the operator plan"
        in capsys.readouterr().err
    )


def test_the_operator_plans_manifests_alone(capsys: Capture) -> None:
    assert main(["plan", "meta-llama/Llama-3.1-8B-Instruct", "--gpus", "8xH100", "--server"]) == 2

    codes = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert codes == ["error[NotTogether]"] * 3


def test_a_name_without_quotes_must_be_a_string_in_quotes(files: Files, capsys: Capture) -> None:
    manifest = a_manifest()
    manifest["metadata"]["name"] = 5
    files.manifests(manifest)

    [error] = _of_plan(capsys)

    assert error.endswith("5 must be a string; put it in quotes")


def test_a_mode_that_yaml_reads_as_a_truth_value_is_told_the_modes(
    files: Files, capsys: Capture
) -> None:
    files.manifests(a_manifest(mode=False))

    [error] = _of_plan(capsys)

    assert error.endswith("false must be Deploy or PlanOnly; write one of them")


def test_a_word_that_is_allowed_and_read_as_a_truth_value_needs_quotes(
    files: Files, capsys: Capture
) -> None:
    files.manifests(a_manifest())
    files.raw("settings.yaml", b"policy: {requireRevision: Off}\n")

    [error] = _of_plan(capsys, "--settings", "settings.yaml")

    assert error.endswith('YAML reads this word as a truth value: put it in quotes, "Off"')


@pytest.mark.parametrize("option", ["--replicas", "--concurrency"])
def test_a_number_below_zero_is_out_of_range(option: str, capsys: Capture) -> None:
    words = ("plan", "meta-llama/Llama-3.1-8B-Instruct", "--gpus", "1xH100")

    [error] = _errors(capsys, *words, option, "-1")

    assert error.startswith(f"error[OutOfRange]: {option}: -1 ")


def test_fewer_gpus_than_none_are_out_of_range(capsys: Capture) -> None:
    [error] = _errors(capsys, "plan", "meta-llama/Llama-3.1-8B-Instruct", "--gpus=-4xH100")

    assert error.startswith("error[OutOfRange]: --gpus: -4 GPUs")


@pytest.mark.parametrize("command", ["gpus", "models"])
def test_one_list_is_searched_for_one_text(command: str, capsys: Capture) -> None:
    [error] = _errors(capsys, command, "a100", "--search", "h100")

    assert error == (
        "error[NotAllowed]: --search: 'a100' is searched for beside it; give one of the two"
    )
