/** One object: body, history, differences and owners. */

import { bytes, clock, count, duration, line, plural } from "./format.js";
import { causesText, resultText } from "./controllers.js";
import { differences, pathText } from "./diff.js";
import { foreign, h, list, setState, setText, setTime, shape, stateWord, timeAgo } from "./dom.js";
import { openFeed, parsed } from "./feed.js";
import { drawGraph } from "./graph.js";
import { tableLink } from "./objects.js";
import { controllerLink, objectLink } from "./route.js";
import { tree, valueText } from "./tree.js";

const KEPT_BODIES = 20;
const VERSION = "metadata.resourceVersion";
const SHOWN_AT_FIRST = 60;
const MOST_DIFFERENCES = 200;

export function openObject(route) {
  const { name: informer, key } = route;
  const query = new URLSearchParams({ informer, key });
  const head = heading(key);
  const notice = h("p", { class: "notice", hidden: true });
  const body = bodyPanel();
  const change = differencePanel(query);
  const history = historyPanel(change);
  const owners = ownersPanel();
  const feed = openFeed(`api/object?${query}`, {
    onData(data) {
      for (const part of [head, body, owners, history, change]) part.update(data);
    },
    onState({ state, text }) {
      notice.hidden = state === "live" || state === "connecting";
      setText(notice, line(text));
    },
  });
  return {
    element: h(
      "div",
      { class: "object" },
      head.element,
      notice,
      h(
        "div",
        { class: "columns" },
        history.element,
        h("div", { class: "column" }, change.element, owners.element, body.element),
      ),
    ),
    path: [
      ["Overview", "#/"],
      [informer, tableLink(informer)],
      [key, objectLink(informer, key)],
    ],
    close() {
      feed.close();
      change.close();
    },
  };
}

function heading(key) {
  const kind = h("bdi", { class: "kind" });
  const name = h("h1", {}, foreign(key.split("/").at(-1), 253));
  const space = h("bdi", { class: "group" });
  const state = stateWord("idle", "");
  return {
    element: h("div", { class: "title" }, h("div", {}, h("p", {}, kind, space), name), state),
    update(it) {
      setText(kind, line(it.kind, 80));
      setText(space, it.namespace ? `in ${line(it.namespace, 80)}` : "");
      if (!it.exists) setState(state, "idle", "deleted");
      else if (it.trouble) setState(state, "error", it.trouble);
      else setState(state, "ok", "in the cache");
    },
  };
}

function bodyPanel() {
  const shown = tree();
  const note = h("p", { class: "rest" });
  return {
    element: h("section", { class: "panel" }, h("h2", {}, "Body"), note, shown.element),
    update(it) {
      setText(note, it.body ? leftOut(it.hidden) : "There is no body of this object.");
      shown.update(it.body);
    },
  };
}

function leftOut(hidden) {
  return hidden.length ? `Left out: ${hidden.map((it) => line(it, 80)).join(", ")}` : "";
}

function ownersPanel() {
  const box = h("div", {
    class: "box",
    tabindex: 0,
    role: "region",
    "aria-label": "Picture of owners",
  });
  const rest = h("p", { class: "rest" });
  const element = h("section", { class: "panel", hidden: true }, h("h2", {}, "Owners"), box, rest);
  let drawn = "";
  return {
    element,
    update({ graph, uid }) {
      element.hidden = graph.nodes.length < 2;
      const notes = [];
      if (graph.cut) notes.push(`and ${plural(graph.cut, "more object")}`);
      if (graph.skipped.length)
        notes.push(`not searched: ${line(graph.skipped.join(", "), 200)}`);
      setText(rest, notes.join("; "));
      const text = JSON.stringify(graph);
      if (text === drawn || element.hidden) return;
      drawn = text;
      box.replaceChildren(drawGraph(graph, uid));
      showSelf(box);
    },
  };
}

/** Scrolls the picture, and only it, to the object of the page. */
function showSelf(box) {
  const self = box.querySelector(".self")?.getBoundingClientRect();
  if (!self) return;
  const frame = box.getBoundingClientRect();
  box.scrollTop = self.top - frame.top - (frame.height - self.height) / 2;
  box.scrollLeft = self.left - frame.left - (frame.width - self.width) / 2;
}

// ------------------------------------------------------------ history

const CHANGES = {
  listed: ["First seen in a list", "idle"],
  added: ["Added", "ok"],
  updated: ["Updated", "change"],
  deleted: ["Deleted", "error"],
};

