"""`GET /v1/models` against servers that answer anything."""

import json

import pytest

from epp_worker.datalayer.models import MAX_BYTES, HttpModels, NotTold
from tests.scripted_http import Answer, answer, chunked, scripted

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def listed(*names: object) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()


async def ask(*script: Answer) -> frozenset[str]:
    models = HttpModels()
    async with scripted(*script) as server:
        try:
            return await models.ask(server.url.removeprefix("http://"))
        finally:
            assert [each.target for each in server.asked] == ["/v1/models"]


async def test_a_servers_models() -> None:
    """In one piece or many; impossible names are left out."""
    body = listed("llama", "lora-1", "", "x" * 257)
    assert await ask(answer(200, body)) == {"llama", "lora-1"}
    assert await ask(chunked(*(body[at : at + 7] for at in range(0, len(body), 7)))) == {
        "llama",
        "lora-1",
    }


async def test_of_endless_models_a_thousand_count() -> None:
    assert len(await ask(answer(200, listed(*(f"m-{number}" for number in range(5000)))))) == 1000


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(404, b"{}"), "404"),
        (answer(302, b"", headers={"Location": "http://127.0.0.1:1/"}), "302"),
        (answer(200, b"no json"), "no list of models"),
        (answer(200, b'{"data": [{"id": 3}]}'), "no list of models"),
        (answer(200, b"[" * 100_000), "no list of models"),
        (answer(200, b'{"data": [{"id": "\xff"}]}'), "no list of models"),
        (answer(200, b" " * (MAX_BYTES + 1)), "more than"),
        (Answer([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], "close"), "ended inside"),
        (Answer([b"HTTP/1.1 100 Continue\r\n\r\n" * 1000], "close"), "100"),
        (Answer([b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000], "close"), "head is too long"),
        (Answer([CHUNKED + b"1\r\n \r\n" * 10_000], "close"), "chunks are too small"),
        (Answer([b"\x00\x01garbage\r\n\r\n"], "close"), ""),
    ],
)
async def test_other_answers_are_none(given: Answer, why: str) -> None:
    with pytest.raises(NotTold, match=f"(?i){why}"):
        await ask(given)


async def test_nobody_listens() -> None:
    models = HttpModels()
    with pytest.raises(NotTold):
        await models.ask("127.0.0.1:1")
