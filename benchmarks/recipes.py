"""Turns every recipe of a folder into ShardedModels, plans them on the hardware it names, and
prints what came of it.

    python -m benchmarks.recipes ../shared/recipes            plans and arguments, or the reason
    python -m benchmarks.recipes ../shared/recipes --engine   each argument list before vLLM 0.33's own parser, too

The folder has ``recipes.jsonl`` (arguments and environment by feature, variants by precision, the
hardware) and ``configs``, one folder with a ``config.json`` for each model that is not built in. A
recipe is tried as it is, with each of its optional features, variants and kinds of hardware. The
administrator is one who admits what can be admitted; what had to be is printed.
"""  # noqa: E501

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.recipe_arguments import Reading, read_arguments
from shardwright.api.resource import parse_manifest
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.named_gpus import nodes_of, read_named_gpus
from shardwright.engines import policy
from shardwright.engines.options import argument_list, check_arguments
from shardwright.engines.vllm.arguments import family_arguments
from shardwright.engines.vllm.environment import VARIABLES
from shardwright.engines.vllm.policy import POLICY, RULES
from shardwright.errors import InputError, Problem
from shardwright.hardware.nodes import read_node
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.config_json import folder_text
from shardwright.pipeline.assembly import plan_serving
from shardwright.planning.phrases import copies
from shardwright.planning.report import Plan
from shardwright.rendering.place import pod_template
from shardwright.resolving.model import Question
from shardwright.resolving.stock import take_stock
from shardwright.resolving.subject import Subject, resolve
from shardwright.units import GIB
from tests.engine import environment
from tests.engine.launches import Launch
from tests.engine.questions import Engine

VERSION: Final = "0.33.0"

GPUS: Final = {
    "b200": "B200",
    "b300": "B300",
    "dgx_spark_gb10": "GB10-128GB",
    "dgx_station_gb300": "GB300",
    "gb200": "GB200",
    "gb300": "GB300",
    "h100": "H100-SXM-80GB",
    "h20": "H20-96GB",
    "h200": "H200-SXM-141GB",
    "mi300x": "MI300X",
    "mi325x": "MI325X",
    "mi350x": "MI350X",
    "mi355x": "MI355X",
    "rtx_5090": "RTX-5090-32GB",
    "rtx_pro_6000": "RTX-PRO-6000-BSE-96GB",
}
"""What recipes call GPUs, by the names of the catalogue."""

ALONE: Final = frozenset({"dgx_spark_gb10", "dgx_station_gb300"})
"""Machines with one GPU."""

HARDWARE_IF_NONE: Final = "h100"
NODES_TRIED: Final = (1, 2, 4, 8)
GROUPS: Final = {
    "mi": "amd",
    "h": "hopper",
    "b": "blackwell",
    "gb": "blackwell",
    "dgx": "blackwell",
    "rtx": "blackwell",
}
"""What the names of hardware begin with, and what recipes call such hardware where they say
something else for it.
"""

