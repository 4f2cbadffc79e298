"""The tests on the running kind cluster: `make kind-test`; elsewhere only those that need no cluster are collected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kind import cluster, programs

KUBECONFIG_VARIABLE = "SHARDWRIGHT_KIND_KUBECONFIG"
"""The cluster to test on; `make kind-test` names ours, and any other can be named."""

collect_ignore_glob = [] if KUBECONFIG_VARIABLE in os.environ else ["test_running_*.py"]


@pytest.fixture(scope="session")
def kind() -> cluster.Cluster:
    """The running cluster, seen through kubectl."""
    return cluster.Cluster(Path(os.environ[KUBECONFIG_VARIABLE]), programs.programs())
