"""What a real Prometheus observes of a real engine, beside what was predicted for it.

The engine runs on a CPU and was planned for a GPU, so no ratio says how good a prediction is: that
the series join is what is tested.
"""

import math
from typing import Any

import pytest

from tests.harness.prometheus import Prometheus
from tests.harness.waiting import wait_for
from tests.kind import faults, scraping
from tests.kind.breaking import PROMPT
from tests.kind.faults import Fault
from tests.kind.serving import NAMESPACE, Facts, Served

pytestmark = pytest.mark.timeout(2400)  # with the groups, where it runs alone

FIGURES = {
    "ttft": "ttft_seconds",
    "tpot": "tpot_seconds",
    "output_tokens_per_second": "output_tokens_per_second",
}
"""What the ratio is named after, and what is observed and predicted."""


def test_observed_and_predicted_join_for_a_model_that_a_real_engine_serves(
    pipeline: tuple[Served, Facts],
) -> None:
    served, _ = pipeline
    served.wait_ready()

    with scraping.prometheus(served.cluster, NAMESPACE) as prometheus:
        what = "a ratio for every figure"
        found = wait_for(lambda: _beside(prometheus, served), 90, what, 0.5)

    for figure, (observed, predicted, ratio) in found.items():
        assert all(math.isfinite(value) and value > 0 for value in found[figure])
        assert ratio == pytest.approx(observed / predicted)
        said = f"{observed:.3g} observed, {predicted:.3g} predicted for a T4"
        joined = f"{ratio:.3g} times, on a CPU"
        faults.seen.append(Fault(f"{figure}, by Prometheus", said, 0, joined))


def _beside(prometheus: Prometheus, served: Served) -> dict[str, tuple[float, float, float]]:
    """Observed, predicted and their ratio by figure, of one evaluation after a request."""
    served.ask(PROMPT)
    found = {}
    for name, figure in FIGURES.items():
        names = (
            f"shardwright:{figure}:observed",
            f"max by (namespace, name) (shardwright_plan_{figure})",
            f"shardwright:{name}:observed_over_predicted",
        )
        observed, predicted, ratio = (_of(served, prometheus.ask(one)) for one in names)
        assert ratio == pytest.approx(observed / predicted)
        found[figure] = (observed, predicted, ratio)
    return found


def _of(served: Served, found: list[dict[str, Any]]) -> float:
    """The value of the only series there is: that of the model, which has no other labels."""
    labels = [
        {key: value for key, value in series["metric"].items() if key != "__name__"}
        for series in found
    ]
    assert labels == [{"namespace": NAMESPACE, "name": served.name}]
    return float(found[0]["value"][1])
