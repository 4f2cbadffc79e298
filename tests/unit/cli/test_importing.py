"""What other controllers serve becomes a ShardedModel, and what has no place in it is listed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.cli.imports.command_line import launch_of
from shardwright.cli.imports.objects import ImportOptions, import_object
from shardwright.cli.main import main
from shardwright.errors import InputError
from tests.support.scripted_api import Answer, ScriptedApi

DATA = Path(__file__).parents[2] / "data" / "imports"
Capture = pytest.CaptureFixture[str]


def _imported(capsys: Capture, name: str, *words: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the manifest that a file becomes, and by path what was left out."""
    assert main(["import", "-f", str(DATA / name), "-o", "json", *words]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    return item["manifest"], {left["path"]: left["why"] for left in item["leftOut"]}


def test_a_leader_worker_set(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "lws.yaml")

    assert manifest == {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "llama", "namespace": "models"},
        "spec": {
            "replicas": 2,
            "model": {
                "id": "meta-llama/Llama-3.1-405B-Instruct",
                "weights": {"secretRef": {"name": "hub", "key": "token"}},
            },
        },
    }
    pod = "spec.leaderWorkerTemplate.leaderTemplate.spec.containers[leader]"
    assert left_out.keys() == {
        f"{pod}.image",
        f"{pod}: --port",
        f"{pod}.args",
        f"{pod}.resources.limits[nvidia.com/gpu]",
        f"{pod.rpartition('.')[0]}.volumes[dshm], {pod}.volumeMounts[dshm]",
        "spec.leaderWorkerTemplate.size",
        "spec.leaderWorkerTemplate.restartPolicy",
        "spec.leaderWorkerTemplate.workerTemplate",
        "parallelism",
    }
    assert (
        left_out["parallelism"]
        == "tensor 8, pipeline 2: the planner chooses the degrees; --pin keeps these"
    )
    assert "older than 0.32.0" in left_out[f"{pod}.image"]


def test_degrees_are_kept_where_they_are_pinned(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "lws.yaml", "--pin")

    assert manifest["spec"]["parallelism"] == {"tensor": 8, "pipeline": 2}
    assert "parallelism" not in left_out


def test_an_llm_inference_service_becomes_a_sharded_model(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "llmisvc.yaml")

    assert manifest["spec"] == {
        "model": {"id": "deepseek-ai/DeepSeek-R1-0528", "weights": {"uri": "pvc://weights/r1"}},
        "engine": {
            "env": [{"name": "NCCL_IB_GID_INDEX", "value": "3"}],
            "args": {"gpu-memory-utilization": 0.95, "enforce-eager": True},
            "maxModelLen": 8192,
        },
        "replicas": 1,
        "routing": {"mode": "Router"},
    }
    assert left_out.keys() == {
        "spec.template.serviceAccountName",
        "spec.template.containers[main].resources.limits[nvidia.com/gpu]",
        "spec.parallelism.dataLocal",
        "spec.parallelism.expert",
        "spec.worker",
        "spec.router.gateway",
        "spec.router.route",
        "parallelism",
    }


def test_a_workspace_with_its_config_map(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "kaito.yaml")

    assert manifest["spec"] == {
        "model": {
            "id": "meta-llama/Llama-3.3-70B-Instruct",
            "weights": {"secretRef": {"name": "hub", "key": "HF_TOKEN"}},
        },
        "engine": {"args": {"gpu-memory-utilization": 0.95}, "maxModelLen": 16384},
        "placement": {
            "nodeSelector": {
                "apps": "llama",
                "node.kubernetes.io/instance-type": "Standard_NC48ads_A100_v4",
            }
        },
    }
    assert left_out.keys() == {"ConfigMap params: --cpu-offload-gb", "resource.count"}


