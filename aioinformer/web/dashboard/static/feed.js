/** Feeds of server-sent events that reconnect by themselves.
 *
 * They are read by `fetch`: unlike an EventSource it tells why a request was refused, notices
 * the end at once, and reads no faster than the page can show.
 */

const SHORTEST = 500;
const LONGEST = 5000;
const feeds = new Set();

/** Opens a feed.
 *
 * @param url relative address.
 * @param onData receives each event's value.
 * @param onState receives `{state, since, text}`: "connecting", "live", "lost" or "refused".
 * @param silence returns after how many milliseconds without an event the contact is lost;
 *   0 for feeds that may be silent.
 * @returns `{close(), restart()}`
 */
export function openFeed(url, { onData, onState = () => {}, silence = () => 0 }) {
  let abort = new AbortController();
  let closed = false;
  let delay = SHORTEST;
  let timer = 0;
  let watch = 0;
  let current = "";

  function say(state, text = "") {
    if (closed) return;
    const same = current === `${state}\n${text}`;
    current = `${state}\n${text}`;
    if (!same) onState({ state, text, since: Date.now() });
  }

  function listen() {
    clearTimeout(watch);
    if (!silence()) return;
    watch = setTimeout(() => {
      // What arrived while the page was busy is read first.
      watch = setTimeout(() => fail("The program does not respond."), 50);
    }, silence() - 50);
  }

  function receive(value) {
    if (closed) return;
    delay = SHORTEST;
    listen();
    say("live");
    try {
      onData(value);
    } catch (error) {
      reportError(error); // an error of the page, not of the contact
    }
  }

  function fail(text, refused = false) {
    if (closed) return;
    clearTimeout(watch);
    clearTimeout(timer);
    abort.abort();
    say(refused ? "refused" : "lost", text);
    timer = setTimeout(connect, refused ? LONGEST : delay * (0.75 + Math.random() / 2));
    delay = Math.min(delay * 2, LONGEST);
  }

  async function connect() {
    abort = new AbortController();
    const { signal } = abort;
    listen();
    try {
      const response = await fetch(url, { signal, headers: { Accept: "text/event-stream" } });
      if (response.ok) {
        await readEvents(response.body, receive);
        if (!signal.aborted) fail("The program ended the connection.");
      } else {
        const text = (await response.text()).slice(0, 500).trim();
        if (!signal.aborted) fail(text || `HTTP ${response.status}`, response.status < 500);
      }
    } catch {
      if (!signal.aborted) fail("The connection failed.");
    }
  }

  const feed = {
    close() {
      closed = true;
      feeds.delete(feed);
      clearTimeout(timer);
      clearTimeout(watch);
      abort.abort();
    },
    restart() {
      clearTimeout(timer);
      abort.abort();
      delay = SHORTEST;
      connect();
    },
  };
  feeds.add(feed);
  say("connecting");
  connect();
  return feed;
}

/** Restarts all feeds but one, whose contact has just returned. */
export function restartOthers(returned) {
  for (const feed of feeds) if (feed !== returned) feed.restart();
}

/** Reads server-sent events from a body until it ends. */
async function readEvents(body, receive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let from = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n", from); end >= 0; end = text.indexOf("\n\n")) {
      const data = dataOf(text.slice(0, end));
      text = text.slice(end + 2);
      if (data) receive(parsed(data));
    }
    from = Math.max(0, text.length - 1);
  }
}

/** Parses JSON; a whole number that a number of JavaScript cannot hold stays a text. */
export function parsed(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? (context?.source ?? value) // browsers before 2025 have no source
      : value,
  );
}

function dataOf(block) {
  const lines = block.split("\n").filter((it) => it.startsWith("data:"));
  return lines.map((it) => it.slice(5)).join("\n");
}
