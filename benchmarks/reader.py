"""Measure what reading a large cluster costs: CPU of the LISTs, of each event, and bytes of what is
kept.

    python -m benchmarks.reader [--nodes 5000] [--pods 20000] [--events 20000]

A second process plays the API server on loopback (HTTP without TLS, as fast as it is read), so that
only our own CPU is counted. Nodes are the dump of an 8-GPU server with what a kubelet reports (50
images, conditions) and managed fields, 19 KB; pods hold 8 GPUs each and have 7.6 KB. What the event
loop does with the changes is counted too.
"""

import argparse
import asyncio
import gc
import json
import multiprocessing
import resource
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml
from kubernetes.client import Configuration

from shardwright.cluster.access import Access
from shardwright.cluster.client import Client
from shardwright.cluster.handover import Handover
from shardwright.cluster.ledger import Ledger
from shardwright.cluster.reader import Reader, Source
from shardwright.cluster.sources import POD_SOURCE, node_source, project_node, project_pod
from shardwright.cluster.store import Store
from shardwright.controller.queue import Priority, Queue, Requeue
from shardwright.hardware.gpus import NONE
from tests.harness.waiting import wait_for

DUMP: Final = (
    Path(__file__).resolve().parents[1] / "tests" / "data" / "nodes" / "SYNTH-h100-8x-eks-p5.yaml"
)
PAGE: Final = 500
LIMIT_SECONDS: Final = 120.0
"""Seconds until the benchmark gives up, assumed: the slowest step took 3."""
AT: Final = "2026-01-02T12:00:00Z"


def managed(manager: str, parts: int) -> dict[str, Any]:
    entries = {
        f'k:{{"name":"{entry}"}}': {".": {}, "f:name": {}, "f:value": {}} for entry in range(4)
    }
    fields = {f"f:{part}": {f"f:{other}": entries for other in range(5)} for part in range(parts)}
    stamp = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": AT}
    return {**stamp, "fieldsType": "FieldsV1", "fieldsV1": fields}


def a_node(dump: dict[str, Any], number: int, version: int) -> dict[str, Any]:
    """A node; ``version`` is that of its heartbeat, too."""
    metadata, name = (
        dump["metadata"],
        f"ip-10-0-{number // 256}-{number % 256}.us-west-2.compute.internal",
    )
    names = [f"registry.example.com/image-{{}}{tag}" for tag in ("@sha256:" + "a" * 64, ":v1")]
    images = [
        {"names": [text.format(image) for text in names], "sizeBytes": 1} for image in range(50)
    ]
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    times = {"lastHeartbeatTime": f"2026-01-02T12:00:{version % 60:02}Z", "lastTransitionTime": AT}
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "message": "kubelet is fine " * 3, **times}
        for kind in kinds
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"{number:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(version),
            "labels": {**metadata["labels"], "kubernetes.io/hostname": name},
            "managedFields": [
                managed("kubelet", 3),
                managed("kube-controller-manager", 2),
                managed("nfd-master", 2),
            ],
        },
        "spec": dump.get("spec", {}),
        "status": {**dump["status"], "conditions": conditions, "images": images},
    }


def a_pod(number: int, version: int) -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": "registry.example.com/team/training:v1.2.3",
        "env": [{"name": f"VARIABLE_{index}", "value": f"value of {index}"} for index in range(15)],
        "resources": {
            part: {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
            for part in ("limits", "requests")
        },
        "volumeMounts": [
            {"name": f"volume-{index}", "mountPath": f"/mnt/{index}"} for index in range(5)
        ],
    }
    running = {
        "name": "worker",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": AT}},
    }
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"training-{number}",
        "uid": f"{number:08x}",
        "controller": True,
    }
    node = number % 5000
    return {
        "metadata": {
            "name": f"training-{number}-worker",
            "namespace": f"team-{number % 40}",
            "uid": f"{number:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(version),
            "labels": {"app": "training", "job-name": f"training-{number}"},
            "annotations": {"example.com/note": "x" * 200, "example.com/version": str(version)},
            "ownerReferences": [owner],
            "managedFields": [managed("kube-controller-manager", 2), managed("kubelet", 2)],
        },
        "spec": {
            "volumes": [
                {"name": f"volume-{index}", "configMap": {"name": f"map-{index}"}}
                for index in range(5)
            ],
            "containers": [container],
            "nodeName": f"ip-10-0-{node // 256}-{node % 256}.us-west-2.compute.internal",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": AT} for kind in kinds
            ],
            "containerStatuses": [
                {**running, "imageID": "registry.example.com/team/training@sha256:" + "0" * 64}
            ],
        },
    }


