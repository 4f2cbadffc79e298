"""How to reach the API server: service account or kubeconfig, with renewed credentials.

How the command line reaches a cluster: merged kubeconfigs, overridden by flags, as kubectl.
"""

import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes import client, config
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from shardwright.cluster.connection import AccessError, Connection, LoginError, kubeconfigs_of

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


DEFAULT_NAMESPACE: Final = "default"

_FLAGS: Final = "of the command line"
"""Name of the context that cluster and user of the flags make up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAccess:
    """A way to the API server, with its context, empty if flags alone name the cluster."""

    access: Access
    server: str
    context: str
    namespace: str


def open_connection(connection: Connection) -> UserAccess:
    """Return the way to the cluster of a connection.

    Raises:
        LoginError: the program that gives the user's credentials is missing or fails.
        AccessError: no kubeconfig names it, or a named file cannot be read.
    """
    configuration = client.Configuration()
    configuration.retries = False  # as for the operator: retries are ours
    try:
        context = _load(configuration, connection)
        _override(configuration, connection)
    except (
        config.ConfigException,
        OSError,
        yaml.YAMLError,
        # The library does not check the form of a kubeconfig; these are what it raises on a wrong
        # one.
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise AccessError(_said(error)) from error
    return UserAccess(
        access=Access(configuration=configuration, headers=connection.impersonation),
        server=str(configuration.host),
        context=str(context.get("name") or ""),
        namespace=connection.namespace or str(context.get("namespace") or "") or DEFAULT_NAMESPACE,
    )


def named_in_kubeconfig(kubeconfig: str | None, part: str) -> list[str]:
    """Return the kubeconfigs' ``contexts``, ``clusters`` or ``users``, none if unreadable."""
    try:
        merged = _merged(kubeconfigs_of(Connection(kubeconfig=kubeconfig)))
        return [str(item["name"]) for item in merged[part].value]
    except (
        AccessError,
        config.ConfigException,
        OSError,
        yaml.YAMLError,
        KeyError,
        TypeError,
        AttributeError,
    ):
        return []


def _load(configuration: Any, connection: Connection) -> dict[str, Any]:
    paths = kubeconfigs_of(connection)
    if not paths:
        return {}
    merged = _merged(paths)
    name = connection.context or merged.safe_get("current-context")
    # --server alone is enough, as with kubectl.
    if not name and not connection.cluster:
        if connection.server:
            return {}
        raise AccessError(f"no context is current in {', '.join(paths)}")
    if name:
        _check_name(merged, "context", name, paths)
    found = merged["contexts"].get_with_name(name)["context"].value if name else {}
    meant = _with_flags(merged, found, connection)
    by_flags = bool(connection.token or connection.client_certificate)
    for kind, needed in (("cluster", True), ("user", bool(connection.user) or not by_flags)):
        if meant.get(kind) and needed:
            _check_name(merged, kind, meant[kind], paths)
    loader = KubeConfigLoader(merged, active_context=_FLAGS, config_base_path=None)
    with _faults_of_the_library() as said:
        loader.load_and_set(configuration)
    if not by_flags:
        _check_login(configuration, _login_of(merged, meant), said)
    return {"name": name, "namespace": found.get("namespace")}


def _check_name(merged: Any, kind: str, name: str, paths: Sequence[str]) -> None:
    """Refuse a context, cluster or user no kubeconfig has: the library would go on as nobody.

    Raises:
        AccessError: with the names that there are.
    """
    there = [str(item["name"]) for item in merged.value.get(f"{kind}s") or ()]
    if str(name) in there:  # YAML reads a name of digits as a number
        return
    hint = (
        f"there {'is' if len(there) == 1 else 'are'}: {', '.join(there)}"
        if there
        else f"it has no {kind} at all"
    )
    raise AccessError(f"there is no {kind} {name} in {', '.join(paths)}", hint)


@contextmanager
def _faults_of_the_library() -> Iterator[list[str]]:
    """Collect errors that the library only logs: it raises nothing for a failed login."""
    said: list[str] = []
    keeping = logging.Handler(logging.ERROR)
    keeping.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(keeping)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(keeping)


def _login_of(merged: Any, context: dict[str, Any]) -> dict[str, Any]:
    if not context.get("user"):
        return {}
    user = merged["users"].get_with_name(context["user"])["user"].value or {}
    return user.get("exec") or {}


def _check_login(configuration: Any, login: dict[str, Any], said: Sequence[str]) -> None:
    """Refuse to go on as nobody if a program should have given credentials.

    Raises:
        LoginError: it has given none.
    """
    if not login or configuration.api_key or configuration.cert_file:
        return
    command, hint = str(login.get("command")), login.get("installHint")
    hint = " ".join(str(hint or "").split()).rstrip(".")
    if "/" not in command and shutil.which(command) is None:
        raise LoginError(f"{command} is not installed", hint or "install it where $PATH finds it")
    # To a terminal it has spoken itself, which the library does not expect.
    why = "it says why above" if sys.stdout.isatty() else " ".join(said)
    raise LoginError(f"{command} fails: {' '.join(why.split())}")


def _merged(paths: Sequence[str]) -> Any:
    # The first that names something counts; the library takes the last current context, even if
    # empty.
    merger = KubeConfigMerger(os.pathsep.join(paths))
    current = (file.get("current-context") for file in merger.config_files.values())
    merger.config.value["current-context"] = next(filter(None, current), "")
    return merger.config


def _with_flags(merged: Any, context: dict[str, Any], connection: Connection) -> dict[str, Any]:
    flags = {"cluster": connection.cluster, "user": connection.user}
    meant = {**context, **{key: value for key, value in flags.items() if value}}
    merged.value["contexts"].append(
        ConfigNode("flags", {"name": _FLAGS, "context": meant}, merged.path)
    )
    return meant


def _override(configuration: Any, connection: Connection) -> None:
    if connection.server:
        configuration.host = connection.server.rstrip("/")
    if connection.token:
        configuration.api_key = {"BearerToken": f"Bearer {connection.token}"}
        # It would put the token of the kubeconfig back in its place.
        configuration.refresh_api_key_hook = None
    if connection.insecure:
        configuration.verify_ssl = False
        configuration.ssl_ca_cert = None
    files = {
        "ssl_ca_cert": connection.certificate_authority,
        "cert_file": connection.client_certificate,
        "key_file": connection.client_key,
    }
    for name, file in files.items():
        if file:
            with Path(file).open(
                "rb"
            ):  # what cannot be read is said of the file, not of the connection
                setattr(configuration, name, file)
    if connection.tls_server_name:
        configuration.tls_server_name = connection.tls_server_name


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyError | TypeError | AttributeError):
        return "a kubeconfig is not of the form that kubectl writes"
    return " ".join(str(error).split()).rstrip(".")