def test_a_deployment_whose_weights_lie_on_a_claim(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "deployment.yaml")

    assert manifest["spec"] == {
        "replicas": 3,
        "placement": {
            "nodeSelector": {"pool": "gpus"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
            ],
        },
        "engine": {
            "image": "vllm/vllm-openai:v0.33.0",
            "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}],
            "args": {
                "tool-call-parser": "mistral",
                "enable-auto-tool-choice": True,
                "enable-prefix-caching": False,
            },
            "maxModelLen": 16000,
        },
        "model": {
            "id": "mistralai/Mistral-7B-Instruct-v0.3",
            "weights": {"uri": "pvc://models/v3/mistral"},
        },
    }
    pod = "spec.template.spec"
    assert left_out.keys() == {
        f"{pod}.serviceAccountName",
        f"{pod}.containers[vllm].env[AWS_PROFILE]",
        f"{pod}.containers[vllm]: --trust-remote-code",
        f"{pod}.containers[vllm].resources.limits[nvidia.com/gpu]",
        f"{pod}.containers[proxy]",
        "parallelism",
    }


@pytest.mark.parametrize("name", [path.name for path in sorted(DATA.glob("*.yaml"))])
def test_what_is_imported_can_be_planned(name: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["import", "-f", str(DATA / name)]) == 0
    file = tmp_path / "model.yaml"
    file.write_text(capsys.readouterr().out)

    assert main(
        ["plan", "-f", str(file), "--gpus", "64xH200", "--network", "400", "-o", "json"]
    ) in {0, 1}


def test_import_prints_manifests_on_stdout_and_left_out_fields_on_stderr(capsys: Capture) -> None:
    assert main(["import", "-f", str(DATA / "kaito.yaml")]) == 0

    said = capsys.readouterr()
    assert said.out.startswith("apiVersion: shardwright.io/v1alpha1\nkind: ShardedModel\n")
    assert (
        "note: Workspace llama-70b: resource.count was left out: how many nodes there are "
        "follows from the plan\n"
    ) in said.err


def test_what_runs_no_vllm_is_refused() -> None:
    nginx = {
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "web"}]}}},
    }

    with pytest.raises(
        InputError,
        match="Deployment web has no container that starts vLLM; only what runs vLLM can be imported",
    ):
        import_object(nginx)


def test_a_folder_alone_names_no_model() -> None:
    container = {"name": "vllm", "command": ["vllm", "serve", "/models/ours"]}
    server = {
        "kind": "Deployment",
        "metadata": {"name": "ours"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }

    with pytest.raises(InputError, match="name it with --model ORG/NAME"):
        import_object(server)
    assert import_object(server, options=ImportOptions(model="us/ours")).manifest["spec"][
        "model"
    ] == {"id": "us/ours"}


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["vllm", "serve", "org/m"], "org/m"),
        (["/opt/venv/bin/vllm", "serve", "--model", "org/m"], "org/m"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=org/m"], "org/m"),
        (["--model", "org/m"], "org/m"),
        (["bash", "-ec", "export A=1 && exec vllm serve $(MODEL) -tp 8"], "org/m"),
        (["sh", "-c", "vllm serve ${MODEL} | tee log"], "org/m"),
    ],
)
def test_the_model_of_a_command_line(words: list[str], model: str) -> None:
    launch = launch_of(words, {"MODEL": "org/m"})

    assert launch is not None
    assert launch.model == model


def test_a_command_that_starts_something_else() -> None:
    assert launch_of(["nginx", "-g", "daemon off;"], {}) is None
    assert launch_of(["sh", "-c", "python train.py --model org/m"], {}) is None


