// One pool: who owns it, why, since when, whether anything was lost, and its endpoints.

import { get, poolPath, Refused } from "./api.js";
import { bar, h, renew, table } from "./dom.js";
import {
  answer,
  ago,
  clock,
  lossOf,
  outcomeWords,
  PHASE_HELP,
  PHASE_WORDS,
  plural,
  reasonWords,
} from "./text.js";

/** @typedef {import("./dom.js").Child} Child */

/** @param {string} id */
export function workerLink(id) {
  return h("a", { href: `#worker=${encodeURIComponent(id)}` }, id);
}

/** @param {string[]} ids @returns {Child[]} */
function workerLinks(ids) {
  return ids.flatMap((id, at) => (at ? [", ", workerLink(id)] : [workerLink(id)]));
}

/** @param {[string, Child|Child[]][]} facts those without a value are left out */
export function factList(facts) {
  const shown = facts.filter(([, value]) => value && (!Array.isArray(value) || value.length));
  return h(
    "dl",
    {},
    ...shown.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, ...[value].flat())]),
  );
}

/** @param {unknown} error */
export function failure(error) {
  const said = error instanceof Refused ? error.message : "the coordinator cannot be reached";
  return h("p", { class: "problem" }, said);
}

/** @param {string} phase */
export function phaseBadge(phase) {
  return h(
    "span",
    { class: `phase ${phase}`, title: PHASE_HELP[phase] },
    PHASE_WORDS[phase] ?? phase,
  );
}

/** Workers in the ring's order that are named; the CLI's `explain` names all. */
const MOST_CONSIDERED = 5;

/** Why it is where it is: each worker in the ring's order, and what spoke for or against it.
 * @param {any} group @returns {Child} */
function consideredPart(group) {
  const considered = group.considered ?? [];
  if (!considered.length) return null;
  const rows = considered
    .slice(0, MOST_CONSIDERED)
    .map((/** @type {any} */ each) => [
      workerLink(each.worker),
      each.verdict.replaceAll("_", " "),
      each.why,
    ]);
  const rest = considered.length - rows.length;
  return h(
    "div",
    {},
    h("h3", {}, "Why there: the ring's order"),
    table(["Worker", "Is", "Because"], rows, "Workers in the ring's order"),
    rest > 0 && h("p", { class: "aside" }, `and ${plural(rest, "more worker")}`),
  );
}

/** @param {any} group @param {number} now */
function groupPart(group, now) {
  const route = group.route;
  const service = group.service;
  return h(
    "section",
    { class: "group" },
    h("p", { class: "answer" }, answer(group, now), " ", phaseBadge(group.phase)),
    group.note && h("p", { class: "problem" }, group.note),
    ...group.unwell.map((/** @type {any} */ worker) =>
      h(
        "p",
        { class: "problem" },
        `${worker.id} is ${worker.state}: ${worker.why || worker.signal}`,
      ),
    ),
    factList([
      ["Owner", group.owners.length ? workerLinks(group.owners) : "nobody"],
      ["Stand-by", group.standby ? workerLink(group.standby) : "nobody"],
      ["Since", group.since && `${clock(group.since, now)} (${ago(group.since, now)})`],
      ["Why", reasonWords(group.reason)],
      ["Moving to", group.moving_to && workerLink(group.moving_to)],
      ["Letting go", workerLinks(group.draining)],
      ["Candidates", !group.considered?.length && workerLinks(group.candidates)],
      [
        "Pinned",
        group.pin && `${group.pin.text}: ${group.pin.workers.join(", ") || "no worker meets it"}`,
      ],
      [
        "Service",
        service && `${service.name}:${service.port}, ${service.state.replaceAll("_", " ")}`,
      ],
      ["", service?.note],
      ["", service?.error && h("span", { class: "problem" }, service.error)],
      ["Route", route && (route.addresses.join(", ") || "leads nowhere")],
      [
        "Written",
        route && [route.version && `as ${route.version} `, route.where && `in ${route.where}`],
      ],
    ]),
    consideredPart(group),
  );
}

/** @param {any} document @param {number} now */
function explanation(document, now) {
  const claim = document.claim;
  return [
    claim.state !== "claimed" &&
      h("p", { class: "problem" }, `${claim.state.replaceAll("_", " ")}: ${claim.why}`),
    ...document.refusals.map((/** @type {any} */ each) =>
      h("p", { class: "problem" }, `${each.reason}: ${each.message}`),
    ),
    ...document.problems.map((/** @type {string} */ each) => h("p", { class: "problem" }, each)),
    ...document.groups.map((/** @type {any} */ group) => groupPart(group, now)),
    !document.groups.length && h("p", {}, "No Service leads to it."),
    factList([
      ["Claim", `${claim.state.replaceAll("_", " ")}: ${claim.why}`],
      [
        "Picks by",
        document.picking && [
          document.picking.name,
          document.picking.problem && `; ${document.picking.problem}`,
        ],
      ],
    ]),
    document.unknown_here.length > 0 &&
      h(
        "p",
        { class: "aside" },
        `${document.answered_by} does not lead: when its route was written, and whether its Service could be, the leader alone knows.`,
      ),
  ];
}

/** @param {{source: string|null, target: string|null}} move */
function fromTo({ source, target }) {
  return [
    h("span", { class: "whole" }, `${source ?? "nobody"} →`),
    " ",
    h("span", { class: "whole" }, target ?? "nobody"),
  ];
}

