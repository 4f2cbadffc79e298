"""Reads the arguments of ``vllm serve`` as recipes write them, and says each in the words of a
ShardedModel.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shardwright.cli.imports.command_line import speculation_of_config
from shardwright.engines.policy import Option, canonical, option_table
from shardwright.engines.vllm.policy import RULES
from shardwright.errors import Problem

PLANS_OWN: Final = frozenset(
    {"data-parallel-size", "distributed-executor-backend", "enable-expert-parallel"}
)
"""Options that follow from the plan: what they would say is for the planner to find."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The arguments of a recipe: what goes into ``engine.args``, into other fields, and what is
    left to the plan or out.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    tensor: int | None = None
    left_out: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def without_drafts(self, why: str) -> "Reading":
        """Return the same with no speculation, which a recipe serves without, and why."""
        rest = {key: said for key, said in self.engine.items() if key != "speculation"}
        left = f"speculative-config: {why}"
        return replace(self, engine=rest, left_out=(*self.left_out, left))


def read_arguments(words: Sequence[str], version: str) -> Reading:
    """Return the arguments of a recipe, read as the parser of a version would."""
    table = option_table(version, RULES.tables) or {}
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for flag, values in _flags(words):
        head, dot, key = flag.partition(".")
        name, option, value = _named(head, table)
        if option is None:
            problems.append(_unknown(flag, version))
        elif dot:
            found[name] = json.dumps(
                {
                    **json.loads(found.get(name, "{}")),
                    canonical(key).replace("-", "_"): _json(values),
                }
            )
        else:
            found[name] = value if option.switch else " ".join(values)
    return _sorted(found, tuple(problems))


def _flags(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option without dashes and the words after it; some recipes have an option and its
    value in one word.
    """
    whole = [
        part
        for word in words
        for part in (word.split(" ", 1) if word.startswith("--") and " " in word else [word])
    ]
    starts = [index for index, word in enumerate(whole) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(whole)], strict=False):
        flag, equals, value = whole[start].removeprefix("--").partition("=")
        yield flag, [value] if equals else whole[start + 1 : end]


def _named(head: str, table: Mapping[str, Option]) -> tuple[str, Option | None, bool]:
    name = canonical(head)
    if name in table:
        return name, table[name], True
    positive = next(
        (option for option in table.values() if f"--{name}" in (option.off, f"--no-{option.name}")),
        None,
    )
    if positive is not None and positive.switch:
        return positive.name, positive, False
    alias = next((option for option in table.values() if name in option.aliases), None)
    return (alias.name, alias, True) if alias else (name, None, True)


def _json(values: Sequence[str]) -> object:
    text = " ".join(values)
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False}.get(text, text)


def _sorted(found: Mapping[str, Any], problems: tuple[Problem, ...]) -> Reading:
    arguments, tensor = dict(found), None
    engine: dict[str, Any] = {}
    model: dict[str, Any] = {}
    left: list[str] = []
    for name in sorted(found):
        value = found[name]
        match name:
            case "tensor-parallel-size":
                tensor = int(value)
            case "max-model-len" if value == "auto":
                left.append("max-model-len auto: the plan says how long requests may be")
            case "max-model-len":
                engine["maxModelLen"] = int(value)
            case "kv-cache-dtype" if value in ("fp8", "fp8_e4m3"):
                engine["kvCacheQuantization"] = "FP8"
            case "served-model-name":
                model["servedName"] = value
            case "speculative-config":
                speculation, why = speculation_of_config(value)
                engine |= {"speculation": speculation} if speculation else {}
                left += [f"{name}: {why}"] if why else []
            case _ if name in PLANS_OWN:
                left.append(f"{name}: the plan says it")
            case _:
                continue
        del arguments[name]
    return Reading(
        arguments=arguments,
        engine=engine,
        model=model,
        tensor=tensor,
        left_out=tuple(left),
        problems=problems,
    )


def _unknown(flag: str, version: str) -> Problem:
    return Problem(
        code="EngineArgumentUnknown",
        path=flag,
        what=f"--{flag}",
        limit=f"is no option of vLLM {version}",
        remedy="leave it out",
    )
