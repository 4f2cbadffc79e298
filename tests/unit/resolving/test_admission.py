"""What a resource may name: the administrator has a say, and what his defaults name is admitted."""

import json
from typing import Any

import pytest

from shardwright.api.settings import Settings, read_settings
from shardwright.errors import InputError
from shardwright.pipeline.assembly import plan_serving
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import TRTLLM, a_resource, plan_of, stock

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CLAIM = {"uri": "pvc://models"}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def settings(defaults: Any = None, **policy: Any) -> Settings:
    return read_settings(json.dumps({"engineDefaults": defaults or {}, "policy": policy}))


def sentences(said: Settings, **spec: Any) -> list[str]:
    """Return what a resource is refused for, empty where it is not."""
    try:
        resolve(Question(resource=a_resource(**spec), settings=said))
    except InputError as error:
        return [f"{problem.code}: {problem.sentence()}" for problem in error.problems]
    return []


def test_a_forbidden_variable_is_refused_at_its_path_and_admitted_by_name() -> None:
    env = {
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "HF_ENDPOINT", "value": "https://hub.example"},
        ]
    }

    (said,) = sentences(Settings(), engine=env)
    assert said == (
        "EnvironmentForbidden: spec.engine.env[1].name: HF_ENDPOINT is not allowed, because it "
        "sends data to, or takes it from, "
        "another host; leave it out, or have it added to policy.admittedEnvironment of the chart"
    )
    assert sentences(settings(admittedEnvironment=["HF_ENDPOINT"]), engine=env) == []


def test_what_every_pod_would_carry_is_bounded_all_of_it_together() -> None:
    names = ("NCCL_ALGO", "NCCL_DEBUG", "NCCL_NET", "NCCL_PROTO")

    def said(signs: int, **more: Any) -> list[str]:
        env = [{"name": name, "value": "é" * signs} for name in names]  # of two bytes each
        return sentences(Settings(), engine={"env": env, "args": {"seed": 7}}, **more)

    assert said(2000, replicas=1000) == said(2048, replicas=900) == []
    (refusal,) = said(2048, replicas=1000)
    assert refusal == (
        "EngineTextTooLarge: spec.engine: 16,426 bytes of variables and arguments must be at most "
        "16,384 with so many replicas, "
        "42 too many; shorten them, or set replicas to fewer; a large file belongs on a claim or "
        "into the image"
    )
    # Nobody knows beforehand how many a plan will have.
    assert said(2048) == said(2048, budget={"gpus": 8, "fill": True}) == [refusal]


def test_a_variable_is_judged_by_the_list_of_its_engine() -> None:
    env = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}

    assert sentences(Settings(), engine=env) == []
    assert [problem[:20] for problem in sentences(Settings(), engine=TRTLLM | env)] == [
        "EnvironmentForbidden"
    ]


def test_a_variable_of_the_defaults_needs_no_admission() -> None:
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}
    subject = resolve(
        Question(resource=a_resource(), settings=settings(defaults={"engine": {"env": [proxy]}}))
    )
    assert subject.deployment.serving.environment == (("HTTPS_PROXY", "http://proxy.example:3128"),)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "VLLM_HOST_IP", "HF_TOKEN"])
def test_what_nobody_may_set_cannot_be_admitted(name: str) -> None:
    with pytest.raises(InputError) as refused:
        settings(admittedEnvironment=["NCCL_NET_PLUGIN", name])
    assert [(problem.code, problem.path) for problem in refused.value.problems] == [
        ("EnvironmentForbidden", f"policy.admittedEnvironment.{name}")
    ]


