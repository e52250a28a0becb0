/** Curves with uPlot in the page's colours, with what is under the pointer as text and all numbers as a table. */

import uPlot from "./vendor/uPlot.esm.js";
import { fill, h } from "./dom.js";
import { scrolling } from "./sources.js";
import { colour, whileThere } from "./theme.js";

const HEIGHT = 230;
/** Colours of series, in the order of the classes `key-series-0` ..; points of more series have other shapes. */
const INKS = ["accent", "cpu", "other", "kv", "good", "buffers"];
/** Half the size of a point, in pixels of the page. */
const POINT = 4;

const TIMES = [
  1e-3, 1e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400,
  172800, 432000, 864000,
];

/**
 * @typedef {object} Series
 * @property {string} words
 * @property {(number | null)[]} values
 * @property {number} [ink] number of its colour
 * @property {"line" | "points" | "edge" | "front"} [kind] an edge is the border of a band, and has no line; a front has no points
 * @typedef {object} Curve
 * @property {string} title
 * @property {string} about
 * @property {number[]} x
 * @property {string} xWords
 * @property {(value: number) => string} xText
 * @property {(value: number) => string} yText
 * @property {Series[]} series
 * @property {[number, number][]} [bands] pairs of series, upper and lower
 * @property {boolean} [logX] @property {boolean} [logY]
 * @property {boolean} [timeX] whether x is a time, with ticks that suit one instead of one for every value
 * @property {number} [mark] a value of x that is the question's own
 */

/** @param {Curve} curve @returns {HTMLElement} */
export function chart(curve) {
  const box = h("div", { class: "chart-plot" });
  const read = h("p", { class: "chart-read" });
  let plot = null;
  const draw = () => {
    plot?.destroy();
    plot =
      box.clientWidth > 0
        ? new uPlot(options(curve, box.clientWidth, read), [curve.x, ...curve.series.map((one) => one.values)], box)
        : null;
  };
  new ResizeObserver(() => (plot ? plot.setSize({ width: box.clientWidth, height: HEIGHT }) : draw())).observe(box);
  whileThere(box, draw);
  return h(
    "figure",
    { class: "chart" },
    h("h3", {}, curve.title),
    h("p", { class: "about" }, curve.about),
    box,
    read,
    legend(curve),
    table(curve),
  );
}

function options(curve, width, read) {
  const grid = { stroke: colour("line"), width: 1 };
  const axis = {
    stroke: colour("faint"),
    font: `11px ${colour("font")}`,
    grid,
    ticks: { ...grid, size: 4 },
    filter: (_, ticks) => ticks, // else logarithmic axes have words at powers of ten alone
  };
  return {
    width,
    height: HEIGHT,
    padding: [10, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 7 } },
    scales: {
      x: { time: false, distr: curve.logX ? 3 : 1, log: 2 },
      y: { distr: curve.logY ? 3 : 1, range: curve.logY ? undefined : (_, __, most) => [0, most * 1.06 || 1] },
    },
    axes: [
      {
        ...axis,
        size: 30,
        splits: () => (curve.timeX ? times(curve.x[0], curve.x.at(-1)) : curve.x.filter(spread(curve.x, width))),
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : curve.xText(tick))),
      },
      {
        ...axis,
        size: 62,
        splits: curve.logY ? (_, __, least, most) => times(least, most) : undefined,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : curve.yText(tick))),
      },
    ],
    series: [{}, ...curve.series.map((one, place) => line(one, one.ink ?? place))],
    bands: (curve.bands ?? []).map(([upper, lower]) => ({
      series: [upper + 1, lower + 1],
      fill: `color-mix(in srgb, ${colour(INKS[curve.series[upper].ink ?? 0])} 18%, transparent)`,
    })),
    hooks: { setCursor: [(plot) => tell(plot, curve, read)], draw: [(plot) => mark(plot, curve), (plot) => points(plot, curve)] },
  };
}

