"""Starts vllm-router in the router's image, with what its command line leaves out.

With ``VALIDATE_AT`` each caller's key is shown to the engines, and every address of the router asks
for one. Its own command line cannot say that, and would let everybody through.
"""

import importlib
import os
import sys

_CLASS = "_Router"


def main() -> None:
    """Start the router with the arguments of the command line; it returns when the router ends."""
    urls = [url for url in os.environ.get("VALIDATE_AT", "").split(",") if url]
    router = importlib.import_module("vllm_router.router")
    launch = importlib.import_module("vllm_router.launch_router")
    made = getattr(router, _CLASS)
    setattr(router, _CLASS, lambda **options: made(**options, api_key_validation_urls=urls))
    launch.launch_router(launch.parse_router_args(sys.argv[1:]))


if __name__ == "__main__":
    main()
