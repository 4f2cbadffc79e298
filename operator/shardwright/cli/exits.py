"""How does a command end? The exit codes for scripts, and faults that are not the user's input."""

from enum import IntEnum
from typing import Final

from shardwright.errors import Problem

INTERRUPTED: Final = 130  #: a shell's status after Ctrl-C: 128 + SIGINT
BROKEN_PIPE: Final = 141  #: a shell's status for a writer whose reader went away: 128 + SIGPIPE
TERMINATED: Final = 143  #: a shell's status for a process that was asked to end: 128 + SIGTERM


class Exit(IntEnum):
    """The exit codes of all commands."""

    PLAN = 0
    NOTHING_FITS = 1
    SOMETHING_WRONG = 1  #: of ``doctor``
    BAD_INPUT = 2
    FAULT = 3


FORBIDDEN: Final = "NotAllowedInCluster"  #: the code for what the cluster does not let us do


class UnreachableError(Exception):
    """The cluster or hub cannot be reached, or the cluster does not let us read; the message says
    why.

    ``problems`` also has those of what was asked at the same time.
    """

    def __init__(self, problem: Problem, *others: Problem) -> None:
        self.problem = problem
        self.problems = (problem, *others)
        super().__init__(problem.sentence())

    @property
    def code(self) -> str:
        """Return the code under which docs/reasons.md explains it."""
        return self.problem.code

    @property
    def forbidden(self) -> bool:
        """Return whether the cluster knows us but denies this one request."""
        return self.code == FORBIDDEN
