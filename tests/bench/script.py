"""What one stream of the load says and what must come back, made beforehand but for the ids."""

import struct
from collections.abc import Callable, Sequence
from typing import Final

from epp_worker.extproc import replies
from epp_worker.http2 import frames
from epp_worker.process import ENVOY_HEADER, PATH
from tests.attackers import literals
from tests.http2_peer import grpc, request_headers
from tests.unit import extproc_messages as make

ENDPOINTS: Final = 32
POOL: Final = "bench"
AUTHORITY: Final = f"{POOL}-epp.ns1.svc:9002"
POD_BODY: Final = b'{"choices":[{"message":{"content":"' + b"b" * 400 + b'"}}],"usage":{}}'
"""What a pod answers through Envoy."""

_FRAME: Final = 16_384
_EVENTS: Final = 64
_TABLE_OF_SIZE_0: Final = b"\x20"
"""With it at the start, equal blocks mean equal headers on every connection."""

_HEADERS: Final = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/v1/chat/completions",
    ":authority": "llm.example.com",
    "user-agent": "OpenAI/Python 1.99.1",
    "accept": "application/json",
    "content-type": "application/json",
    "authorization": "Bearer sk-0123456789abcdef0123456789abcdef",
    "x-forwarded-for": "10.12.13.14",
    "x-forwarded-proto": "https",
    "x-envoy-expected-rq-timeout-ms": "15000",
    "x-request-id": "0f8a6f0e-5d0b-4a4c-9c0e-7a3f2c1d0b9a",
}
_head = struct.Struct(">BHBB").pack


def address(number: int) -> str:
    """Of an endpoint; all are equally long, so that answers are."""
    return f"127.0.0.{100 + number}"


def chat(size: int) -> bytes:
    """A chat completion's request of `size` bytes."""
    head, tail = b'{"model":"m","messages":[{"role":"user","content":"', b'"}]}'
    return head + b"a" * (size - len(head) - len(tail)) + tail


class Step:
    """Frames to send at once, and what ends the wait after them.

    Args:
        parts: (type, flags, payload) of each frame.
        want: bytes of DATA since the stream began; 0 = the server's end of the stream.

    Attributes:
        pieces: the frames' bytes, to be joined by the stream's id.
        flow: what they take of the windows.
        ends: the last one ends our side of the stream.
    """

    __slots__ = ("ends", "flow", "frames", "pieces", "want")

    def __init__(self, parts: Sequence[tuple[int, int, bytes]], want: int) -> None:
        self.want = want
        self.ends = bool(parts[-1][1] & frames.FLAG_END_STREAM)
        self.frames = [
            (
                len(payload) if kind == frames.DATA else 0,
                _head(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags),
                payload,
            )
            for kind, flags, payload in parts
        ]
        self.flow = sum(flow for flow, _, _ in self.frames)
        heads = [head for _, head, _ in self.frames] + [b""]
        payloads = [b""] + [payload for _, _, payload in self.frames]
        self.pieces = [payload + head for payload, head in zip(payloads, heads, strict=True)]


Script = tuple[Step, ...]


def _data(*messages: bytes) -> list[tuple[int, int, bytes]]:
    """One frame of each message, as Envoy sends them; longer ones in several."""
    return [
        (frames.DATA, 0, whole[at : at + _FRAME])
        for whole in map(grpc, messages)
        for at in range(0, len(whole), _FRAME)
    ]


def _size(*messages: bytes) -> int:
    return sum(5 + len(message) for message in messages)


def _open(body: bytes, *, detached: bool = False) -> Step:
    """A request: its headers, its body in pieces of 64 KiB, and its end."""
    extra = [(ENVOY_HEADER, "true")] if detached else []
    block = literals(request_headers(path=PATH, authority=AUTHORITY, extra=extra))
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    messages = [
        make.request_headers(_HEADERS),
        *(make.request_body(piece) for piece in pieces),
        make.request_body(b"", end_of_stream=True),
    ]
    answer = [
        replies.pick_reply(f"{address(0)}:8000"),
        *replies.request_chunks(body, end_of_stream=not detached),
    ]
    if detached:
        answer.append(replies.LAST_REQUEST_CHUNK)
    head = (frames.HEADERS, frames.FLAG_END_HEADERS, _TABLE_OF_SIZE_0 + block)
    return Step([head, *_data(*messages)], 0 if detached else _size(*answer))


def _response(request: Step, kind: str, chunks: Sequence[bytes]) -> Step:
    messages = [make.response_headers({":status": "200", "content-type": kind})]
    answer = [replies.CONTINUE_RESPONSE_HEADERS]
    for number, chunk in enumerate(chunks, 1):
        last = number == len(chunks)
        messages.append(make.response_body(chunk, end_of_stream=last))
        answer += replies.response_chunks(chunk, end_of_stream=last)
    return Step(_data(*messages), request.want + _size(*answer))


def pick(size: int) -> Script:
    """The request alone."""
    return (_open(chat(size)),)


def whole(size: int) -> Script:
    """The request, and a response of one JSON body."""
    request = _open(chat(size))
    return request, _response(request, "application/json", [POD_BODY])


def events(size: int, *, apart: bool) -> Script:
    """The request, and many events: at once, or each when the one before has come back."""
    data = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%d"}}]}'
    chunks = [b"data: " + data % (10 + n) + b"\n\n" for n in range(_EVENTS - 1)]
    usage = b'{"usage":{"prompt_tokens":9,"completion_tokens":64}}'
    chunks.append(b"data: " + usage + b"\n\ndata: [DONE]\n\n")
    request = _open(chat(size))
    together = _response(request, "text/event-stream", chunks)
    if not apart:
        return request, together
    begin = Step(
        _data(make.response_headers({":status": "200", "content-type": "text/event-stream"})),
        request.want + _size(replies.CONTINUE_RESPONSE_HEADERS),
    )
    steps = [request, begin]
    want = begin.want
    for number, chunk in enumerate(chunks, 1):
        last = number == len(chunks)
        want += _size(*replies.response_chunks(chunk, end_of_stream=last))
        steps.append(Step(_data(make.response_body(chunk, end_of_stream=last)), want))
    return tuple(steps)


def detached(size: int) -> Script:
    """The request, and the server's end right after it."""
    return (_open(chat(size), detached=True),)


def http(size: int) -> Script:
    """A plain HTTP request to a gateway, and its response."""
    body = chat(size)
    fields = [(name, value) for name, value in _HEADERS.items() if not name.startswith("x-")] + [
        ("content-length", str(len(body)))
    ]
    pieces = [body[at : at + _FRAME] for at in range(0, len(body), _FRAME)]
    parts = [(frames.DATA, 0, piece) for piece in pieces[:-1]]
    parts.append((frames.DATA, frames.FLAG_END_STREAM, pieces[-1]))
    head = (frames.HEADERS, frames.FLAG_END_HEADERS, _TABLE_OF_SIZE_0 + literals(fields))
    return (Step([head, *parts], 0),)


SCRIPTS: Final[dict[str, Callable[[], Script]]] = {
    "pick": lambda: pick(2048),
    "whole": lambda: whole(2048),
    "whole8": lambda: whole(8192),
    "whole64": lambda: whole(65_536),
    "events": lambda: events(2048, apart=False),
    "events-apart": lambda: events(2048, apart=True),
    "detached": lambda: detached(2048),
    "http": lambda: http(2048),
}
