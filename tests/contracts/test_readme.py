"""What the documents say is so: their commands print what is shown, their links lead somewhere,
their names exist.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml

from shardwright.api.resource import ShardedModel, parse_manifest
from shardwright.api.schema import spec_schema, status_schema
from shardwright.cli.main import main
from shardwright.controller.metrics import Metrics
from shardwright.errors import InputError
from shardwright.modelspec.catalogue import find_model, known_ids
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_model import a_config
from tests.support.console_blocks import ABRIDGED, FENCE, steps

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COLUMNS = "110"
LONGEST_README = 600  # words, code and tables included
NOT_IN_NAV = "docs/decisions/"  # of the site: pages link to them
METRICS = ("reference/metrics.md", "reference/metrics-of-the-operator.md")

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
METRIC = re.compile(r"\bshardwright_[a-z_]+[a-z]")
FIELD = re.compile(r"\b(spec|status)((?:\.[a-zA-Z]+(?:\[\])?)+)(?!\w)")
OTHERS_FIELDS = {
    "status.phase",
    "spec.nodeName",
    "spec.replica",
}  # of pods; the last is a typing error that is shown
OTHERS_DOCUMENTS = {"docs/reference/node-labels.md"}  # of topograph, named as a source

Schema = dict[str, Any]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [page for page in DOCUMENTS if "```console" in page.read_text()], ids=_name
)
def test_commands_print_what_is_shown(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    update_goldens: bool,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    written = page.read_text()

    def run(words: list[str]) -> tuple[int, str]:
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    real = FENCE.sub(lambda block: _replayed(block, run), written)

    if update_goldens:
        page.write_text(real)
    assert real == page.read_text()


def test_the_readme_shows_a_plan_before_anything_needs_a_cluster() -> None:
    commands = [step.command for text in _blocks(README, "console") for step in steps(text)]

    first = next(command for command in commands if "shardwright plan" in command)
    assert shlex.split(first)[1:] == [
        "plan",
        "-f",
        "manifests/samples/llama-405b.yaml",
        "--nodes",
        "examples/fleet/nodes.yaml",
    ]


def test_the_demo_shows_the_layouts_that_are_planned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cluster has no ComputeDomains."""
    monkeypatch.chdir(ROOT)
    shown = re.findall(
        r"^([\w-]+) .*?(?:Serving|PlanOnly) +(\S+) +(\d+) +\d+s$",
        (ROOT / "docs" / "howto" / "demo.md").read_text(),
        re.MULTILINE,
    )
    words = ["--nodes", "examples/fleet/nodes.yaml", "--without", "ComputeDomain", "-o", "wide"]
    main(["plan", "-f", "manifests/samples", *words])

    planned = re.findall(
        r"^([\w-]+) +(?:\d+ x )?(\S+) +(\d+) ", capsys.readouterr().out, re.MULTILINE
    )
    assert shown == sorted(planned)


def test_what_the_planner_chooses_serves_most_per_gpu_of_what_the_rules_compare() -> None:
    blocks = [
        [_per_gpu(step.shown) for step in steps(text) if "-o wide" in step.command]
        for text in _blocks(ROOT / "docs" / "rules-of-thumb.md", "console")
    ]
    compared = [served for served in blocks if served]

    assert min(map(len, compared)) > 1
    assert [max(served) for served in compared] == [served[0] for served in compared]


def test_the_readme_is_read_in_three_minutes_and_has_one_picture() -> None:
    text = README.read_text()

    assert len(text.split()) <= LONGEST_README
    assert PICTURE.findall(text) == ["docs/images/report-light.png"]


def test_the_site_leads_to_every_page_but_decisions() -> None:
    """`make docs` asks that each of them is there."""
    led_to = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    written = [name for name in map(_name, DOCUMENTS) if not name.startswith(NOT_IN_NAV)]

    assert sorted(led_to) == sorted(written)


def test_pictures_links_targets_of_make_metrics_and_fields_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    metrics = _metrics()
    wrong = {
        _name(page): found
        for page in DOCUMENTS
        if (
            found := [
                *(name for name in PICTURE.findall(page.read_text()) if not _is_beside(page, name)),
                *(name for name in _links(page) if not _leads_somewhere(page, name)),
                *sorted({name for code in _codes(page) for name in MAKE.findall(code)} - targets),
                *sorted(set(METRIC.findall(page.read_text())) - metrics),
                *(path for path in sorted(_fields(page)) if not _is_field(path)),
            ]
        )
    }

    assert wrong == {}


def test_the_reference_of_metrics_is_complete() -> None:
    families = {family.name for family in Metrics().registry.collect()}
    named = {
        metric for page in METRICS for metric in METRIC.findall((ROOT / "docs" / page).read_text())
    }

    ours = {
        name for name in families if not name.startswith(("process_", "python_"))
    }  # the page names those of the library as such
    assert {name for name in ours if not any(metric.startswith(name) for metric in named)} == set()


