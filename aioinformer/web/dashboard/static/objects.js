/** Live table of an informer's objects, of which only the rows in view exist. */

import { count, line, plural } from "./format.js";
import { foreign, h, setAttribute, setText } from "./dom.js";
import { openFeed } from "./feed.js";
import { objectLink, objectsLink } from "./route.js";

const ROW = 30; // px, as in the style sheet
const AROUND = 60; // rows that are asked for above and below those in view
const MOST = 500;
const DRAWN_AROUND = 6;
const TALLEST = 12_000_000; // px: browsers limit the height of an element
const PAUSE = 80; // ms between two places that are asked for
const LONGEST_WAIT = 250; // ms
const LAST_CHANGE = "last change";

/** Address of the table that was shown last, for each informer. */
const lastShown = new Map();

/** Returns the address of an informer's table, as it was left. */
export function tableLink(informer) {
  return lastShown.get(informer) ?? objectsLink(informer);
}

export function openObjects(route, app) {
  const id = route.name;
  let query = readQuery(route.query);
  let data = { columns: [], total: 0, matching: 0, from: 0, rows: [], placed: true };
  let byKey = new Map();
  let feed = null;
  let asked = { from: -1, count: 0, at: 0 };
  let start = query.from; // row to show first, once the table is there
  let timer = 0;
  let rest = 0;
  let frame = 0;

  const bar = toolbar(id, query, change);
  const status = h("p", { class: "summary" });
  const notice = h("p", { class: "notice", hidden: true });
  const sheet = makeSheet({
    onScroll: moved,
    onSort: sortBy,
    linkOf: (key) => objectLink(id, key),
  });
  const element = h(
    "div",
    { class: "objects" },
    h(
      "div",
      { class: "heads" },
      h("div", { class: "title" }, h("h1", {}, foreign(id, 80)), status),
      bar.element,
    ),
    notice,
    sheet.element,
  );

  // -------------------------------------------------------- address

  function change(changes) {
    query = { ...query, from: 0, ...changes };
    remember();
    bar.setPressed(query);
    sheet.scrollTo(0);
    reopen(0);
  }

  function remember() {
    const link = objectsLink(id, queryText(query));
    lastShown.set(id, link);
    if (location.hash !== link) history.replaceState(null, "", link);
  }

  function sortBy(column) {
    const turned = query.sort === column;
    // A header is ascending, then descending, then the order of the store again.
    if (turned && query.reverse && column !== LAST_CHANGE) change({ sort: "", reverse: false });
    else change({ sort: column, reverse: turned && !query.reverse });
  }

  // -------------------------------------------------------- rows

  function reopen(from) {
    clearTimeout(timer);
    timer = 0;
    const first = Math.max(0, from - AROUND);
    const most = Math.min(MOST, sheet.visible() + 2 * AROUND);
    asked = { from: first, count: most, at: performance.now() };
    feed?.close();
    const words = new URLSearchParams({ informer: id, from: asked.from, count: asked.count });
    for (const it of query.namespaces) words.append("namespace", it);
    for (const it of ["labelSelector", "filter", "sort"]) if (query[it]) words.set(it, query[it]);
    if (query.reverse) words.set("reverse", "1");
    byKey = new Map();
    feed = openFeed(`api/rows?${words}`, { onData: received, onState: showState });
  }

  function received(event) {
    const rows = event.rows.map((it) => (typeof it === "string" ? byKey.get(it) : it));
    byKey = new Map(rows.map((it) => [it.key, it]));
    const other = event.columns.join("\n") !== data.columns.join("\n");
    data = { ...event, rows };
    if (other) sheet.setColumns(event.columns, event.sortable);
    sheet.setOrder(query);
    sheet.setData(data);
    if (start) sheet.scrollTo(start);
    start = 0;
    setText(status, statusText(data, query));
    bar.setNamespaces(data);
    draw();
    // A shared link may lead beyond the end of a table that has shrunk.
    if (data.from > sheet.first()) moved();
  }

  function showState({ state, text }) {
    notice.hidden = state === "live" || state === "connecting";
    setText(notice, line(text));
    element.classList.toggle("waiting", state === "connecting");
  }

  function moved() {
    frame ||= requestAnimationFrame(draw);
    // Rows next to those in hand are asked for at once. Where the table has left them all
    // behind, it waits until it rests, but not for long.
    const behind = Math.abs(sheet.first() - asked.from) > asked.count;
    if (behind && performance.now() - asked.at < LONGEST_WAIT) {
      clearTimeout(timer);
      timer = 0;
    }
    timer ||= setTimeout(settle, PAUSE);
  }

  function settle() {
    timer = 0;
    query.from = sheet.first();
    // Browsers limit how often a page changes its address.
    clearTimeout(rest);
    rest = setTimeout(remember, 400);
    const { from } = asked;
    const end = from + asked.count;
    const first = sheet.first();
    const near = AROUND / 3;
    const above = first - near < from && from > 0;
    const below = first + sheet.visible() + near > end && end < data.matching;
    if (above || below) reopen(first);
  }

  function draw() {
    frame = 0;
    sheet.draw();
  }

  const resized = new ResizeObserver(moved);
  resized.observe(sheet.element);
  lastShown.set(id, objectsLink(id, queryText(query)));
  reopen(query.from);

  return {
    element,
    path: [
      ["Overview", "#/"],
      [id, objectsLink(id)],
    ],
    show: (overview) => bar.setInformers(overview.informers),
    follow(next) {
      query = readQuery(next.query);
      bar.set(query);
      start = query.from;
      if (!start) sheet.scrollTo(0);
      reopen(query.from);
    },
    close() {
      feed.close();
      clearTimeout(timer);
      clearTimeout(rest);
      cancelAnimationFrame(frame);
      resized.disconnect();
    },
  };
}

