// Asks for a bearer token, in a dialog or where nothing can be shown without one.

import { hasToken, setToken } from "./api.js";
import { h } from "./dom.js";

/** @param {string} id @param {() => void} done */
function form(id, done) {
  const input = h("input", {
    id,
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    maxlength: 8000,
    required: true,
  });
  const element = h(
    "form",
    { class: "token", autocomplete: "off" },
    h("label", { for: id }, "Bearer token "),
    input,
    " ",
    h("button", { type: "submit" }, "Use it"),
  );
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(input.value);
    input.value = "";
    done();
  });
  return { element, input };
}

/** The form where reads need a token. @param {HTMLElement} where @param {() => void} given */
export function readersForm(where, given) {
  const { element, input } = form("reader-token", given);
  where.append(element);
  return input;
}

export class TokenDialog {
  /** @param {() => void} changed */
  constructor(changed) {
    const { element, input } = form("fleet-token", () => (this.dialog.close(), changed()));
    this.input = input;
    this.forget = h(
      "button",
      { type: "button", onclick: () => (setToken(""), this.dialog.close(), changed()) },
      "Forget it",
    );
    this.dialog = h(
      "dialog",
      { "aria-labelledby": "token-title" },
      h("h2", { id: "token-title" }, "Token"),
      h(
        "p",
        {},
        "The fleet's own token lets you drain workers from this page. It is kept in this page alone: not stored, not in the address, sent to this coordinator only.",
      ),
      element,
      h(
        "p",
        {},
        this.forget,
        " ",
        h("button", { type: "button", onclick: () => this.dialog.close() }, "Close"),
      ),
    );
    document.body.append(this.dialog);
  }

  open() {
    this.forget.hidden = !hasToken();
    this.dialog.showModal();
    this.input.focus();
  }
}
