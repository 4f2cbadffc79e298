"""Text to config: strict where a mistake would hide, tolerant of what real configs hold."""

import gzip
import json
import math
from base64 import b64encode

import pytest

from shardwright.errors import InputError
from shardwright.modelspec.config_json import (
    MAX_CONFIG_BYTES,
    MAX_CONFIG_DEPTH,
    check_depth,
    config_map_text,
    folder_text,
    parse_config,
)


def test_infinity_and_small_exponents_are_taken() -> None:
    config = parse_config(
        '{"rms_norm_eps": 1e-05, "attention_chunk_size": Infinity, "x": -Infinity}', source="a file"
    )
    assert config == {"rms_norm_eps": 1e-05, "attention_chunk_size": math.inf, "x": -math.inf}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ('{"a": NaN}', "NaN is not a value"),
        ("[1]", "holds a list where an object belongs"),
        ('{"a": 1,}', "is not the JSON of a config"),
        ("", "is not the JSON of a config"),
        ('{"a": ' + "9" * 5000 + "}", "is not the JSON of a config"),
        ('{"a": "' + "x" * MAX_CONFIG_BYTES + '"}', f"the limit of {MAX_CONFIG_BYTES} bytes"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        (
            '{"a":' * (MAX_CONFIG_DEPTH + 1) + "1" + "}" * (MAX_CONFIG_DEPTH + 1),
            f"deeper than {MAX_CONFIG_DEPTH} levels",
        ),
    ],
    ids=["duplicate", "NaN", "list", "comma", "empty", "digits", "size", "very deep", "deep"],
)
def test_what_is_no_config_is_refused_with_its_source_and_reason(text: str, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_config(text, source="models/config.json")
    (problem,) = refusal.value.problems
    assert problem.code == "ConfigInvalid"
    assert problem.sentence().startswith("models/config.json ")
    assert says in problem.sentence()


def test_depth_is_counted_through_objects_and_lists() -> None:
    deepest: object = 1
    for level in range(MAX_CONFIG_DEPTH - 1):
        deepest = [deepest] if level % 2 else {"a": deepest}
    check_depth({"a": deepest}, source="x")
    with pytest.raises(InputError):
        check_depth({"a": [deepest]}, source="x")


@pytest.mark.parametrize(
    ("files", "content"),
    [
        ({"config.json": '{"a": 1}'}, {"a": 1}),
        ({"config.json": '{"a": 1}', "README.md": "#"}, {"a": 1}),
        (
            {"config.json": '{"a": 1}', "hf_quant_config.json": "{}"},
            {"config.json": {"a": 1}, "hf_quant_config.json": {}},
        ),
    ],
)
def test_the_file_beside_a_config_goes_with_it(
    files: dict[str, str], content: dict[str, object]
) -> None:
    text = folder_text(files)
    assert text is not None
    assert parse_config(text, source="a folder") == content


@pytest.mark.parametrize("name", ["llama.json", "hf_quant_config.json"])
def test_a_config_under_another_name_stands_alone(name: str) -> None:
    files = {
        "config.json": '{"b": 2}',
        "hf_quant_config.json": '{"quant_algo": "NVFP4"}',
        name: '{"a": 1}',
    }
    assert folder_text(files, name) == '{"a": 1}'


@pytest.mark.parametrize("files", [{}, {"config.json": 1}, {"hf_quant_config.json": "{}"}])
def test_files_without_a_config_have_no_text_of_a_folder(files: dict[str, object]) -> None:
    assert folder_text(files) is None


def in_a_config_map(packed: bytes, **data: str) -> dict[str, object]:
    return {"data": data, "binaryData": {"config.json": b64encode(packed).decode()}}


def test_a_config_of_several_mib_stands_in_a_config_map_as_gzip() -> None:
    large = json.dumps({"modules_to_not_convert": [f"layers.{i}.gate" for i in range(110_000)]})
    content = in_a_config_map(gzip.compress(large.encode()))

    assert len(large) > 2 * 1024**2
    assert config_map_text(content, "config.json") == large
    assert config_map_text(content, "other.json") is None


def test_what_is_beside_a_packed_config_is_read_with_it() -> None:
    content = in_a_config_map(gzip.compress(b"{}"), **{"hf_quant_config.json": "[]"})

    text = config_map_text(content, "config.json")

    assert text == '{"config.json": {}, "hf_quant_config.json": []}'


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"\xff\xfe", "is not the JSON of a config"),
        (gzip.compress(b'{"a": 1}')[:-12], "is not the JSON of a config"),
        (gzip.compress(b" " * (100 * MAX_CONFIG_BYTES)), "is larger than the limit"),
    ],
    ids=["no gzip", "cut off", "a bomb"],
)
def test_what_is_no_packed_config_is_refused_as_any_text(packed: bytes, said: str) -> None:
    text = config_map_text(in_a_config_map(packed), "config.json")

    assert text is not None
    with pytest.raises(InputError, match=said):
        parse_config(text, source="spec.model.configMapRef")
