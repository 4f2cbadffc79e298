"""The entry point of the operator: ``shardwright-operator``.

The running parts are in ``operator``; here is only the command line, which loads none of them: help
is instant, and a wrong option is refused before anything else.
"""

import asyncio
import sys
from collections.abc import Sequence

from shardwright.controller.logs import configure
from shardwright.controller.options import parse_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator and return its exit code."""
    # Twice: before the options are known, so that their complaint is a line of JSON, too.
    configure("INFO")
    options = parse_options(arguments)
    configure(options.log_level)
    from shardwright.controller.starting import serve  # noqa: PLC0415 - help needs none of it

    return asyncio.run(serve(options))


if __name__ == "__main__":
    sys.exit(main())
