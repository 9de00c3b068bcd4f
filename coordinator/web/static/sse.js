// Server-sent events from a fetch: EventSource can bear no token. No DOM.

/** @typedef {{event: string, data: string, id: string}} Message */

/** More than the largest event: who sends a longer line is no coordinator. */
const MAX_BUFFER = 8 * 1024 * 1024;

/** Takes text in pieces, gives events. */
export class Parser {
  #rest = "";
  #event = "";
  /** @type {string[]} */
  #data = [];
  #id = "";

  /** @param {string} piece @returns {Message[]} */
  push(piece) {
    this.#rest += piece;
    if (this.#rest.length > MAX_BUFFER) throw new Error("an event is too long");
    const lines = this.#rest.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    /** @type {Message[]} */
    const found = [];
    for (const line of lines) {
      if (line === "") this.#finish(found);
      else this.#field(line);
    }
    return found;
  }

  /** @param {string} line */
  #field(line) {
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
  }

  /** @param {Message[]} found */
  #finish(found) {
    if (this.#data.length) {
      found.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
    }
    this.#event = "";
    this.#data = [];
    this.#id = "";
  }
}
