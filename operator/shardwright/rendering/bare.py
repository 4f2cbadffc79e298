"""A model's pods in any place: as this release makes them, and as a revision kept them.

They are the same in every place, so that two releases can be told apart by them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from shardwright.planning.report import Plan
from shardwright.rendering import cache
from shardwright.rendering.deployment import BarePods, Deployment
from shardwright.rendering.hashing import digest
from shardwright.rendering.pod import bare_template, scripts_name, scripts_of

_DIGITS: Final = 16


def pods_of(plan: Plan, deployment: Deployment) -> BarePods:
    """Return the pods a plan runs with: the restored ones, else this release's."""
    return deployment.groups.kept or bare_pods(plan, deployment)


def bare_pods(plan: Plan, deployment: Deployment) -> BarePods:
    """Return this release's pods of a plan."""
    on = deployment.on(plan.resource)
    return BarePods(
        template=bare_template(plan, on),
        scripts_name=scripts_name(plan, on),
        scripts=scripts_of(plan, on),
        claims=cache.claim_templates(on),
    )


def pods_hash(pods: BarePods) -> str:
    """Return a hash that differs if two releases make other pods of the same spec and plan.

    The scripts' name follows from their text.
    """
    return digest([pods.template, pods.scripts_name, pods.claims])[:_DIGITS]


def pods_text(pods: BarePods) -> dict[str, Any]:
    """Return pods as plain data for :func:`pods_from`."""
    return {field.name: getattr(pods, field.name) for field in fields(pods)}


def pods_from(said: Mapping[str, Any]) -> BarePods | None:
    """Return the pods written by :func:`pods_text`, None for another form."""
    known = {field.name for field in fields(BarePods)}
    # A later release may keep more. Pods are not made again from a part of their record.
    return BarePods(**said) if said.keys() == known else None
