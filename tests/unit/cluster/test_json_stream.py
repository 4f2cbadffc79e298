"""JSON as it arrives: the same items wherever it is cut, never more than one of them in memory, and
none ends the others.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from shardwright.cluster import json_stream
from shardwright.cluster.json_stream import (
    DEEPEST,
    BrokenError,
    Lines,
    ListDocument,
    Unreadable,
    metadata_of,
)

ITEMS: list[Any] = [
    {
        "metadata": {"name": "a"},
        "text": 'quotes " braces } ] and \\ marks \\"',
        "other": "ü€😀",
        "numbers": [1, -2.5, True, None],
    },
    {},
    {"metadata": {"name": "b"}, "claims": [{"metadata": {}}, {"metadata": {}}]},
]
LIST = {
    "kind": "PodList",
    "metadata": {"resourceVersion": "7", "continue": "x"},
    "items": ITEMS,
    "later": 1,
}
SHALLOW = (
    b'{"metadata":{"name":"deep","namespace":"models"},"spec":{"text":"a \\" { [ b '
    b'\\\\","none":{},"few":[[]]}}'
)
DEEP = SHALLOW[:-1] + b',"value":' + b'{"a":' * 5000 + b'"\\"}]\\\\"' + b"}" * 5000 + b"}"


def pieces(text: bytes, size: int) -> Iterator[bytes]:
    return (text[start : start + size] for start in range(0, len(text), size))


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "PIECE", 1)


@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_the_same_wherever_it_is_cut(size: int, indent: int | None) -> None:
    text = json.dumps(LIST, indent=indent, ensure_ascii=False).encode()
    document = ListDocument(pieces(text, size))
    assert list(document.items()) == ITEMS
    assert document.fields == {
        "kind": "PodList",
        "metadata": {"resourceVersion": "7", "continue": "x"},
        "later": 1,
    }


@pytest.mark.parametrize("items", ["[]", "null", "[ ]"])
def test_a_list_may_be_empty(items: str) -> None:
    document = ListDocument(iter([f'{{"metadata":{{}},"items":{items}}}'.encode()]))
    assert list(document.items()) == []


@pytest.mark.usefixtures("in_small_pieces")
def test_a_list_that_ends_anywhere_in_its_midst_is_an_error() -> None:
    text = json.dumps(LIST, ensure_ascii=False).encode()
    for length in range(len(text)):
        with pytest.raises(BrokenError):
            list(ListDocument(pieces(text[:length], 16)).items())


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, dict | list) and value:
        depth, value = (depth + 1, (list(value.values()) if isinstance(value, dict) else value)[-1])
    return depth


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_an_item_that_is_nested_too_deeply_is_read_without_its_depths(size: int) -> None:
    text = b'{"items":[{"a":1},' + DEEP + b',{"b":2}],"metadata":{}}'
    before, deep, after = ListDocument(pieces(text, size)).items()
    assert (before, after) == ({"a": 1}, {"b": 2})
    assert {key: deep[key] for key in ("metadata", "spec")} == json.loads(SHALLOW)
    assert depth_of(deep["value"]) == DEEPEST - 1


def test_arrays_are_read_without_their_depths_too() -> None:
    (deep,) = ListDocument(
        iter([b'{"items":[' + b"[1," * 5000 + b"2" + b"]" * 5000 + b"]}"])
    ).items()
    assert depth_of(deep) == DEEPEST


def test_an_item_with_a_number_that_python_does_not_take_is_passed_over() -> None:
    text = b'{"items":[{"a":' + b"1" * 5000 + b'},{"b":2}]}'
    number, after = ListDocument(iter([text])).items()
    assert isinstance(number, Unreadable)
    assert after == {"b": 2}


def test_an_item_that_is_too_long_is_passed_over_without_being_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_OBJECT", 200_000)

    def chunks() -> Iterator[bytes]:
        yield b'{"items":[{"metadata":{"name":"long","namespace":"models"},"texts":[[]'
        for _ in range(1000):
            yield b',["' + b"x" * 9_999 + b'\\\\"]'
        yield b']},{"b":2}]}'

    tracemalloc.start()
    long, after = ListDocument(chunks()).items()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert long == Unreadable(
        why="is longer than 200000 characters", namespace="models", name="long"
    )
    assert after == {"b": 2}
    assert peak < 3_000_000


def test_a_text_that_is_too_long_for_any_object_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_OBJECT", 200_000)
    endless = (b'{"items":[{"text":"' if not number else b"x" * 10_000 for number in range(1000))
    with pytest.raises(BrokenError, match="a text is longer than 200000 characters"):
        list(ListDocument(endless).items())


def test_a_page_of_many_large_items_is_never_in_memory_as_a_whole() -> None:
    item = json.dumps({"metadata": {"name": "large"}, "text": "x" * 1_500_000}).encode()

    def chunks() -> Iterator[bytes]:
        yield b'{"items":['
        for number in range(60):
            yield from pieces((b"," if number else b"") + item, 65_536)
        yield b"]}"

    tracemalloc.start()
    assert sum(1 for _ in ListDocument(chunks()).items()) == 60
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000


def lines(text: bytes, size: int) -> list[Any]:
    feed = Lines()
    found: list[Any] = []
    for piece in pieces(text, size):
        found += feed.feed(piece)
    feed.end()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 10_000])
def test_lines_are_the_same_wherever_they_are_cut(size: int) -> None:
    text = b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n\n" for item in ITEMS)
    assert lines(text, size) == ITEMS


def test_a_last_line_that_is_not_complete_is_an_error() -> None:
    with pytest.raises(BrokenError, match="middle of an event"):
        lines(b'{"a":1}\n{"b"', 4)


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_line_that_is_too_long_is_dropped_and_named(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_OBJECT", 1000)
    long = (
        b'{"type":"ADDED","object":{"metadata":{"name":"long","namespace":"models"},"text":"'
        + b"x" * 5000
        + b'"}}'
    )
    before, dropped, after = lines(b'{"a":1}\n' + long + b'\n{"b":2}\n', size)
    assert (before, after) == ({"a": 1}, {"b": 2})
    assert dropped == Unreadable(why="is longer than 1000 bytes", namespace="models", name="long")


def test_a_line_that_is_too_long_is_not_kept_while_it_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_stream, "LONGEST_OBJECT", 200_000)
    feed = Lines()
    tracemalloc.start()
    found = [item for _ in range(1000) for item in feed.feed(b"x" * 10_000)]
    found += feed.feed(b"\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [Unreadable(why="is longer than 200000 bytes")]
    assert peak < 2_000_000


def test_a_line_that_is_nested_too_deeply_is_read_without_its_depths() -> None:
    deep, after = lines(b'{"type":"ADDED","object":' + DEEP + b'}\n{"b":2}\n', 10_000)
    assert deep["object"]["spec"] == json.loads(SHALLOW)["spec"]
    assert depth_of(deep["object"]["value"]) == DEEPEST - 2
    assert after == {"b": 2}


def test_a_node_has_a_name_and_no_namespace() -> None:
    text = (
        b'{"type":"ADDED","object":{"metadata":{"name":"n","uid":"u","labels":{"namespace":"no"}},"x":'
        + b"1" * 5000
        + b"}}\n"
    )
    (node,) = lines(text, 10_000)
    assert (node.namespace, node.name) == ("", "n")


@pytest.mark.parametrize("content", [None, 7, [], {}, {"metadata": None}, {"metadata": []}])
def test_what_is_no_object_has_no_metadata(content: object) -> None:
    assert metadata_of(content) == {}
