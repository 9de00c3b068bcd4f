// The page put together: what comes in changes the model, what changed is shown once a frame.

import { byId, h, renew, say } from "./dom.js";
import { readColours } from "./cells.js";
import { Live } from "./live.js";
import { MapView } from "./mapview.js";
import { compareVersions, Fleet, keyOf, NOBODY, ownerOf } from "./model.js";
import { Panel, parseHash, poolOfHash } from "./panel.js";
import { HistoryPanel, PoolPanel } from "./poolpanel.js";
import { best, filterOf, isOpen, matches } from "./search.js";
import { showAlerts, showLink, showPhases, showStanding } from "./summary.js";
import { TableView } from "./tableview.js";
import { announce, plural, poolLine } from "./text.js";
import { theme } from "./theme.js";
import { readersForm, TokenDialog } from "./tokens.js";
import { PlanPanel } from "./whatif.js";
import { WorkerPanel } from "./workerpanel.js";

/** @typedef {import("./model.js").Pool} Pool */

/** Matches that are named below the search. */
const MOST_FOUND = 6;
/** What always changes in an open panel is read this often. */
const TICK_MS = 3_000;
const NO_MAP = "There is no shard map yet: a new leader first listens to the workers.";
/** A panel is read again at most this often while the map changes. */
const REFRESH_MS = 700;
/** A page that nobody has looked at for so long lets its stream go. */
const HIDDEN_MS = 30_000;

const fleet = new Fleet();
const standing = {
  leading: false,
  leader: /** @type {any} */ (null),
  answeredBy: "",
  notReady: /** @type {any} */ (null),
};
const search = /** @type {HTMLInputElement} */ (byId("search"));
let filter = filterOf("", []);
let colours = readColours();
/** @type {{link: import("./live.js").Link, why: string}} */
let link = { link: "starting", why: "" };
let clockOffset = 0;
let tableShown = false;

/** The coordinator's time: ages do not depend on the clock of this machine. */
const now = () => Date.now() + clockOffset;

/** @param {{namespace: string, name: string}} pool */
function openPool(pool) {
  location.hash = `#pool=${encodeURIComponent(pool.namespace)}/${encodeURIComponent(pool.name)}`;
}

const map = new MapView(byId("map"), byId("tip"), { open: openPool, now });
const tables = new TableView(byId("tables"), now);
const panel = new Panel(byId("panel"), () => map.focus());
const dialog = new TokenDialog(() => {
  void panel.part?.refresh();
  live.start();
});
const readers = readersForm(byId("locked"), () => live.start());

// Showing. Whatever happens between two frames is shown once.

/** `anew`: choose the size of cells again; `first`: the table begins at its first page.
 * @type {{rows: Set<string>|null, anew: boolean, first: boolean, map: boolean, asked: boolean}} */
const due = { rows: new Set(), anew: false, first: false, map: false, asked: false };

/** @param {Set<string>|null} rows whose pools changed; null = all @param {boolean} [anew] */
function mapChanged(rows, anew = false) {
  due.map = true;
  if (rows === null) due.rows = null;
  else for (const row of rows) due.rows?.add(row);
  due.anew = due.anew || anew;
  ask();
}

function ask() {
  if (due.asked) return;
  due.asked = true;
  requestAnimationFrame(draw);
}

function draw() {
  due.asked = false;
  if (due.map) drawPools();
  else if (tableShown) tables.showWorkers(fleet);
  else drawHeads();
  drawSummary();
}

/** Workers have news. A worker that is new, or gone, is a row more or less. */
function drawHeads() {
  const ids = rowIds(shownPools());
  if (ids.join("\n") === map.order.map((row) => row.id).join("\n")) map.heads();
  else map.show(fleet, shownPools(), { ids, touched: null, anew: true });
}

/** @returns {Map<string, Pool[]>} */
function shownPools() {
  if (isOpen(filter)) return fleet.byOwner;
  const shown = new Map();
  for (const [id, pools] of fleet.byOwner) {
    const kept = pools.filter((pool) => matches(filter, pool));
    if (kept.length) shown.set(id, kept);
  }
  return shown;
}

/** @param {Map<string, Pool[]>} shown */
function rowIds(shown) {
  const ids = fleet.rows();
  return isOpen(filter) ? ids : ids.filter((id) => shown.has(id));
}

function drawPools() {
  const shown = shownPools();
  const all = [...shown.values()].flat();
  if (tableShown) {
    all.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    tables.show(fleet, all, due.first);
  } else {
    map.show(fleet, shown, { ids: rowIds(shown), touched: due.rows, anew: due.anew });
  }
  mark();
  due.rows = new Set();
  due.anew = due.first = due.map = false;
  const empty = byId("empty");
  empty.hidden = all.length > 0 || fleet.version === null;
  say(empty, isOpen(filter) ? "There are no pools." : "No pool matches.");
  showFound(all);
}

/** @param {Pool[]} all that match */
function showFound(all) {
  const list = byId("found");
  list.hidden = filter.terms.length === 0;
  if (list.hidden) return;
  const items = best(all, search.value, MOST_FOUND).map((pool) =>
    h(
      "li",
      {},
      h("button", { type: "button", onclick: () => openPool(pool) }, poolLine(pool, now())),
    ),
  );
  renew(
    list,
    h("li", { class: "count", role: "status" }, plural(all.length, "match", "matches")),
    items,
  );
}

function drawSummary() {
  if (!fleet.version) {
    byId("empty").hidden = link.link !== "live";
    say(byId("empty"), NO_MAP);
  }
  showStanding(fleet, standing, now());
  showAlerts(fleet, standing, now(), (phase) => toggle(phase));
  showPhases(fleet, filter.phases, colours, toggle);
  drawLink();
}

