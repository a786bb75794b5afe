/** The page: which view is shown, and what stays when another is. `#/` is a new job, `#/jobs/ID/FILE` shows one. */

import { byId, say } from "./dom.js";
import { History } from "./history.js";
import { JobView } from "./job.js";
import { Start } from "./start.js";
import { apply, language, setLanguage } from "./words.js";

const THEME = "mineru.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

const history = new History();
const start = new Start((job) => {
  history.put(job);
  location.hash = `#/jobs/${job.id}`;
});
let view = null;

function route() {
  const [, id, file] = /^#\/jobs\/([\w-]+)(?:\/(\d+))?$/.exec(location.hash) ?? [];
  if (view && view.id === id) return view.choose(Number(file ?? 0));
  view?.close();
  view = id ? new JobView(id, Number(file ?? 0), history) : null;
  byId("problem").replaceChildren();
  byId("start").hidden = Boolean(id);
  byId("job").hidden = !id;
  history.mark(id);
  say("");
  if (!id) document.title = "mineru";
}

function paint() {
  const choice = localStorage.getItem(THEME) ?? "auto";
  byId("theme").value = choice;
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  view?.paint();
}

byId("language").value = language();
byId("language").addEventListener("change", (event) => {
  setLanguage(event.target.value);
  history.draw();
  start.draw();
  view?.draw();
});
byId("theme").addEventListener("change", (event) => {
  localStorage.setItem(THEME, event.target.value);
  paint();
});
dark.addEventListener("change", paint);
addEventListener("hashchange", () => {
  route();
  byId("main").focus({ preventScroll: true });
});
apply();
paint();
route();
history.load();
