"""The page of a plan: every number of it stands in the document that it is made of, and no text
does anything to it.
"""

import io
import json
from contextlib import redirect_stdout
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from shardwright.cli.main import main
from shardwright.pages.charts import curve
from shardwright.pages.document import COUNT, SECONDS, at
from shardwright.pages.growth import growth
from shardwright.pages.page import plan_page
from tests.support import example_fleet
from tests.support.builders_cli import Files, a_listed_node, a_manifest
from tests.support.builders_resource import a_sharded_model
from tests.support.hostile_text import HOSTILE, is_harmless

Capture = pytest.CaptureFixture[str]
ROOT: Final = Path(__file__).parents[3]
MODEL = ("-f", str(ROOT / "manifests" / "samples" / "llama-405b.yaml"))
NODES = ("--nodes", str(ROOT / "examples" / "fleet" / "nodes.yaml"))
PAGE_MAX_BYTES: Final = 1_500_000
MARKUP = "<b onclick=x>&\"'</script><!--"


class Read(HTMLParser):
    """What a page holds: its elements, its figures by path, its embedded documents, its visible
    text.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[tuple[str, str, str]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self._inside: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag, dict(attrs)
        self.tags.append(self._inside)
        if tag == "data":
            self.figures.append(
                (self._inside[1]["data-path"] or "", self._inside[1]["value"] or "", "")
            )

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the base class names it
        self._inside = ("", {})

    def handle_data(self, data: str) -> None:
        tag, attributes = self._inside
        if tag == "data":
            path, value, shown = self.figures[-1]
            self.figures[-1] = (path, value, shown + data)
        if tag == "script":
            self.scripts[attributes.get("id") or "code"] = data
        elif tag != "style":
            self.text += data


@cache
def printed(*words: str) -> str:
    """Return what a command prints; a report takes seconds, and is the same each time."""
    with redirect_stdout(io.StringIO()) as out:
        main(list(words))
    return out.getvalue()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Read]:
    """Return what is said of a model on the H100 nodes of the example fleet, some of which cannot
    be used: a report prices every layout of every product 63 times.
    """
    items = [
        item
        for item in example_fleet.fleet()["items"]
        if item["metadata"]["name"].startswith("ip-")
    ]
    file = tmp_path_factory.mktemp("h100") / "nodes.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    words = (*MODEL, "--nodes", str(file))
    (document,) = json.loads(printed("explain", *words, "-o", "json"))["items"]
    return document, Read(printed("report", *words))


def test_the_page_of_a_model_whose_bytes_are_stated_shows_no_speed(tmp_path: Path) -> None:
    stated = {"weightBytes": 600 * 10**9, "kvBytesPerToken": 35136}
    model = {"id": "acme/day-zero", "unproven": stated}
    file = Files(tmp_path).manifests(
        a_sharded_model(model=model, parallelism={"tensor": 8, "pipeline": 2})
    )
    page = Read(printed("report", "-f", file, "--gpus", "16xH100"))

    shown = {path for path, _, _ in page.figures}
    assert {"plan.gpus", "plan.memory.kvCacheTokens"} <= shown
    assert [path for path in shown if "predicted" in path or "Second" in path] == []


def test_every_number_of_the_page_is_the_one_of_explain(llama: tuple[dict[str, Any], Read]) -> None:
    document, page = llama

    assert json.loads(page.scripts["explanation"]) == document
    assert [path for path, value, _ in page.figures if str(at(document, path)) != value] == []
    assert {".".join(path.split(".")[:2]) for path, _, _ in page.figures} == {
        "plan.predicted",
        "plan.gpus",
        "plan.memory",
        "plan.overLoad",
        "plan.overSpeed",
        "explanation.links",
        "explanation.memory",
        "explanation.times",
        "explanation.exclusions",
        "explanation.candidates",
    }


def test_the_plan_is_marked_on_both_curves_at_the_load_that_was_asked_for() -> None:
    words = ("meta-llama/Llama-3.1-8B-Instruct", "--gpus", "16xH100,8xL40S", "--rps", "20")
    (document,) = json.loads(printed("explain", *words, "-o", "json"))["items"]

    drawn, best = growth(document), curve(document, None)

    assert drawn
    assert best
    gpus, steps = document["plan"]["gpus"], document["plan"]["overLoad"]
    last = steps[-1]
    chosen = drawn.points[-1]
    assert (chosen.kind, chosen.title) == ("chosen", f"the plan: {gpus} GPUs for 20.0 requests/s")
    assert (chosen.x, chosen.y) == (
        round(100 * 20 / last["requestsPerSecond"], 2),
        100 - round(100 * gpus / last["gpus"], 2),
    )
    assert len(drawn.lines) == 2 * last["replicas"]
    assert [row.planned for row in drawn.rows].count(True) == 1
    assert drawn.price == "price in H100s"
    assert [point.kind for point in best.points].count("chosen") == 1


def test_a_plan_in_more_instances_than_carry_the_load_is_marked_among_the_layouts() -> None:
    (document,) = json.loads(printed("explain", *MODEL, *NODES, "-o", "json"))["items"]
    document["explanation"]["candidates"] = []

    best = curve(document, None)

    assert best
    assert len(best.points) == len(document["plan"]["overSpeed"])
    assert best.points[-1].kind == "chosen"


def test_what_is_shown_is_that_number(llama: tuple[dict[str, Any], Read]) -> None:
    document, page = llama
    shown = {path: text for path, _, text in page.figures}
    predicted = document["plan"]["predicted"]

    assert (
        shown["plan.predicted.outputTokensPerSecond"]
        == COUNT(predicted["outputTokensPerSecond"])
        == "745"
    )
    assert (
        shown["plan.predicted.ttftMilliseconds"]
        == SECONDS(predicted["ttftMilliseconds"] / 1000)
        == "1.8 s"
    )
    assert shown["explanation.memory.0.weightsBytes"] == "47.3"
    assert shown["explanation.links.0.busy"] == "11%"


def test_the_loads_of_the_sliders_are_planned_as_explain_plans_them() -> None:
    typed = ("meta-llama/Llama-3.1-70B-Instruct", "--gpus", "16xH100")
    loads = json.loads(Read(printed("report", *typed)).scripts["loads"])
    values = {axis["field"]: axis["values"] for axis in loads["axes"]}

    assert values == {
        "concurrency": [8, 16, 32, 64, 128, 256, 512],
        "inputTokens": [1024, 2048, 4096],
        "outputTokens": [256, 512, 1024],
    }
    assert loads["base"] == [3, 1, 1]
    for arrival, inputs, outputs in ((0, 0, 0), (3, 1, 1), (6, 2, 1)):
        load = (
            values["concurrency"][arrival],
            values["inputTokens"][inputs],
            values["outputTokens"][outputs],
        )
        options = zip(
            ("--concurrency", "--input-tokens", "--output-tokens"), map(str, load), strict=True
        )
        document = json.loads(
            printed("explain", *typed, *(word for pair in options for word in pair), "-o", "json")
        )["items"][0]
        chosen = next(one for one in document["explanation"]["candidates"] if one["chosen"])
        point = loads["points"][(arrival * 3 + inputs) * 3 + outputs]

        assert loads["layouts"][point["chosen"]] == [
            chosen["layout"],
            chosen["pool"],
            chosen["gpus"],
        ]
        assert {
            key: point[key] for key in ("ttftSeconds", "tpotSeconds", "outputTokensPerSecond")
        } == {
            key: chosen["speed"][key]
            for key in ("ttftSeconds", "tpotSeconds", "outputTokensPerSecond")
        }


def test_a_load_that_the_resource_does_not_take_says_why() -> None:
    typed = ("meta-llama/Llama-3.1-8B-Instruct", "--gpus", "8xH100", "--max-model-len", "3000")
    points = json.loads(Read(printed("report", *typed)).scripts["loads"])["points"]

    assert points[-1] == {
        "problem": (
            "3,000 must be at least 5,120 (inputTokens 4,096 + outputTokens 1,024); raise "
            "maxModelLen or lower the other two"
        ),
        "speeds": [],
    }


def test_nothing_is_fetched_and_no_style_or_script_but_ours_is_allowed(
    llama: tuple[dict[str, Any], Read],
) -> None:
    _, page = llama
    policy = next(
        attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv")
    )

    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    links = {
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in {"href", "src"}
    }
    assert links == {"#plan", "data:,"}
    assert [
        attributes
        for _, attributes in page.tags
        if "style" in attributes or "onclick" in attributes
    ] == []


@pytest.mark.long("5 s: 500 layouts are priced for each of seven loads")
def test_five_hundred_layouts_are_a_page_of_less_than_one_and_a_half_megabytes() -> None:
    many = ("--gpus", "64xH100", "--gpus", "64xB200", "--gpus", "64xH200")
    page = printed("report", "deepseek-ai/DeepSeek-V3", *many)
    read = Read(page)

    assert len(json.loads(read.scripts["explanation"])["explanation"]["candidates"]) > 500
    assert len(page.encode()) < PAGE_MAX_BYTES


def test_where_nothing_fits_the_page_says_so_and_why(capsys: Capture) -> None:
    code = main(["report", "meta-llama/Llama-3.1-405B-Instruct", "--gpus", "2xL40S"])
    page = Read(capsys.readouterr().out)

    assert code == 1
    assert "nothing fits." in page.text
    assert "WeightsExceedMemory" in page.text


def test_text_that_means_harm_is_text() -> None:
    """Every text of the document is replaced: nothing but our own elements comes out, and nothing
    that steers.
    """
    document = json.loads(printed("explain", *MODEL, *NODES, "-o", "json"))["items"][0]
    plain = Read(plan_page(document))
    words = {"kind", "code", "rules", "part", "carriesLoad", "label"}

    def hostile(value: Any, text: str) -> Any:
        if isinstance(value, dict):
            return {
                key: item if key in words else hostile(item, text) for key, item in value.items()
            }
        if isinstance(value, list):
            return [hostile(item, text) for item in value]
        return text if isinstance(value, str) else value

    for text in (*HOSTILE.values(), MARKUP):
        page = plan_page(hostile(document, text[:2000]))
        read = Read(page)
        assert page.isascii()
        assert is_harmless(page)
        assert {tag for tag, _ in read.tags} <= {tag for tag, _ in plain.tags}
        assert {name for _, attributes in read.tags for name in attributes} <= {
            name for _, attributes in plain.tags for name in attributes
        }
        assert json.loads(read.scripts["explanation"]) == hostile(document, text[:2000])


def test_no_page_is_printed_into_a_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    assert main(["report", "meta-llama/Llama-3.1-8B-Instruct", "--gpus", "2xH100"]) == 2

    assert capsys.readouterr() == (
        "",
        (
            "error[NotAllowed]: the page is HTML for a browser, not for a terminal; redirect it: > "
            "plan.html\n"
        ),
    )


def test_several_models_are_refused_with_the_way_out(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = Files(tmp_path)
    model = files.manifests(a_manifest("one"), a_manifest("two"))
    nodes = files.cluster([a_listed_node("n1")])

    assert main(["report", "-f", model, "--nodes", nodes]) == 2
    assert capsys.readouterr().err == (
        "error[NotTogether]: -f: 2 ShardedModels are there and a report shows one; make one for "
        "each: one, two\n"
    )
