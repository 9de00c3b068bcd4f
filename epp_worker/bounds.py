"""The bounds of a worker put together: from settings, and what is held and hit of them."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from epp_worker.extproc.budget import BodyBudget
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.server import Http2Server
from epp_worker.trimming import Trimmer, allocator
from epp_worker.turns import Turns
from fleet.settings import Settings

log = logging.getLogger(__name__)

TELL_SECONDS: Final = 10.0

MESSAGE_SLACK: Final = 1024 * 1024
"""A message over the largest body by less than this reaches the session, which answers 413."""


def http2_limits(settings: Settings, files: int) -> Http2Limits:
    """What the ext_proc port takes.

    Args:
        files: how many connections the process may have open.
    """
    own, bounds = settings.worker, settings.bounds
    return Http2Limits(
        max_connections=min(files, bounds.max_connections),
        max_streams=own.max_streams_per_connection,
        max_open_streams=bounds.max_streams,
        max_message_bytes=own.max_body_bytes + MESSAGE_SLACK,
        max_partial_bytes=own.max_buffered_bytes,
        max_header_list_bytes=bounds.max_header_bytes,
        max_header_block_bytes=bounds.max_header_bytes,
        max_send_bytes=bounds.max_unsent_bytes,
        max_connection_send_bytes=bounds.max_unsent_bytes // 4,
        max_stream_send_bytes=bounds.max_unsent_bytes // 16,
        max_idle_frames=bounds.max_idle_frames,
        max_unanswered_resets=bounds.max_unanswered_resets,
        preface_seconds=bounds.preface_seconds,
        keepalive_seconds=bounds.keepalive_seconds,
        keepalive_timeout_seconds=bounds.keepalive_timeout_seconds,
        drain_seconds=own.stream_drain_seconds,
    )


class BoundWatch:
    """Reads what peers make a worker hold, and which bounds they ran into."""

    def __init__(self, http2: Http2Server, bodies: BodyBudget, turns: Turns) -> None:
        self._http2 = http2
        self._bodies = bodies
        self._turns = turns
        self._trimmer = Trimmer(allocator())
        self._told: Mapping[str, int] = {}
        self._told_at = float("-inf")

    def hits(self) -> Mapping[str, int]:
        """How often somebody paid for passing each bound, ever."""
        return {
            **{bound.value: count for bound, count in self._http2.counters.bounds.items()},
            "body": self._bodies.stream_full,
            "pool_bodies": self._bodies.group_full,
            "bodies": self._bodies.worker_full,
        }

    def held(self) -> Mapping[str, int]:
        """Bytes held now, by what for."""
        return {
            **self._http2.held_bytes(),
            "bodies": self._bodies.held,
            "turns": self._turns.held,
        }

    def _tell(self, now: float) -> None:
        """A log line for the bounds that were hit since the last."""
        if now - self._told_at < TELL_SECONDS:
            return
        hits = self.hits()
        grown = {name: n - self._told.get(name, 0) for name, n in hits.items()}
        grown = {name: n for name, n in grown.items() if n > 0}
        if grown:
            said = ", ".join(f"{name} {n}" for name, n in sorted(grown.items()))
            log.warning("bounds hit", extra={"bounds": said, "hits": sum(grown.values())})
            self._told, self._told_at = dict(hits), now

    def trim(self, now: float) -> Callable[[], None] | None:
        """Look around, now and then; `now` is monotonic.

        Bounds that were hit since the last look are logged, at most once in `TELL_SECONDS`.

        Returns:
            What is to be called in a thread, if a flood of bodies is over.
        """
        self._tell(now)
        return self._trimmer.due(now, self._bodies.take_peak(), self._bodies.held)
