"""``predict``: every line gets its answer under its own id, whatever is wrong with the others."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli.main import main
from shardwright.engines.registry import BY_LOWER_NAME
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.computed import STORED
from tests.support.builders_plan import CONFIGS

CASE: dict[str, Any] = {
    "id": "a",
    "model": {"config": CONFIGS["llama-8b"]},
    "weights": "bf16",
    "kvCache": "auto",
    "engine": {"name": "vllm", "version": "0.18.0"},
    "hardware": {
        "gpuProduct": "NVIDIA-H100-80GB-HBM3",
        "gpusPerNode": 8,
        "nodes": 1,
        "nvlinkDomainGpus": None,
    },
    "parallelism": {"tensor": 2, "pipeline": 1, "expert": 1, "attentionData": 1, "replicas": 1},
    "workload": {
        "inputTokens": 1024,
        "outputTokens": 256,
        "arrival": "ClosedLoop",
        "concurrency": 16,
    },
}


def _case(**changes: Any) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(json.dumps(CASE))
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = case
        for parent in parents:
            part = part[parent]
        part[last] = value
    return case


def _predict(tmp_path: Path, *lines: object, code: int = 0) -> list[dict[str, Any]]:
    cases, answers = tmp_path / "cases.jsonl", tmp_path / "answers.jsonl"
    cases.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    )
    assert main(["predict", "--input", str(cases), "--output", str(answers)]) == code
    return [json.loads(line) for line in answers.read_text().splitlines()]


def test_an_answer_has_what_the_ground_truth_asks_for(tmp_path: Path) -> None:
    (answer,) = _predict(tmp_path, CASE)

    assert answer["id"] == "a"
    assert (answer["fits"], answer["reasons"]) == (True, [])
    assert set(answer["memory"]) == {
        "weightsGiB",
        "activationsGiB",
        "overheadGiB",
        "kvCacheGiB",
        "kvCacheTokens",
    }
    speed = answer["performance"]
    assert speed["low"] < speed["outputTokensPerSecond"] < speed["high"]
    assert speed["requestsPerSecond"] == pytest.approx(
        speed["outputTokensPerSecond"] / 256, rel=1e-4
    )
    assert speed["basis"] == "fitted"


def test_a_bad_line_gets_an_error_under_its_id_and_stops_nothing(tmp_path: Path) -> None:
    lines = (
        "{",
        "[]",
        _case(id=7, parallelism__tensor=0),
        _case(id="x", hardware__gpuProduct="GTX"),
        _case(id="last"),
    )

    answers = _predict(tmp_path, *lines, code=2)

    assert [answer["id"] for answer in answers] == [None, None, 7, "x", "last"]
    assert [[reason["code"] for reason in answer.get("error", [])] for answer in answers] == [
        ["CaseInvalid"],
        ["CaseInvalid"],
        ["CaseInvalid"],
        ["GpuUnknown"],
        [],
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("parallelism__tensr", "parallelism.tensr: is not a field of a case; did you mean tensor?"),
        ("engine__version!", "engine.version!: is not a field of a case; did you mean version?"),
    ],
)
def test_a_field_that_is_not_known_is_refused_with_the_one_that_was_probably_meant(
    tmp_path: Path, path: str, message: str
) -> None:
    (answer,) = _predict(tmp_path, _case(**{path: 8}), code=2)

    assert answer["error"] == [{"code": "CaseInvalid", "message": f"line 1: {message}"}]


@pytest.mark.parametrize("value", [None, 1])
@pytest.mark.parametrize(
    "path", ["foo", "kv_cache", "hardware__gpus_per_node", "workload__foo", "model__foo"]
)
def test_a_field_that_no_case_has_is_refused_even_if_it_is_null(
    tmp_path: Path, path: str, value: object
) -> None:
    (answer,) = _predict(tmp_path, _case(**{path: value}), code=2)

    at = path.replace("__", ".")
    (error,) = answer["error"]
    assert error["message"].startswith(f"line 1: {at}: is not a field of a case")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("hardware", None, "hardware: is not set and has no default; set it"),
        (
            "workload__outputTokens",
            float("nan"),
            "workload.outputTokens: NaN must be from 1 to 10,000,000; set it to 1 or more",
        ),
        (
            "hardware__nodes",
            10**7,
            "hardware.nodes: 10,000,000 must be from 1 to 100,000, 9,900,000 too many; set it to 100,000 or less",
        ),
        (
            "workload__inputTokens",
            10**400,
            "workload.inputTokens: a very large number must be from 1 to 10,000,000; set it to 10,000,000 or less",
        ),
        (
            "parallelism__tensor",
            float("inf"),
            "parallelism.tensor: a very large number must be from 1 to 10,000,000; set it to 10,000,000 or less",
        ),
        (
            "parallelism__tensor",
            float("nan"),
            "parallelism.tensor: NaN must be from 1 to 10,000,000; set it to 1 or more",
        ),
    ],
)
def test_a_refusal_says_the_bounds(tmp_path: Path, path: str, value: object, message: str) -> None:
    (answer,) = _predict(tmp_path, _case(**{path: value}), code=2)

    assert [error["message"] for error in answer["error"]] == [f"line 1: {message}"]


@pytest.mark.parametrize(
    ("case", "code", "path"),
    [
        ({"parallelism__attentionData": 2}, "AttentionDataNeedsExperts", "attentionData"),
        ({"workload__inputTokens": 9_000_000, "weights": "fp8"}, "KvCacheTooSmall", "maxModelLen"),
    ],
)
def test_an_answer_calls_the_fields_what_the_case_calls_them(
    tmp_path: Path, case: dict[str, Any], code: str, path: str
) -> None:
    (answer,) = _predict(tmp_path, _case(engine__name="sglang", **case))

    assert code in [reason["code"] for reason in answer["reasons"]]
    assert path in [reason["message"].partition(": ")[0] for reason in answer["reasons"]]


@pytest.mark.parametrize("stored", STORED)
def test_every_form_that_weights_can_be_stored_in_is_taken(tmp_path: Path, stored: str) -> None:
    (answer,) = _predict(tmp_path, _case(weights=stored))

    assert "error" not in answer


def test_every_field_that_a_case_may_have_is_read(tmp_path: Path) -> None:
    """What the scorer of the published measurements sends, nulls among it."""
    case = _case(
        model__name="Llama-3.1-8B",
        weights="fp8",
        kvCache="fp8",
        hardware__nvlinkDomainGpus=None,
        parallelism={"tensor": 1, "pipeline": 1, "expert": 1, "attentionData": 1, "replicas": 1},
        workload__arrival="Saturated",
        workload__concurrency=None,
        maxModelLen=None,
        memoryUtilization=0.9,
    )
    case["model"]["config"] = {**case["model"]["config"], "of_this_model_alone": 1}

    (answer,) = _predict(tmp_path, case)

    assert answer["fits"] is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "line 2: must be a JSON object, and is not valid JSON at character 1"),
        ('{"id": }', "line 2: must be a JSON object, and is not valid JSON at character 8"),
        ("[]", "line 2: must be a JSON object"),
        ('{"id": 1e400}', "line 2: id: must have no number that is infinite or NaN"),
        ('{"id": [NaN]}', "line 2: id: must have no number that is infinite or NaN"),
    ],
)
def test_a_line_that_is_no_json_is_named_once_in_our_words(
    tmp_path: Path, line: str, message: str
) -> None:
    _, answer = _predict(tmp_path, CASE, line, code=2)

    assert answer["error"] == [{"code": "CaseInvalid", "message": message}]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("workload__inputTokens", -1),
        ("workload__inputTokens", "many"),
        ("workload__outputTokens", float("nan")),
        ("workload__inputTokens", 10**400),
        ("workload__concurrency", True),
        ("workload__arrival", "Poisson"),
        ("parallelism__tensor", 1.5),
        ("parallelism__tensor", "2"),
        ("parallelism__attentionData", 3),
        ("parallelism__expert", 3),
        ("weights", "fp3"),
        ("kvCache", "fp3"),
        ("hardware", None),
        ("engine__name", "llama.cpp"),
        ("engine__version", 7),
        ("model__config", []),
        ("memoryUtilization", "all"),
    ],
)
def test_every_field_is_held_to_its_bounds(tmp_path: Path, path: str, value: object) -> None:
    (answer,) = _predict(tmp_path, _case(**{path: value}), code=2)

    assert answer["error"][0]["code"] == "CaseInvalid"
    assert answer["error"][0]["message"].startswith(f"line 1: {path.replace('__', '.')}: ")


def test_a_case_by_id_alone_is_the_one_written_out(tmp_path: Path) -> None:
    """What is left out is as ``plan`` takes it."""
    model = "meta-llama/Llama-3.1-8B-Instruct"
    entry = find_model(model)
    assert entry is not None
    short = {"model": model, "hardware": {"gpuProduct": "H100"}, "parallelism": {"tensor": 4}}
    whole = {
        "model": {"config": dict(entry.config)},
        "engine": {"name": "vllm", "version": None},
        "hardware": {"gpuProduct": "NVIDIA-H100-80GB-HBM3", "gpusPerNode": 8, "nodes": 1},
        "parallelism": {"tensor": 4},
        "workload": {"inputTokens": 2048, "outputTokens": 512, "concurrency": 64},
    }

    one, named, other = _predict(tmp_path, short, {**short, "model": {"id": model}}, whole)

    assert one == named == other
    assert one["fits"]


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ("meta-llama/Llama-3.1-8X", "model.id: 'meta-llama/Llama-3.1-8X' is not among the"),
        (
            {"id": "a/b", "config": {"a": 1}},
            'model: {"id": "a/b", "config": {"a": 1}} must have either an id or a config',
        ),
        ({}, "model: {} must have either an id or a config"),
        (7, "model: 7 must be an object"),
    ],
)
def test_a_model_is_named_by_one_id_that_is_known_or_by_its_config(
    tmp_path: Path, model: object, start: str
) -> None:
    (answer,) = _predict(tmp_path, _case(model=model), code=2)

    (error,) = answer["error"]
    assert error["message"].startswith(f"line 1: {start}")


def test_what_does_not_fit_says_why_and_is_no_error(tmp_path: Path) -> None:
    (answer,) = _predict(tmp_path, _case(model__config=CONFIGS["llama-405b"]))

    assert answer["fits"] is False
    assert [reason["code"] for reason in answer["reasons"]] == ["WeightsExceedMemory"]


def test_the_file_of_the_cases_is_not_overwritten_while_it_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(CASE) + "\n")

    assert (
        main(["predict", "--input", str(cases), "--output", str(tmp_path / "." / "cases.jsonl")])
        == 2
    )

    assert cases.read_text() == json.dumps(CASE) + "\n"
    assert "cannot be read and written at once" in capsys.readouterr().err


def test_a_line_that_is_no_text_stops_no_other_and_a_mark_of_the_encoding_is_no_text(
    tmp_path: Path,
) -> None:
    cases, answers = tmp_path / "cases.jsonl", tmp_path / "answers.jsonl"
    line = json.dumps(CASE).encode()
    cases.write_bytes(b"\xef\xbb\xbf" + line + b"\n\xff\n" + line + b"\n")

    assert main(["predict", "--input", str(cases), "--output", str(answers)]) == 2

    assert ["error" in json.loads(line) for line in answers.read_text().splitlines()] == [
        False,
        True,
        False,
    ]


def test_stdin_and_stdout_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(CASE) + "\n\n"))

    assert main(["predict"]) == 0

    out, err = capsys.readouterr()
    assert (json.loads(out)["id"], err) == ("a", "")


def test_who_types_cases_is_told_that_they_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Keyboard(""))

    assert main(["predict"]) == 0
    assert capsys.readouterr().err == (
        "note: cases are read from here: one JSON object per line, Ctrl-D at the end\n"
    )


def test_a_file_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--input", "no.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "error[FileUnreadable]: no.jsonl: No such file or directory; name a file that you may "
        "open\n"
    )


@pytest.mark.parametrize("engine", BY_LOWER_NAME)
def test_neither_name_nor_version_string_changes_a_prediction(tmp_path: Path, engine: str) -> None:
    """A renamed model and an unknown version of the same month are predicted alike: nothing is
    keyed by either.
    """
    config = CONFIGS["deepseek-v3"]
    case = _case(
        model__config=config,
        weights="fp8",
        parallelism__tensor=8,
        hardware__gpuProduct="NVIDIA-H200",
    )
    known = case | {
        "engine": {"name": engine, "version": "nightly-20260216"},
        "model": {"config": config, "name": "DeepSeek-V3"},
    }
    other = case | {
        "engine": {"name": engine, "version": "fork 2026-02 of somebody"},
        "model": {"config": config, "name": "Q"},
    }

    one, two = _predict(tmp_path, known, other)

    for band in ("low", "high"):
        one["performance"].pop(band), two["performance"].pop(band)
    assert one == two


def test_the_attention_data_degree_lives_inside_the_tensor_degree(tmp_path: Path) -> None:
    """Eight GPUs with attention data 8 hold eight batches; as eight tensor ranks they share one."""
    case = _case(
        model__config=CONFIGS["deepseek-v3"], weights="fp8", hardware__gpuProduct="NVIDIA-H200"
    )
    case["parallelism"] |= {"tensor": 8, "expert": 8}
    case["workload"] |= {"concurrency": 512}
    spread = json.loads(json.dumps(case))
    spread["parallelism"]["attentionData"] = 8

    shared, own = _predict(tmp_path, case, spread)

    assert own["fits"]
    assert (
        own["performance"]["outputTokensPerSecond"] > shared["performance"]["outputTokensPerSecond"]
    )


def test_prompts_and_answers_apart_are_one_answer_of_all_their_groups(tmp_path: Path) -> None:
    alike = {"workers": 2, "parallelism": {"tensor": 2}}
    halves = {"prefill": alike | {"workers": 1}, "decode": alike}
    apart = _case(workload__concurrency=32) | {"parallelism": None, "disaggregation": halves}
    whole = _case(workload__concurrency=32, parallelism__replicas=2)

    pair, beside = (answer["performance"] for answer in _predict(tmp_path, apart, whole))

    # No prompt holds up a token, but the GPUs for prompts bring none.
    assert pair["tpotSeconds"] < beside["tpotSeconds"]
    assert pair["basis"] == "modelled"
    served = 32 / (pair["ttftSeconds"] + 255 * pair["tpotSeconds"])
    assert pair["requestsPerSecond"] == pytest.approx(served, rel=0.01)


def test_a_case_is_whole_or_apart(tmp_path: Path) -> None:
    halves: dict[str, Any] = {"prefill": {}, "decode": {}}

    (answer,) = _predict(tmp_path, CASE | {"disaggregation": halves}, code=2)

    assert "either parallelism or disaggregation" in answer["error"][0]["message"]


def test_a_static_batch_gains_nothing_from_overlap_in_a_pipeline(tmp_path: Path) -> None:
    """All requests travel together, so no two stages work at once."""
    flat = _case(workload__arrival="StaticBatch", workload__concurrency=4, parallelism__tensor=1)
    deep = _case(
        workload__arrival="StaticBatch",
        workload__concurrency=4,
        parallelism__tensor=1,
        parallelism__pipeline=4,
    )

    one, four = _predict(tmp_path, flat, deep)

    assert (
        four["performance"]["outputTokensPerSecond"] <= one["performance"]["outputTokensPerSecond"]
    )


def test_weights_as_stated_go_before_the_config(tmp_path: Path) -> None:
    whole, half, quarter = _predict(
        tmp_path, *(_case(weights=name) for name in ("bf16", "fp8", "int4"))
    )

    assert (
        whole["memory"]["weightsGiB"]
        > 1.7 * half["memory"]["weightsGiB"]
        > 2.5 * quarter["memory"]["weightsGiB"]
    )
