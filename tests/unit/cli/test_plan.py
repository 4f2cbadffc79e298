"""``plan`` and ``render`` from the command line to the exit code, without a cluster."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.api.published import Status
from shardwright.cli.main import main
from shardwright.rendering.bundle import CONTENT_HASH, content_hash
from shardwright.rendering.fetch_job import config_name
from tests.support.builders_cli import DUMPS, Files, a_foreign_pod, a_listed_node, a_manifest

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def _run_json(capsys: Capture, *words: str) -> Any:
    """Return what is printed: of a list of one thing that thing."""
    main([*words, "-o", "json"])
    printed = json.loads(capsys.readouterr().out)
    items = printed["items"] if str(printed.get("kind")).startswith("Plan") else [printed]
    return items[0] if len(items) == 1 else items


def test_a_plan_ends_with_zero_and_says_why(files: Files, capsys: Capture) -> None:
    model, nodes = (
        files.manifests(a_manifest("llama")),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    assert main(["plan", "-f", model, "--nodes", nodes]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("llama: TP1 on 1 NVIDIA-H100-80GB-HBM3 of 1 node\n")
    assert "\n  Where      1 node: n1\n" in out
    assert f"\nNext  kubectl apply -f {model}\n" in out
    assert err == ""


def test_nothing_fits_ends_with_one_and_names_the_closest(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest("llama", "meta-llama/Llama-3.1-405B-Instruct"))
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    assert main(["plan", "-f", model, "--nodes", nodes]) == 1

    out, err = capsys.readouterr()
    assert out.startswith("llama: nothing fits. ")
    assert "closest is " in out
    assert re.search(r"\n  \d+ +WeightsExceedMemory +\S+, [\d.]+ GiB short\n", out)
    assert err == ""


def test_a_model_that_names_no_namespace_is_rendered_for_the_one_of_the_command_line(
    files: Files, capsys: Capture
) -> None:
    model, nodes = (
        files.manifests(a_manifest("llama")),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    rendered = _run_json(capsys, "render", "-f", model, "--nodes", nodes, "-n", "models")

    assert {item["metadata"]["namespace"] for item in rendered["items"]} == {"models"}


def test_pods_hold_their_gpus(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest(parallelism={"tensor": 8}))
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 1)])

    document = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)

    assert document["reason"] == "InsufficientCapacity"
    assert document["problem"]["code"] == "InsufficientCapacity"
    assert document["problem"]["message"] == (
        "TP8 needs 1 node of h100-sxm-80gb-8x-12.5g with 8 free GPUs, 0 free of 1, 1 short; "
        "free GPUs or add nodes; it goes on by itself then"
    )


def test_without_pods_it_says_that_everything_counts_as_free(files: Files, capsys: Capture) -> None:
    model, nodes = files.manifests(a_manifest()), files.cluster([a_listed_node("n1")])

    assert main(["plan", "-f", model, "--nodes", nodes]) == 0
    assert "no pods are known: every allocatable GPU counts as free" in capsys.readouterr().out


def test_what_one_model_keeps_is_not_there_for_the_next(files: Files, capsys: Capture) -> None:
    pinned: dict[str, Any] = {"parallelism": {"tensor": 8}}
    model = files.manifests(a_manifest("first", **pinned), a_manifest("second", **pinned))
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    documents = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)

    assert [(item["metadata"]["name"], item["reason"]) for item in documents] == [
        ("first", "Planned"),
        ("second", "InsufficientCapacity"),
    ]


def test_a_plan_that_is_only_shown_keeps_nothing(files: Files, capsys: Capture) -> None:
    pinned: dict[str, Any] = {"parallelism": {"tensor": 8}}
    model = files.manifests(
        a_manifest("shown", mode="PlanOnly", **pinned), a_manifest("deployed", **pinned)
    )
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    documents = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)

    assert [item["reason"] for item in documents] == ["PlanOnly", "Planned"]


def test_stdin_may_hold_the_model_and_the_nodes(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = yaml.safe_dump_all([a_manifest("llama"), a_listed_node("n1"), a_foreign_pod("n1", 0)])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(both.encode())))

    assert _run_json(capsys, "plan", "-f", "-", "--nodes", "-")["reason"] == "Planned"


def test_scripts_are_rendered_as_lines_and_mean_the_same(files: Files, capsys: Capture) -> None:
    model, nodes = (
        files.manifests(a_manifest("llama")),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )
    asked = ["render", "--scripts", "-f", model, "--nodes", nodes]
    rendered = _run_json(capsys, *asked)["items"]

    assert main(asked) == 0

    text = capsys.readouterr().out
    assert "\n  launch.sh: |\n    #!/bin/bash\n" in text
    assert list(yaml.safe_load_all(text)) == rendered


def test_scripts_that_are_not_asked_for_are_named_and_nothing_else_is_left_out(
    files: Files, capsys: Capture
) -> None:
    asked = ["render", "-f", files.manifests(a_manifest("llama"))]
    asked += ["--nodes", files.cluster([a_listed_node("n1")])]
    whole = _run_json(capsys, *asked, "--scripts")["items"]
    (scripts,) = [item for item in whole if item["kind"] == "ConfigMap"]

    assert main([*asked, "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["items"] == [item for item in whole if item != scripts]
    assert printed.err == (
        f"note: the pods mount ConfigMap {scripts['metadata']['name']}, which is not printed: "
        "--scripts prints it, too\n"
    )


@pytest.mark.parametrize(
    ("gpus", "words", "most"),
    [
        ("1xH100", ("Qwen/Qwen3-8B",), 320),
        ("16xH100", ("meta-llama/Llama-3.1-405B-Instruct", "--tp", "8", "--pp", "2"), 410),
    ],
)
def test_what_a_model_becomes_can_be_read(
    gpus: str, words: tuple[str, ...], most: int, capsys: Capture
) -> None:
    assert main(["render", *words, "--gpus", gpus, "--replicas", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= most


def test_render_says_of_made_up_nodes_that_pods_are_bound_to_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["render", "Qwen/Qwen3-8B", "--gpus", "4xH100"]) == 0
    assert capsys.readouterr().err.startswith("note: the nodes of --gpus are made up")


def test_json_and_yaml_say_the_same(files: Files, capsys: Capture) -> None:
    model, nodes = (
        files.manifests(a_manifest()),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 2)]),
    )

    as_json = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)
    main(["plan", "-f", model, "--nodes", nodes, "-o", "yaml"])

    assert yaml.safe_load(capsys.readouterr().out) == as_json


def test_the_document_holds_the_question_and_status_plan(files: Files, capsys: Capture) -> None:
    model = files.manifests(
        a_manifest(
            workload={"inputTokens": 1000, "outputTokens": 200, "concurrency": 8},
            engine={"kvCacheQuantization": "FP8"},
            objective={"optimizeFor": "Throughput", "tpotMilliseconds": 80},
            budget={"gpus": 4},
            parallelism={"tensor": 2},
        )
    )
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    document = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)

    assert document["request"] == {
        "workload": {
            "inputTokens": 1000,
            "outputTokens": 200,
            "concurrency": 8,
            "prefixCacheHitPercent": 0,
        },
        "engine": {"kvCacheQuantization": "FP8"},
        "objective": {"optimizeFor": "Throughput", "tpotMilliseconds": 80, "statistic": "Mean"},
        "parallelism": {"tensor": 2},
        "budget": {"gpus": 4},
    }
    Status.model_validate({"plan": document["plan"]})
    assert document["plan"]["layout"]["tensor"] == 2
    assert document["plan"]["placement"]["nodes"] == ["n1"]


def test_the_same_input_gives_the_same_bytes(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest())
    there = [a_listed_node("n1"), a_listed_node("n2"), a_foreign_pod("n1", 1)]

    main(["plan", "-f", model, "--nodes", files.cluster(there), "-o", "json"])
    forwards = capsys.readouterr().out
    main(["plan", "-f", model, "--nodes", files.cluster(reversed(there)), "-o", "json"])

    assert capsys.readouterr().out == forwards


def test_nodes_may_be_json_and_several_files(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest(parallelism={"tensor": 8}, replicas=2))
    first, second = (
        files.cluster_json([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
        files.cluster([a_listed_node("n2")]),
    )

    document = _run_json(capsys, "plan", "-f", model, "--nodes", first, "--nodes", second)

    assert document["plan"]["placement"]["nodes"] == ["n1", "n2"]


def test_nodes_may_come_through_a_pipe(
    files: Files, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = yaml.safe_dump_all([a_listed_node("n1"), a_foreign_pod("n1", 0)])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(nodes.encode())))

    assert main(["plan", "-f", files.manifests(a_manifest()), "--nodes", "-"]) == 0
    assert "1 node: n1\n" in capsys.readouterr().out


def test_a_folder_is_read_like_kubectl_reads_it(files: Files, capsys: Capture) -> None:
    (files.folder / "models").mkdir()
    files.manifests(a_manifest("b"), name="models/b.yaml")
    files.manifests(a_manifest("a"), name="models/a.yml")
    files.raw("models/notes.txt", b": not yaml")

    documents = _run_json(
        capsys,
        "plan",
        "-f",
        "models",
        "--nodes",
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    assert [item["metadata"]["name"] for item in documents] == ["a", "b"]


def _config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }


def _a_config_map(text: str, name: str = "ours") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"config.json": text},
    }


def test_a_config_map_may_stand_beside_the_model(files: Files, capsys: Capture) -> None:
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["configMapRef"] = {"name": "ours"}
    model = files.manifests(manifest, _a_config_map(json.dumps(_config())))

    document = _run_json(
        capsys,
        "plan",
        "-f",
        model,
        "--nodes",
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    assert document["model"] == {"id": "us/ours", "parameters": 8_030_261_248}


def test_a_config_that_the_operator_read_from_the_hub_is_found_by_the_name_of_its_config_map(
    files: Files, capsys: Capture
) -> None:
    kept = _a_config_map(json.dumps(_config()), config_name("m", "us/ours", None))
    model = files.manifests(a_manifest(model="us/ours"), kept)

    document = _run_json(
        capsys,
        "plan",
        "-f",
        model,
        "--nodes",
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    assert document["model"] == {"id": "us/ours", "parameters": 8_030_261_248}


def test_a_config_file_serves_a_model_that_is_not_built_in(files: Files, capsys: Capture) -> None:
    model, nodes = (
        files.manifests(a_manifest(model="us/ours")),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )
    config = files.raw("config.json", json.dumps(_config()).encode())

    document = _run_json(capsys, "plan", "-f", model, "--nodes", nodes, "--config", config)

    assert document["model"]["parameters"] == 8_030_261_248


def test_the_folder_of_a_model_may_stand_for_its_config_with_the_file_beside_it(
    files: Files, capsys: Capture, tmp_path: Path
) -> None:
    manifest = a_manifest(model="us/ours")
    manifest["spec"]["model"]["quantization"] = (
        "FP8"  # refused of weights that are quantized already
    )
    model, nodes = (
        files.manifests(manifest),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_config()))
    (folder / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4"}})
    )

    assert main(["plan", "-f", model, "--nodes", nodes, "--config", str(folder)]) == 2
    assert "modelopt weights cannot become FP8" in capsys.readouterr().err


def test_the_operators_settings_are_merged_as_the_operator_does(
    files: Files, capsys: Capture
) -> None:
    model, nodes = (files.manifests(a_manifest("llama")), files.cluster([a_listed_node("n1")]))
    settings = files.raw(
        "settings.yaml",
        b"engineDefaults: {engine: {image: 'mirror.example/vllm-openai:v0.32.0'}}\n",
    )

    document = _run_json(capsys, "plan", "-f", model, "--nodes", nodes, "--settings", settings)

    assert document["engine"] == {
        "name": "vLLM",
        "version": "0.32.0",
        "image": "mirror.example/vllm-openai:v0.32.0",
        "defaults": ["engine.image"],
    }


def test_a_gpu_of_the_settings_is_planned_and_the_plan_says_that_nobody_measured_it(
    files: Files, capsys: Capture
) -> None:
    node = a_listed_node("n1")
    node["metadata"]["labels"] |= {
        "nvidia.com/gpu.product": "NVIDIA-R200",
        "nvidia.com/gpu.memory": "294912",
    }
    model, nodes = (
        files.manifests(a_manifest("llama")),
        files.cluster([node, a_foreign_pod("n1", 0)]),
    )
    stated = (
        b"gpus: [{product: NVIDIA-R200, memoryMiB: 294912, memoryGigabytesPerSecond: 22000, "
        b"teraflops: {bf16: 4000}, "
        b"computeCapability: '10.7', source: data sheet}]"
    )

    without = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)
    planned = _run_json(
        capsys,
        "plan",
        "-f",
        model,
        "--nodes",
        nodes,
        "--settings",
        files.raw("settings.yaml", stated),
    )

    assert [found["code"] for found in without["plan"]["excluded"]] == ["GpuUnknown"]
    assert planned["plan"]["product"] == "NVIDIA-R200"
    assert planned["plan"]["predicted"]["basis"] == "modelled"


def test_settings_that_cannot_be_used_are_named_with_their_file(
    files: Files, capsys: Capture
) -> None:
    model, nodes = (files.manifests(a_manifest("llama")), files.cluster([a_listed_node("n1")]))
    settings = files.raw("settings.yaml", b"policy: {admittedArguments: [config]}\n")

    assert main(["plan", "-f", model, "--nodes", nodes, "--settings", settings]) == 2

    said = capsys.readouterr().err
    assert "settings.yaml: policy.admittedArguments.config: --config cannot be admitted" in said


def test_a_plan_of_record_keeps_its_gpus(files: Files, capsys: Capture) -> None:
    """Its pods are not bound yet, so only the ConfigMap says that the GPUs are taken."""
    from shardwright.api.record import PlanRecord  # noqa: PLC0415 - only here
    from shardwright.reconcile.record_object import SigningKeys, record_object  # noqa: PLC0415 - only here
    from shardwright.rendering.deployment import Owner  # noqa: PLC0415 - only here
    from tests.support.builders_reporting import a_reported_plan  # noqa: PLC0415 - only here

    kept = a_reported_plan(groups=(("n1",),), gpus_per_node=8)
    record = PlanRecord(input_hash="i", cut_hash="c", generation=1, plan=kept)
    config_map = record_object(
        Owner(name="other", namespace="models", uid="u"), record, SigningKeys()
    )
    model = files.manifests(a_manifest(parallelism={"tensor": 8}))
    nodes = files.cluster(
        [a_listed_node("n1"), a_listed_node("n2"), a_foreign_pod("n1", 0), config_map]
    )

    document = _run_json(capsys, "plan", "-f", model, "--nodes", nodes)

    assert document["plan"]["placement"]["nodes"] == ["n2"]

    only_planned = {
        **a_manifest("other", mode="PlanOnly"),
        "metadata": {"name": "other", "namespace": "models", "uid": "u"},
    }
    nodes = files.cluster(
        [a_listed_node("n1"), a_listed_node("n2"), a_foreign_pod("n1", 0), config_map, only_planned]
    )
    assert _run_json(capsys, "plan", "-f", model, "--nodes", nodes)["plan"]["placement"][
        "nodes"
    ] == ["n1"]


def test_rendered_objects_can_be_applied_without_their_owner(files: Files, capsys: Capture) -> None:
    """An owner reference without uid would be refused by the API server."""
    model, nodes = (
        files.manifests(a_manifest("llama")),
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)]),
    )

    assert main(["render", "--scripts", "-f", model, "--nodes", nodes]) == 0

    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {item["kind"] for item in objects} == {
        "ConfigMap",
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    }
    assert all("ownerReferences" not in item["metadata"] for item in objects)
    assert all(
        item["metadata"]["annotations"][CONTENT_HASH] == content_hash(item) for item in objects
    )


def test_a_secret_that_pods_need_is_named_and_never_printed(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest("llama", parallelism={"tensor": 8, "pipeline": 2}))
    assert (
        main(
            [
                "render",
                "--scripts",
                "-f",
                model,
                "--nodes",
                files.cluster([a_listed_node("n1"), a_listed_node("n2")]),
            ]
        )
        == 0
    )

    printed = capsys.readouterr()
    objects = list(yaml.safe_load_all(printed.out))
    (group,) = [item for item in objects if item["kind"] == "StatefulSet"]
    (secret,) = [
        volume["secret"]
        for volume in group["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    ]
    assert "Secret" not in {item["kind"] for item in objects}
    assert printed.err.startswith(
        f"note: the pods mount Secret {secret['secretName']}, which is not printed: "
    )


def test_rendered_objects_keep_an_owner_that_exists(files: Files, capsys: Capture) -> None:
    manifest = a_manifest("llama")
    manifest["metadata"]["uid"] = "4f8a1c9e-0000-4000-8000-000000000001"
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    rendered = _run_json(capsys, "render", "-f", files.manifests(manifest), "--nodes", nodes)

    assert rendered["kind"] == "List"
    owners = {item["metadata"]["ownerReferences"][0]["uid"] for item in rendered["items"]}
    assert owners == {"4f8a1c9e-0000-4000-8000-000000000001"}


def test_render_prints_nothing_but_the_reason_when_nothing_fits(
    files: Files, capsys: Capture
) -> None:
    model = files.manifests(a_manifest("llama", "meta-llama/Llama-3.1-405B-Instruct"))
    nodes = files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 0)])

    assert main(["render", "-f", model, "--nodes", nodes]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error[WeightsExceedMemory]: llama: spec.model: ")


@pytest.mark.parametrize("dump", sorted(path.stem for path in DUMPS.glob("*.yaml")))
def test_every_recorded_node_gets_an_answer(dump: str, files: Files, capsys: Capture) -> None:
    model, nodes = (files.manifests(a_manifest()), files.cluster([a_listed_node("n1", dump)]))

    assert main(["plan", "-f", model, "--nodes", nodes]) in {0, 1}

    out, err = capsys.readouterr()
    assert out.startswith("m: ")
    assert err == "" or err.startswith(f"note: no node of {nodes} has allocatable GPUs")


def test_explain_draws_what_plan_leaves_out(files: Files, capsys: Capture) -> None:
    arguments = [
        "-f",
        files.manifests(a_manifest()),
        "--nodes",
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 2)]),
    ]

    codes = [main([command, *arguments]) for command in ("plan",)]
    short = capsys.readouterr().out
    codes.append(main(["explain", *arguments]))
    full = capsys.readouterr().out

    assert codes == [0, 0]
    assert short.splitlines()[0] == full.splitlines()[0]
    assert "\nPlacement\n  n1  [ ■ · · · · · " in full
    sections = {"Placement", "Why this one", "Where the time of a token goes", "How sure"}
    assert sections <= set(full.splitlines()) - set(short.splitlines())


def test_explain_as_json_adds_the_explanation_to_the_document(
    files: Files, capsys: Capture
) -> None:
    arguments = [
        "-f",
        files.manifests(a_manifest()),
        "--nodes",
        files.cluster([a_listed_node("n1"), a_foreign_pod("n1", 2)]),
        "-o",
        "json",
    ]

    plan, explanation = (
        _run_json(capsys, command, *arguments[:-2]) for command in ("plan", "explain")
    )

    assert explanation.pop("explanation")["memory"][0]["bandBytes"] > 0
    assert explanation == plan | {"kind": "PlanExplanation"}


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_wide_is_a_line_for_each_and_name_their_names(
    command: str, files: Files, capsys: Capture
) -> None:
    words = [
        command,
        "-f",
        files.manifests(a_manifest("one"), a_manifest("two")),
        "--nodes",
        files.cluster([a_listed_node("n1")]),
    ]

    assert main([*words, "-o", "wide"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert main([*words, "-o", "name"]) == 0

    assert header.split()[:5] == ["NAME", "LAYOUT", "GPUS", "NODES", "PRODUCT"]
    assert [row.split()[0] for row in rows] == ["one", "two"]
    assert (
        capsys.readouterr().out
        == "shardedmodel.shardwright.io/one\nshardedmodel.shardwright.io/two\n"
    )


def test_the_text_of_several_models_ends_with_a_line_for_each(
    files: Files, capsys: Capture
) -> None:
    large = a_manifest("large", "deepseek-ai/DeepSeek-V3")
    manifests = files.manifests(
        a_manifest("one"), a_manifest("busy", workload={"requestsPerSecond": 100_000}), large
    )
    nodes = files.cluster([a_listed_node("n1")])

    main(["plan", "-f", manifests, "--nodes", nodes])

    text = capsys.readouterr().out
    counted, header, *rows = text.split("\n\n")[-1].splitlines()
    assert counted == "3 models: 2 planned on 8 GPUs, 1 without a plan"
    assert header.split() == ["model", "GPUs", "layout", "output"]
    assert [row.split()[0] for row in rows[:3]] == ["one", "busy", "large"]
    assert rows[0].split()[1:5] == ["1", "x", "NVIDIA-H100-80GB-HBM3", "TP1"]
    assert rows[2].split()[1:] == ["-", "-", "-"]
    assert rows[3:5] == ["  busy: does not carry the load", "  large: WeightsExceedMemory"]
    assert rows[5].startswith("Next  shardwright explain ")


def test_the_text_of_one_model_has_no_table_of_models(files: Files, capsys: Capture) -> None:
    nodes = files.cluster([a_listed_node("n1")])

    main(["plan", "-f", files.manifests(a_manifest("one")), "--nodes", nodes])

    assert "model  " not in capsys.readouterr().out


def test_rendered_objects_are_named_as_kubectl_names_them(capsys: Capture) -> None:
    words = ["render", "Qwen/Qwen3-8B", "--gpus", "1xH100", "-o"]

    assert main([*words, "name"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert main([*words, "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]

    assert {"service/qwen3-8b", "statefulset.apps/qwen3-8b-0"} <= set(names)
    assert len(names) == len(items)


@pytest.mark.parametrize("command", ["plan", "explain", "size", "models", "gpus"])
def test_a_form_that_is_mistyped_is_refused_with_all_forms_and_the_one_that_was_meant(
    command: str, capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "Qwen/Qwen3-8B", "-o", "wid"])

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert "(choose from 'text', 'wide', 'name', 'json', 'yaml'" in err
    assert "; did you mean wide?; see " in err


def test_what_is_wrong_is_a_document_only_where_one_was_asked_for(
    files: Files, capsys: Capture
) -> None:
    del files
    words = ["render", "-f", "none.yaml", "--nodes", "none.yaml"]

    assert main(words) == 2
    assert capsys.readouterr().out == ""
    assert main([*words, "-o", "yaml"]) == 2
    assert capsys.readouterr().out.startswith(
        "apiVersion: shardwright.io/v1alpha1\nkind: ProblemList\n"
    )


def test_a_selector_keeps_no_gpus_out_that_are_named(files: Files, capsys: Capture) -> None:
    model = files.manifests(a_manifest("m", placement={"nodeSelector": {"pool": "h100"}}))

    assert main(["plan", "-f", model, "--gpus", "8xH100"]) == 0

    assert capsys.readouterr().err == (
        "note: m: spec.placement.nodeSelector is left out (pool): GPUs of --gpus have no labels\n"
    )


def test_models_and_gpus_are_searched_by_a_word(capsys: Capture) -> None:
    assert (
        main(["gpus", "mi300", "-o", "name"])
        == main(["gpus", "--search", "mi300", "-o", "name"])
        == 0
    )
    assert capsys.readouterr().out == "MI300X-192GB\nMI300X-192GB\n"
