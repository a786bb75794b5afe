/** One job: how far it is, and its documents beside their results. */

import { follow, json, Problem, request } from "./api.js";
import { byId, copy, el, keep, say } from "./dom.js";
import { card, showProblem } from "./problem.js";
import { frameOf, paint, show } from "./result.js";
import { kindOf, placed, Source } from "./source.js";
import { size, text } from "./words.js";

const FILES = {
  md: ["Markdown", (stem) => `${stem}.md`],
  json: ["JSON", (stem) => `${stem}_middle.json`],
  "content-list": ["Content list", (stem) => `${stem}_content_list.json`],
  html: ["HTML", (stem) => `${stem}.html`],
  latex: ["LaTeX", (stem) => `${stem}.tex`],
  docx: ["DOCX", (stem) => `${stem}.docx`],
  epub: ["EPUB", (stem) => `${stem}.epub`],
  pdf: ["PDF", (stem) => `${stem}_rendered.pdf`],
};
const LAYOUT = "mineru.layout";
const ended = (state) => !["queued", "running"].includes(state);
const hasResult = (state) => ["completed", "partial"].includes(state);

export class JobView {
  constructor(id, file, history) {
    Object.assign(this, { id, job: null });
    this._file = file;
    this._history = history;
    this._tab = "rendered";
    this._closing = new AbortController();
    this._shown = null; // what the panes show, to leave them alone while only the progress changes
    byId("job").replaceChildren();
    this._watch();
  }

  /** Another view takes its place. */
  close() {
    this._closing.abort();
    this._pane?.abort();
    byId("job").replaceChildren();
  }

  /** Look at another document of the job. */
  choose(file) {
    this._file = file;
    this.draw();
  }

  /** The page's appearance changed. */
  paint() {
    if (this._frame) paint(this._frame);
  }

  async _watch() {
    const { signal } = this._closing;
    try {
      this._take(await json(`/v1/jobs/${this.id}`, { signal }));
      if (ended(this.job.state)) return;
      await follow(
        this.id,
        (job) => this._take(job),
        (trouble) => this._trouble(trouble),
        signal,
      );
    } catch (problem) {
      if (signal.aborted) return;
      if (problem.status === 404) this._history.drop(this.id);
      showProblem(problem);
    }
  }

  _trouble(problem) {
    byId("problem").replaceChildren(...(problem ? [card({ code: problem.code, message: text("reconnecting") })] : []));
  }

  _take(job) {
    if (this._closing.signal.aborted) return;
    const before = this.job?.state;
    this.job = job;
    this._history.put(job);
    this._head();
    this._panes();
    if (job.state !== before) say(`${this._name()}: ${text(job.state)}`);
  }

  _name() {
    const [first, ...rest] = this.job.files;
    return rest.length ? `${first.name} +${rest.length}` : first.name;
  }

  /** Everything anew, as after a change of language. */
  draw() {
    if (!this.job) return;
    this._shown = null;
    byId("job").replaceChildren();
    this._head();
    this._panes();
  }

  _part(name, fill) {
    const home = byId("job");
    let part = home.querySelector(`:scope > .${name}`);
    if (!part) home.append((part = el("div", { class: name })));
    fill(part);
    return part;
  }

  // the head: name, state, progress, what can be done

  _head() {
    const { job } = this;
    document.title = `${this._name()} – mineru`;
    this._part("head", (part) => {
      if (part.dataset.state !== job.state) {
        part.dataset.state = job.state;
        const lost = part.contains(document.activeElement);
        part.replaceChildren(
          el("h1", { id: "job-title", tabindex: "-1" }, this._name()),
          el("span", { class: `state ${job.state}` }, text(job.state)),
          el("div", { class: "deeds" }, ...this._deeds()),
        );
        if (lost) byId("job-title").focus();
      }
    });
    this._part("progress", (part) => this._progress(part));
    if (job.files.length > 1) this._part("files", (part) => this._files(part));
  }