function historyPanel(change) {
  const items = h("ol", { class: "history" });
  const show = list(
    items,
    (it) => it.id,
    (it) => ENTRIES[it.type](it, change),
  );
  const forgotten = h("p", { class: "rest" });
  const kinds = new Set(["state", "reconcile", "event"]);
  let last = null;
  let limit = SHOWN_AT_FIRST;
  const more = h(
    "button",
    {
      type: "button",
      onclick: () => {
        limit *= 4;
        update(last);
      },
    },
    "Show more",
  );
  const filters = ["state", "reconcile", "event"].map((it) => {
    const number = h("span", { class: "count" });
    const input = h("input", {
      type: "checkbox",
      checked: true,
      onchange() {
        if (input.checked) kinds.add(it);
        else kinds.delete(it);
        update(last);
      },
    });
    const label = `${it[0].toUpperCase()}${it.slice(1)}s`;
    return { type: it, number, element: h("label", { class: "choice" }, input, label, number) };
  });

  function update(data) {
    if (!data) return;
    last = data;
    const all = historyOf(data);
    for (const { type, number } of filters) {
      setText(number, count(all.filter((it) => it.type === type).length));
    }
    const chosen = all.filter((it) => kinds.has(it.type));
    show(chosen.slice(0, limit));
    more.hidden = chosen.length <= limit;
    const notes = [];
    if (data.forgotten) notes.push(`${plural(data.forgotten, "older state")} forgotten.`);
    if (data.events_error) notes.push(`Events are not shown: ${line(data.events_error, 200)}`);
    setText(forgotten, notes.join(" "));
  }

  return {
    element: h(
      "section",
      { class: "panel past" },
      h(
        "div",
        { class: "heading" },
        h("h2", {}, "History"),
        h(
          "div",
          { class: "choices", role: "group", "aria-label": "Show" },
          filters.map((it) => it.element),
        ),
      ),
      h(
        "div",
        { class: "box", tabindex: 0, role: "region", "aria-label": "History" },
        items,
        more,
        forgotten,
      ),
    ),
    update,
  };
}

/** States, reconciles and events in one list, the newest first. */
function historyOf(data) {
  const states = data.states.map((it) => ({ ...it, type: "state", id: `state ${it.number}` }));
  const reconciles = data.reconciles.map((it) => ({
    ...it,
    type: "reconcile",
    request: it.key === data.key ? "" : `, request ${line(it.key, 80)}`,
    id: `reconcile ${it.controller} ${it.time}`,
  }));
  const events = data.events.map((it) => ({
    ...it,
    type: "event",
    time: it.last ?? it.first,
    kind: it.type,
    id: `event ${it.reason} ${it.source} ${it.first}`,
  }));
  return [...states.toReversed(), ...reconciles, ...events].sort(
    (one, other) => (other.time ?? 0) - (one.time ?? 0),
  );
}

const ENTRIES = { state: stateEntry, reconcile: reconcileEntry, event: eventEntry };

function entryFrame(level, title, ...rest) {
  const time = timeAgo(null);
  const element = h(
    "li",
    { class: "entry" },
    shape(level),
    h("div", {}, h("div", { class: "line" }, title, time), rest),
  );
  return { element, time };
}

function stateEntry(it, change) {
  const [word, level] = CHANGES[it.change] ?? [it.change, "idle"];
  const title = h(
    "button",
    {
      type: "button",
      class: "link",
      title: "Show the changes",
      onclick: () => change.choose(it.number - 1, it.number),
    },
    line(word, 40),
  );
  const side = (name, label) =>
    h(
      "label",
      { class: "side", title: label },
      h("input", {
        type: "radio",
        name,
        "aria-label": `${label} version ${line(it.version, 40)}`,
        "data-state": it.number,
        onchange: () => change.chooseOne(name, it.number),
      }),
      name,
    );
  const told = it.paths.filter((path) => path !== VERSION);
  const paths = told.slice(0, 6).map((path) => h("li", {}, foreign(path, 160)));
  const more = it.more + told.length - paths.length;
  if (more > 0) paths.push(h("li", { class: "rest" }, `and ${count(more)} more`));
  const { element, time } = entryFrame(
    level,
    h(
      "span",
      {},
      title,
      h("span", { class: "size" }, bytes(it.bytes)),
      h("span", { class: "sides" }, side("from", "From"), side("to", "To")),
    ),
    h("ul", { class: "paths" }, paths),
  );
  setTime(time, it.time);
  return { element, update() {} };
}

function reconcileEntry(it) {
  const title = h(
    "span",
    {},
    "Reconciled by ",
    h("a", { href: controllerLink(it.controller) }, foreign(it.controller, 60)),
    h("span", { class: "size" }, duration(it.seconds) + it.request),
  );
  const { element, time } = entryFrame(
    it.error ? "error" : "ok",
    title,
    h("p", { class: it.error ? "text error" : "text" }, resultText(it)),
    it.causes.length ? h("p", { class: "because" }, `because of ${causesText(it.causes)}`) : null,
  );
  setTime(time, it.time);
  return { element, update() {} };
}

