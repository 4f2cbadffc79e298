"""Lets the ranks of a group meet before the engine starts, and tells followers when their leader is
another one.

Runs inside the engine's container with nothing but Python's standard library.

    rendezvous.py lead   PORT TOKEN_FILE LEADER GENERATION NEWS RANKS
    rendezvous.py follow PORT TOKEN_FILE LEADER GENERATION NEWS RANK GONE_SECONDS POLL_SECONDS
    OWN_ADDRESS

Both wait without limit, and say what for on stderr and in the file NEWS: a peer that pulls its
image, or downloads, has not failed. Both print one line when all ranks have met, and then stay: the
leader, to answer, ``met`` and the addresses of its followers in the order of their ranks; a
follower, to watch, the leader's address as it knows it. A process that ends has seen the group end;
it says why on stderr.

One question and one answer per connection, each a line, after a challenge of the leader:

    leader    <challenge>
    follower  <challenge of its own> <proof> <question>
    leader    <proof> <answer>

    join <generation> <rank> <token of the start> <address>   ->  wait | met <start id> | running | other
    id                                                        ->  <start id>

A proof is an HMAC-SHA256 over who speaks, both challenges and what is said, by a key that only pods
with the token of the model can derive for the group whose leader has this name. So each side knows
that the other is of the group, and what was heard once is of no use again. Who cannot prove it gets
no answer, and has heard nothing but a random number.

The start id is drawn anew by every start of the leader, the token of the start by every start of a
follower. A follower that comes after the others have met is told ``running``: the engine takes
nobody in, so it waits for the next start of the leader.
"""  # noqa: E501

import hmac
import secrets
import socket
import socketserver
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 2.0
"""How long one connection may take, whatever comes over it."""

MOST_CONNECTIONS = 64
"""How many may be open at once: whoever fills them from one address is hung up on first."""

LINE_BYTES = 512
CHALLENGE_BYTES = 16
TOKEN_CHARACTERS = 32
"""Least length of a token: what is shorter was not made by the operator."""

LEADER, FOLLOWER = "leader", "follower"
STRANGER = "stranger"
"""What a follower makes of who answers without being able to prove that it is of the group."""


class Seal:
    """The key of a group: proves who says what, over one connection only."""

    def __init__(self, token_file: str, group: str) -> None:
        token = Path(token_file).read_bytes().strip()
        if len(token) < TOKEN_CHARACTERS:
            sys.exit(
                f"{token_file} holds no token: delete its Secret, and the operator makes another "
                "one when the group starts again"
            )
        self.key = hmac.digest(token, group.encode(), "sha256")

    def proof(self, speaker: str, challenges: tuple[str, str], said: str) -> str:
        """Return the proof of what is said: ``challenges`` are the leader's and the follower's."""
        return hmac.digest(
            self.key, "\n".join((speaker, *challenges, said)).encode(), "sha256"
        ).hex()

    def proves(self, proof: str, speaker: str, challenges: tuple[str, str], said: str) -> bool:
        """Return whether a proof is that of what was said."""
        return hmac.compare_digest(proof.encode(), self.proof(speaker, challenges, said).encode())


def address_of(text: str) -> str:
    """Return an IP address as it is usually written, an empty string for anything else: it reaches
    ssh and a shell.

    >>> (
    ...     address_of("10.0.0.1"),
    ...     address_of("FD00::0:1"),
    ...     address_of("-oProxyCommand=id"),
    ...     address_of("fe80::1%-o"),
    ... )
    ('10.0.0.1', 'fd00::1', '', '')
    """
    try:
        return "" if "%" in text else str(ip_address(text))
    except ValueError:
        return ""


def read_line(connection: socket.socket, deadline: float) -> str:
    """Return the line that comes, an empty string where it is too long or cut off.

    Raises:
        OSError: It did not come in time.
    """
    line = b""
    while not line.endswith(b"\n"):
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(LINE_BYTES - len(line))
        if not part:
            return ""
        line += part
    return line.decode("ascii", "replace")[:-1]


