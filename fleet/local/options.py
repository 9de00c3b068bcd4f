"""What `epp-fleet local` was asked for, checked before anything starts."""

from dataclasses import dataclass
from pathlib import Path

from fleet.local.envoy_config import ROUTE_TIMEOUT_SECONDS
from fleet.local.model_engine import Speed

MAX_PROCESSES = 64
DEFAULT_SPEED = Speed()


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """See `epp-fleet local --help`.

    Attributes:
        manifests: None = the sample.
        gateway: whether Envoy runs.
        gateway_port: None = a free one.
        redis_url: None = the bundled Valkey.
        state_file: where the state goes when the fleet is ready.
        state_file_named: by the user; else, if another fleet has it, a place beside will do.
        config: the user's settings file, or None.
        speed: of the sample's simulated servers.
    """

    state_file: Path
    state_file_named: bool = False
    manifests: Path | None = None
    workers: int = 3
    coordinators: int = 3
    gateway: bool = True
    gateway_port: int | None = None
    redis_url: str | None = None
    config: Path | None = None
    route_timeout_seconds: float = ROUTE_TIMEOUT_SECONDS
    speed: Speed = DEFAULT_SPEED

    def problems(self) -> list[str]:
        """One line per value that cannot work."""
        found = []
        for name, count in (("--workers", self.workers), ("--coordinators", self.coordinators)):
            if not 1 <= count <= MAX_PROCESSES:
                found.append(f"{name}: {count} is outside 1..{MAX_PROCESSES}")
        if self.gateway_port is not None and not 1 <= self.gateway_port <= 65535:
            found.append(f"--gateway-port: {self.gateway_port} is outside 1..65535")
        return found
