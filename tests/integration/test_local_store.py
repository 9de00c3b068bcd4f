"""A Redis that somebody else runs, as local mode looks at it: away, silent, or not for us."""

import socket

import pytest
import redis.asyncio

from fleet.errors import SettingsError
from fleet.local.store import NoAnswer, ping
from tests.ports import free_port
from tests.redis_proxy import RedisProxy
from tests.sentinels import SERVICE, named
from tests.valkey import Valkey, running_valkey


async def test_who_does_not_answer_is_told_in_plain_words() -> None:
    """Nobody listens, no such socket, no such host: the system's words, without numbers."""
    with pytest.raises(NoAnswer, match=r"^connection refused$"):
        await ping(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(NoAnswer, match=r"^no such file or directory$"):
        await ping("unix:///nowhere.sock")


async def test_a_silent_server_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listens and says nothing."""
    monkeypatch.setattr("fleet.local.store.ANSWER_SECONDS", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        with pytest.raises(NoAnswer, match=r"^no answer within"):
            await ping(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")


async def test_a_refusal_is_a_setting_to_mend() -> None:
    """Wrong or no password; the right one is good."""
    server = Valkey(arguments=("--requirepass", "hidden"))
    try:
        server.start()
        for user in (":mistaken@", ""):
            with pytest.raises(SettingsError, match="refuses us"):
                await ping(f"redis://{user}127.0.0.1:{server.port}/0")
        await ping(f"redis://:hidden@127.0.0.1:{server.port}/0")
    finally:
        server.kill()


async def test_a_user_of_least_privilege_is_good() -> None:
    """The documented rights of a worker hold no PING, and SELECT only for other databases."""
    with running_valkey() as server:
        async with redis.asyncio.Redis(port=server.port) as admin:
            rights = ["-@all", "+time", "+get"]
            await admin.acl_setuser(
                "fleet", enabled=True, passwords="+hidden", commands=rights, keys=["epp:*"]
            )
        await ping(f"redis://fleet:hidden@127.0.0.1:{server.port}/0")
        with pytest.raises(SettingsError, match="select"):
            await ping(f"redis://fleet:hidden@127.0.0.1:{server.port}/1")


async def test_sentinels_are_asked_for_the_primary() -> None:
    """None that answers is no answer; what they name must answer too."""
    with pytest.raises(NoAnswer, match="no Sentinel names a primary of 'fleet'"):
        await ping(f"redis+sentinel://127.0.0.1:{free_port()}/fleet")
    with running_valkey() as server:
        async with RedisProxy.before(server.port) as sentinel:
            sentinel.canned = named(server.port, 1)
            await ping(f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}")
            sentinel.canned = named(free_port(), 2)
            with pytest.raises(NoAnswer, match=r"^connection refused$"):
                await ping(f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}")
