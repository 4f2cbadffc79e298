"""What is kept of a ShardedModel: nothing that may be of any size."""

from __future__ import annotations

from shardwright.cluster.sources import ANNOTATION_MAX_LENGTH, project_model
from tests.support.builders_resource import A_CONFIG

METADATA = {"namespace": "models", "name": "a", "uid": "u", "resourceVersion": "7", "generation": 2}


def test_of_a_model_neither_inline_configs_are_kept_nor_what_its_user_may_write_without_end() -> (
    None
):
    model, draft = (
        {"id": "us/ours", "config": A_CONFIG},
        {"id": "us/draft", "config": A_CONFIG, "uri": "pvc://drafts"},
    )
    much = {
        "labels": {"a": "b"},
        "managedFields": [{}],
        "finalizers": ["a/b"],
        "annotations": {"a": "b" * 9999},
    }
    status = {"replicas": 1}

    kept = project_model(
        {
            "metadata": METADATA | much,
            "spec": {"model": model, "engine": {"speculation": {"head": draft}}, "replicas": 2},
            "status": status,
        }
    )

    head = {"id": "us/draft", "config": {}, "uri": "pvc://drafts"}
    assert kept == {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": METADATA,
        "spec": {
            "model": {"id": "us/ours", "config": {}},
            "engine": {"speculation": {"head": head}},
            "replicas": 2,
        },
        "status": status,
    }


def test_the_one_annotation_that_is_read_is_kept_as_long_as_it_counts() -> None:
    asked = {"shardwright.io/restart": "x" * 200_000, "shardwright.io/other": "y"}

    kept = project_model(
        {"metadata": METADATA | {"annotations": asked}, "spec": {"model": {"id": "us/ours"}}}
    )

    assert kept["metadata"]["annotations"] == {
        "shardwright.io/restart": "x" * ANNOTATION_MAX_LENGTH
    }
    assert kept["spec"] == {"model": {"id": "us/ours"}}
