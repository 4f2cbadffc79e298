"""What a checkpoint says of itself, from a hub that behaves and from one that does not."""

import ipaddress
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from cryptography.x509 import IPAddress

from shardwright.errors import InputError, Problem
from shardwright.hub import checkpoint, transfer
from shardwright.hub.checkpoint import Checkpoint, fetch
from shardwright.hub.places import Hub
from shardwright.hub.transfer import HubUnavailableError
from tests.support.builders_model import a_config
from tests.support.certificates import self_signed
from tests.support.loopback_hub import (
    COMMIT,
    OLDER,
    Handler,
    LoopbackHub,
    Repository,
    Site,
    a_hub,
    giving,
    serving,
)

CONFIG = json.dumps(a_config()).encode()
QUANTIZATION = json.dumps({"quantization": {"quant_algo": "FP8"}}).encode()
INDEX = json.dumps(
    {"metadata": {"total_size": 8_030_261_248}, "weight_map": {"lm_head.weight": "a.safetensors"}}
).encode()
RESOLVED = "/us/ours/resolve/main/config.json"


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with a_hub(us__ours=Repository(files={"config.json": CONFIG})) as served:
        yield served


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def as_client(hub: Site, token: str | None = None) -> Hub:
    return Hub(endpoint=hub.url, token=token, cache=Path("/nowhere"))


def refusal(
    hub: Site, token: str | None = None, *, model: str = "us/ours", revision: str | None = None
) -> Problem:
    """Return the one problem of a checkpoint that is not given, its addresses made the same in
    every run.
    """
    with pytest.raises(InputError) as caught:
        fetch(as_client(hub, token), model, revision)
    (problem,) = caught.value.problems
    return problem


def shown(problem: Problem, *sites: Site) -> str:
    """Return a problem as a sentence, with HUB and CDN in place of addresses."""
    sentence = f"{problem.code}: {problem.sentence()}"
    for site, name in zip(sites, ("HUB", "CDN"), strict=False):
        sentence = sentence.replace(site.url, name).replace(site.url.partition("://")[2], name)
    return sentence


def unavailable(hub: Site, *others: Site) -> str:
    with pytest.raises(HubUnavailableError) as caught:
        fetch(as_client(hub), "us/ours", None)
    return shown(caught.value.problem, hub, *others)


def test_the_files_are_of_the_commit_that_was_the_newest_when_the_first_was_read(
    hub: LoopbackHub,
) -> None:
    files = {
        "config.json": CONFIG,
        "hf_quant_config.json": QUANTIZATION,
        "model.safetensors.index.json": INDEX,
    }
    hub.repositories["us/ours"] = Repository(
        files=files, on_content_host=frozenset({"model.safetensors.index.json"})
    )

    found = fetch(as_client(hub), "us/ours", None)

    texts = {"config.json": CONFIG.decode(), "hf_quant_config.json": QUANTIZATION.decode()}
    assert found == Checkpoint(files=texts, commit=COMMIT, tensor_bytes=8_030_261_248)
    asked = [path for path, _ in hub.seen if "/resolve/" in path]
    assert asked == [RESOLVED, *(f"/us/ours/resolve/{COMMIT}/{file}" for file in list(files)[1:])]


def test_a_commit_that_is_named_is_read_and_what_it_does_not_have_is_left_out(
    hub: LoopbackHub,
) -> None:
    older = json.dumps(a_config(num_hidden_layers=4)).encode()
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG}, older={"config.json": older}
    )

    assert fetch(as_client(hub), "us/ours", OLDER) == Checkpoint(
        files={"config.json": older.decode()}, commit=OLDER, tensor_bytes=None
    )


