"""The entry point of the operator: ``shardwright-operator``.

The running parts are in ``operator``; here are only those that must be there before it.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Final

from shardwright.cluster.access import open_access
from shardwright.cluster.connection import AccessError
from shardwright.controller.interpreter import keep_answering
from shardwright.controller.logs import configure
from shardwright.controller.operator import Operator
from shardwright.controller.options import Options, parse_options
from shardwright.errors import InputError

log = logging.getLogger(__name__)

DEEPEST_OBJECT: Final = 10_000
"""Levels that the API server takes of an object, in managed fields from anybody who may write it.
Source: Go, encoding/json.
"""

NO_ACCESS_EXIT_CODE = 3
BAD_SETTINGS_EXIT_CODE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator and return its exit code."""
    # Twice: before the options are known, so that their complaint is a line of JSON, too.
    configure("INFO")
    options = parse_options(arguments)
    configure(options.log_level)
    # At Python's own of 1,000 one such resource would end kopf's watch for good.
    sys.setrecursionlimit(2 * DEEPEST_OBJECT)
    # Before the first thread starts, so that each of them finds these settings.
    keep_answering()
    return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    try:
        access = open_access(
            options.kubeconfig, options.context, options.credentials_dir
        )
    except AccessError as error:
        log.critical("%s", error)
        return NO_ACCESS_EXIT_CODE
    try:
        operator = Operator(options, access)
    except InputError as error:
        for problem in error.problems:
            log.critical("the settings cannot be used: %s", problem.sentence())
        return BAD_SETTINGS_EXIT_CODE
    return await operator.run()


if __name__ == "__main__":
    sys.exit(main())
