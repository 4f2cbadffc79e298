"""The fitted numbers: few, by month of release alone, bounded by what is physically possible."""

import pytest

from shardwright.costs.coefficients import NAMES, Coefficients, band_of, coefficients_of
from shardwright.engines.registry import BY_LOWER_NAME, traits_of

ENGINES = sorted(BY_LOWER_NAME.values())
FITTED = [
    name
    for name, field in Coefficients.__dataclass_fields__.items()
    if field.default.__class__ is not float
]


def test_no_engine_has_more_than_twelve_fitted_coefficients() -> None:
    assert len(FITTED) <= 12 < len(NAMES)


@pytest.mark.parametrize("engine", ENGINES)
def test_at_most_three_generations_and_each_month_has_one(engine: str) -> None:
    months = [f"{year}-{month:02}" for year in range(2022, 2031) for month in range(1, 13)]

    assert len({coefficients_of(engine, month) for month in months}) <= 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_version_counts_by_its_month_alone(engine: str) -> None:
    of = [
        traits_of(engine, version).released
        for version in ("nightly-20260115", "somebody 2026-01", None, "unheard-of")
    ]

    assert of == ["2026-01", "2026-01", "", ""]
    assert coefficients_of(engine, "") == coefficients_of(engine, "2031-01")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("released", ["2024-01", ""])
def test_nothing_is_faster_than_its_data_sheet(engine: str, released: str) -> None:
    fitted = coefficients_of(engine, released)

    assert 0 < fitted.compute_efficiency <= 1
    assert 0 < fitted.kv_efficiency <= 1
    assert fitted.widening >= 1
    assert all(getattr(fitted, name) >= 0 for name in NAMES)


def test_the_band_is_that_of_a_model_where_nothing_was_measured_and_wider_for_unknown_facts() -> (
    None
):
    measured, unsure, modelled = (
        band_of("vLLM", "ClosedLoop", ("bf16",), known=True),
        band_of("vLLM", "ClosedLoop", ("bf16",), known=False),
        band_of("vLLM", "", ("bf16",), known=True),
    )

    assert (measured.basis, unsure.basis, modelled.basis) == ("fitted", "fitted", "modelled")
    assert unsure.low < measured.low < 1 < measured.high < unsure.high
    assert band_of("vLLM", "", ("bf16",), known=False).high > modelled.high
    assert modelled.low <= 0.6
    assert modelled.high >= 1.4


@pytest.mark.parametrize(
    ("formats", "basis"),
    [(("bf16", "mxfp4 widened"), "fitted"), (("int4 widened",), "modelled"), ((), "fitted")],
)
def test_a_way_to_store_weights_that_hardly_a_row_has_is_modelled(
    formats: tuple[str, ...], basis: str
) -> None:
    assert band_of("vLLM", "ClosedLoop", formats, known=True).basis == basis
