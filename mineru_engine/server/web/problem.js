/** Errors for people: what it means, what the server said, what to do, and the code to look up. */

import { byId, el } from "./dom.js";
import { meaning } from "./words.js";

/** A card for an error as the API tells it. */
export const card = ({ code, message, hint }) =>
  el(
    "div",
    { class: "problem" },
    el("strong", {}, meaning(code)),
    message && el("p", {}, message),
    hint && el("p", { class: "hint" }, hint),
    el("code", {}, code),
  );

/** Show an error above everything else. */
export const showProblem = (problem) => byId("problem").replaceChildren(card(problem));
