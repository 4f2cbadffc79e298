"""The process that owns the control plane's processes and its folder. Run as a script, on the
standard library only.

A test run may end in any way, also by SIGKILL, where no `finally` runs. So the processes are not
children of the test run but of this one, which reads commands from a pipe to it: when the pipe
closes, for whatever reason, it kills every process, removes the folder and ends. Each process in
turn dies with this one (PR_SET_PDEATHSIG), should this one be killed.

Commands and answers are one JSON object a line:
    {"do": "start", "name": ..., "argv": [...], "log": ...}  ->  {"pid": ...}
    {"do": "stop", "name": ..., "grace": seconds}            ->  {"code": ...}
    {"do": "status"}                                         ->  {"running": {name: pid}, "exited": {name: code}}
    {"do": "shutdown"}                                       ->  ends, with everything gone
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_ORPHAN_CHECK_SECONDS = 1.0


def _die_with_parent() -> None:
    """Runs in the child between fork and exec; this process has a single thread, so that is
    safe.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Supervisor:
    """Starts and stops named processes, each in a process group of its own."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: list[str], log: str) -> dict[str, Any]:
        with Path(log).open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(log).parent,
                process_group=0,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        self._processes[name] = process
        return {"pid": process.pid}

    def stop(self, name: str, grace: float) -> dict[str, Any]:
        process = self._processes.pop(name)
        if grace > 0:
            process.terminate()
            try:
                return {"code": process.wait(grace)}
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        return {"code": process.wait()}

    def status(self) -> dict[str, Any]:
        codes = {name: process.poll() for name, process in self._processes.items()}
        return {
            "running": {
                name: self._processes[name].pid for name, code in codes.items() if code is None
            },
            "exited": {name: code for name, code in codes.items() if code is not None},
        }

    def stop_all(self) -> None:
        """Kill at once: the data is thrown away, and an API server takes many seconds over
        SIGTERM.
        """
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        action = command.pop("do")
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self.start,
            "stop": self.stop,
            "status": self.status,
        }
        try:
            return handlers[action](**command)
        except (OSError, KeyError) as error:
            return {"error": f"{action} {command.get('name', '')}: {type(error).__name__}: {error}"}


def _commands(parent: int) -> Iterator[dict[str, Any]]:
    """Lines from the pipe until it closes, or until the parent is gone while a fork of it still
    holds the pipe.
    """
    pending = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], _ORPHAN_CHECK_SECONDS)
        if not readable:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from (json.loads(line) for line in lines)


def main(folder: str, parent: int) -> None:
    supervisor = Supervisor()

    def end(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for command in _commands(parent):
            if command["do"] == "shutdown":
                return
            sys.stdout.write(json.dumps(supervisor.answer(command)) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.stop_all()
        for _ in range(20):
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
