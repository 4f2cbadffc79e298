"""How a follower finds its leader: the program of the rendezvous, as it is mounted into the pod."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardwright.rendering.scripts import ScriptSettings
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for
from tests.support.rendered import program_of

HERE = "127.0.0.1"


@pytest.fixture
def rendezvous() -> ModuleType:
    return program_of("rendezvous.py", ScriptSettings(ranks=3))


@pytest.fixture
def meeting(rendezvous: ModuleType) -> Any:
    """A leader's view of three ranks."""
    return rendezvous.Meeting("g1", 3)


@pytest.fixture
def port(rendezvous: ModuleType, meeting: Any) -> Iterator[int]:
    """Where the leader answers."""
    with rendezvous.Server(free_port(), meeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_follower_that_the_leader_has_heard_of_is_heard_of_again_however_slow_names_are(
    rendezvous: ModuleType, meeting: Any, port: int, tmp_path: Path
) -> None:
    resolved: list[str] = []
    heard: set[float] = set()

    def resolve(name: str) -> str:
        resolved.append(name)
        return HERE

    def heard_of_often() -> bool:
        heard.add(meeting.present["1"][1])
        return len(heard) > 3

    vars(rendezvous)["resolve"] = resolve
    with ThreadPoolExecutor() as pods:
        joined = pods.submit(
            rendezvous.join, port, "join g1 1 token 10.0.0.1", "leader", rendezvous.News(str(tmp_path / "waits")), 0.01
        )
        wait_for(heard_of_often, 30, "the follower to ask again and again", 0.005)
        meeting.join("g1", "2", "another", "10.0.0.2")

        assert joined.result(30) == (HERE, meeting.start_id)
    assert resolved == ["leader"]


def test_a_follower_whose_leader_does_not_answer_asks_for_its_address_anew(
    rendezvous: ModuleType, meeting: Any, port: int, tmp_path: Path
) -> None:
    addresses = chain(["", "192.0.2.1"], repeat(HERE))  # none yet, that of a pod that is gone, that of its successor
    vars(rendezvous)["resolve"] = lambda _: next(addresses)
    meeting.join("g1", "2", "another", "10.0.0.2")

    found = rendezvous.join(port, "join g1 1 token 10.0.0.1", "leader", rendezvous.News(str(tmp_path / "waits")), 0.01)
    assert found == (HERE, meeting.start_id)
