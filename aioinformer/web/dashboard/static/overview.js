/** Overview: problems, a tile for each informer and controller, and the program. */

import { age, bytes, count, duration, line, plural, rate } from "./format.js";
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
  shape,
  stateWord,
} from "./dom.js";
import { controllerLink, objectsLink } from "./route.js";
import { spark } from "./spark.js";

const MOST_TROUBLE = 20;

export function openOverview() {
  const verdict = verdictPart();
  const informers = section("Informers", informerTile, (it) => it.id);
  const controllers = section("Controllers", controllerTile, (it) => it.name);
  const program = section("Program", programTile, (it) => it.name);
  const element = h(
    "div",
    { class: "overview" },
    verdict.element,
    informers.element,
    controllers.element,
    program.element,
  );
  return {
    element,
    path: [["Overview", "#/"]],
    close() {},
    show(overview) {
      const levels = new Map(overview.trouble.toReversed().map((it) => [it.link, it.level]));
      const level = (link) => levels.get(link) ?? "";
      verdict.update(overview);
      informers.update(
        overview.informers.map((it) => ({ ...it, level: level(objectsLink(it.id)) })),
        informersSummary(overview.informers),
      );
      controllers.update(
        overview.controllers.map((it) => ({ ...it, level: level(controllerLink(it.name)) })),
        controllersSummary(overview.controllers),
      );
      program.update(
        programParts(overview),
        `running for ${duration(overview.now - overview.started)}`,
      );
    },
  };
}

function section(title, make, keyOf) {
  const summary = h("p", { class: "summary" });
  const tiles = h("div", { class: "tiles" });
  const show = list(tiles, keyOf, make);
  const element = h(
    "section",
    { "aria-label": title, hidden: true },
    h("div", { class: "heading" }, h("h2", {}, title), summary),
    tiles,
  );
  return {
    element,
    update(items, text) {
      element.hidden = !items.length;
      setText(summary, text);
      show(items);
    },
  };
}

/** Sum of a field; null if it is unknown of all items. */
function total(items, field) {
  const known = items.map((it) => it[field]).filter((it) => it != null);
  return known.length ? known.reduce((sum, it) => sum + it, 0) : null;
}

function informersSummary(informers) {
  return [
    plural(total(informers, "objects"), "object"),
    bytes(total(informers, "bytes")),
    `${rate(total(informers, "per_second"))} changes`,
  ].join(" · ");
}

function controllersSummary(controllers) {
  return [
    `${count(total(controllers, "queued"))} queued`,
    `${rate(total(controllers, "per_second"))} reconciles`,
  ].join(" · ");
}

// ------------------------------------------------------------ problems

function verdictPart() {
  const mark = h("span", { class: "mark" }, shape("idle"));
  const title = h("h1", {}, "Connecting…");
  const text = h("p", { class: "summary" });
  const rows = h("ul", { class: "trouble" });
  const rest = h("p", { class: "rest" });
  const show = list(rows, (it) => `${it.level} ${it.what} ${it.link}`, troubleRow);
  const element = h(
    "section",
    { class: "verdict", "aria-label": "State" },
    h("div", { class: "headline" }, mark, h("div", {}, title, text)),
    rows,
    rest,
  );
  let level = "idle";
  return {
    element,
    update(overview) {
      const next = worst(overview.trouble);
      if (level !== next) mark.replaceChildren(shape(next));
      level = next;
      setAttribute(element, "class", `verdict ${level}`);
      setText(title, verdictTitle(overview.trouble));
      setText(text, verdictText(overview));
      show(overview.trouble.slice(0, MOST_TROUBLE));
      const more = overview.trouble.length - MOST_TROUBLE;
      setText(rest, more > 0 ? `and ${count(more)} more` : "");
    },
  };
}

function worst(trouble) {
  if (trouble.some((it) => it.level === "error")) return "error";
  return trouble.length ? "warning" : "ok";
}

