// Draws pools as cells on a canvas. Phases differ by colour and by figure, for those who see no
// colours.

import { cellAt } from "./layout.js";

/**
 * @typedef {import("./model.js").Pool} Pool
 * @typedef {import("./layout.js").Size} Size
 * @typedef {import("./layout.js").Grid} Grid
 * @typedef {Record<string, string>} Colours
 */

const NAMES = ["owned", "opening", "moving", "quarantined", "unowned", "ground", "ink", "label"];

/** @returns {Colours} as the style sheet has them now */
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
}

/** @param {CanvasRenderingContext2D} at @param {Size} size @param {Grid} grid @param {number} index
 * @param {Pool} pool @param {Colours} colours @param {{cursor: boolean, chosen: boolean}} marks */
export function drawCell(at, size, grid, index, pool, colours, marks) {
  const { x, y } = cellAt(size, grid, index);
  at.clearRect(x - 1, y - 1, size.width + 2, size.height + 2);
  if (size.labelled) drawLabelled(at, size, x, y, pool, colours);
  else drawFigure(at, x, y, size.width, size.height, pool.phase, colours);
  if (marks.cursor || marks.chosen) {
    at.strokeStyle = colours.ink;
    at.lineWidth = marks.chosen ? 3 : 2;
    at.setLineDash(marks.chosen ? [] : [3, 2]);
    at.strokeRect(x + 1, y + 1, size.width - 2, size.height - 2);
    at.setLineDash([]);
  }
}

/** @param {CanvasRenderingContext2D} at @param {Size} size @param {number} x @param {number} y
 * @param {Pool} pool @param {Colours} colours */
function drawLabelled(at, size, x, y, pool, colours) {
  at.fillStyle = colours.label;
  at.fillRect(x, y, size.width, size.height);
  drawFigure(at, x, y, 16, size.height, pool.phase, colours);
  at.font = "12px system-ui, sans-serif";
  at.textBaseline = "middle";
  at.fillStyle = colours.ink;
  const to = pool.moving_to ? ` → ${pool.moving_to}` : "";
  const text = fit(at, `${pool.namespace}/${pool.name}${to}`, size.width - 26);
  at.fillText(text, x + 22, y + size.height / 2 + 1);
}

/** @param {CanvasRenderingContext2D} at @param {string} text @param {number} width */
function fit(at, text, width) {
  if (at.measureText(text).width <= width) return text;
  let length = Math.floor((text.length * width) / at.measureText(text).width);
  while (length > 1 && at.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}

/** @param {CanvasRenderingContext2D} at @param {number} x @param {number} y @param {number} w
 * @param {number} h @param {string} phase @param {Colours} colours */
export function drawFigure(at, x, y, w, h, phase, colours) {
  const colour = colours[phase] ?? colours.ink;
  at.fillStyle = colour;
  switch (phase) {
    case "unowned": // hollow, with a bar
      at.strokeStyle = colour;
      at.lineWidth = 2;
      at.strokeRect(x + 1, y + 1, w - 2, h - 2);
      at.fillRect(x + w / 2 - 1, y + 3, 2, h - 6);
      break;
    case "opening": // filled from below
      at.strokeStyle = colour;
      at.lineWidth = 1.5;
      at.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
      at.fillRect(x, y + h / 2, w, h / 2);
      break;
    case "moving": // an arrow
      at.fillRect(x, y, w, h);
      at.fillStyle = colours.ground;
      triangle(at, x + w * 0.3, y + h * 0.2, x + w * 0.3, y + h * 0.8, x + w * 0.85, y + h / 2);
      break;
    case "quarantined": // a cross
      at.fillRect(x, y, w, h);
      at.strokeStyle = colours.ground;
      at.lineWidth = Math.max(1.5, w / 9);
      line(at, x + w * 0.22, y + h * 0.22, x + w * 0.78, y + h * 0.78);
      line(at, x + w * 0.78, y + h * 0.22, x + w * 0.22, y + h * 0.78);
      break;
    default:
      at.fillRect(x, y, w, h);
  }
}

/** @param {CanvasRenderingContext2D} at @param {...number} p */
function triangle(at, ...p) {
  at.beginPath();
  at.moveTo(p[0], p[1]);
  at.lineTo(p[2], p[3]);
  at.lineTo(p[4], p[5]);
  at.fill();
}

/** @param {CanvasRenderingContext2D} at @param {...number} p */
function line(at, ...p) {
  at.beginPath();
  at.moveTo(p[0], p[1]);
  at.lineTo(p[2], p[3]);
  at.stroke();
}

/** Give a canvas its size in CSS pixels, sharp on the screen. @param {HTMLCanvasElement} canvas
 * @param {number} width @param {number} height @returns {CanvasRenderingContext2D} */
export function prepare(canvas, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const at = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  at.setTransform(ratio, 0, 0, ratio, 0, 0);
  return at;
}