@pytest.mark.parametrize(
    ("image", "admitted", "fine"),
    [
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example"], True),
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example/mirror"], True),
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example/mirror/"], True),
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example/mirror/vllm"], True),
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example/mirror/vllm:v0.33.0"], True),
        ("registry.example/mirror/vllm:v0.33.0", ["registry.example/mirror/vllm:v0.32.0"], False),
        (
            f"registry.example/mirror/vllm:v0.33.0@sha256:{'0' * 64}",
            ["registry.example/mirror/vllm"],
            True,
        ),
        (
            f"registry.example/mirror/vllm:v0.33.0@sha256:{'0' * 64}",
            ["registry.example/mirror/vllm:v0.33.0"],
            False,
        ),
        ("registry.example/mirror-of-mine/vllm:v0.33.0", ["registry.example/mirror"], False),
        ("registry.example.org/mirror/vllm:v0.33.0", ["registry.example"], False),
        ("registry.example:5000/vllm:v0.33.0", ["registry.example"], False),
        ("registry.example:5000/vllm:v0.33.0", ["registry.example:5000"], True),
        ("docker.io/vllm/vllm-openai:v0.33.0", ["vllm"], True),
        ("vllm/vllm-openai:v0.33.0", ["docker.io"], True),
        ("index.docker.io/vllm/vllm-openai:v0.33.0", ["vllm/vllm-openai"], True),
        ("vllm-openai:v0.33.0", ["vllm"], False),
        ("vllm-openai:v0.33.0", ["library/vllm-openai"], True),
        ("evil/vllm-openai:v0.33.0", ["vllm"], False),
        ("evil/vllm-openai:v0.33.0", [], False),
        ("evil/vllm-openai:v0.33.0", ["*"], True),
    ],
)
def test_an_image_is_admitted_by_whole_parts_of_its_name(
    image: str, admitted: list[str], *, fine: bool
) -> None:
    problems = sentences(
        settings(admittedImages=admitted), engine={"image": image, "version": "0.33.0"}
    )
    assert [problem.split()[0] for problem in problems] == ([] if fine else ["ImageNotAdmitted:"])


def test_our_default_image_must_be_admitted_and_that_of_the_administrators_defaults_is() -> None:
    mirror = {"engine": {"image": "mirror.example/vllm-openai:v0.33.0"}}

    (said,) = sentences(settings(admittedImages=["registry.example"]))
    assert said == (
        "ImageNotAdmitted: spec.engine.image: vllm/vllm-openai:v0.33.0 must be one of, or under, "
        "registry.example, as only the administrator may admit sources of code and weights; use "
        "one of these, or have it "
        "added to policy.admittedImages of the chart"
    )
    assert sentences(settings(admittedImages=["registry.example"], defaults=mirror)) == []


def test_weights_in_an_image_come_from_an_admitted_registry() -> None:
    model = {"id": LLAMA, "weights": {"uri": "oci://evil.example/llama:v1"}}
    said = settings(admittedImages=["vllm"])
    assert [problem.split(": ")[:2] for problem in sentences(said, model=model)] == [
        ["ImageNotAdmitted", "spec.model.weights.uri"]
    ]


def test_models_drafts_and_adapters_of_the_hub_come_from_admitted_repositories() -> None:
    head = {"id": "a/draft", "config": {}, "uri": f"hf://evil/draft@{COMMIT}"}
    adapters = [{"name": "a", "uri": f"hf://evil/lora@{COMMIT}"}, {"name": "b", **CLAIM}]
    spec = {
        "model": {"id": LLAMA, "adapters": adapters},
        "engine": {"speculation": {"method": "DraftModel", "head": head}},
    }

    problems = sentences(settings(admittedModels=["meta-llama-fakes", "acme/llama"]), **spec)

    assert [problem.split(": ")[:2] for problem in problems] == [
        ["ModelNotAdmitted", "spec.model.id"],
        ["ModelNotAdmitted", "spec.engine.speculation.head.uri"],
        ["ModelNotAdmitted", "spec.model.adapters[0].uri"],
    ]


AWS = {"uri": "s3://models/llama"}
MINIO = AWS | {"objectStore": {"endpoint": "https://minio.example:9000"}}
AZURE = {"uri": "az://models/llama", "objectStore": {"account": "acme"}}
SAS_TOKEN = {"secretRef": {"name": "of-any-account"}}
FRANKFURT, CHINA, GOVERNMENT = (
    AWS | {"objectStore": {"region": region}}
    for region in ("eu-central-1", "cn-north-1", "us-gov-west-1")
)


