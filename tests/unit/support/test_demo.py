"""What the demo says to type can be typed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.demo import how_to_look_further

BINARIES = Path("/opt/demo/bin")


def test_the_demo_says_how_to_look_further_with_kubectl_and_its_plugin(tmp_path: Path) -> None:
    text = how_to_look_further(tmp_path / "admin.kubeconfig", BINARIES, 9402)
    (path,) = re.findall(r"^  export PATH=(.*):\$PATH$", text, re.MULTILINE)

    assert path.split(":") == [str(BINARIES), str(Path(sys.executable).parent)]
    assert shutil.which("kubectl-shardwright", path=path) is not None
    assert "alias" not in text
    assert "\n  kubectl shardwright status  " in text
    typed = "\n".join(line for line in text.splitlines() if line.startswith("  "))
    assert subprocess.run(["sh", "-n", "-c", typed], check=False).returncode == 0