def test_every_resource_that_is_shown_is_taken() -> None:
    wrong = {_name(page): said for page in DOCUMENTS if (said := _refusals(page))}

    assert wrong == {}


def _refusals(page: Path) -> list[str]:
    """Return what is said against the resources of a page."""
    said = []
    try:
        for resource in _resources(page):
            if resource.spec.model.config_map_ref is None:
                resolve(Question(resource=resource, config_text=_as_read(resource)))
    except InputError as error:
        said.append(str(error))
    return said


def _as_read(resource: ShardedModel) -> str | None:
    """Return a config in the place of the one that a cluster would read from the hub, None for a
    model that is known.
    """
    return (
        None
        if resource.spec.model.config or find_model(resource.spec.model.id)
        else json.dumps(a_config())
    )


def test_every_document_that_the_code_names_exists() -> None:
    sources = [path.read_text() for path in (ROOT / "operator" / "shardwright").rglob("*.py")]
    named = {
        name for text in sources for name in re.findall(r"docs/[\w/-]+\.md", text)
    } - OTHERS_DOCUMENTS

    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_numbers_of_the_readme_are_counted() -> None:
    (models,) = re.findall(r"(\d+) model ids", README.read_text())
    (nodes,) = re.findall(r"cluster of (\d+) GPU nodes", README.read_text())
    fleet = (ROOT / "examples" / "fleet" / "nodes.yaml").read_text()

    assert (int(models), int(nodes)) == (len(known_ids()), fleet.count("\n  kind: Node\n"))


def _replayed(block: "re.Match[str]", run: Callable[[list[str]], tuple[int, str]]) -> str:
    """Return a console block with the real output of our own commands, abridged where it was
    abridged.
    """
    if block[1] != "console":
        return block[0]
    taken, code = list(steps(block[2])), 0
    for step in taken:
        words = shlex.split(step.command.replace("\\\n", ""))
        if PurePath(words[0]).name == "shardwright":
            code, said = run(words[1:])
            step.shown = _abridged(said.splitlines(), step.shown)
        elif step.command == "echo $?":
            step.shown = [str(code)]
    lines = (line for step in taken for line in (f"$ {step.command}", *step.shown))
    return "\n".join(["```console", *lines, "```"])


def _abridged(real: list[str], shown: list[str]) -> list[str]:
    """Return as many lines as are shown, and the ``...`` that ends them; all of them where nothing
    was left out.
    """
    if not shown or shown[-1] != ABRIDGED:
        return real
    return [*real[: len(shown) - 1], ABRIDGED]


def _blocks(page: Path, language: str) -> Iterator[str]:
    yield from (text for name, text in FENCE.findall(page.read_text()) if name == language)


def _is_beside(page: Path, target: str) -> bool:
    return (page.parent / target).exists()


def _links(page: Path) -> list[str]:
    return LINK.findall(_without_blocks(page))


def _fields(page: Path) -> set[str]:
    named = {"".join(found) for code in _codes(page) for found in FIELD.findall(code)}
    return named - OTHERS_FIELDS


def _without_blocks(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def _codes(page: Path) -> Iterator[str]:
    """Yield what is set as code: every line of the blocks, and the spans of the text."""
    yield from (line for _, text in FENCE.findall(page.read_text()) for line in text.splitlines())
    yield from CODE.findall(_without_blocks(page))


def _per_gpu(table: list[str]) -> float:
    """Return the tokens a second and GPU in the one row of a wide table."""
    head, row = (re.split(r" {2,}", line.strip()) for line in table)
    cells = dict(zip(head, row, strict=False))
    return float(cells["TOK/S"].replace(",", "")) / float(cells["GPUS"])


def _leads_somewhere(page: Path, target: str) -> bool:
    if "://" in target or target.startswith("mailto:"):
        return True
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.exists() or not path.is_relative_to(ROOT):
        return False
    return not anchor or anchor in {
        _anchor(heading) for heading in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    }


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _metrics() -> set[str]:
    """Return every series name that can be scraped, and the families' names."""
    kinds = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
    families = list(Metrics().registry.collect())
    return {f"{one.name}{end}" for one in families for end in ("", *kinds.get(one.type, ()))}


def _is_field(path: str) -> bool:
    top, *steps = path.replace("[]", ".[]").split(".")
    schema: Schema | None = spec_schema() if top == "spec" else status_schema()
    for step in steps:
        schema = _child(schema, step) if schema is not None else None
    return schema is not None


def _child(schema: Schema, step: str) -> Schema | None:
    if step == "[]":
        return schema.get("items")
    child: Schema | None = schema.get("properties", {}).get(
        step, schema.get("additionalProperties")
    )
    return {} if child is None and schema.get("x-kubernetes-preserve-unknown-fields") else child


def _resources(page: Path) -> Iterator[ShardedModel]:
    for text in _blocks(page, "yaml"):
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and document.get("kind") == "ShardedModel":
                yield parse_manifest(document)
