"""A cache that watches feed and LISTs correct."""

from shardwright.cluster.projection import Projection


def filled(**values: int) -> Projection[str, int]:
    cache: Projection[str, int] = Projection()
    cache.begin_list()
    cache.finish_list(values)
    return cache


def test_it_is_synced_after_the_first_complete_list_only() -> None:
    cache: Projection[str, int] = Projection()
    cache.begin_list()
    cache.set("a", 1)
    assert not cache.synced
    cache.finish_list({"a": 1})
    assert cache.synced


def test_a_ghost_is_gone_after_a_list() -> None:
    cache = filled(a=1, ghost=2)
    cache.begin_list()
    assert cache.finish_list({"a": 1}) == {"ghost"}
    assert sorted(cache) == ["a"]


def test_a_list_does_not_undo_what_an_event_said_while_it_ran() -> None:
    cache = filled(a=1, b=2)
    cache.begin_list()
    cache.set("a", 9)
    cache.set("b", None)
    cache.set("c", 3)
    assert cache.finish_list({"a": 1, "b": 2, "d": 4}) == {"d"}
    assert {key: cache.get(key) for key in cache} == {"a": 9, "c": 3, "d": 4}


def test_only_a_real_difference_is_a_change() -> None:
    cache = filled(a=1)
    assert [cache.set("a", 1), cache.set("a", 2), cache.set("b", None), cache.set("a", None)] == [False, True, False, True]
