/** Building the page's elements. Text is always set as text; nothing here takes HTML. */

/**
 * An element with properties and children.
 * @param {string} tag
 * @param {Record<string, unknown>} [properties] `on…` are listeners, `data` the dataset, others attributes
 * @param {...(Node | string | null | undefined | false)} children
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** The element with that id. */
export const byId = (id) => document.getElementById(id);

/** Tell a screen reader something that the eye sees anyway. */
export function say(text) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
}

/** Offer bytes as a file to keep. */
export function keep(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Put text on the clipboard, also where the page came without TLS and the browser has no clipboard for it. */
export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = el("textarea", { class: "unseen", readonly: true });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("copy");
}