def _server(*args: str) -> dict[str, Any]:
    container = {"name": "vllm", "command": ["vllm", "serve", "org/m", *args]}
    return {
        "kind": "Deployment",
        "metadata": {"name": "ours"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


@pytest.mark.parametrize(
    ("args", "speculation"),
    [
        (
            ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'],
            {"method": "MTP", "tokens": 1},
        ),
        (
            [
                "--speculative-config.method=ernie_mtp",
                "--speculative-config.num_speculative_tokens=3",
            ],
            {"method": "MTP", "tokens": 3},
        ),
        (['--speculative_config={"method": "ngram"}'], {"method": "PromptLookup"}),
        (
            ["--speculative-config", json.dumps({"model": "o/d", "revision": "a" * 40})],
            {"method": "DraftModel", "head": {"id": "o/d", "uri": f"hf://o/d@{'a' * 40}"}},
        ),
    ],
)
def test_drafting_is_carried_over(args: list[str], speculation: dict[str, Any]) -> None:
    found = import_object(_server(*args))

    assert found.manifest["spec"]["engine"] == {"speculation": speculation}
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("nonsense", "it is no JSON"),
        ("[" * 9_000, "it is no JSON"),
        ("[1]", "it is no JSON object"),
        ('{"method": ["mtp"], "model": "o/d"}', "drafts by ['mtp'] are not planned"),
        ('{"method": "dflash", "model": "o/d"}', "drafts by dflash are not planned"),
        ('{"method": "eagle3", "model": "o/d"}', "write spec.engine.speculation with"),
        ('{"method": "eagle3"}', "it names no head or draft model of the hub"),
        ('{"model": "o/m-eagle3"}', "write spec.engine.speculation with method EAGLE3"),
        ('{"method": null, "model": "o/EAGLE-m"}', "drafts by eagle are not planned"),
        ('{"method": "draft_model", "model": "o/dflash"}', "drafts by dflash"),
    ],
)
def test_drafting_that_no_field_says_is_left_out_with_its_reason(config: str, why: str) -> None:
    found = import_object(_server("--speculative-config", config))

    assert "engine" not in found.manifest["spec"]
    (left,) = found.left_out
    assert left.path.endswith("--speculative-config")
    assert left.why.startswith(why)


def test_of_drafting_what_no_field_says_is_named_and_nothing_else_takes_its_place() -> None:
    config = {
        "method": "mtp",
        "model": "org/other-layers",
        "num_speculative_tokens": 20,
        "revision": None,
    }
    found = import_object(_server("--speculative-config", json.dumps(config)))

    assert found.manifest["spec"]["engine"] == {"speculation": {"method": "MTP"}}
    (left,) = found.left_out
    assert left.why == ("model: no field says it; num_speculative_tokens: tokens takes 1 to 16")


def test_what_drafts_from_the_prompt_may_stand_in_the_place_of_a_model() -> None:
    config = {"model": "[ngram]", "num_speculative_tokens": 2}
    found = import_object(_server("--speculative-config", json.dumps(config)))

    speculation = {"method": "PromptLookup", "tokens": 2}
    assert found.manifest["spec"]["engine"] == {"speculation": speculation}
    assert found.left_out == ()


def test_keys_of_an_option_take_the_place_of_the_whole_wherever_it_stands() -> None:
    found = import_object(
        _server("--speculative-config.method=medusa", "--speculative-config", '{"method": "mtp"}')
    )

    assert "engine" not in found.manifest["spec"]
    (left,) = found.left_out
    assert left.why == "drafts by medusa are not planned"


def test_keys_of_keys_are_nested_and_lists_are_added_to() -> None:
    found = import_object(
        _server(
            "--compilation-config.pass_config.fuse_norm_quant=true",
            "--compilation-config.pass_config",
            '{"fuse_act_quant": false}',
            "--compilation-config.cudagraph_capture_sizes",
            "[1, 2, 4]",
            "--compilation-config.custom_ops+=none",
            "--compilation-config.custom_ops+",
            "+rms_norm,+silu",
        )
    )

    told = json.loads(found.manifest["spec"]["engine"]["args"]["compilation-config"])
    assert told == {
        "pass_config": {"fuse_norm_quant": True, "fuse_act_quant": False},
        "cudagraph_capture_sizes": [1, 2, 4],
        "custom_ops": ["none", "+rms_norm", "+silu"],
    }


@pytest.mark.parametrize("words", [[f"--a{'.b' * 9_000}", "1"], ["--a.b", "[" * 9_000]])
def test_an_option_with_thousands_of_keys_or_brackets_is_left_out(words: list[str]) -> None:
    found = import_object(_server(*words))

    assert len(found.left_out) == 1