function line({ words, kind = "line" }, ink) {
  const stroke = colour(INKS[ink % INKS.length]);
  const base = { label: words, stroke, spanGaps: true };
  if (kind === "edge") return { ...base, width: 0, points: { show: false } };
  if (kind === "points") return { ...base, paths: () => null, points: { show: false } };
  if (kind === "front") return { ...base, width: 2, dash: [6, 3], points: { show: false } };
  return { ...base, width: 2, points: { show: true, size: 5, fill: stroke } };
}

/** Where values stand too close together, some get no words. */
function spread(x, width) {
  const every = Math.max(1, Math.ceil((x.length * 46) / width));
  return (_, place) => place % every === 0;
}

/** Ticks of a logarithmic axis of times: fewer where all that suit would be many. */
function times(least, most) {
  const ticks = TIMES.filter((time) => time >= least * 0.999 && time <= most * 1.001);
  const every = Math.ceil(ticks.length / 6);
  return ticks.filter((_, place) => place % every === 0);
}

function mark(plot, { mark: x }) {
  if (x === undefined) return;
  const left = plot.valToPos(x, "x", true);
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("line-strong");
  ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(left, bbox.top);
  ctx.lineTo(left, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

/** Draw series of points, each with the colour and the shape of its ink. */
function points(plot, curve) {
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = colour("card");
  ctx.lineWidth = devicePixelRatio;
  for (const { values, ink, kind } of curve.series) {
    if (kind !== "points") continue;
    ctx.fillStyle = colour(INKS[ink % INKS.length]);
    values.forEach((value, place) => {
      if (value === null) return;
      const path = shape(
        Math.floor(ink / INKS.length),
        plot.valToPos(curve.x[place], "x", true),
        plot.valToPos(value, "y", true),
        POINT * devicePixelRatio,
      );
      ctx.fill(path);
      ctx.stroke(path);
    });
  }
  ctx.restore();
}

/** A disc, a square or a diamond around a point. */
function shape(kind, x, y, half) {
  const path = new Path2D();
  if (kind === 0) path.arc(x, y, half, 0, 2 * Math.PI);
  else if (kind === 1) path.rect(x - half, y - half, 2 * half, 2 * half);
  else {
    const far = 1.3 * half;
    path.moveTo(x, y - far);
    for (const [right, down] of [
      [far, 0],
      [0, far],
      [-far, 0],
    ])
      path.lineTo(x + right, y + down);
    path.closePath();
  }
  return path;
}

function tell(plot, curve, read) {
  const place = plot.cursor.idx;
  if (place === null || place === undefined) return fill(read);
  const words = curve.series
    .filter((one) => one.values[place] !== null && one.words)
    .map((one) => `${one.words} ${curve.yText(one.values[place])}`);
  fill(read, `${curve.xText(curve.x[place])} ${curve.xWords}: ${words.join(", ")}`);
}

function legend(curve) {
  const named = curve.series
    .map((one, place) => ({ ...one, ink: one.ink ?? place }))
    .filter((one) => one.kind !== "edge" && one.words)
    .sort((one, other) => one.ink - other.ink);
  const interval = (curve.bands ?? []).length > 0;
  return h(
    "ul",
    { class: "legend" },
    named.length > 1 &&
      named.map((one) =>
        h(
          "li",
          {},
          h("span", {
            class: `key key-series-${one.ink % INKS.length}${keyShape(one)}`,
            "aria-hidden": "true",
          }),
          one.words,
        ),
      ),
    interval && h("li", {}, "shaded: 90 % interval"),
    curve.mark !== undefined && h("li", {}, "dashed: your question"),
  );
}

function keyShape({ kind, ink }) {
  if (kind === "front") return " key-front";
  return kind === "points" ? ` key-shape-${Math.min(2, Math.floor(ink / INKS.length))}` : "";
}

function table(curve) {
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "As numbers"),
    scrolling(
      curve.title,
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, curve.xWords),
            curve.series.map((one) => h("th", { scope: "col", class: "count" }, one.words)),
          ),
        ),
        h(
          "tbody",
          {},
          curve.x.map((value, place) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, curve.xText(value)),
              curve.series.map((one) =>
                h("td", { class: "count" }, one.values[place] === null ? "–" : curve.yText(one.values[place])),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}