/** @param {any} document `GET /api/v1/history` @param {number} now @param {boolean} withGroup */
export function movesTable(document, now, withGroup) {
  const moves = document.moves;
  const rows = [
    ...document.under_way.map((/** @type {any} */ move) => [
      ...(withGroup ? [move.group] : []),
      "now",
      fromTo(move),
      reasonWords(move.reason),
      phaseBadge("moving"),
    ]),
    ...moves.map((/** @type {any} */ move) => {
      const loss = lossOf(move);
      return [
        ...(withGroup ? [move.group] : []),
        h("span", { title: move.finished }, clock(move.finished, now)),
        fromTo(move),
        h("span", { title: move.why || null }, move.why || reasonWords(move.reason)),
        [
          `${outcomeWords(move.outcome)}, `,
          h("span", { class: loss.lost ? "lost" : "", title: loss.more }, loss.word),
        ],
      ];
    }),
  ];
  if (!rows.length) return h("p", {}, "No move is on record.");
  const columns = [...(withGroup ? ["Group"] : []), "Ended", "From → to", "Why", "Outcome"];
  return table(columns, rows, "Moves");
}

/** @param {any} document `GET …/endpoints` */
function endpointsPart(document) {
  const rows = document.endpoints.map((/** @type {any} */ each) => [
    h(
      "span",
      { title: each.address },
      each.pod,
      h("br"),
      h("small", {}, each.address || "no address yet"),
    ),
    each.ready ? "ready" : h("span", { class: "lost" }, "not ready"),
    figure(each.running),
    figure(each.waiting),
    each.kv_usage === null
      ? "?"
      : h(
          "span",
          { class: "kv" },
          bar(each.kv_usage, "owned"),
          `${Math.round(each.kv_usage * 100)} %`,
        ),
    ageOf(each),
  ]);
  const count =
    `${document.ready} of ${plural(document.total, "endpoint")} ready, by ${document.worker}'s word; ` +
    `${document.requests_per_second.toFixed(1)} requests/s`;
  return [
    h("p", {}, count),
    rows.length
      ? table(["Pod", "State", "Running", "Waiting", "KV", "Age"], rows, "Endpoints")
      : h("p", { class: "problem" }, "It has no endpoint: requests are answered 503."),
    document.total > rows.length &&
      h("p", {}, `${document.total - rows.length} more are not listed.`),
  ];
}

/** @param {number|null} value */
function figure(value) {
  return value === null ? "?" : String(Math.round(value));
}

/** @param {any} endpoint */
function ageOf(endpoint) {
  if (endpoint.refused) return h("span", { class: "lost" }, "nobody listens");
  if (endpoint.failed_scrapes > 2)
    return h("span", { class: "lost" }, `${endpoint.failed_scrapes} failed`);
  return endpoint.age_seconds === null ? "never read" : `${endpoint.age_seconds.toFixed(1)} s`;
}

export class PoolPanel {
  /** @param {string} namespace @param {string} name @param {() => number} now */
  constructor(namespace, name, now) {
    this.namespace = namespace;
    this.name = name;
    this.now = now;
    this.title = `${namespace}/${name}`;
    this.facts = h("div", { class: "loading" }, "asking…");
    this.moves = h("div", { class: "loading" }, "asking…");
    this.endpoints = h("div", { class: "loading" }, "asking…");
    this.element = h(
      "div",
      {},
      this.facts,
      h("h3", {}, "Moves"),
      this.moves,
      h("h3", {}, "Endpoints"),
      this.endpoints,
    );
    this.run = new AbortController();
  }

  /** Read all of it again. */
  async refresh() {
    const path = poolPath(this.namespace, this.name);
    const pool = encodeURIComponent(this.title);
    await Promise.all([
      this.#fill(this.facts, path, (document) => explanation(document, this.now())),
      this.#fill(this.moves, `api/v1/history?pool=${pool}&limit=50`, (document) => [
        movesTable(document, this.now(), false),
      ]),
      this.tick(),
    ]);
  }

  /** Read what always changes. */
  async tick() {
    const path = `${poolPath(this.namespace, this.name)}/endpoints`;
    await this.#fill(this.endpoints, path, endpointsPart);
  }

  close() {
    this.run.abort();
  }

  /** @param {HTMLElement} where @param {string} path @param {(document: any) => Child[]} show */
  async #fill(where, path, show) {
    try {
      const document = await get(path, this.run.signal);
      renew(where, ...show(document));
    } catch (error) {
      if (this.run.signal.aborted) return;
      renew(where, failure(error));
    }
    where.classList.remove("loading");
  }
}

export class HistoryPanel {
  /** @param {() => number} now */
  constructor(now) {
    this.now = now;
    this.title = "History: the latest moves";
    this.element = h("div", { class: "loading tall" }, "asking…");
    this.run = new AbortController();
  }

  async refresh() {
    try {
      const document = await get("api/v1/history?limit=200", this.run.signal);
      renew(this.element, movesTable(document, this.now(), true));
    } catch (error) {
      if (!this.run.signal.aborted) renew(this.element, failure(error));
    }
    this.element.classList.remove("loading");
  }

  close() {
    this.run.abort();
  }
}
