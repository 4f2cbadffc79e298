"""Starts vllm-router in the router's image, with what its command line leaves out.

With ``VALIDATE_AT`` each caller's key is shown to the engines, and every address of the router asks
for one. Its own command line cannot say that, and would let everybody through.

``ready PORT`` ends with 0 if the router knows a group: it answers also when it may not list pods,
and then has nobody to bring requests to. Its metrics at that port alone are told without a key.
``paired PORT`` ends with 0 if the router of a pair knows somebody of both halves.
"""

import http
import http.client
import importlib
import os
import sys
import urllib.request

_CLASS = "_Router"
_WORKERS = b"vllm_router_active_workers "


def main() -> None:
    """Start the router with the arguments of the command line; it returns when the router ends."""
    if asked := {"ready": has_workers, "paired": has_both}.get("".join(sys.argv[1:2])):
        sys.exit(0 if asked(int(sys.argv[2])) else 1)
    urls = [url for url in os.environ.get("VALIDATE_AT", "").split(",") if url]
    router = importlib.import_module("vllm_router.router")
    launch = importlib.import_module("vllm_router.launch_router")
    made = getattr(router, _CLASS)
    setattr(router, _CLASS, lambda **options: made(**options, api_key_validation_urls=urls))
    launch.launch_router(launch.parse_router_args(sys.argv[1:]))


def has_workers(port: int) -> bool:
    """Return whether the router that tells its metrics at a port knows somebody who serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as told:
            said = [line for line in told if line.startswith(_WORKERS)]
    except OSError:
        return False
    return any(float(line.split()[1]) > 0 for line in said)


def has_both(port: int) -> bool:
    """Return whether the router of a pair at a port has somebody to compute and to answer."""
    key = os.environ.get("OPENAI_API_KEY", "")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readiness", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
