"""All links of one term: one to each worker that is known, none to anybody else."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from coordinator.leader.links import Link, LinkEvents, OwnersOf
from coordinator.reach import WorkerReach
from fleet.clock import Clock
from fleet.control.messages import LeaderHello, WorkerPeer
from fleet.model import Member, Share
from fleet.settings.model import MembershipSettings


class Links:
    """All links of one term. Tasks live in the task group that is handed in."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        hello: Callable[[], LeaderHello],
        reach: WorkerReach,
        settings: MembershipSettings,
        events: LinkEvents,
        owners: OwnersOf,
        clock: Clock,
    ) -> None:
        self._group = group
        self._hello = hello
        self._reach = reach
        self._settings = settings
        self._events = events
        self._owners = owners
        self._clock = clock
        self._links: dict[tuple[str, str], tuple[Link, asyncio.Task[None]]] = {}
        self._shares: Mapping[str, Share] = {}
        self._accepting: frozenset[str] | None = None
        self._peers: Mapping[str, WorkerPeer] = {}

    def keep(self, contacts: Iterable[Member]) -> None:
        """Have a link to each of these and to nobody else."""
        wanted = {(member.id, member.addresses.internal): member for member in contacts}
        for key in self._links.keys() - wanted.keys():
            _, task = self._links.pop(key)
            task.cancel()
        for key, member in wanted.items():
            known = self._links.get(key)
            if known is not None:
                known[0].contact = member
                continue
            link = Link(
                member,
                hello=self._hello,
                reach=self._reach,
                settings=self._settings,
                events=self._events,
                owners=self._owners,
                clock=self._clock,
            )
            share = self._shares.get(member.id)
            if share is not None:
                link.assign(share)
            self._tell_others(member.id, link)
            link.tell_peers(self._peers)
            task = self._group.create_task(link.run(), name=f"link {member.id}")
            self._links[key] = (link, task)

    def assign(self, shares: Mapping[str, Share], changed: Iterable[str]) -> None:
        """The shares of the newest map; only `changed` ones are sent over open streams."""
        self._shares = shares
        wanted = set(changed)
        for (worker, _), (link, _) in self._links.items():
            share = shares.get(worker)
            if worker in wanted and share is not None:
                link.assign(share)

    def accepting(self, workers: Iterable[str]) -> None:
        """The workers that may be given groups: each hears whether there is another one."""
        accepting = frozenset(workers)
        if accepting == self._accepting:
            return
        self._accepting = accepting
        for (worker, _), (link, _) in self._links.items():
            self._tell_others(worker, link)

    def introduce(self, peers: Mapping[str, WorkerPeer]) -> None:
        """Every living worker: each hears how it can reach the others."""
        if peers == self._peers:
            return
        self._peers = peers
        for link, _ in self._links.values():
            link.tell_peers(peers)

    def _tell_others(self, worker: str, link: Link) -> None:
        if self._accepting is not None:
            link.tell_others(bool(self._accepting - {worker}))

    def link_of(self, worker: str) -> Link | None:
        """The open link of a worker, if there is one."""
        for (name, _), (link, _) in self._links.items():
            if name == worker and link.up:
                return link
        return None
