"""Which vLLM an image holds."""

import pytest

from shardwright.engines.versions import engine_version
from shardwright.engines.vllm.releases import DEFAULT_IMAGE, RELEASES
from shardwright.errors import Problem


@pytest.mark.parametrize(
    ("image", "stated", "version"),
    [
        (DEFAULT_IMAGE, None, "0.33.0"),
        ("mirror.internal:5000/vllm/vllm-openai:v0.32.0@sha256:00", None, "0.32.0"),
        ("vllm/vllm-openai:0.33.1-x86_64", None, "0.33.1"),
        ("vllm-cpu-release-repo:v0.33.0", "0.33.0", "0.33.0"),
        ("team/server:v7.1.0", "0.33.0", "0.33.0"),
        ("vllm/vllm-openai:nightly", "0.34.0", "0.34.0"),
        ("vllm/vllm-openai:v0.33.0rc1", None, "0.33.0"),
    ],
)
def test_the_version_is_read_from_the_tag_or_stated(
    image: str, stated: str | None, version: str
) -> None:
    assert engine_version(image, stated, RELEASES) == version


@pytest.mark.parametrize(
    ("image", "stated", "code"),
    [
        ("vllm/vllm-openai:latest", None, "EngineVersionUnknown"),
        ("vllm/vllm-openai", None, "EngineVersionUnknown"),
        ("team/server:v7.1.0", None, "EngineVersionUnknown"),
        ("registry:5000/server", None, "EngineVersionUnknown"),
        ("vllm/vllm-openai:v0.33.0", "0.32.0", "EngineVersionMismatch"),
        ("vllm/vllm-openai:v0.11.0", None, "EngineVersionUnsupported"),
        ("vllm/vllm-openai:latest", "newest", "EngineVersionInvalid"),
    ],
)
def test_what_the_version_cannot_be_told_from_is_a_problem(
    image: str, stated: str | None, code: str
) -> None:
    found = engine_version(image, stated, RELEASES)
    assert isinstance(found, Problem)
    assert (found.code, found.path) == (code, "spec.engine.version")
