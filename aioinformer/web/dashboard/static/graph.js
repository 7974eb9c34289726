/** Owners and owned objects as layers from left to right. */

import { line } from "./format.js";
import { s, shape } from "./dom.js";
import { objectLink } from "./route.js";

const WIDTH = 172;
const HEIGHT = 40;
const ACROSS = 36;
const DOWN = 10;

/** Returns the layer of each node: one more than its deepest owner. Circles are cut. */
function layers(nodes, edges) {
  const owners = new Map(nodes.map((it) => [it.id, []]));
  for (const [owner, owned] of edges) {
    if (owners.has(owner) && owners.has(owned)) owners.get(owned).push(owner);
  }
  const found = new Map();
  function layer(id, path) {
    if (found.has(id)) return found.get(id);
    if (path.has(id)) return 0;
    path.add(id);
    const above = owners.get(id).map((it) => layer(it, path) + 1);
    path.delete(id);
    found.set(id, Math.max(0, ...above));
    return found.get(id);
  }
  for (const { id } of nodes) layer(id, new Set());
  return found;
}

/** Returns the places of nodes: `Map(id -> {x, y})`, near their owners. */
function places(nodes, edges) {
  const layerOf = layers(nodes, edges);
  const columns = [];
  for (const node of nodes) (columns[layerOf.get(node.id)] ??= []).push(node);
  const found = new Map();
  const tallest = Math.max(...columns.map((it) => it.length));
  columns.forEach((column, at) => {
    const owner = (id) => found.get(edges.find(([, owned]) => owned === id)?.[0])?.y ?? 0;
    column.sort((one, other) => owner(one.id) - owner(other.id));
    const start = ((tallest - column.length) * (HEIGHT + DOWN)) / 2;
    column.forEach((node, row) => {
      found.set(node.id, { x: at * (WIDTH + ACROSS), y: start + row * (HEIGHT + DOWN) });
    });
  });
  return found;
}

/** Draws the graph; `self` is the id of the object that the page is about. */
export function drawGraph({ nodes, edges }, self) {
  const found = places(nodes, edges);
  const right = Math.max(...[...found.values()].map((it) => it.x)) + WIDTH;
  const bottom = Math.max(...[...found.values()].map((it) => it.y)) + HEIGHT;
  const lines = edges
    .filter((it) => it.every((id) => found.has(id)))
    .map(([owner, owned]) =>
      s("path", { class: "edge", d: curve(found.get(owner), found.get(owned)) }),
    );
  const boxes = nodes.map((it) => box(it, found.get(it.id), it.id === self));
  return s(
    "svg",
    {
      class: "graph",
      width: right + 2,
      height: bottom + 2,
      viewBox: `-1 -1 ${right + 2} ${bottom + 2}`,
      role: "group",
      "aria-label": "Owners",
    },
    lines,
    boxes,
  );
}

function curve(from, to) {
  const [x, y] = [from.x + WIDTH, from.y + HEIGHT / 2];
  const middle = (x + to.x) / 2;
  const end = to.y + HEIGHT / 2;
  return `M${x} ${y}C${middle} ${y} ${middle} ${end} ${to.x} ${end}`;
}

function box(node, { x, y }, self) {
  const kinds = ["node", self && "self", node.missing && "missing", node.trouble && "trouble"];
  const group = s(
    "g",
    { class: kinds.filter(Boolean).join(" "), transform: `translate(${x} ${y})` },
    s("title", {}, line(titleOf(node), 200)),
    s("rect", { width: WIDTH, height: HEIGHT, rx: 6 }),
    s(
      "text",
      { x: 12, y: 16, class: "kind" },
      line(node.missing ? `${node.kind}, missing` : node.kind, 26),
    ),
    s("text", { x: 12, y: 31 }, line(node.name, 23)),
  );
  if (node.trouble) {
    const mark = shape("warning");
    for (const [name, value] of [
      ["x", WIDTH - 24],
      ["y", 8],
      ["width", 14],
      ["height", 14],
    ]) {
      mark.setAttribute(name, value);
    }
    group.append(mark);
  }
  if (!node.informer || node.missing || self) return group;
  const key = node.namespace ? `${node.namespace}/${node.name}` : node.name;
  return s("a", { href: objectLink(node.informer, key) }, group);
}

function titleOf(node) {
  const name = node.namespace ? `${node.namespace}/${node.name}` : node.name;
  return `${node.kind} ${name}${node.trouble ? `: ${node.trouble}` : ""}`;
}
