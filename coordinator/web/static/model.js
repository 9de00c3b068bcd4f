// What the page knows of the fleet: pools by owner, workers, who leads. No DOM, no network.

/**
 * @typedef {{namespace: string, name: string, group: string, owners: string[],
 *   standby: string|null, phase: string, since: string, reason: string,
 *   moving_to: string|null, draining: string[]}} Pool
 * @typedef {{id: string, incarnation: string, state: string, signal: string|null, ext_proc: string,
 *   health: string, internal: string, http: string, owned: number, standby: number, load: number,
 *   epoch: number, version: number, loop_lag_ms: number, why: string, weight: number,
 *   streams_open: number, zone: string, node: string, build: string}} Worker
 * @typedef {{id: string, http: string}} Leader
 * @typedef {{pool: Pool, from: string, to: string}} OwnerChange
 * @typedef {{epoch: number, version: number}} Version
 */

/** Phases, the most urgent first. */
export const PHASES = ["unowned", "quarantined", "opening", "moving", "owned"];

/** The row of pools that nobody owns. */
export const NOBODY = "";

/** @param {{namespace: string, name: string, group: string}} pool */
export function keyOf(pool) {
  return `${pool.namespace}/${pool.name}@${pool.group}`;
}

/** @param {Pool} pool */
export function ownerOf(pool) {
  return pool.owners.length ? pool.owners[0] : NOBODY;
}

const numbered = new Intl.Collator("en", { numeric: true });

/** Names as people order them: worker-2 before worker-10. */
export const byName = (/** @type {string} */ a, /** @type {string} */ b) => numbered.compare(a, b);

/** @param {Pool} a @param {Pool} b */
function inOrder(a, b) {
  if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return a.group < b.group ? -1 : Number(a.group > b.group);
}