def test_the_token_goes_to_the_hub_and_to_no_host_that_it_names(hub: LoopbackHub) -> None:
    repository = Repository(
        files={"config.json": CONFIG},
        readers=frozenset({"hf_reader"}),
        on_content_host=frozenset({"config.json"}),
    )
    hub.repositories["us/ours"] = repository

    fetch(as_client(hub, "hf_reader"), "us/ours", None)

    assert {token for _, token in hub.seen} == {"Bearer hf_reader"}
    assert [token for _, token in hub.content.seen] == [None]


def test_a_renamed_repository_is_followed(hub: LoopbackHub) -> None:
    hub.renamed = {"ours": "us/ours"}

    assert fetch(as_client(hub), "ours", None).commit == COMMIT


WITHOUT = "give its config.json with --config FILE (--offline asks nobody)"
OURS = {"config.json": CONFIG}
GATED = Repository(files=OURS, gated=True, readers=frozenset({"hf_reader"}))
NOT_THERE = "HubModelMissing: 'us/ours' is not on HUB, or is private; correct the id, or "
TERMS = "HubAccessDenied: 'us/ours' is gated on HUB; accept its terms at HUB/us/ours with "
REFUSALS = {
    "not there": (None, None, f"{NOT_THERE}set HF_TOKEN to a token that may read it"),
    "not there for this token": (None, "hf_reader", f"{NOT_THERE}use a token that may read it"),
    "private": (
        Repository(files=OURS, readers=frozenset({"hf_reader"})),
        "hf_stranger",
        f"{NOT_THERE}use a token that may read it",
    ),
    "gated": (GATED, None, f"{TERMS}an account and set HF_TOKEN to a token of it"),
    "gated for this token": (GATED, "hf_stranger", f"{TERMS}the account of the token"),
    "token unknown": (
        Repository(files=OURS),
        "hf_expired",
        (
            "HubAccessDenied: the token is not one of HUB; make one at HUB/settings/tokens and set "
            "HF_TOKEN to it, or unset HF_TOKEN"
        ),
    ),
    "no config": (
        Repository(files={"README.md": b""}),
        None,
        (
            "HubModelMissing: 'us/ours' at main has no config.json on HUB; name a repository in "
            "the "
            "format of transformers"
        ),
    ),
}


