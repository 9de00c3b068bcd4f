"""What each kind of frame does to a connection (RFC 9113, section 6).

Three tables, indexed by type, say what may come: `FIRST` (the preface must be followed by
SETTINGS), `NORMAL`, and `IN_BLOCK` (a header block is open: nothing but its CONTINUATION).
"""

from typing import Final, NoReturn

from epp_worker.http2 import frames, settings
from epp_worker.http2.bounds import Bound
from epp_worker.http2.errors import ConnectionFault, ErrorCode
from epp_worker.http2.headers import RequestHead
from epp_worker.http2.receiver import FrameFunction, OpenBlock, Receiver
from epp_worker.http2.stream import Stream

_MOVED_PER_FRAME: Final = 16
"""Moving this many streams' windows costs about as much as handling one idle frame."""

_SETTINGS_BYTES: Final = 96
"""So many bytes of SETTINGS cost about as much as handling one idle frame."""

_CRUMB: Final = 64
"""A window that opens by less than this, while answers wait, makes a frame of each crumb."""

_RESERVE: Final = 4
"""The last 1/4 of all streams is for connections that have less than an even share of that."""

_LONGEST_FRAME: Final = 64 * 1024
"""We send no longer DATA, whatever the peer would take: streams take turns by frames, and a frame
of megabytes would make all others wait. A stock gRPC client allows up to 16 MiB."""


def _protocol_error(reason: str) -> NoReturn:
    raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, reason)


def _size_error(reason: str) -> NoReturn:
    raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, reason)


def _check_known(connection: Receiver, stream_id: int) -> None:
    """A frame for a stream that is not there: fine only if it once was."""
    if not stream_id & 1 or stream_id > connection.last_id:
        _protocol_error(f"frame on idle or impossible stream {stream_id}")


def _unpad(data: bytes, start: int, end: int) -> tuple[int, int]:
    if start == end:
        _size_error("PADDED frame without a pad length")
    padding = data[start]
    start += 1
    if padding > end - start:
        _protocol_error("more padding than frame")
    return start, end - padding


def _check_dependency(stream_id: int, data: bytes, at: int) -> None:
    """RFC 7540, 5.3.1; RFC 9113 has no priorities any more, but nobody sends this in good faith."""
    if frames.read_u32(data, at)[0] & frames.MAX_STREAM_ID == stream_id:
        _protocol_error("a stream that depends on itself")


