"""How to reach the API server: service account or kubeconfig, with renewed credentials."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import client, config
from kubernetes.config.incluster_config import InClusterConfigLoader

from shardwright.cluster.connection import AccessError

CONNECTIONS_KEPT: Final = 256
"""Basis: derived; 16 namespaces have a watch for each of thirteen kinds, and 32 requests may be on
their way beside them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What another HTTP client needs to reach the same server as the same user, as of now."""

    server: str
    ca_file: str | None
    authorization: str | None  # the whole header: scheme and token
    certificate_file: str | None
    key_file: str | None
    insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A configured way to the API server; a token file is reread whenever it is used.

    ``headers`` go with every request; a name may occur several times.
    """

    configuration: Any
    headers: tuple[tuple[str, str], ...] = ()

    def credentials(self) -> Credentials:
        """Return the current credentials, with the token read afresh."""
        configuration = self.configuration
        return Credentials(
            server=configuration.host,
            ca_file=configuration.ssl_ca_cert,
            authorization=configuration.get_api_key_with_prefix("BearerToken"),
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
            insecure=not configuration.verify_ssl,
        )


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's credentials."""


def open_access(
    kubeconfig: Path | None = None, context: str | None = None, credentials_dir: Path | None = None
) -> Access:
    """Return access by kubeconfig (by default its current context) or the pod's service account.

    ``credentials_dir`` wins: it holds a service account's ``token`` and ``ca.crt``; the server's
    address comes from the environment, as in every pod.

    Raises:
        AccessError: neither works; the message says why.
    """
    configuration = client.Configuration()
    # Retries are ours: the library's would repeat what must not be repeated.
    configuration.retries = False
    # The library keeps five for each core, and shakes hands anew for every request beyond that.
    configuration.connection_pool_maxsize = CONNECTIONS_KEPT
    try:
        # A context is a word of a kubeconfig, so whoever names one wants that and not the pod's
        # account.
        if credentials_dir or (kubeconfig is None and context is None):
            folder = credentials_dir or SERVICE_ACCOUNT
            InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt")).load_and_set(
                configuration
            )
        else:
            _load_kubeconfig(configuration, kubeconfig, context)
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise AccessError(f"no access to a cluster: {error}") from error
    return Access(configuration=configuration)


def _load_kubeconfig(configuration: Any, kubeconfig: Path | None, context: str | None) -> None:
    config_file = str(kubeconfig) if kubeconfig else None
    config.load_kube_config(
        config_file=config_file, context=context, client_configuration=configuration
    )
    token_file = _token_file(kubeconfig, context) if kubeconfig else None
    if token_file:  # the library reads it once, but a service account's token expires
        configuration.refresh_api_key_hook = _token_reader(token_file)


def _token_reader(token_file: Path) -> Callable[[Any], None]:
    def refresh(configuration: Any) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {token_file.read_text().strip()}"

    return refresh


def _token_file(kubeconfig: Path, context: str | None) -> Path | None:
    document = yaml.safe_load(kubeconfig.read_text())
    contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
    users = {entry["name"]: entry.get("user") or {} for entry in document["users"]}
    user = users.get(contexts[context or document["current-context"]]["user"], {})
    return kubeconfig.parent / user["tokenFile"] if user.get("tokenFile") else None