AMD_IMAGE: Final = "registry.example/vllm-openai-rocm:v0.33.0"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way to run a recipe: a variant on hardware, with the features that are asked for."""

    recipe: Mapping[str, Any]
    variant: str
    hardware: str
    features: tuple[str, ...]

    @property
    def model(self) -> str:
        """Return the id of the model."""
        own: str = self.recipe["variants"][self.variant].get("model_id", self.recipe["model"])
        return own

    @property
    def name(self) -> str:
        """Return the attempt in words."""
        asked = "".join(f" with {name}" for name in self.features if name in self.recipe["optIn"])
        return f"{self.model} on {self.hardware}{asked}"

    @property
    def override(self) -> Mapping[str, Any]:
        """Return what the recipe says otherwise for this hardware."""
        group = next(
            (name for begin, name in GROUPS.items() if re.match(rf"{begin}[0-9_]", self.hardware)),
            "",
        )
        own: Mapping[str, Any] = self.recipe["hardwareOverrides"].get(group, {})
        return own

    def said(self, features: Collection[str]) -> "Beside":
        """Return what the recipe wants to be told beside a plan, with some of its features; one is
        its hardware.
        """
        parts = [
            self.recipe,
            *(self.recipe["features"][name] for name in features if name != self.hardware),
        ]
        if self.hardware in features:
            parts.append(
                {
                    "args": self.override.get("extra_args", []),
                    "env": self.override.get("extra_env", {}),
                }
            )
        words = [word for part in parts for word in part["args"]]
        own = {name: value for part in parts for name, value in part["env"].items()}
        return Beside(reading=read_arguments(words, VERSION), environment=own)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a recipe says beside a plan, and what of it an administrator must admit."""

    reading: Reading
    environment: Mapping[str, str]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return what nobody may say."""
        return (
            *self.reading.problems,
            *check_arguments(self.reading.arguments, VERSION, POLICY.admissible, rules=RULES),
        )

    @property
    def admitted(self) -> tuple[str, ...]:
        """Return the options and variables that somebody must admit."""
        refused = {
            problem.path
            for problem in check_arguments(self.reading.arguments, VERSION, rules=RULES)
        }
        return tuple(
            sorted(refused) + sorted(name for name in self.environment if name not in VARIABLES)
        )

    def told(self, model: str) -> dict[str, Any]:
        """Return the arguments with those of the model's family."""
        own = dict(self.reading.arguments)
        return own | dict(family_arguments(model, VERSION, own))

    def settings(self) -> Settings:
        """Return those of an administrator who admits them."""
        options = [name for name in self.admitted if name in POLICY.admissible]
        own = [name for name in self.admitted if name not in POLICY.admissible]
        return read_settings(
            json.dumps({"policy": {"admittedArguments": options, "admittedEnvironment": own}})
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of an attempt: ``kind`` is planned, no room, no config, other hardware or refused;
    ``reasons`` say why not.

    ``unstated`` says that something is refused for which nobody has given a reason.
    """

    attempt: Attempt
    kind: str
    text: str
    reasons: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    admitted: tuple[str, ...] = ()
    unstated: bool = False
    launch: Launch | None = None
    words: tuple[str, ...] = ()


def attempts(recipe: Mapping[str, Any]) -> Iterator[Attempt]:
    """Yield a recipe as it is on all its hardware, then each variant and each optional feature on
    the first.
    """
    hardware = tuple(recipe["hardware"]) or (HARDWARE_IF_NONE,)
    plain = tuple(name for name in recipe["features"] if name not in recipe["optIn"])
    for each in hardware:
        yield Attempt(recipe=recipe, variant="default", hardware=each, features=plain)
    first = next((each for each in hardware if each in GPUS), hardware[0])
    for variant in recipe["variants"]:
        if variant != "default":
            yield Attempt(recipe=recipe, variant=variant, hardware=first, features=plain)
    for name in recipe["optIn"]:
        if name in recipe["features"]:
            yield Attempt(recipe=recipe, variant="default", hardware=first, features=(*plain, name))


def outcome(attempt: Attempt, folder: Path) -> Outcome:
    """Return what comes of an attempt."""
    if attempt.hardware not in GPUS:
        return Outcome(
            attempt=attempt,
            kind="other hardware",
            text=f"{attempt.hardware} has no GPUs that are planned",
        )
    bare = attempt.said(())
    if bare.problems:
        return _refused(attempt, bare, bare.problems)
    wanted = (*attempt.features, attempt.hardware)
    lost = {
        name: sentences(problems) for name in wanted if (problems := attempt.said([name]).problems)
    }
    beside = attempt.said([name for name in wanted if name not in lost])
    own = tuple(f"for {name}: {text}" for name, text in lost.items())
    config = _config_text(attempt.model, folder)
    if config is None:
        text = "its arguments are taken; its config.json is neither built in nor in the folder"
        found = Outcome(
            attempt=attempt,
            kind="no config",
            text=text,
            left_out=beside.reading.left_out,
            admitted=beside.admitted,
            words=(attempt.model, *argument_list(beside.told(attempt.model), VERSION, RULES)),
        )
    else:
        found = _tried(attempt, beside, config)
        if "speculation" in beside.reading.engine and found.kind != "planned":
            reading = beside.reading.without_drafts(found.text)
            found = _tried(attempt, replace(beside, reading=reading), config)
    return replace(found, left_out=(*found.left_out, *own))


def _tried(attempt: Attempt, beside: Beside, config: str) -> Outcome:
    try:
        return _planned(attempt, beside, config)
    except InputError as error:
        return _refused(attempt, beside, error.problems)


def _planned(attempt: Attempt, beside: Beside, config: str) -> Outcome:
    reading = beside.reading
    parallel = _parallelism(attempt, reading)
    engine: dict[str, Any] = {"args": dict(reading.arguments), **reading.engine}
    if beside.environment:
        engine["env"] = [
            {"name": name, "value": value} for name, value in sorted(beside.environment.items())
        ]
    if attempt.hardware.startswith("mi"):
        engine |= {"image": AMD_IMAGE, "version": VERSION}
    model = {"id": attempt.model, "configMapRef": {"name": "config"}, **reading.model}
    spec = {"model": model, "engine": engine, "parallelism": parallel}
    manifest = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "m"},
    }
    resource = parse_manifest(
        manifest | {"spec": {name: value for name, value in spec.items() if value}}
    )
    subject = resolve(Question(resource=resource, config_text=config, settings=beside.settings()))
    problem = None
    for nodes in NODES_TRIED:
        found = plan_serving(
            subject, take_stock(subject, _nodes(attempt.hardware, nodes), ())
        ).outcome
        if isinstance(found, Plan):
            return _served(attempt, beside, subject, found, config)
        problem = found.problem
    return Outcome(
        attempt=attempt,
        kind="no room",
        text=f"on up to {NODES_TRIED[-1]} nodes: {problem.sentence()}" if problem else "",
        reasons=(problem.code,) if problem else (),
        left_out=reading.left_out,
        unstated=problem is None,
    )


def _served(attempt: Attempt, beside: Beside, subject: Subject, plan: Plan, config: str) -> Outcome:
    launch = Launch(
        id=attempt.name.replace(" ", "_"),
        plan=plan,
        deployment=subject.deployment,
        config=json.loads(config),
    )
    words = pod_template(plan, subject.deployment, 0)["spec"]["containers"][0]["args"]
    where = f"{copies(plan.layout)} on {plan.layout.gpus} GPUs of {plan.nodes_per_replica} nodes"
    return Outcome(
        attempt=attempt,
        kind="planned",
        text=f"{where}: {' '.join(words)}",
        left_out=beside.reading.left_out,
        admitted=beside.admitted,
        launch=launch,
    )


def _refused(attempt: Attempt, beside: Beside, problems: tuple[Problem, ...]) -> Outcome:
    unstated = not problems or any(
        not (problem.limit or problem.gap) or policy.UNLISTED in problem.gap for problem in problems
    )
    reasons = tuple(sorted({f"{problem.code} {problem.path}" for problem in problems}))
    left_out = beside.reading.left_out
    text = sentences(problems)
    return Outcome(
        attempt=attempt,
        kind="refused",
        text=text,
        reasons=reasons,
        left_out=left_out,
        unstated=unstated,
    )


def sentences(problems: Sequence[Problem]) -> str:
    """Return problems in words."""
    return "; ".join(problem.sentence() for problem in problems)


def _parallelism(attempt: Attempt, reading: Reading) -> dict[str, Any]:
    """Return the degrees that a recipe names: in its arguments, or for one node as its strategy."""
    named = attempt.recipe["strategyOverrides"].get("single_node_tp", {}).get("tp")
    tensor = reading.tensor or (named.get(attempt.hardware) if isinstance(named, dict) else named)
    return {"tensor": tensor} if tensor and attempt.variant == "default" else {}


def _nodes(hardware: str, count: int) -> list[Any]:
    each = 1 if hardware in ALONE else None
    gpus = read_named_gpus(
        [f"1x{GPUS[hardware]}"],
        gpus_per_node=each or (8 if hardware.startswith(("rtx", "h20")) else None),
    )
    per_node = gpus[0].gpus_per_node
    named = read_named_gpus(
        [f"{count * per_node}x{GPUS[hardware]}"], gpus_per_node=per_node, network_gbps_per_gpu=400
    )
    return [fact for node in nodes_of(named) if (fact := read_node(node)) is not None]


def _config_text(model: str, folder: Path) -> str | None:
    if (entry := find_model(model)) is not None:
        return json.dumps(dict(entry.config))
    files = {
        file.name: file.read_text(encoding="utf-8")
        for file in (folder / "configs" / model.replace("/", "--")).glob("*.json")
    }
    return folder_text(files) if files else None


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What vLLM itself says of argument lists: how many it takes, and why it refuses others, by
    attempt.

    ``unseen`` are those whose arguments its parser takes and whose configuration the check cannot
    make: without a GPU, a tokenizer, or the libraries for images.
    """

    taken: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)


