"""The operator's first step: access to the cluster, and the settings."""

import logging
import sys
from typing import Final

from shardwright.cluster.access import open_access
from shardwright.cluster.connection import AccessError
from shardwright.controller.operator import Operator
from shardwright.controller.operator_options import Options
from shardwright.controller.process_settings import keep_answering
from shardwright.errors import InputError

log = logging.getLogger(__name__)

DEEPEST_OBJECT: Final = 10_000
"""Levels that the API server takes of an object, in managed fields from anybody who may write it.
Source: Go, encoding/json.
"""

NO_ACCESS_EXIT_CODE = 3
BAD_SETTINGS_EXIT_CODE = 2


async def serve(options: Options) -> int:
    """Run the operator until it ends, and return its exit code."""
    # At Python's own of 1,000 one such resource would end kopf's watch for good.
    sys.setrecursionlimit(2 * DEEPEST_OBJECT)
    # Before the first thread starts, so that each of them finds these settings.
    keep_answering()
    try:
        access = open_access(options.kubeconfig, options.context, options.credentials_dir)
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