function eventEntry(it) {
  const level = it.kind === "Normal" ? "idle" : "warning";
  const number = h("span", { class: "size" });
  const text = h("p", { class: "text" });
  const { element, time } = entryFrame(
    level,
    h("span", {}, foreign(it.reason, 80), number),
    text,
    h("p", { class: "because" }, `event of ${line(it.source || "unknown source", 80)}`),
  );
  return {
    element,
    update(next) {
      setText(number, next.count > 1 ? `${count(next.count)} times` : "");
      setText(text, line(next.message, 600));
      setTime(time, next.time);
    },
  };
}

// ------------------------------------------------------------ differences

/** Difference of two states: of the last two, until others are chosen. */
function differencePanel(query) {
  const title = h("p", { class: "summary" });
  const rows = h("ul", { class: "differences" });
  const box = h(
    "div",
    { class: "box", tabindex: 0, role: "region", "aria-label": "Differences" },
    rows,
  );
  const latest = h(
    "button",
    { type: "button", hidden: true, onclick: follow },
    "Follow the newest",
  );
  const bodies = new Map();
  let chosen = null; // [from, to]
  let states = [];
  let shown = "";
  let closed = false;

  async function body(number) {
    if (!bodies.has(number)) {
      const response = await fetch(`api/state?${query}&number=${number}`);
      if (!response.ok) throw new Error(line(await response.text(), 200));
      if (bodies.size >= KEPT_BODIES) bodies.delete(bodies.keys().next().value);
      bodies.set(number, parsed(await response.text()).body);
    }
    return bodies.get(number);
  }

  function pair() {
    return chosen ?? [states.at(-2)?.number, states.at(-1)?.number];
  }

  async function show() {
    const [from, to] = pair();
    latest.hidden = chosen === null;
    for (const input of document.querySelectorAll("input[data-state]")) {
      input.checked = Number(input.dataset.state) === (input.name === "from" ? from : to);
    }
    if (shown === `${from} ${to}`) return;
    shown = `${from} ${to}`;
    if (from === undefined || from === to) {
      setText(title, "There is no state before this one.");
      rows.replaceChildren();
      return;
    }
    try {
      const [before, after] = await Promise.all([body(from), body(to)]);
      // Another pair may have been chosen meanwhile.
      if (!closed && shown === `${from} ${to}`) draw(from, to, changesOf(before, after));
    } catch (error) {
      setText(title, `The states cannot be compared: ${error.message}`);
      rows.replaceChildren();
      shown = "";
    }
  }

  function draw(from, to, found) {
    setText(
      title,
      `${whenText(from)} to ${whenText(to)}: ` +
        (found.length > MOST_DIFFERENCES - 1
          ? `at least ${plural(found.length, "difference")}`
          : plural(found.length, "difference")),
    );
    rows.replaceChildren(...found.map(differenceRow));
  }

  function whenText(number) {
    const state = states.find((it) => it.number === number);
    if (!state) return "a state that is not kept any more";
    const version = `version ${line(state.version, 40)}`;
    return state.time ? `${clock(state.time)} (${version})` : version;
  }

  function follow() {
    chosen = null;
    show();
  }

  const panel = {
    element: h(
      "section",
      { class: "panel" },
      h("div", { class: "heading" }, h("h2", {}, "Difference"), title, latest),
      box,
    ),
    choose(from, to) {
      const known = states.some((it) => it.number === from);
      chosen = [known ? from : to, to];
      show();
    },
    chooseOne(side, number) {
      const [from, to] = pair();
      chosen = side === "from" ? [number, to] : [from, number];
      show();
    },
    update(data) {
      states = data.states;
      show();
    },
    close() {
      closed = true;
    },
  };
  return panel;
}

/** Differences that tell something: each state has another version. */
function changesOf(before, after) {
  const found = differences(before, after, MOST_DIFFERENCES);
  return found.filter(({ path }) => pathText(path) !== VERSION);
}

const SIGNS = { added: "+", removed: "−", changed: "~" };

function differenceRow({ kind, path, before, after }) {
  const value = (className, sign, it) =>
    h(
      "p",
      { class: className },
      h("span", { class: "sign" }, sign),
      foreign(valueText(it, 2000), 2000),
    );
  return h(
    "li",
    {},
    h(
      "p",
      { class: "path" },
      h("span", { class: "sign", title: kind }, SIGNS[kind]),
      foreign(pathText(path), 300),
    ),
    before === undefined ? null : value("before", "−", before),
    after === undefined ? null : value("after", "+", after),
  );
}
