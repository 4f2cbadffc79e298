"""How a follower finds its leader: the program of the rendezvous."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path

import pytest

from shardwright.rendering.programs import rendezvous
from shardwright.rendering.programs.rendezvous import Meeting, News, Server
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for

HERE = "127.0.0.1"


@pytest.fixture
def meeting() -> Meeting:
    """A leader's view of three ranks."""
    return Meeting("g1", 3)


@pytest.fixture
def port(meeting: Meeting) -> Iterator[int]:
    """Where the leader answers."""
    with Server(free_port(), meeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_follower_that_the_leader_has_heard_of_is_heard_of_again_however_slow_names_are(
    meeting: Meeting, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str] = []
    heard: set[float] = set()

    def resolve(name: str) -> str:
        resolved.append(name)
        return HERE

    def heard_of_often() -> bool:
        heard.add(meeting.present["1"][1])
        return len(heard) > 3

    monkeypatch.setattr(rendezvous, "resolve", resolve)
    with ThreadPoolExecutor() as pods:
        joined = pods.submit(rendezvous.join, port, "join g1 1 token 10.0.0.1", "leader", News(str(tmp_path / "waits")), 0.01)
        wait_for(heard_of_often, 30, "the follower to ask again and again", 0.005)
        meeting.join("g1", "2", "another", "10.0.0.2")

        assert joined.result(30) == (HERE, meeting.start_id)
    assert resolved == ["leader"]


def test_a_follower_whose_leader_does_not_answer_asks_for_its_address_anew(
    meeting: Meeting, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = chain(["", "192.0.2.1"], repeat(HERE))  # none yet, that of a pod that is gone, that of its successor
    monkeypatch.setattr(rendezvous, "resolve", lambda _: next(addresses))
    meeting.join("g1", "2", "another", "10.0.0.2")

    found = rendezvous.join(port, "join g1 1 token 10.0.0.1", "leader", News(str(tmp_path / "waits")), 0.01)
    assert found == (HERE, meeting.start_id)
