"""Coordinators and workers as processes, with mutual TLS between them."""

import signal
import urllib.request
from pathlib import Path

from fleet.certificates.folder import write_folder
from fleet.clock import SystemClock
from tests.fleet_processes import Child, Fleet, running_fleet, until

MODULES = {"coordinator": "coordinator", "worker": "epp_worker"}
WORKERS = ("worker-0", "worker-1", "worker-2")


def secured(fleet: Fleet) -> None:
    """Make a CA, and give each role its files as a cluster does: same settings, other variables."""
    folder = fleet.folder / "certificates"
    write_folder(folder, "tests", SystemClock().wall())
    for role, module in MODULES.items():
        own = folder / role
        fleet.environment[module] = {
            "EPP_FLEET_SECURITY__CA_FILE": str(own / "ca.crt"),
            "EPP_FLEET_SECURITY__CERTIFICATE_FILE": str(own / "tls.crt"),
            "EPP_FLEET_SECURITY__KEY_FILE": str(own / "tls.key"),
        }


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as response:
        page = response.read().decode()
    (line,) = [line for line in page.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def leader(fleet: Fleet, coordinator: Child) -> str | None:
    """Who leads, as `coordinator` shows it."""
    shown = fleet.map(coordinator)
    return None if shown is None else (shown["leader"] or {}).get("id")


def test_a_fleet_places_fails_over_and_changes_leaders(tmp_path: Path) -> None:
    """A worker and then the leader are killed; every pool has a living owner again each time."""
    with running_fleet(tmp_path) as fleet:
        secured(fleet)
        fleet.prepare(pools=6)
        first = fleet.coordinator("coordinator-0")
        until("the first leads", lambda: leader(fleet, first) == "coordinator-0")
        second = fleet.coordinator("coordinator-1")
        workers = {name: fleet.worker(name) for name in WORKERS}
        until("all own", lambda: fleet.owned(first, set(WORKERS), 6))
        until("a follower has the map", lambda: fleet.owned(second, set(WORKERS), 6))
        for child in (first, second, *workers.values()):
            left = metric(child.ports["http"], "epp_fleet_certificate_expiry_seconds")
            assert 89 * 86_400 < left <= 90 * 86_400

        workers["worker-0"].kill()
        rest = set(WORKERS) - {"worker-0"}
        until("the others own", lambda: fleet.owned(first, rest, 6), seconds=10)
        first.kill()
        until("the other leads", lambda: leader(fleet, second) == "coordinator-1", seconds=10)
        workers["worker-1"].kill()
        until("the last one owns", lambda: fleet.owned(second, {"worker-2"}, 6), seconds=10)

        workers["worker-2"].signal(signal.SIGTERM)
        assert workers["worker-2"].process.wait(30) == 0
