// What the page says, in words. No DOM.

/** @typedef {import("./model.js").Pool} Pool */
/** @typedef {import("./model.js").Worker} Worker */

/** Phases as people read them. @type {Record<string, string>} */
export const PHASE_WORDS = {
  unowned: "without owner",
  quarantined: "quarantined",
  opening: "opening",
  moving: "moving",
  owned: "owned",
};

/** @type {Record<string, string>} */
export const PHASE_HELP = {
  unowned: "Nobody owns it: requests to it fail, or are served as its failure mode says.",
  quarantined: "Workers died soon after they were given it, so it is kept where it does no harm.",
  opening: "A new owner was named and has not confirmed yet.",
  moving: "A planned move: the owner serves until the new one is ready.",
  owned: "Its owner serves it.",
};

/** @type {Record<string, string>} */
const REASON_WORDS = {
  initial: "first placement",
  owner_dead: "its owner died",
  drain: "its owner was drained",
  join: "a worker joined",
  balance: "to balance load",
  rollout: "roll-out to newer workers",
  pinned: "it is pinned there",
  kept: "kept as it was found",
};

/** @param {string|null|undefined} reason */
export function reasonWords(reason) {
  return reason ? (REASON_WORDS[reason] ?? reason.replaceAll("_", " ")) : "no reason given";
}

/** @param {number} count @param {string} one @param {string} [more] */
export function plural(count, one, more) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : (more ?? `${one}s`)}`;
}

/** A span of time, in its largest unit. @param {number} milliseconds */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days`;
}

/** @param {string|null} timestamp RFC 3339 @param {number} now ms @returns {string} */
export function ago(timestamp, now) {
  const at = Date.parse(timestamp ?? "");
  return Number.isNaN(at) ? "unknown" : span(now - at);
}

/** Time of day here, with the date if it is another day. @param {string} timestamp
 * @param {number} now ms */
export function clock(timestamp, now) {
  const at = new Date(timestamp);
  if (Number.isNaN(at.getTime())) return "unknown";
  const time = at.toLocaleTimeString("en-GB");
  const sameDay = at.toDateString() === new Date(now).toDateString();
  return sameDay ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** One line for the pool. @param {Pool} pool @param {number} now ms */
export function poolLine(pool, now) {
  const name = `${pool.namespace}/${pool.name}`;
  const owner = pool.owners.length ? pool.owners.join(", ") : "no owner";
  const to = pool.moving_to ? `, moving to ${pool.moving_to}` : "";
  return (
    `${name}: ${owner}${to}, ${PHASE_WORDS[pool.phase] ?? pool.phase} for ` +
    `${ago(pool.since, now)} (${reasonWords(pool.reason)})`
  );
}

/** Who owns it, why, since when: the answer in a sentence. @param {any} group of the explanation
 * @param {number} now ms */
export function answer(group, now) {
  const since = group.since ? ` for ${ago(group.since, now)}` : "";
  if (!group.owners.length) return `Nobody has owned it${since}: ${reasonWords(group.reason)}.`;
  const standby = group.standby ? ` ${group.standby} stands by.` : " Nobody stands by.";
  const moving = group.moving_to ? ` It is moving to ${group.moving_to}.` : "";
  return `${group.owners.join(", ")} has owned it${since}: ${reasonWords(group.reason)}.${moving}${standby}`;
}

/**
 * Whether a move lost anything.
 * @param {{source: string|null, reason: string, outcome: string}} move
 * @returns {{word: string, lost: boolean, more: string}}
 */
export function lossOf(move) {
  if (move.source === null)
    return { word: "nothing lost", lost: false, more: "It had no owner before." };
  if (move.reason === "owner_dead") {
    return {
      word: "lost what was in flight",
      lost: true,
      more:
        `${move.source} died: requests that it was answering at that moment were cut, unless ` +
        "their streams were detached. New ones went to the new owner.",
    };
  }
  /** @type {Record<string, string>} */
  const outcomes = {
    done: "The new owner was ready before the route changed.",
    cancelled: "The move was called off; the owner kept it.",
    deadline: "The new owner was not ready in time; somebody served it all the while.",
    gainer_dead: "The new owner died before it took over; the owner kept it.",
  };
  return { word: "nothing lost", lost: false, more: outcomes[move.outcome] ?? move.outcome };
}

/** @param {string} outcome */
export function outcomeWords(outcome) {
  return outcome.replaceAll("_", " ");
}

/** How new a worker's map is. @param {Worker} worker
 * @param {{epoch: number, version: number}|null} version @param {number|undefined} behindSince ms
 * @param {number} now ms */
export function mapAge(worker, version, behindSince, now) {
  const own = `${worker.epoch}.${worker.version}`;
  if (version === null || behindSince === undefined) return `map ${own}`;
  return `map ${own}, behind for ${span(now - behindSince)}`;
}

/** What owners have changed, for those who listen. @param {import("./model.js").OwnerChange[]} moved */
export function announce(moved) {
  if (moved.length > 3) return `${moved.length} pools have changed owner.`;
  return moved
    .map(({ pool, from, to }) => {
      const name = `${pool.namespace}/${pool.name}`;
      const why = reasonWords(pool.reason);
      if (!to) return `${name} has lost its owner ${from}: ${why}.`;
      return from
        ? `${name} went from ${from} to ${to}: ${why}.`
        : `${to} now owns ${name}: ${why}.`;
    })
    .join(" ");
}

/** @param {number} value */
export function decimal(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}
