"""The page over a fleet of real processes: what happens is seen without a reload."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import open_browser, page_of, wait_text
from tests.e2e.local_process import LocalProcess, local_process, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(240)

POOL = "acme/llama-8b"


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def fleet(
    browser: "Browser", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalProcess, dict[str, Any]]]:
    """Three workers, three coordinators, six pools; the tests below go on from each other."""
    folder = tmp_path_factory.mktemp("fleet")
    with local_process(folder, "--gateway", "none") as made:
        state = made.wait_ready()
        address = state["coordinators"][0]["http"]
        wait_for(lambda: at_rest(address), 60, "no pool moves")
        yield made, state
        assert made.stop() == 0, made.output


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)


def at_rest(address: str) -> bool:
    """Whether every pool is owned, every worker owns some, and nobody lets go of any."""
    pools = get(address, "map")["pools"]
    still = all(each["phase"] == "owned" and not each["draining"] for each in pools)
    return still and len({each["owners"][0] for each in pools}) == 3


def leader_and_follower(state: dict[str, Any]) -> tuple[str, str]:
    """Addresses of the one that leads, and of one that does not."""
    addresses = [each["http"] for each in state["coordinators"]]
    led: list[str] = []

    def found() -> bool:
        leader = get(addresses[0], "map")["leader"]
        led[:] = [leader["http"]] if leader else []
        return bool(led)

    wait_for(found, 30, "a leader")
    return led[0], next(address for address in addresses if address != led[0])


def owners(state: dict[str, Any], address: str) -> dict[str, str]:
    """Pool -> owner, of the pools that have one."""
    pools = get(address, "map")["pools"]
    return {f"{p['namespace']}/{p['name']}": p["owners"][0] for p in pools if p["owners"]}


def all_read(address: str) -> bool:
    """Whether each endpoint's metrics have been read."""
    endpoints = get(address, f"pools/{POOL}/endpoints")["endpoints"]
    return all(each["kv_usage"] is not None and each["age_seconds"] < 60 for each in endpoints)


def mark(page: "Page") -> None:
    """So that a reload would show."""
    page.evaluate("window.stayed = true")


def test_endpoints_of_real_pods(
    browser: "Browser", fleet: tuple[LocalProcess, dict[str, Any]]
) -> None:
    """Four simulated vLLM servers, by their owner's word, whichever replica is asked."""
    _, state = fleet
    for address in leader_and_follower(state):
        told = get(address, f"pools/{POOL}/endpoints")
        assert (told["format"], told["total"], told["ready"], told["hold"]) == (1, 4, 4, "owner")
        assert told["worker"] == owners(state, address)[POOL]
        wait_for(lambda: all_read(address), 30, "metrics of all endpoints")  # noqa: B023 - at once
        with page_of(browser, f"http://{address}/#pool={POOL}") as page:
            wait_text(page, "#panel", "4 of 4 endpoints ready")
            assert page.get_by_role("row").filter(has_text="llama-8b-3").count() == 1
            wait_text(page, "#panel .answer", f"{told['worker']} has owned it")
            order = page.get_by_role("region", name="Workers in the ring's order")
            link = page.get_by_role("link", name=told["worker"], exact=True)
            row = order.get_by_role("row").filter(has=link)
            assert row.inner_text().split("\t")[1] == "owner"
            assert order.get_by_role("row").count() == 4