@pytest.mark.parametrize(
    ("store", "admitted", "fine"),
    [
        (AWS, "*", True),
        (AWS, "s3://models", True),
        (AWS, "s3://models/llama", True),
        (AWS, "s3://model", False),
        (AWS, "meta-llama", False),
        (MINIO, "s3://models", False),  # another server may call a bucket so, too
        (MINIO, "https://minio.example:9000", True),
        (MINIO, "https://minio.example", False),
        (FRANKFURT, "s3://models", True),
        (CHINA, "s3://models", False),  # its buckets are others than those of AWS elsewhere
        (CHINA, "https://s3.cn-north-1.amazonaws.com.cn/models", True),
        (GOVERNMENT, "s3://models", False),
        (GOVERNMENT, "https://s3.us-gov-west-1.amazonaws.com", True),
        (AZURE, "az://models", False),  # another account may call a container so, too
        (AZURE, "https://acme.blob.core.windows.net/models", True),
        (AZURE, "https://acme.blob.core.windows.net", True),
        (AZURE, "https://acme.blob.core.windows.net/model", False),
        (AZURE | SAS_TOKEN, "https://other.blob.core.windows.net/models", False),
        (AZURE | SAS_TOKEN, "acme", False),
    ],
)
def test_an_object_store_is_admitted_by_where_it_really_is(
    store: dict[str, Any],
    admitted: str,
    fine: bool,  # noqa: FBT001 - a parameter
) -> None:
    model = {"id": LLAMA, "weights": store}
    said = sentences(settings(admittedModels=[admitted]), model=model)
    path = [] if fine else [["ModelNotAdmitted", "spec.model.weights.uri"]]
    assert [problem.split(": ")[:2] for problem in said] == path


@pytest.mark.parametrize("admitted", ["meta-llama", "meta-llama/", LLAMA, "*"])
def test_a_model_is_admitted_by_its_organisation_or_its_whole_id(admitted: str) -> None:
    assert sentences(settings(admittedModels=[admitted])) == []


@pytest.mark.parametrize("weights", [CLAIM, {"uri": "oci://registry.example/llama:v1"}])
def test_weights_that_are_not_from_the_hub_need_neither_its_admission_nor_a_commit(
    weights: dict[str, Any],
) -> None:
    said = settings(admittedModels=[], requireRevision="Deny")
    assert sentences(said, model={"id": LLAMA, "weights": weights}) == []


def test_a_commit_is_required_where_the_administrator_says_so() -> None:
    required = settings(requireRevision="Deny")

    (said,) = sentences(required)
    assert said == (
        f"RevisionRequired: spec.model.revision: {LLAMA} must be pinned to a commit, the "
        "administrator requires it "
        "(policy.requireRevision: Deny): its publisher can change what the hub gives tomorrow; set the "
        "40 hexadecimal digits of a "
        "commit that you have looked at"
    )
    assert sentences(required, model={"id": LLAMA, "revision": COMMIT}) == []


@pytest.mark.parametrize(
    ("demand", "revision", "warned"), [("Warn", None, 1), ("Warn", COMMIT, 0), ("Off", None, 0)]
)
def test_a_missing_commit_is_warned_of_in_the_plan(
    demand: str, revision: str | None, warned: int
) -> None:
    resource = a_resource(model={"id": LLAMA} | ({"revision": revision} if revision else {}))
    subject = resolve(Question(resource=resource, settings=settings(requireRevision=demand)))

    warnings = plan_of(plan_serving(subject, stock(subject, h100_nodes(1)))).warnings

    assert (
        sum(warning.startswith("no commit of the model is named") for warning in warnings) == warned
    )


