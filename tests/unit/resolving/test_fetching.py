"""Which config is to be read from the hub, as whom, and where a config is that was read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.api.settings import Settings, read_settings
from shardwright.errors import InputError, Problem
from shardwright.rendering.deployment import SecretKey
from shardwright.rendering.fetch_job import Fetcher, HubFetch, config_name
from shardwright.resolving.model import Question, Unread, config_source, source_of, unread
from shardwright.resolving.subject import resolve
from tests.support.builders_model import a_config
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import a_resource

FETCHER = Fetcher(image="registry.example/operator:1", pull_policy="IfNotPresent")


def settings(**more: Any) -> Settings:
    return read_settings(json.dumps({"configFetch": {"enabled": True}, **more}))


def problem_of(
    model: dict[str, Any], given: Settings, fetcher: Fetcher | None = FETCHER, **spec: Any
) -> Problem:
    with pytest.raises(InputError) as caught:
        resolve(Question(resource=a_resource(model=model, **spec), settings=given, fetcher=fetcher))
    (problem,) = caught.value.problems
    return problem


def test_a_model_that_nobody_knows_is_to_be_read_with_its_token_as_the_engine_reaches_the_hub() -> (
    None
):
    env = [
        {"name": "HF_ENDPOINT", "value": "https://hub.example"},
        {"name": "NCCL_DEBUG", "value": "INFO"},
    ]
    given = settings(
        engineDefaults={
            "engine": {"name": "vLLM", "env": env},
            "pod": {"imagePullSecrets": [{"name": "registry"}]},
        }
    )
    model = {"id": "acme/ours", "revision": "0" * 40, "weights": {"secretRef": {"name": "hub"}}}

    problem = problem_of(model, given)

    assert (problem.code, problem.path, problem.what) == (
        "ModelUnknown",
        "spec.model.id",
        "'acme/ours'",
    )
    found = unread((problem,))
    assert found
    assert found.fetch == HubFetch(
        fetcher=FETCHER,
        model="acme/ours",
        revision="0" * 40,
        hub_token=SecretKey(name="hub", key="token"),
        environment=(("HF_ENDPOINT", "https://hub.example"),),
        pull_secrets=("registry",),
    )


NOT_READ: dict[str, tuple[dict[str, Any], Settings]] = {
    "not wanted": ({"id": "acme/ours"}, Settings()),
    "weights on a claim": ({"id": "acme/ours", "weights": {"uri": "pvc://models"}}, settings()),
    "weights in an image": (
        {"id": "acme/ours", "weights": {"uri": "oci://registry.example/ours:1"}},
        settings(),
    ),
}


@pytest.mark.parametrize(("model", "given"), NOT_READ.values(), ids=NOT_READ)
def test_nothing_is_read_that_is_not_on_the_hub_or_where_it_is_not_wanted(
    model: dict[str, Any], given: Settings
) -> None:
    problem = problem_of(model, given)

    assert (problem.code, isinstance(problem, Unread)) == ("ModelUnknown", False)


def test_nothing_is_read_by_an_operator_that_runs_in_no_pod() -> None:
    assert not isinstance(problem_of({"id": "acme/ours"}, settings(), fetcher=None), Unread)


def test_a_model_that_the_administrator_does_not_admit_is_not_read() -> None:
    problem = problem_of({"id": "acme/ours"}, settings(policy={"admittedModels": ["meta-llama"]}))

    assert problem.code == "ModelNotAdmitted"


def test_what_was_read_is_the_config_and_goes_on_counting_when_a_catalogue_has_the_model() -> None:
    text, catalogue = (
        json.dumps(a_config(num_hidden_layers=2)),
        {"acme/ours": a_config(num_hidden_layers=8)},
    )
    resource = a_resource(model={"id": "acme/ours"})

    read = resolve(Question(resource=resource, config_text=text))
    later = resolve(Question(resource=resource, config_text=text, catalogue=catalogue))
    known = resolve(Question(resource=resource, catalogue=catalogue))

    assert read.model == later.model
    assert known.model != read.model


def test_an_edited_config_that_cannot_be_used_is_said_of_the_model() -> None:
    with pytest.raises(InputError) as caught:
        resolve(
            Question(
                resource=a_resource(model={"id": "acme/ours"}),
                config_text='{"architectures": ["Nothing"]}',
            )
        )

    assert {
        (problem.code, problem.path.startswith("spec.model.id"))
        for problem in caught.value.problems
    } == {("ArchitectureUnknown", True)}


SOURCES: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "a ConfigMap that is named": (
        {"id": "a/b", "configMapRef": {"name": "mine"}},
        ("mine", "config.json"),
    ),
    "one of its keys": ({"id": "a/b", "configMapRef": {"name": "mine", "key": "k"}}, ("mine", "k")),
    "none": ({"id": "a/b"}, (config_name("ours", "a/b", None), "config.json")),
    "none, of a commit": (
        {"id": "a/b", "revision": "0" * 40},
        (config_name("ours", "a/b", "0" * 40), "config.json"),
    ),
    "in the spec": ({"id": "a/b", "config": {}}, None),
}


@pytest.mark.parametrize(("model", "source"), SOURCES.values(), ids=SOURCES)
def test_where_the_config_of_a_resource_is(
    model: dict[str, Any], source: tuple[str, str] | None
) -> None:
    assert config_source("ours", model) == source
    assert source_of(parse_manifest(a_sharded_model("ours", model=model))) == source


@pytest.mark.parametrize(
    "described", [{"image": "registry.example/operator:1"}, {"enabled": "maybe"}, 5]
)
def test_a_setting_that_is_none_is_refused_with_its_path(described: object) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(json.dumps({"configFetch": described}))

    assert all(problem.path.startswith("configFetch") for problem in caught.value.problems)
