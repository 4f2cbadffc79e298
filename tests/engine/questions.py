"""Asks the checker in the engine's environment; one process per version, questions answered in the
order in which they come.
"""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.engine.checker import PREFIX
from tests.engine.environment import Environment
from tests.harness.errors import HarnessError

Answer = dict[str, Any]

_CHECKER = Path(__file__).parent / "checker.py"
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_LOG_TAIL = 2000


class Engine:
    """One version of an engine that answers questions in the background; the same question is asked
    once.
    """

    def __init__(
        self, environment: Environment, version: str, log: Path, program: tuple[str, ...] = ()
    ) -> None:
        """Start vLLM's ``version``, or another ``program`` beside the checker."""
        self._log = log
        self._line = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"engine-{version}")
        self._asked: dict[str, Future[Answer]] = {}
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(environment.python), *(program or (str(_CHECKER),))],
                env={**os.environ, **QUIET, **({} if program else environment.variables(version))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, job: dict[str, Any]) -> Future[Answer]:
        """Return the answer to come."""
        question = json.dumps(job, sort_keys=True)
        if question not in self._asked:
            self._asked[question] = self._line.submit(self._answer, question)
        return self._asked[question]

    def _answer(self, question: str) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            text = line.removeprefix(PREFIX)
            if text != line and text.strip() != "ready":
                answer: Answer = json.loads(text)
                return answer
        raise HarnessError(f"the checker ended: {self._log.read_text()[-_LOG_TAIL:]}")

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._line.shutdown(wait=False, cancel_futures=True)
        self._process.kill()
        self._line.shutdown(wait=True)
        with self._process:
            pass  # reads nothing more: closes the pipes and waits
