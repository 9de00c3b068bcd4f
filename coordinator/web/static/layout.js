// Where cells are in a row of pools, and which cell a key leads to. No DOM.

/**
 * @typedef {{name: string, width: number, height: number, gap: number, labelled: boolean}} Size
 * @typedef {{columns: number, lines: number, width: number, height: number}} Grid
 */

/** @type {Size[]} the largest first */
export const SIZES = [
  { name: "large", width: 176, height: 28, gap: 4, labelled: true },
  { name: "medium", width: 22, height: 22, gap: 3, labelled: false },
  { name: "small", width: 13, height: 13, gap: 2, labelled: false },
  { name: "tiny", width: 8, height: 10, gap: 1, labelled: false },
];

/** A row is at least as high as its head. */
const HEAD_PX = 44;
const PADDING_PX = 16;
/** Rows that take no more than this together are low enough, however high each is. */
const LOW_PX = 1_100;

/** @param {Size} size @param {number} count @param {number} width px @returns {Grid} */
export function gridOf(size, count, width) {
  const columns = Math.max(1, Math.floor((width + size.gap) / (size.width + size.gap)));
  const lines = Math.ceil(count / columns);
  return {
    columns,
    lines,
    width: Math.max(0, Math.min(count, columns) * (size.width + size.gap) - size.gap),
    height: Math.max(0, lines * (size.height + size.gap) - size.gap),
  };
}

/**
 * The largest size at which rows of so many cells stay low enough to be looked at together.
 * @param {number[]} counts cells of each row @param {number} width px
 */
export function sizeFor(counts, width) {
  const low = Math.max(LOW_PX, 1.1 * HEAD_PX * counts.length);
  for (const size of SIZES) {
    const heights = counts.map((count) => gridOf(size, count, width).height + PADDING_PX);
    if (heights.reduce((sum, height) => sum + Math.max(HEAD_PX, height), 0) <= low) return size;
  }
  return SIZES[SIZES.length - 1];
}

/** @param {Size} size @param {Grid} grid @param {number} index */
export function cellAt(size, grid, index) {
  return {
    x: (index % grid.columns) * (size.width + size.gap),
    y: Math.floor(index / grid.columns) * (size.height + size.gap),
  };
}

/** The cell under a point, or -1. @param {Size} size @param {Grid} grid @param {number} count
 * @param {number} x @param {number} y */
export function hit(size, grid, count, x, y) {
  const column = Math.floor(x / (size.width + size.gap));
  const line = Math.floor(y / (size.height + size.gap));
  if (x < 0 || y < 0 || column >= grid.columns || line >= grid.lines) return -1;
  const index = line * grid.columns + column;
  return index < count ? index : -1;
}

/**
 * Where a key leads from a cell of a row.
 * @param {{count: number, columns: number}[]} rows
 * @param {{row: number, index: number}} from
 * @param {string} key as `KeyboardEvent.key`
 * @returns {{row: number, index: number}} the same place if it leads nowhere.
 */
export function step(rows, from, key) {
  const { row, index } = from;
  const here = rows[row];
  switch (key) {
    case "ArrowRight":
      return index + 1 < here.count ? { row, index: index + 1 } : from;
    case "ArrowLeft":
      return index > 0 ? { row, index: index - 1 } : from;
    case "Home":
      return { row, index: 0 };
    case "End":
      return { row, index: Math.max(0, here.count - 1) };
    case "ArrowDown":
      return down(rows, from);
    case "ArrowUp":
      return up(rows, from);
    default:
      return from;
  }
}

/** @param {{count: number, columns: number}[]} rows @param {{row: number, index: number}} from */
function down(rows, { row, index }) {
  const here = rows[row];
  const lastLine = Math.floor((here.count - 1) / here.columns);
  if (Math.floor(index / here.columns) < lastLine) {
    return { row, index: Math.min(index + here.columns, here.count - 1) };
  }
  const next = rows.findIndex((each, at) => at > row && each.count > 0);
  if (next < 0) return { row, index };
  return { row: next, index: Math.min(index % here.columns, rows[next].count - 1) };
}

/** @param {{count: number, columns: number}[]} rows @param {{row: number, index: number}} from */
function up(rows, { row, index }) {
  const here = rows[row];
  if (index >= here.columns) return { row, index: index - here.columns };
  let above = row - 1;
  while (above >= 0 && rows[above].count === 0) above -= 1;
  if (above < 0) return { row, index };
  const { count, columns } = rows[above];
  const start = Math.floor((count - 1) / columns) * columns;
  return { row: above, index: Math.min(start + (index % columns), count - 1) };
}
