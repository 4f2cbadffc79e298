"""What GitOps tools make of a ShardedModel: kstatus, Flux with our expressions and without, and
Argo CD with our script.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shardwright.api.schema import status_schema
from shardwright.reconcile.model_status import build_status, service_status
from shardwright.rendering.deployment import Owner
from tests.harness.build import flux_judge, health_judge
from tests.support.builders_reconcile import NOON
from tests.support.outcomes import CASES

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "gitops"
SCRIPT: Final = EXAMPLES / "argocd-health.lua"
EXPRESSIONS: Final = EXAMPLES / "flux-health-checks.yaml"
OWNER: Final = Owner(name="llama", namespace="models", uid="u")
GENERATION: Final = 3
KSTATUS: Final = {
    "ready": "Current",
    "partly": "InProgress",
    "reconciling": "InProgress",
    "stalled": "Failed",
    "resting": "InProgress",
}
ARGO: Final = {
    "ready": {"Healthy"},
    "partly": {"Progressing"},
    "reconciling": {"Progressing", "Degraded"},
    "stalled": {"Degraded"},
    "resting": {"Suspended"},
}
MODEL: Final = {
    "apiVersion": "shardwright.io/v1alpha1",
    "kind": "ShardedModel",
    "metadata": {"name": "llama"},
    "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
}


def judged(objects: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what kstatus and Argo CD say of each object."""
    said = subprocess.run(
        [str(health_judge()), str(SCRIPT)],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return [(answer["kstatus"], answer["argo"]) for answer in json.loads(said.stdout)]


def judged_by_expressions(folder: Path, objects: Sequence[dict[str, Any]]) -> list[str]:
    """Return what Flux says of each object by our expressions."""
    (check,) = yaml.safe_load(EXPRESSIONS.read_text())["healthCheckExprs"]
    assert (check.pop("apiVersion"), check.pop("kind")) == (MODEL["apiVersion"], MODEL["kind"])
    file = folder / "expressions.json"
    file.write_text(json.dumps(check))
    said = subprocess.run(
        [str(flux_judge()), str(file)],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    answers: list[str] = json.loads(said.stdout)
    return answers


def a_judged_model(case: str, generation: int = GENERATION) -> dict[str, Any]:
    status = build_status((), CASES[case][0], None, service_status(OWNER, "cluster.local"), NOON)
    return MODEL | {
        "metadata": {"name": "llama", "namespace": "models", "generation": generation},
        "status": status,
    }


def test_every_outcome_is_judged_as_what_it_means_for_who_waits() -> None:
    answers = dict(zip(CASES, judged([a_judged_model(case) for case in CASES]), strict=True))
    assert {case: kstatus for case, (kstatus, _) in answers.items()} == {
        case: KSTATUS[CASES[case][2]] for case in CASES
    }
    assert {
        case: argo for case, (_, argo) in answers.items() if argo not in ARGO[CASES[case][2]]
    } == {}


@pytest.mark.parametrize("case", ["serving", "plan only", "scaled to zero", "unknown model"])
def test_what_was_said_of_an_earlier_spec_counts_for_nothing(case: str) -> None:
    assert judged([a_judged_model(case, GENERATION + 1)]) == [("InProgress", "Progressing")]


def test_a_model_that_nobody_has_looked_at_is_in_progress() -> None:
    fresh = MODEL | {
        "metadata": {"name": "llama", "generation": 1},
        "status": status_schema()["default"],
    }
    assert judged([fresh]) == [("InProgress", "Progressing")]


def test_flux_says_by_expressions_what_it_says_without_them(tmp_path: Path) -> None:
    """Of every outcome, of what was said of an earlier spec, and of a model that nobody has looked
    at.
    """
    fresh = MODEL | {
        "metadata": {"name": "llama", "generation": 1},
        "status": status_schema()["default"],
    }
    objects = [
        *(a_judged_model(case) for case in CASES),
        a_judged_model("serving", GENERATION + 1),
        fresh,
    ]

    said = judged_by_expressions(tmp_path, objects)

    assert dict(zip([*CASES, "earlier", "fresh"], said, strict=True)) == {
        **{case: KSTATUS[outcome] for case, (_, _, outcome) in CASES.items()},
        "earlier": "InProgress",
        "fresh": "InProgress",
    }
