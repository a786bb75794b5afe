/** The list of the caller's jobs, the newest first. The server keeps it, so it outlives the page. */

import { json } from "./api.js";
import { byId, el } from "./dom.js";
import { showProblem } from "./problem.js";
import { moment, text } from "./words.js";

const REFRESH_MS = 4000;
const ended = (job) => !["queued", "running"].includes(job.state);

export class History {
  constructor() {
    this._jobs = new Map();
    this._marked = undefined;
    byId("history-more").addEventListener("click", () => this.load([...this._jobs.keys()].at(-1)));
    document.addEventListener("visibilitychange", () => document.hidden || this.load());
    setInterval(() => {
      const open = [...this._jobs.values()].some((job) => !ended(job) && job.id !== this._marked);
      if (open && !document.hidden) this.load();
    }, REFRESH_MS);
  }

  /** Read the newest jobs, or those after one. */
  async load(after) {
    try {
      const page = await json(`/v1/jobs?limit=20${after ? `&after=${after}` : ""}`);
      for (const job of page.data) this._jobs.set(job.id, job);
      if (after || this._jobs.size <= page.data.length) byId("history-more").hidden = !page.has_more;
      this.draw();
    } catch (problem) {
      showProblem(problem);
    }
  }

  /** A job is new or has changed. */
  put(job) {
    this._jobs.set(job.id, job);
    this.draw();
  }

  /** A job is gone. */
  drop(id) {
    this._jobs.delete(id);
    this.draw();
  }

  /** Which job is being looked at. */
  mark(id) {
    this._marked = id;
    this.draw();
  }

  draw() {
    const list = byId("history");
    const focused = list.contains(document.activeElement) ? document.activeElement.hash : null;
    const jobs = [...this._jobs.values()].sort((a, b) => b.created_at.localeCompare(a.created_at));
    list.replaceChildren(...jobs.map((job) => this._item(job)));
    if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    byId("history-empty").hidden = jobs.length > 0;
  }

  _item(job) {
    const more = job.files.length > 1 ? ` +${job.files.length - 1}` : "";
    return el(
      "li",
      {},
      el(
        "a",
        { href: `#/jobs/${job.id}`, "aria-current": job.id === this._marked && "page" },
        el("span", { class: "name" }, (job.files[0]?.name ?? job.id) + more),
        el(
          "span",
          { class: "quiet" },
          el("span", { class: `dot ${job.state}`, "aria-hidden": "true" }),
          `${text(job.state)} · ${moment(job.created_at)}`,
        ),
      ),
    );
  }
}
