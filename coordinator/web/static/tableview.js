// The same as the map, as tables: for screen readers, for copying, and for who likes them better.

import { h, renew, say } from "./dom.js";
import { keyOf } from "./model.js";
import { phaseBadge, workerLink } from "./poolpanel.js";
import { ago, decimal, mapAge, plural, reasonWords } from "./text.js";

/** @typedef {import("./model.js").Fleet} Fleet */
/** @typedef {import("./model.js").Pool} Pool */

/** Rows of a page of the table. */
const PAGE = 100;

const POOL_COLUMNS = ["Pool", "Phase", "Owner", "Stand-by", "Why", "For", "Group"];
const WORKER_COLUMNS = [
  "Worker",
  "State",
  "Owned",
  "Stand-by",
  "Load/s",
  "Weight",
  "Lag ms",
  "Map",
  "Why",
];

/** @param {string[]} columns */
function head(columns) {
  return h("thead", {}, h("tr", {}, ...columns.map((name) => h("th", { scope: "col" }, name))));
}

export class TableView {
  /** @param {HTMLElement} container @param {() => number} now */
  constructor(container, now) {
    this.now = now;
    this.page = 0;
    /** @type {Pool[]} */
    this.pools = [];
    this.poolRows = h("tbody", {});
    this.workerRows = h("tbody", {});
    this.poolTable = h("table", {}, h("caption", {}, "Pools"), head(POOL_COLUMNS), this.poolRows);
    this.where = h("span", { "aria-live": "polite" });
    this.back = h("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous");
    this.next = h("button", { type: "button", onclick: () => this.#turn(1) }, "Next");
    container.append(
      h(
        "div",
        { class: "scroll wide", tabindex: 0, role: "region", "aria-label": "Workers" },
        h("table", {}, h("caption", {}, "Workers"), head(WORKER_COLUMNS), this.workerRows),
      ),
      h(
        "div",
        { class: "scroll wide", tabindex: 0, role: "region", "aria-label": "Pools" },
        this.poolTable,
      ),
      h(
        "nav",
        { class: "pages", "aria-label": "Pages of pools" },
        this.back,
        " ",
        this.where,
        " ",
        this.next,
      ),
    );
  }

  /** @param {Fleet} fleet @param {Pool[]} pools those to show, in order @param {boolean} anew from
   *   the first page */
  show(fleet, pools, anew) {
    if (anew) this.page = 0;
    this.pools = pools;
    this.#showPools();
    this.showWorkers(fleet);
  }

  /** @param {Fleet} fleet */
  showWorkers(fleet) {
    const rows = fleet.rows().flatMap((id) => {
      const worker = fleet.workers.get(id);
      return worker ? [this.#worker(worker, fleet)] : [];
    });
    renew(this.workerRows, rows);
  }

  /** @param {number} by */
  #turn(by) {
    this.page += by;
    this.#showPools();
    this.poolTable.scrollIntoView({ block: "start" });
  }

  #showPools() {
    const pages = Math.max(1, Math.ceil(this.pools.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const first = this.page * PAGE;
    const shown = this.pools.slice(first, first + PAGE);
    renew(
      this.poolRows,
      shown.map((pool) => this.#pool(pool)),
    );
    this.poolTable.setAttribute("aria-rowcount", String(this.pools.length + 1));
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === pages - 1;
    const range = shown.length ? `${first + 1} to ${first + shown.length} of ` : "";
    say(this.where, range + plural(this.pools.length, "pool"));
  }

  /** @param {Pool} pool */
  #pool(pool) {
    const path = `${encodeURIComponent(pool.namespace)}/${encodeURIComponent(pool.name)}`;
    const name = h("a", { href: `#pool=${path}` }, `${pool.namespace}/${pool.name}`);
    const owners = pool.owners.map((id) => workerLink(id));
    const to = pool.moving_to ? [" → ", workerLink(pool.moving_to)] : [];
    return h(
      "tr",
      { "data-key": keyOf(pool) },
      h("th", { scope: "row" }, name),
      h("td", {}, phaseBadge(pool.phase)),
      h("td", {}, ...(owners.length ? owners : ["nobody"]), ...to),
      h("td", {}, pool.standby ? workerLink(pool.standby) : "nobody"),
      h("td", {}, reasonWords(pool.reason)),
      h("td", {}, ago(pool.since, this.now())),
      h("td", {}, pool.group),
    );
  }

  /** @param {import("./model.js").Worker} worker @param {Fleet} fleet */
  #worker(worker, fleet) {
    const behind = fleet.behindSince.get(worker.id);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, workerLink(worker.id)),
      h("td", {}, h("span", { class: `state ${worker.state}` }, worker.state)),
      ...[
        worker.owned,
        worker.standby,
        decimal(worker.load),
        worker.weight,
        worker.loop_lag_ms.toFixed(1),
      ].map((value) => h("td", {}, String(value))),
      h("td", {}, mapAge(worker, fleet.version, behind, this.now())),
      h("td", {}, worker.why),
    );
  }
}
