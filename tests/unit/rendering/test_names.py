"""Names of the objects."""

import hashlib

import pytest

from shardwright.rendering.names import BASE_MAX, base_name, scripts_configmap


@pytest.mark.parametrize("name", ["llama-405b", "a", "x" * BASE_MAX, "m-405b", "qwen2-5-7b"])
def test_a_natural_name_stays_as_it_is(name: str) -> None:
    assert base_name(name) == name


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("qwen2.5-7b", "qwen2-5-7b"),
        ("405b", "m-405b"),
        ("7.b", "m-7-b"),
        ("x" * 253, "x" * (BASE_MAX - 11)),
        ("x" * (BASE_MAX + 1), "x" * (BASE_MAX - 11)),
        ("a" * (BASE_MAX - 12) + ".b", "a" * (BASE_MAX - 12)),
        ("a-0-peers", "a-0-peers"),
        ("chat-0123456789", "chat-0123456789"),
    ],
)
def test_a_name_that_had_to_be_changed_or_looks_like_ours_gets_a_hash(
    name: str, readable: str
) -> None:
    assert base_name(name) == f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def test_names_that_read_alike_stay_apart() -> None:
    names = [
        "qwen2.5-7b",
        "qwen2-5-7b",
        "qwen2.5.7b",
        base_name("qwen2.5-7b"),
        "qwen2-5.7b",
        "m-405b",
        "405b",
        "x" * 60,
        "x" * 61,
    ]
    assert len({base_name(name) for name in names}) == len(names)


def test_scripts_of_another_content_or_model_have_another_name_that_any_api_server_takes() -> None:
    names = [scripts_configmap("x" * BASE_MAX, digest * 8) for digest in ("0123abcd", "0123abce")]
    assert [len(name) for name in names] == [BASE_MAX + 17] * 2
    assert len({*names, scripts_configmap("y" * BASE_MAX, "0123abcd")}) == 3
