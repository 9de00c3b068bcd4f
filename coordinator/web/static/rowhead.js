// The head of a worker's row: who it is, how it is, and what it carries by its share.

import { bar, h, say } from "./dom.js";
import { NOBODY } from "./model.js";
import { decimal, mapAge, plural } from "./text.js";

/** @typedef {import("./model.js").Fleet} Fleet */
/** @typedef {{weights: number, owned: number, most: number, busiest: number}} Scale */

/** What a pool without owner means. */
const LOST = "nobody serves these";

export class RowHead {
  /** @param {string} id of the worker; NOBODY for the row of pools without owner */
  constructor(id) {
    this.name = h("a", { class: "name", href: `#worker=${encodeURIComponent(id)}` }, id);
    this.state = h("span", { class: "state" });
    this.facts = h("span", { class: "facts" });
    this.why = h("p", { class: "why" });
    this.owned = bar(0, "owned");
    this.load = bar(0, "load");
    this.tick = h("span", { class: "tick" });
    this.owned.append(this.tick);
    const bars = h("div", { class: "bars" }, this.owned, this.load);
    const title = id === NOBODY ? h("strong", { class: "name" }, "No owner") : this.name;
    this.element = h(
      "div",
      { class: "who" },
      h("div", { class: "line" }, title, this.state, this.facts),
      id === NOBODY ? null : bars,
      this.why,
    );
  }

  /** What the bars are measured by. @param {Fleet} fleet @returns {Scale} */
  static scale(fleet) {
    const scale = { weights: 0, owned: 0, most: 1, busiest: 1 };
    for (const worker of fleet.workers.values()) {
      const owned = fleet.byOwner.get(worker.id)?.length ?? 0;
      scale.owned += owned;
      if (worker.state === "alive" || worker.state === "suspect") scale.weights += worker.weight;
      scale.most = Math.max(scale.most, owned);
      scale.busiest = Math.max(scale.busiest, worker.load);
    }
    return scale;
  }

  /** @param {Fleet} fleet @param {string} id @param {Scale} scale @param {number} now ms */
  show(fleet, id, scale, now) {
    const owned = fleet.byOwner.get(id)?.length ?? 0;
    const worker = fleet.workers.get(id);
    if (id === NOBODY || !worker) {
      say(this.facts, plural(owned, "pool"));
      say(this.state, id === NOBODY ? "" : "unknown");
      say(this.why, id === NOBODY ? LOST : "the map names it, but no coordinator knows it now");
      this.state.className = "state unknown";
      return;
    }
    say(this.state, worker.state);
    this.state.className = `state ${worker.state}`;
    const behind = fleet.behindSince.get(id);
    const late = behind !== undefined && now - behind > 2_000;
    const age = late ? `, ${mapAge(worker, fleet.version, behind, now)}` : "";
    const load = worker.state === "dead" ? 0 : worker.load;
    say(this.facts, plural(owned, "pool") + (load ? `, ${decimal(load)}/s` : ""));
    say(this.why, `${worker.why}${age}`.replace(/^, /, ""));
    const live = worker.state === "alive" || worker.state === "suspect";
    const fair = live && scale.weights ? (scale.owned * worker.weight) / scale.weights : 0;
    const whole = Math.max(scale.most, fair) * 1.1;
    this.#fill(this.owned, owned / whole);
    this.#fill(this.load, load / scale.busiest);
    this.tick.hidden = fair === 0;
    this.tick.style.left = `${(fair / whole) * 100}%`;
    const title = `fair share by weight ${worker.weight}: ${decimal(fair)} pools`;
    if (this.owned.title !== title) this.owned.title = title;
  }

  /** @param {HTMLElement} element @param {number} share */
  #fill(element, share) {
    const width = `${Math.round(Math.min(1, share) * 1000) / 10}%`;
    const fill = /** @type {HTMLElement} */ (element.firstElementChild);
    if (fill.style.width !== width) fill.style.width = width;
  }
}
