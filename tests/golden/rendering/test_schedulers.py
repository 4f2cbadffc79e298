"""What schedulers are told of Llama-3.1-405B on two nodes of eight H100, to be read by a person."""

from pathlib import Path
from typing import Any

import yaml

from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import Scheduling
from shardwright.rendering.gang_scheduling import SCHEDULER_INTEGRATIONS
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan

GOLDEN = Path(__file__).parent / "schedulers.yaml"
POD_FIELDS = ("schedulerName", "schedulingGroup", "affinity")


def told(name: str, api: str) -> list[dict[str, Any]]:
    """Return the objects that a scheduler reads, of the StatefulSet and its pods what it reads
    there.
    """
    scheduling = Scheduling(
        integration=name, api_version=api, queue="serving" if name == "Kueue" else ""
    )
    bundle = render(a_plan(), a_deployment(scheduling=scheduling))
    (group,) = of_kind(bundle.objects, "StatefulSet")
    template = group["spec"]["template"]
    pods = {
        "metadata": template["metadata"],
        "spec": {key: template["spec"][key] for key in POD_FIELDS if key in template["spec"]},
    }
    shown = {**group, "spec": {"replicas": group["spec"]["replicas"], "template": pods}}
    return [*(dict(item) for item in of_kind(bundle.objects, "PodGroup")), shown]


def test_each_scheduler_is_told_what_was_read(update_goldens: bool) -> None:  # noqa: FBT001  # a fixture
    objects = [
        item
        for name, adapter in SCHEDULER_INTEGRATIONS.items()
        for api in adapter.apis
        for item in told(name, api)
    ]
    text = yaml.safe_dump_all(objects, sort_keys=False, width=160)
    if update_goldens:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