class Meeting:
    """Who has come, and whether that is everybody."""

    def __init__(
        self, generation: str, ranks: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.generation, self.clock = generation, clock
        self.followers = [str(rank) for rank in range(1, ranks)]
        self.start_id = uuid.uuid4().hex
        self.present: dict[str, tuple[str, float]] = {}  # rank -> token, when last heard of
        self.addresses: dict[str, str] = {}  # rank -> where its pod is reached
        self.met = threading.Event()
        self.lock = threading.Lock()

    def answer(self, line: str) -> str:
        """Return the answer to one question of a peer."""
        question = line.split()
        if question == ["id"]:
            return self.start_id
        match question:
            case ["join", generation, rank, token, address] if rank in self.followers and (
                known := address_of(address)
            ):
                return self.join(generation, rank, token, known)
        return "unknown"

    def join(self, generation: str, rank: str, token: str, address: str) -> str:
        """Take a follower in, unless it is of another generation or too late."""
        if generation != self.generation:
            return "other"
        with self.lock:
            if self.met.is_set():
                known = self.present.get(rank, ("", 0.0))[0] == token
                return f"met {self.start_id}" if known else "running"
            self.present[rank], self.addresses[rank] = (token, self.clock()), address
            if not self.missing():
                self.met.set()
                return f"met {self.start_id}"
        return "wait"

    def missing(self) -> list[str]:
        """Return the ranks that have not come, or have not been heard of for a while."""
        fresh = self.clock() - 5 * ANSWER_SECONDS
        return [rank for rank in self.followers if self.present.get(rank, ("", fresh))[1] <= fresh]


class Server(socketserver.ThreadingTCPServer):
    """Answers who is of the group on every address of the pod, IPv4 and IPv6 where the kernel has
    it.
    """

    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, meeting: Meeting, seal: Seal) -> None:
        class Handler(socketserver.BaseRequestHandler):
            """One question, one answer."""

            def handle(self) -> None:
                answer_one(self.request, meeting, seal)

        self.open: dict[socket.socket, str] = {}  # to the address it comes from, the oldest first
        self.lock = threading.Lock()
        super().__init__(("", port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; before there are too many, hang up on the oldest of the
        address with most.
        """
        with self.lock:
            if len(self.open) >= MOST_CONNECTIONS:
                busiest, _ = Counter(self.open.values()).most_common(1)[0]
                oldest = next(one for one, address in self.open.items() if address == busiest)
                del self.open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread ends by that
            self.open[request] = client_address[0]
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Hang up, and forget the connection."""
        with self.lock:
            self.open.pop(request, None)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        """Take IPv4 connections on the IPv6 socket as well."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a peer that hangs up early is no news."""


def answer_one(connection: socket.socket, meeting: Meeting, seal: Seal) -> None:
    """Answer the question of a connection; hang up on who does not prove to be of the group."""
    deadline = time.monotonic() + ANSWER_SECONDS
    own = secrets.token_hex(CHALLENGE_BYTES)
    connection.sendall(f"{own}\n".encode())
    words = read_line(connection, deadline).split(" ", 2)
    if len(words) == len(("challenge", "proof", "question")):
        challenges, question = (own, words[0]), words[2]
        if seal.proves(words[1], FOLLOWER, challenges, question):
            answer = meeting.answer(question)
            connection.sendall(f"{seal.proof(LEADER, challenges, answer)} {answer}\n".encode())


class News:
    """What this rank waits for: in the log, and in a file for the probe; each once."""

    def __init__(self, file: str) -> None:
        self.file, self.told = Path(file), ""

    def tell(self, text: str) -> None:
        """Say what this rank waits for, where that is news."""
        if text != self.told:
            print(f"waiting: {text}", file=sys.stderr, flush=True)
            self.file.write_text(f"waiting: {text}\n")
        self.told = text


def lead(
    port: str, token_file: str, leader: str, generation: str, news_file: str, ranks: str
) -> None:
    """Answer for ever; say so when all ranks have come, and until then which have not."""
    news = News(news_file)
    meeting = Meeting(generation, int(ranks))
    server = Server(int(port), meeting, Seal(token_file, leader))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not meeting.met.wait(ANSWER_SECONDS):
        if missing := meeting.missing():
            news.tell(f"these ranks have not come: {', '.join(missing)}")
    print("met", *(meeting.addresses[rank] for rank in meeting.followers), flush=True)
    threading.Event().wait()


class Peer:
    """How a follower asks: of whoever is at an address, and believing only who is of the group."""

    def __init__(self, port: int, seal: Seal) -> None:
        self.port, self.seal = port, seal

    def ask(self, address: str, question: str) -> str:
        """Return the answer to one question: an empty string without any, ``STRANGER`` from who is
        not of the group.
        """
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            with socket.create_connection(
                (address, self.port), timeout=ANSWER_SECONDS
            ) as connection:
                theirs = read_line(connection, deadline)
                if not theirs:
                    return ""
                challenges = theirs, secrets.token_hex(CHALLENGE_BYTES)
                proof = self.seal.proof(FOLLOWER, challenges, question)
                connection.sendall(f"{challenges[1]} {proof} {question}\n".encode())
                shown, _, answer = read_line(connection, deadline).partition(" ")
        except OSError:
            return ""
        return answer if self.seal.proves(shown, LEADER, challenges, answer) else STRANGER


def resolve(name: str) -> str:
    """Return the address that a name has now, or an empty string."""
    try:
        return address_of(str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]))
    except OSError:
        return ""


