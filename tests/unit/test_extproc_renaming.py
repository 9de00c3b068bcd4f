"""The model's name in responses, as the client knows it."""

from itertools import pairwise

import pytest

from epp_worker.extproc.renaming import Renaming


def passed(body: bytes, cuts: list[int], asked: str = "big-v2", known: str = "big") -> list[bytes]:
    renaming = Renaming(asked, known)
    edges = [0, *cuts, len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    return [renaming.feed(piece, last=n == len(pieces) - 1) for n, piece in enumerate(pieces)]


EVENTS = b'data: {"id":1,"model":"big-v2","x":"a"}\n\ndata: {"model": "big-v2"}\n\ndata: [DONE]\n\n'
RENAMED = EVENTS.replace(b"big-v2", b"big")


@pytest.mark.parametrize("cut", range(len(EVENTS)))
def test_cut_anywhere(cut: int) -> None:
    """Also between two chunks, in either spelling; nothing is lost or doubled."""
    assert b"".join(passed(EVENTS, [cut])) == RENAMED


def test_byte_by_byte() -> None:
    """The smallest chunks there are."""
    assert b"".join(passed(EVENTS, list(range(1, len(EVENTS))))) == RENAMED


def test_whole_events_do_not_wait() -> None:
    """What ends as events end is passed on at once (vllm-project/aibrix#2638)."""
    first, second = passed(EVENTS, [EVENTS.index(b"\n\n") + 2])
    assert first == b'data: {"id":1,"model":"big","x":"a"}\n\n'
    assert first + second == RENAMED


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"big-v20"}',
        b'{"model":"big-v"}',
        b'{"other":"big-v2"}',
        rb'{"text":"\"model\":\"big-v2\""}',
        b'{"model":  "big-v2"}',
        "你好🙂".encode(),
        b"",
        b'"model":"big-v',
    ],
)
def test_everything_else_stays(body: bytes) -> None:
    """Other names, other keys, quoted text."""
    for cut in range(len(body)):
        assert b"".join(passed(body, [cut])) == body


def test_names_that_json_escapes() -> None:
    """As servers spell them: escaped, or as they are."""
    body = '{"model":"模-2"} {"model":"\\u6a21-2"}'.encode()
    assert b"".join(passed(body, [9], "模-2", "模")) == '{"model":"模"} {"model":"模"}'.encode()


def test_what_waits_at_the_end_is_told() -> None:
    """Trailers may follow instead of a last chunk."""
    renaming = Renaming("big-v2", "big")
    assert renaming.feed(b'x"model":"bi', last=False) == b"x"
    assert renaming.rest() == b'"model":"bi'
    assert renaming.rest() == b""
