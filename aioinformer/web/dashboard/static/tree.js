/** A JSON value as a tree that folds, made only as far as it is open. */

import { bytes, count, line, lines, plural } from "./format.js";
import { h, setAttribute, setText } from "./dom.js";

const LONGEST = 200; // characters of a text
const MOST = 100; // parts of an object or list at a time
const OPENED = new Set(["metadata", "spec", "status", "data"]);

/** Makes a tree; `update(value)` changes what is another, and keeps what is open. */
export function tree() {
  const element = h("ul", { class: "tree" });
  const parts = branch(element, 0);
  return { element, update: (value) => parts.update(value ?? {}) };
}

function isBranch(value) {
  return value !== null && typeof value === "object";
}

/** Parts of an object or a list, made as far as they are asked for. */
function branch(parent, depth) {
  const nodes = new Map();
  let limit = MOST;
  let shown = {};
  const more = h(
    "li",
    {},
    h("button", {
      type: "button",
      class: "more",
      onclick: () => {
        limit += 10 * MOST;
        update(shown);
      },
    }),
  );

  function update(value) {
    shown = value;
    const entries = Object.entries(value);
    const kept = new Map(entries.slice(0, limit));
    for (const [key, entry] of nodes) {
      if (kept.has(key) && entry.fits(kept.get(key))) continue;
      entry.element.remove();
      nodes.delete(key);
    }
    let place = parent.firstElementChild;
    for (const [key, item] of kept) {
      let entry = nodes.get(key);
      if (!entry) {
        entry = isBranch(item) ? folder(key, depth, Array.isArray(value)) : leaf(key);
        nodes.set(key, entry);
      }
      entry.update(item);
      if (entry.element === place) place = place.nextElementSibling;
      else parent.insertBefore(entry.element, place);
    }
    if (entries.length > limit) {
      setText(more.firstChild, `Show ${count(Math.min(10 * MOST, entries.length - limit))} more`);
      parent.append(more);
    } else more.remove();
  }

  return { update };
}

function folder(key, depth, inList) {
  const name = h("span", { class: "field" }, line(key, 120));
  const hint = h("bdi", { class: "hint" });
  const summary = h("span", { class: "size" });
  const inside = h("ul", { hidden: true });
  const button = h(
    "button",
    { type: "button", class: "fold", "aria-expanded": "false", onclick: () => open(inside.hidden) },
    name,
    hint,
    summary,
  );
  const parts = branch(inside, depth + 1);
  let value = {};

  function open(now) {
    inside.hidden = !now;
    setAttribute(button, "aria-expanded", String(now));
    if (now) parts.update(value);
  }

  const entry = {
    element: h("li", {}, button, inside),
    fits: (it) => isBranch(it) && Array.isArray(it) === Array.isArray(value),
    update(next) {
      const first = entry.seen !== true;
      entry.seen = true;
      value = next;
      const size = Object.keys(value).length;
      if (inList) setText(hint, hintOf(value));
      setText(summary, Array.isArray(value) ? plural(size, "item") : plural(size, "field"));
      if (first && startsOpen(key, depth, size)) open(true);
      else if (!inside.hidden) parts.update(value);
    },
  };
  return entry;
}

/** Name or type of an item of a list, which its place does not tell. */
function hintOf(value) {
  const found = value.name ?? value.type;
  return typeof found === "string" ? line(found, 60) : "";
}

function startsOpen(key, depth, size) {
  return depth === 0 ? OPENED.has(key) || size <= 5 : size <= 4 && depth < 5;
}

function leaf(key) {
  const text = h("bdi", { class: "leaf" });
  const button = h("button", { type: "button", class: "more", onclick: showAll });
  const element = h("li", { class: "pair" }, h("span", { class: "field" }, line(key, 120)), text);
  let value;
  let whole = false;

  function showAll() {
    whole = true;
    draw();
  }

  function draw() {
    const long = typeof value === "string" && value.length > LONGEST;
    setAttribute(text, "class", `leaf ${value === null ? "null" : typeof value}`);
    setText(text, long && whole ? lines(value) : valueText(value, LONGEST));
    setText(button, long ? `Show all (${bytes(value.length)})` : "");
    if (long && !whole) element.append(button);
    else button.remove();
  }

  return {
    element,
    fits: (it) => !isBranch(it),
    update(next) {
      if (next === value) return;
      if (value !== undefined) flash(text);
      value = next;
      draw();
    },
  };
}

function flash(element) {
  element.getAnimations().forEach((it) => it.cancel());
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  element.animate([{ backgroundColor: "var(--lit)" }, { backgroundColor: "transparent" }], 2000);
}

/** Value of a leaf, or a whole value in one line. */
export function valueText(value, limit) {
  if (typeof value === "string") return value === "" ? '""' : line(value, limit);
  if (value === undefined) return "";
  // A part of a large value is enough; what is cut here is never shown.
  return line(JSON.stringify(value), limit);
}
