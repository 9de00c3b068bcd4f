// Keeps the page as new as can be: by the stream of events, else by asking again and again.

import { Refused, get, openEvents } from "./api.js";
import { Parser } from "./sse.js";

/**
 * @typedef {"starting"|"live"|"polling"|"lost"|"locked"} Link
 * @typedef {object} Listener
 * @property {() => string} known epoch.version of the map that is here; "" = none
 * @property {(document: any) => void} map a whole map
 * @property {(changes: any) => boolean} changes whether they could be taken
 * @property {(change: any) => void} workers
 * @property {(standing: any) => void} standing
 * @property {(now: string) => void} beat
 * @property {(link: Link, why: string) => void} link
 */

/** The coordinator beats every 2 s. */
const SILENT_MS = 6_000;
/** A stream that ends so soon is not opened again at once. */
const SHORT_MS = 1_000;
const RESTING_MS = 15_000;
const PAUSES_MS = [500, 1_000, 2_000, 3_000];

/** @param {number} milliseconds @param {AbortSignal} signal */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), {
      once: true,
    });
  });
}

export class Live {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    this.heardAt = 0;
    /** Whether nobody looks: a browser has six connections to one server, for all its pages. */
    this.resting = false;
    this.run = new AbortController();
  }

  /** Begin, or begin anew: a token was given. */
  start() {
    this.run.abort();
    this.run = new AbortController();
    void this.#keep(this.run.signal);
  }

  /** Hold no stream while nobody looks, or hold one again. @param {boolean} on */
  rest(on) {
    this.resting = on;
    this.start();
  }

  /** @param {AbortSignal} signal */
  async #keep(signal) {
    let failures = 0;
    while (!signal.aborted) {
      if (this.resting) {
        if (await this.#poll(signal, "", 0)) return;
        await pause(RESTING_MS, signal);
        continue;
      }
      const before = this.heardAt;
      let why = "the stream of events has ended";
      const began = performance.now();
      try {
        await this.#stream(signal);
        failures = 0;
        const short = performance.now() - began < SHORT_MS;
        if (short) await pause(SHORT_MS, signal);
        continue;
      } catch (error) {
        if (signal.aborted || this.#locked(error)) return;
        if (error instanceof Refused) why = error.message;
      }
      failures = this.heardAt > before ? 1 : failures + 1;
      if (await this.#poll(signal, why, failures)) return;
      await pause(PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1], signal);
    }
  }

  /** Ask for all there is, once; whether a token is needed. @param {AbortSignal} signal
   * @param {string} why @param {number} failures */
  async #poll(signal, why, failures) {
    try {
      const [map, workers] = await Promise.all([
        get("api/v1/map", signal),
        get("api/v1/workers", signal),
      ]);
      if (signal.aborted) return true;
      this.listener.map(map);
      this.listener.workers({ ...workers, whole: true });
      this.#heard();
      // A stream that breaks once is no news: it is there again in a moment.
      if (failures > 1) this.listener.link("polling", why);
    } catch (error) {
      if (signal.aborted || this.#locked(error)) return true;
      const said = error instanceof Refused ? error.message : "it cannot be reached";
      this.listener.link("lost", said);
    }
    return false;
  }

  /** Whether the answer was that a token is needed. @param {unknown} error */
  #locked(error) {
    if (!(error instanceof Refused) || (error.status !== 401 && error.status !== 403)) return false;
    this.listener.link("locked", error.message);
    return true;
  }

  #heard() {
    this.heardAt = performance.now();
  }

  /** Until the stream ends in good order. @param {AbortSignal} signal */
  async #stream(signal) {
    const own = new AbortController();
    const end = () => own.abort();
    signal.addEventListener("abort", end, { once: true });
    let timer = setTimeout(end, SILENT_MS);
    try {
      const body = await openEvents(this.listener.known(), own.signal);
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new Parser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done || signal.aborted) return;
        clearTimeout(timer);
        timer = setTimeout(end, SILENT_MS);
        for (const message of parser.push(value)) await this.#take(message, own.signal);
        this.#heard();
        this.listener.link("live", "");
      }
    } finally {
      clearTimeout(timer);
      own.abort();
      signal.removeEventListener("abort", end);
    }
  }

  /** @param {import("./sse.js").Message} message @param {AbortSignal} signal */
  async #take(message, signal) {
    const document = JSON.parse(message.data);
    switch (message.event) {
      case "map":
        if (!this.listener.changes(document)) await this.#whole(signal);
        break;
      case "reset":
        await this.#whole(signal);
        break;
      case "workers":
        this.listener.workers(document);
        break;
      case "standing":
        this.listener.standing(document);
        break;
      case "beat":
        this.listener.beat(document.now);
        break;
    }
  }

  /** @param {AbortSignal} signal */
  async #whole(signal) {
    try {
      this.listener.map(await get("api/v1/map", signal));
    } catch (error) {
      // None was published yet: an event tells of the first.
      if (!(error instanceof Refused) || error.code !== "no_map") throw error;
    }
  }
}
