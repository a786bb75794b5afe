/** The pages of a document as it was sent, with the blocks that were found drawn over them. */

import { request } from "./api.js";
import { el } from "./dom.js";
import { text } from "./words.js";

const WIDTH = 1200; // pixels of a page picture
const KINDS = {
  doc_title: "title", paragraph_title: "title", title: "title",
  table: "table",
  image: "image", chart: "image", seal: "image",
  equation: "formula", interline_equation: "formula",
  list: "list", index: "list", ref_text: "list",
  code: "code", algorithm: "code",
  header: "margin", footer: "margin", page_number: "margin", aside_text: "margin", page_footnote: "margin",
};

/** The kind of a block, of which `style.css` knows the colour. */
export const kindOf = ({ type }) => KINDS[type] ?? (/_(caption|footnote)$/.test(type) ? "margin" : "text");

/** The blocks of a page that have a place of their own, and the captions and notes that figures and tables hold. */
export const placed = (blocks) =>
  blocks
    .flatMap((block) => [block, ...(Array.isArray(block.content) ? block.content : []).filter(({ type }) => /_(caption|footnote)$/.test(type))])
    .filter(({ bbox }) => bbox);

/**
 * Page pictures below each other, loaded when they come into sight.
 * @param {{base: string, pages: {number: number, blocks: object[]}[], onBlock: Function, onPage: Function, signal: AbortSignal}} options
 *   `number` counts from 1; `onPage` gets the number of the page in sight
 */
export class Source {
  constructor({ base, pages, onBlock, onPage, signal }) {
    this.pages = pages;
    this.element = el("div", { class: "pages", tabindex: "0", role: "group", "aria-label": text("source") });
    this._figures = new Map();
    this._urls = [];
    const near = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          near.unobserve(target);
          this._load(base, target, signal);
        }
      },
      { root: this.element, rootMargin: "600px 0px" },
    );
    for (const page of pages) {
      const figure = this._figure(page, onBlock);
      this._figures.set(page.number, figure);
      this.element.append(figure);
      near.observe(figure);
    }
    this.element.addEventListener("scroll", () => onPage(this.current()), { passive: true });
    signal.addEventListener("abort", () => {
      near.disconnect();
      this._urls.forEach((url) => URL.revokeObjectURL(url));
    });
  }

  _figure({ number, blocks }, onBlock) {
    const boxes = el("div", { class: "boxes", "aria-hidden": "true" }); // what it tells, the result tells better
    for (const block of placed(blocks)) {
      const kind = kindOf(block);
      const box = el("div", {
        class: `box kind-${kind}`,
        title: text(`block_${kind}`),
        data: { block: block.index, order: block.index + 1 },
        onclick: () => onBlock(number, block.index),
      });
      const [left, top, right, bottom] = block.bbox.map((share) => share * 100);
      Object.assign(box.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
      boxes.append(box);
    }
    const sheet = el("div", { class: "sheet" }, boxes);
    return el("figure", { class: "page", data: { page: number } }, sheet, el("figcaption", {}, String(number)));
  }

  async _load(base, figure, signal) {
    const sheet = figure.querySelector(".sheet");
    const number = Number(figure.dataset.page);
    try {
      const answer = await request(`${base}/pages/${number}.webp?width=${WIDTH}`, { signal });
      const url = URL.createObjectURL(await answer.blob());
      this._urls.push(url);
      const image = el("img", { src: url, alt: text("page_n", { n: number }) });
      await image.decode();
      sheet.style.aspectRatio = `${image.naturalWidth} / ${image.naturalHeight}`;
      sheet.prepend(image);
      figure.classList.add("loaded");
    } catch (problem) {
      if (!signal.aborted) sheet.prepend(el("p", { class: "quiet" }, problem.message || text("code_network")));
    }
  }

  /** Number of the page in sight. */
  current() {
    const middle = this.element.scrollTop + this.element.clientHeight / 3;
    let found = this.pages[0].number;
    for (const [number, figure] of this._figures) if (figure.offsetTop <= middle) found = number;
    return found;
  }

  /** Bring a page into sight, and one of its blocks out. */
  show(number, block) {
    const figure = this._figures.get(number);
    if (!figure) return;
    for (const old of this.element.querySelectorAll(".chosen")) old.classList.remove("chosen");
    const box = block === undefined ? null : figure.querySelector(`[data-block="${block}"]`);
    box?.classList.add("chosen");
    const offset = box ? figure.offsetTop + box.offsetTop - this.element.clientHeight / 3 : figure.offsetTop - 12;
    this.element.scrollTo({ top: offset });
  }
}
