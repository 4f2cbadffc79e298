"""The test run's end of the supervisor: start, stop and watch named processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.harness.errors import HarnessError

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SHUTDOWN_SECONDS = 15
_LOG_TAIL = 20


class Processes:
    """Named processes that end with this process, in whatever way it ends; see supervisor.py for
    how.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._lock = threading.Lock()
        # A session of its own: Ctrl-C in the terminal reaches the test run, which ends the
        # supervisor in order.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", str(_SUPERVISOR), str(folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, name: str, argv: list[str]) -> int:
        pid = self._ask(do="start", name=name, argv=argv, log=str(self._log_file(name)))["pid"]
        return int(pid)

    def stop(self, name: str, grace: float = 0.0) -> None:
        self._ask(do="stop", name=name, grace=grace)

    def running(self) -> dict[str, int]:
        """Process ids by name."""
        running: dict[str, int] = self._ask(do="status")["running"]
        return running

    def check(self) -> None:
        """Raise where a process has ended that nobody stopped, with the end of its log."""
        exited: dict[str, int] = self._ask(do="status")["exited"]
        for name, code in exited.items():
            tail = "\n".join(self.log(name).splitlines()[-_LOG_TAIL:])
            raise HarnessError(
                f"{name} ended by itself with exit code {code}; the end of its log:\n{tail}"
            )

    def log(self, name: str) -> str:
        """Everything that the process has written so far, over all its starts."""
        file = self._log_file(name)
        return file.read_text(errors="replace") if file.exists() else ""

    def shutdown(self) -> None:
        """Kill everything and remove the folder; afterwards nothing is left. May be called
        again.
        """
        with self._lock:
            if self._supervisor.stdin and not self._supervisor.stdin.closed:
                try:
                    self._supervisor.stdin.write(b'{"do": "shutdown"}\n')
                    self._supervisor.stdin.close()
                except BrokenPipeError:
                    pass  # it ended before: its folder and processes are gone already
            try:
                self._supervisor.wait(_SHUTDOWN_SECONDS)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            if self._supervisor.stdout:
                self._supervisor.stdout.close()

    def _log_file(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _ask(self, **command: Any) -> dict[str, Any]:
        with self._lock:
            if (
                not self._supervisor.stdin
                or not self._supervisor.stdout
                or self._supervisor.stdin.closed
            ):
                raise HarnessError("the control plane is stopped")
            try:
                self._supervisor.stdin.write(json.dumps(command).encode() + b"\n")
                self._supervisor.stdin.flush()
                line = self._supervisor.stdout.readline()
            except BrokenPipeError:
                line = b""
        if not line:
            raise HarnessError(
                "the control plane's supervisor is gone (killed from outside?), and everything "
                "with it"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HarnessError(answer["error"])
        return answer


class Companion(ABC):
    """Programs beside a control plane, which end with the `with`; what they have installed stays."""

    def __init__(self, name: str) -> None:
        self._processes = Processes(Path(tempfile.mkdtemp(prefix=f"{name}-")))

    @abstractmethod
    def _begin(self) -> None:
        """Start them, and return when they work."""

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._processes.shutdown()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.shutdown()
