"""One browser for the tests of a file, a small fleet that is made up, and its page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import SceneServer, open_browser, page_of, scene_server, wait_text
from tests.web_scene import scene_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with open_browser() as found:
        yield found


@pytest.fixture
def server() -> Iterator[SceneServer]:
    """Twelve pools on three workers."""
    with scene_server(scene_of(12, 3)) as made:
        yield made


@pytest.fixture
def page(browser: "Browser", server: SceneServer) -> Iterator["Page"]:
    with page_of(browser, server.url) as found:
        wait_text(found, "#link", "live")
        yield found
