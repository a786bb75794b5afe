/** The server's API, with the key it may ask for. Every failure is a `Problem`. */

import { byId } from "./dom.js";
import { text } from "./words.js";

/** What went wrong: `code`, `message`, `hint`, `param` as the API tells them. */
export class Problem extends Error {
  constructor({ code = "unknown", message = "", hint = null, param = null } = {}, status = 0) {
    super(message);
    Object.assign(this, { code, hint, param, status });
  }
}

const KEY = "mineru.key";
const headers = () => {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
};

let asking = null;

/** Ask for the API key; several requests that miss it at once ask once. Resolves to whether there is one now. */
function askKey(problem) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    const input = byId("key");
    const wrong = byId("key-problem");
    wrong.hidden = !sessionStorage.getItem(KEY);
    wrong.textContent = `${text("key_wrong")} ${problem.message}`;
    input.value = "";
    dialog.returnValue = "";
    dialog.addEventListener(
      "close",
      () => {
        asking = null;
        const key = input.value.trim();
        if (key) sessionStorage.setItem(KEY, key);
        resolve(Boolean(key));
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

function problemOf(body, status) {
  const error = body?.error;
  if (error) return new Problem(error, status);
  return new Problem({ code: `http_${status}`, message: typeof body?.detail === "string" ? body.detail : "" }, status);
}

/** A response with status 2xx. */
export async function request(path, { signal, method = "GET" } = {}) {
  for (;;) {
    const sent = headers();
    let response;
    try {
      response = await fetch(path, { method, headers: sent, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem({ code: "network" });
    }
    if (response.ok) return response;
    const problem = problemOf(await response.json().catch(() => null), response.status);
    const newer = headers().Authorization !== sent.Authorization;
    if (response.status !== 401 || !(newer || (await askKey(problem)))) throw problem;
  }
}

/** The JSON of an answer. */
export const json = async (path, options) => (await request(path, options)).json();

/**
 * Send a form. `XMLHttpRequest`, because `fetch` does not tell how far an upload is.
 * @param {(share: number) => void} onSent
 */
export async function send(path, form, onSent, signal) {
  for (;;) {
    const { status, body } = await new Promise((resolve, reject) => {
      const call = new XMLHttpRequest();
      call.open("POST", path);
      for (const [name, value] of Object.entries(headers())) call.setRequestHeader(name, value);
      call.responseType = "json";
      call.upload.onprogress = (event) => event.lengthComputable && onSent(event.loaded / event.total);
      call.onload = () => resolve({ status: call.status, body: call.response });
      call.onerror = () => reject(new Problem({ code: "network" }));
      call.onabort = () => reject(new DOMException("", "AbortError"));
      signal.addEventListener("abort", () => call.abort(), { once: true });
      call.send(form);
    });
    if (status < 300) return body;
    const problem = problemOf(body, status);
    if (status !== 401 || !(await askKey(problem))) throw problem;
  }
}

/**
 * Follow a job's server-sent events until its end. By `fetch`, because `EventSource` cannot send a key.
 * A lost connection is made again.
 * @param {(job: object) => void} onChange
 * @param {(problem: Problem | null) => void} onTrouble called with null when it is over
 */
export async function follow(id, onChange, onTrouble, signal) {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10_000)) {
    try {
      const response = await request(`/v1/jobs/${id}/events`, { signal });
      for await (const { event, data } of events(response.body)) {
        onTrouble(null);
        wait = 500;
        onChange(JSON.parse(data));
        if (event === "end") return;
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Problem && error.status >= 400 && error.status < 500)) throw error;
      onTrouble(error instanceof Problem ? error : new Problem({ code: "network" }));
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (signal.aborted) return;
  }
}

/** Events of a stream in the format of the HTML standard. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const found = { event: "message", data: "" };
        for (const line of part.split(/\r?\n/)) {
          const [, name, content] = /^(\w+): ?(.*)$/.exec(line) ?? [];
          if (name === "event") found.event = content;
          if (name === "data") found.data += content;
        }
        if (found.data) yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
