// The coordinator's API, by addresses relative to the page: it works behind a path prefix.
// The token is kept in this module alone: never in an address, never in the browser's storage.

let token = "";

/** @param {string} value */
export function setToken(value) {
  token = value.trim();
}

export function hasToken() {
  return token !== "";
}

/** What the coordinator answered instead of what was asked for. */
export class Refused extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @param {Record<string, string>} [more] */
function headers(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : { ...more };
}

/** @param {Response} response */
async function refusal(response) {
  try {
    const { error } = await response.json();
    return new Refused(response.status, String(error.code), String(error.message));
  } catch {
    return new Refused(response.status, "unreadable", `the server answered ${response.status}`);
  }
}

/** @param {number} milliseconds @param {AbortSignal} [signal] */
function within(milliseconds, signal) {
  const limit = AbortSignal.timeout(milliseconds);
  return signal ? AbortSignal.any([limit, signal]) : limit;
}

/**
 * @param {string} path relative, like `api/v1/map`
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} the document
 */
export async function get(path, signal) {
  const response = await fetch(path, {
    headers: headers({ Accept: "application/json" }),
    cache: "no-cache",
    credentials: "same-origin",
    signal: within(10_000, signal),
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** The path of one pool. @param {string} namespace @param {string} name */
export function poolPath(namespace, name) {
  return `api/v1/pools/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

/**
 * Have a worker drained, or take pools again. Only a leader does it; a follower's redirect is not
 * followed: the token would go to another address than the one that its reader sees.
 * @param {string} worker @param {"drain"|"undrain"} action
 */
export async function command(worker, action) {
  const response = await fetch(`api/v1/workers/${encodeURIComponent(worker)}/${action}`, {
    method: "POST",
    headers: headers(),
    redirect: "manual",
    credentials: "same-origin",
    signal: within(10_000),
  });
  if (response.type === "opaqueredirect") {
    throw new Refused(307, "not_leading", "another coordinator leads now");
  }
  if (!response.ok) throw await refusal(response);
}

/**
 * Open the stream of events.
 * @param {string} known epoch.version of the map that is here; "" = none
 * @param {AbortSignal} signal
 */
export async function openEvents(known, signal) {
  /** @type {Record<string, string>} */
  const more = known ? { "Last-Event-ID": known } : {};
  const response = await fetch("api/v1/events", {
    headers: headers({ Accept: "text/event-stream", ...more }),
    cache: "no-store",
    credentials: "same-origin",
    signal,
  });
  if (!response.ok || !response.body) throw await refusal(response);
  return response.body;
}
