"""What is rendered stays as rendered; what is right is not written; what is foreign is not
touched.
"""

from collections.abc import Iterator

import pytest

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support.models import Models
from tests.support.operator import OperatorProcess

pytestmark = pytest.mark.controlplane

H100 = "h100-8x-dell-xe9680"


@pytest.fixture(scope="module")
def operator(chart: ControlPlane) -> Iterator[OperatorProcess]:
    """An operator that compares everything every few seconds."""
    with OperatorProcess(chart, "--resync-seconds=2") as running:
        yield running


def test_an_edited_environment_is_repaired_without_disturbing_a_pod(serving: Models) -> None:
    before = serving.uids()
    template = serving.get("StatefulSet", "large-0")["spec"]["template"]
    _edited_environment(template)
    serving.patch("StatefulSet", "large-0", {"spec": {"template": template}})

    wait_for(
        lambda: "SABOTAGED" not in str(serving.get("StatefulSet", "large-0")["spec"]),
        15,
        "the environment to be repaired",
    )
    assert serving.uids() == before
    serving.wait_events("Repaired")


def test_a_deleted_service_comes_back(serving: Models) -> None:
    before = serving.get("Service", "large")["metadata"]["uid"]
    serving.delete("Service", "large")
    wait_for(
        lambda: serving.get("Service", "large")["metadata"]["uid"] != before, 15, "another Service"
    )


def test_a_foreign_object_of_our_name_stays_untouched_and_stalls_us(
    models: Models, fleet: Fleet
) -> None:
    fleet(H100, 1)
    models.post("Service", {"metadata": {"name": "llama"}, "spec": FOREIGN})
    before = models.get("Service", "llama")["metadata"]["resourceVersion"]

    models.create("llama")
    condition = models.wait_reason("llama", "NameConflict")

    assert "Service llama" in condition["message"]
    assert models.condition("llama", "Stalled")["status"] == "True"
    assert models.get("Service", "llama")["metadata"]["resourceVersion"] == before

    models.delete("Service", "llama")
    models.wait_ready("llama")


FOREIGN: Manifest = {"ports": [{"port": 80}], "selector": {"app": "other"}}


def _edited_environment(template: Manifest) -> None:
    entry = next(item for item in template["spec"]["containers"][0]["env"] if item.get("value"))
    entry["value"] = "SABOTAGED"
