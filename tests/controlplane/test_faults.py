"""Faults of a real API server, one after the other, under a model that serves: nothing that runs
notices, and all heals.
"""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.conftest import INSTALLATION
from tests.harness.controlplane import ControlPlane
from tests.harness.fault_proxy import WATCH, Fault, FaultProxy
from tests.harness.plugin import Fleet
from tests.harness.waiting import wait_for
from tests.support import invariants
from tests.support.fault_cases import CASES
from tests.support.models import LARGE, Models, writes_of_operator
from tests.support.operator import OperatorProcess
from tests.support.rights import granted
from tests.support.snapshots import wait_for_rest, watched
from tests.support.webhooks import DOWN, dead_webhook

pytestmark = pytest.mark.controlplane

SERVICES_EVERYWHERE = "/api/v1/services"
WEBHOOK = "dead.example.com"
NOT_SERVED = "resource.nvidia.com/computedomains"
SHORT = [name for name, case in CASES.items() if case.short]
H100 = "h100-8x-dell-xe9680"


@pytest.fixture(scope="module")
def proxy(chart: ControlPlane) -> Iterator[FaultProxy]:
    """The only way from the operator to the API server."""
    with FaultProxy(chart.url, chart.ca_file) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def operator(chart: ControlPlane, proxy: FaultProxy) -> Iterator[OperatorProcess]:
    with OperatorProcess(chart, INSTALLATION, server=proxy.url) as operator:
        yield operator


@pytest.fixture(scope="module")
def served(chart: ControlPlane, operator: OperatorProcess) -> Iterator[Models]:
    """A model over two nodes that serves through all of it."""
    del operator
    fleet, models = Fleet(chart), Models(chart, chart.create_namespace("faults"))
    fleet(H100, 2)
    models.create("large", LARGE)
    models.wait_ready("large")
    yield models
    models.delete_all("ShardedModel")
    chart.api.delete(f"/api/v1/namespaces/{models.namespace}")
    fleet.delete()


def goes_through(
    name: str, served: Models, chart: ControlPlane, proxy: FaultProxy, seconds: float
) -> None:
    """Have a Service of the model deleted while a fault is in force, and see to it that nothing
    else comes of both.
    """
    before, written = (wait_for_rest(chart, served.namespace), len(writes_of_operator(chart)))
    uid = served.get("Service", "large")["metadata"]["uid"]
    others = [item for item in before if item["metadata"].get("uid") != uid]
    with watched(chart, served.namespace), CASES[name].inject(proxy) as fault:
        served.delete("Service", "large")
        wait_for(lambda: fault.hits, seconds, f"{name} to meet a request")
        wait_for(
            lambda: served.get("Service", "large")["metadata"]["uid"] != uid,
            seconds,
            "another Service",
        )
        after = wait_for_rest(chart, served.namespace, seconds)
    assert invariants.left_alone(others, after) == []
    assert invariants.of_lease(after, {"operator-a"}) == []
    assert invariants.of_writes(writes_of_operator(chart)[written:]) == []


@pytest.mark.parametrize("name", SHORT)
def test_a_model_that_serves_does_not_notice(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess, name: str
) -> None:
    process = operator.running()
    goes_through(name, served, chart, proxy, seconds=60)
    assert operator.running() == process


def objects_written(chart: ControlPlane) -> list[str]:
    """Return what the operator has written but statuses, of which an earlier one may still be
    due.
    """
    return [write for write in writes_of_operator(chart) if "/shardedmodels/" not in write]


def looks(operator: OperatorProcess) -> float:
    """Return how many reconciles of a model have ended."""
    families = text_string_to_metric_families(operator.get("/metrics")[1])
    count = "shardwright_reconcile_duration_seconds_count"
    return sum(
        sample.value for family in families for sample in family.samples if sample.name == count
    )


def test_at_rest_no_object_is_written(
    served: Models, chart: ControlPlane, operator: OperatorProcess
) -> None:
    before, written, looked = (
        wait_for_rest(chart, served.namespace),
        objects_written(chart),
        looks(operator),
    )
    served.annotate("large", restart="")  # it asks for nothing, and a reconcile of it
    wait_for(lambda: looks(operator) > looked, 30, "a look at it")
    assert invariants.left_alone(before, wait_for_rest(chart, served.namespace)) == []
    assert objects_written(chart) == written


