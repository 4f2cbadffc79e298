"""The Lease of the operator, of which the next operator would wait for the end where its holder was
killed.
"""

from __future__ import annotations

from typing import Final

from tests.harness.api import Api, ApiError

SYSTEM: Final = "shardwright-system"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/shardwright"


def give_up(api: Api, *identities: str) -> None:
    """Have nobody hold the Lease that one of these held, who are dead."""
    try:
        holder = api.get(LEASE)["spec"].get("holderIdentity") or ""
    except ApiError:  # there is none, or no API server
        return
    if holder.startswith(identities):
        api.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
