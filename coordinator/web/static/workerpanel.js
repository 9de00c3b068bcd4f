// One worker: how it is, why, what it owns, what if it went; and draining it, with a token.

import { command, hasToken } from "./api.js";
import { h, renew } from "./dom.js";
import { failure, factList, phaseBadge } from "./poolpanel.js";
import { decimal, mapAge, plural } from "./text.js";
import { askPlan, verdict } from "./whatif.js";

/** @typedef {import("./model.js").Fleet} Fleet */
/** @typedef {{leading: boolean, leader: import("./model.js").Leader|null, answeredBy: string}} Standing */

/** Pools that are listed; the map and the table have all. */
const MOST = 200;

export class WorkerPanel {
  /**
   * @param {string} id @param {Fleet} fleet @param {() => Standing} standing @param {() => number} now
   * @param {{askToken: () => void}} given
   */
  constructor(id, fleet, standing, now, given) {
    this.id = id;
    this.fleet = fleet;
    this.standing = standing;
    this.now = now;
    this.given = given;
    this.title = id;
    this.facts = h("div", {});
    this.actions = h("div", { class: "actions" });
    this.said = h("div", { "aria-live": "polite" });
    this.pools = h("div", {});
    this.shown = "";
    this.element = h(
      "div",
      {},
      this.facts,
      h("h3", {}, "Take it out"),
      this.actions,
      this.said,
      this.pools,
    );
  }

  async refresh() {
    const worker = this.fleet.workers.get(this.id);
    const owned = this.fleet.byOwner.get(this.id) ?? [];
    renew(
      this.facts,
      worker
        ? this.#facts(worker, owned.length)
        : h("p", { class: "problem" }, "No coordinator knows a worker of this name now."),
    );
    this.#showActions(worker);
    const rows = owned.slice(0, MOST).map((pool) => {
      const name = `${pool.namespace}/${pool.name}`;
      const link = h(
        "a",
        { href: `#pool=${encodeURIComponent(pool.namespace)}/${encodeURIComponent(pool.name)}` },
        name,
      );
      return h("li", {}, link, pool.phase === "owned" ? null : [" ", phaseBadge(pool.phase)]);
    });
    const rest = owned.length - rows.length;
    renew(
      this.pools,
      h("h3", {}, `Owns ${plural(owned.length, "pool")}`),
      h("ul", { class: "names" }, ...rows),
      rest > 0 && h("p", {}, `and ${rest} more: search for ${this.id}.`),
    );
  }

  /** @param {import("./model.js").Worker} worker @param {number} owned */
  #facts(worker, owned) {
    const behind = this.fleet.behindSince.get(worker.id);
    return h(
      "div",
      {},
      h(
        "p",
        { class: "answer" },
        h("span", { class: `state ${worker.state}` }, worker.state),
        ` ${plural(owned, "pool")}, stand-by for ${plural(worker.standby, "group")}.`,
      ),
      worker.why && h("p", { class: "problem" }, worker.why),
      factList([
        ["Load", `${decimal(worker.load)} streams/s, ${worker.streams_open} open`],
        ["Weight", String(worker.weight)],
        ["Loop lag", `${worker.loop_lag_ms.toFixed(1)} ms`],
        ["Map", mapAge(worker, this.fleet.version, behind, this.now())],
        ["ext_proc", worker.ext_proc],
        ["Internal", worker.internal],
        ["HTTP", worker.http],
        ["Zone, node", [worker.zone, worker.node].filter(Boolean).join(", ")],
        ["Build", worker.build],
        ["Incarnation", worker.incarnation],
      ]),
    );
  }

  /** @param {import("./model.js").Worker|undefined} worker */
  #showActions(worker) {
    const { leading, leader, answeredBy } = this.standing();
    const key = JSON.stringify([worker?.state, leading, leader, hasToken()]);
    if (key === this.shown) return;
    this.shown = key;
    const what = h(
      "a",
      { href: `#plan=remove:${encodeURIComponent(this.id)}` },
      `What if ${this.id} goes?`,
    );
    this.actions.replaceChildren(
      h("p", {}, what),
      ...this.#commands(worker, leading, leader, answeredBy),
    );
  }

  /** @param {import("./model.js").Worker|undefined} worker @param {boolean} leading
   * @param {import("./model.js").Leader|null} leader @param {string} answeredBy */
  #commands(worker, leading, leader, answeredBy) {
    if (!worker || worker.state === "dead") return [];
    if (!leading) {
      if (!leader) return [h("p", {}, "Nobody leads now, so nobody can be told to drain it.")];
      const address = `http://${leader.http}/#worker=${encodeURIComponent(this.id)}`;
      return [
        h(
          "p",
          {},
          `Only the leader drains workers. This page is ${answeredBy}'s; ${leader.id} leads: `,
          h("a", { href: address, rel: "noreferrer" }, address),
          ". If your browser does not reach that address, forward a port to that coordinator.",
        ),
      ];
    }
    if (!hasToken()) {
      return [
        h(
          "button",
          { type: "button", onclick: () => this.given.askToken() },
          "Enter the fleet's token to drain it…",
        ),
      ];
    }
    const draining = worker.state === "draining";
    const button = h(
      "button",
      {
        type: "button",
        class: draining ? "" : "danger",
        onclick: () => (draining ? this.#do("undrain") : this.#confirm()),
      },
      draining ? `Let ${this.id} take pools again` : `Drain ${this.id}…`,
    );
    return [button];
  }

  /** Show what a drain would do, and ask. */
  async #confirm() {
    this.said.replaceChildren(h("p", { class: "loading" }, "asking what would move…"));
    try {
      const plan = await askPlan({ remove: this.id });
      const yes = h(
        "button",
        { type: "button", class: "danger", onclick: () => this.#do("drain") },
        `Yes, drain ${this.id}`,
      );
      const no = h("button", { type: "button", onclick: () => this.said.replaceChildren() }, "No");
      this.said.replaceChildren(
        h("p", {}, `${verdict(plan)} A drain hands them over one by one and loses no request.`),
        yes,
        " ",
        no,
      );
      yes.focus();
    } catch (error) {
      this.said.replaceChildren(failure(error));
    }
  }

  /** @param {"drain"|"undrain"} action */
  async #do(action) {
    try {
      await command(this.id, action);
      const done = action === "drain" ? "hands its pools away" : "may take pools again";
      this.said.replaceChildren(h("p", {}, `${this.id} ${done}.`));
    } catch (error) {
      this.said.replaceChildren(failure(error));
    }
  }

  close() {}
}
