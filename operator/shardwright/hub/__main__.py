"""Reads the small files of a checkpoint in a pod that has the token, and leaves them to the
kubelet: as termination message.

    python -m shardwright.hub MODEL [REVISION]     reads, leaves as much as one container may, and keeps the rest in FOLDER
    python -m shardwright.hub --rest               leaves the rest, in the container after it

The pod has no rights in the cluster, and needs none: the operator reads its status.
``SHARDWRIGHT_MESSAGE_FILE`` and ``SHARDWRIGHT_FOLDER`` are the places to write to; the variables of
Hugging Face's own client name the hub and the token.
"""  # noqa: E501 - a command line and its meaning

import os
import sys
from pathlib import Path
from typing import Final

from shardwright.errors import InputError
from shardwright.hub.checkpoint import fetch
from shardwright.hub.places import hub_of
from shardwright.hub.transfer import HubUnavailableError
from shardwright.modelspec.checkpoint_files import (
    MESSAGE_BYTES,
    CheckpointFiles,
    handed_over,
    problem_handed_over,
)

REST: Final = "--rest"


def main(words: list[str]) -> int:
    """Leave a message in the file for it; return 1 if there is no checkpoint, else 0."""
    message = Path(os.environ.get("SHARDWRIGHT_MESSAGE_FILE", "/dev/termination-log"))
    rest = Path(os.environ.get("SHARDWRIGHT_FOLDER", "/tmp")) / "rest"  # noqa: S108 - a folder of the pod's own
    if words == [REST]:
        message.write_text(rest.read_text())
        return 0
    text, status = _read(words[0], words[1] if words[1:] else None)
    message.write_text(text[:MESSAGE_BYTES])
    rest.write_text(text[MESSAGE_BYTES:])
    return status


def _read(model: str, revision: str | None) -> tuple[str, int]:
    try:
        found = fetch(hub_of(os.environ), model, revision)
        return handed_over(
            CheckpointFiles(files=found.files, commit=found.commit, tensor_bytes=found.tensor_bytes)
        ), 0
    except InputError as error:
        problem = error.problems[0]
    except HubUnavailableError as error:
        problem = error.problem
    sys.stderr.write(f"shardwright: {problem.sentence()}\n")
    return problem_handed_over(problem), 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
