"""One request as the router's metrics see it, from its stream's begin to its response's end."""

from collections.abc import Callable, Mapping
from typing import Final

from epp_worker.extproc.observer import SessionObserver
from epp_worker.requests import measures as m
from epp_worker.requests.rows import DEFAULT_FAIRNESS, PoolRows, Row, Table
from epp_worker.scheduling.contract import Pick, Picker, PickRequest

FAIRNESS: Final = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
"""The header's name, and its older one, which counts where the other is missing."""

ERRORS: Mapping[int, str] = {
    400: "BadRequest",
    413: "RequestTooLarge",
    429: "ResourceExhausted",
    503: "ServiceUnavailable",
}
"""The router's names; it has none for 413."""
MODEL_SERVER_ERROR: Final = "ModelServerError"
_ERROR_STATUS: Final = 400


class RequestRecord:
    """See `SessionObserver`; tells `inner` everything, too.

    Args:
        now: seconds that only grow.
    """

    __slots__ = (
        "_asked_at",
        "_began",
        "_first_at",
        "_inner",
        "_now",
        "_output",
        "_picker",
        "_request",
        "_row",
        "_size",
        "_streamed",
        "_table",
    )

    def __init__(
        self, inner: SessionObserver, table: Table, picker: Picker, now: Callable[[], float]
    ) -> None:
        self._inner = inner
        self._table = table
        self._picker = picker
        self._now = now
        self._began = now()
        self._request: PickRequest | None = None
        self._row: Row | None = None

    def asked(self, request: PickRequest, size: int) -> None:
        """See `SessionObserver.asked`."""
        self._request = request
        self._size = size
        self._asked_at = self._now()

    def picked(self, pick: Pick) -> None:
        """See `SessionObserver.picked`."""
        self._inner.picked(pick)
        request, self._request = self._request, None
        if request is None:
            return
        rows = self._table.of(pick.pool)
        rows.picks.observe(self._now() - self._asked_at)
        row = self._row = self._found(request, rows)
        row.picked += 1
        row.running += 1
        row.measured(m.REQUEST_BYTES, self._size)
        self._first_at = 0.0
        self._output = 0
        self._streamed = False
        if request.target_model is not None:
            self._rewritten(request, row, rows)

    def refused(self, status: int) -> None:
        """See `SessionObserver.refused`."""
        self._inner.refused(status)
        request, self._request = self._request, None
        pool = self._picker.pool_of(None if request is None else request.model)
        if pool is None:
            return
        rows = self._table.of(pool)
        if request is None:
            row = rows.row("", "", DEFAULT_FAIRNESS, 0, self._picker.names)
        else:
            row = self._found(request, rows)
            row.unplaced += 1
        row.failed(ERRORS.get(status, str(status)))

    def response(self, status: int) -> None:
        """See `SessionObserver.response`."""
        self._inner.response(status)
        if self._row is not None and status >= _ERROR_STATUS:
            self._row.failed(MODEL_SERVER_ERROR)

    def first_bytes(self, streamed: bool) -> None:
        """See `SessionObserver.first_bytes`."""
        if self._row is not None:
            self._first_at = self._now()
            self._streamed = streamed
            measure = m.FIRST_STREAMED if streamed else m.FIRST_WHOLE
            self._row.measured(measure, self._first_at - self._began)

    def usage(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        """See `SessionObserver.usage`."""
        self._inner.usage(prompt, completion, cached)
        row = self._row
        if row is None:
            return
        if prompt is not None:
            row.measured(m.INPUT_TOKENS, prompt)
        if completion is not None:
            row.measured(m.OUTPUT_TOKENS, completion)
            self._output = completion
        if cached is not None:
            row.measured(m.CACHED_TOKENS, cached)

    def usage_unreadable(self, count: int) -> None:
        """See `SessionObserver.usage_unreadable`."""
        self._inner.usage_unreadable(count)

    def came(self, size: int) -> None:
        """See `SessionObserver.came`."""
        self._inner.came(size)
        row = self._row
        if row is None:
            return
        now = self._now()
        row.measured(m.DURATION, now - self._began)
        row.measured(m.RESPONSE_BYTES, size)
        output = self._output
        if output > 0:
            row.measured(m.PER_OUTPUT_TOKEN, (now - self._began) / output)
        if output > 1 and self._streamed:
            each = (now - self._first_at) / (output - 1)
            row.measured(m.STREAMED_PER_OUTPUT_TOKEN, each)

    def left(self) -> None:
        """See `SessionObserver.left`."""
        self._inner.left()
        self._over()

    def finished(self, complete: bool) -> None:
        """See `SessionObserver.finished`."""
        self._inner.finished(complete)
        self._over()

    def _over(self) -> None:
        row, self._row = self._row, None
        if row is not None:
            row.running -= 1

    def _found(self, request: PickRequest, rows: PoolRows) -> Row:
        model = request.model or ""
        fairness = request.header(FAIRNESS[0])
        if fairness is None:
            fairness = request.header(FAIRNESS[1])
        return rows.row(
            model,
            request.target_model or model,
            fairness or DEFAULT_FAIRNESS,
            request.priority,
            self._picker.names,
        )

    def _rewritten(self, request: PickRequest, row: Row, rows: PoolRows) -> None:
        """Count it, if a rewrite said so; a header may say so too."""
        rule = self._picker.intents(request.model).rule(request.model or "")
        if rule is None or all(each.model != request.target_model for each in rule.targets):
            return
        counts = rows.rewrites
        key = (rule.rewrite, row.key.model, row.key.target)
        counts[key] = counts.get(key, 0) + 1
