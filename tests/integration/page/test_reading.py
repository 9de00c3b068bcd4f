"""The page for everybody: tables, keys, names, small screens, dark and light."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet.model import PoolRef
from fleet.model import Reason as Why
from tests.browser import SceneServer, page_of, wait, wait_text
from tests.web_scene import FIRST, Scene, change, placed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)


def test_the_table_says_the_same(page: "Page", server: SceneServer) -> None:
    """Workers and pools as tables with heads; in pages, filtered by the same search."""
    page.get_by_role("button", name="Table").click()
    workers = page.get_by_role("region", name="Workers").get_by_role("row")
    assert workers.nth(1).inner_text().split("\t")[:5] == ["worker-0", "alive", "4", "4", "12.5"]
    pools = page.get_by_role("region", name="Pools").get_by_role("row")
    assert pools.count() == 13
    assert pools.nth(1).inner_text().split("\t")[:4] == [
        "acme/llama-8b-0", "owned", "worker-0", "worker-1",
    ]  # fmt: skip
    page.locator("#search").fill("QWEN epp")
    wait(page, "document.querySelectorAll('#tables tr[data-key]').length === 2")
    page.locator("#search").fill("zzz")
    wait_text(page, "#empty", "No pool matches.")
    page.locator("#search").fill("")

    def grow(scene: Scene) -> None:
        scene.publish(*(placed(PoolRef("z", f"p{n:03}"), "worker-0") for n in range(150)))

    server.do(grow)
    wait_text(page, ".pages", "1 to 100 of 162 pools")
    page.get_by_role("button", name="Next").click()
    wait_text(page, ".pages", "101 to 162 of 162 pools")
    assert page.get_by_role("button", name="Next").is_disabled()


def test_what_has_the_focus_keeps_it(page: "Page", server: SceneServer) -> None:
    """While the tables and the panel are read anew all the time."""
    page.get_by_role("button", name="Table").click()
    link = page.locator("#tables tbody a", has_text="worker-2").first
    link.focus()

    def busier(scene: Scene) -> None:
        each = scene.workers[2]
        load = replace(each.member.load, streams_per_second=77.0)
        scene.workers[2] = replace(each, member=replace(each.member, load=load))
        scene.count()

    server.do(busier)
    wait_text(page, "#tables", "77.0")
    assert page.evaluate("document.activeElement.textContent") == "worker-2"
    page.goto(f"{server.url}#pool={FIRST}")
    region = page.get_by_role("region", name="Endpoints")
    region.focus()
    server.do(lambda scene: change(scene, FIRST, owners=("worker-2",), reason=Why.DRAIN))
    wait_text(page, "#panel", "by worker-2's word")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Endpoints"


def test_with_the_keyboard_alone(page: "Page") -> None:
    """From the search to a cell, over cells and rows, in and out again; focus is never lost."""
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("ArrowDown")
    label = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(label) == "Pools of worker-0"
    option = page.locator("#map [role=option]")
    assert option.inner_text().startswith("acme/llama-8b-0: worker-0, owned")
    assert option.get_attribute("aria-setsize") == "4"
    page.keyboard.press("ArrowRight")
    assert option.get_attribute("aria-posinset") == "2"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(label) == "Pools of worker-1"
    named = option.inner_text().partition(":")[0]
    page.keyboard.press("Enter")
    wait_text(page, "#panel-title", named)
    assert page.evaluate("document.activeElement.id") == "panel-title"
    page.keyboard.press("Escape")
    assert page.evaluate(label) == "Pools of worker-1"
    assert page.locator("#panel").is_hidden()
    page.keyboard.press("End")
    assert option.get_attribute("aria-posinset") == "4"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_everything_has_a_name(page: "Page") -> None:
    """Of what can be pressed or read by those who do not see it."""
    page.goto(f"{page.url.partition('#')[0]}#pool={FIRST}")
    wait_text(page, "#panel", "4 of 5 endpoints ready")
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, a, input, select, [role=region], [role=listbox]")]
        .filter((e) => e.checkVisibility() && !(e.ariaLabel || e.textContent.trim() ||
            (e.labels && e.labels.length)))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    tree = page.locator("body").aria_snapshot()
    for part in ('heading "EPP Fleet default"', 'group "Filter by phase"', "complementary"):
        assert part in tree


def test_small_screens(browser: "Browser", server: SceneServer) -> None:
    """Nothing is wider than the screen; the panel covers it, and closes again."""
    with page_of(browser, server.url, viewport={"width": 360, "height": 640}) as page:
        wait_text(page, "#alerts", "All 12 pools have an owner and a stand-by")
        width = "document.documentElement.scrollWidth"
        assert page.evaluate(width) <= 360
        page.locator("#map canvas").first.click(position={"x": 8, "y": 8})
        wait_text(page, "#panel", "4 of 5 endpoints ready")
        assert page.evaluate(width) <= 360
        box = page.locator("#panel").bounding_box()
        assert box is not None
        assert (box["x"], box["y"], box["width"]) == (0, 0, 360)
        page.get_by_role("button", name="Close").click()
        page.locator("#panel").wait_for(state="hidden")


def test_dark_and_light(browser: "Browser", server: SceneServer) -> None:
    """As the system says; the reader's word counts more, and lasts."""
    ground = "getComputedStyle(document.body).backgroundColor"
    with page_of(browser, server.url, color_scheme="dark", reduced_motion="reduce") as page:
        wait_text(page, "#link", "live")
        assert page.evaluate(ground) == "rgb(15, 21, 27)"
        moved = page.evaluate(
            "getComputedStyle(document.querySelector('.fill')).transitionDuration"
        )
        assert moved == "0s"
        page.get_by_role("button", name="Change to light colours").click()
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        page.reload()
        wait_text(page, "#link", "live")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
    with page_of(browser, server.url, color_scheme="light") as page:
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
