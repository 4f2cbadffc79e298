"""Which engine arguments a user may set, and why not the others: every option is of one class.

An unlisted option is refused: a new engine version cannot smuggle one in. The administrator can
admit dangerous and uncounted options, but none that contradicts the plan or replaces something that
the operator relies on.

The options of an engine as its own parser lists them, one table per version.

A version whose minor release has no table has no options: none are guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final, NotRequired, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The options of an engine by class, named with dashes.

    ``missing``: fields of the spec say these elsewhere, and this engine cannot be told, each with
    why. ``counted``: users may set them because the planner counts with them, each with the part of
    the plan that it settles. ``uncounted``: an administrator may admit them, each with the part of
    a plan that it may change. A key of an object is named by its path, and is of the class of the
    object around it if it is on no list itself. ``harmless`` are values that everybody may set of
    an option that is otherwise refused. ``collector`` is the dangerous option whose values are
    addresses of trace collectors, which an administrator may admit one by one (empty: none).
    """

    allowed: frozenset[str]
    owned: Mapping[str, str]
    dangerous: Mapping[str, str]
    incompatible: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict)
    collector: str = ""

    @property
    def admissible(self) -> Mapping[str, str]:
        """Return the options an administrator may admit, and why they need it."""
        return {
            **self.dangerous,
            **{
                name: f"may change {what}, which no plan counts"
                for name, what in self.uncounted.items()
            },
        }

    def listed_as(self, name: str) -> str:
        """Return the name that a key of an object is listed by: its own path, or that of an object
        around it; its own if neither is listed.
        """
        lists = (self.allowed, self.owned, self.dangerous, self.incompatible)
        further = (self.counted, self.uncounted)
        parts = name.split(".")
        paths = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        return next(
            (path for path in paths if any(path in each for each in (*lists, *further))), name
        )


UNLISTED: Final = "could change the memory or the limits that the plan was computed with"
"""Why an option that is on no list is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of one engine, its folder here, and its versions, each with its patch releases.

    ``keyed``: there are tables of the keys that objects have, too. ``patches_alike``: patch
    releases have the options of their minor version; else each needs a table of its own.
    """

    engine: str
    folder: str
    versions: tuple[str, ...]
    keyed: bool = False
    patches_alike: bool = True

    def listed(self, version: str) -> str | None:
        """Return the version whose tables hold for another one, None if there are none."""
        if not self.patches_alike:
            return version if version in self.versions else None
        # Another minor version may have others.
        minor = version.rpartition(".")[0]
        return next((known for known in self.versions if known.rpartition(".")[0] == minor), None)


_OPTIONAL: Final = "_optional_type"
_INNER_TYPES: Final[Mapping[str, str]] = {
    "cpu-distributed-timeout-seconds": "int",
    "custom-histogram-buckets": "loads",
    "default-mm-loras": "loads",
    "distributed-timeout-seconds": "int",
    "ec-transfer-config": "parse_dataclass",
    "engram-config": "parse_dataclass",
    "kv-cache-memory-bytes": "human_readable_int",
    "kv-events-config": "parse_dataclass",
    "mamba-block-size": "int",
    "max-cpu-loras": "int",
    "max-log-len": "int",
    "max-num-active-seqs": "int",
    "max-num-queued-reqs": "int",
    "max-num-queued-tokens": "human_readable_int",
    "max-num-scheduled-tokens": "human_readable_int",
    "max-parallel-loading-workers": "int",
    "mm-processor-kwargs": "loads",
    "numa-bind-nodes": "int",
    "prefix-cache-retention-interval": "int",
    "prefix-match-unit": "int",
    "reasoning-config": "parse_dataclass",
    "video-pruning-rate": "float",
    "watermark-config": "loads",
    "weight-transfer-config": "parse_dataclass",
}
"""The type that vLLM's parser's ``_optional_type`` wraps, if it is no text, for options that are
rendered or may be set; ``tests/engine`` holds it to the parsers.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its ``--`` name without dashes, its parser's type and its choices as in argv.

    ``flag`` is the parser's spelling (vLLM takes ``_`` for ``-``, TensorRT-LLM has only ``_``),
    ``key`` the configuration file's (empty: command line only). ``type`` names the parser's
    conversion (``int``, ``loads``, ``parse_dataclass``, ...), ``optional`` that it takes ``None``,
    too. A ``switch`` takes no value; ``off``
    is the flag that turns it off (empty: none). ``opened_by`` is an option that adds values to the
    ``choices`` (empty: none). ``keys`` are those an object may have (empty: not known, or no
    object). ``many``: it takes several values, one word each.
    """

    name: str
    flag: str
    key: str
    aliases: tuple[str, ...]
    type: str
    optional: bool
    switch: bool
    off: str
    many: bool
    choices: tuple[str, ...]
    opened_by: str
    keys: tuple[str, ...]


def option_table(version: str, tables: Tables) -> Mapping[str, Option] | None:
    """Return the options of an engine's ``version`` by name, None without a table for it."""
    listed = tables.listed(version)
    return _read(tables.folder, listed) if listed else None


def canonical(name: str) -> str:
    """Return an option's name as in the tables: ``_`` and ``-`` are alike.

    >>> canonical("tensor_parallel_size")
    'tensor-parallel-size'
    """
    return name.replace("_", "-")


class _Row(TypedDict):
    flags: list[str]
    type: str | None
    key: NotRequired[str]
    nargs: NotRequired[int | str]
    choices: NotRequired[list[object]]
    opened_by: NotRequired[str]
    keys: NotRequired[list[str]]


@cache
def _read(folder: str, version: str) -> Mapping[str, Option]:
    file = resources.files("shardwright.engines").joinpath(f"{folder}/data/options-{version}.json")
    rows = json.loads(file.read_text(encoding="utf-8"))["options"]
    return {option.name: option for option in map(_option, rows)}


def _option(row: _Row) -> Option:
    spelled = [flag for flag in row["flags"] if flag.startswith("--")]
    name, *others = [canonical(flag.removeprefix("--")) for flag in spelled]
    switch = row.get("nargs") == 0
    turned = [flag for flag in others if switch and _is_opposite(flag, name)]
    return Option(
        name=name,
        flag=spelled[0],
        key=row.get("key", ""),
        aliases=tuple(flag for flag in others if flag not in turned),
        # The parser's own type says only that the option may be left out.
        type=_inner_type(name, row["type"] or "str"),
        optional=row["type"] == _OPTIONAL,
        switch=switch,
        off=_off_flag(name, turned),
        many=row.get("nargs") in ("+", "*"),
        opened_by=row.get("opened_by", ""),
        keys=tuple(row.get("keys", ())),
        choices=tuple(
            "None" if choice is None else str(choice) for choice in row.get("choices", [])
        ),
    )


def _inner_type(name: str, kind: str) -> str:
    return _INNER_TYPES.get(name, "str") if kind == _OPTIONAL else kind


def _is_opposite(flag: str, name: str) -> bool:
    return flag == f"no-{name}" or flag.partition("-")[2] == name.partition("-")[2]


def _off_flag(name: str, turned: list[str]) -> str:
    # 0.33 lists ``--disable-x`` for ``--enable-x`` and still takes ``--no-enable-x``, the only form
    # of 0.32.
    if not turned:
        return ""
    return f"--no-{name}" if name.startswith("enable-") else f"--{turned[0]}"
