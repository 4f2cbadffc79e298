"""Reads a rendered command line back into option and value, as an argument parser would."""

from collections.abc import Sequence


def read_arguments(argv: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Return the model and option name to value (True or False for switches); an option twice is an
    error.
    """
    model, *rest = argv
    options: dict[str, object] = {}
    while rest:
        name, has_value, value = rest.pop(0).removeprefix("--").partition("=")
        if not has_value and rest and not rest[0].startswith("--"):
            has_value, value = "=", rest.pop(0)
        switch_off = not has_value and name.startswith("no-")
        name = name.removeprefix("no-") if switch_off else name
        assert name not in options, name
        options[name] = value if has_value else not switch_off
    return model, options