def dumped(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def serve(pipe: Connection, nodes: int, pods: int, events: int) -> None:
    """Play the API server: LISTs in pages, then ``events`` that change nothing that matters, evenly
    over all objects.
    """
    dump = yaml.safe_load(DUMP.read_text())
    made: dict[str, tuple[int, Callable[[int, int], dict[str, Any]]]] = {
        "nodes": (nodes, lambda number, version: a_node(dump, number, version)),
        "pods": (pods, a_pod),
    }
    first = 1_000_000

    def page(plural: str, start: int) -> bytes:
        total, make = made[plural]
        end = min(start + PAGE, total)
        metadata = {
            "resourceVersion": str(first),
            **({"continue": str(end)} if end < total else {}),
        }
        return dumped(
            {
                "metadata": metadata,
                "items": [make(number, number + 1) for number in range(start, end)],
            }
        )

    def lines(plural: str) -> Iterator[bytes]:
        total, make = made[plural]
        for number in range(events):
            version = first + number + 1
            yield (dumped({"type": "MODIFIED", "object": make(number % total, version)}) + b"\n")

    pages = {
        (plural, start): page(plural, start)
        for plural in made
        for start in range(0, made[plural][0], PAGE)
    }
    streams = {plural: list(lines(plural)) for plural in made}
    go = {plural: threading.Event() for plural in made}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query, plural = dict(parse_qsl(asked.query)), asked.path.rpartition("/")[2]
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if "watch" in query:
                go[plural].wait()
                for text in streams[plural]:
                    self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
                threading.Event().wait()
            text = pages[plural, int(query.get("continue", 0))]
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send((server.server_address[1], *(len(streams[plural][0]) for plural in made)))
    while (plural := pipe.recv()) is not None:
        go[plural].set()


async def read(
    client: Client, pipe: Connection, source: Source[Any], store: Store, events: int
) -> None:
    """Read one kind: first its LIST, then its events; print the CPU of each, of all threads of this
    process.
    """
    plural = source.resource.plural
    take = store.take_nodes if plural == "nodes" else store.take_pods
    listed = asyncio.Event()

    def take_over(changes: Any, complete: bool) -> None:  # noqa: FBT001
        take(changes)
        if complete:
            listed.set()

    handover: Handover[Any] = Handover(asyncio.get_running_loop(), take_over)
    reader = Reader(client, source, handover.put)
    wall, cpu = time.perf_counter(), time.process_time()
    reader.start()
    await listed.wait()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    kept = reader.counts.changes
    print(f"{plural}: LIST {kept} kept, {cpu:.2f} s of CPU, {wall:.2f} s")
    await asyncio.to_thread(
        wait_for, lambda: reader.counts.watches > 0, LIMIT_SECONDS, f"the watch of {plural}"
    )
    cpu = time.process_time()
    pipe.send(plural)
    await asyncio.to_thread(
        wait_for, lambda: reader.counts.events >= events, LIMIT_SECONDS, f"all events of {plural}"
    )
    cpu = time.process_time() - cpu
    changed = reader.counts.changes - kept
    reader.stop()
    print(
        f"{plural}: {cpu / events * 1e3:.3f} ms of CPU an event that changes nothing ({events} "
        f"events, {changed} changes)"
    )


def resident_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def kept_bytes(name: str, count: int, make: Callable[[int], Any]) -> None:
    """Print how many bytes one projection takes, with its key, in the reader and in the store."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    reader: dict[tuple[str, str], Any] = {}
    store: dict[tuple[str, str], Any] = {}
    for number in range(count):
        key, value = make(number)
        reader[key] = store[key] = value
    gc.collect()
    print(f"{name}: {(tracemalloc.get_traced_memory()[0] - before) / count:.0f} bytes kept of each")
    tracemalloc.stop()


def projected_node(dump: dict[str, Any], number: int) -> tuple[tuple[str, str], Any]:
    content = json.loads(dumped(a_node(dump, number, 1)))
    return ("", content["metadata"]["name"]), project_node(content)


def projected_pod(number: int) -> tuple[tuple[str, str], Any]:
    content = json.loads(dumped(a_pod(number, 1)))
    value = project_pod(content)
    return (content["metadata"]["namespace"], content["metadata"]["name"]), value


def queue_microseconds(keys: int = 1000, rounds: int = 50) -> float:
    """Return what it costs to add a key, take it, make an appointment for it and give it back."""
    queue = Queue(16)
    cpu = time.process_time()
    for _ in range(rounds):
        for number in range(keys):
            queue.add((f"namespace-{number % 50}", str(number)), Priority.NEW)
        while turn := queue.take():
            queue.add_after(turn.key, Requeue(seconds=300))
            queue.done(turn.key)
    return (time.process_time() - cpu) / (keys * rounds) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, count in (("nodes", 5000), ("pods", 20_000), ("events", 20_000)):
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    server = context.Process(
        target=serve, args=(theirs, options.nodes, options.pods, options.events), daemon=True
    )
    server.start()
    port, node_bytes, pod_bytes = ours.recv()
    print(f"an event of a node has {node_bytes} bytes, one of a pod {pod_bytes}")
    configuration = Configuration()
    configuration.host, configuration.retries = f"http://127.0.0.1:{port}", False
    client, store = Client(Access(configuration=configuration)), Store(Ledger())

    async def everything() -> None:
        for source in (node_source(NONE), POD_SOURCE):
            await read(client, ours, source, store, options.events)

    before = resident_mib()
    asyncio.run(everything())
    print(f"peak of resident memory: {before} MiB before, {resident_mib()} after")
    server.terminate()
    dump = yaml.safe_load(DUMP.read_text())
    kept_bytes("node", 1000, lambda number: projected_node(dump, number))
    kept_bytes("pod", 5000, projected_pod)
    print(
        f"queue: {queue_microseconds():.1f} µs for one key to be added, taken, given an "
        "appointment and given back"
    )


if __name__ == "__main__":
    main()
