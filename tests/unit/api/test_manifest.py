"""YAML as kubectl reads it; the comparison with kubectl itself is a test on the control plane."""

from typing import Any

import pytest

from shardwright.api.manifest import read_manifests
from shardwright.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("off", False),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("1e3", 1000),
        ("1e-05", 1e-05),
        ("1.0", 1),
        ("1_000", 1000),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("08", 8),
        ("-3", -3),
        ('"1"', "1"),
        ("~", None),
        ("0.33.0", "0.33.0"),
    ],
)
def test_scalars_have_the_types_that_kubectl_gives_them(text: str, value: Any) -> None:
    (read,) = read_manifests(f"a: {text}")

    assert read == {"a": value}
    assert type(read["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\na: 2", 'line 2: key "a" is there twice'),
        ('{"a": 1, "a": 2}', 'key "a" is there twice'),
        ("a: .inf", ".inf is not a number in JSON"),
        ("a: 1e400", "inf is not a number in JSON"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ("a: &a [*a]", "an alias contains itself"),
        ("- 1", "a document is not an object"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: !!python/object/apply:os.system [x]", "could not determine a constructor"),
        ("{[1]: 2}", "a key must be a word"),
        ("a: \x07", "control characters are not allowed"),
    ],
)
def test_what_is_no_manifest_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_manifests(text)

    assert says in str(caught.value)


def test_aliases_may_not_blow_a_file_up() -> None:
    """Nine lines of nine references each would be 387 million values."""
    lines = ["a0: &a0 [x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)
    ]

    with pytest.raises(InputError, match="aliases expand to more than"):
        read_manifests("\n".join(lines))


NESTED = {
    "flow lists": "[" * 100_000,
    "closed flow lists": "[" * 100_000 + "]" * 100_000,
    "flow objects": "{a: " * 3000 + "}" * 3000,
    "block objects": "\n".join(" " * level + "a:" for level in range(2000)),
    "block lists": "- " * 50_000 + "a",
    "keys": "? " * 20_000 + "a",
    "JSON": '{"a":' * 100_000,
    "closed JSON": '{"a":' * 900 + "1" + "}" * 900,
    "JSON lists": '{"a":' + "[" * 128 + "]" * 128 + "}",
    "aliases": "a0: &a0 [1]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 200)),
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_nested_beyond_reason_is_refused_before_anything_recurses_into_it(
    text: str,
) -> None:
    with pytest.raises(InputError, match="lists and objects are nested more than 128 levels deep"):
        read_manifests(text)


@pytest.mark.parametrize(
    "text", ['{"a": ' + "[" * 127 + "]" * 127 + "}", "a: " + "[" * 127 + "]" * 127]
)
def test_what_is_nested_as_far_as_it_may_be_is_read(text: str) -> None:
    (manifest,) = read_manifests(text)
    assert repr(manifest) == "{'a': " + "[" * 127 + "]" * 127 + "}"


@pytest.mark.parametrize(
    "number",
    ["0x" + "f" * 2_000_000, "9" * 5000, "-" + "9" * 400, "0" + "7" * 500, "0b" + "1" * 500],
)
def test_a_number_that_nobody_could_read_is_refused(number: str) -> None:
    with pytest.raises(InputError, match=r"line 2: a number of [0-9,]+ digits; correct it"):
        read_manifests(f"kind: X\na: {number}")


def test_the_same_goes_for_json() -> None:
    with pytest.raises(InputError, match="a number of 4,000 digits; correct it"):
        read_manifests('{"a": ' + "9" * 4000 + "}")


def test_an_anchor_may_be_used_and_merged() -> None:
    assert read_manifests("a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2}") == [
        {"a": {"p": 1}, "b": {"p": 1}, "c": {"p": 1, "q": 2}}
    ]


def test_every_document_is_an_object_and_empty_ones_are_none() -> None:
    assert read_manifests("---\na: 1\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_a_list_gives_its_items() -> None:
    assert read_manifests(
        "kind: List\nitems: [{kind: Node}, {kind: PodList, items: [{kind: Pod}]}]"
    ) == [{"kind": "Node"}, {"kind": "Pod"}]


def test_json_is_read_as_json() -> None:
    assert read_manifests('{"a": "yes", "b": 1.5}') == [{"a": "yes", "b": 1.5}]


def test_nothing_in_it_gives_nothing() -> None:
    assert read_manifests("") == []