function verdictTitle(trouble) {
  if (!trouble.length) return "All fine";
  const errors = trouble.filter((it) => it.level === "error").length;
  const parts = [];
  if (errors) parts.push(plural(errors, "error"));
  if (trouble.length > errors) parts.push(plural(trouble.length - errors, "warning"));
  return parts.join(", ");
}

function verdictText({ informers, controllers }) {
  const synced = informers.filter((it) => it.synced).length;
  const ages = informers.map((it) => it.age).filter((it) => it != null);
  const parts = [
    synced === informers.length
      ? `${plural(synced, "informer")} synced`
      : `${count(synced)} of ${plural(informers.length, "informer")} synced`,
  ];
  if (ages.length) parts.push(`the oldest copy is ${age(Math.max(...ages))} old`);
  const waits = controllers.map((it) => it.oldest ?? 0);
  if (waits.length) parts.push(`requests wait for at most ${age(Math.max(...waits))}`);
  return `${parts.join(", ")}.`;
}

function troubleRow() {
  const what = h("bdi", { class: "what" });
  const text = h("bdi", { class: "text" });
  const links = h("span", { class: "links" });
  const word = stateWord("warning", "");
  let shown = "";
  return {
    element: h("li", {}, word, what, text, links),
    update(it) {
      setState(word, it.level === "error" ? "error" : "warning", it.level);
      setText(what, line(it.what, 80));
      setText(text, line(it.text, 400));
      if (shown === `${it.link}\n${it.page}`) return;
      shown = `${it.link}\n${it.page}`;
      const name = line(it.what, 80);
      links.replaceChildren();
      // Only links into this page and to web pages: no other scheme.
      if (it.link.startsWith("#/")) {
        links.append(h("a", { href: it.link, "aria-label": `Show ${name}` }, "Show"));
      }
      if (it.page.startsWith("https://")) {
        links.append(
          h(
            "a",
            {
              href: it.page,
              target: "_blank",
              rel: "noreferrer",
              "aria-label": `Help for ${name}`,
            },
            "Help",
          ),
        );
      }
    },
  };
}

// ------------------------------------------------------------ tiles

/** Frame of a tile: name with a link, state, a large number, a picture and figures. */
function tileFrame(name, href, unit, noun, names) {
  const parts = {
    state: stateWord("idle", ""),
    group: h("bdi", { class: "group" }),
    large: h("span", { class: "big" }),
    unit: h("span", { class: "unit" }, unit),
    speed: h("p", { class: "speed" }),
    picture: spark(noun),
    figures: figures(names),
    notes: h("p", { class: "notes" }),
  };
  parts.element = h(
    "article",
    { class: "tile" },
    h("header", {}, h("h3", {}, h("a", { href }, foreign(name, 60)), parts.group), parts.state),
    h(
      "div",
      { class: "main" },
      h("p", { class: "amount" }, parts.large, parts.unit),
      h("div", { class: "flow" }, parts.picture.element, parts.speed),
    ),
    parts.figures.element,
    parts.notes,
  );
  return parts;
}

/** Level of a tile: of the list of problems, else its own. */
function setTileState(tile, trouble, own, word) {
  const level = trouble || own;
  setState(tile.state, level, word);
  setAttribute(tile.element, "class", `tile ${level}`);
}

function speedText(it) {
  const highest = Math.max(0, ...it.rates);
  return highest ? `${rate(it.per_second)}, peak ${rate(highest)}` : "quiet for 5 min";
}

const RESTING = new Set(["idle", "stopping", "stopped"]);

function informerLevel(it) {
  if (it.error || it.phase === "backing off") return "error";
  if (it.phase === "absent") return "warning";
  if (RESTING.has(it.phase)) return "idle";
  return it.synced ? "ok" : "busy";
}

function informerWord(it) {
  return it.phase === "watching" && (it.error || it.level) ? "in trouble" : it.phase;
}

