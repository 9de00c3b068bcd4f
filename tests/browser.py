"""A real Chromium for tests of the coordinators' page, and a fleet that is made up behind it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from aiohttp import web as aiohttp_web
from prometheus_client import CollectorRegistry

from coordinator.web.server import application
from fleet.http_listener import HttpListener, listen_http
from fleet.kube.read_access import Decides
from tests.ports import free_port
from tests.web_scene import TOKEN, Scene

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
DEADLINE_MS = 20_000
T = TypeVar("T")

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
window.drawn = 0;
const paint = CanvasRenderingContext2D.prototype;
const clear = paint.clearRect;
paint.clearRect = function (...box) { window.drawn += 1; return clear.apply(this, box); };
"""
"""Counts what the page draws (each cell is cleared first) and what its policy forbade."""


@contextlib.contextmanager
def open_browser() -> Iterator["Browser"]:
    """A browser; skips the test where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}; `make tools` installs it")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def page_of(browser: "Browser", url: str, **options: Any) -> Iterator["Page"]:
    """A page in a context of its own; in the end nothing may have gone wrong in it."""
    options.setdefault("viewport", {"width": 1280, "height": 800})
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.add_init_script(WATCH)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    yield page
    violations = page.evaluate("window.violations")
    context.close()
    assert errors == []
    assert violations == []


def wait_text(page: "Page", selector: str, text: str) -> None:
    """Until the element holds the text."""
    page.locator(selector, has_text=text).first.wait_for()


def wait(page: "Page", expression: str) -> None:
    """Until it is true (`wait_for_function` evaluates strings: the page's policy forbids it)."""
    deadline = time.monotonic() + DEADLINE_MS / 1e3
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not in time: {expression}"
        page.wait_for_timeout(20)


class SceneServer:
    """A scene's HTTP side on a thread of its own: the browser's driver needs this one.

    Args:
        prefix: a path before all others, as behind a proxy.
    """

    def __init__(self, scene: Scene, access: Decides | None = None, prefix: str = "") -> None:
        self.scene = scene
        self._access = access
        self._prefix = prefix
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._web: HttpListener | None = None
        self.port = free_port()
        self.start()

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self.port}{self._prefix}/"

    def start(self) -> None:
        """Listen, where it listened before if it did."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)

    async def _listen(self) -> None:
        registry = CollectorRegistry()
        app = application(self.scene, TOKEN, registry, self._access)
        if self._prefix:
            outer = aiohttp_web.Application()
            outer.add_subapp(self._prefix, app)
            app = outer
        self._web = await listen_http(app, "127.0.0.1", self.port)

    def stop(self) -> None:
        """As if it had gone."""
        if self._web is not None:
            asyncio.run_coroutine_threadsafe(self._web.close(), self._loop).result(20)
            self._web = None

    def do(self, action: Callable[[Scene], T]) -> T:
        """Change the scene, on its own loop."""

        async def call() -> T:
            return action(self.scene)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(20)

    def close(self) -> None:
        """Stop, and end the thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


@contextlib.contextmanager
def scene_server(
    scene: Scene, access: Decides | None = None, prefix: str = ""
) -> Iterator[SceneServer]:
    """A server for the length of a `with` block."""
    made = SceneServer(scene, access, prefix)
    try:
        yield made
    finally:
        made.close()
