"""Whatever becomes of any write of a model's life, the life goes on to where it would have come
without.
"""

from __future__ import annotations

import asyncio
from functools import cache

import pytest

from tests.crash.lives import ENGINES, life
from tests.crash.matrix import Chapter, chapters, forbidden, stopped, struck

PLURALS = {"vLLM": (), "TensorRT-LLM": ("secrets", "statefulsets")}
"""What is struck by engine, none: everything; what is not named is written for every engine alike.
"""


@cache
def life_of(engine: str) -> dict[str, Chapter]:
    return asyncio.run(chapters(engine))


@pytest.mark.parametrize("act", life("vLLM"))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_lost_write_or_an_operator_that_died_at_one_changes_nothing_of_how_an_act_ends(
    engine: str, act: str
) -> None:
    assert [
        run for run in asyncio.run(struck(life_of(engine)[act], PLURALS[engine])) if run.broken
    ] == []


@pytest.mark.parametrize("act", life("vLLM"))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_leader_stopped_at_a_write_until_another_leads_changes_nothing_of_how_an_act_ends(
    engine: str, act: str
) -> None:
    assert [
        run for run in asyncio.run(stopped(life_of(engine)[act], PLURALS[engine])) if run.broken
    ] == []


@pytest.mark.parametrize("act", ["create", "crash of a rank", "scale down"])
def test_a_right_that_was_revoked_for_a_while_changes_nothing_of_how_an_act_ends(act: str) -> None:
    assert [run for run in asyncio.run(forbidden(life_of("vLLM")[act])) if run.broken] == []


@pytest.mark.faults
@pytest.mark.parametrize("act", life("TensorRT-LLM"))
def test_each_right_that_was_revoked_for_a_while_changes_nothing_of_how_an_act_ends(
    act: str,
) -> None:
    assert [run for run in asyncio.run(forbidden(life_of("TensorRT-LLM")[act])) if run.broken] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_life_has_writes_of_every_kind(engine: str) -> None:
    writes = {write for chapter in life_of(engine).values() for write in chapter.writes}
    kinds = {
        (write.split()[0], write.split()[1].split("/")[0] + "/status" * write.endswith("/status"))
        for write in writes
    }
    assert kinds == {
        *(
            ("create", kind)
            for kind in (
                "configmaps",
                "networkpolicies",
                "services",
                "poddisruptionbudgets",
                "secrets",
            )
        ),
        *(("create", kind) for kind in ("statefulsets", "controllerrevisions", "events")),
        *(
            ("patch", kind)
            for kind in (
                "configmaps",
                "poddisruptionbudgets",
                "statefulsets",
                "shardedmodels/status",
            )
        ),
        *(
            ("delete", kind)
            for kind in (
                "configmaps",
                "poddisruptionbudgets",
                "services",
                "statefulsets",
                "controllerrevisions",
                "pods",
            )
        ),
    }