def test_a_watch_that_is_revoked_is_said_once_and_nothing_comes_of_it(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    before, written, said = (
        wait_for_rest(chart, served.namespace),
        objects_written(chart),
        len(operator.logs()),
    )
    with proxy.when("*", "/api/v1/configmaps").answer(403, message="not yours any more") as revoked:
        proxy.cut().end()
        wait_for(lambda: len(revoked.hits) >= 3, 60, "some attempts")
    wait_for(
        lambda: "configmaps can be read again" in operator.logs()[said:], 60, "the watch to be back"
    )
    assert operator.logs()[said:].count("cannot read configmaps (Forbidden)") == 1
    assert invariants.left_alone(before, wait_for_rest(chart, served.namespace)) == []
    assert objects_written(chart) == written


def list_services_anew(proxy: FaultProxy, lists: Fault) -> None:
    """Have the operator list Services, for its watch is too old."""
    before = len(lists.hits)
    proxy.when(WATCH, SERVICES_EVERYWHERE, times=1).watch_error(410)
    proxy.cut().end()
    wait_for(lambda: len(lists.hits) > before, 60, "a list of Services")


def test_a_list_of_an_api_server_that_is_behind_brings_nothing_back(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    before, process = wait_for_rest(chart, served.namespace), operator.running()
    service = served.get("Service", "large")["metadata"]["uid"]
    with proxy.when("GET", SERVICES_EVERYWHERE).stale() as behind:
        list_services_anew(proxy, behind)
        served.delete("Service", "large")
        wait_for(
            lambda: served.get("Service", "large")["metadata"]["uid"] != service,
            60,
            "another Service",
        )
        written = objects_written(chart)
        list_services_anew(proxy, behind)
        after = wait_for_rest(chart, served.namespace)
    assert (
        invariants.left_alone(
            [item for item in before if item["metadata"]["uid"] != service], after
        )
        == []
    )
    assert (objects_written(chart), operator.running()) == (written, process)


def test_a_webhook_of_somebody_else_that_is_down_is_named_and_waited_for(
    served: Models, chart: ControlPlane, operator: OperatorProcess
) -> None:
    before, process = wait_for_rest(chart, served.namespace), operator.running()
    service = served.get("Service", "large")["metadata"]["uid"]
    with dead_webhook(chart, served.namespace, url=DOWN, plural="services"):
        served.delete("Service", "large")
        wait_for(
            lambda: WEBHOOK in str(served.get("ShardedModel", "large")["status"]),
            60,
            "the webhook to be named",
        )
    wait_for(lambda: served.find("Service", "large"), 60, "the Service")
    wait_for(
        lambda: WEBHOOK not in str(served.get("ShardedModel", "large")["status"]),
        30,
        "the status to have it no more",
    )
    after = wait_for_rest(chart, served.namespace)
    assert (
        invariants.left_alone(
            [item for item in before if item["metadata"]["uid"] != service], after
        )
        == []
    )
    assert operator.running() == process


@pytest.mark.faults
def test_each_right_to_read_that_is_revoked_and_given_back_costs_nothing(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    process = operator.running()
    for verb, resource in sorted(granted(chart)):
        if verb not in ("list", "watch") or resource == NOT_SERVED:
            continue  # the crash matrix in memory revokes what is not read, at every act
        before, path = (
            wait_for_rest(chart, served.namespace),
            f"/api*/{resource.rpartition('/')[2]}",
        )
        service = served.get("Service", "large")["metadata"]["uid"]
        with proxy.when("GET" if verb == "list" else WATCH, path).answer(
            403, message="not yours any more"
        ) as revoked:
            if verb == "list":
                proxy.when(WATCH, path, times=1).watch_error(410)
            proxy.cut().end()
            served.delete("Service", "large")
            wait_for(lambda: revoked.hits, 60, f"the right to {verb} {resource} to be used")
        wait_for(
            lambda: served.find("Service", "large"), 60, f"the Service, after {verb} {resource}"
        )
        after = wait_for_rest(chart, served.namespace)
        assert (
            invariants.left_alone([it for it in before if it["metadata"]["uid"] != service], after)
            == []
        ), (verb, resource)
        assert operator.running() == process, (verb, resource)


@pytest.mark.faults
def test_after_a_long_outage_all_is_mended_within_a_minute_by_a_process_that_was_started_once(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    before = wait_for_rest(chart, served.namespace)
    service = served.get("Service", "large")["metadata"]["uid"]
    with proxy.cut() as outage:
        served.delete("Service", "large")
        wait_for(
            lambda: operator.running() is None,
            30,
            "the leader to end, for it cannot renew its Lease",
        )
        operator.launch()
        process, tries = operator.running(), len(outage.hits)
        wait_for(
            lambda: len(outage.hits) >= tries + 60,
            240,
            "it to try for as long as its longest pauses",
        )
        assert operator.running() == process
    wait_for(
        lambda: served.get("Service", "large")["metadata"]["uid"] != service,
        60,
        "the Service to be repaired",
    )
    after = wait_for_rest(chart, served.namespace)
    assert operator.running() == process
    assert (
        invariants.left_alone(
            [item for item in before if item["metadata"]["uid"] != service], after
        )
        == []
    )


WRITES = {
    "the plan of record": ("POST", "*/configmaps"),
    "a group": ("POST", "*/statefulsets"),
    "a Service": ("POST", "*/services"),
}


@pytest.mark.faults
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("what", WRITES)
def test_an_operator_that_is_killed_at_a_write_goes_on_where_it_was(
    served: Models,
    chart: ControlPlane,
    proxy: FaultProxy,
    operator: OperatorProcess,
    fleet: Fleet,
    what: str,
    *,
    before: bool,
) -> None:
    fleet(H100, 1, "more")
    stood, when = (wait_for_rest(chart, served.namespace), proxy.when(*WRITES[what], times=1))
    with (
        when.tell(operator.kill) if before else when.tell_after(operator.kill),
        proxy.when(*WRITES[what], times=1).drop_before(),
    ):
        served.create("small")
        wait_for(lambda: operator.running() is None, 60, f"the write of {what}")
    operator.start()
    served.wait_ready("small")
    after = wait_for_rest(chart, served.namespace)
    assert invariants.left_alone(stood, after) == []
    served.delete("ShardedModel", "small")
    wait_for_rest(chart, served.namespace)


@pytest.mark.faults
def test_an_operator_that_is_told_to_stop_while_a_write_is_on_its_way_ends_with_0(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess
) -> None:
    wait_for_rest(chart, served.namespace)
    with proxy.when("POST", "*/services", times=1).hang() as hangs:
        served.delete("Service", "large")
        wait_for(lambda: hangs.hits, 60, "the write")
        assert operator.stop() == 0
    operator.start()
    wait_for_rest(chart, served.namespace)


@pytest.mark.faults
@pytest.mark.parametrize("name", [name for name in CASES if name not in SHORT])
def test_a_model_that_serves_does_not_notice_what_takes_longer(
    served: Models, chart: ControlPlane, proxy: FaultProxy, operator: OperatorProcess, name: str
) -> None:
    process = operator.running()
    goes_through(name, served, chart, proxy, seconds=150)
    assert operator.running() == process
