/** Small pictures of rates over the last five minutes. */

import { rate } from "./format.js";
import { h, s, setAttribute } from "./dom.js";

const HEIGHT = 32;

/** Makes a picture of 60 rates; `update(values)` draws it anew. */
export function spark(noun) {
  const area = s("path", { class: "area" });
  const trace = s("path", { class: "trace" });
  const picture = s(
    "svg",
    {
      viewBox: `0 0 59 ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${noun}, last 5 minutes`,
    },
    area,
    trace,
  );
  return {
    element: h("div", { class: "spark" }, picture),
    update(values) {
      if (!values.length) return;
      const highest = Math.max(0, ...values);
      const points = tracePoints(values, highest);
      setAttribute(trace, "d", `M${points}`);
      setAttribute(area, "d", `M0 ${HEIGHT}L${points}L59 ${HEIGHT}z`);
      setAttribute(
        picture,
        "aria-label",
        `${noun}, last 5 minutes: now ${rate(values.at(-1) ?? 0)}, peak ${rate(highest)}`,
      );
    },
  };
}

function tracePoints(values, highest) {
  const step = 59 / Math.max(1, values.length - 1);
  const y = (value) => HEIGHT - 1 - (highest ? value / highest : 0) * (HEIGHT - 3);
  return values.map((it, at) => `${(at * step).toFixed(1)} ${y(it).toFixed(1)}`).join("L");
}
