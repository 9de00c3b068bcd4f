// What is wrong, in big letters; who leads; what moves; and whether the page is live.

import { drawFigure, prepare } from "./cells.js";
import { byId, h, renew, say } from "./dom.js";
import { keyOf, PHASES } from "./model.js";
import { ago, PHASE_HELP, PHASE_WORDS, plural, reasonWords, span } from "./text.js";

/** @typedef {import("./model.js").Fleet} Fleet */
/** @typedef {import("./model.js").Pool} Pool */
/** @typedef {import("./live.js").Link} Link */
/** @typedef {{leading: boolean, leader: import("./model.js").Leader|null, answeredBy: string,
 *   notReady: string|null}} Standing */

/** Lines about moves under way. */
const MOST_MOVES = 4;
const MOST_ALERTS = 14;

/** @param {Fleet} fleet @param {Standing} standing @param {number} now */
export function showStanding(fleet, standing, now) {
  say(byId("fleet"), fleet.name);
  const alarm = fleet.counts.unowned ? `(${fleet.counts.unowned} without owner) ` : "";
  document.title = `${alarm}EPP Fleet ${fleet.name}`.trim();
  const leader = standing.leader ? `${standing.leader.id} leads` : "nobody leads";
  const version = fleet.version;
  const map = version
    ? `map ${version.epoch}.${version.version}, published ${ago(fleet.publishedAt, now)} ago`
    : "no shard map yet";
  const role = standing.leading ? "the leader" : "a follower";
  const by = standing.answeredBy ? `, shown by ${standing.answeredBy}, ${role}` : "";
  say(byId("standing"), `${leader}, ${map}${by}`);
}

/** @param {Link} link @param {string} why @param {number} age ms since the last word
 * @param {boolean} known whether there is anything to see */
export function showLink(link, why, age, known) {
  const pill = byId("link");
  const words = {
    starting: "connecting",
    live: "live",
    polling: "polling",
    lost: "lost",
    locked: "token needed",
  };
  say(pill, words[link]);
  pill.className = `pill ${link}`;
  pill.title = why;
  const banner = byId("banner");
  banner.hidden = link !== "lost" && link !== "polling";
  document.documentElement.classList.toggle("stale", link === "lost" || link === "locked");
  if (link === "lost") {
    const old = known ? ` What you see is ${span(age)} old.` : "";
    bannerText(banner, `The coordinator does not answer: ${why}.`, old);
  } else if (link === "polling") {
    bannerText(banner, `No live stream: ${why}. The page asks every few seconds instead.`, "");
  }
}

/** What counts up is not spoken anew each second. @param {HTMLElement} banner @param {string} text
 * @param {string} age */
function bannerText(banner, text, age) {
  const [first, second] =
    banner.children.length === 2
      ? banner.children
      : [h("span", {}), h("span", { "aria-live": "off" })];
  if (banner.children.length !== 2) banner.replaceChildren(first, second);
  say(first, text);
  say(second, age);
}

/** @param {Fleet} fleet @param {Standing} standing @param {number} now
 * @param {(phase: string) => void} filter */
