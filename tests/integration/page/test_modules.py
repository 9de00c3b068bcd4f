"""The page's own arithmetic and words: its modules, asked in a real browser by values worked out
here."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import open_browser, page_of, scene_server
from tests.web_scene import Scene

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def page() -> Iterator["Page"]:
    with (
        open_browser() as browser,
        scene_server(Scene()) as server,
        page_of(browser, server.url) as found,
    ):
        yield found


def js(page: "Page", module: str, body: str, argument: Any = None) -> Any:
    """The value of an expression over the module `m` and the argument `x`."""
    script = f"async (x) => {{ const m = await import('./page/{module}.js'); return {body}; }}"
    return page.evaluate(script, argument)


def pool(name: str, owner: str | None = "w-0", **fields: Any) -> dict[str, Any]:
    return {
        "namespace": "ns",
        "name": name,
        "group": f"ns/{name}:9002",
        "owners": [] if owner is None else [owner],
        "standby": "w-9",
        "phase": "unowned" if owner is None else "owned",
        "since": "2026-01-01T00:00:00.000Z",
        "reason": "initial",
        "moving_to": None,
        "draining": [],
        **fields,
    }


def map_of(*pools: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {
        "format": 1,
        "fleet": "f",
        "epoch": 1,
        "version": version,
        "published_at": "2026-01-01T00:00:00.000Z",
        "leader": None,
        "pools": list(pools),
    }


def changes(
    before: int, after: int, *changed: dict[str, Any], gone: tuple[str, ...] = ()
) -> dict[str, Any]:
    head = map_of(version=after)
    gone_pools = [{"namespace": "ns", "name": name, "group": f"ns/{name}:9002"} for name in gone]
    return {**head, "from_epoch": 1, "from_version": before, "changed": changed, "gone": gone_pools}


FLEET = "(() => { const f = new m.Fleet(); f.readMap(x.map, 0); {steps} return {result}; })()"


def fleet(page: "Page", steps: str, result: str, **given: Any) -> Any:
    """Read the map `x.map`, do the steps to the fleet `f`, and give the result."""
    body = FLEET.replace("{steps}", steps).replace("{result}", result)
    return js(page, "model", body, given)


NAMES = "Object.fromEntries([...f.byOwner].map(([k, v]) => [k, v.map((p) => p.name)]))"


def test_changes_keep_the_order_of_each_row(page: "Page") -> None:
    """One moves, one goes, one comes: the rows that were touched, and who has changed owner."""
    found = fleet(
        page,
        "const r = f.readChanges(x.news, 5);",
        f"[{NAMES}, [...r.touched].sort(), r.moved.map((c) => [c.pool.name, c.from, c.to]), "
        "f.counts]",
        map=map_of(pool("a"), pool("b"), pool("c", "w-1"), pool("d")),
        news=changes(1, 3, pool("b", "w-1"), pool("bb", "w-1"), gone=("d",)),
    )
    assert found[0] == {"w-0": ["a"], "w-1": ["b", "bb", "c"]}
    assert found[1] == ["w-0", "w-1"]
    assert found[2] == [["b", "w-0", "w-1"]]
    assert found[3] == {"unowned": 0, "quarantined": 0, "opening": 0, "moving": 0, "owned": 4}


def test_changes_of_another_map_are_not_taken(page: "Page") -> None:
    """A gap: the whole map must be read. What is known already does nothing."""
    steps = "const r = f.readChanges(x.news, 5);"
    given = {"map": map_of(pool("a"), version=4)}
    gap = fleet(page, steps, "r", news=changes(5, 6, pool("a", "w-1")), **given)
    assert gap is None
    known = fleet(
        page, steps, f"[r.touched.size, {NAMES}]", news=changes(3, 4, pool("a", "w-1")), **given
    )
    assert known == [0, {"w-0": ["a"]}]


def test_rows_as_people_order_them(page: "Page") -> None:
    """Nobody's pools first, then workers, ten after two."""
    rows = fleet(
        page,
        "f.readWorkers({whole: true, workers: [{id: 'w-2', epoch: 1, version: 1}]}, 0);",
        "f.rows()",
        map=map_of(pool("a", "w-10"), pool("b", None), pool("c", "w-1")),
    )
    assert rows == ["", "w-1", "w-2", "w-10"]


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        ({"standby": "w-1"}, True),
        ({"owner": "w-1"}, True),
        ({"reason": "kept"}, False),
        ({"standby": "w-2"}, False),
    ],
)
def test_a_worker_is_behind_a_map_that_concerns_it(
    page: "Page", change: dict[str, Any], behind: bool
) -> None:
    """w-1 knows 1.1. It is told of no other map than one in which its own part changes."""
    found = fleet(
        page,
        "const w = {id: 'w-1', epoch: 1, version: 1, state: 'alive'};"
        "f.readWorkers({whole: true, workers: [w]}, 0); f.readChanges(x.news, 7000);",
        "[...f.behindSince]",
        map=map_of(pool("a")),
        news=changes(1, 2, pool("a", **change)),
    )
    assert found == ([["w-1", 7000]] if behind else [])


