"""The chart fitted to a company: names, accounts, mirrors, policies; and values that an earlier
release has stored.
"""

import re
from pathlib import Path

import pytest
import yaml

from shardwright.controller.operator_options import operator_parser
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED
from tests.support.builders_chart import (
    CHART,
    GONE,
    STORED,
    chart_with,
    default_of,
    defaults,
    difference,
    named,
    render,
    schema,
    without,
)
from tests.support.values_fitted import CONTAINER, POD, of_account, runs

EMPTIED = (
    "podSecurityContext",
    "securityContext",
    "resources",
    "topologySpreadConstraints",
    "policy.admittedImages",
    "policy.admittedModels",
    "policy.admittedRuntimeClasses",
)
"""What `null` empties: the chart delivers something, and nothing is a choice."""
CLAIMS = {"shardwright-nodes", "shardwright-namespaces"}
"""By their names other installations know what is claimed."""
OF_NO_USE_IN_A_POD = {"--help", "--kubeconfig", "--context", "--leader-elect", "--no-leader-elect"}


@pytest.fixture(scope="module")
def as_delivered(control_plane: ControlPlane) -> list[Manifest]:
    return render(control_plane)


def test_without_an_image_the_chart_says_that_there_is_none_to_pull(
    control_plane: ControlPlane,
) -> None:
    said = control_plane.helm("template", "shardwright", str(CHART), check=False)

    assert "image.repository is empty, and nobody has published an image of the operator" in said
    assert "--set image.repository=registry.example/shardwright/operator" in said


@pytest.mark.parametrize(
    ("repository", "image"),
    [
        ("docker.io/acme/op", "mirror.example:5000/acme/op:0.1.0"),
        ("registry:5000/op", "mirror.example:5000/op:0.1.0"),
        ("localhost/op", "mirror.example:5000/op:0.1.0"),
        ("acme/op", "mirror.example:5000/acme/op:0.1.0"),
    ],
)
def test_a_registry_for_all_charts_takes_the_place_of_the_images_own(
    control_plane: ControlPlane, as_delivered: list[Manifest], repository: str, image: str
) -> None:
    objects = render(
        control_plane,
        "--set",
        f"image.repository={repository},global.imageRegistry=mirror.example:5000",
    )

    assert difference(as_delivered, objects) == runs(image)


def test_another_name_is_that_of_everything_but_the_crd_and_claims(
    control_plane: ControlPlane,
) -> None:
    names = {
        item["metadata"]["name"]
        for item in render(control_plane, "--set", "fullnameOverride=planner")
    }

    assert {name for name in names if not re.match(r"planner(-|$)", name)} == {
        "shardedmodels.shardwright.io",
        *CLAIMS,
    }


def test_a_service_account_of_others_gets_the_rights_and_the_policies(
    control_plane: ControlPlane, as_delivered: list[Manifest]
) -> None:
    objects = render(control_plane, "--set", "serviceAccount.create=false,serviceAccount.name=ours")

    assert difference(as_delivered, objects) == of_account("ours") | {
        "ServiceAccount/shardwright": GONE
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "serviceAccount.create=false",
            (
                "serviceAccount.name is empty and serviceAccount.create is false: name the service "
                "account"
            ),
        ),
        (
            "extraEnv[0].name=POD_NAME,extraEnv[0].value=x",
            "extraEnv: POD_NAME is set by the chart; take it out",
        ),
    ],
)
def test_values_that_contradict_the_chart_are_refused(
    control_plane: ControlPlane, flags: str, message: str
) -> None:
    assert message in control_plane.helm(
        "template", "shardwright", str(CHART), *NAMED, "--set", flags, check=False
    )


@pytest.mark.parametrize("context", ["podSecurityContext", "resources"])
def test_null_empties_what_the_chart_delivers(
    control_plane: ControlPlane, as_delivered: list[Manifest], context: str
) -> None:
    path = {"podSecurityContext": f"{POD}.securityContext", "resources": f"{CONTAINER}.resources"}[
        context
    ]

    changed = difference(as_delivered, render(control_plane, "--set", f"{context}=null"))

    assert changed
    assert {(key.startswith(f"{path}."), value) for key, value in changed.items()} == {(True, GONE)}


def test_null_is_an_empty_list(control_plane: ControlPlane) -> None:
    """Who takes the images that are admitted away by `null` has admitted none, and not all of
    them.
    """
    policy = defaults()["policy"]
    names = [
        *(name for name, value in defaults().items() if isinstance(value, list)),
        *(f"policy.{name}" for name, value in policy.items() if isinstance(value, list)),
    ]
    emptied = render(control_plane, *(f"--set-json={name}=[]" for name in names))

    nulls = render(control_plane, *(f"--set={name}=null" for name in names))

    assert difference(emptied, nulls) == {}


def test_each_option_of_the_operator_is_the_charts_or_may_be_added(
    as_delivered: list[Manifest],
) -> None:
    (container,) = named(as_delivered, "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {argument.partition("=")[0] for argument in container["args"]}
    added = {
        f"--{name}"
        for name in re.findall(
            r"[a-z-]+[a-z]", schema()["properties"]["extraArgs"]["items"]["pattern"]
        )
    }

    known = {
        name
        for action in operator_parser()._actions
        for name in action.option_strings
        if name.startswith("--")
    }
    assert (
        known - given - OF_NO_USE_IN_A_POD - {"--watch-namespaces", "--plans"}
        == added
        == {"--resync-seconds", "--workers"}
    )


def test_policies_are_installed_where_the_api_server_serves_them(
    control_plane: ControlPlane, as_delivered: list[Manifest]
) -> None:
    policies = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

    assert render(control_plane, "--api-versions", f"apps/v1/Deployment,{policies}") == as_delivered


def test_policies_are_left_out_where_the_api_server_serves_none(
    control_plane: ControlPlane, as_delivered: list[Manifest]
) -> None:
    without = render(control_plane, "--api-versions", "apps/v1/Deployment")

    assert difference(as_delivered, without) == difference(
        as_delivered, render(control_plane, "--set=admissionPolicies.enabled=false")
    )


def test_values_that_an_earlier_release_has_stored_are_enough(
    control_plane: ControlPlane, as_delivered: list[Manifest], tmp_path: Path
) -> None:
    chart = chart_with(tmp_path, yaml.safe_load(STORED.read_text()))

    assert difference(as_delivered, render(control_plane, chart=chart)) == {}


def test_a_value_that_stored_ones_do_not_know_is_as_this_chart_delivers_it(
    control_plane: ControlPlane, as_delivered: list[Manifest], tmp_path: Path
) -> None:
    known = {name: value for name, value in defaults().items() if name in EMPTIED}
    policy = {
        name: value for name, value in defaults()["policy"].items() if f"policy.{name}" in EMPTIED
    }
    chart = chart_with(tmp_path, known | {"policy": policy})

    assert difference(as_delivered, render(control_plane, chart=chart)) == {}


def test_what_null_has_emptied_stays_empty_when_values_are_reused(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Helm stores what `null` has emptied as if there were no such value."""
    stored = defaults()
    for name in EMPTIED:
        assert default_of(name), name
        stored = without(stored, name)

    emptied = render(control_plane, *(f"--set={name}=null" for name in EMPTIED))

    assert difference(emptied, render(control_plane, chart=chart_with(tmp_path, stored))) == {}
