"""What the page does with tokens, and with names that others have made up."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.kube.read_access import Allowed, Decision, Stranger
from fleet.model import GroupKey, MemberState, Phase, Placement, PoolId, PoolRef
from fleet.model import Reason as Why
from tests.browser import SceneServer, page_of, scene_server, wait, wait_text
from tests.web_scene import FIRST, OTHER, TOKEN, Scene, member, scene_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)


def drain_button(page: "Page", token: str) -> None:
    """Open worker-1 and paste a token."""
    page.goto(f"{page.url.partition('#')[0]}#worker=worker-1")
    page.get_by_role("button", name="Enter the fleet's token to drain it…").click()
    page.get_by_label("Bearer token").last.fill(token)
    page.get_by_role("button", name="Use it").last.click()
    page.get_by_role("button", name="Drain worker-1…").click()
    wait_text(page, "#panel", "Without worker-1, 4 of 12 route groups would move")
    page.get_by_role("button", name="Yes, drain worker-1").click()


def test_draining_with_a_token(page: "Page", server: SceneServer) -> None:
    """First what would move, then it is done, and undone; the token is nowhere but in the page."""
    drain_button(page, TOKEN)
    wait_text(page, "#panel", "worker-1 hands its pools away.")
    wait_text(page, "#alerts", "worker-1 is draining")
    page.get_by_role("button", name="Let worker-1 take pools again").click()
    wait_text(page, "#panel", "worker-1 may take pools again.")
    assert server.scene.drains == [("worker-1", True), ("worker-1", False)]
    kept = page.evaluate(
        "JSON.stringify([location.href, {...localStorage}, {...sessionStorage}, document.cookie,"
        " document.documentElement.outerHTML,"
        " [...document.querySelectorAll('input')].map((e) => e.value)])"
    )
    assert TOKEN not in kept
    page.reload()
    page.get_by_role("button", name="Enter the fleet's token to drain it…").wait_for()


def test_a_wrong_token_does_nothing(browser: "Browser", server: SceneServer) -> None:
    """The page says what the coordinator says."""
    with page_of(browser, server.url) as page:
        wait_text(page, "#link", "live")
        drain_button(page, "guessed")
        wait_text(page, "#panel .problem", "this needs the fleet's bearer token")
        assert server.scene.drains == []


def test_a_follower_shows_who_leads(page: "Page", server: SceneServer) -> None:
    """It can drain nobody; the leader's page is named, and no token is sent there."""
    server.do(lambda scene: setattr(scene, "who", OTHER))
    server.do(lambda scene: scene.count())
    page.goto(f"{server.url}#worker=worker-1")
    wait_text(page, "#standing", "coordinator-1 leads, map 3.17")
    wait_text(page, "#standing", "shown by coordinator-0, a follower")
    link = page.locator("#panel .actions a").last
    link.wait_for()
    assert link.get_attribute("href") == "http://127.0.0.1:18080/#worker=worker-1"
    assert page.get_by_role("button", name="Drain worker-1…").count() == 0


class FleetTokenOnly:
    """Nobody of the cluster may read."""

    async def decide(self, token: str, path: str) -> Decision:
        return Allowed("reader") if token == "reads" else Stranger()


def test_reads_that_need_a_token(browser: "Browser") -> None:
    """The page says so, and shows nothing until it has one that is accepted."""
    with (
        scene_server(scene_of(12, 3), FleetTokenOnly()) as server,
        page_of(browser, server.url) as page,
    ):
        wait_text(page, "#link", "token needed")
        wait_text(page, "#locked", "This fleet asks its readers for a token")
        assert page.locator("#map .row").count() == 0
        field = page.get_by_label("Bearer token").first
        field.fill("guessed")
        page.keyboard.press("Enter")
        wait_text(page, "#locked-why", "the bearer token is not accepted")
        field.fill("reads")
        page.keyboard.press("Enter")
        wait_text(page, "#alerts", "All 12 pools have an owner and a stand-by")
        assert page.locator("#locked").is_hidden()
        page.goto(f"{server.url}#pool={FIRST}")
        wait_text(page, "#panel", "4 of 5 endpoints ready")


HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    '"><script>window.hacked=1</script>',
    "javascript:window.hacked=1",
    "a b%2F..%2F#?&=\u202egnol",
    "' onfocus='window.hacked=1",
    "x" * 253,
)


def test_names_are_only_names(browser: "Browser") -> None:
    """Whatever a pool, a worker or a reason is called stays text: on the map, in the table, in the
    panel, in the address."""
    evil = HOSTILE[0]
    scene = Scene(workers=[replace(member(0), why=evil)])
    life = scene.workers[0]
    scene.workers = [replace(life, member=replace(life.member, id=evil), state=MemberState.SUSPECT)]
    for number, name in enumerate(HOSTILE):
        ref = PoolRef(f"ns{number}", name)
        group = GroupKey(ref.namespace, name, 9002)
        phase = (Phase.OWNED, Phase.MOVING)[number % 2]
        scene.placements[group] = Placement(
            group, (PoolId(ref, "u"),), phase, (evil,), HOSTILE[1], Why.INITIAL, time.time(),
            moving_to=HOSTILE[2] if phase is Phase.MOVING else None,
        )  # fmt: skip
    scene.publish()
    with scene_server(scene) as server, page_of(browser, server.url) as page:
        wait_text(page, "#alerts", f"{evil} is suspect: {evil}")
        page.get_by_role("button", name="Table").click()
        links = page.locator("#tables tr[data-key] th a")
        assert sorted(links.all_inner_texts()) == sorted(
            f"ns{number}/{name}" for number, name in enumerate(HOSTILE)
        )
        for number, name in enumerate(HOSTILE):
            page.locator(f"#tables tr[data-key^='ns{number}/'] th a").click()
            wait(
                page, f"document.querySelector('#panel-title').textContent.startsWith('ns{number}')"
            )
            assert page.locator("#panel-title").inner_text() == f"ns{number}/{name}"
            wait_text(page, "#panel .answer", f"{evil} has owned it")
        page.locator("#tables td a", has_text=evil).first.click()
        wait_text(page, "#panel", "Owns 6 pools")
        page.locator("#search").fill("<script>")
        wait_text(page, "#found", "<script>window.hacked=1</script>")
        assert page.evaluate("window.hacked") is None
        assert page.locator("body img").count() == 0
