"""The two Grafana dashboards of the chart, whose files `make generate` writes.

Made with Grafana's own library, so that they are of Grafana's schema. A real Prometheus answers
every query of theirs in tests/controlplane/test_dashboards.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import bargauge, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import common as appearance
from grafana_foundation_sdk.builders import dashboard as builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER: Final = Path(__file__).parent / "shardwright" / "files" / "dashboards"

SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
LEADER: Final = "and on (namespace, pod, instance) shardwright_leader == 1"
MODEL: Final = 'namespace="$namespace", name="$name"'
WIDTH: Final = 24  # columns of a dashboard of Grafana

Panel = Any
"""Any builder of a panel: the library has no common type for what all of them can."""

Query = tuple[str, str]
"""An expression, and the legend of its series."""


def said(panel: Panel, title: str, text: str, unit: str = "short") -> Panel:
    """Return the panel with what all panels have; ``text`` is shown where the pointer is on its
    corner.
    """
    return panel.title(title).description(text).unit(unit).datasource(SOURCE)


def asking(panel: Panel, *queries: Query, instant: bool = False) -> Panel:
    """Return the panel with its queries."""
    for number, (expression, legend) in enumerate(queries):
        query = (
            prometheus.Dataquery()
            .expr(expression)
            .legend_format(legend)
            .ref_id(chr(ord("A") + number))
        )
        panel.with_target(query.instant() if instant else query.range())
    return panel


def number(
    title: str, text: str, expression: str, unit: str = "short", *, bad_above: float | None = None
) -> Panel:
    """Return one number as it is now; red above ``bad_above``."""
    steps = [dashboard.Threshold(value=None, color="green" if bad_above is not None else "text")]
    if bad_above is not None:
        steps.append(dashboard.Threshold(value=bad_above + 1e-9, color="red"))
    limits = builder.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
    panel = (
        stat.Panel().span(4).height(4).thresholds(limits).graph_mode(common.BigValueGraphMode.NONE)
    )
    panel.color_scheme(builder.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS)).no_value(
        "-"
    )
    return said(asking(panel, (expression, ""), instant=True), title, text, unit)


def words(title: str, text: str, expression: str, legend: str, span: int = 8) -> Panel:
    """Return what labels say, as words."""
    panel = (
        stat.Panel()
        .span(span)
        .height(4)
        .text_mode(common.BigValueTextMode.NAME)
        .graph_mode(common.BigValueGraphMode.NONE)
    )
    panel.color_mode(common.BigValueColorMode.NONE).no_value("-")
    return said(asking(panel, (expression, legend), instant=True), title, text)


def lines(title: str, text: str, unit: str, *queries: Query, span: int = 12) -> Panel:
    """Return curves over time."""
    legend = (
        appearance.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    )
    legend.display_mode(common.LegendDisplayMode.LIST)
    together = (
        appearance.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    panel = (
        timeseries.Panel()
        .span(span)
        .height(8)
        .legend(legend)
        .tooltip(together)
        .fill_opacity(8)
        .line_width(2)
        .min(0)
    )
    panel.show_points(common.VisibilityMode.NEVER)
    return said(asking(panel, *queries), title, text, unit)


def stacked(title: str, text: str, unit: str, *queries: Query, span: int = 12) -> Panel:
    """Return curves that are piled up."""
    pile = appearance.StackingConfig().mode(common.StackingMode.NORMAL)
    return (
        lines(title, text, unit, *queries, span=span).stacking(pile).fill_opacity(60).line_width(0)
    )


def dashed(panel: Panel, *legends: str) -> Panel:
    """Return the panel with these curves dashed: what was predicted, beside what was observed."""
    for legend in legends:
        dashes = {"fill": "dash", "dash": [10, 10]}
        style = [
            dashboard.DynamicConfigValue("custom.lineStyle", dashes),
            dashboard.DynamicConfigValue("custom.fillOpacity", 0),
        ]
        panel.override_by_name(legend, style)
    return panel


def rows(
    title: str, text: str, expression: str, columns: Sequence[str], *, value: str = ""
) -> Panel:
    """Return a table with these labels as its columns, and the value where it has a name."""
    query = (
        prometheus.Dataquery().expr(expression).instant().format(PromQueryFormat.TABLE).ref_id("A")
    )
    shown = [*columns, *(["Value"] if value else [])]
    only = dashboard.DataTransformerConfig(
        id_val="filterFieldsByName", options={"include": {"names": shown}}
    )
    named = dashboard.DataTransformerConfig(
        id_val="organize",
        options={
            "indexByName": {name: place for place, name in enumerate(shown)},
            "renameByName": {"Value": value} if value else {},
        },
    )
    panel = (
        table.Panel()
        .span(12)
        .height(8)
        .with_target(query)
        .with_transformation(only)
        .with_transformation(named)
    )
    return said(panel.filterable(filterable=True).no_value("none"), title, text)


def titled(title: str, uid: str, text: str) -> builder.Dashboard:
    """Return a dashboard with what both have: a choice of Prometheus, six hours, a refresh each
    minute.
    """
    made = (
        builder.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags(["shardwright"])
        .refresh("1m")
        .time("now-6h", "now")
    )
    made.timezone("browser").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    return made.with_variable(
        builder.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    )


def fleet() -> builder.Dashboard:
    """Return the dashboard of all models and of the operator."""
    made = titled(
        "shardwright / Fleet",
        "shardwright-fleet",
        "All models of a cluster, and the operator that runs them.",
    )
    ready = 'shardwright_model_condition{type="Ready", status="True"}'
    for panel in (
        number(
            "Models",
            "ShardedModels that the operator knows.",
            'count(shardwright_model_condition{type="Ready"})',
        ),
        number("Ready", "Models whose condition Ready is True.", f"count({ready}) or vector(0)"),
        number(
            "Stalled",
            "Models that wait for somebody to act.",
            'count(shardwright_model_condition{type="Stalled", status="True"}) or vector(0)',
            bad_above=0,
        ),
        number("Groups that serve", "Of all models.", "sum(shardwright_model_groups_serving)"),
        number(
            "Groups that are missing",
            "Wanted, and not serving.",
            "sum(clamp_min(shardwright_model_groups_wanted - shardwright_model_groups_serving, 0))",
            bad_above=0,
        ),
        number("GPUs planned", "Of all plans that stand.", "sum(shardwright_plan_gpus)"),
    ):
        made.with_panel(panel)
    not_ready = 'shardwright_model_condition{type="Ready", status!="True"}'
    made.with_panel(
        rows(
            "Not ready, and why",
            "The reason in one word: docs/reasons.md.",
            not_ready,
            ["namespace", "name", "reason"],
        )
    )
    layout = [
        "namespace",
        "name",
        "tensor",
        "pipeline",
        "expert",
        "attention_data",
        "replicas",
        "pool",
    ]
    made.with_panel(
        rows(
            "Layouts",
            "How each model is cut, and on which kind of node.",
            "shardwright_plan_info",
            layout,
        )
    )
    made.with_panel(
        lines(
            "A token takes, against the prediction",
            "Observed over predicted time per output token, the ten slowest. 1 is as predicted.",
            "short",
            ("topk(10, shardwright:tpot:observed_over_predicted)", "{{namespace}}/{{name}}"),
        )
    )
    made.with_panel(
        lines(
            "Load, against the planned one",
            "Requests at work over those that the plan was made for, the ten fullest. Above 1 "
            "requests queue.",
            "short",
            (
                "topk(10, shardwright:running_requests:observed_over_planned)",
                "{{namespace}}/{{name}}",
            ),
        )
    )
    made.with_panel(
        lines(
            "Restarts of groups in an hour",
            "Groups that were restarted as one, by model.",
            "short",
            (
                "topk(10, sum by (namespace, name) (delta(shardwright_group_restarts[1h])) > 0)",
                "{{namespace}}/{{name}}",
            ),
        )
    )
    made.with_panel(
        lines(
            "Output",
            "Tokens that all engines bring, and what is predicted for the planned load.",
            "short",
            ("sum(shardwright:output_tokens_per_second:observed)", "observed"),
            ("sum(shardwright_plan_output_tokens_per_second)", "predicted"),
        )
    )
    made.with_row(builder.Row("The operator"))
    _operator(made)
    return made


def _operator(made: builder.Dashboard) -> None:
    for panel in (
        words(
            "Leader",
            "The process that leads.",
            "shardwright_leader == 1",
            "{{pod}}{{instance}}",
            span=6,
        ),
        number("Leaders", "Processes that lead: always 1.", "sum(shardwright_leader)").span(3),
        number(
            "Groups that move",
            "Down because they move or roll.",
            f"shardwright_groups_moving {LEADER}",
        ).span(3),
        words("Version", "Of each process.", "shardwright_build_info", "{{version}}", span=6),
        number(
            "Memory",
            "Of the main process that leads.",
            f"process_resident_memory_bytes {LEADER}",
            "bytes",
        ).span(6),
        stacked(
            "Models that wait to be looked at",
            "By urgency: a broken group first, a comparison last.",
            "short",
            (f"shardwright_queue_depth {LEADER}", "{{priority}}"),
        ),
        lines(
            "How long they wait",
            "The first in the queue, and the 99th percentile of waits for a turn at the planner, "
            "the worker and the API server.",
            "s",
            (f"shardwright_queue_oldest_age_seconds {LEADER}", "first in the queue"),
            (
                (
                    "histogram_quantile(0.99, sum by (le, at) "
                    "(rate(shardwright_turn_wait_seconds_bucket[5m])))"
                ),
                "{{at}}",
            ),
            (
                (
                    "histogram_quantile(0.99, sum by (le, urgency) "
                    "(rate(shardwright_api_request_wait_seconds_bucket[5m])))"
                ),
                "API server: {{urgency}}",
            ),
        ),
        stacked(
            "Requests to the API server",
            "Per second, by outcome. Code 0: no answer.",
            "reqps",
            ("sum by (code) (rate(shardwright_api_requests_total[5m]))", "{{code}}"),
        ),
        lines(
            "Time of a reconcile, and of a request",
            "Median and 99th percentile.",
            "s",
            (
                (
                    "histogram_quantile(0.5, sum by (le) "
                    "(rate(shardwright_reconcile_duration_seconds_bucket[5m])))"
                ),
                "look, median",
            ),
            (
                (
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(shardwright_reconcile_duration_seconds_bucket[5m])))"
                ),
                "look, p99",
            ),
            (
                (
                    "histogram_quantile(0.5, sum by (le) "
                    "(rate(shardwright_api_request_duration_seconds_bucket[5m])))"
                ),
                "request, median",
            ),
            (
                (
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(shardwright_api_request_duration_seconds_bucket[5m])))"
                ),
                "request, p99",
            ),
        ),
        lines(
            "CPU",
            "Cores that each main process takes, and the worker for what it answers.",
            "short",
            (
                (
                    "rate(process_cpu_seconds_total[5m]) and on (namespace, pod, instance) "
                    "shardwright_build_info"
                ),
                "main {{pod}}{{instance}}",
            ),
            (
                "sum by (question) (rate(shardwright_worker_cpu_seconds_total[5m]))",
                "worker: {{question}}",
            ),
        ),
        lines(
            "Faults",
            "Looks that did not end well, answers that were refused for their cost, workers that "
            "were replaced; in an hour.",
            "short",
            (
                (
                    "sum by (result) "
                    '(increase(shardwright_reconcile_duration_seconds_count{result!="ok"}[1h]))'
                ),
                "look: {{result}}",
            ),
            (
                "sum by (reason) (increase(shardwright_worker_refusals_total[1h]))",
                "too costly: {{reason}}",
            ),
            (
                "sum by (reason) (increase(shardwright_worker_restarts_total[1h]))",
                "worker: {{reason}}",
            ),
        ),
    ):
        made.with_panel(panel)


def model() -> builder.Dashboard:
    """Return the dashboard of one model."""
    made = titled(
        "shardwright / Model",
        "shardwright-model",
        "One model: how it stands, how it was planned, and how it runs beside that.",
    )
    for label, query in (
        ("namespace", "label_values(shardwright_model_condition, namespace)"),
        ("name", 'label_values(shardwright_model_condition{namespace="$namespace"}, name)'),
    ):
        variable = builder.QueryVariable(label).label(label.title()).datasource(SOURCE).query(query)
        made.with_variable(
            variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
                dashboard.VariableSort.ALPHABETICAL_ASC
            )
        )
    degrees = (
        "tensor {{tensor}} · pipeline {{pipeline}} · expert {{expert}} · attention replicas "
        "{{attention_data}}"
    )
    cut = f"{degrees} · {{{{replicas}}}} replicas on {{{{pool}}}}"
    for panel in (
        words(
            "How it stands",
            "Status and reason of its condition Ready: docs/reasons.md.",
            f'shardwright_model_condition{{{MODEL}, type="Ready"}}',
            "{{status}}: {{reason}}",
            span=6,
        ),
        words("Layout", "The plan of record.", f"shardwright_plan_info{{{MODEL}}}", cut, span=10),
        number("GPUs", "Of all replicas.", f"shardwright_plan_gpus{{{MODEL}}}"),
        number(
            "Groups that are missing",
            "Wanted, and not serving.",
            f"clamp_min(shardwright_model_groups_wanted{{{MODEL}}} - "
            f"shardwright_model_groups_serving{{{MODEL}}}, 0)",
            bad_above=0,
        ),
        _beside("First token", "Mean time to the first token.", "s", "ttft_seconds"),
        _beside(
            "Time per token", "Mean time per output token after the first.", "s", "tpot_seconds"
        ),
        _output(),
        _beside(
            "Prefixes found",
            "Share of input tokens whose K/V is cached where a request comes.",
            "percentunit",
            "prefix_hits",
        ),
        _load(),
        _groups_of_load(),
        *_engine(),
        _memory(),
        *_groups(),
    ):
        made.with_panel(panel)
    return made


def _beside(title: str, text: str, unit: str, figure: str) -> Panel:
    observed, predicted = (
        f"shardwright:{figure}:observed{{{MODEL}}}",
        f"shardwright_plan_{figure}{{{MODEL}}}",
    )
    text = f"{text} Dashed: predicted for the planned load."
    return dashed(
        lines(title, text, unit, (observed, "observed"), (predicted, "predicted")), "predicted"
    )


def _output() -> Panel:
    bound = f"shardwright_plan_output_tokens_per_second_bound{{{MODEL}, bound="
    panel = lines(
        "Output",
        "Tokens a second of all replicas. Dashed: predicted for the planned load, and its band of "
        "80%.",
        "short",
        (f"shardwright:output_tokens_per_second:observed{{{MODEL}}}", "observed"),
        (f"shardwright_plan_output_tokens_per_second{{{MODEL}}}", "predicted"),
        (f'{bound}"low"}}', "low"),
        (f'{bound}"high"}}', "high"),
    )
    return dashed(panel, "predicted", "low", "high")


WAITING = '__name__=~"vllm:num_requests_waiting|sglang:num_queue_reqs"'
LATENCY = '__name__=~"(vllm|sglang):e2e_request_latency_seconds_bucket"'
USAGE = '__name__=~"vllm:kv_cache_usage_perc|sglang:token_usage"'
"""What vLLM and SGLang call the same."""


def _load() -> Panel:
    panel = lines(
        "Requests at work",
        "Running in all groups, and waiting. Dashed: the planned load. Predictions say something "
        "where both are near each other.",
        "short",
        (f"shardwright:running_requests:observed{{{MODEL}}}", "running"),
        (f"sum({{{WAITING}, {MODEL}}})", "waiting"),
        (f"shardwright_plan_running_requests{{{MODEL}}}", "planned"),
    )
    return dashed(panel, "planned")


def _groups_of_load() -> Panel:
    panel = lines(
        "Load in groups",
        "Requests in flight over those that the plan says a group holds. Dashed: where "
        "spec.scaling adds a group, at 0.8 of those that are wanted.",
        "short",
        (f"shardwright:groups_of_load:observed{{{MODEL}}}", "load"),
        (f"shardwright_model_groups_wanted{{{MODEL}}}", "wanted"),
        (f"0.8 * shardwright_model_groups_wanted{{{MODEL}}}", "threshold"),
    )
    return dashed(panel, "threshold")


def _engine() -> tuple[Panel, ...]:
    return (
        lines(
            "Requests that take long",
            "From arrival to the last token, as the engine measures it.",
            "s",
            *(
                (
                    (
                        f"histogram_quantile({part}, sum by (le) "
                        f"(rate({{{LATENCY}, {MODEL}}}[10m])))"
                    ),
                    name,
                )
                for part, name in ((0.5, "median"), (0.95, "p95"), (0.99, "p99"))
            ),
        ),
        lines(
            "K/V cache in use",
            "Of each group. Near 100% requests are preempted and computed again.",
            "percentunit",
            (f"{{{USAGE}, {MODEL}}}", "{{group}}"),
        ).max(1),
    )


def _memory() -> Panel:
    panel = bargauge.Panel().span(12).height(8).orientation(common.VizOrientation.HORIZONTAL).min(0)
    panel.display_mode(common.BarGaugeDisplayMode.BASIC).color_scheme(
        builder.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC)
    )
    query = (f"shardwright_plan_memory_bytes{{{MODEL}}}", "stage {{stage}}: {{component}}")
    return said(
        asking(panel, query, instant=True),
        "Memory of the fullest GPU",
        "As planned, by stage. Weights, activations, overhead and K/V cache add up to the budget.",
        "bytes",
    )


def _groups() -> tuple[Panel, ...]:
    return (
        lines(
            "Groups",
            "1 while the group is ready.",
            "short",
            (f"shardwright_group_ready{{{MODEL}}}", "{{group}}"),
        ).max(1),
        lines(
            "Restarts",
            "Of each group, as its StatefulSet remembers them.",
            "short",
            (f"shardwright_group_restarts{{{MODEL}}}", "{{group}}"),
        ),
        rows(
            "Conditions",
            "As in the status: docs/reasons.md.",
            f"shardwright_model_condition{{{MODEL}}}",
            ["type", "status", "reason"],
        ),
        rows(
            "Ruled out",
            "Layouts and nodes that the planner could not take, by reason.",
            f"shardwright_plan_excluded{{{MODEL}}}",
            ["reason"],
            value="how many",
        ),
    )


DASHBOARDS: Final = {"fleet": fleet, "model": model}


def documents() -> dict[Path, str]:
    """Return what the file of each dashboard holds."""
    return {
        FOLDER / f"{name}.json": JSONEncoder(sort_keys=True, indent=2).encode(made().build()) + "\n"
        for name, made in DASHBOARDS.items()
    }
