"""However many scrape a worker at once, nobody waits for more than two pages."""

import asyncio

import pytest

from epp_worker.web import _Latest


async def test_scrapers_that_wait_share_a_page() -> None:
    """The first is alone with its page; those that came while it was made have the next one."""
    gate, made = asyncio.Event(), 0

    async def make() -> bytes:
        nonlocal made
        made += 1
        number = made
        await gate.wait()
        return b"%d" % number

    latest = _Latest(make)
    asked = [asyncio.create_task(latest.body()) for _ in range(40)]
    while not made:
        await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*asked) == [b"1", *[b"2"] * 39]
    assert await latest.body() == b"3"
    assert latest._body == b""


async def test_a_page_that_fails_fails_for_one() -> None:
    """The next one's is made anew."""
    made = 0

    async def make() -> bytes:
        nonlocal made
        made += 1
        if made == 1:
            raise RuntimeError("no page")
        return b"good"

    latest = _Latest(make)
    first, second = asyncio.create_task(latest.body()), asyncio.create_task(latest.body())
    with pytest.raises(RuntimeError, match="no page"):
        await first
    assert await second == b"good"
