/** The page: address, connection, theme, keys. The views are in modules of their own. */

import { clock, duration, line, plural } from "./format.js";
import { foreign, h, setAttribute, setClock, setState, setText, stateWord, tick } from "./dom.js";
import { openFeed, restartOthers } from "./feed.js";
import { openController } from "./controllers.js";
import { openObject } from "./object.js";
import { openObjects } from "./objects.js";
import { openOverview } from "./overview.js";
import { readRoute } from "./route.js";

const byId = (id) => document.getElementById(id);
const main = byId("main");
const HIDDEN_FOR = 60_000;

/** What the views share: the last overview and when it came. */
const app = { overview: null, received: 0 };
let view = null;
let feed = null;

setClock(() => {
  if (!app.overview) return Date.now() / 1000;
  return app.overview.now + (performance.now() - app.received) / 1000;
});

// ------------------------------------------------------------ views

const VIEWS = {
  overview: openOverview,
  objects: openObjects,
  object: openObject,
  controllers: openController,
};

function follow() {
  const route = readRoute(location.hash);
  if (view?.id === route.id) {
    view.follow?.(route);
    return;
  }
  const first = view === null;
  view?.close();
  view = VIEWS[route.view](route, app);
  view.id = route.id;
  main.replaceChildren(view.element);
  if (app.overview) view.show?.(app.overview);
  showPath(view.path);
  nameWindow();
  scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true });
}

function showPath(path) {
  const last = path.length - 1;
  byId("path").replaceChildren(
    h(
      "ol",
      {},
      path.map(([text, href], at) =>
        h(
          "li",
          {},
          h("a", { href, "aria-current": at === last ? "page" : null }, foreign(text, 120)),
        ),
      ),
    ),
  );
}

// ------------------------------------------------------------ connection

const contact = stateWord("idle", "Connecting");
byId("contact").append(contact);
let lostSince = 0;

function connect() {
  feed = openFeed("api/overview", {
    onData: show,
    onState: showContact,
    silence: () => 2000 * Math.max(1, app.overview?.refresh ?? 1),
  });
}

function show(overview) {
  app.overview = overview;
  app.received = performance.now();
  view?.show?.(overview);
  announce(overview.trouble);
  beat();
  nameWindow();
  setText(byId("title"), line(overview.title, 60));
  setText(
    byId("about"),
    `aioinformer ${line(overview.version, 40)}, ` +
      `runs for ${duration(overview.now - overview.started)}`,
  );
}

function showContact({ state, text, since }) {
  const lost = state === "lost" || state === "refused";
  if (state === "live" && lostSince) restartOthers(feed);
  if (lost) lostSince ||= app.overview ? since : 1;
  else if (state === "live") lostSince = 0;
  document.body.classList.toggle("lost", lostSince > 0);
  byId("outage").hidden = !lostSince;
  if (lostSince) {
    const when = lostSince > 1 ? ` since ${clock(lostSince / 1000)}` : "";
    setText(
      byId("outage"),
      `No connection to the program${when}. ${sentence(text)} ` +
        (app.overview ? "The page shows the last known state and tries again." : "Trying again."),
    );
    setState(contact, "error", "No connection");
  } else if (state === "live") setState(contact, "ok", "Live");
  nameWindow();
}

/** The mark of the connection beats with each overview that comes. */
function beat() {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  contact.firstChild.animate([{ opacity: 0.3 }, { opacity: 1 }], 700);
}

function sentence(text) {
  const cut = line(text, 200);
  return /[.!?…]$/.test(cut) ? cut : `${cut}.`;
}

// A page that nobody sees holds no connection: browsers allow six to a host.
let hidden = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      feed.close();
      feed = null;
      view?.close();
      view = null;
    }, HIDDEN_FOR);
  } else if (!feed) {
    connect();
    follow();
  }
});

setInterval(() => {
  if (!document.hidden) tick(main);
}, 1000);

// ------------------------------------------------------------ news

let known = new Set();

/** Says new trouble to screen readers, once. */
function announce(trouble) {
  const current = new Set(trouble.map((it) => `${it.level} ${it.what} ${it.link}`));
  const fresh = trouble.filter((it) => !known.has(`${it.level} ${it.what} ${it.link}`));
  if (fresh.length) {
    setText(
      byId("news"),
      fresh
        .slice(0, 3)
        .map((it) => line(`${it.level}: ${it.what}: ${it.text}`))
        .join(". "),
    );
  } else if (known.size && !current.size) setText(byId("news"), "All fine again");
  known = current;
}

const ICONS = { ok: "0b8f86", warning: "c98a1b", error: "d4483b", lost: "7b8794" };

/** Shows the state in the title and the icon of the tab. */
function nameWindow() {
  const errors = app.overview?.trouble.filter((it) => it.level === "error").length ?? 0;
  let state = app.overview?.trouble.length ? "warning" : "ok";
  if (errors) state = "error";
  if (lostSince || !app.overview) state = "lost";
  const where = view?.path.length > 1 ? `${line(view.path.at(-1)[0], 80)} · ` : "";
  const prefix = lostSince ? "No connection · " : errors ? `${plural(errors, "error")} · ` : "";
  document.title = `${prefix}${where}${line(app.overview?.title ?? "aioinformer", 60)}`;
  setAttribute(
    byId("icon"),
    "href",
    `data:image/svg+xml,${encodeURIComponent(
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" ` +
        `fill="#${ICONS[state]}"/><circle cx="8" cy="8" r="2.5" fill="#fff"/></svg>`,
    )}`,
  );
}

// ------------------------------------------------------------ theme and keys

const systemDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return (
    (document.documentElement.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark"
  );
}

function nameTheme() {
  const other = isDark() ? "light" : "dark";
  setAttribute(byId("theme"), "aria-label", `Change to the ${other} theme`);
  setAttribute(byId("theme"), "title", `Change to the ${other} theme (t)`);
}

function changeTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("aioinformer-theme", theme);
  } catch {
    // No storage: the theme is forgotten with the page.
  }
  nameTheme();
}

let previousKey = "";

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const before = previousKey;
  previousKey = event.key;
  if (event.key === "?") byId("keys").showModal();
  else if (event.key === "t") changeTheme();
  else if (event.key === "o" && before === "g") location.hash = "#/";
  else if (event.key === "u") location.hash = view.path.at(-2)?.[1] ?? "#/";
  else if (event.key === "/" && main.querySelector("[data-filter]")) {
    main.querySelector("[data-filter]").focus();
    event.preventDefault();
  }
}

document.addEventListener("keydown", pressed);
systemDark.addEventListener("change", nameTheme);
byId("theme").addEventListener("click", changeTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", follow);
nameTheme();
connect();
follow();
