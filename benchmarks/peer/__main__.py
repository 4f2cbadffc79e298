"""Put published measurements to AISimulate, too, and print its errors beside ours.

    python -m benchmarks.peer [--sample 350|all] [--seed 7]

`make score AGAINST=aisimulate` installs the peer in an environment of its own, makes our
predictions and runs this. Only rows that can be put to the peer as they stand are drawn.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.groundtruth import FOLDER, scorer
from benchmarks.peer.comparing import FIGURES, Compared, Published, compared
from benchmarks.peer.questions import REASONS, Question, Unmapped, question

BUILD: Final = Path(__file__).parents[2] / "build"
COLUMNS: Final = {
    "outputTokensPerSecond": ("out_tok_s_total", 1),
    "tpotSeconds": ("tpot_ms", 1000),
    "ttftSeconds": ("ttft_ms", 1000),
}
"""Figure to its column and what the column counts to one of it."""
HEADERS: Final = ("tok/s", "TPOT", "TTFT")
PIPE_WIDTH: Final = 120


def main() -> None:
    """Run the command."""
    options = _parser().parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    questions, rows, unmapped = _read(options.data)
    drawn = _drawn(questions, options.sample, options.seed)
    answers = _by_id(track(_asked(drawn, options.python), "asking", len(drawn), console=console))
    ours = _by_id(_lines(options.predictions))
    console.print(_table(compared([rows[asked.id] for asked in drawn], ours, answers)))
    console.print(f"{len(drawn)} of {len(questions)} rows drawn by seed {options.seed}")
    _tell(
        console,
        "cannot be put to the peer",
        Counter({REASONS[why]: n for why, n in unmapped.items()}),
    )
    _tell(
        console,
        "answered by version",
        Counter(a["version"] for a in answers.values() if "version" in a),
    )
    _tell(
        console,
        "refused by the peer",
        Counter(a["refused"][:90] for a in answers.values() if "refused" in a),
    )
    beyond = sum(answer.get("beyondCache", False) for answer in answers.values())
    console.print(f"{beyond} answers with more requests than fit its K/V cache, by its own warning")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", default="350", help="rows to draw, or all (default: 350)")
    parser.add_argument("--seed", type=int, default=7, help="of the draw (default: 7)")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the measurements")
    parser.add_argument(
        "--predictions", type=Path, default=BUILD / "predictions.jsonl", help="ours"
    )
    parser.add_argument(
        "--python", type=Path, default=BUILD / "aisimulate/bin/python", help="the peer's"
    )
    return parser


def _read(folder: Path) -> tuple[list[Question], dict[str, Published], Counter[Unmapped]]:
    """Return what can be asked, what was measured, and how many cases cannot be asked, and why."""
    scores = scorer(folder)
    questions, rows, unmapped = [], {}, Counter[Unmapped]()
    for case, row in scores.throughput_cases(folder, "dev", scores.Catalogue(folder)):
        rows[case["id"]] = _published(case, row)
        asked = question(case)
        if isinstance(asked, Question):
            questions.append(asked)
        else:
            unmapped[asked] += 1
    return questions, rows, unmapped


def _published(case: Mapping[str, Any], row: Mapping[str, str]) -> Published:
    return Published(
        id=case["id"],
        engine=case["engine"]["name"],
        model=case["model"]["name"],
        figures={
            name: float(row[column]) / per
            for name, (column, per) in COLUMNS.items()
            if row[column] and float(row[column]) > 0
        },
    )


def _drawn(questions: Sequence[Question], sample: str, seed: int) -> Sequence[Question]:
    if sample == "all" or int(sample) >= len(questions):
        return questions
    return random.Random(seed).sample(questions, int(sample))  # noqa: S311 - the same rows for the same seed


def _asked(questions: Iterable[Question], python: Path) -> Iterable[dict[str, Any]]:
    """Yield the answers as they come; what the peer says meanwhile goes to a log."""
    asked, log = BUILD / "questions.jsonl", BUILD / "aisimulate.log"
    asked.write_text("".join(json.dumps(asdict(one)) + "\n" for one in questions), encoding="utf-8")
    command = [python, Path(__file__).with_name("answers.py")]
    with (
        asked.open() as lines,
        log.open("w") as said,
        subprocess.Popen(
            command, stdin=lines, stdout=subprocess.PIPE, stderr=said, text=True
        ) as peer,
    ):
        yield from map(json.loads, peer.stdout or ())
    if peer.returncode:
        raise SystemExit(f"the peer ended with {peer.returncode}; see {log}")


def _table(groups: Iterable[Compared]) -> Table:
    table = Table(
        "rows",
        "asked",
        "ours",
        "theirs",
        "both",
        box=box.SIMPLE_HEAD,
        title="median error, ours / theirs",
    )
    for header in HEADERS:
        table.add_column(header, justify="right")
    for group in groups:
        counts = (group.asked, group.ours, group.theirs, group.both)
        table.add_row(group.group, *map(str, counts), *(_cell(group, name) for name in FIGURES))
    return table


def _cell(group: Compared, name: str) -> str:
    """Return both errors, the smaller one in bold."""
    if name not in group.errors:
        return "-"
    errors = group.errors[name]
    return " / ".join(
        f"[bold]{error:.1%}[/]" if error == min(errors) else f"{error:.1%}" for error in errors
    )


def _tell(console: Console, title: str, counts: Counter[str]) -> None:
    if counts:
        console.print(f"{title}:")
    for what, count in counts.most_common():
        console.print(f"{count:>6}  {what}", markup=False, highlight=False)


def _lines(file: Path) -> Iterable[dict[str, Any]]:
    return map(json.loads, file.read_text(encoding="utf-8").splitlines())


def _by_id(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in records}


if __name__ == "__main__":
    main()
