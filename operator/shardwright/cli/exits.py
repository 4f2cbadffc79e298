"""How a command ends: the codes that scripts may rely on, and faults beside the user's input."""

from enum import IntEnum
from typing import Final

from shardwright.errors import Problem

INTERRUPTED: Final = 130  #: what a shell reports after Ctrl-C: 128 + SIGINT
BROKEN_PIPE: Final = 141  #: what a shell reports of a writer whose reader went away: 128 + SIGPIPE
TERMINATED: Final = 143  #: what a shell reports of a process that was asked to end: 128 + SIGTERM


class Exit(IntEnum):
    """The exit codes of all commands."""

    PLAN = 0
    NOTHING_FITS = 1
    SOMETHING_WRONG = 1  #: of ``doctor``
    BAD_INPUT = 2
    FAULT = 3


FORBIDDEN: Final = "NotAllowedInCluster"  #: the code of what the cluster does not let us do


class UnreachableError(Exception):
    """The cluster or the hub cannot be reached, or the cluster does not let us read it; the message
    says why. ``problems`` has also those of what was asked beside it.
    """

    def __init__(self, problem: Problem, *others: Problem) -> None:
        self.problem = problem
        self.problems = (problem, *others)
        super().__init__(problem.sentence())

    @property
    def code(self) -> str:
        """Return the word under which docs/reasons.md explains it."""
        return self.problem.code

    @property
    def forbidden(self) -> bool:
        """Return whether the cluster knows us, and does not let us do this one thing."""
        return self.code == FORBIDDEN