def asked(outcomes: list[Outcome]) -> Answers:
    """Return what vLLM says of every argument list; without a config what its parser says.

    Templates of the image stand in as files with nothing in them.
    """
    installed = environment.installed()
    if installed is None:
        sys.exit("the engine is not installed: run `make test-engine`")
    with TemporaryDirectory() as name, chdir(name):
        folder = Path(name)
        (folder / "examples").mkdir()
        for template in POLICY.harmless["chat-template"]:
            (folder / template).touch()
        with closing(Engine(installed, VERSION, folder / "log")) as engine:
            asking = [
                (each, engine.ask(_job(each, folder)))
                for each in outcomes
                if each.launch or each.words
            ]
            answers = [(each, future.result()) for each, future in asking]
    refused: dict[str, str] = {}
    unseen: dict[str, str] = {}
    for each, answer in answers:
        if not answer["accepted"] and (each.launch or answer["stage"] == "parse"):
            (refused if answer["stage"] == "parse" else unseen)[each.attempt.name] = (
                f"{answer['stage']}: {answer['message']}"
            )
    return Answers(taken=len(answers) - len(refused) - len(unseen), refused=refused, unseen=unseen)


def _job(each: Outcome, folder: Path) -> dict[str, Any]:
    if each.launch is not None:
        return each.launch.of(VERSION).job(0, folder)
    shown = {"gpus": 8, "gpuBytes": 80 * GIB, "capability": (9, 0), "rank": None}
    return {
        "arguments": list(each.words),
        "environment": {},
        "model": str(folder / "none"),
        "draft": None,
    } | shown


