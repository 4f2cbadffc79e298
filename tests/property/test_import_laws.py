"""Laws of imports: every leaf of an object is carried over or listed, wherever it stands."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from shardwright.api.manifest import read_manifests
from shardwright.cli.imports.draft import Imported
from shardwright.cli.imports.objects import import_object, importable, models_in
from shardwright.cli.imports.source import ForeignObject, Spot
from shardwright.errors import InputError

DATA = Path(__file__).parents[1] / "data" / "imports"
FILES = sorted(DATA.glob("*.yaml"))
Keys = tuple[str | int, ...]

ADDED = "zzAdded"
IDENTITY = {("apiVersion",), ("kind",)}
"""They say how an object is to be read."""


def _models(file: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    objects = read_manifests(file.read_text())
    for content in objects:
        if importable(content):
            for model in models_in(content):
                yield dict(model), objects


def _places(part: Spot) -> Iterator[Spot]:
    yield part
    for child in part.each():
        yield from _places(child)


def _changed(content: Mapping[str, Any], keys: Keys, value: Any) -> dict[str, Any]:
    changed = deepcopy(dict(content))
    place: Any = changed
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return changed


def _other(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}9"


def _covers(found: Imported, path: str) -> bool:
    """Return whether a place is listed, itself or with all that it is in.

    Options of a command line are listed by their names, below the place of their container.
    """
    listed = [said for left in found.left_out for said in left.path.split(", ")]
    inside = any(path == said or path.startswith((f"{said}.", f"{said}[")) for said in listed)
    return inside or any(
        path.startswith(said.partition(": --")[0]) for said in listed if ": --" in said
    )


def _outcome(content: dict[str, Any], others: list[dict[str, Any]]) -> Imported | str:
    try:
        return import_object(content, others)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_has_a_model(file: Path) -> None:
    models = list(_models(file))

    assert models
    assert all(isinstance(_outcome(*model), Imported) for model in models)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_field_that_is_added_anywhere_is_listed(file: Path) -> None:
    for content, others in _models(file):
        for place in _places(ForeignObject(value=content).root):
            changed: Any
            if isinstance(place.value, Mapping):
                changed, at = {**place.value, ADDED: "x"}, place.at(ADDED).path
            elif isinstance(place.value, list):
                item = {ADDED: "x"} if isinstance(place.value[0], dict) else ADDED
                changed, at = [*place.value, item], f"{place.path}[{len(place.value)}]"
            else:
                continue
            whole = _changed(content, place.keys, changed) if place.keys else dict(changed)
            found = _outcome(whole, others)
            assert isinstance(found, str) or _covers(found, at) or ADDED in str(found), at


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_leaf_that_is_changed_changes_the_model_or_is_listed(file: Path) -> None:
    for content, others in _models(file):
        before = _outcome(content, others)
        for leaf in _places(ForeignObject(value=content).root):
            if leaf.each() or leaf.keys in IDENTITY or isinstance(leaf.value, dict | list):
                continue
            found = _outcome(_changed(content, leaf.keys, _other(leaf.value)), others)
            assert (
                isinstance(found, str)
                or isinstance(before, str)
                or (found.manifest, found.left_out) != (before.manifest, before.left_out)
                or _covers(found, leaf.path)
            ), leaf.path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_value_of_another_type_anywhere_is_imported_or_refused(file: Path) -> None:
    for content, others in _models(file):
        for place in _places(ForeignObject(value=content).root):
            if not place.keys or place.keys in IDENTITY:
                continue
            for value in (5, "text", {"a": [5]}):
                for model in models_in(_changed(content, place.keys, value)):
                    assert isinstance(_outcome(dict(model), others), Imported | str)
