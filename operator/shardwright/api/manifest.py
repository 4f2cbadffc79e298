"""YAML as kubectl reads it: YAML 1.1 by Go's yaml.v2, then JSON, without duplicate keys.

PyYAML's own rules differ. By Go's, ``1e3`` is a number, ``12:30`` and dates are text, ``0o17`` is
fifteen. Anchors that blow a file up and numbers that JSON cannot hold are refused.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from shardwright.errors import InputError, Problem

EXPANDED_MAX_NODES: Final = 4_000_000
"""Unit: YAML nodes after aliases are expanded. Basis: assumed; 5,000 Node objects have about 2
million.
"""

DEEPEST: Final = 128
"""Unit: lists and objects inside one another. Basis: assumed; a ShardedModel may have 64, objects
of Kubernetes have less.
"""

LONGEST_NUMBER: Final = 400
"""Unit: characters. Basis: no number that JSON's readers can hold is longer without an exponent
(the largest has 309 digits).
"""

FRACTION_FREE_MAX: Final = 1e21
"""Go writes a float below this without an exponent, so that a whole one becomes an integer in JSON.
"""

BETWEEN_CALLS: Final = 1 << 14
"""Events between two calls that say how far the reader is. Basis: measured; 25 ms of CPU."""

_AS_WRITTEN: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
"""Tags of keys that are their text."""


def read_manifests(text: str, tell: Callable[[int], None] = lambda _: None) -> list[dict[str, Any]]:
    """Return the objects of a manifest: one per document, those of a ``List`` one by one.

    ``tell`` gets, now and then, how many characters of YAML have been checked.

    Raises:
        InputError: Not YAML, a duplicate key, too many aliases, too deep, or something that is no
            object.
    """
    return [item for document in _documents(text, tell) for item in _objects(document)]


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise _unreadable("a document is not an object", _objects_wanted(document))
    items = document.get("items")
    if not str(document.get("kind", "")).endswith("List") or not isinstance(items, list):
        yield document
        return
    for item in items:
        yield from _objects(item)


def _objects_wanted(document: Any) -> str:
    # A table of kubectl reads as one long word.
    if isinstance(document, str):
        return "kubectl prints objects with '-o json' or '-o yaml'"
    return "write apiVersion, kind, metadata and spec"


def _documents(text: str, tell: Callable[[int], None]) -> list[Any]:
    if text.lstrip()[:1] == "{":
        try:
            return [_json_document(text)]
        except _RefusedError as error:
            raise _unreadable(str(error), "correct it") from None
        except ValueError:
            pass  # flow-style YAML begins the same way
    try:
        _check_nesting(text, tell)
        return list(_yaml_documents(text))
    except _RefusedError as error:
        raise _unreadable(str(error), "correct it") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(_where(error), "correct the YAML") from None


def _json_document(text: str) -> Any:
    try:
        document = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole
        )
    except RecursionError:
        raise _too_deep("") from None
    level = [document]
    for _ in range(DEEPEST):
        level = [child for value in level for child in _contained(value)]
        if not level:
            return document
    raise _too_deep("")


def _contained(value: Any) -> Iterator[Any]:
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return (child for child in children if isinstance(child, dict | list))


def _whole(digits: str) -> int:
    # int() takes time with the square of them, and beyond 4,300 raises an error of its own.
    if len(digits) > LONGEST_NUMBER:
        raise _RefusedError(f"a number of {len(digits):,} digits")
    return int(digits)


def _check_nesting(text: str, tell: Callable[[int], None]) -> None:
    """Refuse deep nesting before anything recurses: libyaml's composer would end the process."""
    depth = 0
    for taken, event in enumerate(yaml.parse(text, Loader=_Loader), start=1):
        if not taken % BETWEEN_CALLS and event.start_mark:
            tell(event.start_mark.index)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise _too_deep(f"line {event.start_mark.line + 1}: " if event.start_mark else "")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep(where: str) -> "_RefusedError":
    return _RefusedError(f"{where}lists and objects are nested more than {DEEPEST} levels deep")


def _yaml_documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if "*" in text:
                _check_expansion(node)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_expansion(root: yaml.Node) -> None:
    size, height = _expanded(root, {}, set())
    if size > EXPANDED_MAX_NODES:
        raise _RefusedError(f"aliases expand to more than {EXPANDED_MAX_NODES:,} values")
    if height > DEEPEST + 1:
        raise _too_deep("with their aliases, ")


