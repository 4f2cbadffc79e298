"""A node of the stand-in for Ray: a head listens, every node counts with its GPUs for as long as it
lives.

STUB_STATE is a folder: head-<pid>.json or, for another node, started-<pid>.json is written. The
cluster is a folder beside STUB_HOSTS.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def start() -> None:
    """Join the cluster and stay."""
    cluster = Path(os.environ["STUB_HOSTS"]).parent / "cluster"
    options = dict(word.split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
    head = "--head" in sys.argv
    if head:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(options["--port"])))
        listener.listen()
    cluster.mkdir(exist_ok=True)
    node = cluster / f"node-{os.getpid()}"
    node.with_name(f"partial-{os.getpid()}").write_text(options["--num-gpus"] + "\n")
    node.with_name(f"partial-{os.getpid()}").rename(node)
    state = Path(os.environ["STUB_STATE"])
    partial = state / f"partial-{os.getpid()}"
    partial.write_text(
        json.dumps({"argv": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()})
    )
    partial.rename(state / f"{'head' if head else 'started'}-{os.getpid()}.json")
    signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    start()