NO_SUCH_PATH = Answer(404, b"404 page not found\n")
LET_IN = {"/apis?": Answer()}


def test_what_a_cluster_does_not_have_keeps_nothing_else_back(capsys: Capture) -> None:
    deployment = yaml.safe_load((DATA / "deployment.yaml").read_text())
    api = ScriptedApi(
        NO_SUCH_PATH,
        by_path={**LET_IN, "deployments/web": Answer(body=deployment), "/gone": Answer(404)},
    )
    there = ["--server", api.access().configuration.host, "-n", "models"]
    names = ["llmisvc/deepseek", "deployment/web", "deployment/gone"]
    try:
        code = main(["import", *names, *there, "-o", "json"])
    finally:
        api.stop()

    said = capsys.readouterr()
    assert code == 2
    assert len(json.loads(said.out)["items"]) == 1
    assert said.err.splitlines() == [
        (
            "error[ImportUnclear]: KIND/NAME: KServe is not installed in this cluster: it has no "
            "LLMInferenceService deepseek; --context names another cluster, -f a file"
        ),
        (
            "error[ImportUnclear]: KIND/NAME: there is no Deployment gone in namespace models; "
            "-n names another namespace"
        ),
    ]


def test_what_may_not_be_read_keeps_nothing_else_back(capsys: Capture) -> None:
    deployment = yaml.safe_load((DATA / "deployment.yaml").read_text())
    said = 'deployments.apps "no" is forbidden'
    api = ScriptedApi(
        NO_SUCH_PATH,
        by_path={
            **LET_IN,
            "deployments/web": Answer(body=deployment),
            "deployments/no": Answer(403, {"message": said}),
        },
    )
    there = ["--server", api.access().configuration.host, "-n", "models"]
    try:
        code = main(["import", "deployment/no", "deployment/web", *there, "-o", "json"])
    finally:
        api.stop()

    printed = capsys.readouterr()
    assert code == 3, "as everywhere where the cluster does not let us"
    assert json.loads(printed.out)["kind"] == "ImportList"
    assert len(json.loads(printed.out)["items"]) == 1
    assert printed.err.startswith(f"error[NotAllowedInCluster]: {said}")
    assert printed.err.count("\n") == 1


def test_where_nothing_may_be_read_all_is_said_and_the_code_is_that_of_other_commands(
    capsys: Capture,
) -> None:
    api = ScriptedApi(
        NO_SUCH_PATH, by_path={**LET_IN, "deployments/no": Answer(403, {"message": "forbidden"})}
    )
    there = ["--server", api.access().configuration.host, "-n", "models"]
    try:
        code = main(["import", "lws/a", "deployment/no", *there, "-o", "json"])
    finally:
        api.stop()

    printed = capsys.readouterr()
    assert code == 3
    assert [problem["code"] for problem in json.loads(printed.out)["items"]] == [
        "ImportUnclear",
        "NotAllowedInCluster",
    ]
    assert printed.err.count("\n") == 2


def test_where_nothing_can_be_imported_there_is_no_list(capsys: Capture) -> None:
    api = ScriptedApi(NO_SUCH_PATH, by_path=LET_IN)
    try:
        code = main(["import", "lws/a", "--server", api.access().configuration.host])
    finally:
        api.stop()

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert "LeaderWorkerSet is not installed in this cluster" in said.err


def _deployment(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "ours"},
        "spec": {"template": {"spec": {"containers": list(containers), **pod}}},
    }


ENGINE = {"name": "engine", "command": ["vllm", "serve", "org/m"]}
GPUS = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def _left_out(content: dict[str, Any]) -> dict[str, str]:
    return {left.path: left.why for left in import_object(content).left_out}


def test_a_sidecar_whose_arguments_look_like_options_is_not_the_engine() -> None:
    proxy = {"name": "proxy", "image": "llm-d/endpoint-picker", "args": ["--pool-name", "org/no"]}
    found = import_object(_deployment(proxy, ENGINE))

    assert found.manifest["spec"]["model"] == {"id": "org/m"}
    with pytest.raises(InputError, match="has no container that starts vLLM"):
        import_object(_deployment(proxy))


