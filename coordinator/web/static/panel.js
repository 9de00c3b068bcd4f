// The panel beside the map: opens what the address names, closes with Esc, gives the focus back.

import { h } from "./dom.js";

/**
 * @typedef {{title: string, element: HTMLElement, refresh: () => Promise<void>, close: () => void,
 *   tick?: () => Promise<void>}} Part
 */

/** @param {string} hash `#pool=ns/name`, `#worker=id`, `#plan=…`, `#history`
 * @returns {{kind: string, value: string}} */
export function parseHash(hash) {
  const text = hash.replace(/^#/, "");
  const at = text.indexOf("=");
  const raw = at < 0 ? "" : text.slice(at + 1);
  const kind = at < 0 ? text : text.slice(0, at);
  try {
    // A pool's two names are decoded one by one: a slash in one is no separator.
    return { kind, value: kind === "pool" ? raw : decodeURIComponent(raw) };
  } catch {
    return { kind: "", value: "" };
  }
}

/** @param {string} value @returns {{namespace: string, name: string}|null} */
export function poolOfHash(value) {
  const parts = value.split("/");
  if (parts.length !== 2 || !parts[0] || !parts[1]) return null;
  try {
    return { namespace: decodeURIComponent(parts[0]), name: decodeURIComponent(parts[1]) };
  } catch {
    return null;
  }
}

export class Panel {
  /** @param {HTMLElement} element @param {() => void} closed where the focus goes if it cannot go
   *   back to where it was */
  constructor(element, closed) {
    this.element = element;
    this.closed = closed;
    /** @type {Part|null} */
    this.part = null;
    /** @type {Element|null} */
    this.before = null;
    this.title = h("h2", { id: "panel-title", tabindex: -1 });
    this.body = h("div", { class: "panel-body" });
    const close = h(
      "button",
      { type: "button", class: "close", "aria-label": "Close", onclick: () => this.leave() },
      "✕",
    );
    element.setAttribute("aria-labelledby", "panel-title");
    element.append(h("div", { class: "panel-head" }, this.title, close), this.body);
  }

  /** @param {Part} part */
  open(part) {
    if (!this.part) this.before = document.activeElement;
    this.part?.close();
    this.part = part;
    this.title.textContent = part.title;
    this.body.replaceChildren(part.element);
    this.element.hidden = false;
    document.body.classList.add("open");
    this.element.scrollTop = 0;
    this.title.focus({ preventScroll: true });
    void part.refresh();
  }

  /** Close by changing the address: its change closes. */
  leave() {
    history.pushState(null, "", location.pathname + location.search);
    this.close();
  }

  close() {
    if (!this.part) return;
    this.part.close();
    this.part = null;
    this.element.hidden = true;
    document.body.classList.remove("open");
    const back = this.before;
    if (back instanceof HTMLElement && back.isConnected && back !== document.body) back.focus();
    else this.closed();
  }
}
