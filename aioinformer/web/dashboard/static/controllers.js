/** One controller: what runs, waits and fails, and why. */

import { age, count, duration, line, rate } from "./format.js";
import {
  figures,
  foreign,
  h,
  list,
  now,
  setAge,
  setAttribute,
  setState,
  setText,
  setTime,
  stateWord,
} from "./dom.js";
import { controllerState } from "./overview.js";
import { openFeed } from "./feed.js";
import { controllerLink, objectLink } from "./route.js";
import { spark } from "./spark.js";

export function openController(route, app) {
  const { name } = route;
  const state = stateWord("idle", "");
  const title = h("h1", {}, foreign(name, 120));
  const picture = spark("reconciles");
  const span = h("p", { class: "summary" });
  const numbers = figures(
    ["Queued", "Oldest", "Running", "Delayed", "Failing", "Rate", "p50", "p99"],
    "large",
  );
  const notice = h("p", { class: "notice", hidden: true });
  const done = h("p", { class: "done", role: "status" });
  const links = { informer: "", actions: false };
  const tables = TABLES.map((it) => table(it, name, links, (text) => setText(done, text)));
  const feed = openFeed(`api/controller?name=${encodeURIComponent(name)}`, {
    onData: update,
    onState({ state: contact, text }) {
      notice.hidden = contact === "live" || contact === "connecting";
      setText(notice, line(text));
    },
  });

  function update(it) {
    links.informer = it.informer ?? "";
    links.actions = app.overview?.actions ?? false;
    const [level, word] = controllerState(it);
    setState(state, level, word);
    picture.update(it.rates);
    setText(span, `Reconciles in the last 5 minutes, peak ${rate(Math.max(0, ...it.rates))}`);
    numbers.set("Queued", count(it.queued));
    numbers.set("Oldest", age(it.oldest), it.oldest > 30 ? "warning" : "");
    numbers.set("Running", count(it.running));
    numbers.set("Delayed", count(it.delayed));
    numbers.set("Failing", count(it.failing), it.failing ? "error" : "");
    numbers.set("Rate", rate(it.per_second));
    numbers.set("p50", duration(it.p50));
    numbers.set("p99", duration(it.p99));
    for (const shown of tables) shown.update(it);
  }

  return {
    element: h(
      "div",
      { class: "controller" },
      h("div", { class: "title" }, title, state),
      notice,
      h("div", { class: "panel wide" }, numbers.element, picture.element, span),
      done,
      h(
        "div",
        { class: "panels" },
        tables.map((it) => it.element),
      ),
    ),
    path: [
      ["Overview", "#/"],
      [name, controllerLink(name)],
    ],
    close: () => feed.close(),
  };
}

/** Tables of the page: field of the feed, columns, and the actions of a row. */
const TABLES = [
  {
    title: "Failing",
    field: "failing_list",
    more: "failing_more",
    none: "Nothing fails.",
    wide: true,
    columns: ["Request", "Error", "Failing for", "Attempts", "Next attempt"],
    actions: ["requeue", "forget"],
  },
  {
    title: "Running",
    field: "running_list",
    none: "Nothing runs at the moment.",
    columns: ["Request", "For", "Attempt", "Causes"],
    actions: [],
  },
  {
    title: "Queued",
    tall: true,
    field: "queued_list",
    more: "queued_more",
    none: "Nothing waits.",
    columns: ["Request", "Waits for", "Causes"],
    actions: [],
  },
  {
    title: "Delayed",
    field: "delayed_list",
    more: "delayed_more",
    none: "Nothing is delayed.",
    columns: ["Request", "Due", "Causes"],
    actions: ["requeue", "forget"],
  },
  {
    title: "Recent reconciles",
    field: "recent",
    none: "No reconcile has ended yet.",
    wide: true,
    uncounted: true,
    columns: ["Request", "Ended", "Took", "Result", "Attempt", "Causes"],
    actions: ["requeue"],
  },
];

function table(kind, controller, links, say) {
  const number = h("span", { class: "count" });
  const body = h("tbody");
  const rest = h("p", { class: "rest" });
  const heads = kind.columns.map((it) => h("th", { scope: "col" }, it));
  const actionHead = h(
    "th",
    { scope: "col", hidden: true },
    h("span", { class: "unseen" }, "Actions"),
  );
  const box = h(
    "div",
    { class: "box", tabindex: 0, role: "region", "aria-label": kind.title },
    h("table", {}, h("thead", {}, h("tr", {}, heads, actionHead)), body),
  );
  const show = list(body, rowKey, (item) => tableRow(kind, item, controller, links, say));
  const element = h(
    "section",
    { class: `panel ${kind.wide ? "wide" : ""} ${kind.tall ? "tall" : ""}` },
    h("h2", {}, kind.title, number),
    box,
    rest,
  );
  return {
    element,
    update(it) {
      const items = it[kind.field];
      const more = it[kind.more] ?? 0;
      setText(number, kind.uncounted ? "" : count(items.length + more));
      box.hidden = !items.length;
      actionHead.hidden = !links.actions || !kind.actions.length;
      setText(rest, items.length ? (more ? `and ${count(more)} more` : "") : kind.none);
      show(items);
    },
  };
}

