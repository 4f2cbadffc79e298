"""What the chart grants the operator."""

from __future__ import annotations

from typing import TypeAlias

import yaml

from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import CHART

Right: TypeAlias = tuple[str, str]
"""A verb, and a resource with its group."""


def granted(control_plane: ControlPlane) -> set[Right]:
    """Return the rights of the operator's service account, as the chart gives them without any
    values.
    """
    text = control_plane.helm(
        "template",
        "shardwright",
        str(CHART),
        "--namespace",
        "shardwright-system",
        "--skip-tests",
        *NAMED,
    )
    objects = [item for item in yaml.safe_load_all(text) if item]
    roles = [
        item
        for item in objects
        if item["kind"] in ("ClusterRole", "Role") and "-view" not in item["metadata"]["name"]
    ]
    rules = [
        rule
        for role in roles
        if not role["metadata"]["name"].endswith("-edit")
        for rule in role["rules"]
    ]
    return {
        (verb, "/".join(part for part in (group, resource) if part))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