@pytest.mark.parametrize(
    ("attachment", "admitted", "fine"),
    [
        ("rail-0", [], True),
        ("default/rail-0", [], True),
        ("kube-system/mgmt-net", [], False),
        ("kube-system/mgmt-net", ["other"], False),
        ("kube-system/mgmt-net", ["other", "kube-system"], True),
        ("kube-system/mgmt-net", ["*"], True),
    ],
)
def test_pods_join_networks_of_their_own_namespace_or_of_one_that_is_admitted(
    attachment: str, admitted: list[str], *, fine: bool
) -> None:
    said = "".join(
        sentences(
            settings(admittedAttachmentNamespaces=admitted),
            pod={"network": {"attachments": [attachment]}},
        )
    )

    refused = (
        f"AttachmentNotAdmitted: spec.pod.network.attachments[0]: {attachment} must be a network "
        "of namespace default, others "
        "say who joins their networks; name one of your own, or have kube-system added to "
        "policy.admittedAttachmentNamespaces of the chart"
    )
    assert said == ("" if fine else refused)


@pytest.mark.parametrize(
    ("admitted", "fine"), [([], False), (["other"], False), (["default"], True), (["*"], True)]
)
def test_memory_is_locked_where_it_is_admitted(admitted: list[str], *, fine: bool) -> None:
    problems = sentences(
        settings(admittedLockMemory=admitted), pod={"network": {"lockMemory": True}}
    )
    assert [problem.split(": ")[:2] for problem in problems] == (
        [] if fine else [["LockMemoryNotAdmitted", "spec.pod.network.lockMemory"]]
    )


@pytest.mark.parametrize(
    ("admitted", "fine"),
    [
        ({}, False),
        ({"other": ["reader"]}, False),
        ({"default": ["reader"]}, True),
        ({"default": ["*"]}, True),
        ({"*": ["reader"]}, True),
        ({"*": ["reader"], "default": []}, False),
        ({"*": ["readers"]}, False),
    ],
)
def test_pods_have_the_account_and_mount_the_secret_that_is_admitted_in_their_namespace(
    admitted: dict[str, list[str]], *, fine: bool
) -> None:
    secret = {"name": "own", "mountPath": "/mnt/own", "secret": {"secretName": "reader"}}
    said = settings(admittedServiceAccounts=admitted, admittedSecretVolumes=admitted)

    account = (
        "ServiceAccountNotAdmitted: spec.pod.serviceAccountName: reader is not admitted in "
        "namespace default, as only the administrator may admit accounts, which clouds give "
        "rights; leave it out, or have reader added to "
        "policy.admittedServiceAccounts of the chart"
    )
    mounted = (
        "SecretVolumeNotAdmitted: spec.pod.volumes[0].secret.secretName: reader is not admitted "
        "in namespace default, the "
        "operator may mount no Secret that its administrator has not named; leave it out, or have "
        "reader added to "
        "policy.admittedSecretVolumes of the chart"
    )
    refused = sentences(said, pod={"serviceAccountName": "reader", "volumes": [secret]})
    assert refused == ([] if fine else [account, mounted])


@pytest.mark.parametrize(
    "kind",
    [{"configMap": {"name": "a"}}, {"pvc": {"claimName": "a"}}, {"emptyDir": {"sizeLimit": "1Gi"}}],
)
def test_what_is_no_secret_may_be_mounted_by_everybody(kind: dict[str, Any]) -> None:
    assert (
        sentences(settings(), pod={"volumes": [{"name": "own", "mountPath": "/mnt/own", **kind}]})
        == []
    )


