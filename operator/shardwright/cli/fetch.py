"""The command ``fetch``: a model's small files on the hub as a ConfigMap that a ShardedModel may
name.

It writes nothing to a cluster, fetches no weights, and keeps what it has read for the other
commands.
"""

import re
from argparse import Namespace
from typing import Any, Final

from shardwright.api.weights import COMMIT, MODEL_ID
from shardwright.cli.checkpoints import fetch_one, sizes_of
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_json, print_note, print_yaml
from shardwright.errors import InputError, Problem
from shardwright.hub.checkpoint import Checkpoint
from shardwright.modelspec.checkpoint_files import index_of
from shardwright.rendering.fetch_job import HUB_COMMIT, HUB_MODEL
from shardwright.rendering.names import base_name

_COMMIT_DIGITS: Final = 12
"""Digits of the commit in a ConfigMap's name: 48 bits tell the commits of a repository apart."""


def fetch_config_map(arguments: Namespace) -> Exit:
    """Print a model's ConfigMap, and on stderr how a ShardedModel names it."""
    model = arguments.model
    revision = arguments.revision
    problems = [
        *_not_matching(
            "MODEL", model, MODEL_ID, "must be the id of a repository of the hub, as org/name"
        )
    ]
    if revision is not None:
        problems += _not_matching(
            "--revision", revision, COMMIT, "must be a commit: 40 hexadecimal digits"
        )
    if problems:
        raise InputError(problems)
    checkpoint = fetch_one(model, revision)
    config_map = config_map_of(model, checkpoint)
    if arguments.output == "json":
        print_json(config_map)
    else:
        print_yaml([config_map])
    name = config_map["metadata"]["name"]
    print_note(
        f"set spec.model to {{id: {model}, revision: "
        f"{checkpoint.commit}, configMapRef: {{name: {name}}}}}"
    )
    if sizes := sizes_of(model, checkpoint):
        print_note(f"{model}: {sizes}")
    return Exit.PLAN


def config_map_of(model: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the ConfigMap of a checkpoint, named by id and commit, and immutable like it."""
    commit = checkpoint.commit or ""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{base_name(model)}-{commit[:_COMMIT_DIGITS]}",
            "annotations": {HUB_MODEL: model, HUB_COMMIT: commit},
        },
        "immutable": True,
        "data": {**checkpoint.files, **index_of(checkpoint.tensor_bytes)},
    }


def _not_matching(path: str, value: str, pattern: str, limit: str) -> list[Problem]:
    return (
        []
        if re.fullmatch(pattern, value)
        else [Problem(code="BadFormat", path=path, what=f"{value!r:.200}", limit=limit)]
    )
