"""Leadership by Lease: one operator writes, the others keep their caches warm.

Expiry is judged by the local clock since the record last changed, so clocks of two machines are
never compared. Two never write:

- A leader counts from before it asked to renew, and stops ``renew_deadline_seconds`` later; others
  wait for the Lease's longer duration from when they saw the renewal.
- A Lease changes hands at once only if its holder released it, which its duration says. An empty or
  changed holder without that was written by hand: the Lease must then stand still for its duration.
- A missing Lease was never made, or was deleted under a leader. A process that makes it waits for
  as long as that leader may not have noticed.
- A leader that reads another holder, or wakes up too late, never leads again: the process ends.
- A process that reads an older version of the Lease than before never leads again either: etcd was
  put back, and its caches hold what never was. Source: a GET is of the newest version there is.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.leases import LONGEST_LEASE_SECONDS, LeaseTimings
from shardwright.cluster.resources import LEASES

JITTER: Final = 0.2
"""Candidates that started together drift apart: each pause is up to this part shorter; assumed."""
CANDIDATE_PACE: Final = 0.25
"""The part of the retry time between a candidate's tries: it takes over within that time after a
release.
"""
RELEASED_SECONDS: Final = 1
"""The duration of a Lease that its holder has let go of, as client-go writes it; the API takes no
0.
"""
# Linux's monotonic clock stands still while the machine is suspended, and the Lease does not.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running_seconds() -> float:
    """Return a clock in seconds that nobody sets and that runs while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseIdentity:
    """Which Lease, and our name in it."""

    namespace: str
    name: str
    holder: str


