"""Objects that mean harm, each made by a seed alone: what a tenant may send of ShardedModels, and
of objects beside them.

Some the API server refuses, some the operator; whatever it is, it is said of that object alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from shardwright.reconcile.group import RESTART, ROLLBACK_TO
from tests.harness.api import ApiError, Manifest
from tests.support.builders_resource import A_CONFIG
from tests.support.models import Models

REFUSED: Final = frozenset({400, 413, 422})
"""Codes by which the API server refuses an object for what it is."""

ODD_TEXTS: Final = (
    "\u202eevil\u2066",  # turns the direction of what follows
    "\x1b[31m\x1b]0;title\x07",  # a terminal's commands
    "\u0000\u0001\ufffe",
    "\u0301" * 500,  # marks that stand on one letter
    "\U0001f9ea\u200d" * 200,
    "\u0130\u0131\u017fK\u212a",  # change when their case does
    "\u2028\u2029\r\n",
    "$(HF_TOKEN) {{ 7*7 }} `id` %s %n",
    "../../../etc/passwd",
    "",
)
ODD_NUMBERS: Final = (
    0,
    -1,
    -0.0,
    0.1,
    1e308,
    5e-324,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    10**9,
    True,
    None,
    "8",
    [8],
)
SIZES: Final = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)
TEXTS: Final = ("model_type", "torch_dtype", "rope_scaling", "quantization_config", "architectures")


@dataclass(frozen=True)
class Hostile:
    """One attack: a ShardedModel, and what is to be there before it: ConfigMaps, and objects of
    other kinds by their kind.
    """

    model: Manifest
    config_maps: tuple[Manifest, ...] = ()
    others: tuple[tuple[str, Manifest], ...] = ()

    @property
    def name(self) -> str:
        name: str = self.model["metadata"]["name"]
        return name


def corpus(count: int, seed: int = 0) -> Iterator[Hostile]:
    """Yield so many of them, all of other names: the same for the same seed."""
    makers = list(MAKERS.items())
    for number in range(count):
        word, make = makers[number % len(makers)]
        yield make(f"{word}-{number}", random.Random(f"{seed} {number}"))  # noqa: S311 - the same object for the same seed is wanted


def send(models: Models, one: Hostile) -> str:
    """Create what is of an attack; return the model's name where the API server takes it, else
    nothing.
    """
    try:
        for kind, beside in (
            *(("ConfigMap", config_map) for config_map in one.config_maps),
            *one.others,
        ):
            models.post(kind, beside)
        models.post(
            "ShardedModel",
            {"apiVersion": "shardwright.io/v1alpha1", "kind": "ShardedModel", **one.model},
        )
    except ApiError as error:
        if error.status not in REFUSED:
            raise
        return ""
    return one.name


def unanswered(models: Models) -> list[str]:
    """Return the models of a namespace of which nothing is said yet."""
    return [item["metadata"]["name"] for item in models.all("ShardedModel") if not reason_of(item)]


def reason_of(item: Manifest) -> str:
    """Return why a model is Ready or is not; nothing where that is not said yet."""
    conditions: list[Manifest] = item.get("status", {}).get("conditions", [])
    return next(
        (condition["reason"] for condition in conditions if condition["type"] == "Ready"), ""
    )


def _of(name: str, config: Any = None, **spec: Any) -> Hostile:
    model = {"id": "evil/model", "config": config} if config is not None else {"id": "evil/model"}
    return Hostile({"metadata": {"name": name}, "spec": {"model": model, **spec}})


def _by_reference(name: str, text: str, **metadata: Any) -> Hostile:
    model = {"id": "evil/model", "configMapRef": {"name": f"{name}-config"}}
    config_map = {"metadata": {"name": f"{name}-config", **metadata}, "data": {"config.json": text}}
    return Hostile({"metadata": {"name": name}, "spec": {"model": model}}, (config_map,))


def _deep(name: str, dice: random.Random) -> Hostile:
    """Nested in mappings or lists: too deep for the operator, for Python's own reader, or for the
    API server.
    """
    levels, in_lists = dice.choice((60, 70, 300, 990, 1500, 5000)), dice.random() < 0.5
    opening, closing = ("[", "]") if in_lists else ('{"a":', "}")
    text = f"{opening * levels}1{closing * levels}"
    if levels > 300 or dice.random() < 0.5:
        return _by_reference(name, f'{{"model_type": "llama", "deep": {text}}}')
    return _of(name, {**A_CONFIG, "deep": json.loads(text)})


def _wide(name: str, dice: random.Random) -> Hostile:
    """Many short keys, or lists without end."""
    count = dice.choice((257, 4096, 20_000))
    wide: Any = (
        {f"k{number}": number for number in range(count)} if dice.random() < 0.5 else [{}] * count
    )
    return _of(name, {**A_CONFIG, dice.choice(("wide", *TEXTS)): wide})


def _huge(name: str, dice: random.Random) -> Hostile:
    """As large as the API server takes, or larger; few of them, or the store is full before the
    operator is.
    """
    size = dice.choice(
        (10_000, 260_000, 262_145, 900_000) if dice.random() < 0.25 else (10_000, 260_000)
    )
    config = {**A_CONFIG, dice.choice(("huge", *TEXTS)): "x" * size}
    return _of(name, config) if dice.random() < 0.5 else _by_reference(name, json.dumps(config))


def _cyclic(name: str, dice: random.Random) -> Hostile:
    """What leads back to itself: a config that is the plan which it makes, owners in a ring, a text
    that refers to itself.
    """
    owner = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": name,
        "uid": name,
        "controller": True,
    }
    ring = _by_reference(name, json.dumps({**A_CONFIG, "$ref": "#"}), ownerReferences=[owner])
    back = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-config", "uid": name}
    model: Manifest = {
        **ring.model,
        "metadata": {"name": name, "ownerReferences": [back, {**owner, "controller": False}]},
    }
    if dice.random() < 0.5:
        return Hostile(model, ring.config_maps)
    itself = {
        "id": "evil/model",
        "configMapRef": {"name": f"{name}-plan", "key": dice.choice(("plan.json", "signature"))},
    }
    return Hostile({"metadata": {"name": name}, "spec": {"model": itself}})


def _odd_text(name: str, dice: random.Random) -> Hostile:
    """Texts that terminals, templates and readers stumble over, as keys and as values."""
    text = dice.choice(ODD_TEXTS)
    config = {**A_CONFIG, dice.choice(TEXTS): text, text: {text: [text]}}
    more: Manifest = dice.choice(
        (
            {},
            {"engine": {"args": {"chat-template": text}}},
            {"engine": {"env": [{"name": "NCCL_DEBUG", "value": text}]}},
            {"pod": {"nodeSelector": {"a": text}}},
        )
    )
    found = _of(name, config, **more)
    found.model["metadata"]["annotations"] = {RESTART: text, ROLLBACK_TO: text}
    return found


def _odd_number(name: str, dice: random.Random) -> Hostile:
    """Numbers that no model has, in the config and beside it."""
    odd = {
        dice.choice(SIZES): dice.choice(ODD_NUMBERS),
        dice.choice(SIZES): dice.choice(ODD_NUMBERS),
    }
    config = {**A_CONFIG, **odd} if dice.random() < 0.5 else A_CONFIG
    more: Manifest = dice.choice(
        (
            {},
            {"replicas": dice.choice((1000, 2**31 - 1, -1))},
            {"budget": {"gpus": dice.choice((1, 100_000)), "fill": True}},
            {
                "workload": {
                    "inputTokens": dice.choice((1, 2**31 - 1)),
                    "outputTokens": 1,
                    "requestsPerSecond": 100_000,
                }
            },
            {"workload": {"concurrency": 65_536}, "engine": {"maxModelLen": 10**7}},
        )
    )
    return _of(name, config, **more)


def _odd_json(name: str, dice: random.Random) -> Hostile:
    """Texts that readers read differently, or not at all."""
    good = json.dumps(A_CONFIG)
    return _by_reference(
        name,
        dice.choice(
            (
                '{"hidden_size": 1, ' + good[1:],  # one key twice
                good[:-1]
                + "".join(f', "num_hidden_layers": {number}' for number in range(2000))
                + "}",
                good[:-1] + ', "hidden_size": 1e999}',
                good[:-1] + f', "hidden_size": {"9" * 5000}}}',
                good[:-1] + ', "a": NaN, "b": -Infinity}',
                "\ufeff" + good,
                good + good,
                good[:-1],
                "[" * 100_000,
                '"\\ud800"',
                "null",
                "",
            )
        ),
    )


def _dressed(name: str, dice: random.Random) -> Hostile:
    """Metadata as large and as strange as the API server takes: what the operator reads of it is
    little.
    """
    owner = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": "good",
        "uid": name,
        "controller": False,
    }
    metadata: Manifest = dice.choice(
        (
            {"annotations": {f"shardwright.io/{number}": "\u202e" * 20 for number in range(2000)}},
            {"annotations": {RESTART: "9" * 200_000}},
            {"labels": {f"l{number}.shardwright.io/model": "good" for number in range(1000)}},
            {
                "labels": {
                    "shardwright.io/model": "good",
                    "app.kubernetes.io/managed-by": "shardwright",
                }
            },
            {"ownerReferences": [{**owner, "uid": f"{name}-{number}"} for number in range(1000)]},
        )
    )
    return Hostile(
        {
            "metadata": {"name": name, **metadata},
            "spec": {"model": {"id": "evil/model", "config": A_CONFIG}},
        }
    )


def _beside(name: str, dice: random.Random) -> Hostile:
    """Objects of the names and labels that the operator would use, made before it: whose they are
    says the uid of their owner.
    """
    owner = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": name,
        "uid": name,
        "controller": True,
    }
    labels = {
        "shardwright.io/model": name,
        "shardwright.io/group": f"{name}-0",
        "app.kubernetes.io/managed-by": "shardwright",
    }
    metadata = (
        {"labels": labels, "ownerReferences": [owner]}
        if dice.random() < 0.5
        else {"labels": labels}
    )
    pod = {"containers": [{"name": "engine", "image": "evil/engine"}], "schedulerName": "nobody"}
    selector = {"matchLabels": {"evil": name}}
    template = {"metadata": {"labels": {"evil": name}}, "spec": pod}
    rank = dice.choice((0, 4095, 4096, 2**31, 3_000_000_000, 10**15))
    kind, made = dice.choice(
        (
            ("Pod", {"metadata": {"name": f"{name}-0-{rank}", **metadata}, "spec": pod}),
            ("Pod", {"metadata": {"name": f"{name}-{'9' * 20}-0", **metadata}, "spec": pod}),
            (
                "Service",
                {"metadata": {"name": name, **metadata}, "spec": {"ports": [{"port": 8000}]}},
            ),
            (
                "StatefulSet",
                {
                    "metadata": {"name": f"{name}-0", **metadata},
                    "spec": {
                        "replicas": 0,
                        "serviceName": "",
                        "selector": selector,
                        "template": template,
                    },
                },
            ),
            (
                "NetworkPolicy",
                {"metadata": {"name": f"{name}-network", **metadata}, "spec": {"podSelector": {}}},
            ),
            (
                "ConfigMap",
                {
                    "metadata": {"name": f"{name}-plan", **metadata},
                    "data": {"plan.json": "{" * 100_000},
                },
            ),
        )
    )
    plan_only = {"mode": dice.choice(("PlanOnly", "Deploy"))}
    return Hostile(_of(name, A_CONFIG, **plan_only).model, others=((kind, made),))


MAKERS: Final[dict[str, Callable[[str, random.Random], Hostile]]] = {
    "deep": _deep,
    "wide": _wide,
    "huge": _huge,
    "cyclic": _cyclic,
    "text": _odd_text,
    "number": _odd_number,
    "json": _odd_json,
    "dressed": _dressed,
    "beside": _beside,
}
"""By what is odd about them."""
