"""The help of a command: the first screen has its purpose and its most frequent options,
``--help-all`` has all, kubectl's flags included.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

CONNECTION: Final = "Connection, with the flags of kubectl"
"""The group of kubectl's own flags, which its users know."""

WORDS_PAGE: Final = "docs/reference/output.md"
"""The page that explains each part of a plan, and leads to the glossary."""

_EXAMPLES_SHOWN: Final = 2
_NARROWEST: Final = 60
_CODE: Final = re.compile(r"  [0-9]  ")  #: a line about an exit code


class HelpFormatter(argparse.HelpFormatter):
    """Wraps prose to the terminal, but not lines that begin with two spaces: those are commands.

    An option and its short form share one placeholder.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap  # noqa: PLC0415 - only for help

        lines: list[str] = []
        for line in text.splitlines():
            whole = line.startswith("  ") and not _CODE.match(line)
            lines += (
                [line]
                if whole or not line
                else textwrap.wrap(
                    line,
                    width,
                    subsequent_indent="     " if _CODE.match(line) else "",
                    # Names of programs and options can be copied whole.
                    break_on_hyphens=False,
                )
            )
        return "\n".join(indent + line for line in lines)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        default = self._get_default_metavar_for_optional(action)
        taken = self._format_args(action, default)
        return f"{', '.join(action.option_strings)} {taken}"


class HelpAll(argparse.Action):
    """``--help-all``: every option, with all of its help."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Print the help, and exit."""
        del namespace, values, option_string
        sys.stdout.write(argparse.ArgumentParser.format_help(parser))
        parser.exit()


def first_screen(parser: argparse.ArgumentParser, groups: Sequence[Any]) -> str:
    """Return a command's help, a line per option as wide as the terminal, but not kubectl's."""
    import shutil  # noqa: PLC0415 - only for help: it loads every kind of archive
    import textwrap  # noqa: PLC0415 - only for help

    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    taken = (
        f"[{_taken(action)}]" if action.nargs in {"?", "*"} else _taken(action)
        for group in groups
        for action in group._group_actions  # noqa: SLF001 - argparse has no public way
        if not action.option_strings
    )
    lines = [
        f"usage: {' '.join((parser.prog, *taken, '[OPTIONS]'))}",
        "",
        *textwrap.wrap(parser.description or "", width, break_on_hyphens=False),
    ]
    shown = [
        (group.title, rows)
        for group in groups
        if group.title != CONNECTION and (rows := list(_rows(group)))
    ]
    room = max(len(option) for _, rows in shown for option, *_ in rows)
    for title, rows in shown:
        lines += ["", f"{title}:", *(_line(*row, room, width) for row in rows)]
    lines += ["", *_examples(parser), "all options, in full, and the exit codes: --help-all"]
    return "\n".join(lines) + "\n"


def _taken(action: argparse.Action) -> str:
    return str(action.metavar or f"{{{','.join(map(str, action.choices or ()))}}}")


def _rows(group: Any) -> Iterator[tuple[str, str, str]]:
    """Yield each option's form, effect and default; those common to all commands come last."""
    actions = sorted(
        group._group_actions,  # noqa: SLF001 - argparse has no public way
        key=lambda action: action.dest in {"help", "debug"},
    )
    for action in actions:
        if action.help is argparse.SUPPRESS or action.option_strings == ["--help-all"]:
            continue
        names = ", ".join(action.option_strings)
        if action.choices and names:
            default = f" (default: {action.default})" if action.default else ""
            yield f"{names} FORM", ", ".join(action.choices), default
            continue
        metavar = (
            "" if action.nargs == 0 else str(action.metavar or "") if names else _taken(action)
        )
        taken = f"[{metavar}]" if action.nargs == "?" and names else metavar
        said, default = _parted(str(action.help or ""))
        yield f"{names} {taken}".strip(), said, default


def _parted(text: str) -> tuple[str, str]:
    """Return the first words of a help text, and the default it states.

    >>> (_parted("mean length; of all (default: 64)"), _parted("GPUs (with x; default: 8)"))
    (('mean length', ' (default: 64)'), ('GPUs (with x)', ''))
    """
    if inner := re.search(r"; default: [^)]*\)", text):
        return f"{text[: inner.start()]})", ""
    default = re.search(r" \(default: [^)]*\)", text)
    return re.split(r" \(default|;", text, maxsplit=1)[0], default[0] if default else ""


def _line(option: str, said: str, default: str, room: int, width: int) -> str:
    text = f"  {option:<{room}}  {said}"
    if len(text) + len(default) <= width:
        return text + default
    return text if len(text) <= width else f"{text[: width - 1]}\N{HORIZONTAL ELLIPSIS}"


def _examples(parser: argparse.ArgumentParser) -> list[str]:
    examples = (
        (parser.epilog or "").partition("\n\n")[0].replace("%(prog)s", parser.prog).splitlines()
    )
    # Deeper indentation continues the command of the line before.
    starts = [index for index, line in enumerate(examples) if re.match(r"  [^ ]", line)]
    beyond = starts[_EXAMPLES_SHOWN] if starts[_EXAMPLES_SHOWN:] else len(examples)
    return [*examples[:beyond], ""] if starts else []
