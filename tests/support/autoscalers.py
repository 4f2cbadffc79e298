"""The objects of docs/howto/autoscaling.md, and the queue of an engine by which they scale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from tests.harness.api import Manifest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "autoscaling.md"
ON_THE_PAGE = "llama-70b"


def shown(kind: str, name: str = "llama") -> Manifest:
    """Return an object as the page shows it, to be applied to a model of this name."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    texts = [block.partition("```")[0].replace(ON_THE_PAGE, name) for block in blocks]
    (found,) = (item for item in map(yaml.safe_load, texts) if item and item["kind"] == kind)
    return dict(found)


class Queue:
    """The requests of an engine that does not run: how many are at work, and how many wait; and of
    its router, if it has one: how many groups it knows, and how often it had nobody to ask.
    """

    running = 0
    waiting = 0
    known: int | None = None
    holding = 0
    _met = 0
    port = 0

    def text(self) -> str:
        """Return the metrics as vLLM and its router expose them."""
        self._met += self.holding
        return "".join((*self._of_engine(), *self._of_router()))

    def _of_engine(self) -> Iterator[str]:
        if self.known == 0:
            return
        for what, many in (("running", self.running), ("waiting", self.waiting)):
            name = f"vllm:num_requests_{what}"
            yield f'# TYPE {name} gauge\n{name}{{engine="0"}} {many}\n'

    def _of_router(self) -> Iterator[str]:
        if self.known is not None:
            yield f"vllm_router_active_workers {self.known}\n"
        if self._met:
            asked = 'route="/v1/completions",error_type="no_available_workers"'
            yield f"vllm_router_request_errors_total{{{asked}}} {self._met}\n"

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        """Return how Prometheus scrapes it: with the labels that the chart's PodMonitor gives."""
        labels = {"namespace": namespace, "name": name, "group": f"{name}-0"}
        targets = [{"targets": [f"127.0.0.1:{self.port}"], "labels": labels}]
        return {"job_name": "vllm", "static_configs": targets}


@contextmanager
def served_queue() -> Iterator[Queue]:
    """Serve a queue on loopback."""
    queue = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = queue.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        queue.port = server.server_address[1]
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield queue
        server.shutdown()
