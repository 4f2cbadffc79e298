"""The chart on a control plane of its own: installed, upgraded, removed; its notes followed; its
roles used.
"""

import os
import re
import shlex
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.reconcile.record_object import read_keys
from tests.harness import fleet
from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.harness.waiting import wait_for
from tests.support.builders_chart import (
    CHART,
    ROOT,
    chart_with,
    defaults,
    named,
    read,
    render,
    without,
)

pytestmark = pytest.mark.controlplane

# not the one where kwok starts no pods: what is installed here is seen to run
NAMESPACE = "operators"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shardedmodels.shardwright.io"
MODELS = "/apis/shardwright.io/v1alpha1/namespaces/models/shardedmodels"
MODEL: Manifest = {
    "apiVersion": "shardwright.io/v1alpha1",
    "kind": "ShardedModel",
    "metadata": {"name": "llama"},
    "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
}
RESTRICTED_V2 = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: range}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: openshift}}
  validations:
    - expression: >-
        object.spec.?securityContext.?runAsUser.orValue(1000650000) >= 1000650000 &&
        object.spec.?securityContext.?fsGroup.orValue(1000650000) >= 1000650000 &&
        object.spec.containers.all(c, c.?securityContext.?runAsUser.orValue(1000650000) >= 1000650000)
      message: not of the range of this namespace
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: range}
spec: {policyName: range, validationActions: [Deny]}
"""
SEE, WRITE, SCALE = (
    {"get", "list", "watch"},
    {"create", "update", "patch", "delete"},
    {"update", "patch"},
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """A control plane with one node, a namespace that takes only restricted pods, and one for
    models.
    """
    with ControlPlane.start() as running:
        running.create_namespace(NAMESPACE, {"pod-security.kubernetes.io/enforce": "restricted"})
        running.create_namespace("models")
        running.nodes.create(fleet.make("h100-8x-dell-xe9680", 1, taints=[]))
        yield running


class Installation:
    """The chart on the cluster, installed for the first test that wants it and there until one
    wants it gone.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._said = ""

    def notes(self) -> str:
        self._said = self._said or _install(self._cluster)
        return self._said.partition("NOTES:\n")[2]

    def remove(self) -> None:
        """Take it away with all that it leaves."""
        if self._said:
            self._cluster.helm(
                "uninstall", "shardwright", "--namespace", NAMESPACE, "--ignore-not-found"
            )
            _remove_kept(self._cluster)
            self._said = ""


@pytest.fixture(scope="module")
def installation(cluster: ControlPlane) -> Installation:
    return Installation(cluster)


@pytest.fixture
def notes(installation: Installation) -> str:
    """The chart installed, and what helm said; the test changes nothing of it."""
    return installation.notes()


@pytest.fixture
def once(installation: Installation) -> Iterator[str]:
    """The same for a test that changes it: afterwards nothing of it is left."""
    yield installation.notes()
    installation.remove()


@pytest.fixture
def bare(installation: Installation) -> None:
    """Nothing of the chart is there."""
    installation.remove()


