"""How a follower finds its leader and nobody else does: the program of the rendezvous."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path

import pytest

from shardwright.rendering.programs import rendezvous
from shardwright.rendering.programs.rendezvous import (
    FOLLOWER,
    LEADER,
    MOST_CONNECTIONS,
    STRANGER,
    Meeting,
    News,
    Peer,
    Seal,
    Server,
    address_of,
)
from tests.harness.controlplane import free_port
from tests.harness.waiting import wait_for

HERE = "127.0.0.1"
GROUP = "llama-0-0.llama-0-peers.models.svc.cluster.local"


@pytest.fixture
def meeting() -> Meeting:
    """A leader's view of three ranks."""
    return Meeting("g1", 3)


@pytest.fixture
def sealed(tmp_path: Path) -> Callable[..., Seal]:
    """Return a function that makes the seal of a pod, by the token that it has and the group that
    it is in.
    """

    def seal(token: str = "7" * 64, group: str = GROUP) -> Seal:
        file = tmp_path / "token"
        file.write_text(token)
        return Seal(str(file), group)

    return seal


@pytest.fixture
def port(meeting: Meeting, sealed: Callable[..., Seal]) -> Iterator[int]:
    """Where the leader answers."""
    with Server(free_port(), meeting, sealed()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def peer(port: int, sealed: Callable[..., Seal]) -> Peer:
    """A follower of the leader's group."""
    return Peer(port, sealed())


def sent(port: int, *lines: str) -> tuple[str, str]:
    """Return the challenge of who listens, and all that it says to these lines until it hangs
    up.
    """
    with (
        socket.create_connection((HERE, port), timeout=30) as connection,
        connection.makefile() as answers,
    ):
        challenge = answers.readline().strip()
        connection.sendall("".join(f"{line}\n" for line in lines).encode())
        return challenge, answers.read()


@pytest.mark.parametrize(
    "line",
    [
        "join g1 1 t 10.0.0.1",
        "id",
        "join",
        "",
        "x" * 600,
        "a b c",
        "\udce4".encode("utf-8", "replace").decode(),
    ],
)
def test_a_stranger_hears_a_random_number_and_nothing_else(
    port: int, meeting: Meeting, line: str
) -> None:
    first, second = sent(port, line), sent(port, line)
    assert (len(first[0]), first[1], second[1]) == (32, "", "")
    assert first[0] != second[0]
    assert (meeting.present, meeting.addresses) == ({}, {})


@pytest.mark.parametrize(
    "others", [{"token": "8" * 64}, {"group": GROUP.replace("llama-0-", "llama-1-")}]
)
def test_a_pod_of_another_model_or_group_is_a_stranger_however_it_asks(
    port: int, meeting: Meeting, sealed: Callable[..., Seal], others: dict[str, str]
) -> None:
    assert Peer(port, sealed(**others)).ask(HERE, "join g1 1 t 10.0.0.1") == STRANGER
    assert Peer(port, sealed(**others)).ask(HERE, "id") == STRANGER
    assert meeting.present == {}


def test_what_a_follower_has_said_is_not_believed_a_second_time(
    port: int, meeting: Meeting, peer: Peer
) -> None:
    heard: list[str] = []
    with socket.create_server((HERE, 0)) as between:  # hands everything on, and keeps it

        def listen() -> None:
            connection, _ = between.accept()
            with (
                connection,
                socket.create_connection((HERE, port)) as leader,
                leader.makefile() as said,
            ):
                connection.sendall(said.readline().encode())
                heard.append(connection.makefile().readline())
                leader.sendall(heard[0].encode())
                heard.append(said.readline())
                connection.sendall(heard[1].encode())

        listener = threading.Thread(target=listen)
        listener.start()
        there = Peer(between.getsockname()[1], peer.seal)
        assert there.ask(HERE, "join g1 1 t 10.0.0.1") == "wait"
        listener.join(30)
    meeting.present.clear()
    assert sent(port, heard[0].strip())[1] == ""
    assert sent(port, heard[1].strip())[1] == ""
    assert meeting.present == {}


def test_a_follower_believes_no_leader_that_says_again_what_it_heard_of_the_true_one(
    peer: Peer,
) -> None:
    with socket.create_server((HERE, 0)) as false:
        challenges = "0" * 32, "1" * 32
        old = f"{peer.seal.proof(LEADER, challenges, 'met 1234')} met 1234"

        def answer() -> None:
            for reflects in (False, True):
                connection, _ = false.accept()
                with connection, connection.makefile() as asked:
                    connection.sendall(f"{challenges[0]}\n".encode())
                    own = asked.readline().strip().split(" ", 1)[1]
                    connection.sendall(f"{own if reflects else old}\n".encode())

        threading.Thread(target=answer, daemon=True).start()
        there = Peer(false.getsockname()[1], peer.seal)
        assert [there.ask(HERE, "id"), there.ask(HERE, "id")] == [
            STRANGER,
            STRANGER,
        ]  # an old answer; the question's own proof


def test_a_proof_is_of_who_speaks_and_of_every_word(sealed: Callable[..., Seal]) -> None:
    seal, challenges = sealed(), ("a", "b")
    proofs = {
        seal.proof(speaker, given, said)
        for speaker in (LEADER, FOLLOWER)
        for given in (challenges, ("b", "a"))
        for said in ("wait", "met 1")
    }
    assert len(proofs) == 8
    assert seal.proves(seal.proof(LEADER, challenges, "wait"), LEADER, challenges, "wait")


def test_a_follower_that_is_in_the_group_learns_what_a_stranger_may_not(
    meeting: Meeting, peer: Peer
) -> None:
    assert peer.ask(HERE, "join g1 1 t 10.0.0.1") == "wait"
    assert peer.ask(HERE, "join g1 2 u FD00::0:2") == f"met {meeting.start_id}"
    assert peer.ask(HERE, "id") == meeting.start_id
    assert meeting.addresses == {"1": "10.0.0.1", "2": "fd00::2"}
    assert peer.ask(HERE, "join g2 1 t 10.0.0.1") == "other"


@pytest.mark.parametrize(
    "address",
    [
        "-oProxyCommand=touch${IFS}/tmp/pwned",
        "10.0.0.1;id",
        "leader",
        "10.0.0.1/24",
        "fe80::1%-oX",
        "[::1]",
        "",
    ],
)
def test_what_is_no_address_never_gets_into_a_list_of_hosts(
    meeting: Meeting, peer: Peer, address: str
) -> None:
    assert peer.ask(HERE, f"join g1 1 t {address}") == "unknown"
    assert address_of(address) == ""
    assert meeting.addresses == {}


@pytest.mark.parametrize("rank", ["0", "3", "-1", "01", "one"])
def test_a_rank_that_the_group_does_not_have_cannot_join(
    meeting: Meeting, peer: Peer, rank: str
) -> None:
    assert peer.ask(HERE, f"join g1 {rank} t 10.0.0.1") == "unknown"
    assert meeting.present == {}


def test_who_sends_a_byte_now_and_then_is_hung_up_on_all_the_same(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "ANSWER_SECONDS", 0.5)
    with socket.create_connection((HERE, port), timeout=0.05) as connection:

        def hung_up() -> bool:
            try:
                connection.sendall(b"x")
                return not connection.recv(100)
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_for(hung_up, 30, "the end of the connection", 0.01)


def test_a_follower_that_the_leader_has_heard_of_is_heard_of_again_however_slow_names_are(
    meeting: Meeting, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        joined = pods.submit(
            rendezvous.join,
            peer,
            "join g1 1 token 10.0.0.1",
            "leader",
            News(str(tmp_path / "waits")),
            0.01,
        )
        wait_for(heard_of_often, 30, "the follower to ask again and again", 0.005)
        meeting.join("g1", "2", "another", "10.0.0.2")

        assert joined.result(30) == (HERE, meeting.start_id)
    assert resolved == ["leader"]


def test_a_follower_whose_leader_does_not_answer_asks_for_its_address_anew(
    meeting: Meeting, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = chain(
        ["", "192.0.2.1"], repeat(HERE)
    )  # none yet, that of a pod that is gone, that of its successor
    monkeypatch.setattr(rendezvous, "resolve", lambda _: next(addresses))
    meeting.join("g1", "2", "another", "10.0.0.2")

    found = rendezvous.join(
        peer, "join g1 1 token 10.0.0.1", "leader", News(str(tmp_path / "waits")), 0.01
    )
    assert found == (HERE, meeting.start_id)


def test_whoever_connects_and_says_nothing_takes_neither_threads_nor_turns(
    port: int, peer: Peer
) -> None:
    before, silent = threading.active_count(), []
    for number in range(4 * MOST_CONNECTIONS):
        silent.append(socket.create_connection((HERE, port), 5, ("127.0.0.2", 0)))
        if number % MOST_CONNECTIONS == 0:
            assert peer.ask(HERE, "id")

    wait_for(lambda: threading.active_count() <= before + MOST_CONNECTIONS, 10, "threads to end")
    for one in silent:
        one.close()
