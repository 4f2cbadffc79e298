"""Sessions of kopf, by which it tells credentials that were refused."""

import asyncio

import kopf

from shardwright.controller.kopf_session import session


async def _equal(first: kopf.ConnectionInfo, second: kopf.ConnectionInfo) -> bool:
    sessions = [session(first), session(second)]
    try:
        return sessions[0] == sessions[1]
    finally:
        for made in sessions:
            await made.aiohttp_session.close()


def test_sessions_are_equal_where_their_credentials_are_so_that_kopf_does_not_try_refused_ones_again() -> None:
    refused = kopf.ConnectionInfo(server="https://127.0.0.1:1", token="first")
    renewed = kopf.ConnectionInfo(server="https://127.0.0.1:1", token="second")

    assert asyncio.run(_equal(refused, refused))
    assert not asyncio.run(_equal(refused, renewed))