def test_a_drain_is_seen_by_all(
    browser: "Browser", fleet: tuple[LocalProcess, dict[str, Any]]
) -> None:
    """Begun on the leader's page with the fleet's token, seen on a follower's as it happens."""
    _, state = fleet
    leader, follower = leader_and_follower(state)
    token = Path(state["token_file"]).read_text().strip()
    with (
        page_of(browser, f"http://{leader}/#worker=worker-1") as acting,
        page_of(browser, f"http://{follower}/#worker=worker-1") as watching,
    ):
        wait_text(watching, "#link", "live")
        wait_text(watching, "#panel .actions", "Only the leader drains workers")
        mark(watching)
        acting.get_by_role("button", name="Enter the fleet's token to drain it…").click()
        acting.get_by_label("Bearer token").last.fill(token)
        acting.get_by_role("button", name="Use it").last.click()
        acting.get_by_role("button", name="Drain worker-1…").click()
        acting.get_by_role("button", name="Yes, drain worker-1").click()
        wait_text(acting, "#panel", "worker-1 hands its pools away.")
        for page in (acting, watching):
            wait_text(page, "#alerts", "worker-1 is draining")
            wait_text(page, "#panel", "Owns 0 pools")
        acting.get_by_role("button", name="Let worker-1 take pools again").click()
        wait_text(acting, "#panel", "worker-1 may take pools again.")
        for page in (acting, watching):
            page.locator("#panel .answer .alive").wait_for()
        assert watching.evaluate("window.stayed") is True
        page.goto(f"http://{follower}/#history")
        wait_text(page, "#panel", "its owner was drained")


def test_a_worker_that_is_killed(
    browser: "Browser", fleet: tuple[LocalProcess, dict[str, Any]]
) -> None:
    """Its pools move under one's eyes; who died, why, and what it cost."""
    _, state = fleet
    leader, _ = leader_and_follower(state)
    owned = owners(state, leader)
    victim = owned[POOL]
    with page_of(browser, f"http://{leader}/#pool={POOL}") as page:
        wait_text(page, "#panel .answer", f"{victim} has owned it")
        mark(page)
        pid = next(each["pid"] for each in state["workers"] if each["id"] == victim)
        os.kill(pid, signal.SIGKILL)
        wait_text(page, "#alerts", f"{victim} is dead")
        wait_text(page, "#panel .answer", "its owner died.")
        wait_text(page, "#panel .lost", "what was in flight")
        wait_text(page, "#panel", "4 of 4 endpoints ready")
        wait_text(page, "#map .state", "dead")
        assert page.evaluate("window.stayed") is True


def test_what_if_is_asked_of_the_placement(
    browser: "Browser", fleet: tuple[LocalProcess, dict[str, Any]]
) -> None:
    """Of the two that live."""
    _, state = fleet
    leader, _ = leader_and_follower(state)
    living = sorted(set(owners(state, leader).values()))
    with page_of(browser, f"http://{leader}/#plan=remove:{living[0]}") as page:
        owned = list(owners(state, leader).values()).count(living[0])
        wait_text(page, "#panel .answer", f"Without {living[0]}, {owned} of 6 route groups")
        rows = page.locator("#panel .plan tbody tr", has_text=f"{living[0]} leaves")
        assert f"{owned} → 0" in rows.first.inner_text()


def test_a_leader_that_is_killed(
    browser: "Browser", fleet: tuple[LocalProcess, dict[str, Any]]
) -> None:
    """Its own page says that it is lost; a follower's shows who leads now, without a reload."""
    _, state = fleet
    leader, follower = leader_and_follower(state)
    with (
        page_of(browser, f"http://{leader}/") as lost,
        page_of(browser, f"http://{follower}/") as watching,
    ):
        for page in (lost, watching):
            wait_text(page, "#link", "live")
        mark(watching)
        name = get(leader, "map")["leader"]["id"]
        wait_text(watching, "#standing", f"{name} leads")
        pid = next(each["pid"] for each in state["coordinators"] if each["http"] == leader)
        os.kill(pid, signal.SIGKILL)
        wait_text(lost, "#link", "lost")
        wait_text(lost, "#banner", "What you see is")
        other = [each["id"] for each in state["coordinators"] if each["id"] != name]
        wait_for(
            lambda: any(
                f"{each} leads" in watching.locator("#standing").inner_text() for each in other
            ),
            30,
            "the new leader on the page",
        )
        assert watching.evaluate("window.stayed") is True
