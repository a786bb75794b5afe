/** The form for a new job. */

import { Problem, send } from "./api.js";
import { byId, el } from "./dom.js";
import { showProblem } from "./problem.js";
import { size, text } from "./words.js";

const SHOWN = ["md", "json", "html"]; // what this page itself reads of a result

/** Chooses files and options and sends them; `onJob` gets the job that came of it. */
export class Start {
  constructor(onJob) {
    this._onJob = onJob;
    this._files = [];
    this._form = byId("start");
    byId("files").addEventListener("change", (event) => {
      this._add(event.target.files);
      event.target.value = "";
    });
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._send();
    });
    this._takeDrops();
    addEventListener("paste", (event) => !this._form.hidden && this._add(event.clipboardData.files));
    this.draw();
  }

  _takeDrops() {
    const over = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!over(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!over(event)) return;
      event.preventDefault();
      location.hash = "#/";
      this._add(event.dataTransfer.files);
    });
  }

  _add(files) {
    this._files.push(...files);
    this.draw();
    if (files.length) byId("send").focus();
  }

  /** Show the chosen files. */
  draw() {
    byId("chosen").replaceChildren(
      ...this._files.map((file, index) =>
        el(
          "li",
          {},
          el("span", { class: "name" }, file.name),
          el("span", { class: "quiet" }, size(file.size)),
          el("button", {
            type: "button",
            class: "plain close",
            "aria-label": text("remove", { name: file.name }),
            onclick: () => {
              this._files.splice(index, 1);
              this.draw();
              byId("files").focus();
            },
          }, "×"),
        ),
      ),
    );
    byId("send").disabled = !this._files.length;
  }

  async _send() {
    const form = new FormData();
    for (const [name, value] of new FormData(this._form)) if (value && name !== "formats") form.append(name, value);
    const formats = [...SHOWN, ...new FormData(this._form).getAll("formats")];
    form.append("formats", formats.join(","));
    for (const file of this._files) form.append("files", file, file.name);
    const stop = new AbortController();
    this._busy(true, stop);
    try {
      const job = await send("/v1/jobs", form, (share) => (byId("sent").value = share), stop.signal);
      this._files = [];
      byId("password").value = "";
      byId("problem").replaceChildren();
      this.draw();
      this._onJob(job);
    } catch (problem) {
      if (problem.name !== "AbortError") this._refused(problem);
    } finally {
      this._busy(false, stop);
    }
  }

  _busy(busy, stop) {
    byId("send").disabled = busy || !this._files.length;
    byId("sending").hidden = !busy;
    byId("sent").value = 0;
    byId("stop-sending").onclick = () => stop.abort();
  }

  _refused(problem) {
    showProblem(problem instanceof Problem ? problem : new Problem({ message: String(problem) }));
    const name = problem.code === "page_range_invalid" ? "pages" : problem.param;
    for (const field of this._form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    const field = this._form.querySelector(`.fields [name="${CSS.escape(name ?? "")}"]`);
    field?.setAttribute("aria-invalid", "true");
    field?.focus();
  }
}