/** Reconciles of one request are told apart by their end. */
function rowKey(it) {
  return it.time ? `${it.time} ${it.key}` : it.key;
}

function tableRow(kind, item, controller, links, say) {
  const cells = kind.columns.map((it) => h("td", { class: COLUMNS[it].class }));
  const buttons = h(
    "td",
    { class: "actions" },
    kind.actions.map((it) => actionButton(it, controller, item.key, say)),
  );
  const key = links.informer
    ? h("a", { href: objectLink(links.informer, item.key) }, foreign(item.key, 120))
    : foreign(item.key, 120);
  cells[0].append(key);
  return {
    element: h("tr", {}, cells, buttons),
    update(it) {
      buttons.hidden = !links.actions || !kind.actions.length;
      kind.columns.forEach((name, at) => COLUMNS[name].fill?.(cells[at], it));
    },
  };
}

/** How the cells of a column are filled. */
const COLUMNS = {
  Request: { class: "key" },
  Error: { class: "text", fill: fillError },
  "Failing for": {
    class: "value",
    fill: (cell, it) => fillAge(cell, it.since && now() - it.since),
  },
  Attempts: { class: "value", fill: (cell, it) => setText(cell, count(it.attempts)) },
  "Next attempt": { class: "value", fill: (cell, it) => fillDue(cell, it.retry_in) },
  For: { class: "value", fill: (cell, it) => fillAge(cell, it.seconds) },
  "Waits for": { class: "value", fill: (cell, it) => fillAge(cell, it.seconds) },
  Due: { class: "value", fill: (cell, it) => fillDue(cell, it.in) },
  Attempt: { class: "value", fill: fillAttempt },
  Ended: { class: "value", fill: (cell, it) => setTime(cell, it.time) },
  Took: { class: "value", fill: (cell, it) => setText(cell, duration(it.seconds)) },
  Result: { class: "text", fill: fillResult },
  Causes: { class: "text", fill: (cell, it) => setText(cell, causesText(it.causes)) },
};

function fillAge(cell, seconds) {
  setAge(cell, seconds || null, now());
}

function fillDue(cell, seconds) {
  setTime(cell, seconds == null ? null : Math.round(now() + seconds));
}

function fillAttempt(cell, it) {
  setText(cell, it.stale ? `${count(it.attempt)}, will run again` : count(it.attempt));
}

function fillError(cell, it) {
  const text = it.message ? `${it.error}: ${it.message}` : it.error;
  setText(cell, line(text, 400));
  setAttribute(cell, "class", "text error");
}

function fillResult(cell, it) {
  setText(cell, resultText(it));
  setAttribute(cell, "class", it.error ? "text error" : "text");
}

/** "Conflict: ...; again in 5 s", "done", "done; again in 30 s". */
export function resultText(it) {
  const parts = [
    it.error ? line(it.message ? `${it.error}: ${it.message}` : it.error, 200) : "done",
  ];
  if (it.retry_in != null) parts.push(`next attempt after ${duration(it.retry_in)}`);
  if (it.requeue != null) parts.push(`again after ${duration(it.requeue)}`);
  return parts.join("; ");
}

export function causesText(causes) {
  const shown = causes
    .slice(0, 3)
    .map((it) => line(it, 100))
    .join(", ");
  return causes.length > 3 ? `${shown} and ${causes.length - 3} more` : shown;
}

const ACTIONS = {
  requeue: ["Requeue", "Reconcile now", "was queued"],
  forget: ["Forget", "Drop the next attempt and reset the failures", "was forgotten"],
};

function actionButton(action, controller, key, say) {
  const [label, title, done] = ACTIONS[action];
  const name = line(key, 80);
  async function act(event) {
    const button = event.currentTarget;
    button.disabled = true;
    const query = new URLSearchParams({ controller, key });
    try {
      const response = await fetch(`api/${action}?${query}`, {
        method: "POST",
        headers: { "X-Aioinformer": "action" },
      });
      say(
        response.ok ? `${name} ${done}.` : `${label} failed: ${line(await response.text(), 200)}`,
      );
    } catch (error) {
      say(`${label} failed: ${line(error.message, 200)}`);
    }
    button.disabled = false;
  }
  return h(
    "button",
    { type: "button", title, "aria-label": `${label} ${name}`, onclick: act },
    label,
  );
}
