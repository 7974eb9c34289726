/** Differences of two JSON values. Pure functions. */

const IDENTITIES = ["name", "type", "uid", "key"];
const DEEPEST = 100;

/** Returns `[{kind: "added"|"removed"|"changed", path: [...], before, after}, ...]`.
 *
 * A path has strings (fields), numbers (places in a list) and `[field, value]` (the item of a
 * list by its name or type). At most `limit` + 1 differences are returned.
 */
export function differences(before, after, limit = 500) {
  const found = [];
  compare(before, after, [], found, limit);
  return found;
}

function compare(before, after, path, found, limit) {
  if (before === after || found.length > limit) return;
  if (Array.isArray(before) && Array.isArray(after)) {
    compareParts(listParts(before, after), path, found, limit);
  } else if (isObject(before) && isObject(after)) {
    compareParts(fieldParts(before, after), path, found, limit);
  } else {
    found.push({ kind: "changed", path, before, after });
  }
}

function compareParts(parts, path, found, limit) {
  for (const [step, before, after] of parts) {
    if (found.length > limit) return;
    const inner = [...path, step];
    if (before === undefined) found.push({ kind: "added", path: inner, before, after });
    else if (after === undefined) found.push({ kind: "removed", path: inner, before, after });
    else if (inner.length > DEEPEST) compareTexts(before, after, inner, found);
    else compare(before, after, inner, found, limit);
  }
}

function compareTexts(before, after, path, found) {
  if (JSON.stringify(before) !== JSON.stringify(after)) {
    found.push({ kind: "changed", path, before, after });
  }
}

/** Fields of two objects as `[field, before, after]`; undefined where there is none. */
function fieldParts(before, after) {
  const [old, fresh] = [new Map(Object.entries(before)), new Map(Object.entries(after))];
  return joined(old, fresh, (it) => it);
}

function listParts(before, after) {
  const identity = IDENTITIES.find((it) => identifies(it, before) && identifies(it, after));
  if (identity) {
    const byIdentity = (items) => new Map(items.map((it) => [it[identity], it]));
    return joined(byIdentity(before), byIdentity(after), (it) => [identity, it]);
  }
  const parts = [];
  for (let at = 0; at < Math.max(before.length, after.length); at += 1) {
    parts.push([at, before[at], after[at]]);
  }
  return parts;
}

function joined(old, fresh, step) {
  const keys = new Set([...old.keys(), ...fresh.keys()]);
  return [...keys].map((it) => [step(it), old.get(it), fresh.get(it)]);
}

/** Tells whether each item of a list has another value in a field. */
function identifies(field, items) {
  const values = new Set();
  for (const item of items) {
    if (!isObject(item) || !Object.hasOwn(item, field)) return false;
    if (typeof item[field] !== "string") return false;
    values.add(item[field]);
  }
  return values.size === items.length;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** `["metadata", "labels", "a.b/c"]` → `metadata.labels["a.b/c"]`. */
export function pathText(path) {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (Array.isArray(step)) text += `[${step[0]}=${step[1]}]`;
    else if (/^[A-Za-z_$][\w$-]*$/.test(step)) text += text ? `.${step}` : step;
    else text += `[${JSON.stringify(step)}]`;
  }
  return text || "(everything)";
}
