"""A namespace has things done again at its own pace, and no other waits for it."""

from shardwright.controller.rate_limits import RECHECKS_AT_ONCE, RateLimit, Rechecks


def test_so_many_at_once_wait_for_nothing_and_the_others_one_after_another() -> None:
    pace = RateLimit(per_second=2.0, at_once=3)
    assert [pace.next("a", 100.0) for _ in range(6)] == [100.0, 100.0, 100.0, 100.5, 101.0, 101.5]
    assert pace.next("b", 100.0) == 100.0


def test_what_was_let_through_is_forgotten_as_time_passes() -> None:
    pace = RateLimit(per_second=1.0, at_once=1)
    assert [pace.next("a", 0.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert pace.next("a", 3.0) == 3.0


def test_nobody_waits_for_longer_than_the_longest_however_much_was_asked_for() -> None:
    pace = RateLimit(per_second=1.0, at_once=2, longest_seconds=10.0)
    assert max(pace.next("a", 0.0) for _ in range(1000)) == 10.0
    assert pace.next("a", 11.0) == 11.0


def test_a_model_that_is_looked_at_for_other_reasons_keeps_its_one_appointment() -> None:
    rechecks = Rechecks()
    first = ("models", "first")
    assert [rechecks.next(first, 30.0 + now, now) for now in range(200)][-1] == 229.0
    others = [("models", f"m{number}") for number in range(RECHECKS_AT_ONCE)]
    assert {rechecks.next(other, 230.0, 200.0) for other in others} == {230.0}


def test_of_many_models_each_is_looked_at_once_a_second_and_in_ten_minutes_at_the_latest() -> None:
    rechecks = Rechecks()
    at = [rechecks.next(("models", f"m{number}"), 30.0, 0.0) for number in range(1000)]
    assert (at[0], at[59], at[60], at[100], at[-1]) == (30.0, 30.0, 31.0, 71.0, 600.0)