  _deeds() {
    if (!ended(this.job.state)) {
      return [el("button", { type: "button", class: "button", onclick: (event) => this._cancel(event.target) }, text("cancel"))];
    }
    const deeds = [el("button", { type: "button", class: "plain danger", onclick: () => this._delete() }, text("remove_job"))];
    if (hasResult(this.job.state)) {
      const name = `${this.job.files[0].stem}.zip`;
      const whole = () => this._download(`/v1/jobs/${this.id}/result?format=zip`, name);
      deeds.unshift(el("button", { type: "button", class: "button", onclick: whole }, text("download_all")));
    }
    return deeds;
  }

  _progress(part) {
    const { progress, state, queue_position: place } = this.job;
    part.hidden = ended(state);
    if (part.hidden) return;
    const { pages_done: done, pages_total: total, seconds_left: left } = progress;
    const words = [];
    if (state === "queued" && place) words.push(text("queue_place", { place }));
    if (state === "running") words.push(total ? text("pages_of", { done, total }) : text("opening"));
    if (progress.files_total > 1) words.push(text("files_of", { done: progress.files_done, total: progress.files_total }));
    if (left) words.push(text("left", { time: left < 90 ? text("seconds", { n: Math.ceil(left) }) : text("minutes", { n: Math.round(left / 60) }) }));
    if (!part.firstChild) part.append(el("progress", { "aria-label": text("progress") }), el("p", { class: "quiet" }));
    const [bar, line] = part.children;
    if (total) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    line.textContent = words.join(" · ");
    if (total && Math.floor((done / total) * 4) !== this._quarter) {
      this._quarter = Math.floor((done / total) * 4); // a screen reader hears of quarters, not of every page
      say(line.textContent);
    }
  }

