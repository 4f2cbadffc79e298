"""In a real terminal no line of any screen is wider than the terminal, and nothing is dropped
without saying so.
"""

import fcntl
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Final

import pytest
from rich.cells import cell_len

ROOT: Final = Path(__file__).parents[3]
NODES: Final = ("--nodes", str(ROOT / "examples" / "fleet" / "nodes.yaml"))
WIDTHS: Final = (60, 80, 120, 200)
ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
PROGRAM: Final = (
    "import sys\n"
    "from shardwright.cli.main import main\n"
    "for screen in sys.argv[1].split('\\n'):\n"
    "    print('#', screen.split()[0], flush=True)\n"
    "    main(screen.split(' '))\n"
)
THROUGH_CAT: Final = (
    "import subprocess, sys\nsubprocess.run(f'{sys.executable} -m shardwright.cli.main "
    "{sys.argv[1]} | cat', shell=True)\n"
)


def sample(name: str) -> str:
    """Return the file of a sample."""
    return str(ROOT / "manifests" / "samples" / f"{name}.yaml")


SCREENS: Final = (
    *(
        " ".join(("plan", "-f", sample(name), *NODES))
        for name in ("llama-405b", "deepseek-v3-rack", "llama-405b-l40s", "qwen3-235b")
    ),
    *(
        " ".join(("explain", "-f", sample(name), *NODES))
        for name in ("llama-405b", "deepseek-v3-rack")
    ),
    "size meta-llama/Llama-3.1-8B-Instruct --concurrency 8 --gpus H100 --gpus L40S",
    "size meta-llama/Llama-3.1-405B-Instruct --ttft 1ms --gpus H100",
    "models",
    "gpus",
    "version -o wide",
)

LISTINGS: Final = (
    "size meta-llama/Llama-3.1-8B-Instruct --concurrency 8 --gpus H100 --gpus L40S -o wide",
    "models llama-3.1-8b -o wide",
    "gpus l40 -o wide",
    "plan meta-llama/Llama-3.1-8B-Instruct --gpus 1xH100 --ttft 1ms -o wide",
)


