"""Questions of people who meet the command line for the first time: each is answered on one screen
of 25 lines, stderr included, and the screen says what matters.
"""

from pathlib import Path
from typing import Final

import pytest

from shardwright.cli.main import main

Capture = pytest.CaptureFixture[str]

L8: Final = "meta-llama/Llama-3.1-8B-Instruct"
L70: Final = "meta-llama/Llama-3.1-70B-Instruct"
L405: Final = "meta-llama/Llama-3.1-405B-Instruct"
FLEET: Final = "--nodes examples/fleet/nodes.yaml"
SAMPLES: Final = sorted(Path("manifests/samples").glob("*.yaml"))

QUESTIONS: Final = [
    # What should run for a load? Single GPUs, not one replica over nodes.
    (f"plan {L8} --gpus 64xH100 --rps 50",
     ("10 x TP1 on 10 H100-SXM-80GB of 2 nodes|Can serve 67.5 requests/s|10% less per GPU"
     "|gated: accept its terms|-o manifest | kubectl apply")),
    (f"plan {L8} --gpus 8xH100 --rps 30", "6 x TP1 on 6|headroom 26%"),
    (f"plan {L70} --gpus 16xH100 --rps 10", "|CAN SERVE SURE|Next shardwright plan"),
    (f"plan {L8} --gpus 8xH100 --concurrency 182", "TP1 on 1 H100-SXM-80GB of 1 node"),
    ("plan openai/gpt-oss-120b --gpus 8xH100 --rps 15", "of 1 node|headroom"),
    ("plan Qwen/Qwen3-235B-A22B --gpus 16xH200 --rps 60 --ttft 60s --optimize-for Latency",
     "Objective Latency, first token within 60 s"),
    (f"plan {L70} --gpus 4xL40S,8xH100 --rps 3 --ttft 2s", "Price as much as"),
    # A load that is not carried is not told to be applied.
    (f"plan {L8} --gpus 1xH100 --rps 50",
     (f"1 of 10 replicas fit; it does not carry the load|10 x TP1 would do (10 GPUs, 1 free)"
     f"|Next shardwright size {L8} --gpus H100 --rps 50")),
    (f"plan {L8} --gpus 8xH100 --rps 50 --replicas 1",
     f"more arrives than is served at most|Next shardwright size {L8} --gpus H100 --rps 50"),
    (f"plan {L70} --gpus 8xH100 --rps 100000", "it does not carry the load|Next shardwright size"),
    # What somebody runs today, beside the best.
    (f"plan {L8} --gpus 8xH100 --tp 4 --replicas 2 --rps 30",
     ("2 x TP4 on 8|Best 6 x TP1 on 6 H100-SXM-80GB by Balanced: costs 25% less"
     "|40.5/s ±11% 280 ms 18 ms the best|39.7/s ±11% 210 ms 12 ms pinned")),
    (f"predict {L8} --gpus 8xH100 --tp 4 --replicas 2 --rps 30",
     "2 x TP4 on 8|Best 6 x TP1 on 6|Next shardwright plan"),
    (f"size {L8} --gpus H100 --tp 2 --rps 50",
     "12 x H100-SXM-80GB are enough|Best 10 x TP1 on 10 H100-SXM-80GB by Balanced: costs 17% less"),
    (f"plan {L70} --gpus 8xH100,8xL40S,4xMI300X --tp 4 --rps 10",
     "2 of 4 replicas fit|no better than predictions tell apart"),
    ("plan deepseek-ai/DeepSeek-V3 --gpus 16xH200 --ep 16 --dp 16", "EP16|Best "),
    (f"plan {L8} --gpus 64xH100 --rps 50 --replicas 40",
     "Costly without --replicas: 10 x TP1 on 10 H100-SXM-80GB, 75% cheaper"),
    (f"plan {L8} --gpus 8xH100 --rps 30 --replicas 0",
     "replicas is 0, nothing runs|Can serve nothing: replicas is 0|If started 40.5 requests/s"),
    # Nothing fits: the nearest miss, and only what helps.
    (f"plan {L70} --gpus 8xH100 --tp 3", "it would fit without --tp: TP4 on 4|TP3"),
    (f"plan {L8} --gpus 8xH100 --tp 8 --pp 2 --rps 1",
     "without --tp: PP2 on 2|without --pp: TP8 on 8|with --gpus 16xH100-SXM-80GB"),
    (f"plan {L70} --gpus 8xH100 --rps 10 --tpot 5ms",
     "Way out it would fit without --tpot|Outlook waiting does not help"),
    (f"plan {L405} --gpus 4xL40S --tp 8", "Outlook waiting does not help"),
    (f"plan {L70} --gpus 1xH100 --rps 5", "it would fit with --gpus 8xH100-SXM-80GB"),
    # How many GPUs? As many as plan takes, with the whole nodes and how sure that is.
    (f"size {L8} --rps 50", "B200-SXM-180GB 5 75.7/s (70\N{EN DASH}87) fitted|BOUGHT: of the whole"),
    (f"size {L8} --rps 50 --gpus H100",
     "10 x H100-SXM-80GB are enough|10 10 54.0 requests/s|2 x 8|(±11%, fitted)|--gpus 16xH100-SXM-80GB"),
    (f"size {L8} --rps 30 --gpus 16xH100 --tp 4",
     "8 x H100-SXM-80GB are enough|39.7/s|Next shardwright plan|--tp 4"),
    (f"size {L70} --rps 10 --gpus 8xH100,8xL40S,4xMI300X",
     ("these are not enough for the load|6.89/s|serves 6.89 of 10 requests a second"
     "|Next shardwright size")),
    (f"size {L405} --ttft 1ms", "H100-SXM-80GB: TTFT limit exceeded"),
    (f"size {L405} --rps 3 --gpus H100,MI300X,H200", "4.02/s (2.2\N{EN DASH}5.8)|(±45%, modelled)"),
    *((f"plan -f {sample} {FLEET}", "Next ") for sample in SAMPLES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "facts", "columns"),
    [
        *((*question, "80") for question in QUESTIONS),
        *((*question, "120") for question in QUESTIONS[::6]),
    ],
)
def test_a_question_is_answered_on_one_screen(
    words: str, facts: str, columns: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    main(words.split())

    out, err = capsys.readouterr()
    said = " ".join(out.replace("\\\n", " ").split())
    assert len([*out.splitlines(), *err.splitlines()]) <= 25
    assert [fact for fact in facts.split("|") if " ".join(fact.split()) not in said] == []


@pytest.mark.parametrize(
    "words",
    [
        f"{L70} --gpus 1xH100 --rps 5",
        f"{L70} --gpus 3xL40S --concurrency 4",
        f"{L405} --gpus 8xH100 --rps 1",
        pytest.param(
            "deepseek-ai/DeepSeek-V3 --gpus 8xH100,2xL40S --rps 10",
            marks=pytest.mark.long("looks for ways out on two kinds of GPU"),
        ),
        f"{L8} --gpus 8xH100 --tp 8 --pp 2 --rps 1",
    ],
)
def test_a_question_with_the_gpus_of_its_way_out_is_not_refused(
    words: str, capsys: Capture
) -> None:
    model, flag, _, *load = words.split()
    assert main(["plan", *words.split()]) == 1
    said = " ".join(capsys.readouterr().out.split())
    gpus = said.partition("with --gpus ")[2].split()[0]

    assert main(["plan", model, flag, gpus, *load]) == 0
    assert "replicas fit" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("plan meta-llama/Llama-3.1-8B-Instrct --gpus 8xH100 --offline",
         "the nearest are 'meta-llama/Llama-3.1-8B-Instruct'"),
        ("size meta-llama/Llama-3.1-8B-Instrct --offline -o json",
         "the nearest are 'meta-llama/Llama-3.1-8B-Instruct'"),
        ("models llam3.1-8b", "did you mean meta-llama/Llama-3.1-8B?"),
        ("models llam3.1-8b -o json", "did you mean meta-llama/Llama-3.1-8B?"),
        ("predict --gpus 8xH100 --tp 2", "--tp: describes a model that is not named"),
        ("predict -o json --input -", "-o: describes a model that is not named"),
        (f"predict {L8} --tp 2", "MODEL: no GPUs are named"),
        (f"predict {L8} --gpus 8xH100 --input -", "--input: is for cases, and a model is named"),
        (f"plan {L8} --gpus 8xH100 --tp 0", "--tp: "),
        (f"plan {L8} --gpus 8xH100 --rps -1", "--rps: "),
        (f"plan {L8} --gpus 0xH100", "--gpus: 0 GPUs must be from 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_told_the_way_out(words: str, facts: str, capsys: Capture) -> None:
    main(words.split())

    assert facts in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [f"{verb} {L8} --gpus 8xH100 --tp 4 -o json" for verb in ("plan", "predict", "size")]
)
def test_a_pinned_layout_stands_beside_the_best_one_as_json(words: str, capsys: Capture) -> None:
    main(words.split())

    assert '"standing": "Behind"' in capsys.readouterr().out
