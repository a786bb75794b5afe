/**
 * A document's result, rendered. It is somebody's file: it is reduced to the elements below, and shown in a frame in
 * which no script runs.
 */

import { el } from "./dom.js";

const TAGS = new Set(
  ("article section div p span h1 h2 h3 h4 h5 h6 strong b em i u s del ins sub sup small mark code pre blockquote hr br " +
    "ul ol li dl dt dd table caption colgroup col thead tbody tfoot tr th td figure figcaption img a details summary")
    .split(" "),
);
const ATTRIBUTES = new Set(
  ("class id lang dir title alt colspan rowspan scope start value type open " +
    "data-page-idx data-block-type data-block-index data-docvortex-latex data-formula-display").split(" "),
);
const DROPPED = new Set("script style template noscript title head iframe object embed svg math".split(" "));
const MAX_FORMULA = 10_000; // characters
const FORMULAS_AT_ONCE = 40;

/**
 * A frame that shows the HTML that the engine wrote.
 * @param {string} html
 * @param {string} label
 * @param {(page: number, block: number) => void} onChoose a block was clicked
 */
export function frameOf(html, label, onChoose) {
  const frame = el("iframe", {
    class: "rendered",
    title: label,
    sandbox: "allow-same-origin allow-popups allow-popups-to-escape-sandbox", // no scripts, forms, or way out
    referrerpolicy: "no-referrer",
  });
  frame.addEventListener("load", () => {
    const inner = frame.contentDocument;
    paint(frame);
    drawFormulas(inner);
    inner.addEventListener("click", (event) => {
      const block = event.target.closest?.("a") ? null : event.target.closest?.("[data-page-idx]");
      if (block) onChoose(Number(block.dataset.pageIdx), Number(block.dataset.blockIndex));
    });
  });
  frame.srcdoc =
    '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/assets/vendor/temml/Temml-Local.css">' +
    `<link rel="stylesheet" href="/assets/document.css"><body>${cleaned(html)}</body>`;
  return frame;
}

/** Give a frame the page's appearance. */
export function paint(frame) {
  const inner = frame.contentDocument?.documentElement;
  if (inner) inner.dataset.theme = document.documentElement.dataset.theme;
}

/** Scroll to a block of the result; to the page's first if there is no such block. */
export function show(frame, page, block) {
  const inner = frame.contentDocument;
  const found =
    inner?.querySelector(`[data-page-idx="${page}"]:is([data-block-index="${block}"], :has([data-block-index="${block}"]))`) ??
    inner?.querySelector(`[data-page-idx="${page}"]`);
  if (!found) return;
  found.scrollIntoView({ block: "nearest" });
  for (const old of inner.querySelectorAll(".chosen")) old.classList.remove("chosen");
  if (block !== undefined) found.classList.add("chosen");
}

/** The body of a document, with nothing in it but what a result is made of. */
function cleaned(html) {
  const start = Math.max(0, html.indexOf("<body")); // the head has nothing for us, and its style is against our policy
  const { body } = new DOMParser().parseFromString(html.slice(start), "text/html"); // inert: nothing runs or loads
  for (const node of [...body.querySelectorAll("*")].reverse()) clean(node);
  return body.innerHTML;
}

function clean(node) {
  const tag = node.localName;
  if (DROPPED.has(tag)) return node.remove();
  if (!TAGS.has(tag)) return node.replaceWith(...node.childNodes);
  const { src, href } = { src: node.getAttribute("src") ?? "", href: node.getAttribute("href") ?? "" };
  for (const { name } of [...node.attributes]) if (!ATTRIBUTES.has(name)) node.removeAttribute(name);
  if (tag === "img" && /^data:image\/(png|jpeg|gif|webp);/i.test(src)) node.setAttribute("src", src);
  if (tag === "a" && href.startsWith("#")) node.setAttribute("href", href);
  if (tag === "a" && /^(https?|mailto):/i.test(href)) {
    node.setAttribute("href", href);
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
}

/** Set LaTeX as MathML, a few formulas at a time; what Temml does not know stays as it was written. */
async function drawFormulas(inner) {
  const waiting = [...inner.querySelectorAll("[data-docvortex-latex]")];
  if (!waiting.length) return;
  const { default: temml } = await import("./vendor/temml/temml.mjs");
  while (waiting.length && inner.defaultView) {
    for (const node of waiting.splice(0, FORMULAS_AT_ONCE)) {
      const latex = node.dataset.docvortexLatex;
      const display = node.dataset.formulaDisplay === "block";
      const place = document.createElement("span");
      try {
        if (latex.length > MAX_FORMULA) throw new Error("too long");
        temml.render(latex, place, { displayMode: display, throwOnError: true, trust: false, maxExpand: 500 });
        node.replaceChildren(...place.childNodes);
      } catch {
        node.replaceChildren(el("code", {}, latex.slice(0, MAX_FORMULA)));
      }
    }
    await new Promise((resolve) => setTimeout(resolve));
  }
}
