// The map: one row a worker, its pools as cells on a canvas of the row's own. Only rows in sight are
// drawn, and only those that have changed.

import { drawCell, prepare, readColours } from "./cells.js";
import { h } from "./dom.js";
import { gridOf, hit, sizeFor, SIZES, step } from "./layout.js";
import { keyOf, NOBODY } from "./model.js";
import { RowHead } from "./rowhead.js";
import { plural, poolLine } from "./text.js";

/**
 * @typedef {import("./model.js").Pool} Pool
 * @typedef {import("./model.js").Fleet} Fleet
 * @typedef {object} Row
 * @property {string} id
 * @property {HTMLElement} element
 * @property {RowHead} head
 * @property {HTMLCanvasElement} canvas
 * @property {Pool[]} pools
 * @property {import("./layout.js").Grid} grid
 * @property {boolean} visible
 * @property {boolean} dirty
 * @property {CanvasRenderingContext2D|null} at
 * @property {number} width what the canvas was made for
 * @property {number} height
 */

/** How far from sight rows are drawn already. */
const MARGIN_PX = 300;
/** The head of a higher row stays in sight while the row is scrolled. */
const TALL_PX = 160;

export class MapView {
  /**
   * @param {HTMLElement} container @param {HTMLElement} tip
   * @param {{open: (pool: Pool) => void, now: () => number}} given
   */
  constructor(container, tip, given) {
    this.container = container;
    this.tip = tip;
    this.given = given;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {Row[]} */
    this.order = [];
    this.size = SIZES[0];
    this.width = 0;
    this.colours = readColours();
    /** @type {{row: string, key: string}|null} where the keyboard is */
    this.cursor = null;
    this.chosen = "";
    this.sight = new IntersectionObserver((entries) => this.#seen(entries), {
      rootMargin: `${MARGIN_PX}px`,
    });
    new ResizeObserver(() => this.#resized()).observe(container);
    container.addEventListener("keydown", (event) => this.#key(event));
    container.addEventListener("scroll", () => this.#hideTip(), { passive: true });
  }

  /**
   * Show these pools.
   * @param {Fleet} fleet @param {Map<string, Pool[]>} shown by row
   * @param {{ids: string[], touched: Set<string>|null, anew: boolean}} what `touched` null = all
   *   rows; `anew` = choose the size of cells again
   */
  show(fleet, shown, { ids, touched, anew }) {
    this.fleet = fleet;
    const changed = this.#arrange(ids);
    for (const row of this.order) {
      if (touched && !touched.has(row.id) && !changed) continue;
      row.pools = shown.get(row.id) ?? [];
      row.dirty = true;
    }
    if (anew || changed) this.#choose();
    this.#layOut();
    this.heads();
    this.#paint();
  }

  /** Show what is said of workers anew. */
  heads() {
    if (!this.fleet) return;
    const scale = RowHead.scale(this.fleet);
    for (const row of this.order) row.head.show(this.fleet, row.id, scale, this.given.now());
  }

  /** @param {string} key of the pool that is open; "" = none */
  choose(key) {
    const before = this.chosen;
    if (before === key) return;
    this.chosen = key;
    for (const row of this.order) {
      for (const [index, pool] of row.pools.entries()) {
        if (keyOf(pool) === before || keyOf(pool) === key) this.#cell(row, index);
      }
    }
  }

  /** Colours have changed. */
  recolour() {
    this.colours = readColours();
    for (const row of this.order) row.dirty = true;
    this.#paint();
  }

  /** Put the keyboard on the map: on its cursor, or on the first cell. */
  focus() {
    const row = this.order.find((each) => each.canvas.tabIndex === 0);
    row?.canvas.focus();
  }

  /** @param {string[]} ids @returns {boolean} whether rows came, went or changed places */
  #arrange(ids) {
    const same =
      ids.length === this.order.length && ids.every((id, at) => this.order[at].id === id);
    if (same) return false;
    const wanted = new Set(ids);
    for (const [id, row] of this.rows) {
      if (wanted.has(id)) continue;
      this.sight.unobserve(row.canvas);
      row.element.remove();
      this.rows.delete(id);
    }
    this.order = ids.map((id) => this.rows.get(id) ?? this.#row(id));
    for (const [at, row] of this.order.entries()) {
      if (this.container.children[at] !== row.element) {
        this.container.insertBefore(row.element, this.container.children[at] ?? null);
      }
    }
    return true;
  }

  /** @param {string} id @returns {Row} */
  #row(id) {
    const name = id === NOBODY ? "nobody" : id;
    const canvas = h("canvas", {
      width: 1,
      height: 1,
      role: "listbox",
      tabindex: -1,
      "aria-label": id === NOBODY ? "Pools without owner" : `Pools of ${id}`,
      "data-row": id,
    });
    const head = new RowHead(id);
    const kind = id === NOBODY ? "row nobody" : "row";
    const element = h("section", { class: kind, "aria-label": name }, head.element, canvas);
    /** @type {Row} */
    const row = {
      id,
      element,
      head,
      canvas,
      pools: [],
      grid: gridOf(this.size, 0, 1),
      visible: false,
      dirty: true,
      at: null,
      width: 0,
      height: 0,
    };
    canvas.addEventListener("pointermove", (event) => this.#hover(row, event));
    canvas.addEventListener("pointerleave", () => this.#hideTip());
    canvas.addEventListener("click", (event) => this.#click(row, event));
    canvas.addEventListener("focus", () => this.#focused(row));
    canvas.addEventListener("blur", () => this.#cursorCell());
    this.rows.set(id, row);
    this.sight.observe(canvas);
    return row;
  }

  #choose() {
    this.width = this.#room();
    this.size = sizeFor(
      this.order.map((row) => row.pools.length),
      this.width,
    );
    this.container.dataset.size = this.size.name;
    for (const row of this.order) row.dirty = true;
  }

  /** Width for cells, in pixels. */
  #room() {
    const row = this.order[0];
    if (!row) return 1;
    const style = getComputedStyle(row.element);
    const columns = style.gridTemplateColumns.split(" ").map(Number.parseFloat);
    return Math.max(40, Math.floor(columns[columns.length - 1] || 40));
  }

  #layOut() {
    for (const row of this.order) {
      if (!row.dirty) continue;
      row.grid = gridOf(this.size, row.pools.length, this.width);
      row.canvas.style.height = `${row.grid.height}px`;
      row.canvas.style.width = `${row.grid.width}px`;
      row.element.classList.toggle("bare", row.pools.length === 0);
      row.element.classList.toggle("tall", row.grid.height > TALL_PX);
    }
    const stop = this.order.find((row) => row.id === this.cursor?.row && row.pools.length);
    const entry = stop ?? this.order.find((row) => row.pools.length);
    for (const row of this.order) row.canvas.tabIndex = row === entry ? 0 : -1;
  }

  #resized() {
    if (!this.order.length || this.#room() === this.width) return;
    this.#choose();
    this.#layOut();
    this.#paint();
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #seen(entries) {
    for (const entry of entries) {
      const row = this.rows.get(/** @type {HTMLElement} */ (entry.target).dataset.row ?? NOBODY);
      if (!row) continue;
      row.visible = entry.isIntersecting;
      if (!row.visible && row.at) {
        // A canvas keeps its pixels: what nobody sees needs none.
        row.at = null;
        row.canvas.width = row.canvas.height = 1;
        row.width = row.height = 0;
        row.dirty = true;
      }
    }
    this.#paint();
  }

  #paint() {
    for (const row of this.order) if (row.visible && row.dirty) this.#draw(row);
  }

  /** @param {Row} row */
  #draw(row) {
    const { width, height } = row.grid;
    if (!row.at || row.width !== width || row.height !== height) {
      row.at = prepare(row.canvas, width, height);
      row.width = width;
      row.height = height;
    } else {
      row.at.clearRect(0, 0, width, height);
    }
    row.dirty = false;
    for (let index = 0; index < row.pools.length; index += 1) this.#cell(row, index);
    if (document.activeElement === row.canvas) this.#name(row);
  }

  /** @param {Row} row @param {number} index */
  #cell(row, index) {
    if (!row.at || row.dirty) return;
    const pool = row.pools[index];
    const key = keyOf(pool);
    const focused = document.activeElement === row.canvas;
    drawCell(row.at, this.size, row.grid, index, pool, this.colours, {
      cursor: focused && this.cursor?.row === row.id && this.cursor.key === key,
      chosen: key === this.chosen,
    });
  }

