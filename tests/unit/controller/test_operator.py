"""The wiring: who does not lead queues nothing, and a part that fails takes the process with it."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from shardwright.controller.operator import Operator
from shardwright.controller.options import parse_options
from tests.support.scripted_api import Answer, ScriptedApi

MODEL = {"metadata": {"namespace": "models", "name": "llama", "uid": "u", "generation": 1}}


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    scripted = ScriptedApi(Answer(404))
    yield scripted
    scripted.stop()


def operator(api: ScriptedApi, *arguments: str) -> Operator:
    return Operator(parse_options([*arguments, "--port=0"]), api.access())


def test_who_does_not_lead_queues_nothing(api: ScriptedApi) -> None:
    standby = operator(api)
    standby._intake.on_model(MODEL, False)
    assert sum(standby._queue.load().depth.values()) == 0


def test_who_leads_queues_what_has_changed(api: ScriptedApi) -> None:
    alone = operator(api, "--no-leader-elect")
    alone._intake.on_model(MODEL, False)
    assert sum(alone._queue.load().depth.values()) == 1


def test_a_part_that_fails_ends_the_process_and_says_why(api: ScriptedApi, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("metadata")

    async def scenario() -> Operator:
        broken = operator(api)
        task = asyncio.create_task(fail())
        task.add_done_callback(broken._job_ended)
        await asyncio.wait_for(broken._stopping.wait(), 10)
        return broken

    with caplog.at_level(logging.CRITICAL):
        assert asyncio.run(scenario())._failed
    assert "KeyError: 'metadata'" in caplog.text