export function showAlerts(fleet, standing, now, filter) {
  const counts = fleet.counts;
  const parts = [];
  const chip = (
    /** @type {string} */ kind,
    /** @type {string} */ text,
    /** @type {string} */ phase,
  ) => h("button", { type: "button", class: `alert ${kind}`, onclick: () => filter(phase) }, text);
  if (counts.unowned)
    parts.push(chip("bad", `${plural(counts.unowned, "pool")} without owner`, "unowned"));
  if (counts.quarantined)
    parts.push(chip("bad", `${plural(counts.quarantined, "pool")} in quarantine`, "quarantined"));
  if (!standing.leader && standing.answeredBy)
    parts.push(h("p", { class: "alert bad" }, "Nobody leads: nothing moves until somebody does"));
  if (standing.notReady)
    parts.push(
      h("p", { class: "alert bad" }, `${standing.answeredBy} is not ready: ${standing.notReady}`),
    );
  for (const worker of fleet.workers.values()) {
    if (worker.state === "dead" || worker.state === "suspect") {
      const link = h("a", { href: `#worker=${encodeURIComponent(worker.id)}` }, worker.id);
      parts.push(
        h(
          "p",
          { class: "alert bad" },
          link,
          ` is ${worker.state}${worker.why ? `: ${worker.why}` : ""}`,
        ),
      );
    } else if (worker.state === "draining") {
      parts.push(h("p", { class: "alert note" }, `${worker.id} is draining`));
    }
  }
  if (fleet.withoutStandby)
    parts.push(
      h(
        "p",
        { class: "alert note" },
        `${plural(fleet.withoutStandby, "pool has", "pools have")} no stand-by`,
      ),
    );
  if (counts.opening)
    parts.push(chip("note", `${plural(counts.opening, "pool")} opening`, "opening"));
  parts.push(...movesPart(fleet, now));
  if (!parts.length && fleet.version) {
    parts.push(
      h(
        "p",
        { class: "alert good" },
        fleet.names.size
          ? `All ${plural(fleet.names.size, "pool")} have an owner and a stand-by`
          : "There are no pools",
      ),
    );
  }
  const rest = parts.length - MOST_ALERTS;
  renew(byId("alerts"), ...parts.slice(0, MOST_ALERTS), rest > 0 ? `and ${rest} more` : null);
}

/** Moves under way: one by its name, many between the same workers as one. @param {Fleet} fleet
 * @param {number} now */
function movesPart(fleet, now) {
  /** @type {Map<string, Pool[]>} */
  const groups = new Map();
  for (const pool of fleet.moving()) {
    const key = JSON.stringify([pool.owners[0], pool.moving_to, pool.reason]);
    groups.set(key, [...(groups.get(key) ?? []), pool]);
  }
  const parts = [...groups.values()].map((pools) => moveLine(pools, fleet, now));
  const rest = parts.length - MOST_MOVES;
  return rest > 0
    ? [
        ...parts.slice(0, MOST_MOVES),
        h("p", { class: "alert note" }, `and ${plural(rest, "more move")}`),
      ]
    : parts;
}

/** @param {Pool[]} pools that move alike @param {Fleet} fleet @param {number} now */
function moveLine(pools, fleet, now) {
  const [pool] = pools;
  const since = Math.min(...pools.map((each) => fleet.movingSince.get(keyOf(each)) ?? now));
  const path = `${encodeURIComponent(pool.namespace)}/${encodeURIComponent(pool.name)}`;
  const one = h("a", { href: `#pool=${path}` }, `${pool.namespace}/${pool.name}`);
  const what =
    pools.length === 1 ? [one, " is moving"] : [`${plural(pools.length, "pool")} moving`];
  return h(
    "p",
    { class: "alert note moves" },
    ...what,
    ` ${pool.owners[0] ?? "nobody"} → ${pool.moving_to}: ${reasonWords(pool.reason)}, for ${span(now - since)}`,
  );
}

/** The legend of the phases, each a switch of the filter. @param {Fleet} fleet
 * @param {Set<string>} chosen @param {import("./cells.js").Colours} colours
 * @param {(phase: string) => void} toggle */
export function showPhases(fleet, chosen, colours, toggle) {
  const group = byId("phases");
  if (!group.children.length) {
    group.append(
      ...PHASES.map((phase) => {
        const canvas = h("canvas", { "aria-hidden": "true" });
        return h(
          "button",
          {
            type: "button",
            "data-phase": phase,
            title: PHASE_HELP[phase],
            onclick: () => toggle(phase),
          },
          canvas,
          h("span", {}, PHASE_WORDS[phase]),
          h("span", { class: "count" }),
        );
      }),
    );
  }
  for (const button of /** @type {HTMLCollectionOf<HTMLElement>} */ (group.children)) {
    const phase = button.dataset.phase ?? "";
    button.setAttribute("aria-pressed", String(chosen.has(phase)));
    say(
      /** @type {Element} */ (button.lastElementChild),
      (fleet.counts[phase] ?? 0).toLocaleString("en"),
    );
    if (button.dataset.ink === colours.ink) continue;
    button.dataset.ink = colours.ink;
    const at = prepare(/** @type {HTMLCanvasElement} */ (button.firstElementChild), 14, 14);
    drawFigure(at, 0, 0, 14, 14, phase, colours);
  }
}
