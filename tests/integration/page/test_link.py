"""The page and its coordinator: lost and back, polled, hidden, behind a path prefix."""

from typing import TYPE_CHECKING

import pytest

from coordinator.web import events as events_module
from fleet.model import PoolRef
from fleet.model import Reason as Why
from tests.browser import SceneServer, page_of, scene_server, wait_text
from tests.web_scene import FIRST, Scene, change, placed, scene_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)


def test_a_stream_that_is_lost_and_comes_back(page: "Page", server: SceneServer) -> None:
    """The page says so and how old it is; then it has what happened meanwhile, without a reload."""
    page.evaluate("window.reloaded = false")
    server.stop()
    wait_text(page, "#link", "lost")
    wait_text(page, "#banner", "The coordinator does not answer")
    wait_text(page, "#banner", "What you see is")
    server.scene.publish(placed(FIRST, "worker-2", "worker-1", reason=Why.OWNER_DEAD))
    server.start()
    wait_text(page, "#link", "live")
    wait_text(page, "#map .row:nth-child(3) .facts", "5 pools")
    assert page.locator("#banner").is_hidden()
    assert page.evaluate("window.reloaded") is False


def test_without_a_stream_it_polls(
    browser: "Browser", server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says why; a change is seen all the same."""
    monkeypatch.setattr(events_module, "MAX_LISTENERS", 0)
    with page_of(browser, server.url) as page:
        wait_text(page, "#link", "polling")
        wait_text(page, "#banner", "0 streams are open; poll instead")
        server.do(lambda scene: change(scene, FIRST, owners=("worker-2",)))
        wait_text(page, "#map .row:nth-child(3) .facts", "5 pools")
        monkeypatch.undo()
        wait_text(page, "#link", "live")


def test_a_page_that_nobody_looks_at_holds_no_stream(page: "Page", server: SceneServer) -> None:
    """A browser has six connections to one server, for all its pages. It asks now and then."""
    script = """async () => {
        const { Live } = await import("./page/live.js");
        const seen = [];
        const note = (what) => () => (seen.push(what), true);
        const listener = { known: () => "" };
        for (const each of ["map", "changes", "workers", "standing", "beat", "link"]) {
            listener[each] = note(each);
        }
        const live = new Live(listener);
        live.rest(true);
        while (!seen.includes("workers")) await new Promise((done) => setTimeout(done, 10));
        const resting = [...seen];
        live.rest(false);
        while (!seen.includes("beat")) await new Promise((done) => setTimeout(done, 10));
        live.run.abort();
        return resting;
    }"""
    assert page.evaluate(script) == ["map", "workers"]


def test_a_page_of_the_table_stays(
    browser: "Browser", server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the page polls, and while the map changes."""
    monkeypatch.setattr(events_module, "MAX_LISTENERS", 0)

    def grow(scene: Scene) -> None:
        scene.publish(*(placed(PoolRef("z", f"p{n:03}"), "worker-0") for n in range(150)))

    server.do(grow)
    with page_of(browser, server.url) as page:
        wait_text(page, "#link", "polling")
        page.get_by_role("button", name="Table").click()
        page.get_by_role("button", name="Next").click()
        wait_text(page, ".pages", "101 to 162 of 162 pools")
        server.do(lambda scene: change(scene, PoolRef("z", "p149"), owners=("worker-2",)))
        wait_text(page, "#tables tr[data-key^='z/p149'] td a", "worker-2")
        wait_text(page, ".pages", "101 to 162 of 162 pools")


def test_behind_a_path_prefix(browser: "Browser") -> None:
    """All addresses are relative."""
    scene = scene_of(4, 2)
    with (
        scene_server(scene, prefix="/tools/epp") as server,
        page_of(browser, f"{server.url}#pool={FIRST}") as page,
    ):
        wait_text(page, "#link", "live")
        wait_text(page, "#panel", "4 of 5 endpoints ready")
        assert "/tools/epp/#pool" in page.url
