"""The lease as a Kubernetes Lease: an Election that goes on while the store is away.

Promises:
- the fence is the PUT with the resourceVersion that was read: of two writers one gets a 409, reads
  again and decides again;
- the epoch is max(the Lease's annotation, `floor`) + 1, never `leaseTransitions`;
- an observer waits for the TTL by its own monotonic clock from when it last saw the Lease change,
  and the holder's deadline is by its own from before its request was sent: no two wall clocks are
  compared. A watch that fell behind can only make an observer wait too long or read once more;
- an answer that was lost is looked for by reading: the Lease names holder and request.

A follower that is told by its watch of each renewal asks nothing; one whose watch is silent looks
by itself, at the pace of the renewals.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator
from typing import Final

from coordinator.election.contract import Standing, Term, Timers
from coordinator.election.lease_record import (
    LeaseRecord,
    acquired,
    lease_name,
    read_lease,
    released,
    renewed,
)
from fleet.clock import Clock
from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
    StoreRefused,
    StoreUnavailable,
)
from fleet.kube.contract import KubeApi, Raw
from fleet.model import LeaderInfo
from fleet.settings.model import ElectionSettings
from fleet.store.contract import MAX_EPOCH
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

MARGIN_SHARE: Final = 0.05
"""Of the TTL: 0.15 s of 3 s, for clocks that run apart and an act that is under way."""

ATTEMPTS: Final = 4
"""Reads and writes in a row before others' writes or lost answers make the outcome unknown."""

TRUST_RENEWALS: Final = 2.0
"""A follower looks by itself when its watch was silent for this many renewals."""

WATCH_SECONDS: Final = 300
"""How long the server is asked to keep one watch."""

SILENT_RENEWALS: Final = 10.0
"""A watch that carries nothing for this many renewals is opened anew."""

REOPEN_SECONDS: Final = 0.2
LONGEST_REOPEN_SECONDS: Final = 2.0
"""Between two watches; doubled while they tell nothing. Looking goes on meanwhile."""