def test_an_account_and_a_secret_of_the_defaults_need_no_admission() -> None:
    secret = {"name": "own", "mountPath": "/mnt/own", "secret": {"secretName": "a"}}
    said = settings(defaults={"pod": {"serviceAccountName": "a", "volumes": [secret]}})

    assert (
        sentences(said)
        == sentences(said, pod={"serviceAccountName": "a", "volumes": [secret | {"name": "b"}]})
        == []
    )
    assert len(sentences(said, pod={"serviceAccountName": "b"})) == 1


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("key", "admitted", "fine"),
    [
        ("team", [], True),
        ("app.kubernetes.io/part-of", [], True),
        ("devices.gke.io/container.engine", [], False),
        ("devices.gke.io/container.engine", ["gke.io"], False),
        ("devices.gke.io/container.engine", ["devices.gke.io"], True),
        ("io.katacontainers.config.runtime", [], False),
        ("io.katacontainers.config.runtime", ["io.katacontainers.config.runtime"], True),
        ("prometheus.io/scrape", ["example.com", "prometheus.io"], True),
        ("prometheus.io/scrape", ["*"], True),
    ],
)
def test_a_key_of_a_domain_is_refused_where_the_administrator_has_not_named_the_domain(
    kind: str, key: str, admitted: list[str], *, fine: bool
) -> None:
    refused = (
        f"PodKeyNotAdmitted: spec.pod.{kind}.{key}: {key} must be of a domain that is admitted: "
        f"{', '.join(admitted) or 'none'}, "
        "as only the administrator may admit keys that runtimes, networks and clouds act on; "
        "use a key without a domain, or "
        f"have {key.partition('/')[0]} added to policy.admittedPodKeys of the chart"
    )
    assert sentences(settings(admittedPodKeys=admitted), pod={kind: {key: "a"}}) == (
        [] if fine else [refused]
    )


def test_a_key_of_the_defaults_needs_no_admission_but_what_it_says_is_theirs() -> None:
    said = settings(defaults={"pod": {"annotations": {"iam.amazonaws.com/role": "reader"}}})

    assert (
        sentences(said)
        == sentences(said, pod={"annotations": {"iam.amazonaws.com/role": "reader"}})
        == []
    )
    assert len(sentences(said, pod={"annotations": {"iam.amazonaws.com/role": "admin"}})) == 1


def test_labels_and_annotations_count_among_what_every_pod_carries() -> None:
    labels, annotations = (
        {"team": "a" * 60},
        {f"example.com/{index}": "a" * 500 for index in range(16)},
    )

    (said,) = sentences(
        settings(admittedPodKeys=["example.com"]),
        pod={"labels": labels, "annotations": annotations},
        replicas=1000,
        engine={
            "args": {"chat-template-content-format": "auto"},
            "env": [
                {"name": "NCCL_DEBUG", "value": "é" * 2048},
                {"name": "NCCL_ALGO", "value": "é" * 2048},
            ],
        },
    )
    assert said.startswith("EngineTextTooLarge: spec.engine: 16,")
    assert "bytes of variables, labels, annotations and arguments" in said


def test_a_network_of_the_defaults_needs_no_admission() -> None:
    network = {"attachments": ["fabric/rail-0"], "lockMemory": True}
    assert sentences(settings(defaults={"pod": {"network": network}})) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"admittedImages": "vllm"}, ("WrongType", "admittedImages")),
        ({"admittedImages": ["https//:a b"]}, ("BadFormat", "admittedImages[0]")),
        ({"admittedModels": [1]}, ("WrongType", "admittedModels[0]")),
        ({"requireRevision": "deny"}, ("NotAllowed", "requireRevision")),
        ({"admittedEnvironment": ["A-B"]}, ("BadFormat", "admittedEnvironment[0]")),
        ({"admittedAttachmentNamespaces": ["A"]}, ("BadFormat", "admittedAttachmentNamespaces[0]")),
        ({"admittedLockMemory": [True]}, ("WrongType", "admittedLockMemory[0]")),
        ({"admittedServiceAccounts": ["reader"]}, ("WrongType", "admittedServiceAccounts")),
        (
            {"admittedSecretVolumes": {"team": ["A"]}},
            ("BadFormat", "admittedSecretVolumes.team[0]"),
        ),
        ({"admittedPodKeys": ["a/b"]}, ("BadFormat", "admittedPodKeys[0]")),
    ],
)
def test_settings_that_cannot_be_read_say_where(
    said: dict[str, Any], expected: tuple[str, str]
) -> None:
    with pytest.raises(InputError) as refused:
        settings(**said)
    code, path = expected
    assert [(problem.code, problem.path) for problem in refused.value.problems] == [
        (code, f"policy.{path}")
    ]
