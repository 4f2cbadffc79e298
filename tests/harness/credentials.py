"""Keys, tokens and kubeconfigs of one control plane, made with the standard library alone."""

from __future__ import annotations

import base64
import csv
import io
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml

_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_P256_OID = b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"
_MASTERS = "system:masters"


@dataclass(frozen=True)
class User:
    """Somebody whom the API server knows by a token. Each component is its own user, so the audit
    log tells them apart.
    """

    name: str
    token: str
    groups: tuple[str, ...] = ()


def users() -> dict[str, User]:
    """The administrator and the components that need a kubeconfig, by their short name, with fresh
    tokens.
    """
    names: dict[str, tuple[str, tuple[str, ...]]] = {
        "admin": ("admin", (_MASTERS,)),
        "kube-controller-manager": ("system:kube-controller-manager", ()),
        "kube-scheduler": ("system:kube-scheduler", ()),
        "kwok": ("kwok", (_MASTERS,)),
    }
    return {
        short: User(name, secrets.token_urlsafe(24), groups)
        for short, (name, groups) in names.items()
    }


def write_token_file(path: Path, known: dict[str, User]) -> None:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for user in known.values():
        rows.writerow([user.token, user.name, user.name, ",".join(user.groups)])
    _write_private(path, text.getvalue())


def write_signing_key(path: Path) -> None:
    """A P-256 key for service account tokens, as SEC 1 DER in PEM.

    In this form Kubernetes reads one file both as the private key and, deriving it, as the public
    key; PKCS#8 it would refuse as the latter. The public point is optional in SEC 1, so that no
    elliptic curve arithmetic is needed here.
    """
    scalar = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    fields = b"\x02\x01\x01" + b"\x04\x20" + scalar + _P256_OID
    der = b"\x30" + bytes([len(fields)]) + fields
    body = base64.encodebytes(der).decode()
    _write_private(path, f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n")


def write_kubeconfig(path: Path, url: str, ca_file: Path, user: User) -> None:
    """A kubeconfig that is complete in itself: the CA as data, so it works from another folder or
    machine.
    """
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "harness", "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": "harness", "context": {"cluster": "harness", "user": user.name}}],
        "current-context": "harness",
    }
    _write_private(path, yaml.safe_dump(config, sort_keys=False))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
