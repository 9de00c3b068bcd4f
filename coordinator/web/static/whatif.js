// What would move if a worker went, or if there were another number of them: before and after, as a
// picture and in numbers. Nothing is done by it.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { byName } from "./model.js";
import { failure, workerLink } from "./poolpanel.js";
import { decimal, plural, reasonWords } from "./text.js";

/** @typedef {{remove?: string, workers?: string}} Question */

/** `remove:worker-1` or `workers:5`; else nothing is asked yet. @param {string} text
 * @returns {Question|null} */
export function questionOf(text) {
  const [kind, ...rest] = text.split(":");
  const value = rest.join(":");
  if (kind === "remove" && value) return { remove: value };
  return kind === "workers" && /^\d{1,4}$/.test(value) ? { workers: value } : null;
}

/** The sentence of the answer. @param {any} plan */
export function verdict(plan) {
  const share = plan.groups ? (100 * plan.moved) / plan.groups : 0;
  const what = plan.question.remove
    ? `Without ${plan.question.remove}`
    : `With ${plural(plan.question.workers, "worker")}`;
  if (!plan.workers.some((/** @type {any} */ each) => each.fate !== "leaves"))
    return `${what} nobody is left: every pool would lose its owner.`;
  return `${what}, ${plan.moved.toLocaleString("en")} of ${plural(plan.groups, "route group")} would move (${share.toFixed(1)} %).`;
}

/** @param {any} plan */
function balanceLine(plan) {
  const figure = (/** @type {number} */ value) => (value ? `${value.toFixed(2)} x` : "no");
  return `The fullest worker carries ${figure(plan.balance_before)} the mean now, ${figure(plan.balance_after)} afterwards.`;
}

/** Bars of before (hollow) and after (filled), a row a worker. @param {any} plan */
function picture(plan) {
  const workers = [...plan.workers].sort((a, b) => byName(a.id, b.id));
  const most = Math.max(1, ...workers.flatMap((each) => [each.owned_before, each.owned_after]));
  const rows = workers.map((each) => {
    const before = h("span", { class: "before" });
    const after = h("span", { class: `after ${each.fate}` });
    before.style.width = `${(100 * each.owned_before) / most}%`;
    after.style.width = `${(100 * each.owned_after) / most}%`;
    const change = each.owned_after - each.owned_before;
    const name = each.fate === "joins" ? each.id : workerLink(each.id);
    return [
      h("span", {}, name, each.fate === "stays" ? null : h("em", {}, ` ${each.fate}`)),
      h("span", { class: "both", "aria-hidden": "true" }, before, after),
      `${each.owned_before} → ${each.owned_after}`,
      change ? `${change > 0 ? "+" : "−"}${Math.abs(change)}` : "=",
      `${decimal(each.load_before)} → ${decimal(each.load_after)}`,
    ];
  });
  return table(
    ["Worker", "Before and after", "Groups", "Change", "Load"],
    rows,
    "Workers before and after",
  );
}

/** @param {any} plan */
function movesPart(plan) {
  const most = 12;
  const rows = plan.moves
    .slice(0, most)
    .map((/** @type {any} */ each) => [
      each.source ?? "nobody",
      each.target ?? "nobody",
      reasonWords(each.reason),
      String(each.groups),
    ]);
  if (!rows.length) return null;
  const rest = plan.moves.length - rows.length;
  return h(
    "div",
    {},
    h("h3", {}, "Who gives to whom"),
    table(["From", "To", "Why", "Groups"], rows, "Moves"),
    rest > 0 && h("p", {}, `and ${plural(rest, "more pair")}`),
  );
}

/** @param {any} plan */
export function planPart(plan) {
  return h(
    "div",
    { class: "plan" },
    h("p", { class: "answer" }, verdict(plan)),
    h("p", {}, balanceLine(plan)),
    h(
      "p",
      { class: "aside" },
      "Nothing has been done. A planned move loses no request; where a worker dies instead, requests that it is answering are cut.",
    ),
    !plan.loads_known &&
      h(
        "p",
        { class: "aside" },
        `${plan.answered_by} knows no loads, only a leader does: all groups count alike.`,
      ),
    h(
      "p",
      { class: "legend", "aria-hidden": "true" },
      h("span", { class: "key before" }),
      " before ",
      h("span", { class: "key after" }),
      " after",
    ),
    picture(plan),
    movesPart(plan),
  );
}

export class PlanPanel {
  /** @param {string} asked as in the address @param {() => string[]} workers that live */
  constructor(asked, workers) {
    this.title = "What if…";
    this.question = questionOf(asked);
    this.run = new AbortController();
    this.result = h("div", { "aria-live": "polite" });
    this.workers = workers;
    const select = (this.select = h("select", { id: "plan-remove" }));
    const number = (this.number = h("input", {
      id: "plan-workers",
      type: "number",
      min: 1,
      max: 1000,
      value: this.question?.workers ?? 1,
    }));
    this.workersChanged();
    const ask = (/** @type {string} */ text) => () => (location.hash = `#plan=${text}`);
    this.element = h(
      "div",
      {},
      h(
        "div",
        { class: "ask" },
        h("label", { for: "plan-remove" }, "…worker "),
        select,
        " goes? ",
        h(
          "button",
          { type: "button", onclick: () => ask(`remove:${encodeURIComponent(select.value)}`)() },
          "Show",
        ),
      ),
      h(
        "div",
        { class: "ask" },
        h("label", { for: "plan-workers" }, "…there are "),
        number,
        " workers? ",
        h(
          "button",
          { type: "button", onclick: () => ask(`workers:${Number(number.value)}`)() },
          "Show",
        ),
      ),
      this.result,
    );
  }

  /** Offer the workers that there are. */
  workersChanged() {
    const ids = this.workers();
    const offered = [...this.select.options].map((option) => option.value);
    if (offered.join("\n") === ids.join("\n")) return;
    const chosen = this.select.value || this.question?.remove;
    this.select.replaceChildren(
      ...ids.map((id) => h("option", { value: id, selected: id === chosen }, id)),
    );
    if (!offered.length && !this.question?.workers)
      this.number.value = String(Math.max(1, ids.length));
  }

  async refresh() {
    if (!this.question) return;
    if (!this.result.childElementCount)
      this.result.replaceChildren(h("p", { class: "loading" }, "asking…"));
    try {
      this.result.replaceChildren(planPart(await askPlan(this.question, this.run.signal)));
    } catch (error) {
      if (!this.run.signal.aborted) this.result.replaceChildren(failure(error));
    }
  }

  close() {
    this.run.abort();
  }
}

/** @param {Question} question @param {AbortSignal} [signal] */
export function askPlan(question, signal) {
  const query =
    question.remove !== undefined
      ? `remove=${encodeURIComponent(question.remove)}`
      : `workers=${question.workers}`;
  return get(`api/v1/plan?${query}`, signal);
}