def in_terminal(width: int, *words: str, variables: dict[str, str] | None = None) -> str:
    """Return what the program writes to a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}
    }
    environment |= {
        "PYTHONPATH": str(ROOT / "operator"),
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
        **(variables or {}),
    }
    with subprocess.Popen(
        [sys.executable, *words], stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        written = b""
        while part := _read(leader):
            written += part
        process.wait()
    os.close(leader)
    return written.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # EIO: nobody holds the other end any more
        return b""


def shown(text: str) -> list[str]:
    """Return the lines that are left on the screen, without their colours; a line that was written
    over is gone.
    """
    lines = [
        line.rpartition("\r")[2] for line in ESCAPE.sub("", text.replace("\r\n", "\n")).split("\n")
    ]
    return [re.sub(r"\x1b\[\?25[lh]|\x1b\[[0-9]*[AKG]", "", line) for line in lines]


def without_commands(lines: list[str]) -> list[str]:
    """Return lines without the commands, whose parts stay whole to be copied."""
    return [
        line
        for line in lines
        if not line.lstrip().startswith(("kubectl ", "Next  kubectl ", "-f ", "-p '"))
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_any_screen_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(in_terminal(width, "-c", PROGRAM, "\n".join(SCREENS)))

    assert [line for line in without_commands(lines) if cell_len(line) > width] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert sum(line.startswith("# ") for line in lines) == len(SCREENS)


LISTS: Final = (
    ("gpus", "H100-SXM-80GB", "ID"),
    ("models", "Qwen/Qwen3-8B", "ID"),
    ("size Qwen/Qwen3-8B --concurrency 8 --gpus H100 --gpus L40S", "L40S-48GB", "GPU"),
)
"""A screen, an item of its list, and the head of the first column."""


@pytest.mark.parametrize("width", WIDTHS)
def test_a_list_is_a_table_at_every_width_and_says_which_columns_had_no_room(width: int) -> None:
    screens = "\n".join(screen for screen, _, _ in LISTS)
    printed = "\n".join(shown(in_terminal(width, "-c", PROGRAM, screens)))

    for screen, item, first in LISTS:
        begin = printed.index(f"# {screen.split()[0]}")
        lines = printed[begin:].split("\n# ")[0].splitlines()
        head = next(line for line in lines if line.split()[:1] == [first])
        rows = [line for line in lines if line.split()[:1] == [item]]
        left_out = any("-o wide has all" in line for line in lines)
        assert len(rows) == 1, f"{screen}: {rows}"
        assert left_out or len(head.split()) > 2, screen
        assert not left_out or width < 120, screen


def test_behind_a_pager_the_text_is_as_wide_as_the_terminal_and_in_a_file_as_ever(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    in_file = f"{sys.executable} -m shardwright.cli.main {SCREENS[0]} > {file}"

    paged = shown(in_terminal(64, "-c", THROUGH_CAT, SCREENS[0]))
    in_terminal(64, "-c", f"import subprocess; subprocess.run({in_file!r}, shell=True)")

    assert 50 < max(map(cell_len, without_commands(paged))) <= 64
    assert 90 < max(map(cell_len, without_commands(file.read_text().splitlines()))) <= 110


@pytest.mark.parametrize("width", [60, 80, 140, 200])
def test_a_wide_listing_has_a_line_for_each_however_narrow_the_terminal_is(width: int) -> None:
    """As kubectl's: to be searched and cut by columns, the same in a terminal, a pipe and a file."""
    in_a_pipe = subprocess.run(
        [sys.executable, "-c", PROGRAM, "\n".join(LISTINGS)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "operator"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    notes = {"", *(line for line in in_a_pipe if line.startswith(("TFLOP", "PRICE:", "*:")))}

    lines = shown(in_terminal(width, "-c", PROGRAM, "\n".join(LISTINGS)))

    rows = [line for line in in_a_pipe if line not in notes]
    assert [row for row in rows if row not in lines] == []
    assert max(map(cell_len, rows)) > 100


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_in_a_pipe_are_a_matter_of_two_variables(
    variables: dict[str, str], *, coloured: bool
) -> None:
    environment = {
        key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}
    }
    environment |= {"PYTHONPATH": str(ROOT / "operator"), "PYTHONUTF8": "1", **variables}
    command = [sys.executable, "-m", "shardwright.cli.main", "gpus", "--search", "h100"]

    written = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert ("\x1b[" in written) is coloured
    assert "H100-SXM-80GB" in written


def test_no_colour_in_a_terminal_that_wants_none() -> None:
    assert "\x1b[" not in in_terminal(
        80, "-m", "shardwright.cli.main", "gpus", variables={"NO_COLOR": "1"}
    )


def test_who_waits_for_a_silent_server_is_told_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(
            "current-context: c\n"
            "contexts: [{name: c, context: {cluster: c}}]\n"
            f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        )
        options = ("--kubeconfig", str(kubeconfig), "--request-timeout", "2s")
        words = ("-m", "shardwright.cli.main", "status", *options)

        written = in_terminal(120, *words).splitlines()

    assert written[0] == f"note: waiting for {server}"
    assert written[1].startswith(f"error[NoAnswer]: {server} does not answer")


def test_a_page_for_a_browser_is_refused_in_a_terminal_before_anything_is_loaded() -> None:
    program = (
        "import sys\n"
        "from shardwright.cli.main import main\n"
        "code = main(['report', 'Qwen/Qwen3-8B', '--gpus', '1xH100'])\n"
        "print(code, sorted(name for name in sys.modules if name == 'shardwright.planning'))\n"
    )

    error, ended, *_ = shown(in_terminal(200, "-c", program))

    assert error.startswith("error[NotAllowed]: the page is HTML for a browser")
    assert ended == "2 []"


def test_who_reads_a_long_file_sees_how_far_it_is_and_how_it_is_read_sooner(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    pod = "- {kind: Pod, apiVersion: v1, metadata: {name: p, labels: {a: b, c: d}}}\n"
    nodes.write_text(f"kind: List\napiVersion: v1\nitems:\n{pod * 30_000}")
    options = ("--nodes", str(nodes))

    written = in_terminal(120, "-m", "shardwright.cli.main", "plan", "Qwen/Qwen3-8B", *options)
    in_a_pipe = subprocess.run(
        [sys.executable, "-m", "shardwright.cli.main", "plan", "a/b", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
        check=False,
    ).stderr

    assert re.search(r"[012]/2 .*MB of ", ESCAPE.sub("", written))
    assert [line for line in shown(written) if "read several times faster" in line] == [
        f"note: {nodes}: what 'kubectl -o json' prints is read several times faster"
    ]
    assert "MB of" not in in_a_pipe
    assert "4 times" not in in_a_pipe
