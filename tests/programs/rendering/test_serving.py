"""Ready means that tokens come out: the rules, and the rendered scripts in a real shell with a stub
engine.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from shardwright.engines.registry import VLLM
from shardwright.rendering.programs.serving import Watch
from shardwright.rendering.scripts import ScriptSettings, scripts
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_deployment, a_small_plan
from tests.support.ranks import Rank, ranks_of

SILENCE, IDLE = 60, 30


@pytest.fixture
def watch() -> Watch:
    """A watch of an engine that has brought ten tokens and has nothing to do."""
    watch = Watch(SILENCE, IDLE)
    watch.look(10, 0, 0)
    return watch


def test_before_the_first_token_an_engine_does_not_serve_is_asked_and_never_given_up() -> None:
    watch = Watch(SILENCE, IDLE)
    watch.look(0, 0, 0)
    assert (watch.verdict(0), watch.ask_now(0)) == ("", True)

    watch.asked_in_vain(0)
    watch.look(0, 0, 1000)
    assert (watch.verdict(1000), watch.ask_now(1000), watch.over(1000)) == ("", True, False)

    watch.look(1, 0, 1001)
    assert watch.verdict(1001) == "serving"


def test_an_engine_that_nobody_asks_is_asked_when_it_has_been_idle_for_long_enough(
    watch: Watch,
) -> None:
    watch.look(10, 0, 29)
    assert not watch.ask_now(29)
    assert watch.ask_now(30)
    assert watch.verdict(30) == "serving"


def test_a_token_that_was_asked_for_in_vain_is_due_since_then(watch: Watch) -> None:
    watch.asked_in_vain(30)
    watch.look(10, 0, 90)
    assert (watch.verdict(89), watch.verdict(90)) == ("serving", "no token for 60 s")
    assert (watch.over(149), watch.over(150), watch.ask_now(90)) == (False, True, True)


def test_a_token_that_comes_late_makes_everything_well(watch: Watch) -> None:
    watch.asked_in_vain(30)
    watch.look(11, 0, 100)
    assert (watch.verdict(100), watch.ask_now(100), watch.over(1000)) == ("serving", False, False)


def test_requests_that_wait_make_a_token_due_from_the_moment_they_came(watch: Watch) -> None:
    watch.look(10, 3, 1000)
    assert watch.verdict(1059) == "serving"
    watch.look(10, 3, 1060)
    assert watch.verdict(1060) == "no token for 60 s"
    assert not watch.ask_now(1060)


def test_a_saturated_engine_is_never_silent(watch: Watch) -> None:
    for second in range(1, 900, 50):
        watch.look(10 + second, 500, second)
        assert watch.verdict(second + 49) == "serving"


def test_an_engine_that_does_not_answer_owes_a_token(watch: Watch) -> None:
    watch.look(None, 0, 5)
    assert watch.verdict(65) == "no token for 60 s"
    assert watch.over(125)


def serves(tmp_path: Path, **settings: Any) -> Any:
    quick = {"silence_seconds": 1, "idle_seconds": 0.2}
    return ranks_of(
        a_small_plan(),
        a_deployment(silence_seconds=1, idle_seconds=1),
        tmp_path,
        **{**quick, **settings},
    )


def readiness(rank: Rank) -> tuple[int, str]:
    found = rank.run("probe.sh", "readiness")
    assert found.stderr == ""
    return found.returncode, found.stdout


def test_a_pod_is_ready_when_its_first_token_has_come(tmp_path: Path) -> None:
    with serves(tmp_path, silence_seconds=30) as (rank,):
        rank.tell("completion", "hang")
        rank.start()
        wait_for(lambda: readiness(rank) == (1, "rank 0: readiness: no token has come yet\n"))

        rank.tell("completion", "200")
        wait_for(lambda: readiness(rank) == (0, ""))


def test_an_engine_that_never_brings_a_token_has_not_started_within_its_budget(
    tmp_path: Path,
) -> None:
    with serves(tmp_path, silence_seconds=30, start_seconds=2) as (rank,):
        rank.tell("completion", "hang")
        rank.start()
        wait_for(
            lambda: (
                rank.run("probe.sh", "startup").stdout == "rank 0: startup: no token has come yet\n"
            )
        )
        assert rank.wait() == 79


def test_a_healthy_engine_that_brings_no_tokens_any_more_is_not_ready_and_then_ends(
    tmp_path: Path,
) -> None:
    with serves(tmp_path) as (rank,):
        rank.start()
        wait_for(lambda: readiness(rank) == (0, ""))

        rank.tell("completion", "hang")
        wait_for(lambda: readiness(rank) == (1, "rank 0: readiness: no token for 1 s\n"))
        assert rank.wait() == 78
        assert rank.last_words.endswith("shardwright: rank 0: the engine brings no tokens\n")


@pytest.mark.parametrize("status", ["404", "501"])
def test_an_engine_that_takes_no_completions_is_as_well_as_its_health(
    tmp_path: Path, status: str
) -> None:
    with serves(tmp_path) as (rank,):
        rank.tell("completion", status)
        rank.start()
        wait_for(lambda: readiness(rank) == (0, ""))
        assert "takes no completions" in rank.log

        looked = wait_for(lambda: last_look(rank))
        wait_for(lambda: last_look(rank) > looked)
        assert readiness(rank) == (0, "")


def last_look(rank: Rank) -> int:
    """Return when the watcher looked last, in seconds since the start of the machine."""
    return int((rank.root / "run/tokens").read_text().split()[0])


def test_a_watcher_that_is_killed_starts_again_and_sees_what_comes(tmp_path: Path) -> None:
    with serves(tmp_path, pause_seconds=0.1) as (rank,):
        rank.start()
        wait_for(lambda: readiness(rank) == (0, ""))

        os.kill(rank.pid_of("serving.py"), signal.SIGKILL)
        wait_for(
            lambda: (
                "the watcher of the tokens ended with code 137 and starts again in 0.1 s"
                in rank.log
            )
        )
        wait_for(lambda: readiness(rank) == (0, ""))

        rank.tell("completion", "hang")
        assert rank.wait() == 78


@pytest.mark.parametrize(("program", "code"), [("raise RuntimeError('broken')\n", 1), ("", 0)])
def test_an_engine_whose_tokens_nobody_can_watch_never_counts_as_serving(
    program: str, code: int, tmp_path: Path
) -> None:
    with serves(tmp_path, pause_seconds=0.1) as (rank,):
        (rank.root / "scripts/serving.py").write_text(program)
        rank.start()
        wait_for(lambda: rank.log.count(f"the watcher of the tokens ended with code {code} ") > 1)
        wait_for(lambda: readiness(rank) == (1, "rank 0: readiness: no token has come yet\n"))


def test_a_watcher_that_hangs_is_not_believed_and_another_one_takes_over(tmp_path: Path) -> None:
    with serves(tmp_path, silence_seconds=2, look_seconds=1, pause_seconds=0.1) as (rank,):
        rank.start()
        wait_for(lambda: readiness(rank) == (0, ""))

        hung = rank.pid_of("serving.py")
        os.kill(hung, signal.SIGSTOP)
        said = wait_for(lambda: readiness(rank)[1])
        assert re.fullmatch(r"rank 0: readiness: nobody has watched the tokens for \d+ s\n", said)

        os.kill(hung, signal.SIGCONT)  # its alarm has come meanwhile
        wait_for(lambda: "the watcher of the tokens ended with code 142" in rank.log)
        wait_for(lambda: readiness(rank) == (0, ""))


def test_an_engine_that_answers_429_and_brings_no_tokens_is_ended_as_stalled(
    tmp_path: Path,
) -> None:
    with serves(tmp_path) as (rank,):
        rank.start()
        wait_for(lambda: readiness(rank) == (0, ""))

        rank.tell("completion", "429")
        assert rank.wait() == 78


def test_scripts_without_a_watch_on_serving_have_no_watcher() -> None:
    plain = scripts(ScriptSettings(engine=VLLM, ranks=1))
    assert "serving.py" not in plain
    assert not any("serving" in text or "USR2 " in text for text in plain.values())