def test_since_when_a_pool_moves(page: "Page") -> None:
    """From when it was first seen, through later changes, until it has moved."""
    moving = pool("a", phase="moving", moving_to="w-1")
    first = "f.readChanges(x.one, 100); f.readChanges(x.two, 900);"
    given = {
        "map": map_of(pool("a")),
        "one": changes(1, 2, moving),
        "two": changes(2, 3, {**moving, "standby": "w-3"}),
        "three": changes(3, 4, pool("a", "w-1")),
    }
    since = "[...f.movingSince.values()]"
    assert fleet(page, first, since, **given) == [100]
    assert fleet(page, f"{first} f.readChanges(x.three, 950);", since, **given) == []


def test_cells(page: "Page") -> None:
    """Seven cells of 22 px with gaps of 3 in 100 px: four columns, two lines."""
    size = {"name": "m", "width": 22, "height": 22, "gap": 3, "labelled": False}
    grid = js(page, "layout", "m.gridOf(x, 7, 100)", size)
    assert grid == {"columns": 4, "lines": 2, "width": 97, "height": 47}
    at = "[0, 3, 4].map((i) => m.cellAt(x, m.gridOf(x, 7, 100), i))"
    assert js(page, "layout", at, size) == [{"x": 0, "y": 0}, {"x": 75, "y": 0}, {"x": 0, "y": 25}]
    hits = (
        "[[0, 0], [76, 5], [1, 26], [76, 26], [-1, 0], [200, 0], [0, 200]]"
        ".map(([a, b]) => m.hit(x, m.gridOf(x, 7, 100), 7, a, b))"
    )
    assert js(page, "layout", hits, size) == [0, 3, 4, -1, -1, -1, -1]


def test_cells_are_as_large_as_can_be_looked_at(page: "Page") -> None:
    """Few pools have their names, ten thousand do not make the page longer than its heads."""
    sizes = "x.map(([rows, each, width]) => m.sizeFor(Array(rows).fill(each), width).name)"
    asked = [[3, 2, 900], [6, 16, 1000], [20, 20, 900], [100, 100, 1000], [100, 100, 400]]
    names = js(page, "layout", sizes, asked)
    assert names == ["large", "large", "medium", "small", "tiny"]


@pytest.mark.parametrize(
    ("start", "key", "end"),
    [
        ((0, 0), "ArrowRight", (0, 1)),
        ((0, 4), "ArrowRight", (0, 4)),
        ((0, 0), "ArrowLeft", (0, 0)),
        ((0, 1), "ArrowDown", (0, 4)),
        ((0, 2), "ArrowDown", (0, 4)),
        ((0, 4), "ArrowDown", (2, 1)),
        ((2, 1), "ArrowUp", (0, 4)),
        ((2, 0), "ArrowUp", (0, 3)),
        ((2, 1), "ArrowDown", (2, 1)),
        ((0, 3), "Home", (0, 0)),
        ((0, 0), "End", (0, 4)),
        ((0, 2), "x", (0, 2)),
    ],
)
def test_where_keys_lead(
    page: "Page", start: tuple[int, int], key: str, end: tuple[int, int]
) -> None:
    """Three columns; five cells, none, two."""
    rows = [{"count": n, "columns": 3} for n in (5, 0, 2)]
    found = js(
        page,
        "layout",
        "m.step(x.rows, {row: x.start[0], index: x.start[1]}, x.key)",
        {"rows": rows, "start": start, "key": key},
    )
    assert (found["row"], found["index"]) == end


