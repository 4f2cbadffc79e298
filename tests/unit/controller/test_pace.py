"""A namespace has things done again at its own pace, and no other waits for it."""

from shardwright.controller.pace import Pace


def test_so_many_at_once_wait_for_nothing_and_the_others_one_after_another() -> None:
    pace = Pace(per_second=2.0, at_once=3)
    assert [pace.next("a", 100.0) for _ in range(6)] == [
        100.0,
        100.0,
        100.0,
        100.5,
        101.0,
        101.5,
    ]
    assert pace.next("b", 100.0) == 100.0


def test_what_was_let_through_is_forgotten_as_time_passes() -> None:
    pace = Pace(per_second=1.0, at_once=1)
    assert [pace.next("a", 0.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert pace.next("a", 3.0) == 3.0


def test_nobody_waits_for_longer_than_the_longest_however_much_was_asked_for() -> None:
    pace = Pace(per_second=1.0, at_once=2, longest_seconds=10.0)
    assert max(pace.next("a", 0.0) for _ in range(1000)) == 10.0
    assert pace.next("a", 11.0) == 11.0