def join(peer: Peer, question: str, leader: str, news: News, poll: float) -> tuple[str, str]:
    """Ask the leader until everybody has come; return its address and start id."""
    address = ""
    while True:
        address = address or resolve(leader)
        reply = peer.ask(address, question) if address else ""
        word, _, rest = reply.partition(" ")
        if word == "met":
            return address, rest
        news.tell(describe(f"the leader {leader}", address, word))
        address = (
            address if word == "wait" else ""
        )  # a slow resolver must not keep who has been found from being heard of
        time.sleep(poll)


def describe(leader: str, address: str, word: str) -> str:
    """Return why there is nothing to join yet."""
    silent = f"{leader} ({address}) does not answer" if address else f"{leader} does not resolve"
    return {
        "wait": "not all ranks have come",
        "running": "the group runs without this rank and has not started anew",
        "other": f"{leader} is of another generation than this pod",
        STRANGER: f"who answers at {address} for {leader} does not have the token of this group",
        "": silent,
    }.get(word, f"{leader} answers {word!r}")


def follow(
    port: str, token_file: str, leader: str, generation: str, news_file: str, *own: str
) -> None:
    """Join, then watch that the leader stays the one that was joined."""
    rank, gone, poll, own_address = own[0], float(own[1]), float(own[2]), own[3]
    peer = Peer(int(port), Seal(token_file, leader))
    question = f"join {generation} {rank} {uuid.uuid4().hex} {own_address}"
    address, start_id = join(peer, question, leader, News(news_file), poll)
    print(address, flush=True)
    watch(peer, address, start_id, gone, poll)


def watch(peer: Peer, address: str, start_id: str, gone: float, poll: float) -> None:
    """Return never: end when the leader is another one, or has not answered for ``gone``
    seconds.
    """
    heard = time.monotonic()
    while time.monotonic() - heard < gone:
        found = peer.ask(address, "id")
        if found not in {"", STRANGER, start_id}:
            sys.exit("the leader has started anew")
        if found == start_id:
            heard = time.monotonic()
        time.sleep(poll)
    sys.exit(f"the leader has been gone for {gone:g} s")


if __name__ == "__main__":
    if sys.argv[1] == "lead":
        lead(*sys.argv[2:])
    else:
        follow(*sys.argv[2:])
