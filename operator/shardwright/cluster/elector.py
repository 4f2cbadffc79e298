"""Leadership by Lease: one operator writes, the others keep their caches warm.

Expiry is judged by the local monotonic clock since the record last changed, so clocks of two machines are
never compared. A leader that cannot renew must stop writing before another may start: see ``must_fence``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import LEASES

LEASE_SECONDS: Final = 15.0
RENEW_DEADLINE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseIdentity:
    """Which Lease, and who we are in it."""

    namespace: str
    name: str
    holder: str


class Elector:
    """One candidate for the Lease; call :meth:`tick` every ``RETRY_SECONDS``."""

    def __init__(self, client: Client, identity: LeaseIdentity, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._seen = ""
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leading(self) -> bool:
        """Return whether we hold the Lease and may write."""
        return self._renewed_at is not None and not self.must_fence

    @property
    def must_fence(self) -> bool:
        """Return whether we led and have not been able to renew for too long: stop at once."""
        return self._renewed_at is not None and self._clock() - self._renewed_at > RENEW_DEADLINE_SECONDS

    async def tick(self) -> bool:
        """Try to get or keep the Lease and return whether that worked; errors count as not renewed."""
        started = self._clock()
        try:
            held = await self._acquire()
        except ApiError:
            held = False
        if held:
            self._renewed_at = started
        return held

    async def release(self) -> None:
        """Give the Lease up, so that another takes over at once."""
        if not self.leading:
            return
        self._renewed_at = None
        try:
            lease = await self._read()
            if lease and _holder(lease) == self._identity.holder:
                await self._replace(lease, holder="")
        except ApiError:
            return  # it expires by itself

    async def _acquire(self) -> bool:
        lease = await self._read()
        if lease is None:
            return await self._create()
        self._look(lease)
        if _holder(lease) not in {"", self._identity.holder} and not self._expired():
            return False
        return await self._replace(lease, holder=self._identity.holder)

    def _look(self, lease: dict[str, Any]) -> None:
        record = json.dumps(lease.get("spec", {}), sort_keys=True)
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock()

    def _expired(self) -> bool:
        return self._clock() - self._seen_at >= LEASE_SECONDS

    async def _read(self) -> dict[str, Any] | None:
        return await self._client.get(LEASES, self._identity.namespace, self._identity.name)

    async def _create(self) -> bool:
        metadata = {"name": self._identity.name, "namespace": self._identity.namespace}
        spec = {**_spec(self._identity.holder), "acquireTime": _now(), "leaseTransitions": 0}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        return await self._accepted(self._client.create(LEASES, self._identity.namespace, body))

    async def _replace(self, lease: dict[str, Any], holder: str) -> bool:
        spec = {**lease.get("spec", {}), **_spec(holder)}
        if holder and holder != _holder(lease):
            spec |= {"acquireTime": _now(), "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        body = {**lease, "spec": spec}
        return await self._accepted(self._client.replace(LEASES, self._identity.namespace, self._identity.name, body))

    async def _accepted(self, request: Any) -> bool:
        try:
            await request
        except ApiError as error:
            if error.code == 409:  # somebody was faster  # noqa: PLR2004
                return False
            raise
        return True


def _spec(holder: str) -> dict[str, Any]:
    return {"holderIdentity": holder, "leaseDurationSeconds": int(LEASE_SECONDS), "renewTime": _now()}


def _holder(lease: dict[str, Any]) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
