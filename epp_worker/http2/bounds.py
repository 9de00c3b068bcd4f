"""Names of the bounds that a peer can run into, as metrics and logs call them."""

from enum import StrEnum


class Bound(StrEnum):
    """What was passed; each is counted once whenever somebody pays for it."""

    CONNECTIONS = "connections"
    """Refused, or an unused one gave way."""
    STREAMS_PER_CONNECTION = "streams_per_connection"
    """Refused (REFUSED_STREAM), as are the next two."""
    STREAMS = "streams"
    STREAM_RESERVE = "stream_reserve"
    """The last quarter of all streams is for connections that have few."""
    HEADER_LIST = "header_list"
    """The connection ended (ENHANCE_YOUR_CALM), as with the next three."""
    HEADER_BLOCK = "header_block"
    IDLE_FRAMES = "idle_frames"
    UNANSWERED_RESETS = "unanswered_resets"
    STREAM_SEND = "stream_send"
    """The stream was reset."""
    CONNECTION_SEND = "connection_send"
    """The connection ended, as with the next one."""
    SEND = "send"
    MESSAGE = "message"
    """The call ended RESOURCE_EXHAUSTED, as with the next one."""
    PARTIAL_MESSAGES = "partial_messages"
    PREFACE = "preface"
    """The connection was closed, as with the next one."""
    KEEPALIVE = "keepalive"