/** Where a pool is, or belongs, in an ordered list. @param {Pool[]} pools @param {Pool} pool */
function placeIn(pools, pool) {
  let low = 0;
  let high = pools.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (inOrder(pools[middle], pool) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Whether what a worker holds of a pool, or has to know of it, is the same. @param {Pool} a
 * @param {Pool} b */
function sameHolds(a, b) {
  return (
    a.standby === b.standby &&
    a.moving_to === b.moving_to &&
    a.owners.join() === b.owners.join() &&
    a.draining.join() === b.draining.join()
  );
}

/** @param {Pool} pool every worker that has to do with it */
function holders(pool) {
  const more = [pool.standby, pool.moving_to].filter((id) => id !== null);
  return /** @type {string[]} */ ([...pool.owners, ...pool.draining, ...more]);
}

/** @param {Version} a @param {Version} b */
export function compareVersions(a, b) {
  return a.epoch - b.epoch || a.version - b.version;
}

export class Fleet {
  constructor() {
    this.name = "";
    /** @type {Version|null} */
    this.version = null;
    this.publishedAt = "";
    /** @type {Leader|null} */
    this.leader = null;
    /** @type {Map<string, Pool>} */
    this.pools = new Map();
    /** @type {Map<string, number>} in how many route groups each pool is */
    this.names = new Map();
    /** @type {Map<string, Pool[]>} each list ordered by namespace and name */
    this.byOwner = new Map();
    /** @type {Map<string, Worker>} */
    this.workers = new Map();
    /** @type {Record<string, number>} */
    this.counts = {};
    this.withoutStandby = 0;
    /** @type {Map<string, number>} since when (ms) a pool was seen moving here */
    this.movingSince = new Map();
    /** @type {Map<string, Version>} the last map that concerned a worker, of those seen here: a
     * worker is told of no other */
    this.concerned = new Map();
    /** @type {Map<string, number>} since when (ms) a worker was seen not to know such a map */
    this.behindSince = new Map();
  }

  /**
   * Take a whole map.
   * @param {any} map `GET /api/v1/map`
   * @param {number} now ms
   */
  readMap(map, now) {
    const moving = this.movingSince;
    this.pools = new Map();
    this.names = new Map();
    this.byOwner = new Map();
    this.movingSince = new Map();
    this.counts = Object.fromEntries(PHASES.map((phase) => [phase, 0]));
    this.withoutStandby = 0;
    for (const pool of map.pools) this.#add(pool, now, false);
    for (const [key, since] of moving) {
      if (this.movingSince.has(key)) this.movingSince.set(key, since);
    }
    for (const pools of this.byOwner.values()) pools.sort(inOrder);
    this.#head(map, now);
  }

  /**
   * Take changes; they must begin where this map is.
   * @param {any} changes event `map`
   * @param {number} now ms
   * @returns {{touched: Set<string>, moved: OwnerChange[]}|null} null = read the whole map.
   */
  readChanges(changes, now) {
    const from = { epoch: changes.from_epoch, version: changes.from_version };
    if (this.version === null) return null;
    if (compareVersions(changes, this.version) <= 0) return { touched: new Set(), moved: [] };
    if (compareVersions(from, this.version) !== 0) return null;
    /** @type {Set<string>} */
    const touched = new Set();
    /** @type {OwnerChange[]} */
    const moved = [];
    for (const gone of changes.gone) {
      const pool = this.pools.get(keyOf(gone));
      if (!pool) continue;
      this.#concern(holders(pool), changes);
      touched.add(this.#drop(pool));
    }
    for (const pool of changes.changed) {
      const old = this.pools.get(keyOf(pool));
      const since = this.movingSince.get(keyOf(pool));
      if (!old || !sameHolds(old, pool)) {
        this.#concern([...(old ? holders(old) : []), ...holders(pool)], changes);
      }
      if (old) touched.add(this.#drop(old));
      touched.add(this.#add(pool, since ?? now, true));
      if (old && ownerOf(old) !== ownerOf(pool)) {
        moved.push({ pool, from: ownerOf(old), to: ownerOf(pool) });
      }
    }
    this.#head(changes, now);
    return { touched, moved };
  }

  /** @param {any} change event `workers`, or `GET /api/v1/workers` @param {number} now ms */
  readWorkers(change, now) {
    if (change.whole) this.workers = new Map();
    for (const worker of change.workers) this.workers.set(worker.id, worker);
    for (const id of change.gone ?? []) this.workers.delete(id);
    this.#lookBehind(now);
  }

  /** Ids of the rows: nobody first (if there is need), then workers by name. */
  rows() {
    const ids = new Set([...this.workers.keys(), ...this.byOwner.keys()]);
    ids.delete(NOBODY);
    const rows = [...ids].sort(byName);
    return this.byOwner.has(NOBODY) ? [NOBODY, ...rows] : rows;
  }

  /** @param {string} namespace @param {string} name @returns {Pool[]} one for each route group */
  named(namespace, name) {
    const pools = [...this.pools.values()];
    return pools.filter((pool) => pool.namespace === namespace && pool.name === name);
  }

  /** @returns {Pool[]} */
  moving() {
    const pools = [...this.movingSince.keys()].map((key) => this.pools.get(key));
    return /** @type {Pool[]} */ (pools.filter((pool) => pool !== undefined));
  }

  /** @param {any} head @param {number} now */
  #head(head, now) {
    if (head.fleet) this.name = head.fleet;
    this.version = { epoch: head.epoch, version: head.version };
    this.publishedAt = head.published_at;
    this.leader = head.leader;
    this.#lookBehind(now);
  }

  /** @param {string[]} ids @param {Version} version */
  #concern(ids, { epoch, version }) {
    for (const id of ids) this.concerned.set(id, { epoch, version });
  }

  /** @param {number} now */
  #lookBehind(now) {
    const behind = new Map();
    for (const worker of this.workers.values()) {
      const wanted = this.concerned.get(worker.id) ?? {
        epoch: this.version?.epoch ?? 0,
        version: 0,
      };
      if (worker.state !== "dead" && compareVersions(worker, wanted) < 0) {
        behind.set(worker.id, this.behindSince.get(worker.id) ?? now);
      }
    }
    this.behindSince = behind;
  }

  /** @param {Pool} pool @param {number} since @param {boolean} ordered @returns {string} its row */
  #add(pool, since, ordered) {
    const owner = ownerOf(pool);
    const key = keyOf(pool);
    const name = `${pool.namespace}/${pool.name}`;
    this.pools.set(key, pool);
    this.names.set(name, (this.names.get(name) ?? 0) + 1);
    let pools = this.byOwner.get(owner);
    if (!pools) this.byOwner.set(owner, (pools = []));
    if (ordered) pools.splice(placeIn(pools, pool), 0, pool);
    else pools.push(pool);
    this.counts[pool.phase] = (this.counts[pool.phase] ?? 0) + 1;
    if (owner !== NOBODY && !pool.standby && pool.phase !== "quarantined") this.withoutStandby += 1;
    if (pool.moving_to) this.movingSince.set(key, since);
    return owner;
  }

  /** @param {Pool} pool @returns {string} the row that it was in */
  #drop(pool) {
    const owner = ownerOf(pool);
    const key = keyOf(pool);
    const name = `${pool.namespace}/${pool.name}`;
    const left = (this.names.get(name) ?? 1) - 1;
    if (left) this.names.set(name, left);
    else this.names.delete(name);
    this.pools.delete(key);
    this.movingSince.delete(key);
    const pools = this.byOwner.get(owner) ?? [];
    const place = placeIn(pools, pool);
    if (pools[place] && keyOf(pools[place]) === key) pools.splice(place, 1);
    if (!pools.length) this.byOwner.delete(owner);
    this.counts[pool.phase] -= 1;
    if (owner !== NOBODY && !pool.standby && pool.phase !== "quarantined") this.withoutStandby -= 1;
    return owner;
  }
}
