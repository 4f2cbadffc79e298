"""The planner process: answers questions one by one, each within its budget, until closed.

``python -m shardwright.controller.planner_child CPU_SECONDS MEMORY_BYTES``; questions come on
standard input, answers go to the former standard output, all other output to standard error.
"""

import faulthandler
import os
import resource
import signal
import sys
import traceback
from time import process_time
from typing import Any, Final

from shardwright.controller.budget import QuestionFault
from shardwright.controller.ipc import Reply, SharedValues, read_message, write_message
from shardwright.controller.process_settings import keep_answering
from shardwright.reconcile.planner_work import Work

ANSWER_MAX_BYTES: Final = 16 << 20
"""Longest answer. Basis: a plan of 1,000 groups has 30 KB, a model of 1,024 layers 340 KB."""

FAULT_MAX_LENGTH: Final = 4000


def main() -> None:
    """Answer until there is nobody to ask."""
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    # Copies of the pipes: standard output becomes standard error below.
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Prints of a library must not get into the answers.
    os.dup2(2, 1)
    faulthandler.enable()
    keep_answering()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the operator ends us
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Counts what is really allocated, and no mapped libraries (ADR 11).
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    shared = SharedValues(decides=False)
    write_message(target, b"")  # ready
    while (question := read_message(source)) is not None:
        # Its signal ends this process wherever it is, in a regular expression too; the kernel
        # counts no time that others had.
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        reply = _reply(shared, question)
        # Off while it waits and writes: only the question is to be measured.
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_message(target, reply)


def _reply(shared: SharedValues, question: bytes) -> bytes:
    began = process_time()
    # Within the budget: a question may be large, and unpacking it takes CPU and memory.
    work: Work[Any] = shared.loads(question)
    try:
        answer = work.answer()
    except MemoryError:
        return shared.dumps(Reply(fault=QuestionFault.MEMORY, cpu_seconds=process_time() - began))
    except RecursionError:
        return shared.dumps(Reply(fault=QuestionFault.CRASH, cpu_seconds=process_time() - began))
    except Exception as fault:  # noqa: BLE001  # a fault of ours, and no reason to end: it is said where the question came from
        error = traceback.format_exc()[-FAULT_MAX_LENGTH:]
        raised, spent = type(fault).__name__, process_time() - began
        return shared.dumps(Reply(error=error, raised=raised, cpu_seconds=spent))
    reply = shared.dumps(Reply(answer=answer, cpu_seconds=process_time() - began))
    # Ends the process on purpose: it is no answer that could be told.
    if len(reply) > ANSWER_MAX_BYTES:
        raise MemoryError
    return reply


if __name__ == "__main__":
    main()
