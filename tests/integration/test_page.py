"""The page in a real Chromium, over fleets that are made up: large, ill, hostile, guarded."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.web import events as events_module
from fleet.kube.read_access import Allowed, Decision, Stranger
from fleet.model import EpochVersion, GroupKey, MemberState, Phase, Placement, PoolId, PoolRef
from fleet.model import Reason as Why
from fleet.store.contract import Move
from tests.browser import DEADLINE_MS, SceneServer, open_browser, page_of, scene_server, wait_text
from tests.web_scene import OTHER, TOKEN, Scene, member, placed, pool_name, scene_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(180)

FIRST_PAINT_MS = 3_000
"""Of 10,000 pools; about 0.3 s where nothing else runs."""
HEAP_BYTES = 60 * 1024 * 1024
FIRST = pool_name(0)


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


@pytest.fixture(scope="module")
def large() -> Iterator[SceneServer]:
    with scene_server(scene_of(10_000, 100)) as made:
        yield made


def change(scene: Scene, ref: PoolRef, **fields: Any) -> None:
    found = scene.placement(ref)
    assert found is not None
    scene.publish(replace(found, **fields))


def wait(page: "Page", expression: str) -> None:
    """Until it is true (`wait_for_function` evaluates strings: the page's policy forbids it)."""
    deadline = time.monotonic() + DEADLINE_MS / 1e3
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not in time: {expression}"
        page.wait_for_timeout(20)


# Large.


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


# The state of things.


def test_what_is_wrong_is_above_all(page: "Page", server: SceneServer) -> None:
    """Pools without owner have a row of their own, the first; each phase counts and filters."""

    def trouble(scene: Scene) -> None:
        made = [scene.placement(pool_name(number)) for number in range(4)]
        lost, moving, sick, fresh = (each for each in made if each is not None)
        scene.workers[2] = replace(member(2, state=MemberState.SUSPECT), why="silent for 1.2 s")
        scene.publish(
            replace(lost, owners=(), standby=None, phase=Phase.UNOWNED, reason=Why.OWNER_DEAD),
            replace(moving, phase=Phase.MOVING, moving_to="worker-2", reason=Why.DRAIN),
            replace(sick, phase=Phase.QUARANTINED, standby=None),
            replace(fresh, phase=Phase.OPENING),
        )

    server.do(trouble)
    wait_text(page, "#alerts", "1 pool without owner")
    wait_text(page, "#alerts", "1 pool in quarantine")
    wait_text(page, "#alerts", "worker-2 is suspect: silent for 1.2 s")
    wait_text(
        page,
        "#alerts .moves",
        "globex/mistral-7b-1 is moving worker-1 → worker-2: its owner was drained, for",
    )
    assert "No owner" in page.locator("#map .row").first.inner_text()
    wait_text(page, "#map .row:nth-child(4) .why", "silent for 1.2 s")
    counts = page.locator("#phases .count").all_inner_texts()
    assert counts == ["1", "1", "1", "1", "8"]
    page.locator("#phases [data-phase=moving]").click()
    wait(page, "document.querySelectorAll('#map .row').length === 1")
    page.locator("#phases [data-phase=moving]").click()
    wait(page, "document.querySelectorAll('#map .row').length === 4")
    server.do(lambda scene: setattr(scene, "who", None))
    server.do(lambda scene: scene.count())
    wait_text(page, "#standing", "nobody leads")
    wait_text(page, "#alerts", "Nobody leads")


def test_moves_are_spoken(page: "Page", server: SceneServer) -> None:
    """To those who hear the page; many at once in one sentence."""
    ref = pool_name(1)
    server.do(lambda scene: change(scene, ref, owners=("worker-0",), reason=Why.OWNER_DEAD))
    wait_text(
        page, "#spoken", "globex/mistral-7b-1 went from worker-1 to worker-0: its owner died."
    )

    def many(scene: Scene) -> None:
        scene.publish(*(replace(each, owners=("worker-2",)) for each in scene.placements.values()))

    server.do(many)
    wait_text(page, "#spoken", "8 pools have changed owner.")


def test_the_drill_down(page: "Page", server: SceneServer) -> None:
    """Owner, stand-by, why, history with what was lost, endpoints; it follows changes by itself."""
    past = [
        Move("g", "worker-2", "worker-0", "owner_dead", EpochVersion(1, 2), 1.0, 2.0, "done", "w"),
        Move("g", "", "worker-2", "initial", EpochVersion(1, 1), 1.0, 2.0, "done"),
    ]
    group = str(GroupKey(FIRST.namespace, f"{FIRST.name}-epp", 9002))
    server.do(lambda scene: setattr(scene, "past", [replace(each, group=group) for each in past]))
    page.goto(f"{server.url}#pool={FIRST}")
    panel = page.locator("#panel")
    wait_text(page, "#panel .answer", "worker-0 has owned it for 12 min: first placement.")
    wait_text(page, "#panel", "worker-1 stands by.")
    wait_text(page, "#panel", "as 3.17 in llama-8b-0-epp")
    wait_text(page, "#panel .lost", "what was in flight")
    wait_text(page, "#panel", "4 of 5 endpoints ready, by worker-0's word; 8.3 requests/s")
    row = panel.get_by_role("row").filter(has_text="llama-8b-0-1")
    assert row.inner_text().split() == [
        "llama-8b-0-1", "10.4.0.2:8000", "ready", "4", "1", "30", "%", "0.3", "s",
    ]  # fmt: skip
    wait_text(page, "#panel .lost", "not ready")
    server.do(lambda scene: change(scene, FIRST, owners=("worker-2",), reason=Why.DRAIN))
    wait_text(page, "#panel .answer", "worker-2 has owned it")
    wait_text(page, "#panel .answer", "its owner was drained.")
    server.do(lambda scene: setattr(scene, "mute", True))
    wait_text(page, "#panel .problem", "worker-2, the owner, at 10.0.0.7:9004: no answer")
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    page.goto(f"{server.url}#pool=no/such")
    wait_text(page, "#panel .problem", "there is no InferencePool no/such")


def test_what_if(page: "Page", server: SceneServer) -> None:
    """Before and after, in a picture and in numbers; nothing is done."""
    page.get_by_role("button", name="What if…").click()
    page.get_by_label("…worker").select_option("worker-1")
    page.get_by_role("button", name="Show").first.click()
    wait_text(page, "#panel .answer", "Without worker-1, 4 of 12 route groups would move (33.3 %).")
    rows = page.locator("#panel .plan table").first.locator("tbody tr")
    rows.nth(2).wait_for()
    assert rows.count() == 3
    assert "worker-1 leaves" in rows.nth(1).inner_text()
    assert "4 → 0" in rows.nth(1).inner_text()
    assert page.locator("#panel .before").count() >= 3
    page.get_by_label("…there are").fill("4")
    page.get_by_role("button", name="Show").last.click()
    wait_text(page, "#panel .answer", "With 4 workers,")
    assert page.url.endswith("#plan=workers:4")
    wait_text(page, "#panel .plan em", "joins")
    page.get_by_label("…there are").fill("0")
    page.get_by_role("button", name="Show").last.click()
    wait_text(page, "#panel .problem", "out of range")
    assert server.scene.drains == []


# Tables, keys, sizes, colours.


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


# Lost, polling, behind a prefix.


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


# Tokens and hostile names.


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
