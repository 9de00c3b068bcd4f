// Dark or light: as the system says, until the reader says otherwise.

const KEY = "epp-fleet-theme";

/** @returns {string} "light", "dark" or "" = as the system says */
function stored() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} theme */
function store(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A browser without storage forgets it.
  }
}

/** @param {HTMLElement} button @param {() => void} changed */
export function theme(button, changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (/** @type {string} */ chosen) => {
    const is = chosen || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = is;
    button.textContent = is === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${is === "dark" ? "light" : "dark"} colours`);
    changed();
  };
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    store(next);
    apply(next);
  });
  dark.addEventListener("change", () => apply(stored()));
  apply(stored());
}
