"""Which config belongs to a model id? Built-in ids and aliases, exact, never fuzzy.

The rows are data (``configs/index.json`` and the config files beside it, ``listed.json`` with the
dates of others' lists). An alias is listed only if its repository has the architecture and sizes of
the config it shares; fields that differ stand in ``overrides``.

Which repositories give no file without a token of a user who has accepted their terms?

The rows are data (``gating.csv``): an id, or the beginning of the ids of an organisation or a
family, whether it is gated, and source and day.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from shardwright.errors import InputError, Problem
from shardwright.modelspec.config_json import parse_config

_CONFIGS: Final = files("shardwright.modelspec") / "configs"
_NOTHING: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A model id with its config; ``revision`` is None if the source does not name the commit."""

    id: str
    config: Mapping[str, object]
    source: str
    revision: str | None


def find_model(
    model_id: str, extra: Mapping[str, Mapping[str, object]] = _NOTHING
) -> CatalogueEntry | None:
    """Return the entry of exactly this id, or None.

    Args:
        model_id: The hub id as it is written, for example ``meta-llama/Llama-3.1-8B-Instruct``.
        extra: Configs by id beside the built-in ones; they win.
    """
    if model_id in extra:
        return CatalogueEntry(
            id=model_id, config=extra[model_id], source="the operator's catalogue", revision=None
        )
    row = _index().get(model_id)
    if row is None:
        return None
    config = {**_config(row.file), **row.overrides}
    return CatalogueEntry(id=model_id, config=config, source=row.source, revision=row.revision)


def known_ids() -> tuple[str, ...]:
    """Return all built-in ids and aliases, sorted."""
    return tuple(sorted(_index()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A model on others' lists: since which day (as ``2026-01-05``, None: not said), and which
    lists.
    """

    released: str | None
    source: str


def listing_of(model_id: str) -> Listing | None:
    """Return a built-in model's listing by others, None if nobody lists it."""
    return _listings().get(model_id)


def read_catalogue_extension(data: Mapping[str, str]) -> dict[str, Mapping[str, object]]:
    """Return configs that join the catalogue, from exact id to the text of a ``config.json``.

    Raises:
        InputError: every text that is not a config, under its id.
    """
    configs: dict[str, Mapping[str, object]] = {}
    problems: list[Problem] = []
    for model_id, text in data.items():
        try:
            configs[model_id] = parse_config(text, source=model_id)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return configs


def model_unknown(model_id: str, extra: Mapping[str, Mapping[str, object]] = _NOTHING) -> Problem:
    """Return that an id is in no catalogue, with the nearest ones; none is ever taken in its
    place.
    """
    by_hand = "`kubectl create configmap NAME --from-file=config.json=./config.json`"
    by_id = f"`shardwright fetch {model_id:.200} | kubectl apply --server-side -f -`"
    known = len(known_ids()) + len(extra)
    return Problem(
        code="ModelUnknown",
        path="id",
        what=f"{model_id!r:.200}",
        limit=f"is not among the {known} models of the catalogue",
        gap=near_to(model_id, extra),
        remedy=f"make a ConfigMap of its config.json with {by_id} or {by_hand} and name it in "
        "spec.model.configMapRef",
    )


_NEAREST: Final = 3

_ALIKE: Final = 0.8
"""Share of its letters that an id, or what stands behind its slash, has in common with one that may
be meant. Basis: assumed; ids that differ in a version or a size have more, of other families of the
catalogue less.
"""


def near_to(model_id: str, extra: Iterable[str] = ()) -> str:
    """Return which known id is meant by an unknown one, or which are nearest; empty if none is
    like it.
    """
    near = _nearest(model_id, (*extra, *known_ids()))
    meant = next((known for known in near if known.lower() == model_id.lower()), None)
    if meant is not None:
        return f"did you mean {meant!r}?"
    return (
        f"the nearest are {', '.join(map(repr, near))}"
        if len(near) > 1
        else "".join(f"the nearest is {one!r}" for one in near)
    )


def like_ids(model_id: str) -> tuple[str, ...]:
    """Return known ids that an unknown one may mean, the nearest first; none for a known id."""
    ids = known_ids()
    return () if model_id in ids else _nearest(model_id, ids)


def _nearest(model_id: str, ids: Iterable[str]) -> tuple[str, ...]:
    wanted = model_id.lower()
    scores = {
        known: max(_likeness(wanted, known.lower()), _likeness(_name(wanted), _name(known.lower())))
        for known in ids
    }
    alike = sorted(
        (-score, -_likeness(wanted, known.lower()), known)
        for known, score in scores.items()
        if score >= _ALIKE
    )
    return tuple(known for _, _, known in alike[:_NEAREST])


def _likeness(one: str, other: str) -> float:
    """Return the share of letters in common, 0 if a cheaper bound says that it is too little."""
    matcher = SequenceMatcher(None, other, one, autojunk=False)
    cheap = min(matcher.real_quick_ratio(), matcher.quick_ratio())
    return matcher.ratio() if cheap >= _ALIKE else 0.0


def _name(model_id: str) -> str:
    return model_id.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    file: str
    source: str
    revision: str | None
    overrides: Mapping[str, object] = field(default_factory=dict)
    note: str = ""


@cache
def _index() -> Mapping[str, _Row]:
    rows = json.loads((_CONFIGS / "index.json").read_text(encoding="utf-8"))
    return {model_id: _Row(**row) for model_id, row in rows.items()}


@cache
def _listings() -> Mapping[str, Listing]:
    rows = json.loads(
        files("shardwright.modelspec").joinpath("listed.json").read_text(encoding="utf-8")
    )
    return {model_id: Listing(**row) for model_id, row in rows.items()}


@cache
def _config(name: str) -> Mapping[str, object]:
    return MappingProxyType(
        parse_config((_CONFIGS / name).read_text(encoding="utf-8"), source=name)
    )


class Gating(StrEnum):
    """Whether a repository is gated."""

    GATED = "Gated"
    OPEN = "Open"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryGate:
    """Whether a repository is gated, with the day of reading (as ``2026-11-25``) and source, empty
    if unknown.
    """

    gating: Gating
    read: str = ""
    source: str = ""


_UNKNOWN: Final = RepositoryGate(gating=Gating.UNKNOWN)
_WHETHER: Final = MappingProxyType({"yes": Gating.GATED, "no": Gating.OPEN})
_OPEN_END: Final = ("/", "-")
"""What a row ends with that is about all ids which begin so."""


def gate_of(model_id: str) -> RepositoryGate:
    """Return whether a repository is gated; of several rows about it the longest holds.

    >>> gate_of("meta-llama/Llama-3.1-8B-Instruct").gating.value
    'Gated'
    >>> gate_of("Qwen/Qwen3-8B").gating.value, gate_of("Qwen/Qwen3-8B-FP8").gating.value
    ('Open', 'Unknown')
    """
    about = (row for row in _gates() if row == model_id or _is_start(row, model_id))
    row = max(about, key=len, default=None)
    return _UNKNOWN if row is None else _gates()[row]


def _is_start(row: str, model_id: str) -> bool:
    return row.endswith(_OPEN_END) and model_id.startswith(row)


@cache
def _gates() -> Mapping[str, RepositoryGate]:
    table = files("shardwright.modelspec").joinpath("gating.csv")
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    gates = {row["id"]: _gate(row) for row in rows}
    return MappingProxyType(gates)


def _gate(row: Mapping[str, str]) -> RepositoryGate:
    return RepositoryGate(gating=_WHETHER[row["gated"]], read=row["read"], source=row["source"])
