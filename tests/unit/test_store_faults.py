"""What went wrong with a store is told apart, counted, and said once with what to do."""

import logging
import ssl

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis import exceptions

from fleet.metrics import Collected
from fleet.settings.model import RedisSettings
from fleet.store.contract import Store
from fleet.store.faults import AGAIN_SECONDS, REMEDIES, Fault, Faults, PrimaryUnknown, fault_of
from fleet.store.memory import MemoryServer, MemoryStore
from fleet.store.metrics import families, store_errors
from fleet.store.redis import RedisStore
from tests.contract.store_fixtures import ManualClock


def caused(cause: Exception) -> Exception:
    """As the library wraps what the network said."""
    error = exceptions.ConnectionError("Error connecting to host:1")
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (exceptions.TimeoutError("Timeout connecting to server"), Fault.TIMEOUT),
        (TimeoutError(), Fault.TIMEOUT),
        (caused(ConnectionRefusedError(111, "refused")), Fault.REFUSED),
        (caused(ssl.SSLCertVerificationError(1, "verify failed")), Fault.TLS),
        (caused(OSError(-2, "Name or service not known")), Fault.CONNECTION),
        (exceptions.ConnectionError("Connection closed by server."), Fault.CONNECTION),
        (PrimaryUnknown("no Sentinel"), Fault.SENTINEL),
        (exceptions.AuthenticationError("Authentication required."), Fault.AUTH),
        (exceptions.ResponseError("WRONGPASS invalid username-password pair"), Fault.AUTH),
        (exceptions.NoPermissionError("no permissions to run the 'get' command"), Fault.PERMISSION),
        (exceptions.ResponseError("@user_script: 3: -NOPERM this user"), Fault.PERMISSION),
        (exceptions.BusyLoadingError("Redis is loading"), Fault.LOADING),
        (exceptions.ReadOnlyError("You can't write"), Fault.READ_ONLY),
        (exceptions.ResponseError("call to f_1: @user_script: 9: -READONLY You"), Fault.READ_ONLY),
        (exceptions.OutOfMemoryError("command not allowed"), Fault.MEMORY),
        (exceptions.ResponseError("MISCONF Redis is configured to save"), Fault.DISK),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas"), Fault.REPLICAS),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), Fault.BUSY),
        (exceptions.ConnectionError("max number of clients reached"), Fault.CLIENTS),
        (exceptions.ClusterDownError("The cluster is down"), Fault.CLUSTER),
        (exceptions.MovedError("866 10.0.0.9:6379"), Fault.CLUSTER),
        (exceptions.ResponseError("unknown command"), Fault.SERVER),
    ],
)
def test_kinds_are_told_apart(error: Exception, fault: Fault) -> None:
    """By the class, by the cause, or by the code in the text."""
    assert fault_of(error) is fault


def test_every_kind_has_a_remedy() -> None:
    """Whatever is counted can be acted upon."""
    assert set(REMEDIES) == set(Fault)


def test_each_kind_is_counted_always_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Again only when it was away for a while; other kinds are news of their own."""
    clock = ManualClock()
    faults = Faults("redis://h:1/0", clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            faults.saw(Fault.PERMISSION, "publish: no permissions to run the 'xadd' command")
            clock.now += 1.0
        faults.saw(Fault.MEMORY, "beat")
        assert [vars(record)["kind"] for record in caplog.records] == ["permission", "memory"]
        assert "ACL SETUSER" in vars(caplog.records[0])["remedy"]
        assert "xadd" in vars(caplog.records[0])["said"]
        assert "maxmemory" in vars(caplog.records[1])["remedy"]
        clock.now += AGAIN_SECONDS
        faults.saw(Fault.PERMISSION, "again")
    assert len(caplog.records) == 3
    assert (faults.counts["permission"], faults.counts["memory"]) == (101, 1)


def test_an_absence_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """Said once, with its length; one refused command among good ones is no absence."""
    clock = ManualClock()
    faults = Faults("redis://h:1/0", clock)
    with caplog.at_level(logging.INFO):
        faults.answered()
        faults.saw(Fault.PERMISSION, "one command")
        faults.answered()
        for _ in range(5):
            faults.saw(Fault.REFUSED, "connection refused")
            clock.now += 1.5
        faults.answered()
        faults.answered()
    said = [record for record in caplog.records if record.getMessage() == "store answers again"]
    assert [vars(record)["away_seconds"] for record in said] == [7.5]


def test_metrics_show_every_kind_from_the_start() -> None:
    """A rate needs the zero before the first error; a store in memory has nothing to tell."""

    def page_of(store: Store) -> str:
        registry = CollectorRegistry()
        registry.register(Collected(lambda: families(store_errors(store))))
        return generate_latest(registry).decode()

    page = page_of(RedisStore(RedisSettings(), "blue"))
    for fault in Fault:
        assert f'epp_fleet_store_errors_total{{kind="{fault}"}} 0.0' in page
    clock = ManualClock()
    assert "{" not in page_of(MemoryStore(clock, MemoryServer(clock)))
