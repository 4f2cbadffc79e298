"""Lets the ranks of a group meet before the engine starts, and tells followers when their leader is another one.

Runs inside the engine's container with nothing but Python's standard library.

    rendezvous.py lead   PORT GENERATION NEWS RANKS
    rendezvous.py follow PORT GENERATION NEWS RANK GONE_SECONDS POLL_SECONDS LEADER OWN_ADDRESS

Both wait without limit, and say what for on stderr and in the file NEWS: a peer that pulls its image, or downloads, has
not failed. Both print one line when all ranks have met, and then stay: the leader, to answer, ``met`` and the addresses of its
followers in the order of their ranks; a follower, to watch, the leader's address as it knows it. A process that
ends has seen the group end; it says why on stderr.

One question and one answer per connection, each a line:

    join <generation> <rank> <token> <address>   ->  wait | met <start id> | running | other <generation>
    id                                           ->  <start id>

The start id is drawn anew by every start of the leader; the token by every start of a follower. A follower
that comes after the others have met is told ``running``: the engine takes nobody in, so it waits for the
next start of the leader.
"""

import socket
import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ANSWER_SECONDS = 2.0


class Meeting:
    """Who has come, and whether that is everybody."""

    def __init__(self, generation: str, ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation, self.ranks, self.clock = generation, ranks, clock
        self.start_id = uuid.uuid4().hex
        self.present: dict[str, tuple[str, float]] = {}  # rank -> token, when last heard of
        self.addresses: dict[str, str] = {}  # rank -> where its pod is reached
        self.met = threading.Event()
        self.lock = threading.Lock()

    def answer(self, line: str) -> str:
        """Return the answer to one line of a peer."""
        question = line.split()
        if question == ["id"]:
            return self.start_id
        match question:
            case ["join", generation, rank, token, address]:
                return self.join(generation, rank, token, address)
        return "unknown"

    def join(self, generation: str, rank: str, token: str, address: str) -> str:
        """Take a follower in, unless it is of another generation or too late."""
        if generation != self.generation:
            return f"other {self.generation}"
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
        return [r for r in map(str, range(1, self.ranks)) if self.present.get(r, ("", fresh))[1] <= fresh]


class Server(socketserver.ThreadingTCPServer):
    """Answers on every address of the pod, IPv4 and IPv6 where the kernel has it."""

    allow_reuse_address = True
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, meeting: Meeting) -> None:
        class Handler(socketserver.StreamRequestHandler):
            """One question, one answer."""

            timeout = ANSWER_SECONDS

            def handle(self) -> None:
                line = self.rfile.readline(200).decode("ascii", "replace")
                self.wfile.write(f"{meeting.answer(line)}\n".encode())

        super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        """Take IPv4 connections on the IPv6 socket as well."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a peer that hangs up early is no news."""


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


def lead(port: str, generation: str, news_file: str, ranks: str) -> None:
    """Answer for ever; say so when all ranks have come, and until then which have not."""
    news = News(news_file)
    meeting = Meeting(generation, int(ranks))
    server = Server(int(port), meeting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not meeting.met.wait(ANSWER_SECONDS):
        if missing := meeting.missing():
            news.tell(f"these ranks have not come: {', '.join(missing)}")
    print("met", *(meeting.addresses[str(rank)] for rank in range(1, meeting.ranks)), flush=True)
    threading.Event().wait()


def ask(address: str, port: int, question: str) -> str:
    """Return the answer to one question, or an empty string."""
    try:
        with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(f"{question}\n".encode())
            with connection.makefile() as answer:
                return answer.readline().strip()
    except OSError:
        return ""


def resolve(name: str) -> str:
    """Return the address that a name has now, or an empty string."""
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return ""


def join(port: int, question: str, leader: str, news: News, poll: float) -> tuple[str, str]:
    """Ask the leader until everybody has come; return its address and start id."""
    address = ""
    while True:
        address = address or resolve(leader)
        reply = ask(address, port, question) if address else ""
        word, _, rest = reply.partition(" ")
        if word == "met":
            return address, rest
        news.tell(describe(f"the leader {leader}", address, word, rest))
        address = address if word == "wait" else ""  # a slow resolver must not keep who has been found from being heard of
        time.sleep(poll)


def describe(leader: str, address: str, word: str, rest: str) -> str:
    """Return why there is nothing to join yet."""
    silent = f"{leader} ({address}) does not answer" if address else f"{leader} does not resolve"
    return {
        "wait": "not all ranks have come",
        "running": "the group runs without this rank and has not started anew",
        "other": f"{leader} is of generation {rest}, which is not this pod's",
        "": silent,
    }.get(word, f"{leader} answers {word!r}")


def follow(port: str, generation: str, news_file: str, rank: str, *others: str) -> None:
    """Join, then watch that the leader stays the one that was joined."""
    gone, poll, leader, own = float(others[0]), float(others[1]), others[2], others[3]
    question = f"join {generation} {rank} {uuid.uuid4().hex} {own}"
    address, start_id = join(int(port), question, leader, News(news_file), poll)
    print(address, flush=True)
    watch(address, int(port), start_id, gone, poll)


def watch(address: str, port: int, start_id: str, gone: float, poll: float) -> None:
    """Return never: end when the leader is another one, or has not answered for ``gone`` seconds."""
    heard = time.monotonic()
    while time.monotonic() - heard < gone:
        found = ask(address, port, "id")
        if found and found != start_id:
            sys.exit("the leader has started anew")
        if found:
            heard = time.monotonic()
        time.sleep(poll)
    sys.exit(f"the leader has been gone for {gone:g} s")


if __name__ == "__main__":
    if sys.argv[1] == "lead":
        lead(*sys.argv[2:])
    else:
        follow(*sys.argv[2:])
