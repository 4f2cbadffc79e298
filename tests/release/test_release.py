"""A release says the same everywhere: one version, one user, one lock; and its files are the same
bytes for the same sources.
"""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import shardwright
from release import archive, chart, debian, image, manifests, notes, places, plugin, signing, wheels
from tests.harness.errors import HarnessError
from tests.support.builders_chart import STORED, defaults

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
DOCKERFILES = {
    "operator": (ROOT / "operator" / "Dockerfile", image.OPERATOR),
    "router": (ROOT / "release" / "router" / "Dockerfile", image.ROUTER),
}


def test_package_chart_and_changelog_are_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    places.check_one_version()

    monkeypatch.setenv("RELEASE_TAG", "v9.9.9")
    with pytest.raises(
        HarnessError,
        match=re.escape(f"the package is {shardwright.__version__}, but RELEASE_TAG is 9.9.9"),
    ):
        places.check_one_version()


def test_the_section_of_the_changelog_is_read_in_one_sitting() -> None:
    section = notes.section(shardwright.__version__)

    assert 10 < len(section.splitlines()) <= 40
    assert "Unreleased" not in section


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_starts_what_its_dockerfile_starts(name: str) -> None:
    file, recipe = DOCKERFILES[name]
    *before, user, ports, command = file.read_text().splitlines()

    assert user == f"USER {image.RUN_AS}"
    assert ports == f"EXPOSE {' '.join(port.removesuffix('/tcp') for port in recipe.ports)}"
    assert json.loads(command.removeprefix("CMD ")) == list(recipe.command)
    assert any(recipe.lock.name in line for line in before)
    assert recipe.archive == f"shardwright-{name}-{shardwright.__version__}.oci.tar"


def test_artifact_hub_is_told_of_every_change_the_kind_and_its_samples() -> None:
    told = {
        name.removeprefix("artifacthub.io/"): yaml.safe_load(text)
        for name, text in chart.hub_annotations().items()
    }

    items = notes.section(shardwright.__version__).count("\n- ")
    assert len(told["changes"]) == items
    assert not any("](" in line or "\n" in line for line in told["changes"])
    (kind,) = told["crds"]
    assert (kind["name"], kind["version"]) == ("shardedmodels.shardwright.io", "v1alpha1")
    assert {sample["kind"] for sample in told["crdsExamples"]} == {kind["kind"]}
    assert told["prerelease"] is True


def test_both_architectures_have_the_same_packages_by_hash_and_without_addresses() -> None:
    amd64, arm64 = (debian.locked(architecture) for architecture in places.ARCHITECTURES)

    assert sorted(item.name for item in amd64) == sorted(debian.PACKAGES)
    assert [(item.name, item.version) for item in amd64] == [
        (item.name, item.version) for item in arm64
    ]
    assert all(re.fullmatch(r"[0-9a-f]{64}", item.sha256) for item in (*amd64, *arm64))
    assert "://" not in debian.LOCK.read_text()


def test_no_shell_and_no_package_manager_is_among_the_packages() -> None:
    assert not {"bash", "dash", "busybox", "apt", "dpkg", "perl-base", "python3-pip"} & set(
        debian.PACKAGES
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kubernetes/client/__init__.py", True),
        ("kubernetes/client/api_client.py", True),
        ("kubernetes/client/models/__init__.py", True),
        ("kubernetes/client/models/v1_pod.py", False),
        ("kubernetes/client/api/core_v1_api.py", False),
        ("kubernetes/aio/client/api_client.py", False),
        ("kopf/__init__.py", True),
    ],
)
def test_of_the_kubernetes_client_only_generated_classes_are_left_out(
    name: str,
    wanted: bool,  # noqa: FBT001 - a case
) -> None:
    assert wheels.left_out(name) is not wanted


def test_the_same_files_are_the_same_archive_whenever_and_by_whomever_they_were_written(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, names in ((one, ("b", "a")), (other, ("a", "b"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
    (other / "a").chmod(0o600)

    assert archive.packed(one, 1_000) == archive.packed(other, 1_000)
    with tarfile.open(fileobj=io.BytesIO(archive.packed(one, 1_000))) as packed:
        assert [(item.name, item.mtime, item.uid, item.mode) for item in packed] == [
            ("a", 1_000, 0, 0o644),
            ("b", 1_000, 0, 0o644),
        ]


def test_an_upgrade_names_what_is_new_gone_and_changed() -> None:
    before = {"image": {"tag": "1", "pullPolicy": "Always"}, "old": True}
    now = {"image": {"tag": "2", "pullPolicy": "Always"}, "new": []}

    assert notes.changes(before, now).splitlines() == [
        "- new: `new` (`[]`)",
        "- gone: `old` (`True`)",
        "- changed: `image.tag` (`1` to `2`)",
    ]


def test_no_value_that_is_stored_is_gone() -> None:
    """The closed schema would refuse it."""
    told = notes.changes(yaml.safe_load(STORED.read_text()), defaults())

    assert "- gone:" not in told


def test_the_base_names_the_image_that_the_manifest_has() -> None:
    objects = manifests.read((ROOT / "manifests" / "install.yaml").read_text())
    (deployment,) = (item for item in objects if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"] == f"{manifests.PLACEHOLDER}:{shardwright.__version__}"


def test_checksums_are_of_every_file_and_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / signing.BUNDLE).write_text("not of itself")

    assert signing.write_checksums(tmp_path).read_text() == (
        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n"
    )


def test_the_plugin_needs_the_distributions_of_the_extra_cluster(tmp_path: Path) -> None:
    assert plugin.BROUGHT_BY == "cluster"
    assert (
        f"kubectl shardwright needs Python {plugin.PYTHONS[0]} to {plugin.PYTHONS[-1]}"
        in plugin.LAUNCHER
    )
    compile(plugin.LAUNCHER, str(tmp_path), "exec")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_pin_actions_by_digest_and_grant_nothing_that_no_job_asks_for(file: Path) -> None:
    text = file.read_text()
    workflow: dict[str, Any] = yaml.safe_load(text)
    actions = re.findall(r"uses: (\S+)(.*)", text)

    assert actions
    assert [
        action
        for action, comment in actions
        if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) or " # v" not in comment
    ] == []
    assert workflow["permissions"] == {}
    assert all(
        "permissions" in job and "timeout-minutes" in job for job in workflow["jobs"].values()
    )


def test_only_the_job_that_builds_nothing_may_write_and_knows_secrets() -> None:
    workflow: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    )
    writing = [
        name for name, job in workflow["jobs"].items() if "write" in job["permissions"].values()
    ]
    knowing = [name for name, job in workflow["jobs"].items() if "secrets." in yaml.safe_dump(job)]

    assert (writing, knowing) == (["publish"], ["publish"])
    assert "make release" not in yaml.safe_dump(workflow["jobs"]["publish"])