def main() -> int:
    """Print a line for each attempt and a summary; end with 1 where something is refused without a
    reason, or by the engine.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--engine", action="store_true", help="put each argument list before vLLM's own parser"
    )
    options = parser.parse_args()
    recipes = [
        json.loads(line)
        for line in (options.folder / "recipes.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    outcomes = [
        outcome(attempt, options.folder) for recipe in recipes for attempt in attempts(recipe)
    ]
    for each in outcomes:
        print(_line(each), flush=True)
    answers = asked(outcomes) if options.engine else Answers()
    for name, message in answers.unseen.items():
        print(f"only its parser was asked: {name}: {message}")
    for name, message in answers.refused.items():
        print(f"THE ENGINE REFUSES {name}: {message}")
    _summary(recipes, outcomes)
    if options.engine:
        counts = f"takes {answers.taken} argument lists and refuses {len(answers.refused)}"
        print(
            f"vLLM {VERSION} {counts}; of {len(answers.unseen)} its parser takes the words, and "
            "no more was seen"
        )
    return 1 if answers.refused or any(each.unstated for each in outcomes) else 0


def _line(each: Outcome) -> str:
    left = f" [left out: {'; '.join(each.left_out)}]" if each.left_out else ""
    admitted = f" [admitted: {', '.join(each.admitted)}]" if each.admitted else ""
    return f"{each.kind:<15}{each.attempt.name}: {each.text}{admitted}{left}"


def _summary(recipes: list[Mapping[str, Any]], outcomes: list[Outcome]) -> None:
    """Print how many recipes have at least one outcome of each kind, the best first, and why others
    are refused.
    """
    order = ("planned", "no room", "no config", "refused", "other hardware")
    best = Counter(
        min(
            (order.index(each.kind) for each in outcomes if each.attempt.recipe is recipe),
            default=len(order),
        )
        for recipe in recipes
    )
    print(
        f"{len(recipes)} recipes, by the best that came of each:",
        ", ".join(f"{best[i]} {kind}" for i, kind in enumerate(order)),
    )
    kinds = Counter(each.kind for each in outcomes)
    print(f"{len(outcomes)} attempts:", ", ".join(f"{kinds[kind]} {kind}" for kind in order))
    for reason, count in Counter(
        reason for each in outcomes for reason in each.reasons
    ).most_common():
        print(f"  {count:>4} {reason}")
    for words, count in Counter(
        words for each in outcomes for words in each.left_out
    ).most_common():
        print(f"  {count:>4} left out: {words}")
    named = Counter(name for each in outcomes for name in each.admitted)
    print("  admitted:", ", ".join(f"{name} ({count})" for name, count in named.most_common()))


if __name__ == "__main__":
    sys.exit(main())
