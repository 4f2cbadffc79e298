"""Weights in a bucket: what the engine and its pod are told of the store, and what is left out."""

import json
from typing import Any

import pytest

from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import ConfigMapKey, ObjectStore
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan, a_plan_of
from tests.support.rendered import engine_of, environment_of, pod_of

STORE = {"RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING", "AWS_", "AZURE_"}

MINIO = ObjectStore(
    uri="s3://models/llama/8b",
    secret="store",
    endpoint="https://minio.example:9000",
    region="eu-central-1",
    virtual_host=False,
    authority=ConfigMapKey(name="authority", key="bundle.pem"),
)


def told(store: ObjectStore, plan: Plan | None = None) -> list[dict[str, Any]]:
    """Return the variables of the engine that are of the store."""
    engine = engine_of(render(plan or a_plan(), a_deployment(object_store=store)))
    return [item for item in engine["env"] if item["name"].startswith(tuple(STORE))]


def arguments(store: ObjectStore, plan: Plan | None = None) -> list[str]:
    deployment = a_deployment(object_store=store, load_format="runai_streamer")
    return list(engine_of(render(plan or a_plan(), deployment))["args"])


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def secret(name: str, **more: object) -> dict[str, Any]:
    key = {"name": "store", "key": name} | more
    return {"name": name, "valueFrom": {"secretKeyRef": key}}


def test_a_server_that_speaks_s3_is_told_by_variables_and_keys_by_their_secret() -> None:
    assert told(MINIO) == [
        {"name": "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING", "value": "0"},
        {"name": "AWS_ENDPOINT_URL", "value": "https://minio.example:9000"},
        {"name": "AWS_REGION", "value": "eu-central-1"},
        {"name": "AWS_DEFAULT_REGION", "value": "eu-central-1"},
        {"name": "AWS_CA_BUNDLE", "value": "/etc/object-store/ca.crt"},
        {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
        secret("AWS_ACCESS_KEY_ID"),
        secret("AWS_SECRET_ACCESS_KEY"),
        secret("AWS_SESSION_TOKEN", optional=True),
    ]


def test_without_a_secret_the_pod_goes_by_its_own_identity() -> None:
    virtual = {"name": "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING", "value": "1"}

    assert told(ObjectStore(uri="s3://models/llama")) == [virtual]
    assert told(ObjectStore(uri="gs://models/llama")) == []
    assert told(ObjectStore(uri="az://models/llama", account="acme")) == [
        {"name": "AZURE_STORAGE_ACCOUNT_NAME", "value": "acme"}
    ]


def test_azure_has_either_of_two_keys_and_the_account_that_was_admitted() -> None:
    """The streamer makes the host of that name alone: a token is no more than its query."""
    store = ObjectStore(uri="az://models/llama", account="acme", secret="store")

    assert told(store) == [
        {"name": "AZURE_STORAGE_ACCOUNT_NAME", "value": "acme"},
        secret("AZURE_STORAGE_SAS_TOKEN", optional=True),
        secret("AZURE_STORAGE_ACCOUNT_KEY", optional=True),
    ]


def test_certificates_are_mounted_from_their_config_map() -> None:
    bundle = render(a_plan(), a_deployment(object_store=MINIO))

    items = [{"key": "bundle.pem", "path": "ca.crt"}]
    volume = {"name": "store-ca", "configMap": {"name": "authority", "items": items}}
    mount = {"name": "store-ca", "mountPath": "/etc/object-store", "readOnly": True}
    assert volume in pod_of(bundle)["volumes"]
    assert mount in engine_of(bundle)["volumeMounts"]


def test_the_engine_serves_the_address_under_the_id_and_never_asks_the_hub() -> None:
    bundle = render(a_plan(), a_deployment(object_store=MINIO, revision="abc"))

    words = engine_of(bundle)["args"]
    assert words[0] == "s3://models/llama/8b"
    assert after(words, "--served-model-name") == a_deployment().model
    assert "--revision" not in words
    assert environment_of(bundle)["HF_HUB_OFFLINE"] == "1"


ONE_RANK, TWO_RANKS = (a_plan_of(Layout(tensor=tensor)) for tensor in (1, 2))


@pytest.mark.parametrize(
    ("plan", "store", "said"),
    [
        (TWO_RANKS, MINIO, {"distributed": True}),
        (
            ONE_RANK,
            ObjectStore(uri="s3://models", concurrency=32, buffer_bytes=20 * 10**9),
            {"concurrency": 32, "memory_limit": 20 * 10**9},
        ),
    ],
)
def test_ranks_of_a_pod_share_one_copy_and_the_reader_is_told_what_is_said(
    plan: Plan, store: ObjectStore, said: dict[str, object]
) -> None:
    words = arguments(store, plan)

    assert after(words, "--load-format") == "runai_streamer"
    assert json.loads(after(words, "--model-loader-extra-config")) == said


def test_a_rank_alone_of_which_nothing_is_said_reads_as_the_streamer_does() -> None:
    assert "--model-loader-extra-config" not in arguments(MINIO, ONE_RANK)


def test_the_start_up_budget_follows_from_the_bandwidth() -> None:
    def budget_of(store: ObjectStore) -> str:
        (group,) = of_kind(
            render(a_plan(), a_deployment(object_store=store)).objects, "StatefulSet"
        )
        return str(group["metadata"]["annotations"]["shardwright.io/start-up-budget"])

    measured = ObjectStore(uri="s3://models", bytes_per_second=250e6)
    assert "read from the object store at 1000 MB/s (assumed) x 4" in budget_of(MINIO)
    assert "read from the object store at 250 MB/s (stated) x 4" in budget_of(measured)