def test_the_operators_pods_run_where_only_restricted_pods_may(
    cluster: ControlPlane, notes: str
) -> None:
    del notes
    deployment = cluster.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/shardwright")
    template: Manifest = deployment["spec"]["template"]
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    pod = {
        "metadata": {"generateName": "check-", "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    }

    assert cluster.api.create(pods, pod)["spec"]["serviceAccountName"] == "shardwright"
    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        cluster.api.create(pods, pod)


def test_every_command_of_the_notes_works(cluster: ControlPlane, notes: str) -> None:
    (manifest,) = re.findall(r"kubectl apply -f - <<EOF\n(.*?)  EOF\n", notes, re.DOTALL)
    commands = re.findall(
        r"^  kubectl (?!apply|wait|port-forward)(.*?)(?: -w)?(?:  .*)?$", notes, re.MULTILINE
    )

    cluster.kubectl("apply", "-f", "-", input=manifest)
    printed = {command: cluster.kubectl(*shlex.split(command)) for command in commands}
    cluster.kubectl("delete", "smodel", "qwen")

    assert list(printed) == [
        f"-n {NAMESPACE} rollout status deployment/shardwright",
        "get smodel",
        "describe smodel qwen",
        "explain shardedmodel.spec",
    ]
    assert (
        'deployment "shardwright" successfully rolled out'
        in printed[f"-n {NAMESPACE} rollout status deployment/shardwright"]
    )
    assert "qwen" in printed["get smodel"]
    assert "Qwen/Qwen2.5-7B-Instruct" in printed["describe smodel qwen"]
    assert "workload" in printed["explain shardedmodel.spec"]


def test_a_second_release_beside_the_first_is_refused(cluster: ControlPlane, notes: str) -> None:
    del notes
    said = cluster.helm(
        "install", "shardwright-two", str(CHART), "--namespace", "models", *NAMED, check=False
    )

    assert (
        f"installation {NAMESPACE}/shardwright watches all namespaces: have each watch its own "
        "with watchNamespaces"
    ) in said


def test_roles_of_the_cluster_include_sharded_models(cluster: ControlPlane, notes: str) -> None:
    del notes
    for role in ("view", "edit", "admin"):
        cluster.kubectl(
            "create",
            "rolebinding",
            role,
            f"--clusterrole={role}",
            f"--user={role}er",
            "--namespace=models",
        )
    wait_for(
        lambda: _may(cluster, "editer", "create", "shardedmodels"), 30, "the roles to be aggregated"
    )

    writers = {
        "shardedmodels": SEE | WRITE | {"deletecollection"},
        "shardedmodels/status": {"get"},
        "shardedmodels/scale": {"get"} | SCALE,
    }
    assert _rights(cluster, "viewer") == {
        "shardedmodels": SEE,
        "shardedmodels/status": {"get"},
        "shardedmodels/scale": {"get"},
    }
    assert _rights(cluster, "editer") == writers
    assert _rights(cluster, "adminer") == writers
    assert _rights(cluster, "nobody") == {}
    said = cluster.kubectl(
        "create", "-f", "-", "-n", "models", "--as=viewer", input=yaml.safe_dump(MODEL), check=False
    )
    assert 'User "viewer" cannot create resource "shardedmodels"' in said
    cluster.kubectl("create", "-f", "-", "-n", "models", "--as=editer", input=yaml.safe_dump(MODEL))
    cluster.kubectl("scale", "smodel/llama", "--replicas=2", "-n", "models", "--as=editer")
    assert cluster.api.get(f"{MODELS}/llama")["spec"]["replicas"] == 2
    cluster.api.delete(f"{MODELS}/llama")


def test_the_operators_account_has_no_way_to_more_rights(cluster: ControlPlane, notes: str) -> None:
    del notes
    account = f"system:serviceaccount:{NAMESPACE}:shardwright"
    forbidden = [
        ("get", "", "secrets", ""),
        ("list", "", "secrets", ""),
        ("create", "", "pods", "exec"),
        ("create", "", "serviceaccounts", "token"),
        ("update", "shardwright.io", "shardedmodels", ""),
        ("patch", "", "nodes", ""),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("impersonate", "", "users", ""),
    ]

    assert [right for right in forbidden if _allowed(cluster, account, *right)] == []
    assert _allowed(cluster, account, "patch", "shardwright.io", "shardedmodels", "status")


def test_own_keys_as_the_readme_makes_them_begin_with_the_key_that_has_signed_so_far(
    cluster: ControlPlane, once: str, tmp_path: Path
) -> None:
    del once
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    token = wait_for(
        lambda: cluster.api.get(f"{secrets}/shardwright-signing").get("data", {}).get("token"),
        30,
        "the chart's key",
    )
    chapter = (CHART / "README.md").read_text().partition("## Keys")[2]
    commands = re.findall(r"```sh\n(.*?)```", chapter, re.DOTALL)[0]
    commands = commands.replace("shardwright-system", NAMESPACE).replace(
        "charts/shardwright", str(CHART)
    )

    environment = {
        **os.environ,
        **cluster.environment(),
        "PATH": f"{cluster.bin}:{os.environ['PATH']}",
    }
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        check=True,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
    )

    own = b64decode(cluster.api.get(f"{secrets}/shardwright-keys")["data"]["keys"])
    keys = read_keys(own.decode()).secrets
    assert (keys[0], len(keys)) == (b64decode(token), 2)
    volumes = cluster.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/shardwright")[
        "spec"
    ]["template"]["spec"]["volumes"]
    (signing,) = (volume["secret"] for volume in volumes if volume["name"] == "signing")
    assert (signing["secretName"], signing["items"]) == (
        "shardwright-keys",
        [{"key": "keys", "path": "keys"}],
    )
    assert list(tmp_path.iterdir()) == []
    cluster.api.delete(f"{secrets}/shardwright-keys")


