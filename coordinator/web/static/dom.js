// Elements, made without markup: whatever a name holds stays text.

/**
 * @typedef {Node|string|number|null|undefined|false} Child
 */

/** Elements with listeners of their own: these are not made over into others.
 * @type {WeakSet<Node>} */
const listening = new WeakSet();

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [attributes] `on…` = a listener, `class`, `data-…`, others as they are
 * @param {...(Child|Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
      listening.add(element);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter(shown).map(node));
  return element;
}

/** @param {Child} child */
function shown(child) {
  return child !== null && child !== undefined && child !== false;
}

/** @param {any} child */
function node(child) {
  return child instanceof Node ? child : String(child);
}

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

/** Set the text if it is another one: what is spoken aloud is not spoken twice.
 * @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Have an element hold these children, and change only what is other than before: what has the
 * focus keeps it, what is scrolled stays so, and nothing is spoken twice.
 * @param {Element} parent @param {...(Child|Child[])} children
 */
export function renew(parent, ...children) {
  renewChildren(parent, h("div", {}, ...children));
}

/** @param {Element} old @param {Element} fresh whose children move over */
function renewChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  for (const [at, node] of wanted.entries()) {
    const present = old.childNodes[at];
    if (!present) old.append(node);
    else if (!present.isEqualNode(node)) renewNode(present, node);
  }
  while (old.childNodes.length > wanted.length) old.lastChild?.remove();
}

/** @param {ChildNode} old @param {ChildNode} fresh */
function renewNode(old, fresh) {
  if (old instanceof Text && fresh instanceof Text) {
    old.data = fresh.data;
    return;
  }
  const alike =
    old instanceof HTMLElement && fresh instanceof HTMLElement && old.tagName === fresh.tagName;
  if (alike && !listening.has(old) && !listening.has(fresh)) {
    renewAttributes(old, fresh);
    renewChildren(old, fresh);
    return;
  }
  const focused = old === document.activeElement;
  old.replaceWith(fresh);
  if (focused && fresh instanceof HTMLElement) fresh.focus({ preventScroll: true });
}

/** @param {HTMLElement} old @param {HTMLElement} fresh */
function renewAttributes(old, fresh) {
  // Styles are set as properties: the page's policy forbids them as attributes.
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

/** A bar; `share` is 0..1 of its length. @param {number} share @param {string} kind */
export function bar(share, kind) {
  const inner = h("span", { class: `fill ${kind}` });
  inner.style.width = `${Math.min(1, Math.max(0, share)) * 100}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, inner);
}

/** Rows of a table with its head. @param {string[]} columns @param {(Child|Child[])[][]} rows
 * @param {string} label */
export function table(columns, rows, label) {
  const head = h("tr", {}, ...columns.map((column) => h("th", { scope: "col" }, column)));
  const body = rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell))));
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, head),
      h("tbody", {}, ...body),
    ),
  );
}
