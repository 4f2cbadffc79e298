"""The alerts that the chart brings: each fires where it must and nowhere else, has a runbook, and
asks for series that exist.
"""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shardwright.controller.metrics import Metrics
from tests.harness.prometheus import program

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "charts" / "shardwright" / "files" / "rules.yaml"
TESTS: Final = Path(__file__).with_name("rules_test.yaml")
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
HEADINGS: Final = ("## Meaning", "## Look", "## Do")


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


ALERTS: Final = sorted(rule["alert"] for rule in rules() if "alert" in rule)


def ran(*arguments: str, given: str | None = None) -> str:
    found = subprocess.run(
        [str(program("promtool")), *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


def test_prometheus_reads_the_rules() -> None:
    assert f"{len(rules())} rules found" in ran("check", "rules", str(RULES))


def test_every_alert_fires_where_it_must_and_nowhere_else() -> None:
    assert "SUCCESS" in ran("test", "rules", str(TESTS))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_tried_where_it_fires_and_where_it_does_not(alert: str) -> None:
    tried = [
        case
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert {bool(case.get("exp_alerts")) for case in tried if case["alertname"] == alert} == {
        True,
        False,
    }


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_a_runbook_that_says_what_to_do(alert: str) -> None:
    (rule,) = (rule for rule in rules() if rule.get("alert") == alert)
    page = RUNBOOKS / f"{alert}.md"
    assert rule["annotations"]["runbook"] == str(page.relative_to(ROOT))
    headings = [line for line in page.read_text().splitlines() if line.startswith("#")]
    assert headings == [f"# {alert}", *HEADINGS]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_there_is_no_runbook_without_its_alert() -> None:
    assert sorted(page.stem for page in RUNBOOKS.glob("*.md")) == ALERTS


def test_the_rules_ask_for_series_that_the_operator_has_or_that_they_record() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for rule in rules() for name in re.findall(r"shardwright[a-z_:]*", rule["expr"])}
    families = list(Metrics().registry.collect())
    there = {
        f"{family.name}{suffix}"
        for family in families
        for suffix in ("", "_total", "_count", "_sum", "_bucket")
    }
    assert asked - there - recorded == set()


def test_prometheus_finds_no_fault_with_the_names_and_texts_of_the_metrics() -> None:
    assert ran("check", "metrics", given=Metrics().text().decode()) == ""