def test_what_a_search_finds(page: "Page") -> None:
    """All terms, anywhere; a worker's pools too; the very name is the best."""
    pools = [pool("red", "w-1"), pool("red-2"), pool("dark-red"), pool("blue", moving_to="w-1")]

    def found(text: str, phases: list[str]) -> Any:
        body = (
            "x.pools.filter((p) => m.matches(m.filterOf(x.text, x.phases), p)).map((p) => p.name)"
        )
        return js(page, "search", body, {"pools": pools, "text": text, "phases": phases})

    assert found("RED", []) == ["red", "red-2", "dark-red"]
    assert found("ns/ w-1", []) == ["red", "blue"]
    assert found("", ["unowned"]) == []
    assert found("nothing", []) == []
    best = js(
        page, "search", "m.best(x, 'red', 2).map((p) => p.name)", [pools[2], pools[1], pools[0]]
    )
    assert best == ["red", "red-2"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0 s"), (59_400, "59 s"), (60_000, "1 min"), (3_700_000, "1 h 1 min"), (2e8, "2 days")],
)
def test_spans(page: "Page", milliseconds: float, text: str) -> None:
    """In their largest unit."""
    assert js(page, "text", "m.span(x)", milliseconds) == text


@pytest.mark.parametrize(
    ("source", "reason", "outcome", "lost"),
    [
        (None, "initial", "done", False),
        ("w-0", "owner_dead", "done", True),
        ("w-0", "drain", "done", False),
        ("w-0", "balance", "deadline", False),
        ("w-0", "drain", "gainer_dead", False),
    ],
)
def test_whether_a_move_lost_anything(
    page: "Page", source: str | None, reason: str, outcome: str, lost: bool
) -> None:
    """A death loses what was in flight; a planned move nothing, however it ends."""
    move = {"source": source, "reason": reason, "outcome": outcome}
    assert js(page, "text", "m.lossOf(x).lost", move) is lost


def test_events_split_anywhere(page: "Page") -> None:
    """Each piece of any size; comments, CRLF, and data of two lines."""
    text = ': hi\nevent: map\nid: 1.2\ndata: {"a": 1}\n\nretry: 5\n\ndata: x\r\ndata: y\r\n\r\n'
    body = (
        "[1, 2, 7, 1000].map((n) => { const p = new m.Parser(); const all = [];"
        "for (let i = 0; i < x.length; i += n) all.push(...p.push(x.slice(i, i + n)));"
        "return all; })"
    )
    wanted = [
        {"event": "map", "data": '{"a": 1}', "id": "1.2"},
        {"event": "message", "data": "x\ny", "id": ""},
    ]
    assert js(page, "sse", body, text) == [wanted] * 4


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a/b", {"namespace": "a", "name": "b"}),
        ("a%2Fb/c%20d", {"namespace": "a/b", "name": "c d"}),
        ("a", None),
        ("a/b/c", None),
        ("/b", None),
        ("%zz/b", None),
    ],
)
def test_pools_in_addresses(page: "Page", value: str, name: dict[str, str] | None) -> None:
    """Each half decoded by itself; what is none opens nothing."""
    assert js(page, "panel", "m.poolOfHash(x)", value) == name


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("remove:w-1", {"remove": "w-1"}),
        ("remove:a:b", {"remove": "a:b"}),
        ("workers:12", {"workers": "12"}),
        ("workers:-1", None),
        ("workers:", None),
        ("", None),
    ],
)
def test_questions_in_addresses(page: "Page", text: str, question: dict[str, str] | None) -> None:
    """What is no question asks nothing."""
    assert js(page, "whatif", "m.questionOf(x)", text) == question
