"""The program of the pods by which ``doctor --network-policies`` measures: one listens, the other
calls it.

    python3 -c PROGRAM listen CLOSED OPEN
    python3 -c PROGRAM call ADDRESS CLOSED OPEN SECONDS FILE

A NetworkPolicy lets others reach the port OPEN of the pod that listens, and no other. It may take
effect a moment after the pod runs: the caller says Ignored when CLOSED was still answered after so
many SECONDS, Enforced as soon as OPEN alone was answered a few times, and Unclear when nothing was.
Standard library alone: the image is anybody's.
"""

import socket
import sys
import threading
import time
from pathlib import Path

PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 2.0
TIMES = 3
"""How often in a row the policy must have held."""


def listen(ports: list[int]) -> None:
    """Take connections on all ports for ever; the first is ready before the last one is."""
    sockets = [
        socket.create_server(
            ("", port), family=_family(), dualstack_ipv6=socket.has_dualstack_ipv6()
        )
        for port in ports
    ]
    for listening in sockets:
        threading.Thread(target=_accept, args=(listening,)).start()


def probe(address: str, closed: int, opened: int, seconds: float) -> str:
    """Probe an address and return the finding."""
    deadline, held, answered = time.monotonic() + seconds, 0, False
    while True:
        reached = _answers(address, opened)
        refused = not _answers(address, closed)
        answered = answered or reached
        held = held + 1 if reached and refused else 0
        if held >= TIMES:
            return "Enforced"
        if time.monotonic() > deadline:
            return "Ignored" if answered and not refused else "Unclear"
        time.sleep(PAUSE_SECONDS)


def _family() -> int:
    return socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET


def _accept(listening: socket.socket) -> None:
    while True:
        listening.accept()[0].close()


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def main(words: list[str]) -> None:
    """Carry out the command line."""
    if words[0] == "listen":
        listen([int(port) for port in words[1:]])
        return
    address, closed, opened, seconds, file = words[1:]
    found = probe(address, int(closed), int(opened), float(seconds))
    Path(file).write_text(found)


if __name__ == "__main__":
    main(sys.argv[1:])
