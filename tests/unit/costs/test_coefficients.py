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


SHARED = {
    "dense",
    "experts",
    "thin_columns",
    "expert_imbalance",
    "expert_evenness",
    "four_bit_bytes_per_second",
}


def test_no_engine_has_more_than_twelve_fitted_coefficients_of_its_own() -> None:
    assert set(FITTED) >= SHARED
    assert len(set(FITTED) - SHARED) <= 12 < len(NAMES)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_kernels_reach_is_the_same_whatever_the_engine(name: str) -> None:
    first, *others = (getattr(coefficients_of(engine, ""), name) for engine in ENGINES)

    assert all(other == first for other in others)


def test_grouped_products_reach_less_of_their_unit_than_dense_ones_of_the_same_format() -> None:
    fitted = coefficients_of("vLLM", "")
    both = fitted.dense.keys() & fitted.experts.keys()

    assert both
    assert all(fitted.expert_share(name) < fitted.dense_share(name) for name in both)


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
    assert all(0 < fitted.dense_share(name) <= 1 for name in fitted.dense)
    assert all(0 < fitted.expert_share(name) <= 1 for name in fitted.experts)
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
    ("facets", "basis"),
    [
        (("bf16", "mxfp4 widened", "windowed, experts", "NVIDIA 9"), "fitted"),
        (("int4 widened",), "modelled"),
        (("sparse, experts",), "modelled"),
        (("NVIDIA 7",), "modelled"),
        ((), "fitted"),
    ],
)
def test_what_hardly_a_row_has_in_common_with_is_modelled(
    facets: tuple[str, ...], basis: str
) -> None:
    assert band_of("vLLM", "ClosedLoop", facets, known=True).basis == basis


def test_the_band_widens_with_what_nobody_measured_and_never_narrows() -> None:
    unmeasured = ("int4 widened", "sparse, experts", "NVIDIA 7")
    bands = [
        band_of("vLLM", "ClosedLoop", ("bf16", *unmeasured[:far]), known=True) for far in range(4)
    ]

    widths = [band.high / band.low for band in bands]
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < 2 * widths[0]
