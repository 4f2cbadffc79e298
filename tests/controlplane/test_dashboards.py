"""A real Prometheus scrapes an operator and the engine of a model that serves, and answers every
query of the dashboards.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pytest
from aiohttp import web

from charts.dashboards import DASHBOARDS, FOLDER
from shardwright.controller.http_server import HttpServer
from tests.harness.plugin import Fleet
from tests.harness.prometheus import Prometheus
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART
from tests.support.models import Models
from tests.support.operator import OperatorProcess

RULES: Final = CHART / "files" / "rules.yaml"
WITH_FAULTS: Final = {
    "Not ready, and why": {"A"},
    "Restarts of groups in an hour": {"A"},
    "Faults": {"A", "B", "C"},
}
"""What has no series where all is well: queries by the title of their panel."""


def panels(name: str) -> list[dict[str, Any]]:
    drawn = json.loads((FOLDER / f"{name}.json").read_text())["panels"]
    return [panel for panel in drawn if panel["type"] != "row"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_says_what_it_shows(name: str) -> None:
    assert [
        panel["title"] for panel in panels(name) if not panel["description"].endswith((".", "."))
    ] == []


@contextmanager
def engine() -> Iterator[int]:
    """Serve the metrics of a vLLM that brings 100 tokens between two scrapes; yield its port."""
    scrapes = count(1)

    async def answer(_request: web.Request) -> web.Response:
        tokens = 100 * next(scrapes)
        histograms = (
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "e2e_request_latency_seconds",
        )
        lines = [
            f"vllm:generation_tokens_total {tokens}",
            "vllm:num_requests_running 3",
            "vllm:num_requests_waiting 1",
            f"vllm:prefix_cache_hits_total {tokens // 2}",
            f"vllm:prefix_cache_queries_total {tokens}",
        ]
        lines += ["vllm:kv_cache_usage_perc 0.25"]
        for name in histograms:
            lines += [f"vllm:{name}_sum {tokens * 0.02}", f"vllm:{name}_count {tokens}"]
            lines += [f'vllm:{name}_bucket{{le="{limit}"}} {tokens}' for limit in ("0.1", "+Inf")]
        return web.Response(text="\n".join([*lines, ""]))

    server = HttpServer([web.get("/metrics", answer)], 0, "engine")
    try:
        yield server.port
    finally:
        server.stop()


@pytest.mark.controlplane
def test_prometheus_evaluates_every_rule_and_answers_every_query_of_the_dashboards(
    operator: OperatorProcess, models: Models, fleet: Fleet
) -> None:
    fleet("h100-8x-dell-xe9680", 1)
    models.create("llama", workload={"prefixCacheHitPercent": 50})
    models.wait_ready("llama")
    ours = {"namespace": models.namespace, "name": "llama"}
    with engine() as port:
        operators = {
            "job_name": "operator",
            "honor_labels": True,
            "static_configs": [{"targets": [operator.scraped_at()]}],
        }
        engines = {"targets": [f"127.0.0.1:{port}"], "labels": ours | {"group": "llama-0"}}
        with Prometheus(
            operators, {"job_name": "vllm", "static_configs": [engines]}, rules=RULES
        ) as prometheus:
            wait_for(
                lambda: silent(prometheus, ours) == WITH_FAULTS,
                60,
                "every query to have an answer",
                interval=0.5,
            )
            ratio = wait_for(
                lambda: prometheus.ask("shardwright:tpot:observed_over_predicted"),
                30,
                "observed beside predicted",
            )
            rules = wait_for(lambda: evaluated(prometheus), 30, "all rules to be evaluated")

    assert [series["metric"] | ours for series in ratio] == [ratio[0]["metric"]]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}


def silent(prometheus: Prometheus, variables: dict[str, str]) -> dict[str, set[str]]:
    """Return the queries that have no series, by the title of their panel."""
    found: dict[str, set[str]] = {}
    for panel in [*panels("fleet"), *panels("model")]:
        for query in panel["targets"]:
            expression = re.sub(r"\$(\w+)", lambda name: variables[name[1]], query["expr"])
            if not prometheus.ask(expression):
                found.setdefault(panel["title"], set()).add(query["refId"])
    return found


def evaluated(prometheus: Prometheus) -> list[dict[str, Any]]:
    rules = prometheus.rules()
    return rules if all(rule["health"] != "unknown" for rule in rules) else []