class Elector:
    """One candidate for the Lease; call :meth:`tick` again after ``pause_seconds``."""

    def __init__(
        self,
        client: Client,
        identity: LeaseIdentity,
        clock: Callable[[], float] = running_seconds,
        timings: LeaseTimings | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._clock = clock
        self._timings = timings or LeaseTimings()
        self._seen: Mapping[str, Any] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._leads_from = float("-inf")
        self._lost = False
        self._newest = 0  # version of the Lease that was read or written
        self.gone_back = False  # an older one was read later

    @property
    def leading(self) -> bool:
        """Return whether we hold the Lease and may write; asked by any thread before it writes."""
        return (
            self._renewed_at is not None
            and not self.must_fence
            # A Lease that was deleted under a leader is waited out first: that leader may not have
            # noticed yet.
            and self._clock() > self._leads_from
        )

    @property
    def must_fence(self) -> bool:
        """Return whether the Lease is lost or was not renewed in time: stop at once, for good."""
        renewed_at = self._renewed_at
        # Asked of the clock at each write, not of a task that may not have run: a suspended process
        # wakes up as no leader.
        return self._lost or (
            renewed_at is not None
            and self._clock() - renewed_at > self._timings.renew_deadline_seconds
        )

    @property
    def pause_seconds(self) -> float:
        """Return the pause in seconds before the next :meth:`tick`."""
        # A candidate looks more often, so that a released Lease is taken within a retry.
        pace = 1.0 if self._renewed_at is not None else CANDIDATE_PACE
        return self._timings.retry_seconds * pace * random.uniform(1 - JITTER, 1)  # noqa: S311  # spreads load

    async def tick(self) -> bool:
        """Try to get or keep the Lease and return whether that worked; errors count as failures."""
        if self.must_fence:
            self._lost = True
            return False
        # From before the request: it may have been stored at any time since, and whoever waits for
        # the Lease counts from then.
        started = self._clock()
        # A connection that says nothing must leave time for another try on a new one.
        client = self._client.until(monotonic() + self._timings.renew_deadline_seconds / 2)
        try:
            held = await self._acquire(client)
        except ApiError:
            return False
        # Once more after the answer: it may have taken longer than the deadline.
        if not held or self.must_fence:
            return False
        self._renewed_at = started
        return True

    async def release(self) -> None:
        """Release the Lease, so that another takes over at once; nothing may be written after."""
        held, self._renewed_at = (self._renewed_at is not None and not self.must_fence, None)
        if not held:
            return
        # Not for long: an end that hangs is worse than a Lease that expires.
        client = self._client.until(monotonic() + self._timings.retry_seconds)
        try:
            lease = await self._read(client)
            # Not if somebody has it by now: releasing that would make two leaders.
            if lease and _holder(_spec_of(lease)) == self._identity.holder:
                await self._replace(
                    client, lease, {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS}
                )
        except ApiError:
            return  # it expires by itself

    async def _acquire(self, client: Client) -> bool:
        lease = await self._read(client)
        if lease is None:
            return await self._make(client)
        if self._is_older(lease):
            self.gone_back = self._lost = True
            return False
        spec = _spec_of(lease)
        # Asked before the reconcile, as the reconcile itself marks it as seen.
        first = self._seen is None
        self._look(spec)
        if self._renewed_at is not None:
            self._lost = _holder(spec) not in {"", self._identity.holder}
            # Another client has emptied the Lease while we lead: claim it again.
            return not self._lost and await self._replace(client, lease, self._claim())
        # This process was started anew under its name.
        ours = first and _holder(spec) == self._identity.holder
        if not (ours or _is_released(spec) or self._expired()):
            return False
        moves = {
            "acquireTime": _now(),
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
        }
        return await self._replace(client, lease, {**self._claim(), **({} if ours else moves)})

    def _is_older(self, lease: Mapping[str, Any]) -> bool:
        version, newest = _version(lease), self._newest
        self._newest = max(version, newest)
        return 0 < version < newest

    def _look(self, spec: Mapping[str, Any]) -> None:
        # Since when it stands still, by our own clock: the times in it are by that of its holder
        # (ADR 8).
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()

    def _expired(self) -> bool:
        asked = (self._seen or {}).get("leaseDurationSeconds") or 0
        # The longer of the two: a holder with other flags counts by its own duration.
        return self._clock() - self._seen_at >= max(
            self._timings.duration_seconds, min(asked, LONGEST_LEASE_SECONDS)
        )

    async def _make(self, client: Client) -> bool:
        """Make a missing Lease; if it was deleted under a leader, that one gets time to notice."""
        unknown = self._seen is None and self._renewed_at is None
        if self._renewed_at is None and not unknown and not self._expired():
            return False
        metadata = {"name": self._identity.name, "namespace": self._identity.namespace}
        spec = {**self._claim(), "acquireTime": _now(), "leaseTransitions": 0}
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": spec,
        }
        made = await self._accepted(client.create(LEASES, self._identity.namespace, body))
        if made and unknown:
            self._leads_from = self._clock() + self._timings.renew_deadline_seconds
        return made

    async def _read(self, client: Client) -> dict[str, Any] | None:
        return await client.get(LEASES, self._identity.namespace, self._identity.name)

    async def _replace(
        self, client: Client, lease: Mapping[str, Any], change: Mapping[str, Any]
    ) -> bool:
        # With the resource version that was read, so of two candidates one gets 409.
        body = {**lease, "spec": {**_spec_of(lease), "renewTime": _now(), **change}}
        return await self._accepted(
            client.replace(LEASES, self._identity.namespace, self._identity.name, body)
        )

    async def _accepted(self, request: Awaitable[Mapping[str, Any]]) -> bool:
        try:
            self._newest = max(self._newest, _version(await request))
        except ApiError as error:
            if error.code == HTTPStatus.CONFLICT:  # somebody was faster
                return False
            raise
        return True

    def _claim(self) -> dict[str, Any]:
        duration = self._timings.duration_seconds
        return {
            "holderIdentity": self._identity.holder,
            "leaseDurationSeconds": duration,
            "renewTime": _now(),
        }


def _version(lease: Mapping[str, Any]) -> int:
    text = str((lease.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def _spec_of(lease: Mapping[str, Any]) -> Mapping[str, Any]:
    return lease.get("spec") or {}


def _holder(spec: Mapping[str, Any]) -> str:
    return str(spec.get("holderIdentity") or "")


def _is_released(spec: Mapping[str, Any]) -> bool:
    return not _holder(spec) and spec.get("leaseDurationSeconds") == RELEASED_SECONDS


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
