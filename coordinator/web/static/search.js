// What a search and the phase filter leave. No DOM.

import { byName, ownerOf } from "./model.js";

/**
 * @typedef {import("./model.js").Pool} Pool
 * @typedef {{terms: string[], phases: Set<string>}} Filter
 */

/** @param {string} text @param {Iterable<string>} phases @returns {Filter} */
export function filterOf(text, phases) {
  return { terms: text.toLowerCase().split(/\s+/).filter(Boolean), phases: new Set(phases) };
}

/** @param {Filter} filter */
export function isOpen(filter) {
  return filter.terms.length === 0 && filter.phases.size === 0;
}

/** Every term must be in the pool's name, its route group, or the name of a worker that has to do
 * with it. @param {Filter} filter @param {Pool} pool */
export function matches(filter, pool) {
  if (filter.phases.size && !filter.phases.has(pool.phase)) return false;
  if (!filter.terms.length) return true;
  const workers = [...pool.owners, pool.moving_to ?? "", pool.standby ?? ""].join(" ");
  const text = `${pool.namespace}/${pool.name} ${pool.group} ${workers}`.toLowerCase();
  return filter.terms.every((term) => text.includes(term));
}

/**
 * The best of the pools that a search finds: the very name, else what begins with it, else what has
 * it in its name; of equals the first by name.
 * @param {Iterable<Pool>} pools @param {string} text @param {number} most
 * @returns {Pool[]}
 */
export function best(pools, text, most) {
  const wanted = text.trim().toLowerCase();
  /** @type {{rank: number, pool: Pool}[]} */
  const found = [];
  for (const pool of pools) found.push({ rank: rankOf(pool, wanted), pool });
  found.sort(
    (a, b) =>
      a.rank - b.rank ||
      byName(a.pool.namespace, b.pool.namespace) ||
      byName(a.pool.name, b.pool.name),
  );
  return found.slice(0, most).map((each) => each.pool);
}

/** @param {Pool} pool @param {string} wanted */
function rankOf(pool, wanted) {
  const name = pool.name.toLowerCase();
  const full = `${pool.namespace.toLowerCase()}/${name}`;
  if (full === wanted || name === wanted) return 0;
  if (full.startsWith(wanted) || name.startsWith(wanted)) return 1;
  if (full.includes(wanted)) return 2;
  return ownerOf(pool).toLowerCase().includes(wanted) ? 3 : 4;
}