@pytest.mark.parametrize(("repository", "token", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_hub_refuses_is_said_with_the_way_out(
    hub: LoopbackHub, repository: Repository | None, token: str | None, sentence: str
) -> None:
    hub.repositories = {} if repository is None else {"us/ours": repository}

    assert shown(refusal(hub, token), hub) == sentence


def test_a_commit_that_is_not_there_is_named(hub: LoopbackHub) -> None:
    unknown = "f" * 40

    assert shown(refusal(hub, revision=unknown), hub) == (
        f"HubModelMissing: 'us/ours' has no commit {unknown} on HUB; name a commit of this "
        "repository"
    )


def test_a_token_without_the_right_is_refused_by_403(hub: LoopbackHub) -> None:
    hub.answers[RESOLVED] = giving(b"", 403)

    assert shown(refusal(hub, "hf_reader"), hub) == (
        "HubAccessDenied: the token may not read 'us/ours' on HUB; use one with the right to read "
        "this repository"
    )


def test_a_mirror_that_sends_no_error_code_is_understood_by_its_status(hub: LoopbackHub) -> None:
    hub.answers[RESOLVED] = giving(b"", 404)

    assert refusal(hub).code == "HubModelMissing"


def test_a_busy_hub_says_how_long_to_wait(hub: LoopbackHub) -> None:
    hub.answers[RESOLVED] = giving(b"", 429, Retry_After="37")
    first = unavailable(hub)
    hub.answers[RESOLVED] = giving(b"", 429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")

    assert first == (
        "HubUnavailable: HUB answers 429: too many requests; try again in 37 s (with HF_TOKEN it "
        f"allows more), or {WITHOUT}"
    )
    assert unavailable(hub) == (
        "HubUnavailable: HUB answers 429: too many requests; try again later (with HF_TOKEN it "
        f"allows more), or {WITHOUT}"
    )


@pytest.mark.parametrize("status", [500, 502, 503, 504, 418])
def test_a_hub_that_fails_is_asked_again_by_whoever_asked(hub: LoopbackHub, status: int) -> None:
    hub.answers[RESOLVED] = giving(b"<html>", status)

    assert unavailable(hub) == f"HubUnavailable: HUB answers {status}; try again, or {WITHOUT}"


def test_a_file_beside_the_config_that_cannot_be_read_is_not_taken_for_one_that_is_not_there(
    hub: LoopbackHub,
) -> None:
    beside = f"/us/ours/resolve/{COMMIT}/hf_quant_config.json"
    hub.answers[beside] = giving(b"", 503)
    failing = unavailable(hub)
    hub.answers[beside] = giving(b"", 403)

    assert failing.startswith("HubUnavailable: HUB answers 503")
    assert refusal(hub, "hf_reader").code == "HubAccessDenied"


def test_a_content_host_that_refuses_says_nothing_of_the_token(hub: LoopbackHub) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG}, on_content_host=frozenset({"config.json"})
    )
    hub.content.answers[f"/{COMMIT}/config.json"] = giving(b"", 403)

    said = unavailable(hub, hub.content)

    assert said == f"HubUnavailable: CDN answers 403; try again, or {WITHOUT}"


def test_nobody_at_the_address() -> None:
    site = Site(url="http://127.0.0.1:1")

    assert unavailable(site) == (
        "HubUnavailable: HUB cannot be reached: Connection refused; check the network, "
        f"HTTPS_PROXY and HF_ENDPOINT, or {WITHOUT}"
    )


@pytest.mark.parametrize("declared", [True, False], ids=["its length declared", "in chunks"])
def test_a_huge_answer_is_left(hub: LoopbackHub, *, declared: bool) -> None:
    def endless(request: Handler) -> None:
        request.send_response(200)
        request.send_header("X-Repo-Commit", COMMIT)
        request.send_header(
            *(("Content-Length", str(10**12)) if declared else ("Transfer-Encoding", "chunked"))
        )
        request.end_headers()
        while True:
            request.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")

    hub.answers[RESOLVED] = endless

    assert shown(refusal(hub), hub) == (
        "HubAnswerInvalid: config.json of HUB is larger than the limit of 4194304 bytes; check "
        f"HF_ENDPOINT and the proxy, or {WITHOUT}"
    )


def test_an_answer_that_does_not_end_is_waited_for_only_so_long(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "DEADLINE_SECONDS", 0.2)
    over = Event()

    def a_header_now_and_then(request: Handler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
        while not over.wait(0.01):
            request.wfile.write(b"a")

    hub.answers[RESOLVED] = a_header_now_and_then

    said = unavailable(hub)
    over.set()

    assert said == (
        f"HubUnavailable: HUB did not answer in full within 0 s; try again, or {WITHOUT}"
    )


def test_silence_ends_an_answer(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SILENCE_SECONDS", 0.1)
    over = Event()

    def nothing(_: Handler) -> None:
        over.wait()

    hub.answers[RESOLVED] = nothing

    said = unavailable(hub)
    over.set()

    assert said.startswith("HubUnavailable: HUB cannot be reached: it was silent for")


def test_an_answer_that_breaks_off_is_no_answer(hub: LoopbackHub) -> None:
    hub.answers[RESOLVED] = giving(b"{}", Content_Length="100", X_Repo_Commit=COMMIT)

    assert unavailable(hub).startswith(
        "HubUnavailable: HUB cannot be reached: it ended after 2 of 100 bytes; "
    )


def test_what_is_not_http_is_no_answer(hub: LoopbackHub) -> None:
    def hello(request: Handler) -> None:
        request.wfile.write(b"\x1b[2J hello\r\n\r\n")

    hub.answers[RESOLVED] = hello

    assert unavailable(hub).startswith(
        "HubUnavailable: HUB cannot be reached: its answer is not HTTP; "
    )


@pytest.mark.parametrize(
    ("location", "limit"),
    [
        ("file:///etc/passwd", "redirects to an invalid address"),
        ("ftp://127.0.0.1/config.json", "redirects to another protocol than HTTPS"),
        ("gopher://127.0.0.1/", "redirects to another protocol than HTTPS"),
        ("http://user:word@127.0.0.1/", "redirects to an invalid address"),
        ("http://127.0.0.1:99999/", "redirects to an invalid address"),
        ("http://[::1/", "redirects to an invalid address"),
        ("/a b", "redirects to an invalid address"),
        ("", "redirects to an invalid address"),
        (RESOLVED, "redirects more than 5 times"),
    ],
)
def test_a_redirect_leads_to_https_or_nowhere(hub: LoopbackHub, location: str, limit: str) -> None:
    hub.answers[RESOLVED] = giving(b"", 302, Location=location, X_Repo_Commit=COMMIT)

    assert shown(refusal(hub), hub).startswith(f"HubAnswerInvalid: HUB {limit}; ")


@pytest.mark.parametrize(
    ("body", "headers", "sentence"),
    [
        (b"{}", {}, "HubAnswerInvalid: HUB does not say which commit its files are of; "),
        (
            b"{}",
            {"X_Repo_Commit": "../../main"},
            "HubAnswerInvalid: HUB does not say which commit its files are of; ",
        ),
        (
            b"\xff",
            {"X_Repo_Commit": COMMIT},
            "ConfigInvalid: config.json of us/ours is not UTF-8 at byte 0; ",
        ),
        (
            b"<html>",
            {"X_Repo_Commit": COMMIT},
            "ConfigInvalid: us/ours is not the JSON of a config: ",
        ),
        (
            b'{"a":' * 100 + b"1" + b"}" * 100,
            {"X_Repo_Commit": COMMIT},
            "ConfigInvalid: us/ours is nested deeper than 32 levels; ",
        ),
    ],
    ids=["no commit", "no real commit", "not text", "a page", "too deep"],
)
def test_an_answer_that_is_no_checkpoint_is_refused(
    hub: LoopbackHub, body: bytes, headers: dict[str, str], sentence: str
) -> None:
    hub.answers[RESOLVED] = giving(body, 200, **headers)

    assert shown(refusal(hub), hub).startswith(sentence)


def test_another_commit_than_was_asked_for_is_refused(hub: LoopbackHub) -> None:
    hub.answers[f"/us/ours/resolve/{OLDER}/config.json"] = giving(CONFIG, X_Repo_Commit=COMMIT)

    said = shown(refusal(hub, revision=OLDER), hub)

    assert said.startswith(
        f"HubAnswerInvalid: HUB gives commit {COMMIT} where {OLDER} was asked for; "
    )


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{" * 10**5,
        b'{"metadata": {"total_size": "8"}}',
        b'{"metadata": {"total_size": -1}}',
    ],
)
def test_an_index_that_says_nothing_changes_nothing(hub: LoopbackHub, index: bytes) -> None:
    hub.repositories["us/ours"] = Repository(
        files={"config.json": CONFIG, "model.safetensors.index.json": index}
    )

    assert fetch(as_client(hub), "us/ours", None).tensor_bytes is None


def test_from_https_no_redirect_leads_to_http_and_the_certificate_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loopback = IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    certificate, key = self_signed(tmp_path, loopback)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub, plain = LoopbackHub(), Site()
    with serving(hub, context), serving(plain):
        hub.answers[RESOLVED] = giving(b"", 302, Location=f"{plain.url}/config.json")
        untrusted = unavailable(hub)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

        said = shown(refusal(hub, "hf_reader"), hub)

    assert untrusted.startswith(
        "HubUnavailable: HUB cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED] "
    )
    assert said.startswith("HubAnswerInvalid: HUB redirects to another protocol than HTTPS; ")
    assert plain.seen == []
