"""Bundles as YAML, to be read by a person: Llama-3.1-405B on two nodes of eight H100, and what
differs elsewhere.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import Autoscaling, Deployment, SecretKey
from shardwright.rendering.render import render
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
    an_sglang_deployment,
)

GOLDENS = Path(__file__).parent
GOLDEN = GOLDENS / "llama-405b.yaml"
OTHERS: dict[str, tuple[Callable[..., Deployment], Plan]] = {
    "trtllm-one-pod": (a_trtllm_deployment, a_small_plan(memory_utilization=0.95)),
    "trtllm-two-pods": (a_trtllm_deployment, a_plan(memory_utilization=0.95)),
    "trtllm-experts": (
        a_trtllm_deployment,
        a_plan_of(Layout(attention_data=8, expert=8), memory_utilization=0.95),
    ),
    "sglang-two-pods": (
        partial(an_sglang_deployment, api_key=SecretKey(name="keys", key="key")),
        a_plan_of(Layout(tensor=4, attention_data=4, expert=8), nodes=2, memory_utilization=0.95),
    ),
}
SAME_AS_VLLM = ("rendezvous.py", "probe.sh")
"""Scripts that the golden of vLLM shows."""


class _Readable(yaml.SafeDumper):
    """Writes scripts as block text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the dumper's own signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Readable.add_representer(str, _text)


def test_the_bundle_of_a_model_on_two_nodes_is_the_one_that_was_read(
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    deployment = a_deployment(
        hub_token=SecretKey(name="hub", key="token"), arguments={"enable-prefix-caching": True}
    )
    objects = [dict(item) for item in render(a_plan(), deployment).objects]
    text = yaml.dump_all(objects, Dumper=_Readable, sort_keys=False, width=160)
    if update_goldens:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_the_scaled_object_of_a_model_is_the_one_that_was_read(
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    scaling = Autoscaling(
        least=1, most=4, idle_seconds=1800, prometheus="http://prometheus.monitoring:9090"
    )
    (scaled,) = of_kind(render(a_plan(), a_deployment(autoscaling=scaling)).objects, "ScaledObject")
    text = yaml.dump(dict(scaled), Dumper=_Readable, sort_keys=False, width=160)
    golden = GOLDENS / "scaled-object.yaml"
    if update_goldens:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OTHERS)
def test_the_bundle_for_another_engine_is_the_one_that_was_read(
    name: str,
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    deployed, plan = OTHERS[name]
    deployment = deployed(
        hub_token=SecretKey(name="hub", key="token"), environment=(("NCCL_DEBUG", "INFO"),)
    )
    text = _readable(plan, deployment)
    golden = GOLDENS / f"{name}.yaml"
    if update_goldens:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_bundle_of_a_group_that_ray_joins_is_the_one_that_was_read(
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    text = _readable(a_plan(), a_deployment(over_ray=True))
    golden = GOLDENS / "ray.yaml"
    if update_goldens:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def _readable(plan: Plan, deployment: Deployment) -> str:
    """Return the scripts that differ, the Secret, and the StatefulSet; the other objects are those
    of vLLM.
    """
    bundle = render(plan, deployment)
    (scripts,), (group,) = (
        of_kind(bundle.objects, "ConfigMap"),
        of_kind(bundle.objects, "StatefulSet"),
    )
    own = {name: text for name, text in scripts["data"].items() if name not in SAME_AS_VLLM}
    shown = [own, *(dict(key) for key in bundle.keys), dict(group["spec"])]
    return yaml.dump_all(shown, Dumper=_Readable, sort_keys=False, width=160)
