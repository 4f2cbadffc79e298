"""Conditions: what changes the time of transition, and in which order they stand."""

from datetime import UTC, datetime, timedelta, timezone

from shardwright.api.conditions import Condition, ConditionType, Reason, set_condition
from shardwright.api.published import MESSAGE_MAX_LENGTH

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def ready(
    *,
    status: bool | None = True,
    reason: str = Reason.SERVING,
    message: str = "",
    generation: int = 1,
) -> Condition:
    return Condition(
        type=ConditionType.READY,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
    )


def test_a_new_condition_has_all_fields_of_the_conventions() -> None:
    assert set_condition((), ready(message="1 of 1 groups ready"), now=NOON) == (
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T12:00:00Z",
            "reason": "Serving",
            "message": "1 of 1 groups ready",
        },
    )


def test_the_time_stays_while_the_status_stays() -> None:
    before = set_condition((), ready(), now=NOON)

    (after,) = set_condition(before, ready(message="other words", generation=2), now=LATER)

    assert (after["lastTransitionTime"], after["message"], after["observedGeneration"]) == (
        "2026-01-02T12:00:00Z",
        "other words",
        2,
    )


def test_the_time_moves_with_the_status() -> None:
    before = set_condition((), ready(status=None, reason=Reason.PROGRESSING), now=NOON)

    (after,) = set_condition(before, ready(), now=LATER)

    assert (before[0]["status"], after["status"], after["lastTransitionTime"]) == (
        "Unknown",
        "True",
        "2026-01-02T13:00:00Z",
    )


def test_times_are_written_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))

    (after,) = set_condition((), ready(), now=NOON.astimezone(berlin))

    assert after["lastTransitionTime"] == "2026-01-02T12:00:00Z"


def test_conditions_stand_in_their_order_and_foreign_ones_stay_at_the_end() -> None:
    foreign = {"type": "AutoscalerHappy", "status": "True"}
    stalled = Condition(type=ConditionType.STALLED, status=False, reason=Reason.IDLE)

    conditions = set_condition(set_condition((foreign,), stalled, now=NOON), ready(), now=NOON)

    assert [item["type"] for item in conditions] == ["Ready", "Stalled", "AutoscalerHappy"]
    assert conditions[-1] == foreign


def test_a_long_message_is_cut_to_what_the_schema_takes() -> None:
    (after,) = set_condition((), ready(message="x" * 10_000), now=NOON)

    assert len(after["message"]) == MESSAGE_MAX_LENGTH


def test_every_reason_is_one_word() -> None:
    assert [reason for reason in Reason if not (reason.isalpha() and reason[0].isupper())] == []