def test_without_users_of_its_own_it_runs_where_a_policy_gives_each_namespace_a_range(
    cluster: ControlPlane,
) -> None:
    """As OpenShift's restricted-v2 does, which refuses users and groups of others and puts in those
    of the namespace.
    """
    cluster.create_namespace("openshift", {"pod-security.kubernetes.io/enforce": "restricted"})
    cluster.kubectl("create", "-f", "-", input=RESTRICTED_V2)
    nulls = ",".join(
        f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")
    )
    delivered, fitted, emptied = (
        _pod(render(cluster, *flags))
        for flags in (
            (),
            ("--set", nulls),
            ("--set", "podSecurityContext=null,securityContext=null"),
        )
    )

    def said(pod: Manifest) -> str:
        return cluster.kubectl(
            "create",
            "--dry-run=server",
            "-n",
            "openshift",
            "-f",
            "-",
            input=yaml.safe_dump(pod),
            check=False,
        )

    wait_for(
        lambda: "not of the range of this namespace" in said(delivered),
        30,
        "the policy to be in force",
    )
    assert "created (server dry run)" in said(fitted)
    assert 'violates PodSecurity "restricted' in said(emptied)
    cluster.kubectl("delete", "-f", "-", input=RESTRICTED_V2)


def test_the_notes_say_how_to_get_the_crd_where_it_was_left_out(cluster: ControlPlane) -> None:
    told = cluster.helm(
        "install",
        "x",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
        *NAMED,
        "--set",
        "crds.enabled=false",
    )
    untold = cluster.helm(
        "install", "x", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", *NAMED
    )

    assert "  shardwright crd | kubectl apply --server-side -f -\n" in told
    assert "shardwright crd" not in untold


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("values", ["--reuse-values", "--reset-then-reuse-values"])
def test_an_upgrade_brings_the_crd_and_leaves_the_models(
    cluster: ControlPlane, tmp_path: Path, values: str
) -> None:
    current = yaml.safe_load((ROOT / "crds" / "shardwright.io_shardedmodels.yaml").read_text())
    _install(cluster, _older_chart(tmp_path))
    assert "pod" not in _spec_fields(cluster.api.get(CRD))
    created = cluster.api.create(MODELS, MODEL)

    cluster.helm("upgrade", "shardwright", str(CHART), "--namespace", NAMESPACE, values)

    upgraded = cluster.api.get(CRD)
    assert _spec_fields(upgraded) == _spec_fields(current)
    found = cluster.api.get(f"{MODELS}/llama")
    assert (found["metadata"]["uid"], found["spec"]) == (
        created["metadata"]["uid"],
        created["spec"],
    )
    assert (
        _started(cluster)
        == named(render(cluster, namespace=NAMESPACE), "Deployment")["spec"]["template"]["spec"][
            "containers"
        ]
    )
    cluster.helm("uninstall", "shardwright", "--namespace", NAMESPACE)
    _remove_kept(cluster)


def test_an_uninstall_leaves_the_crd_and_the_models_and_a_new_install_takes_them_over(
    cluster: ControlPlane, once: str
) -> None:
    del once
    created = cluster.api.create(MODELS, MODEL)

    cluster.helm("uninstall", "shardwright", "--namespace", NAMESPACE)

    assert cluster.api.get(f"{MODELS}/llama")["metadata"]["uid"] == created["metadata"]["uid"]
    assert _left(cluster) == [
        "customresourcedefinition.apiextensions.k8s.io/shardedmodels.shardwright.io",
        "secret/shardwright-signing",
        "serviceaccount/shardwright-signing",
    ]
    _install(cluster)
    assert cluster.api.get(f"{MODELS}/llama")["metadata"]["uid"] == created["metadata"]["uid"]


@pytest.mark.usefixtures("bare")
def test_without_keep_an_uninstall_takes_everything(cluster: ControlPlane) -> None:
    _install(cluster, CHART, "--set", "crds.keep=false")

    cluster.helm("uninstall", "shardwright", "--namespace", NAMESPACE)

    wait_for(lambda: _left(cluster) == [], 30, "nothing to be left")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("release", ["123", "4.5-b", "x" * 53, "shardwright.eu", "true"])
def test_any_release_name_gives_names_and_labels_that_the_api_server_takes(
    cluster: ControlPlane, release: str
) -> None:
    if release == "123":
        cluster.create_namespace("123")
    namespace = "123" if release == "123" else "models"
    objects = render(cluster, "--set", "crds.enabled=false", release=release, namespace=namespace)

    taken = cluster.kubectl(
        "create", "--dry-run=server", "-o", "name", "-f", "-", input=yaml.safe_dump_all(objects)
    )

    assert len(taken.splitlines()) == len(objects)
    assert (
        named(objects, "Deployment")["spec"]["selector"]["matchLabels"][
            "app.kubernetes.io/instance"
        ]
        == release
    )


@pytest.mark.usefixtures("bare")
def test_the_install_manifest_applies_and_applying_it_again_changes_nothing(
    cluster: ControlPlane,
) -> None:
    file = str(ROOT / "manifests" / "install.yaml")
    count = len(read(Path(file).read_text()))

    first = cluster.kubectl(
        "apply", "--server-side", "-f", file, "-o", "json", "--show-managed-fields=false"
    )
    again = cluster.kubectl(
        "apply", "--server-side", "-f", file, "-o", "json", "--show-managed-fields=false"
    )
    dry = cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", file)
    cluster.kubectl(
        "delete", "-f", file, "--wait=false", "--ignore-not-found"
    )  # a Secret goes with its service account
    wait_for(lambda: not _exists(cluster, CRD), 30, "the CRD to go")

    assert len(dry.splitlines()) == count
    assert _wanted(first) == _wanted(again)
    assert len(_wanted(first)) == count


