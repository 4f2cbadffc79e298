"""vLLM's options that depend on a model's family: the parsers of its tool calls and reasoning.

They change only the fields of tool calls and reasoning, not the text of answers. So these are
defaults: a user can set each option, or turn all of them off.

Which family wants which parser: vllm-project/recipes of August 2026 (``recipes``), docs.vllm.ai,
features/tool_calling and reasoning_outputs of 0.32 (``docs``). Families whose tool calls need a
chat template that their repositories lack get no parser of tool calls: another image may not have
the template's file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shardwright.engines.option_tables import canonical, option_table
from shardwright.engines.vllm.policy import RULES

_TOOLS: Final = "tool-call-parser"
_AUTO: Final = "enable-auto-tool-choice"
_REASONING: Final = "reasoning-parser"
_TEMPLATE_FORMAT: Final = "chat-template-content-format"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserFamily:
    """Models by a pattern of names (behind the slash, lower case), with their answers' parsers."""

    name: str
    pattern: str
    tools: str = ""
    reasoning: str = ""
    content_format: str = ""
    source: str = "recipes"


FAMILIES: Final = (
    ParserFamily(
        name="DeepSeek V4", pattern=r"deepseek-v4-", tools="deepseek_v4", reasoning="deepseek_v4"
    ),
    ParserFamily(
        name="DeepSeek V3.2",
        pattern=r"deepseek-v3\.2$",
        tools="deepseek_v32",
        reasoning="deepseek_v3",
        source="docs",
    ),
    ParserFamily(
        name="DeepSeek V3 and V3.1", pattern=r"deepseek-v3(\.1)?(-|$)", reasoning="deepseek_v3"
    ),
    ParserFamily(
        name="DeepSeek R1", pattern=r"deepseek-r1", reasoning="deepseek_r1", source="docs"
    ),
    ParserFamily(name="Gemma 4", pattern=r"gemma-4-.*-it", reasoning="gemma4"),
    ParserFamily(
        name="GLM 4.5 and 4.6", pattern=r"glm-4\.[56](-|$)", tools="glm45", reasoning="glm45"
    ),
    ParserFamily(name="GLM 4.7", pattern=r"glm-4\.7(-|$)", tools="glm47", reasoning="glm45"),
    ParserFamily(
        name="GLM 5",
        pattern=r"glm-5(\.1)?(-|$)",
        tools="glm47",
        reasoning="glm45",
        content_format="string",
    ),
    ParserFamily(name="gpt-oss", pattern=r"gpt-oss-\d", tools="openai", source="docs"),
    ParserFamily(name="Hy3", pattern=r"hy3-", tools="hy_v3", reasoning="hy_v3"),
    ParserFamily(name="Intern-S2", pattern=r"intern-s2-", tools="qwen3_coder", reasoning="qwen3"),
    ParserFamily(
        name="Kimi K2, those that think",
        pattern=r"kimi-k2(-thinking|\.5)",
        tools="kimi_k2",
        reasoning="kimi_k2",
    ),
    ParserFamily(name="Kimi K2", pattern=r"kimi-k2-instruct", tools="kimi_k2", source="docs"),
    ParserFamily(name="Laguna", pattern=r"laguna-", tools="poolside_v1", reasoning="poolside_v1"),
    ParserFamily(name="LFM2.5", pattern=r"lfm2\.5-", tools="lfm2"),
    ParserFamily(name="Ling 3", pattern=r"ling-3\.", tools="ling3", reasoning="ling3"),
    ParserFamily(name="Macaron V1", pattern=r"macaron-v1-", tools="glm47", reasoning="glm45"),
    ParserFamily(
        name="Mellum 2, those that think",
        pattern=r"mellum2-.*-thinking",
        tools="hermes",
        reasoning="qwen3",
    ),
    ParserFamily(name="Mellum 2", pattern=r"mellum2-.*-instruct", tools="hermes"),
    ParserFamily(name="MiMo V2.5", pattern=r"mimo-v2\.5", tools="mimo", reasoning="mimo"),
    ParserFamily(
        name="MiMo V2 Flash", pattern=r"mimo-v2-flash", tools="qwen3_xml", reasoning="qwen3"
    ),
    ParserFamily(
        name="MiniMax M2", pattern=r"minimax-m2", tools="minimax_m2", reasoning="minimax_m2"
    ),
    ParserFamily(
        name="MiniMax M3", pattern=r"minimax-m3", tools="minimax_m3", reasoning="minimax_m3"
    ),
    ParserFamily(
        name="Nemotron 3 Super and 3.5",
        pattern=r"nvidia-nemotron-3(-super|\.5)-",
        tools="qwen3_xml",
        reasoning="nemotron_v3",
    ),
    ParserFamily(
        name="Nemotron 3 Nano Omni",
        pattern=r"nemotron-3-nano-omni-",
        tools="qwen3_coder",
        reasoning="nemotron_v3",
    ),
    ParserFamily(
        name="Qwen2.5", pattern=r"qwen2\.5-\d[^-]*-instruct", tools="hermes", source="docs"
    ),
    ParserFamily(name="Qwen3.5", pattern=r"qwen3\.5-\d", tools="qwen3_coder", reasoning="qwen3"),
    ParserFamily(name="Qwen3 Coder", pattern=r"qwen3-coder-", tools="qwen3_coder", source="docs"),
    ParserFamily(
        name="Qwen3, those that do not think",
        pattern=r"qwen3-\d.*-instruct",
        tools="hermes",
        source="docs",
    ),
    ParserFamily(name="Qwen3", pattern=r"qwen3-\d", tools="hermes", reasoning="qwen3"),
)
"""The first that a name begins with counts."""

_BASE: Final = re.compile(r"(^|[-_])base([-_]|$)")
"""Names of models that are trained to go on with a text, not to answer."""


def family_of(model_id: str) -> ParserFamily | None:
    """Return the family of a model's id, None if unknown, or if the model is not made to answer.

    >>> [
    ...     found and found.name
    ...     for found in map(
    ...         family_of, ("acme/GLM-4.7-FP8", "zai-org/GLM-4.5-Air-Base", "acme/own")
    ...     )
    ... ]
    ['GLM 4.7', None, None]
    """
    name = model_id.rpartition("/")[2].lower()
    return (
        None
        if _BASE.search(name)
        else next((each for each in FAMILIES if re.match(each.pattern, name)), None)
    )


def family_arguments(
    model_id: str, version: str, arguments: Mapping[str, object]
) -> Mapping[str, object]:
    """Return the arguments for a model's family, without options set in the user's ``arguments``.

    A version gets none that it does not know, and none at all without a list of its options.
    """
    found, table = family_of(model_id), option_table(version, RULES.tables)
    if found is None or table is None:
        return {}
    said = {canonical(name) for name in arguments}
    return {
        name: value
        for group in _groups(found)
        if said.isdisjoint(group)
        for name, value in group.items()
        # Together or not at all: vLLM refuses automatic tool choice without a parser.
        if all(
            option in table and (table[option].switch or told in table[option].choices)
            for option, told in group.items()
        )
    }


def _groups(family: ParserFamily) -> Iterator[Mapping[str, object]]:
    if family.tools:
        yield {_AUTO: True, _TOOLS: family.tools}
    if family.reasoning:
        yield {_REASONING: family.reasoning}
    if family.content_format:
        yield {_TEMPLATE_FORMAT: family.content_format}