def _on_data(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    size = end - start
    if flags & frames.FLAG_PADDED:
        start, end = _unpad(data, start, end)
    increment = connection.receive.take(size)
    if increment:
        connection.out.put(frames.window_update(0, increment))
    stream = connection.streams.get(stream_id)
    if stream is None:
        _check_known(connection, stream_id)
        connection.idle_frames.hit()
        if stream_id not in connection.reset_ids:
            connection.refuse(stream_id, ErrorCode.STREAM_CLOSED)
        return
    if stream.remote_closed:
        connection.reset(stream_id, ErrorCode.STREAM_CLOSED)
        return
    if start == end and not flags & frames.FLAG_END_STREAM:
        connection.idle_frames.hit()
    rest = stream.received(size, data, start, end)
    if rest:
        connection.receive.untake(len(rest))
        connection.again = frames.frame(
            frames.DATA, flags & frames.FLAG_END_STREAM, stream_id, rest
        )
        return
    if flags & frames.FLAG_END_STREAM:
        stream.half_closed()


def _on_headers(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    if not stream_id & 1:
        _protocol_error(f"HEADERS on stream {stream_id}")
    if flags & frames.FLAG_PADDED:
        start, end = _unpad(data, start, end)
    if flags & frames.FLAG_PRIORITY:
        if end - start < 5:
            _size_error("HEADERS too short for its priority fields")
        _check_dependency(stream_id, data, start)
        start += 5  # RFC 9113, 5.3.2: priorities are read over
    block = data[start:end]
    if flags & frames.FLAG_END_HEADERS:
        _on_block(connection, flags, stream_id, block)
    else:
        connection.block = OpenBlock(stream_id, flags, block)
        connection.table = IN_BLOCK


def _on_continuation(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    block = connection.block
    if block is None or stream_id != block.stream_id:
        _protocol_error("CONTINUATION of another stream")
    limits = connection.shared.limits
    block.count += 1
    block.data += data[start:end]
    if block.count > limits.max_continuations or len(block.data) > limits.max_header_block_bytes:
        reason = "header block over our bounds"
        raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, Bound.HEADER_BLOCK)
    if flags & frames.FLAG_END_HEADERS:
        connection.block = None
        connection.table = NORMAL
        _on_block(connection, block.flags, stream_id, bytes(block.data))


def _on_block(connection: Receiver, flags: int, stream_id: int, block: bytes) -> None:
    head = connection.decoder.decode(block)
    end_stream = bool(flags & frames.FLAG_END_STREAM)
    if stream_id > connection.last_id:
        connection.last_id = stream_id
        _open(connection, stream_id, head, end_stream)
        return
    stream = connection.streams.get(stream_id)
    if stream is not None:
        _on_trailers(connection, stream, head, end_stream)
    elif stream_id in connection.reset_ids:
        connection.idle_frames.hit()
    elif stream_id in connection.closed_ids:
        raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"HEADERS on closed stream {stream_id}")
    else:
        _protocol_error(f"stream {stream_id} after {connection.last_id}")


def _full(connection: Receiver) -> Bound | None:
    """The bound that one more stream would pass."""
    shared = connection.shared
    mine, most = len(connection.streams), shared.limits.max_open_streams
    if mine >= shared.limits.max_streams:
        return Bound.STREAMS_PER_CONNECTION
    left = most - shared.streams_held
    if left <= 0:
        return Bound.STREAMS
    if left * _RESERVE <= most and mine * len(shared.connections) * _RESERVE >= most:
        return Bound.STREAM_RESERVE
    return None


def _open(connection: Receiver, stream_id: int, head: RequestHead, end_stream: bool) -> None:
    shared = connection.shared
    full = _full(connection)
    shared.counters.hit(full)
    if connection.farewell.final or head.malformed or full is not None:
        shared.counters.streams_refused += 1
        connection.idle_frames.hit()
        code = ErrorCode.PROTOCOL_ERROR if head.malformed else ErrorCode.REFUSED_STREAM
        connection.refuse(stream_id, code)
        return
    if not connection.decoder.announced and head.refusal is None:
        connection.decoder.announce()
        connection.out.put(settings.NO_TABLE)
    stream = Stream(connection, stream_id, head, connection.initial_window)
    connection.opened(stream)
    stream.begin(shared.services.get(head.path))
    if end_stream:
        stream.half_closed()


def _on_trailers(connection: Receiver, stream: Stream, head: RequestHead, end_stream: bool) -> None:
    stream_id = stream.stream_id
    if stream.remote_closed:
        connection.reset(stream_id, ErrorCode.STREAM_CLOSED)
    elif not end_stream or not head.plain:
        connection.reset(stream_id, ErrorCode.PROTOCOL_ERROR)
    else:
        stream.half_closed()


def _on_priority(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del flags
    if not stream_id:
        _protocol_error("PRIORITY on stream 0")
    connection.idle_frames.hit()
    if end - start == 5:
        _check_dependency(stream_id, data, start)
        return
    stream = connection.streams.get(stream_id)
    if stream is not None:
        connection.reset(stream_id, ErrorCode.FRAME_SIZE_ERROR)
    else:
        _size_error("PRIORITY is not 5 bytes")


def _on_rst_stream(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del flags, data
    if end - start != 4:
        _size_error("RST_STREAM is not 4 bytes")
    stream = connection.streams.get(stream_id)
    if stream is None:
        _check_known(connection, stream_id)
        connection.idle_frames.hit()
        return
    answered = stream.answered
    connection.forget(stream_id)
    stream.kill()
    if not answered:
        connection.unanswered_resets.hit()


def _on_settings(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    if stream_id:
        _protocol_error("SETTINGS on a stream")
    if flags & frames.FLAG_ACK:
        if start != end:
            _size_error("SETTINGS acknowledgement with a payload")
        connection.decoder.acknowledged()
        return
    connection.idle_frames.hit(1 + (end - start) // _SETTINGS_BYTES)
    window = connection.initial_window
    for name, value in settings.parse(data, start, end):
        if name == settings.INITIAL_WINDOW_SIZE:
            window = value  # the last one counts: all streams move once a frame, not once a value
        elif name == settings.MAX_FRAME_SIZE:
            connection.out.max_frame = min(value, _LONGEST_FRAME)
        elif name == settings.HEADER_TABLE_SIZE:
            connection.table_changed(value)
    # First the acknowledgement, then what the new windows let out: grpc-core counts a window as
    # opened once it has been acknowledged, and resets a stream whose DATA comes before.
    connection.out.put(frames.SETTINGS_ACK)
    if window != connection.initial_window:
        _move_windows(connection, window)


def _move_windows(connection: Receiver, value: int) -> None:
    connection.idle_frames.hit(len(connection.streams) // _MOVED_PER_FRAME)
    delta = value - connection.initial_window
    connection.initial_window = value
    for stream in connection.streams.values():
        stream.window += delta
        if stream.window > frames.MAX_WINDOW:
            raise ConnectionFault(
                ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS put a stream's window over 2^31-1"
            )
        connection.out.enqueue(stream)
    connection.out.pump()


def _on_first(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    if flags & frames.FLAG_ACK:
        _protocol_error("the first frame acknowledges SETTINGS")
    connection.table = NORMAL
    connection.liveness.greeted = True
    _on_settings(connection, flags, stream_id, data, start, end)


def _on_push_promise(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del connection, flags, stream_id, data, start, end
    _protocol_error("PUSH_PROMISE from a client")


def _on_ping(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    if stream_id:
        _protocol_error("PING on a stream")
    if end - start != 8:
        _size_error("PING is not 8 bytes")
    opaque = data[start:end]
    if not flags & frames.FLAG_ACK:
        connection.idle_frames.hit()
        connection.out.put(frames.ping(opaque, ack=True))
    elif opaque == frames.GOAWAY_PING:
        connection.round_trip()


def _on_goaway(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del flags, data
    if stream_id:
        _protocol_error("GOAWAY on a stream")
    if end - start < 8:
        _size_error("GOAWAY is shorter than 8 bytes")
    connection.idle_frames.hit()
    connection.go_away()  # the peer is leaving: close once its streams are done


def _on_window_update(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del flags
    if end - start != 4:
        _size_error("WINDOW_UPDATE is not 4 bytes")
    increment = frames.read_u32(data, start)[0] & frames.MAX_WINDOW
    if not stream_id:
        out = connection.out
        crumb = increment < _CRUMB and out.queued
        out.grant(increment)
        if out.window > out.crest or crumb:
            out.crest = max(out.crest, out.window)
            _on_idle_update(connection)
        return
    stream = connection.streams.get(stream_id)
    if stream is None:
        _check_known(connection, stream_id)
        _on_idle_update(connection)
        return
    crumb = increment < _CRUMB and stream.queued
    stream.grant(increment)
    if stream.window > connection.initial_window or crumb:
        _on_idle_update(connection)


def _on_idle_update(connection: Receiver) -> None:
    """A WINDOW_UPDATE for what is closed, beyond what we ever used, or by nearly nothing. A client
    may have reasons for two in the life of a stream."""
    connection.idle_updates += 1
    if connection.idle_updates > connection.last_id:
        connection.idle_frames.hit()


def _ignore(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del flags, stream_id, data, start, end
    connection.idle_frames.hit()


def _not_settings(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del connection, flags, stream_id, data, start, end
    _protocol_error("the first frame is not SETTINGS")


def _not_continuation(
    connection: Receiver, flags: int, stream_id: int, data: bytes, start: int, end: int
) -> None:
    del connection, flags, stream_id, data, start, end
    _protocol_error("a header block is open")


_UNKNOWN_TYPES: Final = 256 - frames.CONTINUATION - 1

NORMAL: Final[tuple[FrameFunction, ...]] = (
    _on_data,
    _on_headers,
    _on_priority,
    _on_rst_stream,
    _on_settings,
    _on_push_promise,
    _on_ping,
    _on_goaway,
    _on_window_update,
    _on_continuation,
    *(_ignore,) * _UNKNOWN_TYPES,
)
FIRST: Final[tuple[FrameFunction, ...]] = (
    *(_not_settings,) * frames.SETTINGS,
    _on_first,
    *(_not_settings,) * (255 - frames.SETTINGS),
)
IN_BLOCK: Final[tuple[FrameFunction, ...]] = (
    *(_not_continuation,) * frames.CONTINUATION,
    _on_continuation,
    *(_not_continuation,) * _UNKNOWN_TYPES,
)