def _install(cluster: ControlPlane, chart: Path = CHART, *arguments: str) -> str:
    said = cluster.helm(
        "install", "shardwright", str(chart), "--namespace", NAMESPACE, *NAMED, *arguments
    )
    wait_for(
        lambda: cluster.api.get(MODELS)["kind"] == "ShardedModelList",
        30,
        "ShardedModels to be served",
    )
    return said


def _older_chart(folder: Path) -> Path:
    """Return a copy of the chart as of a release before: without the value `lease` and the field
    `pod`.
    """
    chart = chart_with(folder, without(defaults(), "lease"))
    file = chart / "files" / "shardwright.io_shardedmodels.yaml"
    crd = yaml.safe_load(file.read_text())
    _spec_fields(crd).pop("pod")
    file.write_text(yaml.safe_dump(crd))
    (chart / "Chart.yaml").write_text((CHART / "Chart.yaml").read_text().replace("0.1.0", "0.0.9"))
    return chart


def _spec_fields(crd: Manifest) -> dict[str, Any]:
    (version,) = crd["spec"]["versions"]
    fields: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    return fields


def _pod(objects: list[Manifest]) -> Manifest:
    """Return the pod of the operator, as nobody's: its service account is not in the namespace."""
    spec = named(objects, "Deployment")["spec"]["template"]["spec"]
    account = {"serviceAccountName": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator"},
        "spec": {**spec, **account},
    }


def _started(cluster: ControlPlane) -> list[Manifest]:
    """Return the containers of the operator as the last helm command wrote them."""
    manifest = cluster.helm("get", "manifest", "shardwright", "--namespace", NAMESPACE)
    containers: list[Manifest] = named(read(manifest), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    return containers


def _remove_kept(cluster: ControlPlane) -> None:
    cluster.api.delete(CRD, missing_ok=True)
    for kind in ("secrets", "serviceaccounts"):
        cluster.api.delete(
            f"/api/v1/namespaces/{NAMESPACE}/{kind}/shardwright-signing", missing_ok=True
        )
    wait_for(lambda: not _exists(cluster, CRD), 30, "the CRD to go")


def _exists(cluster: ControlPlane, path: str) -> bool:
    try:
        return bool(cluster.api.get(path))
    except ApiError:
        return False


def _left(cluster: ControlPlane) -> list[str]:
    """Return what the cluster still holds of what the chart installs."""
    rights = "clusterroles,clusterrolebindings,roles,rolebindings"
    kinds = f"crd,{rights},deployments,services,configmaps,secrets,serviceaccounts,pdb,netpol"
    names = cluster.kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").splitlines()
    return [name for name in names if "shardwright" in name.partition("/")[2]]


def _wanted(text: str) -> list[Manifest]:
    """Return the objects as they were printed, without what controllers and the API server
    write.
    """
    items: list[Manifest] = yaml.load(text, Loader=yaml.CSafeLoader)["items"]
    return [_without_status(item) for item in items]


def _without_status(item: Manifest) -> Manifest:
    metadata = {
        name: value
        for name, value in item["metadata"].items()
        if name not in ("resourceVersion", "annotations")
    }
    written = {"status", "data"} if item["kind"] == "Secret" else {"status"}
    return {
        **{name: value for name, value in item.items() if name not in written},
        "metadata": metadata,
    }


def _rights(cluster: ControlPlane, user: str) -> dict[str, set[str]]:
    """Return what a user may do with ShardedModels in the namespace of models."""
    verbs = sorted(SEE | WRITE | {"deletecollection"})
    resources = (
        "shardedmodels",
        "shardedmodels/status",
        "shardedmodels/scale",
        "shardedmodels/finalizers",
    )
    found = {
        name: {verb for verb in verbs if _may(cluster, user, verb, name)} for name in resources
    }
    return {name: allowed for name, allowed in found.items() if allowed}


def _may(cluster: ControlPlane, user: str, verb: str, name: str) -> bool:
    resource, _, subresource = name.partition("/")
    return _allowed(cluster, user, verb, "shardwright.io", resource, subresource)


def _allowed(
    cluster: ControlPlane, user: str, verb: str, group: str, resource: str, subresource: str
) -> bool:
    right = {
        "namespace": "models",
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {"spec": {"user": user, "resourceAttributes": right}}
    answer = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
