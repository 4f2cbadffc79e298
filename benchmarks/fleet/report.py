"""The result as JSON, as a table in the terminal, and as a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

import shardwright
from benchmarks.fleet.bench import Bench
from benchmarks.fleet.figures import WORDS, shown
from tests.harness.controlplane import COMPONENTS

OPERATORS: Final = ("first", "second", "third")
HEADER: Final = """\
# What the operator costs: a fleet of models

Written by `make bench-operator` (`python -m benchmarks.fleet --write`); the limits are `benchmarks/fleet/ranges.yaml`.

The operator runs as its own process with the rights of the chart, on the control plane of the tests: real etcd, kube-apiserver,
kube-controller-manager and kube-scheduler, kwok in the place of the kubelets, all of it on the same machine. Before the clock
starts the nodes and other people's pods (one GPU each, nine of ten used nodes full) are there and the cluster is quiet; node
leases last four hours, so that none is renewed meanwhile; the controllers may send 300 requests a second. The models are
those of `manifests/samples` that are served, a third each of one GPU, of GPUs of one node and of two nodes, in ten
namespaces; they are created as fast as the API server takes them. CPU is user and system time of all processes of the operator
from /proc; requests are counted in the API server's audit log, without watches and the Lease.
"""  # noqa: E501


def result(bench: Bench, pace: float) -> dict[str, Any]:
    """Return everything that was found, for JSON."""
    memory_kib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024
    return {
        "size": asdict(bench.size),
        "version": shardwright.__version__,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "gibibytes": round(memory_kib / 1024 / 1024),
            "python": platform.python_version(),
            "pace_milliseconds": round(1000 * pace),
        },
        "figures": {name: bench.figures[name] for name in WORDS if name in bench.figures},
        "requests_per_model": bench.requests,
        "memory_mebibytes": bench.memory,
        "cpu_seconds": bench.cpu,
        "notes": bench.notes,
    }


def tables(
    found: Mapping[str, Any], limits: Mapping[str, float], before: Mapping[str, float]
) -> list[tuple[str, list[list[str]]]]:
    """Return titled tables of text, their first row the heads."""
    return [
        ("Figures", _figures(found["figures"], limits, before)),
        ("Requests of a model's bring-up", _requests(found["requests_per_model"])),
        ("CPU seconds by process", _cpu(found["cpu_seconds"])),
        (
            "Peak resident memory",
            [
                ["process", "MiB"],
                *([name, shown(peak)] for name, peak in found["memory_mebibytes"].items()),
            ],
        ),
    ]


def _figures(
    figures: Mapping[str, float], limits: Mapping[str, float], before: Mapping[str, float]
) -> list[list[str]]:
    heads = ["what", *(["before"] if before else []), "measured", "limit", "unit", "figure"]
    rows = [heads]
    for name, (what, unit) in WORDS.items():
        if name in figures or name in limits or name in before:
            earlier = [_cell(before.get(name))] if before else []
            rows.append(
                [what, *earlier, _cell(figures.get(name)), _cell(limits.get(name)), unit, name]
            )
    return rows


def _cell(value: float | None) -> str:
    return "-" if value is None else shown(value)


def _requests(requests: Mapping[str, float]) -> list[list[str]]:
    ordered = sorted(requests.items(), key=lambda item: -item[1])
    return [["request", "a model"], *([what, shown(round(number, 2))] for what, number in ordered)]


def _cpu(phases: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    heads = [
        "phase",
        "seconds",
        "operators",
        *(name.removeprefix("kube-") for name in COMPONENTS),
        "benchmark",
        "others",
    ]
    rows = [heads]
    for phase, spent in phases.items():
        ours = sum(spent.get(name, 0.0) for name in OPERATORS)
        rest = (spent.get(name, 0.0) for name in (*COMPONENTS, "benchmark", "others"))
        rows.append([phase, *(shown(round(value, 2)) for value in (spent["seconds"], ours, *rest))])
    return rows


def show(
    console: Console,
    found: Mapping[str, Any],
    limits: Mapping[str, float],
    before: Mapping[str, float],
) -> None:
    """Print the tables and the notes."""
    for title, rows in tables(found, limits, before):
        table = Table(*rows[0], title=title, title_justify="left", box=box.SIMPLE)
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    for note in found["notes"]:
        console.print(note, soft_wrap=True, highlight=False)


def page(found: Mapping[str, Any], limits: Mapping[str, float], before: Mapping[str, float]) -> str:
    """Return the page of the documentation."""
    size, machine = found["size"], found["machine"]
    measured = (
        f"Measured {found['when'][:10]} with shardwright {found['version']}: {size['models']:,} "
        f"models, {size['nodes']:,} nodes, "
        f"{size['pods']:,} foreign pods, on {machine['cores']} cores and {machine['gibibytes']} "
        "GiB with Python "
        f"{machine['python']}; the sum of three million numbers takes "
        f"{machine['pace_milliseconds']}"
        " ms of CPU there."
    )
    parts = [HEADER, measured, ""]
    for title, rows in tables(found, limits, before):
        parts += [f"## {title}", "", *_markdown(rows), ""]
    parts += [
        "## What bounds the bring-up",
        "",
        *_bound(found["cpu_seconds"]["bring_up"], machine["cores"]),
        "",
    ]
    if found["notes"]:
        parts += ["## Notes", "", *(f"- {note}" for note in found["notes"]), ""]
    return "\n".join(parts)


def _bound(spent: Mapping[str, float], cores: int) -> list[str]:
    """Return in words what CPU the bring-up has taken, and how long it would take if the operator
    cost nothing.
    """
    ours = sum(spent.get(name, 0.0) for name in OPERATORS)
    cluster = sum(spent.get(name, 0.0) for name in COMPONENTS)
    server = shown(spent.get("kube-apiserver", 0.0))
    return [
        (
            f"From the first apply to the last model Ready, {shown(spent['seconds'])} s, the "
            "operator "
            f"took {shown(ours)} s of CPU,"
        ),
        (
            f"the control plane and kwok {shown(cluster)} s (API server {server} s) for what these "
            "models consist of: objects,"
        ),
        (
            f"pods, EndpointSlices and events. On {cores} cores the control plane needs "
            f"{shown(cluster / cores)}"
            " s for that,"
        ),
        f"whoever asks for it; both together {shown((ours + cluster) / cores)} s.",
    ]


def _markdown(rows: Iterable[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|" + "---|" * (lines[0].count(" | ") + 1), *lines[1:]]
