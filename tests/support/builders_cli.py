"""Files for the command line: manifests, nodes and pods that name what matters, and a way to run
it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DUMPS = Path(__file__).parents[1] / "data" / "nodes"


def a_manifest(
    name: str = "m", model: str = "meta-llama/Llama-3.1-8B-Instruct", **spec: Any
) -> dict[str, Any]:
    whole = {"model": {"id": model}, **spec}
    return {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": name},
        "spec": whole,
    }


def a_listed_node(name: str, dump: str = "SYNTH-h100-8x-eks-p5") -> dict[str, Any]:
    node: dict[str, Any] = yaml.safe_load((DUMPS / f"{dump}.yaml").read_text())
    node["metadata"]["name"] = name
    return node


def a_foreign_pod(node: str, gpus: int) -> dict[str, Any]:
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": resources}]}
    metadata = {"name": "other", "namespace": "research"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Running"},
    }


@dataclass(frozen=True)
class Files:
    """Writes the files of one test."""

    folder: Path

    def manifests(self, *objects: Mapping[str, Any], name: str = "model.yaml") -> str:
        return self._write(name, yaml.safe_dump_all(objects))

    def cluster(self, items: Iterable[Mapping[str, Any]], name: str = "nodes.yaml") -> str:
        return self._write(
            name, yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(items)})
        )

    def cluster_json(self, items: Iterable[Mapping[str, Any]]) -> str:
        return self._write(
            "nodes.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
        )

    def raw(self, name: str, content: bytes) -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def _write(self, name: str, text: str) -> str:
        return self.raw(name, text.encode())