  _files(part) {
    const key = JSON.stringify([this._file, this.job.files.map((file) => [file.state, file.pages_done])]);
    if (part.dataset.key === key) return;
    part.dataset.key = key;
    const focused = part.contains(document.activeElement) ? document.activeElement.hash : null;
    part.replaceChildren(
      el(
        "ul",
        { "aria-label": text("documents") },
        ...this.job.files.map((file) =>
          el(
            "li",
            {},
            el(
              "a",
              { href: `#/jobs/${this.id}/${file.index}`, "aria-current": file.index === this._file && "true" },
              el("span", { class: `dot ${file.state}`, "aria-hidden": "true" }),
              file.name,
              el("span", { class: "unseen" }, ` ${text(file.state)}`),
            ),
          ),
        ),
      ),
    );
    if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  async _cancel(button) {
    byId("job-title").focus(); // the button goes
    button.disabled = true;
    button.textContent = text("canceling");
    await this._try(async () => this._take(await json(`/v1/jobs/${this.id}/cancel`, { method: "POST" })));
  }

  async _delete() {
    if (!confirm(text("remove_sure"))) return;
    await this._try(async () => {
      await request(`/v1/jobs/${this.id}`, { method: "DELETE" });
      this._history.drop(this.id);
      location.hash = "#/";
    });
  }

  async _download(path, name) {
    await this._try(async () => keep(await (await request(path)).blob(), name));
  }

  async _try(deed) {
    try {
      await deed();
    } catch (problem) {
      showProblem(problem instanceof Problem ? problem : new Problem({ message: String(problem) }));
    }
  }

  // the panes: source beside result

  _panes() {
    const file = this.job.files[this._file] ?? this.job.files[0];
    const paged = file.pages_total > 0 && !this.job.options.pages;
    const key = [file.index, file.state, paged && !ended(file.state) ? file.pages_total : 0].join();
    if (this._shown === key) return;
    this._shown = key;
    this._pane?.abort();
    this._pane = new AbortController();
    this._frame = null;
    this._part("panes", (part) => {
      part.replaceChildren();
      part.classList.toggle("single", !(hasResult(file.state) || paged));
      if (hasResult(file.state)) this._finished(part, file, this._pane.signal);
      else this._unfinished(part, file, paged, this._pane.signal);
    });
  }

  _unfinished(part, file, paged, signal) {
    const pages = Array.from({ length: paged ? file.pages_total : 0 }, (_, index) => ({ number: index + 1, blocks: [] }));
    if (pages.length) part.append(this._sourcePane(file, pages, signal));
    const error = file.error ?? this.job.error;
    const inner = error ? card(error) : el("p", { class: "quiet empty" }, ended(file.state) ? text(file.state) : text("no_result"));
    part.append(el("section", { class: "pane result", "aria-label": text("result") }, inner));
  }

  async _finished(part, file, signal) {
    const read = async (format, kind) => {
      if (!this.job.formats.includes(format)) return null;
      return (await request(this._path(file, format), { signal }))[kind]();
    };
    try {
      const [middle, html, markdown] = await Promise.all([read("json", "json"), read("html", "text"), read("md", "text")]);
      if (signal.aborted) return;
      const pages = (middle?.pages ?? []).map((page) => ({ number: page.page_idx + 1, blocks: page.blocks }));
      const source = pages.length && (await this._hasPages(file, pages[0].number, signal));
      if (signal.aborted) return;
      part.classList.toggle("single", !source);
      if (source) part.append(this._sourcePane(file, pages, signal));
      part.append(this._resultPane(file, html, markdown, signal));
    } catch (problem) {
      if (!signal.aborted) part.append(card(problem));
    }
  }

  _path(file, format) {
    const [, name] = FILES[format];
    return `/v1/jobs/${this.id}/files/${file.index}/${name(file.stem).split("/").map(encodeURIComponent).join("/")}`;
  }

  /** Whether the document has pages that can be drawn; office files have not, and encrypted ones only while they run. */
  async _hasPages(file, number, signal) {
    try {
      await request(`/v1/jobs/${this.id}/files/${file.index}/pages/${number}.webp?width=16`, { signal });
      return true;
    } catch (problem) {
      if (problem.status === 404 || problem.status === 422) return false;
      throw problem;
    }
  }

  _sourcePane(file, pages, signal) {
    const number = el("input", { type: "number", min: pages[0].number, max: pages.at(-1).number, value: pages[0].number, "aria-label": text("page") });
    const at = () => pages.findIndex((page) => page.number === source.current());
    const go = (index) => {
      const page = pages[Math.max(0, Math.min(pages.length - 1, index))];
      source.show(page.number);
      if (this._frame) show(this._frame, page.number - 1);
    };
    const source = new Source({
      base: `/v1/jobs/${this.id}/files/${file.index}`,
      pages,
      signal,
      onPage: (current) => document.activeElement !== number && (number.value = current),
      onBlock: (page, block) => {
        source.show(page, block);
        if (this._frame) show(this._frame, page - 1, block);
      },
    });
    this._source = source;
    number.addEventListener("change", () => go(pages.findIndex((page) => page.number === Number(number.value))));
    const pane = el("section", { class: "pane source", "aria-label": text("source") });
    const kinds = new Set(pages.flatMap((page) => placed(page.blocks).map(kindOf)));
    const outlined = localStorage.getItem(LAYOUT) === "1";
    const layout = el("button", {
      type: "button", class: "toggle", "aria-pressed": String(outlined),
      onclick: () => {
        const on = layout.getAttribute("aria-pressed") !== "true";
        layout.setAttribute("aria-pressed", String(on));
        pane.classList.toggle("outlined", on);
        localStorage.setItem(LAYOUT, on ? "1" : "0");
      },
    }, text("layout"));
    pane.classList.toggle("outlined", outlined);
    const step = (label, sign, by) =>
      el("button", { type: "button", class: "plain", "aria-label": text(label), onclick: () => go(at() + by) }, sign);
    pane.append(
      el(
        "div",
        { class: "tools" },
        el("h2", {}, text("source")),
        step("page_previous", "‹", -1),
        number,
        el("span", { class: "quiet" }, text("page_of", { total: pages.length })),
        step("page_next", "›", 1),
        el("span", { class: "space" }),
        kinds.size > 0 && layout,
      ),
      el("ul", { class: "legend" }, ...[...kinds].map((kind) => el("li", { class: `kind-${kind}` }, text(`block_${kind}`)))),
      source.element,
    );
    return pane;
  }

  _resultPane(file, html, markdown, signal) {
    const views = {};
    if (html !== null) {
      views.rendered = frameOf(html, text("rendered"), (page, block) => this._source?.show(page + 1, block));
      this._frame = views.rendered;
    }
    if (markdown !== null) views.markdown = el("pre", { class: "markdown", tabindex: "0" }, markdown);
    const body = el("div", { class: "body" });
    const tabs = el("div", { class: "tabs", role: "tablist", "aria-label": text("result") });
    const choose = (name, focus) => {
      this._tab = name;
      for (const tab of tabs.children) {
        const chosen = tab.dataset.name === name;
        tab.setAttribute("aria-selected", String(chosen));
        tab.tabIndex = chosen ? 0 : -1;
        if (chosen && focus) tab.focus();
      }
      for (const [other, panel] of Object.entries(panels)) panel.hidden = other !== name;
    };
    const panels = {};
    for (const [name, content] of Object.entries(views)) {
      tabs.append(el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, data: { name }, onclick: () => choose(name) }, text(name)));
      panels[name] = el("div", { role: "tabpanel", id: `panel-${name}`, class: "panel", "aria-labelledby": `tab-${name}` }, content);
      body.append(panels[name]);
    }
    tabs.addEventListener("keydown", (event) => {
      const names = Object.keys(views);
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(names[(names.indexOf(this._tab) + step + names.length) % names.length], true);
    });
    if (!(this._tab in views)) this._tab = Object.keys(views)[0];
    if (this._tab) choose(this._tab);
    return el(
      "section",
      { class: "pane result", "aria-label": text("result") },
      el("div", { class: "tools" }, tabs, el("span", { class: "space" }), markdown !== null && this._copyButton(markdown), this._menu(file, signal)),
      this._notes(file, html),
      body,
    );
  }

  _copyButton(markdown) {
    const button = el("button", {
      type: "button", class: "plain",
      onclick: async () => {
        try {
          await copy(markdown);
          button.textContent = text("copied");
          say(text("copied"));
          setTimeout(() => (button.textContent = text("copy")), 2000);
        } catch {
          showProblem({ code: "unknown", message: text("copy_failed") });
        }
      },
    }, text("copy"));
    return button;
  }

  _menu(file, signal) {
    const menu = el(
      "details",
      { class: "menu" },
      el("summary", {}, text("download")),
      el(
        "ul",
        {},
        ...this.job.formats.filter((format) => format in FILES).map((format) => {
          const [label, name] = FILES[format];
          const get = () => {
            menu.open = false;
            menu.firstChild.focus();
            this._download(this._path(file, format), name(file.stem));
          };
          return el("li", {}, el("button", { type: "button", class: "plain", onclick: get }, label));
        }),
      ),
    );
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      menu.open = false;
      menu.firstChild.focus();
    });
    document.addEventListener("click", (event) => menu.contains(event.target) || (menu.open = false), { signal });
    return menu;
  }

  _notes(file, html) {
    const facts = [size(file.bytes), file.tier, file.engine, file.model, file.seconds !== null && text("seconds", { n: file.seconds.toFixed(1) }), file.cached && text("cached")];
    const notes = el("div", { class: "notes" }, el("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")));
    if (html === null) notes.append(el("p", { class: "quiet" }, text("no_html")));
    if (file.diagnostics.length) {
      const list = file.diagnostics.map(({ message, page }) => el("li", {}, page === null ? message : `${text("page_n", { n: page + 1 })}: ${message}`));
      notes.append(el("details", {}, el("summary", {}, text("notices", { n: list.length })), el("ul", {}, ...list)));
    }
    return notes;
  }
}
