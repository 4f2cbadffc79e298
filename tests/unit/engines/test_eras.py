"""Generations: found by release or month, cut three ways, none of them known by a whole version
string.
"""

import pytest

from shardwright.engines.vllm.traits import ERAS, era_of, traits


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.5.4", (0, 0)),
        ("0.6.5.dev964", (0, 0)),
        ("2024-11", (0, 0)),
        ("V1 2025-01", (0, 8)),
        ("0.8.4", (0, 8)),
        ("0.17.0rc1", (0, 8)),
        ("0.20.99", (0, 8)),
        ("0.21.0", (0, 21)),
        ("v0.33.0", (0, 21)),
        ("1.0.0", (0, 21)),
        ("nightly 2026-06", (0, 21)),
        ("", (0, 21)),
    ],
)
def test_a_version_belongs_to_the_era_of_its_release_or_month(
    version: str, release: tuple[int, int]
) -> None:
    assert era_of(version).release == release


def test_there_are_at_most_three_in_order_of_release_and_month() -> None:
    assert len(ERAS) <= 3
    assert list(ERAS) == sorted(ERAS, key=lambda era: (era.release, era.month))


def test_a_version_that_nobody_has_seen_is_budgeted_like_its_neighbours() -> None:
    known, unseen = traits("0.33.0"), traits("0.33.77")

    assert known.batching.batch_defaults == unseen.batching.batch_defaults
    assert (
        known.memory.memory_utilization,
        known.memory.logit_copies,
        known.memory.counts_graphs,
    ) == (0.92, 4.0, True)
    assert (
        unseen.memory.memory_utilization,
        unseen.memory.logit_copies,
        unseen.memory.counts_graphs,
    ) == (0.92, 4.0, True)
