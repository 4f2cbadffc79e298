"""A case of ``predict``, field by field; null counts as left out.

It is the scorer's format and no part of the resource: nothing of it is in the CRD.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from shardwright.api.parts import Part
from shardwright.api.spec import Workload
from shardwright.api.structural import structural
from shardwright.api.violations import Schema, explain
from shardwright.costs.workload import Arrival
from shardwright.engines.registry import BY_LOWER_NAME
from shardwright.engines.vllm import traits as vllm
from shardwright.errors import InputError
from shardwright.modelspec.computed import STORED

_MOST: Final = 10**7  # tokens, requests, GPUs: more is a mistake

_OF_A_RESOURCE: Final = Workload()


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Amount = Annotated[float, Field(ge=1, le=_MOST, allow_inf_nan=False)]
FromNought = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, le=_MOST), BeforeValidator(_whole)]


def _plain(schema: dict[str, Any]) -> None:
    # What a class is for is no advice on how to set it.
    schema.pop("description", None)


class _Object(Part):
    model_config = ConfigDict(json_schema_extra=_plain)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, content: object) -> object:
        if not isinstance(content, Mapping):
            return content
        known = {field.alias for field in cls.model_fields.values()}
        return {
            name: value for name, value in content.items() if value is not None or name not in known
        }


class CaseModel(_Object):
    """The model by its id, if it is built in, or by its config, which may hold anything."""

    id: str = ""
    config: dict[str, Any] = Field(default_factory=dict)
    name: Any = None

    @model_validator(mode="before")
    @classmethod
    def _of_an_id(cls, content: object) -> object:
        return {"id": content} if isinstance(content, str) else content

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.id) == bool(self.config):
            raise ValueError("must have either an id or a config")
        return self


class CaseEngine(_Object):
    """The engine and its version."""

    name: Literal[tuple(BY_LOWER_NAME)] = vllm.NAME.lower()  # type: ignore[valid-type]  # one table has them
    version: str | None = None


class CaseHardware(_Object):
    """The nodes and their GPUs; without a number as many as usual.

    ``nodes`` are made one by one.
    """

    gpu_product: str
    gpus_per_node: Whole | None = None
    nodes: Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_whole)] = 1
    nvlink_domain_gpus: Annotated[int, Field(ge=0, le=_MOST), BeforeValidator(_whole)] = 0


class CaseParallelism(_Object):
    """The degrees of one replica, and how many replicas."""

    tensor: Whole = 1
    pipeline: Whole = 1
    expert: Whole = 1
    attention_data: Whole = 1
    replicas: Whole = 1

    @field_validator("expert", "attention_data")
    @classmethod
    def _divides_tensor(cls, degree: int, info: ValidationInfo) -> int:
        tensor = info.data.get("tensor", degree)
        if tensor % degree:
            raise ValueError(f"must divide tensor {tensor}")
        return degree


class CaseHalf(_Object):
    """The groups of one phase, all alike."""

    workers: Whole = 1
    parallelism: CaseParallelism = Field(default_factory=CaseParallelism)


class CasePair(_Object):
    """Groups that compute prompts, and groups that answer."""

    prefill: CaseHalf
    decode: CaseHalf


class CaseWorkload(_Object):
    """The lengths of requests, and how many there are; as in a resource if they are left out."""

    input_tokens: Amount = _OF_A_RESOURCE.input_tokens
    output_tokens: Amount = _OF_A_RESOURCE.output_tokens
    arrival: Annotated[Arrival, Field(strict=False)] = Arrival.CLOSED_LOOP
    concurrency: Amount | None = None


class CaseLine(_Object):
    """One question."""

    id: Any = None
    model: CaseModel
    weights: Literal[STORED] | None = None  # type: ignore[valid-type]  # one table has them
    kv_cache: Literal["auto", "fp16", "bf16", "fp8"] = "auto"
    engine: CaseEngine = Field(default_factory=CaseEngine)
    hardware: CaseHardware
    parallelism: CaseParallelism | None = None
    disaggregation: CasePair | None = None
    workload: CaseWorkload = Field(default_factory=CaseWorkload)
    max_model_len: Amount | None = None
    memory_utilization: FromNought = 0

    @model_validator(mode="after")
    def _is_whole_or_apart(self) -> Self:
        if self.parallelism and self.disaggregation:
            raise ValueError("must have either parallelism or disaggregation")
        return self


def read_case(content: Mapping[str, Any]) -> CaseLine:
    """Return a case.

    Raises:
        InputError: every violation, with its path.
    """
    try:
        return CaseLine.model_validate(content, by_name=False)
    except ValidationError as error:
        found = explain(error, _schema(), "a case")
        raise InputError(replace(one, code="CaseInvalid") for one in found) from None


@cache
def _schema() -> Schema:
    return structural(CaseLine)
