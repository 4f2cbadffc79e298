"""Which model does an explanation speak of? Said first, on every screen, page and document."""

from dataclasses import replace
from typing import Final

from shardwright.reporting.explanation import Explanation, Fact
from shardwright.reporting.figures import format_count
from shardwright.resolving.subject import Subject

PLAN_ONLY: Final = "PlanOnly: no pod is made, and no GPU is held"


def of_subject(subject: Subject, explanation: Explanation) -> Explanation:
    """Return an explanation that begins with the model that is served, and whether it is at all."""
    engine = f"{subject.traits.name} {subject.traits.version}"
    size = (
        "not counted"
        if subject.model.stated
        else f"{format_count(subject.model.parameters / 1e9)} B parameters"
    )
    served = Fact(label="Model", value=f"{subject.deployment.model}, {size}, on {engine}")
    mode = (Fact(label="Mode", value=PLAN_ONLY),) if subject.intent.plan_only else ()
    return replace(explanation, facts=(served, *mode, *explanation.facts))
