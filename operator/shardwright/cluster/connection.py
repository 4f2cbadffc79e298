"""How a user names a cluster: kubectl's flags as one value, and the kubeconfigs there are.

The library that reads them is not loaded here, so a user without one is told at once.
"""

import os
from dataclasses import dataclass
from typing import Final

DEFAULT_KUBECONFIG: Final = "~/.kube/config"


class AccessError(Exception):
    """A cluster's address or credentials cannot be found; ``hint`` is the way out, if any."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class LoginError(AccessError):
    """A kubeconfig's credential program gives none; ``hint`` is the kubeconfig's, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The cluster, and as whom, by kubectl's flags of the same names; None: as in the kubeconfig.

    ``kubeconfig`` is a list of files as in ``$KUBECONFIG``; the first that names something counts.
    ``request_seconds`` bounds all that is asked at once (None: as the client bounds each request).
    """

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None
    server: str | None = None
    token: str | None = None
    certificate_authority: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    as_user: str | None = None
    as_uid: str | None = None
    as_groups: tuple[str, ...] = ()
    request_seconds: float | None = None

    @property
    def impersonation(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that impersonate somebody else.

        >>> Connection(as_user="ada", as_groups=("ops", "ml")).impersonation
        (('Impersonate-User', 'ada'), ('Impersonate-Group', 'ops'), ('Impersonate-Group', 'ml'))
        """
        who = (("Impersonate-User", self.as_user), ("Impersonate-Uid", self.as_uid))
        return (
            *((name, value) for name, value in who if value),
            *(("Impersonate-Group", group) for group in self.as_groups),
        )


def kubeconfigs_of(connection: Connection) -> tuple[str, ...]:
    """Return the existing kubeconfigs; none if flags alone give the cluster's address.

    Raises:
        AccessError: there is none, and no flag names a server.
    """
    # As kubectl: an empty variable counts as none.
    named = connection.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    paths = [path for path in named.split(os.pathsep) if path]
    there = tuple(path for path in paths if os.path.exists(os.path.expanduser(path)))  # noqa: PTH110, PTH111 - Path raises where a name is too long
    if not there and not connection.server:
        raise AccessError(f"there is no kubeconfig: {', '.join(paths)}")
    return there