function informerTile({ id, name, group }) {
  const tile = tileFrame(name, objectsLink(id), "", "changes", [
    "Age",
    "Size",
    "Relists",
    "Restarts",
  ]);
  // The name of an informer usually has the group.
  setText(tile.group, name.includes(group) ? "" : line(group, 60));
  const shownAge = tile.figures.value("Age");
  return {
    element: tile.element,
    update(it) {
      setTileState(tile, it.level, informerLevel(it), informerWord(it));
      setText(tile.large, count(it.objects));
      setText(tile.unit, it.objects === 1 ? "object" : "objects");
      setText(tile.speed, speedText(it));
      tile.picture.update(it.rates);
      setAge(shownAge, it.age, now());
      setAttribute(shownAge, "class", it.level && it.age > 15 ? it.level : "");
      tile.figures.set("Size", bytes(it.bytes));
      tile.figures.set("Relists", count(it.relists));
      tile.figures.set("Restarts", count(it.restarts), it.restarts ? "warning" : "");
      setAttribute(tile.notes, "class", it.error ? "notes error" : "notes");
      setText(tile.notes, informerNotes(it));
    },
  };
}

function informerNotes(it) {
  const notes = [];
  if (it.error) notes.push(line(it.error, 160));
  if (it.failures) notes.push(`${plural(it.failures, "failure")} in a row`);
  if (it.degraded) notes.push(`${count(it.degraded)} degraded`);
  if (it.relists) notes.push(`last relist: ${line(it.last_relist, 60)}`);
  if (it.duplicates) notes.push(plural(it.duplicates, "duplicate"));
  if (it.namespaces.length)
    notes.push(
      `in ${line(it.namespaces.slice(0, 4).join(", "), 80)}` +
        (it.namespaces.length > 4 ? ` and ${it.namespaces.length - 4} more` : ""),
    );
  if (it.selector) notes.push(line(it.selector, 80));
  if (it.store) notes.push(`on disk, ${it.store.role}`);
  return notes.join(" · ");
}

/** State of a controller: level and word. */
export function controllerState(it) {
  if (it.failing) return ["error", `${count(it.failing)} failing`];
  if (!it.synced) return ["busy", "waits for caches"];
  if (it.storms) return ["warning", "storm"];
  if (it.level) return [it.level, "behind"];
  return it.running || it.queued ? ["ok", "working"] : ["ok", "idle"];
}

function controllerTile({ name }) {
  const tile = tileFrame(name, controllerLink(name), "queued", "reconciles", [
    "Oldest",
    "Running",
    "Delayed",
    "p50",
    "p99",
  ]);
  const oldest = tile.figures.value("Oldest");
  return {
    element: tile.element,
    update(it) {
      const [level, word] = controllerState(it);
      setTileState(tile, it.level, level, word);
      setText(tile.large, count(it.queued));
      setText(tile.speed, speedText(it));
      tile.picture.update(it.rates);
      setAge(oldest, it.oldest, now());
      setAttribute(oldest, "class", it.oldest > 30 ? "warning" : "");
      tile.figures.set("Running", count(it.running));
      tile.figures.set("Delayed", count(it.delayed));
      tile.figures.set("p50", duration(it.p50));
      tile.figures.set("p99", duration(it.p99));
      setText(tile.notes, controllerNotes(it));
    },
  };
}

function controllerNotes(it) {
  const notes = [];
  if (it.unshown)
    notes.push(`${count(it.unshown)} requests whose writes the cache does not show yet`);
  if (it.storms) notes.push(plural(it.storms, "storm"));
  return notes.join(" · ");
}

// ------------------------------------------------------------ the program

