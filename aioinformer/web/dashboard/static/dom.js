/** Nodes of the page. Text from outside becomes text nodes only, never markup. */

import { age, ago, line, stamp } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element. `on...` attributes are listeners; null and false attributes are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an element of SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((it) => it != null && it !== false));
  return element;
}

/** Sets the text of an element if it is another one. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets or removes an attribute if it is another one. */
export function setAttribute(element, name, value) {
  if (value == null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Foreign text in one line: cut, isolated from the direction of its surroundings. */
export function foreign(text, limit = 300, attributes = {}) {
  return h("bdi", attributes, line(text, limit));
}

/** Word of a state with a shape: "ok", "busy", "warning", "error", "idle", "change". */
export function stateWord(level, text) {
  return h("span", { class: `state ${level}` }, shape(level), h("span", {}, text));
}

/** Changes what `stateWord` returned. */
export function setState(element, level, text) {
  if (element.className !== `state ${level}`) {
    element.className = `state ${level}`;
    element.firstChild.replaceWith(shape(level));
  }
  setText(element.lastChild, line(text, 60));
}

const SHAPES = {
  ok: ["circle", { cx: 6, cy: 6, r: 4 }],
  busy: ["path", { d: "M6 1.5a4.5 4.5 0 1 1-4.5 4.5", class: "ring" }],
  idle: ["circle", { cx: 6, cy: 6, r: 3.6, class: "ring" }],
  change: ["rect", { x: 2.5, y: 2.5, width: 7, height: 7, rx: 1.5, class: "ring" }],
  warning: ["path", { d: "M6 1 11.4 10.6H.6z" }],
  error: ["path", { d: "M6 .4 11.6 6 6 11.6.4 6z" }],
};

/** Small picture of a state, which no other state has. */
export function shape(level) {
  const [tag, attributes] = SHAPES[level];
  return s(
    "svg",
    { class: `shape ${level}`, viewBox: "0 0 12 12", "aria-hidden": "true" },
    s(tag, attributes),
  );
}

// ------------------------------------------------------------ times that go on

let serverNow = () => Date.now() / 1000;

/** Sets the function that returns the time of the server. */
export function setClock(now) {
  serverNow = now;
}

export function now() {
  return serverNow();
}

/** Element that shows how long ago a time was, and goes on showing it. */
export function timeAgo(time) {
  const element = h("time", {});
  setTime(element, time);
  return element;
}

export function setTime(element, time) {
  if (time == null) {
    delete element.dataset.time;
    element.removeAttribute("title");
  } else if (element.dataset.time !== String(time)) {
    element.dataset.time = time;
    element.title = stamp(time);
  }
  setText(element, ago(time, now()));
}

/** Element that shows how old something is: seconds at the time of the server. */
export function setAge(element, seconds, at) {
  if (seconds == null) delete element.dataset.born;
  else element.dataset.born = at - seconds;
  setText(element, age(seconds));
}

/** Moves all shown times on. */
export function tick(root) {
  for (const element of root.querySelectorAll("[data-time]")) {
    setText(element, ago(Number(element.dataset.time), now()));
  }
  for (const element of root.querySelectorAll("[data-born]")) {
    setText(element, age(now() - Number(element.dataset.born)));
  }
}

// ------------------------------------------------------------ lists in place

/** Makes the children of an element follow a list; what stays is updated, not made again.
 *
 * @param keyOf returns the key of an item; equal keys are told apart by their order.
 * @param make returns `{element, update(item)}` for a new item.
 */
export function list(parent, keyOf, make) {
  let shown = new Map();
  return (items) => {
    const next = new Map();
    for (const item of items) {
      const key = freeKey(next, keyOf(item));
      const entry = shown.get(key) ?? make(item);
      entry.update(item);
      next.set(key, entry);
    }
    for (const [key, entry] of shown) if (!next.has(key)) entry.element.remove();
    let place = parent.firstElementChild;
    for (const { element } of next.values()) {
      // An element that is in its place is not moved: it would lose the focus.
      if (element === place) place = place.nextElementSibling;
      else parent.insertBefore(element, place);
    }
    shown = next;
  };
}

function freeKey(taken, key) {
  let free = key;
  for (let more = 2; taken.has(free); more += 1) free = `${key}\n${more}`;
  return free;
}

// ------------------------------------------------------------ names and values

/** List of figures with their names; `set(name, text, level)` changes one. */
export function figures(names, className = "") {
  const values = new Map(names.map((it) => [it, h("dd", {}, "–")]));
  const parts = names.map((it) => h("div", {}, h("dt", {}, it), values.get(it)));
  return {
    element: h("dl", { class: `figures ${className}` }, parts),
    value: (name) => values.get(name),
    set(name, text, level = "") {
      setText(values.get(name), text);
      setAttribute(values.get(name), "class", level);
    },
  };
}