def test_of_two_containers_that_start_vllm_the_one_with_gpus_is_the_engine() -> None:
    embedder = {"name": "embedder", "command": ["vllm", "serve", "org/embedder"]}
    found = import_object(_deployment(embedder, {**ENGINE, **GPUS}))

    assert found.manifest["spec"]["model"] == {"id": "org/m"}
    with pytest.raises(InputError, match="has several containers that start vLLM"):
        import_object(_deployment(embedder, ENGINE))


@pytest.mark.parametrize(
    ("resources", "selector"),
    [
        ({"limits": {"google.com/tpu": "4"}}, {}),
        ({}, {"cloud.google.com/gke-tpu-topology": "4x4"}),
        ({"requests": {"habana.ai/gaudi": 8}}, {}),
        ({"limits": {"aws.amazon.com/neuron": 1}}, {}),
    ],
)
def test_what_runs_on_no_gpu_is_refused(
    resources: dict[str, Any], selector: dict[str, str]
) -> None:
    server = _deployment({**ENGINE, "resources": resources}, nodeSelector=selector)

    with pytest.raises(InputError, match="only GPUs of NVIDIA and AMD are planned"):
        import_object(server)


def test_a_claim_in_another_object_tells_the_accelerator() -> None:
    server = _deployment(ENGINE, resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}])
    devices = {"requests": [{"exactly": {"deviceClassName": "tpu.google.com"}}]}
    template = {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": devices}}}

    with pytest.raises(InputError, match=r"runs on tpu\.google\.com"):
        import_object(server, [template])
    assert import_object(_deployment(ENGINE), [template]).left_out == ()


def test_an_interface_is_carried_over_only_with_the_network_that_brings_it() -> None:
    variables = [{"name": "NCCL_SOCKET_IFNAME", "value": "net1"}]
    server = _deployment({**ENGINE, "env": variables}, hostNetwork=True)

    assert (
        "no network of the pods brings this interface"
        in (_left_out(server)["spec.template.spec.containers[engine].env[NCCL_SOCKET_IFNAME]"])
    )
    server["spec"]["template"]["metadata"] = {
        "annotations": {"k8s.v1.cni.cncf.io/networks": "models/rail"}
    }
    spec = import_object(server).manifest["spec"]
    assert spec["engine"]["env"] == variables
    assert spec["pod"]["network"] == {"attachments": ["models/rail"]}


def test_resources_devices_and_a_queue_are_carried_over() -> None:
    resources = {
        "limits": {"nvidia.com/gpu": 8, "rdma/roce": 2, "cpu": "64", "memory": "512Gi"},
        "requests": {"memory": "256Gi", "rdma/roce": 1, "hugepages-2Mi": "1Gi"},
    }
    server = _deployment({**ENGINE, "resources": resources})
    server["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    found = import_object(server)

    assert found.manifest["spec"]["pod"] == {
        "resources": {"cpu": "64", "memory": "512Gi"},
        "network": {"rdma": "Explicit", "resources": [{"name": "rdma/roce", "count": 2}]},
    }
    assert found.manifest["spec"]["placement"] == {"scheduler": "Kueue", "queue": "team"}
    place = "spec.template.spec.containers[engine].resources"
    assert {left.path for left in found.left_out} == {
        f"{place}.limits[nvidia.com/gpu]",
        f"{place}.requests.memory",
        f"{place}.requests[rdma/roce]",
        f"{place}.requests.hugepages-2Mi",
    }


def test_what_the_resource_refuses_is_left_out_with_the_reason() -> None:
    found = import_object(_deployment({**ENGINE, "resources": {"limits": {"memory": "much"}}}))

    assert "pod" not in found.manifest["spec"]
    (left,) = found.left_out
    assert left.path == "spec.template.spec.containers[engine].resources.limits.memory"
    assert "'much'" in left.why


def test_what_kubernetes_writes_is_one_line() -> None:
    server = _deployment(ENGINE, dnsPolicy="ClusterFirst", restartPolicy="Always")
    server["metadata"]["uid"] = "0"
    server["status"] = {"replicas": 1, "conditions": [{"type": "Available"}]}

    assert _left_out(server) == {
        "status, metadata.uid, spec.template.spec.dnsPolicy, spec.template.spec.restartPolicy": (
            "Kubernetes writes it itself, or it is the default"
        )
    }


def test_a_script_is_read_line_by_line_and_its_other_commands_are_listed() -> None:
    script = "set -e\nvllm serve \\\n  org/m \\\n  --max-model-len 8k --enforce-eager\necho done"
    found = import_object(_deployment({"name": "engine", "command": ["sh", "-c", script]}))

    assert found.manifest["spec"] == {
        "model": {"id": "org/m"},
        "engine": {"args": {"enforce-eager": True}, "maxModelLen": 8000},
    }
    (left,) = found.left_out
    assert left.why == "only vLLM's own command is carried over, not: set -e; echo done"


def test_words_options_and_names_that_no_field_takes_are_listed() -> None:
    words = ["spare", "--port", "1", "--port", "2", "--own-option", "x"]
    words += ["--served-model-name", "a", "b"]

    where = "spec.template.spec.containers[vllm]"
    assert _left_out(_server(*words)) == {
        f"{where}: spare": "it belongs to no option of vLLM",
        f"{where}: --port": "clients reach the model at status.endpoint",
        f"{where}: --own-option": "vLLM 0.33.0 has no such option",
        f"{where}: --served-model-name": "a b: a model has one name, the first",
    }


@pytest.mark.parametrize(
    ("preset", "model"),
    [
        ("llama-3.3-70b-instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("Phi-4-mini-instruct", "microsoft/Phi-4-mini-instruct"),
        ("mistral-7b-instruct", "mistralai/Mistral-7B-Instruct-v0.3"),
        ("gemma-3-27b-instruct", "google/gemma-3-27b-it"),
        ("google/gemma-4-12B-it", "google/gemma-4-12B-it"),
    ],
)
def test_a_preset_is_the_model_that_kaito_says_it_is(preset: str, model: str) -> None:
    workspace = {"kind": "Workspace", "inference": {"preset": {"name": preset}}}

    assert import_object(workspace).manifest["spec"]["model"] == {"id": model}


def test_an_unknown_preset_is_named_with_those_that_are_near() -> None:
    workspace = {"kind": "Workspace", "inference": {"preset": {"name": "phi-4-mini"}}}

    with pytest.raises(InputError, match=r"preset 'phi-4-mini'.*did you mean phi-4-mini-instruct"):
        import_object(workspace)
    found = import_object(workspace, options=ImportOptions(model="org/m"))
    assert found.manifest["spec"]["model"] == {"id": "org/m"}
    assert [one.why for one in found.left_out] == ["phi-4-mini is none of KAITO's presets"]


def test_the_worker_that_decodes_is_the_engine_of_a_graph(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "dynamo.yaml")

    assert manifest["spec"] == {
        "model": {
            "id": "Qwen/Qwen3-32B",
            "weights": {"secretRef": {"name": "hf-token-secret", "key": "HF_TOKEN"}},
        },
        "engine": {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}], "maxModelLen": 32000},
        "replicas": 2,
        "placement": {"nodeSelector": {"pool": "gpus"}},
        "pod": {"resources": {"memory": "250Gi"}},
    }
    assert {"spec.services.Frontend", "spec.services.prefill"} <= left_out.keys()
    assert "Dynamo's own" in left_out["spec.services.decode.extraPodSpec.mainContainer.image"]
    newer, _ = _imported(capsys, "dynamo-v1beta1.yaml")
    assert newer["spec"]["model"] == manifest["spec"]["model"]


def test_each_enabled_model_of_values_is_one(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "production-stack.yaml")

    assert manifest["metadata"] == {"name": "mistral"}
    assert manifest["spec"] == {
        "model": {
            "id": "mistralai/Mistral-7B-Instruct-v0.3",
            "quantization": "BF16",
            "weights": {"secretRef": {"name": "hub", "key": "token"}},
        },
        "engine": {
            "image": "vllm/vllm-openai:v0.33.0",
            "args": {"enable-prefix-caching": False, "gpu-memory-utilization": 0.9},
            "maxModelLen": 16384,
            "apiKeySecretRef": {"name": "api", "key": "key"},
        },
        "replicas": 2,
        "placement": {"tolerations": [{"key": "gpus", "operator": "Exists"}]},
        "pod": {"resources": {"cpu": "6", "memory": "32Gi"}, "runtimeClassName": "nvidia"},
    }
    assert left_out["servingEngineSpec.modelSpec[later]"] == "it is not enabled"


def test_of_a_role_for_prefill_and_one_for_decode_the_latter_is_read(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "storm-service.yaml")

    assert manifest["spec"]["replicas"] == 3
    assert manifest["spec"]["model"] == {
        "id": "Qwen/Qwen3-8B",
        "weights": {"uri": "pvc://models/Qwen3-8B"},
    }
    assert "spec.template.spec.roles[prefill]" in left_out


def test_objects_beside_a_model_are_listed(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "all.yaml"
    service = "kind: Service\nmetadata: {name: front}\n"
    file.write_text(f"{service}---\n{(DATA / 'kaito.yaml').read_text()}")

    assert main(["import", "-f", str(file), "-o", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    paths = [left["path"] for left in item["leftOut"]]
    assert "Service front" in paths
    assert "ConfigMap params" not in paths


def test_kserves_engine_is_main_with_the_network_that_its_variables_name(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "llmisvc-network.yaml")

    assert manifest["spec"] == {
        "model": {"id": "deepseek-ai/DeepSeek-R1-0528", "servedName": "ds"},
        "engine": {"args": {"seed": 1}, "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "net1"}]},
        "workload": {"concurrency": 8},
        "pod": {
            "network": {
                "attachments": ["rail-p2"],
                "rdma": "Explicit",
                "resources": [{"name": "rdma/roce", "count": 2}],
            },
            "resources": {"cpu": "64", "memory": "512Gi"},
        },
    }
    assert {
        "metadata.annotations[serving.kserve.io/exp-dra-device-class]",
        "spec.template.containers[sidecar]",
        "spec.template.containers[main].livenessProbe",
        "spec.prefill",
    } <= left_out.keys()
    assert "does not tell its vLLM version" in left_out["spec.template.containers[main].image"]


def test_a_predictor_of_kserves_runtime_names_its_model_by_an_option(capsys: Capture) -> None:
    manifest, left_out = _imported(capsys, "inference-service.yaml")

    assert manifest["spec"] == {
        "model": {
            "id": "meta-llama/Llama-3.1-8B-Instruct",
            "servedName": "llama3",
            "weights": {"secretRef": {"name": "hub", "key": "token"}},
        },
        "engine": {"maxModelLen": 8192},
        "replicas": 2,
        "placement": {"nodeSelector": {"pool": "gpus"}},
        "pod": {"resources": {"cpu": "6", "memory": "24Gi"}},
    }
    assert {
        "spec.predictor.maxReplicas",
        "spec.predictor.model: --backend",
        "spec.predictor.model.env[HF_TOKEN].valueFrom.secretKeyRef.optional",
    } <= left_out.keys()


def _service(model: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "ours"},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "huggingface"}, **model}, **spec}},
    }


