"""The page over 10,000 pools on 100 workers: soon there, small, and nothing is drawn in vain."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fleet.model import Reason as Why
from tests.browser import SceneServer, page_of, scene_server, wait, wait_text
from tests.web_scene import FIRST, change, scene_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.timeout(180)

FIRST_PAINT_MS = 3_000
"""Of 10,000 pools; about 0.3 s where nothing else runs."""
HEAP_BYTES = 60 * 1024 * 1024


@pytest.fixture(scope="module")
def large() -> Iterator[SceneServer]:
    with scene_server(scene_of(10_000, 100)) as made:
        yield made


def test_ten_thousand_pools(browser: "Browser", large: SceneServer) -> None:
    """Soon there, small in memory; a change of one pool draws its two rows and nothing else."""
    with page_of(browser, large.url) as page:
        wait_text(page, ".phases [data-phase=owned]", "10,000")
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        assert page.evaluate(paint) < FIRST_PAINT_MS
        assert page.locator("#map .row").count() == 100
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        used = {each["name"]: each["value"] for each in metrics}["JSHeapUsedSize"]
        assert used < HEAP_BYTES, f"{used / 1e6:.1f} MB"
        wait(page, "window.drawn > 0")
        page.wait_for_timeout(100)
        page.evaluate("window.drawn = 0; window.reloaded = false")
        large.do(lambda scene: change(scene, FIRST, owners=("worker-1",), reason=Why.BALANCE))
        wait_text(page, "#map .row:nth-child(2) .facts", "101 pools")
        wait_text(page, "#map .row:nth-child(1) .facts", "99 pools")
        drawn = page.evaluate("window.drawn")
        # Two rows of about 100, each cleared as a whole first.
        assert 200 <= drawn <= 260
        assert page.evaluate("window.reloaded") is False
        large.do(lambda scene: change(scene, FIRST, owners=("worker-0",), reason=Why.INITIAL))


def test_what_is_out_of_sight_is_not_drawn(browser: "Browser", large: SceneServer) -> None:
    """Rows come as they are scrolled to; who points at a cell sees what it is."""
    with page_of(browser, large.url) as page:
        wait_text(page, ".phases [data-phase=owned]", "10,000")
        wait(page, "window.drawn > 0")
        page.wait_for_timeout(100)
        assert page.evaluate("window.drawn") < 5_000
        sizes = "[...document.querySelectorAll('#map canvas')].map((c) => c.width)"
        assert page.evaluate(sizes)[99] <= 1
        last = page.locator("#map canvas").nth(99)
        last.scroll_into_view_if_needed()
        wait(page, f"{sizes}[99] > 100")
        wait(page, f"{sizes}[0] <= 1")
        last.hover(position={"x": 5, "y": 5})
        tip = page.locator("#tip")
        tip.wait_for()
        assert "worker-99, owned for" in tip.inner_text()


def test_search_in_ten_thousand(browser: "Browser", large: SceneServer) -> None:
    """`/`, the name, and the answer is there; Enter opens it."""
    with page_of(browser, large.url) as page:
        wait_text(page, ".phases [data-phase=owned]", "10,000")
        page.keyboard.press("/")
        page.keyboard.type("qwen-7b-2018")
        wait_text(page, "#found", "1 match")
        wait_text(page, "#found", "initech/qwen-7b-2018: worker-18, owned for 12 min")
        assert page.locator("#map .row").count() == 1
        page.keyboard.press("Enter")
        wait_text(page, "#panel .answer", "worker-18 has owned it for 12 min: first placement.")
        assert page.url.endswith("#pool=initech/qwen-7b-2018")
