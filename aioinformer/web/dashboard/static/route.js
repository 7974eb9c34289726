/** Addresses inside the page. Pure functions. */

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not encoded
  }
}

/** Reads `#/objects/ID/KEY?query`. Routes of one `id` are one view in several states. */
export function readRoute(hash) {
  const [path, query = ""] = splitOnce(hash.replace(/^#\/?/, ""), "?");
  const [kind, name, ...rest] = path.split("/");
  const route = { view: "overview", id: "overview", name: decoded(name ?? ""), key: "" };
  route.query = new URLSearchParams(query);
  route.key = rest.map(decoded).join("/");
  if (kind === "objects" && name && route.key) route.view = "object";
  else if (kind === "objects" && name) route.view = "objects";
  else if (kind === "controllers" && name) route.view = "controllers";
  if (route.view !== "overview") route.id = JSON.stringify([route.view, route.name, route.key]);
  return route;
}

function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

export function objectsLink(informer, query = "") {
  return `#/objects/${encodeURIComponent(informer)}${query ? `?${query}` : ""}`;
}

export function objectLink(informer, key) {
  return `#/objects/${encodeURIComponent(informer)}/${encodeURIComponent(key)}`;
}

export function controllerLink(name) {
  return `#/controllers/${encodeURIComponent(name)}`;
}