def _token(variable: str, secret: str) -> dict[str, Any]:
    reference = {"name": secret, "key": "t"}
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}


@pytest.mark.parametrize(
    ("content", "left_out"),
    [
        (
            _service({"args": ["--model-id", "org/a"], "storageUri": "hf://org/b"}),
            {"spec.predictor.model.args": "org/a: spec.model.id is org/b"},
        ),
        (
            _service({"args": ["org/a"], "storageUri": "hf://org/b"}),
            {
                "spec.predictor.model": (
                    "org/a: KServe's own field or option says which model it is"
                )
            },
        ),
        (
            _deployment(
                {**ENGINE, "env": [_token("HF_TOKEN", "a"), _token("HUGGING_FACE_HUB_TOKEN", "b")]}
            ),
            {
                "spec.template.spec.containers[engine].env[HF_TOKEN].valueFrom.secretKeyRef": (
                    "{'name': 'a', 'key': 't'}: spec.model.weights.secretRef is "
                    "{'name': 'b', 'key': 't'}"
                )
            },
        ),
        (
            _service(
                {"args": ["--tensor-parallel-size=8"], "storageUri": "hf://org/b"},
                workerSpec={"tensorParallelSize": 4},
            ),
            {
                "spec.predictor.workerSpec.tensorParallelSize": "4: the degree tensor is 8",
                "parallelism": "tensor 8: the planner chooses the degrees; --pin keeps these",
            },
        ),
        (
            {
                "apiVersion": "kaito.sh/v1beta1",
                "kind": "Workspace",
                "metadata": {"name": "ours"},
                "resource": {
                    "instanceType": "S1",
                    "labelSelector": {"matchLabels": {"node.kubernetes.io/instance-type": "S2"}},
                },
                "inference": {"preset": {"name": "deepseek-r1-0528"}},
            },
            {
                "resource.labelSelector.matchLabels": (
                    "node.kubernetes.io/instance-type S2: spec.placement.nodeSelector has S1"
                )
            },
        ),
    ],
)
def test_of_two_values_for_one_field_the_other_is_listed(
    content: dict[str, Any], left_out: dict[str, str]
) -> None:
    assert _left_out(content) == left_out