  // The pointer.

  /** @param {Row} row @param {MouseEvent} event */
  #under(row, event) {
    return hit(this.size, row.grid, row.pools.length, event.offsetX, event.offsetY);
  }

  /** @param {Row} row @param {PointerEvent} event */
  #hover(row, event) {
    const index = this.#under(row, event);
    row.canvas.style.cursor = index < 0 ? "default" : "pointer";
    if (index < 0 || event.pointerType === "touch") {
      this.#hideTip();
      return;
    }
    this.tip.textContent = poolLine(row.pools[index], this.given.now());
    this.tip.hidden = false;
    const room = document.documentElement.clientWidth - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
    const below = event.clientY + 18 + this.tip.offsetHeight < window.innerHeight;
    this.tip.style.top = `${below ? event.clientY + 18 : event.clientY - this.tip.offsetHeight - 12}px`;
  }

  #hideTip() {
    this.tip.hidden = true;
  }

  /** @param {Row} row @param {MouseEvent} event */
  #click(row, event) {
    const index = this.#under(row, event);
    if (index < 0) return;
    this.#moveTo(row, index);
    this.given.open(row.pools[index]);
  }

  // The keyboard.

  /** @param {Row} row */
  #focused(row) {
    if (this.cursor?.row !== row.id) this.#moveTo(row, 0);
    else this.#name(row);
    this.#cursorCell();
  }

  #cursorCell() {
    const row = this.cursor && this.rows.get(this.cursor.row);
    if (row) this.#cell(row, this.#cursorIndex(row));
  }

  /** The place of the cursor's pool, or the nearest there is. @param {Row} row */
  #cursorIndex(row) {
    const at = row.pools.findIndex((pool) => keyOf(pool) === this.cursor?.key);
    return at < 0 ? 0 : at;
  }

  /** @param {Row} row @param {number} index */
  #moveTo(row, index) {
    const before = this.cursor && this.rows.get(this.cursor.row);
    const beforeIndex = before ? this.#cursorIndex(before) : -1;
    if (!row.pools.length) return;
    this.cursor = { row: row.id, key: keyOf(row.pools[index]) };
    for (const each of this.order) each.canvas.tabIndex = each === row ? 0 : -1;
    if (before?.pools.length) this.#cell(before, beforeIndex);
    this.#cell(row, index);
    this.#name(row);
  }

  /** Say where the cursor is, to those who hear the page. @param {Row} row */
  #name(row) {
    const index = this.#cursorIndex(row);
    const pool = row.pools[index];
    if (!pool) return;
    const id = `cell-${index}`;
    const option = h(
      "div",
      {
        role: "option",
        id,
        "aria-selected": keyOf(pool) === this.chosen,
        "aria-posinset": index + 1,
        "aria-setsize": row.pools.length,
      },
      poolLine(pool, this.given.now()),
    );
    for (const each of this.order) if (each !== row) each.canvas.replaceChildren();
    row.canvas.replaceChildren(option);
    row.canvas.setAttribute("aria-activedescendant", id);
    row.canvas.setAttribute("aria-description", plural(row.pools.length, "pool"));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const at = this.order.findIndex((row) => row.canvas === event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.order[at];
    const index = this.#cursorIndex(row);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (row.pools[index]) this.given.open(row.pools[index]);
      return;
    }
    const rows = this.order.map((each) => ({
      count: each.pools.length,
      columns: each.grid.columns,
    }));
    const to = step(rows, { row: at, index }, event.key);
    if (to.row === at && to.index === index) {
      if (event.key.startsWith("Arrow")) event.preventDefault();
      return;
    }
    event.preventDefault();
    const target = this.order[to.row];
    this.#moveTo(target, to.index);
    target.canvas.focus({ preventScroll: true });
    target.element.scrollIntoView({ block: "nearest" });
  }
}