// ------------------------------------------------------------ state of the table

function readQuery(words) {
  return {
    namespaces: words.getAll("namespace"),
    labelSelector: words.get("labelSelector") ?? "",
    filter: words.get("filter") ?? "",
    sort: words.get("sort") ?? "",
    reverse: words.get("reverse") === "1",
    from: Math.max(0, Number.parseInt(words.get("from") ?? "0", 10) || 0),
  };
}

function queryText(query) {
  const words = new URLSearchParams();
  for (const it of query.namespaces) words.append("namespace", it);
  for (const it of ["labelSelector", "filter", "sort", "from"]) {
    if (query[it]) words.set(it, query[it]);
  }
  if (query.reverse) words.set("reverse", "1");
  return String(words);
}

function statusText(data, query) {
  const all = plural(data.total, "object");
  const filtered = query.filter && data.matching !== data.total;
  const text = filtered ? `${count(data.matching)} of ${all}` : all;
  return data.placed ? text : `${text}, still sorting`;
}

// ------------------------------------------------------------ filters

function toolbar(id, query, change) {
  const informers = h(
    "select",
    {
      onchange: () => {
        location.hash = tableLink(informers.value);
      },
    },
    h("option", { value: id }, line(id, 60)),
  );
  const known = h("datalist", { id: "namespaces" });
  const typed = (name, read = (it) => it) => {
    let wait = 0;
    return (event) => {
      clearTimeout(wait);
      const { value } = event.target;
      wait = setTimeout(() => change({ [name]: read(value.trim()) }), 250);
    };
  };
  const field = (label, attributes, listener) => {
    const input = h("input", {
      type: "search",
      spellcheck: "false",
      autocomplete: "off",
      oninput: listener,
      ...attributes,
    });
    return [h("label", {}, h("span", {}, label), input), input];
  };
  const [filterLabel, filter] = field(
    "Filter",
    { "data-filter": true, placeholder: "words  /" },
    typed("filter"),
  );
  const [spaceLabel, spaces] = field(
    "Namespaces",
    { placeholder: "all", list: "namespaces" },
    typed("namespaces", (it) => it.split(/[\s,]+/).filter(Boolean)),
  );
  const [selectorLabel, selector] = field(
    "Labels",
    { placeholder: "app=web,tier!=test" },
    typed("labelSelector"),
  );
  const latest = h(
    "button",
    {
      type: "button",
      onclick: () =>
        change(
          latest.getAttribute("aria-pressed") === "true"
            ? { sort: "", reverse: false }
            : { sort: LAST_CHANGE, reverse: false },
        ),
    },
    "Last changed first",
  );
  const seen = new Set();

  function set(next) {
    filter.value = next.filter;
    spaces.value = next.namespaces.join(", ");
    selector.value = next.labelSelector;
    setPressed(next);
  }

  function setPressed(next) {
    setAttribute(latest, "aria-pressed", String(next.sort === LAST_CHANGE));
  }

  set(query);
  return {
    element: h(
      "form",
      {
        class: "toolbar",
        role: "search",
        "aria-label": "Filter objects",
        onsubmit: (event) => event.preventDefault(),
      },
      h("label", {}, h("span", {}, "Informer"), informers),
      filterLabel,
      spaceLabel,
      selectorLabel,
      latest,
      known,
    ),
    set,
    setPressed,
    setInformers(items) {
      const names = items.map((it) => it.id);
      if (!names.includes(id)) names.unshift(id);
      if (names.join("\n") === [...informers.options].map((it) => it.value).join("\n")) return;
      informers.replaceChildren(...names.map((it) => h("option", { value: it }, line(it, 60))));
      informers.value = id;
    },
    setNamespaces({ columns, rows }) {
      const at = columns.indexOf("NAMESPACE");
      for (const row of at < 0 ? [] : rows) {
        if (seen.size > 200 || seen.has(row.cells[at])) continue;
        seen.add(row.cells[at]);
        known.append(h("option", { value: row.cells[at] }));
      }
    },
  };
}