@pytest.mark.parametrize(
    ("file", "field", "value", "routing"),
    [
        ("llmisvc.yaml", "spec", {"router": {"scheduler": {}}}, {"mode": "Router"}),
        ("llmisvc.yaml", "spec", {"router": {"scheduler": {"pool": {"ref": {"name": "p"}}}}}, None),
        ("llmisvc.yaml", "spec", {"router": {"route": {}, "gateway": {}}}, None),
        (
            "production-stack.yaml",
            "routerSpec",
            {"routingLogic": "prefixaware"},
            {"mode": "Router"},
        ),
        ("production-stack.yaml", "routerSpec", {"routingLogic": "kvaware"}, {"mode": "Router"}),
        ("production-stack.yaml", "routerSpec", {"routingLogic": "roundrobin"}, None),
        (
            "production-stack.yaml",
            "routerSpec",
            {"routingLogic": "kvaware", "enableRouter": False},
            None,
        ),
    ],
)
def test_a_router_that_follows_prefixes_is_carried_over_and_no_other(
    tmp_path: Path,
    capsys: Capture,
    file: str,
    field: str,
    value: dict[str, Any],
    routing: dict[str, str] | None,
) -> None:
    content = yaml.safe_load((DATA / file).read_text())
    content[field] |= value
    (tmp_path / "routed.yaml").write_text(yaml.safe_dump(content))

    assert main(["import", "-f", str(tmp_path / "routed.yaml"), "-o", "json"]) == 0

    item, *_ = json.loads(capsys.readouterr().out)["items"]
    assert item["manifest"]["spec"].get("routing") == routing


def test_the_bounds_of_an_autoscaler_are_carried_over_and_its_triggers_are_the_plans_to_say(
    tmp_path: Path, capsys: Capture
) -> None:
    content = yaml.safe_load((DATA / "llmisvc.yaml").read_text())
    content["spec"] |= {"scaling": {"minReplicas": 2, "maxReplicas": 6, "keda": {"triggers": []}}}
    (tmp_path / "scaled.yaml").write_text(yaml.safe_dump(content))

    assert main(["import", "-f", str(tmp_path / "scaled.yaml"), "-o", "json"]) == 0

    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["manifest"]["spec"]["scaling"] == {"minReplicas": 2, "maxReplicas": 6}