function programTile({ name, kind, names }) {
  const shown = figures(names);
  const title = foreign(name, 60);
  const notes = h("p", { class: "notes" });
  const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", {}));
  const element = h(
    "article",
    { class: "tile small" },
    h("header", {}, h("h3", {}, title), h("span", { class: "group" }, kind)),
    meter,
    shown.element,
    notes,
  );
  return {
    element,
    update(it) {
      it.names.forEach((name, at) => shown.set(name, ...it.values[at]));
      setText(notes, line(it.notes ?? "", 200));
      setAttribute(element, "class", `tile small ${it.level ?? ""}`);
      meter.hidden = it.share == null;
      if (it.share != null) meter.firstChild.style.width = `${Math.min(100, it.share * 100)}%`;
    },
  };
}

/** Part of the program: `[name, text, level]` for each figure. */
function part(name, kind, values, more = {}) {
  return {
    name,
    kind,
    names: values.map(([it]) => it),
    values: values.map(([, ...value]) => value),
    ...more,
  };
}

function programParts(overview) {
  const { loop, memory, manager } = overview;
  return [
    part("Event loop", "", [
      ["Lag", duration(loop.lag), loop.lag > 0.1 ? "warning" : ""],
      ["Longest slice", duration(loop.longest)],
      ["Waiting", count(loop.waiting)],
      ["Stalls", count(loop.stalls), loop.stalls ? "warning" : ""],
    ]),
    memoryPart(memory),
    manager && managerPart(manager),
    ...overview.shards.map((it) =>
      part(
        it.group,
        "shards",
        [
          ["Ranges owned", `${count(it.owned)} of ${count(it.ranges)}`],
          ["Members", count(it.members)],
          ["Identity", line(it.identity, 80)],
          ...leaseFigures(it.lease),
        ],
        { notes: it.trouble, level: it.trouble ? "warning" : "", share: it.owned / it.ranges },
      ),
    ),
    ...overview.informers.filter((it) => it.store).map(storePart),
    ...overview.recorders.map((it) =>
      part(it.name, "event recorder", [
        ["Waiting", count(it.waiting)],
        ["Dropped", count(it.dropped), it.dropped ? "warning" : ""],
        ["Instance", line(it.instance, 80)],
      ]),
    ),
  ].filter(Boolean);
}

function memoryPart({ resident, budget }) {
  const values = [["Resident", bytes(resident)]];
  if (!budget) return part("Memory", "", values);
  values.push(["Held by stores", bytes(budget.held)], ["Budget", bytes(budget.limit)]);
  return part("Memory", "", values, {
    share: budget.held / budget.limit,
    notes: budget.text,
    level: budget.over ? "warning" : "",
  });
}

/** Figures of a Lease, null for none: its name, and the time since its last renewal. */
function leaseFigures(lease) {
  const name = ["Lease", line(lease?.name ?? "–", 80)];
  if (!lease) return [name, ["Lease age", "–"]];
  if (!lease.holder) return [name, ["Lease age", "not held"]];
  const text = `${age(lease.age)} of ${duration(lease.duration)}`;
  return [name, ["Lease age", text, lease.age > lease.duration ? "warning" : ""]];
}

function managerPart(manager) {
  const role = !manager.elects ? "no election" : manager.leads ? "leads" : "follows";
  return part(
    "Manager",
    "",
    [
      ["Role", manager.running ? role : "not running"],
      ["Leader", line(manager.leader || "–", 80)],
      ["Identity", line(manager.identity || "–", 80)],
      ...(manager.elects ? leaseFigures(manager.lease) : []),
    ],
    {
      notes: manager.not_ready.length ? `Not ready: ${manager.not_ready.join("; ")}` : "",
      level: manager.not_ready.length ? "warning" : "",
    },
  );
}

function storePart({ name, store }) {
  const values = [
    ["Size", bytes(store.bytes)],
    ["Behind", count(store.behind)],
    ["Heartbeat", duration(store.heartbeat_age)],
  ];
  values.push(
    store.role === "writer"
      ? ["Readers", count(store.readers)]
      : ["Writer", store.writer ? `process ${store.writer}` : "none"],
  );
  return part(`${name} on disk`, store.role, values, { notes: store.path });
}