class KubeLeaseElection:
    """One candidate's side of the election."""

    def __init__(
        self, api: KubeApi, me: LeaderInfo, settings: ElectionSettings, fleet: str, clock: Clock
    ) -> None:
        """Args:
        me: who this candidate is; ids must differ between candidates.
        fleet: its Lease is `epp-fleet-<fleet>` in `api.namespace`.
        """
        self._api = api
        self._me = me
        self._timers = Timers(settings.lease_ttl_seconds, settings.lease_renew_seconds)
        self._timeout = settings.lease_request_timeout_seconds
        self._fleet = fleet
        self._name = lease_name(fleet)
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
        self._path = f"{self._leases}/{self._name}"
        self._clock = clock
        self._record: LeaseRecord | None = None
        self._observed: tuple[str, int] | None = None
        self._changed_at = float("-inf")
        self._told_at = float("-inf")
        self._pending: tuple[int, str] | None = None
        self._news = asyncio.Event()
        self._loud = RateLimited(log, clock)

    @property
    def timers(self) -> Timers:
        """See `Election.timers`."""
        return self._timers

    @property
    def in_store(self) -> bool:
        """See `Election.in_store`."""
        return False

    # -- taking part ----------------------------------------------------------------------------

    async def acquire(self, *, floor: int) -> Term | None:
        """See `Election.acquire`. Repeated after an unknown outcome it is the same request."""
        request = self._request(floor)
        unanswered: float | None = None
        for _ in range(ATTEMPTS):
            sent = self._clock.monotonic()
            record = await self._read()
            if record is not None and self._landed(record, request, floor):
                if unanswered is not None:
                    return self._won(record.epoch, unanswered)
                # Of an earlier call: when it landed is not known, so it is renewed first.
                epoch, repeated = record.epoch, True
                body = renewed(record, name=self._name, wall=self._clock.wall())
            elif record is None or record.holder == self._me.id or self._free(record):
                epoch, repeated = self._next_epoch(record, floor), False
                body = self._acquired(record, epoch, request)
            else:
                return None
            try:
                with _answered(self._name):
                    await self._write(body, create=record is None)
            except (KubeConflict, KubeNotFound):
                continue
            except StoreUnavailable as error:
                log.warning("lease unanswered, reading it", extra={"error": str(error)})
                if unanswered is None and not repeated:
                    unanswered = sent
                continue
            return self._won(epoch, sent)
        raise StoreUnavailable(f"lease {self._name}: not settled after {ATTEMPTS} attempts")

    async def renew(self, term: Term) -> tuple[Term | None, Standing]:
        """See `Election.renew`. One request, unless somebody else wrote to the Lease."""
        record = self._record
        if record is None:
            record = await self._read()
        for _ in range(ATTEMPTS):
            if record is None or not _holds(record, term):
                return None, self._standing()
            sent = self._clock.monotonic()
            body = renewed(record, name=self._name, wall=self._clock.wall())
            try:
                with _answered(self._name):
                    await self._write(body, create=False)
            except (KubeConflict, KubeNotFound):
                record = await self._read()
            else:
                return Term(term.leader, term.epoch, self._deadline(sent)), self._standing()
        raise StoreUnavailable(f"lease {self._name}: not renewed after {ATTEMPTS} attempts")

    async def release(self, term: Term) -> None:
        """See `Election.release`."""
        record = self._record
        for _ in range(ATTEMPTS):
            if record is None or not _holds(record, term):
                return
            body = released(record, name=self._name, wall=self._clock.wall())
            try:
                with _answered(self._name):
                    await self._write(body, create=False)
            except (KubeConflict, KubeNotFound):
                record = await self._read()
            else:
                return
        raise StoreUnavailable(f"lease {self._name}: not released after {ATTEMPTS} attempts")

    # -- looking --------------------------------------------------------------------------------

    async def observe(self) -> Standing:
        """See `Election.observe`. No request while the watch tells of renewals."""
        silent = self._clock.monotonic() - self._told_at
        if silent > TRUST_RENEWALS * self._timers.renew_seconds:
            await self._read()
        self._observed = _public(self._record)
        self._news.clear()
        return self._standing()

    async def changed(self) -> None:
        """See `Election.changed`."""
        await self._news.wait()

    async def watch(self) -> None:
        """See `Election.watch`."""
        pause = REOPEN_SECONDS
        while True:
            began = self._clock.monotonic()
            try:
                await self._listen()
            except KubeError as error:
                self._loud.warning("lease watch ended", error=error)
            told = self._told_at >= began
            pause = REOPEN_SECONDS if told else min(2 * pause, LONGEST_REOPEN_SECONDS)
            await self._clock.sleep(pause)

    async def _listen(self) -> None:
        """One watch; without a resourceVersion it begins with the Lease as it stands."""
        params = {
            "fieldSelector": f"metadata.name={self._name}",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        silent = SILENT_RENEWALS * self._timers.renew_seconds
        events = self._api.watch(self._leases, params=params, read_timeout_seconds=silent)
        async with contextlib.aclosing(events) as stream:  # type: ignore[type-var]
            async for event in stream:
                if not self._heard(event):
                    return

    def _heard(self, event: Raw) -> bool:
        """Take one event; false if the watch is of no more use."""
        kind, raw = event.get("type"), event.get("object")
        if kind == "ERROR" or not isinstance(raw, dict):
            return False
        record = read_lease(raw)
        if kind != "BOOKMARK" and record.name == self._name:
            if not record.older_than(self._record):
                self._learn(None if kind == "DELETED" else record)
            self._told_at = self._clock.monotonic()
        return True

    # -- the Lease ------------------------------------------------------------------------------

    async def _read(self) -> LeaseRecord | None:
        """The Lease as it stands now, or None if there is none."""
        try:
            with _answered(self._name):
                raw = await self._api.get(self._path, timeout_seconds=self._timeout)
        except KubeNotFound:
            self._learn(None)
        else:
            self._learn(read_lease(raw))
        return self._record

    async def _write(self, body: Raw, *, create: bool) -> None:
        if create:
            raw = await self._api.create(self._leases, body, timeout_seconds=self._timeout)
        else:
            raw = await self._api.replace(self._path, body, timeout_seconds=self._timeout)
        self._learn(read_lease(raw))

    def _learn(self, record: LeaseRecord | None) -> None:
        if record is None or not record.same_state(self._record):
            self._changed_at = self._clock.monotonic()
        self._record = record
        if _public(record) != self._observed:
            self._news.set()

    def _free(self, record: LeaseRecord) -> bool:
        return not record.holder or self._expires_in(record) <= 0.0

    def _expires_in(self, record: LeaseRecord) -> float:
        # A Lease counts in whole seconds; a holder with a longer TTL than ours is given that.
        waits = max(self._timers.ttl_seconds, record.duration_seconds)
        return self._changed_at + waits - self._clock.monotonic()

    def _standing(self) -> Standing:
        record = self._record
        if record is None:
            return Standing(None, 0)
        if self._free(record):
            return Standing(None, record.epoch)
        return Standing(record.leader, record.epoch, expires_in=self._expires_in(record))

    def _landed(self, record: LeaseRecord, request: str, floor: int) -> bool:
        mine = (record.holder, record.request) == (self._me.id, request)
        return mine and record.epoch > floor

    def _acquired(self, record: LeaseRecord | None, epoch: int, request: str) -> Raw:
        return acquired(
            record,
            self._me,
            name=self._name,
            fleet=self._fleet,
            epoch=epoch,
            request=request,
            ttl_seconds=self._timers.ttl_seconds,
            wall=self._clock.wall(),
        )

    def _next_epoch(self, record: LeaseRecord | None, floor: int) -> int:
        stored = 0 if record is None else record.epoch
        epoch = max(stored, floor) + 1
        if epoch > MAX_EPOCH:
            raise StoreRefused(
                f"epoch {epoch} is above {MAX_EPOCH}: some epoch that was reported is wrong",
                holder=record.holder or None if record is not None else None,
                epoch=stored,
            )
        return epoch

    def _won(self, epoch: int, sent: float) -> Term:
        self._pending = None
        return Term(self._me, epoch, self._deadline(sent))

    def _deadline(self, sent: float) -> float:
        return sent + self._timers.ttl_seconds * (1.0 - MARGIN_SHARE)

    def _request(self, floor: int) -> str:
        """A new id, or the one whose outcome is unknown if the floor is still the same."""
        if self._pending is None or self._pending[0] != floor:
            self._pending = (floor, secrets.token_hex(8))
        return self._pending[1]


def _holds(record: LeaseRecord, term: Term) -> bool:
    return (record.holder, record.epoch) == (term.leader.id, term.epoch)


def _public(record: LeaseRecord | None) -> tuple[str, int] | None:
    return None if record is None else (record.holder, record.epoch)


@contextlib.contextmanager
def _answered(name: str) -> Iterator[None]:
    """The API server's words in those of the election; a 404 and a 409 are for the caller."""
    try:
        yield
    except (KubeConflict, KubeNotFound):
        raise
    except (KubeUnavailable, KubeThrottled) as error:
        raise StoreUnavailable(f"lease {name}: {error}") from error
    except KubeRefused as error:
        raise StoreRefused(f"lease {name}: {error}", holder=None, epoch=0) from error