def _expanded(
    node: yaml.Node, known: dict[int, tuple[int, int]], open_nodes: set[int]
) -> tuple[int, int]:
    """Return how many nodes and levels there are under a node, both with itself.

    An anchor precedes its aliases, so this recurses no deeper than the text is nested.
    """
    if id(node) in open_nodes:
        raise _RefusedError("an alias contains itself")
    if id(node) not in known:
        open_nodes.add(id(node))
        children = [_expanded(child, known, open_nodes) for child in _children(node)]
        known[id(node)] = (
            1 + sum(size for size, _ in children),
            1 + max((height for _, height in children), default=0),
        )
        open_nodes.discard(id(node))
    return known[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


class _RefusedError(ValueError):
    """Valid YAML that we do not take."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C class exists where libyaml does
    """The safe loader with the implicit types of Go's yaml.v2."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}


_INTEGER = re.compile(r"^[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9][0-9_]*)?$")
_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(("", "~", "null", "Null", "NULL"))


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    if len(text) > LONGEST_NUMBER:
        raise _RefusedError(f"line {node.start_mark.line + 1}: a number of {len(text):,} digits")
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    # YAML 1.1 writes octal numbers without an o, which int() refuses.
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return sign * (int(digits, 8) if is_octal else int(digits, 0))


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    return _as_json(float(loader.construct_scalar(node).replace("_", "")))


def _as_json(value: float) -> float:
    if not math.isfinite(value):
        raise _RefusedError(f"{value} is not a number in JSON")
    return int(value) if value.is_integer() and abs(value) < FRACTION_FREE_MAX else value


def _not_finite(_loader: Any, node: yaml.ScalarNode) -> float:
    raise _RefusedError(f"{node.value} is not a number in JSON")


def _boolean(loader: Any, node: yaml.ScalarNode) -> bool:
    return loader.construct_scalar(node) in _TRUE


def _mapping(loader: Any, node: yaml.MappingNode) -> Iterator[dict[str, Any]]:
    data: dict[str, Any] = {}
    yield data
    # Before merged keys come in: overriding one of those says nothing twice.
    _check_unique(loader, node)
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        data[_key(loader, key_node)] = loader.construct_object(value_node)


def _check_unique(loader: Any, node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = _key(loader, key_node)
        if key in seen:
            raise _RefusedError(
                f"line {key_node.start_mark.line + 1}: key {json.dumps(key)} is there twice"
            )
        seen.add(key)


def _key(loader: Any, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _RefusedError(f"line {node.start_mark.line + 1}: a key must be a word")
    key = node.value if node.tag in _AS_WRITTEN else loader.construct_object(node)
    return key if isinstance(key, str) else json.dumps(key)


def _text(loader: Any, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _RefusedError(f"key {json.dumps(twice)} is there twice")
    return result


def _no_constant(name: str) -> float:
    raise _RefusedError(f"{name} is not a number in JSON")


def _where(error: Exception) -> str:
    told = str(error).replace('in "<unicode string>", ', "in ")
    return " ".join(told.split())[:200] or type(error).__name__


def _unreadable(what: str, remedy: str) -> InputError:
    return InputError([Problem(code="ManifestUnreadable", what=what, remedy=remedy)])


def _register() -> None:
    tag = "tag:yaml.org,2002:"
    _Loader.add_implicit_resolver(f"{tag}merge", re.compile("^<<$"), ["<"])
    _Loader.add_implicit_resolver(f"{tag}null", _one_of(_NULL), ["", "~", "n", "N"])
    _Loader.add_implicit_resolver(f"{tag}bool", _one_of(_TRUE | _FALSE), list("yYnNtTfFoO"))
    _Loader.add_implicit_resolver(f"{tag}int", _INTEGER, list("-+0123456789"))
    _Loader.add_implicit_resolver(f"{tag}float", _FLOAT, list("-+.0123456789"))
    _Loader.add_implicit_resolver(
        "!not-finite", re.compile(r"^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"), list("-+.")
    )
    _Loader.add_constructor(f"{tag}int", _integer)
    _Loader.add_constructor(f"{tag}float", _float)
    _Loader.add_constructor(f"{tag}bool", _boolean)
    _Loader.add_constructor(f"{tag}map", _mapping)
    _Loader.add_constructor(f"{tag}timestamp", _text)
    _Loader.add_constructor("!not-finite", _not_finite)


def _one_of(words: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"^(?:{'|'.join(map(re.escape, sorted(words)))})$")


_register()
