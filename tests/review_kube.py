"""An API server that knows some tokens and rights, and answers nothing but reviews."""

import asyncio

from fleet.clock import SystemClock
from fleet.errors import KubeError
from fleet.kube.contract import Raw
from fleet.kube.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from tests.memory_kube import MemoryApiServer, MemoryKube

PROMETHEUS = "system:serviceaccount:monitoring:prometheus"


class StillClock(SystemClock):
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class ReviewKube(MemoryKube):
    """Attributes:
    users: name by token.
    rights: name and path.
    asked: the path and the `spec` of each call.
    fault: raised instead of an answer.
    gate: cleared = calls wait for it.
    """

    def __init__(self) -> None:
        super().__init__(MemoryApiServer())
        self.users: dict[str, str] = {}
        self.rights: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, Raw]] = []
        self.fault: KubeError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        assert timeout_seconds is not None
        spec = body["spec"]
        self.asked.append((path, spec))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        status: Raw = {}
        if path == TOKEN_REVIEWS:
            name = self.users.get(spec["token"])
            if name is not None:
                user = {"username": name, "uid": "u1", "groups": ["system:authenticated"]}
                status = {"authenticated": True, "user": user}
        else:
            assert path == ACCESS_REVIEWS
            wanted = spec["nonResourceAttributes"]
            assert wanted["verb"] == "get"
            status = {"allowed": (spec["user"], wanted["path"]) in self.rights}
        return {**body, "status": status}

    def calls(self) -> list[str]:
        """The kinds of review that were asked since the last look."""
        kinds = [path.rpartition("/")[2] for path, _ in self.asked]
        self.asked.clear()
        return kinds
