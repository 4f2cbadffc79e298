"""The pure parts of the benchmark of the operator: what it counts, and when it calls a figure too
large.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet import figures, population, processes, report, requests
from benchmarks.fleet.bench import Reading
from benchmarks.fleet.figures import Excess, excesses, suggested
from benchmarks.fleet.sizes import SIZES
from tests.harness import demo
from tests.harness.api import Manifest

OPERATOR = "system:serviceaccount:shardwright-system:shardwright"


def an_event(
    verb: str, resource: str, user: str = OPERATOR, at: str = "00:00:01", **more: Any
) -> dict[str, Any]:
    reference = {
        "resource": resource,
        **({"subresource": more["subresource"]} if "subresource" in more else {}),
    }
    return {
        "verb": verb,
        "user": {"username": user},
        "objectRef": reference,
        "requestURI": more.get("uri", "/"),
        "requestReceivedTimestamp": f"2026-01-01T{at}.500000Z",
    }


def test_a_figure_is_in_its_range_up_to_its_limit_and_no_further() -> None:
    limits = {"rest.writes": 0.0, "bring_up.ready_seconds": 60.0}

    assert excesses({"rest.writes": 0, "bring_up.ready_seconds": 60.0}, limits) == []
    assert excesses({"rest.writes": 1, "bring_up.ready_seconds": 60.1}, limits) == [
        Excess("rest.writes", 0, 1),
        Excess("bring_up.ready_seconds", 60, 60.1),
    ]


def test_a_figure_with_a_limit_that_was_not_measured_is_out_of_range() -> None:
    (found,) = excesses({}, {"bring_up.statefulsets_seconds": 60.0})

    assert str(found) == (
        "bring_up.statefulsets_seconds was not measured, the limit is 60 s (last apply to the "
        "last model's StatefulSet)"
    )


def test_an_excess_names_the_figure_what_was_measured_and_the_limit() -> None:
    assert (
        str(Excess("rest.writes", 0, 16))
        == "rest.writes is 16, the limit is 0 (writes at rest, without the Lease)"
    )


def test_every_form_has_ranges_and_they_are_about_figures_that_are_measured() -> None:
    assert [size for size in SIZES if not figures.ranges(size)] == []


def test_a_range_of_an_unknown_figure_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ranges.yaml"
    file.write_text("short: {rest.wirtes: 0}")

    with pytest.raises(KeyError, match=r"rest\.wirtes"):
        figures.ranges("short", file)


def test_suggested_ranges_are_half_more_than_measured_for_the_figures_that_have_one() -> None:
    measured = {"rest.writes": 0.0, "bring_up.ready_seconds": 31.3, "apply.seconds": 1.0}

    assert suggested(measured, {"rest.writes": 4, "bring_up.ready_seconds": 9}) == {
        "rest.writes": 0,
        "bring_up.ready_seconds": 47,
    }


def test_cpu_of_a_process_is_its_own_and_that_of_its_ended_children() -> None:
    ticks = processes.TICKS_PER_SECOND
    fields = [
        "S",
        "7",
        *["0"] * 9,
        str(ticks),
        str(2 * ticks),
        str(3 * ticks),
        str(4 * ticks),
        *["0"] * 30,
    ]

    assert processes.read_stat(f"42 (a (strange) name) {' '.join(fields)}") == (7, 10.0)


def test_all_that_came_from_a_process_belongs_to_it() -> None:
    assert processes.with_descendants(2, {2: 1, 3: 2, 4: 3, 5: 1, 6: 4}) == {2, 3, 4, 6}


def test_what_nobody_of_ours_has_taken_others_have() -> None:
    before = Reading(10.0, {"first": 1.0, "etcd": 5.0}, 100.0)
    after = Reading(12.0, {"first": 2.5, "etcd": 5.5, "second": 9.0}, 104.0)

    assert before.until(after) == {"first": 1.5, "etcd": 0.5, "others": 2.0, "seconds": 2.0}


def test_requests_are_counted_by_verb_and_resource_without_leases_watches_and_reviews() -> None:
    counted = requests.count(
        [
            an_event("create", "statefulsets"),
            an_event("create", "statefulsets", uri="/apis?dryRun=All"),
            an_event("patch", "shardedmodels", subresource="status"),
            an_event("get", "shardedmodels"),
            an_event("update", "leases"),
            an_event("watch", "pods"),
            an_event("create", "selfsubjectaccessreviews"),
        ]
    )

    assert counted == {
        "create statefulsets": 1,
        "create statefulsets (dry run)": 1,
        "patch shardedmodels/status": 1,
        "get shardedmodels": 1,
    }
    assert requests.writes(counted) == 2


def test_the_audit_log_is_read_from_a_mark_for_one_user(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    lines = [
        an_event("get", "pods"),
        an_event("list", "pods", user="kwok"),
        an_event("list", "nodes", at="00:00:03"),
    ]
    written = [json.dumps(line, separators=(",", ":")) + "\n" for line in lines]
    log.write_text(written[0])
    audit = requests.Audit(log, OPERATOR)
    mark = audit.mark()
    log.write_text("".join(written) + '{"half a line')

    assert audit.since(mark) == [lines[2]]
    assert requests.first_at(audit.since(0)) == 1767225601.5


def test_a_metric_is_the_sum_of_its_series() -> None:
    text = (
        '# HELP looks_count x\nlooks_count{result="ok"} 3.0\nlooks_count{result="error"} '
        "1.0\nlooks_counter 9.0\n"
    )

    assert requests.metric(text, "looks_count") == 4.0
    assert requests.metric(text, "planning") is None


def test_models_are_a_third_each_of_one_gpu_of_one_node_and_of_two_nodes() -> None:
    made = population.models(99)
    single, one_node, two_nodes = (
        {sample.manifest["spec"]["model"]["id"] for sample in shape}
        for shape in population.by_shape(demo.samples())
    )
    names = [model["spec"]["model"]["id"] for model in made]

    assert len({model["metadata"]["name"] for model in made}) == 99
    assert [sum(name in shape for name in names) for shape in (single, one_node, two_nodes)] == [
        33,
        33,
        33,
    ]
    assert single | one_node | two_nodes == set(names)


@pytest.mark.parametrize(
    "size",
    [size for size in SIZES.values() if size.name != "large"],
    ids=lambda size: str(size.name),
)
def test_foreign_pods_take_no_more_than_a_node_has_and_leave_room_for_all_models(size: Any) -> None:
    nodes = population.nodes(size.nodes)
    held = Counter(pod["spec"]["nodeName"] for pod in population.foreign_pods(size.pods, nodes))
    free = [node for node in nodes if not held[node["metadata"]["name"]]]
    two_node_models = sum(
        model["spec"]["model"]["id"].endswith("405B-Instruct")
        for model in population.models(size.models)
    )

    assert len({node["metadata"]["name"] for node in nodes}) == size.nodes
    assert held.total() == size.pods
    assert [node for node in nodes if held[node["metadata"]["name"]] > _gpus(node)] == []
    assert sum(node["metadata"]["name"].startswith("h100-") for node in free) >= 2 * two_node_models


def test_the_page_shows_measured_limit_and_unit_of_each_figure() -> None:
    found = {
        "size": {"name": "short", "models": 100, "nodes": 500, "pods": 2000},
        "version": "1.0.0",
        "when": "2026-01-01T00:00:00+00:00",
        "machine": {"cores": 2, "gibibytes": 24, "python": "3.11.7", "pace_milliseconds": 150},
        "figures": {"bring_up.statefulsets_seconds": 34.56},
        "requests_per_model": {"create services": 2.0},
        "memory_mebibytes": {"main": 211.3},
        "cpu_seconds": {
            "bring_up": {
                "seconds": 200.0,
                "first": 80.0,
                "kube-apiserver": 190.0,
                "etcd": 30.0,
                "others": 1.0,
            },
            "rest": {"seconds": 30.0, "first": 0.5, "etcd": 0.25, "others": 1.0},
        },
        "notes": ["A note."],
    }

    lines = report.page(
        found, {"bring_up.statefulsets_seconds": 60.0}, {"bring_up.statefulsets_seconds": 198.0}
    ).splitlines()

    assert "| what | before | measured | limit | unit | figure |" in lines
    assert (
        "| last apply to the last model's StatefulSet | 198 | 34.6 | 60 | s | "
        "bring_up.statefulsets_seconds |"
    ) in lines
    assert "| create services | 2 |" in lines
    assert "| rest | 30 | 0.5 | 0.25 | 0 | 0 | 0 | 0 | 0 | 1 |" in lines
    assert "| main | 211 |" in lines
    assert "whoever asks for it; both together 150 s." in lines
    assert "- A note." in lines


def _gpus(node: Manifest) -> int:
    return sum(
        int(amount)
        for name, amount in node["status"]["allocatable"].items()
        if name.endswith("/gpu")
    )
