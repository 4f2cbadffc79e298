"""Sessions of kopf, which asks for another where the credentials of one were refused."""

import asyncio

import kopf

from shardwright.controller.watches import Logins


async def _given(*asked: kopf.ConnectionInfo) -> list[bool]:
    logins = Logins()
    sessions = [logins.session(info) for info in asked]
    for made in sessions:
        if made is not None:
            await made.aiohttp_session.close()
    return [made is not None for made in sessions]


def test_credentials_are_not_given_again_once_they_were_refused_and_renewed_ones_are() -> None:
    refused = kopf.ConnectionInfo(server="https://127.0.0.1:1", token="first")
    renewed = kopf.ConnectionInfo(server="https://127.0.0.1:1", token="second")

    assert asyncio.run(_given(refused, refused, renewed)) == [True, False, True]
