"""Load time: bytes over an assumed bandwidth, said to be one, wider where nothing is known."""

import pytest

from shardwright.costs.host import SPEEDS, UNKNOWN_STORAGE, LoadingTime, Storage, loading_time


@pytest.mark.parametrize("storage", Storage)
def test_every_storage_has_a_speed_that_says_it_is_assumed_and_why(storage: Storage) -> None:
    assert SPEEDS[storage].basis == "assumed"
    assert SPEEDS[storage].source


def test_from_the_hub_every_node_downloads_what_all_nodes_hold() -> None:
    assert (
        loading_time(10**11, 4, Storage.HUB).seconds
        == 4 * loading_time(10**11, 1, Storage.HUB).seconds
        == 2000.0
    )


def test_an_image_is_pulled_whole_by_every_node() -> None:
    assert (
        loading_time(10**11, 4, Storage.IMAGE).seconds
        == 4 * loading_time(10**11, 1, Storage.IMAGE).seconds
        == 2000.0
    )


def test_every_node_streams_one_copy_of_the_whole_model_from_an_object_store() -> None:
    assert (
        loading_time(10**11, 4, Storage.OBJECT_STORE).seconds
        == 4 * loading_time(10**11, 1, Storage.OBJECT_STORE).seconds
        == 400.0
    )


def test_a_bandwidth_that_somebody_has_measured_goes_before_what_is_assumed() -> None:
    found = loading_time(10**11, 1, Storage.OBJECT_STORE, 4e9)

    assert found == LoadingTime(
        seconds=25.0, low=12.5, high=50.0, basis="stated", source="the spec"
    )


def test_from_a_claim_every_node_reads_its_own_layers() -> None:
    assert (
        loading_time(10**11, 4, Storage.CLAIM).seconds
        == loading_time(10**11, 1, Storage.CLAIM).seconds
        == 200.0
    )


def test_unknown_storage_has_the_widest_band_and_holds_every_known_one() -> None:
    unknown = loading_time(10**11, 1, None)

    assert UNKNOWN_STORAGE.spread > max(speed.spread for speed in SPEEDS.values())
    assert all(
        unknown.low <= loading_time(10**11, 1, storage).seconds <= unknown.high
        for storage in Storage
    )