// ------------------------------------------------------------ the rows in view

const BAD = /BackOff|Err|Fail|Evicted|OOMKilled|Unknown|NotReady|Lost/;
const UNSETTLED = /Pending|Terminating|Creating|Init:|Unschedulable|SchedulingDisabled/;
const MARKS = { added: "+", modified: "~", deleted: "−" };

function makeSheet({ onScroll, onSort, linkOf }) {
  const head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 });
  const body = h("div", { class: "rows", role: "rowgroup" });
  const grid = h(
    "div",
    {
      class: "grid",
      role: "grid",
      tabindex: 0,
      "aria-label": "Objects",
      onscroll: onScroll,
      onkeydown: pressed,
      onclick: clicked,
    },
    h(
      "div",
      { class: "sheet", role: "presentation" },
      h("div", { role: "rowgroup", class: "top" }, head),
      body,
    ),
  );
  const empty = h("p", { class: "rest", hidden: true }, "No object matches.");
  const drawn = new Map();
  const spare = [];
  let data = { matching: 0, from: 0, rows: [], columns: [] };
  let widths = [];
  let active = -1;
  let height = 0;

  // -------------------------------------------------------- places

  const visible = () => Math.max(1, Math.ceil((grid.clientHeight - ROW) / ROW));
  const view = () => grid.clientHeight - ROW;

  /** Pixels of the rows for each pixel that scrolls: 1, or more in very long tables. */
  function scale() {
    const whole = data.matching * ROW;
    return whole <= TALLEST ? 1 : (whole - view()) / (TALLEST - view());
  }

  const top = () => grid.scrollTop * scale();
  const first = () => Math.max(0, Math.floor(top() / ROW));

  function scrollTo(index) {
    grid.scrollTop = (index * ROW) / scale();
  }

  function reveal(index) {
    const place = index * ROW;
    if (place < top()) grid.scrollTop = place / scale();
    else if (place + ROW > top() + view()) grid.scrollTop = (place + ROW - view()) / scale();
  }

  // -------------------------------------------------------- drawing

  function setColumns(columns, sortable) {
    widths = columns.map((it) => it.length + 2);
    head.replaceChildren(
      h("div", { class: "gutter", role: "presentation" }),
      ...columns.map((it) =>
        h(
          "div",
          { role: "columnheader", class: cellClass(it) },
          sortable.includes(it)
            ? h("button", { type: "button", onclick: () => onSort(it) }, line(it, 60), h("i", {}))
            : foreign(it, 60),
        ),
      ),
    );
    for (const [, entry] of drawn) entry.element.remove();
    drawn.clear();
    spare.length = 0;
    setAttribute(grid, "aria-colcount", columns.length);
  }

  function setOrder({ sort, reverse }) {
    data.columns.forEach((it, at) => {
      const order = it === sort ? (reverse ? "descending" : "ascending") : null;
      setAttribute(head.children[at + 1], "aria-sort", order);
    });
  }

  function setData(next) {
    data = next;
    const before = widths.join();
    const narrow = grid.clientWidth < 700;
    for (const { cells } of data.rows) {
      cells.forEach((it, at) => {
        const widest = widestOf(data.columns[at], narrow);
        widths[at] = Math.max(widths[at], Math.min(it.length, widest));
      });
    }
    if (before !== widths.join() || !grid.style.getPropertyValue("--columns")) {
      const last = widths.length - 1;
      grid.style.setProperty(
        "--columns",
        widths
          .map((it, at) =>
            at === last ? `minmax(calc(${it}ch + 20px), 1fr)` : `calc(${it}ch + 20px)`,
          )
          .join(" "),
      );
    }
    grid.classList.toggle("wider", grid.scrollWidth > grid.clientWidth);
    const tall = Math.min(TALLEST, data.matching * ROW);
    if (tall !== height) body.style.height = `${tall}px`;
    height = tall;
    setAttribute(grid, "aria-rowcount", data.matching + 1);
    empty.hidden = data.matching > 0;
    active = Math.min(active, data.matching - 1);
  }

  function draw() {
    const shift = grid.scrollTop - top();
    const from = Math.max(0, first() - DRAWN_AROUND);
    const end = Math.min(data.matching, first() + visible() + DRAWN_AROUND + 1);
    for (const [index, entry] of drawn) {
      if (index >= from && index < end) continue;
      drawn.delete(index);
      spare.push(entry);
    }
    for (let index = from; index < end; index += 1) {
      let entry = drawn.get(index);
      if (!entry) {
        entry = spare.pop() ?? makeRow(data.columns, linkOf);
        drawn.set(index, entry);
        entry.place(index);
        if (!entry.element.isConnected) body.append(entry.element);
      }
      entry.move(index * ROW + shift);
      entry.show(data.rows[index - data.from], index === active);
    }
    for (const entry of spare) entry.element.remove();
    setAttribute(grid, "aria-activedescendant", drawn.has(active) ? `row-${active}` : null);
  }

  // -------------------------------------------------------- keys and clicks

  function pressed(event) {
    if (event.target !== grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: visible() - 1,
      PageUp: 1 - visible(),
      Home: -Infinity,
      End: Infinity,
    };
    if (event.key === "Enter" && drawn.get(active)?.key) open(drawn.get(active));
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    const base = active < 0 ? first() - 1 : active;
    active = Math.max(0, Math.min(data.matching - 1, base + steps[event.key]));
    reveal(active);
    draw();
  }

  function clicked(event) {
    const row = event.target.closest(".rows > .row");
    if (!row || event.target.closest("a") || String(getSelection())) return;
    const entry = [...drawn.values()].find((it) => it.element === row);
    if (entry?.key) open(entry);
  }

  function open(entry) {
    location.hash = linkOf(entry.key);
  }

  return {
    element: h("div", { class: "table" }, grid, empty),
    setColumns,
    setOrder,
    setData,
    draw,
    visible,
    first,
    scrollTo,
  };
}