function drawLink() {
  showLink(link.link, link.why, performance.now() - live.heardAt, fleet.version !== null);
}

// What comes in.

const live = new Live({
  known: () => (fleet.version ? `${fleet.version.epoch}.${fleet.version.version}` : ""),
  map(document) {
    const news = fleet.version === null || compareVersions(fleet.version, document) !== 0;
    standing.leader = document.leader;
    if (!news) return;
    fleet.readMap(document, now());
    mapChanged(null, true);
    refreshSoon();
  },
  changes(document) {
    const found = fleet.readChanges(document, now());
    if (!found) return false;
    mapChanged(found.touched);
    if (found.moved.length) say(byId("spoken"), announce(found.moved));
    refreshSoon();
    return true;
  },
  workers(change) {
    fleet.readWorkers(change, now());
    if (panel.part instanceof WorkerPanel) void panel.part.refresh();
    else if (panel.part instanceof PlanPanel) panel.part.workersChanged();
    ask();
  },
  standing(document) {
    standing.leader = document.leader;
    standing.leading = document.leading;
    standing.answeredBy = document.answered_by;
    standing.notReady = document.not_ready;
    fleet.name = document.fleet ?? fleet.name;
    if (panel.part instanceof WorkerPanel) void panel.part.refresh();
    ask();
  },
  beat(at) {
    clockOffset = Date.parse(at) - Date.now();
  },
  link(state, why) {
    const before = link.link;
    link = { link: state, why };
    if (state === before && state === "live") return;
    const locked = state === "locked";
    byId("locked").hidden = !locked;
    if (locked) {
      say(byId("locked-why"), `The coordinator says: ${why}.`);
      if (before !== "locked") readers.focus();
    }
    if (before !== state && before !== "starting") say(byId("spoken"), `The page is ${state}.`);
    drawLink();
  },
});

let refreshing = 0;

/** Read the open panel again, once changes have come to rest for a moment. */
function refreshSoon() {
  if (!panel.part || panel.part instanceof PlanPanel || refreshing) return;
  refreshing = window.setTimeout(() => {
    refreshing = 0;
    void panel.part?.refresh();
  }, REFRESH_MS);
}

// What the reader does.

function filterChanged() {
  filter = filterOf(search.value, filter.phases);
  due.first = true;
  mapChanged(null, true);
}

/** @param {string} phase */
function toggle(phase) {
  if (!filter.phases.delete(phase)) filter.phases.add(phase);
  filterChanged();
}

function firstFound() {
  const all = [...shownPools().values()].flat();
  const wanted = search.value.trim();
  if (fleet.workers.has(wanted)) location.hash = `#worker=${encodeURIComponent(wanted)}`;
  else if (all.length && wanted) openPool(best(all, wanted, 1)[0]);
}

search.addEventListener("input", filterChanged);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") firstFound();
  else if (event.key === "ArrowDown") {
    event.preventDefault();
    map.focus();
  }
});

/** @param {boolean} on */
function showTable(on) {
  tableShown = on;
  byId("map").hidden = on;
  byId("tables").hidden = !on;
  byId("map-button").setAttribute("aria-pressed", String(!on));
  byId("table-button").setAttribute("aria-pressed", String(on));
  mapChanged(null, true);
}

byId("map-button").addEventListener("click", () => showTable(false));
byId("table-button").addEventListener("click", () => showTable(true));
byId("token-button").addEventListener("click", () => dialog.open());
byId("whatif-button").addEventListener("click", () => (location.hash = "#plan"));
byId("history-button").addEventListener("click", () => (location.hash = "#history"));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.dialog.open) return;
  const typing =
    event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "Escape") {
    if (event.target === search && search.value) {
      search.value = "";
      filterChanged();
    } else if (panel.part) panel.leave();
  }
});

function route() {
  const { kind, value } = parseHash(location.hash);
  const pool = kind === "pool" ? poolOfHash(value) : null;
  if (pool) panel.open(new PoolPanel(pool.namespace, pool.name, now));
  else if (kind === "worker" && value) {
    panel.open(
      new WorkerPanel(value, fleet, () => standing, now, { askToken: () => dialog.open() }),
    );
  } else if (kind === "plan") panel.open(new PlanPanel(value, livingWorkers));
  else if (kind === "history") panel.open(new HistoryPanel(now));
  else panel.close();
  mark();
}

/** Mark the cell of the pool that is open. */
function mark() {
  const part = panel.part;
  map.choose(part instanceof PoolPanel ? chosenKey(part) : "");
}

/** @param {{namespace: string, name: string}} pool */
function chosenKey(pool) {
  const found = fleet.named(pool.namespace, pool.name);
  return found.length ? keyOf(found.find((each) => ownerOf(each) !== NOBODY) ?? found[0]) : "";
}

/** @returns {string[]} */
function livingWorkers() {
  return fleet
    .rows()
    .filter((id) => fleet.workers.has(id) && fleet.workers.get(id)?.state !== "dead");
}

window.addEventListener("hashchange", route);
window.addEventListener("popstate", route);
window.setInterval(() => {
  if (panel.part?.tick && !document.hidden && link.link !== "lost") void panel.part.tick();
}, TICK_MS);
window.setInterval(() => {
  if (!document.hidden) ask();
}, 1_000);

let hiding = 0;
document.addEventListener("visibilitychange", () => {
  window.clearTimeout(hiding);
  if (document.hidden) hiding = window.setTimeout(() => live.rest(true), HIDDEN_MS);
  else if (live.resting) live.rest(false);
});

theme(byId("theme-button"), () => {
  colours = readColours();
  map.recolour();
  ask();
});
live.start();
route();
