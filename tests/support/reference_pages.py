"""References that are written by a program: what each page is to hold, from the code that it is
about.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from shardwright.cli.commands import build_parser
from shardwright.controller.operator_options import operator_parser
from shardwright.engines import environment, sglang, trtllm, vllm
from shardwright.engines.policy import Policy
from tests.support import reference_resource, reference_security, reference_vllm
from tests.support.wrapping import wrapped

WRITTEN: Final = "<!-- written by `make generate` -->"
VARIABLES: Final = ("KUBECONFIG", "POD_NAMESPACE", "HOSTNAME")
"""Of the process: defaults of flags would follow from them."""

FORMS: Final = """\
| form | effect |
|---|---|
| `_PLUGIN`, `_LIB`, `_LIBRARIES`, `_LIBRARY_PATH`, `_SO_PATH`, `_MODULE_DIR`, `_CACHE_MANAGER`, `_HOME`, `_NVCC`, \
`_COMPILER`, `_LDFLAGS` | loads code |
| `_PATH`, `_DIR`, `_FILE`, `_ROOT`, `_BASE`, `_CACHE`, `_FOLDER`, `_DUMP`, `_CONFIG` | reads or writes another path |
| `ENDPOINT`, `_URL`, `PROXY`, `SERVER`, `_HOST`, `_IP`, `_ADDR`, `_PORT`, `REPOSITORY`, `COMM_ID` | sends data to, or \
takes it from, another host |"""


def pages() -> dict[str, str]:
    """Return the text of every generated page, by its path below docs."""
    written = {
        "reference/shardedmodel.md": _page(reference_resource.lines()),
        "reference/vllm-options.md": _page(reference_vllm.lines()),
        "reference/tensorrt-llm-options.md": _page(_tensorrt_llm()),
        "reference/sglang-options.md": _page(_sglang()),
        "reference/operator-flags.md": _page(_flags()),
        "reference/command-options.md": _page(_commands()),
        "reference/environment.md": _page(_environment()),
        "reference/security-report.md": _page(_security()),
    }
    return {name: wrapped(text) for name, text in written.items()}


def _page(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _security() -> Iterator[str]:
    yield from ("# What has been tried against the operator", "", WRITTEN, "")
    yield from reference_security.lines()


def _flags() -> Iterator[str]:
    yield from ("# Flags of the operator", "", WRITTEN, "")
    yield from (
        (
            "Flags of `shardwright-operator`. [The operator's process](operator.md) says what they "
            "are about."
        ),
        "",
    )
    yield from ("| flag | default | effect |", "|---|---|---|")
    for flag in operator_parser()._actions:
        if flag.dest != "help":
            names = " ".join(f"`{name}`" for name in flag.option_strings)
            yield (
                f"| {names} | {'' if flag.default is None else f'`{flag.default}`'} | {flag.help} |"
            )


def _commands() -> Iterator[str]:
    yield from ("# Options of all commands", "", WRITTEN, "")
    yield (
        "`shardwright COMMAND --help` prints the same, with examples. [The command "
        "line](cli.md) explains the commands."
    )
    for name, parser in _parsers(build_parser("shardwright")):
        yield from (
            "",
            f"## {name}",
            "",
            parser.description or "",
            "",
            "| option | effect |",
            "|---|---|",
        )
        yield from (_option(parser, action) for action in parser._actions if action.dest != "help")


def _option(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    choices = ",".join(map(str, action.choices)) if action.choices else ""
    takes = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    typed = (
        ", ".join(f"`{' '.join(filter(None, (name, takes)))}`" for name in action.option_strings)
        or f"`{takes}`"
    )
    said = parser._get_formatter()._expand_help(action) if action.help else ""
    return f"| {typed} | {said} |".replace("MODEL|NAME", "MODEL\\|NAME")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command that has no commands of its own, with its name as it is typed."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for group in groups:
        for child in dict.fromkeys(group.choices.values()):
            yield from _parsers(child)
    if not groups:
        yield parser.prog.removeprefix("shardwright "), parser


def _tensorrt_llm() -> Iterator[str]:
    yield from ("# Options of TensorRT-LLM", "", WRITTEN, "")
    yield (
        "Options of `trtllm-serve`, and keys of its configuration file. `spec.engine.args` "
        "takes them by name (`_` or `-`),"
    )
    yield (
        "objects as YAML. A key inside an object is here by its path, and is as the object around it if it is "
        "not. [TensorRT-LLM](../tensorrt-llm.md) says how it runs. An option that is on no list is "
        "refused, too."
    )
    yield from _classes(trtllm.policy.POLICY)


def _sglang() -> Iterator[str]:
    yield from ("# Options of SGLang", "", WRITTEN, "")
    yield (
        "Options of `sglang serve` 0.5.23, which its own parser has listed. `spec.engine.args` takes them "
        "by their first name (`_` or `-`). [SGLang](../sglang.md) says how it runs. Another option is "
        "refused, too."
    )
    yield from _classes(sglang.policy.POLICY)


def _classes(policy: Policy) -> Iterator[str]:
    yield from ("", "## Allowed", "", *(f"- `{name}`" for name in sorted(policy.allowed)))
    yield from _table("Counted with", "settles", policy.counted)
    yield from _table("Set by shardwright", "instead", policy.owned)
    admitted = (
        "The chart's `policy.admittedArguments` admits them, as [for "
        "vLLM](../engines.md#who-may-set-what)."
    )
    yield from _table("Refused unless admitted", "effect", policy.admissible, admitted)
    yield from _table("Never", "effect", policy.incompatible)


def _table(heading: str, second: str, rows: Mapping[str, str], said: str = "") -> Iterator[str]:
    yield from (
        "",
        f"## {heading}",
        "",
        *((said, "") if said else ()),
        f"| argument | {second} |",
        "|---|---|",
    )
    yield from (f"| `{name}` | {rows[name]} |" for name in sorted(rows))


def _environment() -> Iterator[str]:
    yield from ("# Environment variables", "", WRITTEN, "")
    yield "`spec.engine.env` takes the variables below by name. Any other is refused with"
    yield (
        "[EnvironmentForbidden](reasons-of-input.md#environmentforbidden): libraries add settings "
        "without asking, and some of them"
    )
    yield (
        "load code, read files or send data elsewhere. Values are never checked, and reach the "
        "engine as they are written"
    )
    yield "(`$(NAME)` is not expanded)."
    yield ""
    yield (
        "An administrator can let users set more (`policy.admittedEnvironment` of the chart, by exact "
        "name), or set more for all"
    )
    yield (
        "models (`engineDefaults.engine.env`). Whether a version of an engine knows a variable "
        "is not checked."
    )
    yield from _listed("For every engine", environment.COMMON)
    yield from _listed("For vLLM", vllm.environment.VARIABLES - environment.COMMON)
    yield from _listed("For TensorRT-LLM", trtllm.environment.VARIABLES - environment.COMMON)
    yield from _listed("For SGLang", sglang.environment.VARIABLES - environment.COMMON)
    yield from ("", "## Refused unless admitted", "")
    yield from ("All other names. The message says why, by the form of the name:", "", FORMS, "")
    yield from ("Some names do not show it:", "", "| variable | effect |", "|---|---|")
    yield from (f"| `{name}` | {what} |" for name, what in sorted(environment.DANGEROUS.items()))
    yield from ("", "## Never", "")
    yield (
        "Nobody can admit these; the API server refuses them. The same is true for names that "
        "change how programs start"
    )
    yield (
        "(`PATH`, `LD_...`, `PYTHON...`, `BASH...`), that hold secrets (`..._TOKEN`, "
        "`..._API_KEY`, `..._SECRET`,"
    )
    yield (
        "`..._PASSWORD`, `..._ACCESS_KEY`), or that say which rank a process is (`RANK`, "
        "`WORLD_SIZE`, `MASTER_ADDR`,"
    )
    yield "`VLLM_DP_...`, `OMPI_...`)."
    yield from ("", "| variable | why |", "|---|---|")
    yield from (f"| `{name}` | {why} |" for name, why in sorted(environment.NEVER.items()))


def _listed(heading: str, names: AbstractSet[str]) -> Iterator[str]:
    yield from ("", f"## {heading}", "", *(f"- `{name}`" for name in sorted(names)))