/** Characters of a column at most. On narrow screens the name and what follows it fit in. */
function widestOf(column, narrow) {
  if (!narrow) return 56;
  return column === "NAMESPACE" ? 11 : 24;
}

function cellClass(column) {
  return column === "NAME" ? "cell name" : "cell";
}

/** Fades the highlight of a changed row. */
function fade(element) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  element.animate(
    [
      { backgroundColor: "color-mix(in srgb, var(--accent) 12%, var(--panel))" },
      { backgroundColor: "var(--panel)" },
    ],
    600,
  );
}

/** Place of the column that leads to the object: NAME, or the first after the namespace. */
function linkPlace(columns) {
  const at = columns.indexOf("NAME");
  return at < 0 ? Math.min(columns.indexOf("NAMESPACE") + 1, columns.length - 1) : at;
}

/** Makes a row that shows one object after the other. */
function makeRow(columns, linkOf) {
  const gutter = h("div", { class: "gutter", role: "presentation" });
  const cells = columns.map((it) => h("div", { role: "gridcell", class: cellClass(it) }));
  const statusAt = columns.indexOf("STATUS");
  const linkAt = linkPlace(columns);
  const link = h("a", { tabindex: -1 });
  cells[linkAt].append(link);
  const element = h("div", { role: "row", class: "row" }, gutter, cells);
  const entry = {
    element,
    key: "",
    place(index) {
      element.id = `row-${index}`;
      element.setAttribute("aria-rowindex", index + 2);
    },
    move(y) {
      if (entry.y === y) return;
      entry.y = y;
      element.style.transform = `translateY(${y}px)`;
    },
    show(row, active) {
      const mark = row?.mark ?? "";
      setAttribute(element, "class", `row ${row ? mark : "missing"}${active ? " active" : ""}`);
      setAttribute(element, "aria-selected", active ? "true" : null);
      if (entry.row === row) return;
      if (!mark && entry.row?.mark && entry.key === row?.key) fade(element);
      entry.row = row;
      entry.key = row?.key ?? "";
      setText(gutter, MARKS[mark] ?? "");
      cells.forEach((cell, at) => {
        setText(at === linkAt ? link : cell, row ? line(row.cells[at], 200) : "");
      });
      setAttribute(link, "href", row ? linkOf(row.key) : null);
      if (row && statusAt >= 0) {
        const status = row.cells[statusAt];
        const level = BAD.test(status) ? " error" : UNSETTLED.test(status) ? " warning" : "";
        setAttribute(cells[statusAt], "class", `cell${level}`);
      }
    },
  };
  return entry;
}
