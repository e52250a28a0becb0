/** The strip of layers in order: which run on the CPU, which on the GPU, which come to it, which both share; of layers
 * with experts elsewhere, where these are, below the part that is the rest of the layer. */

import { fill, h, svg } from "./dom.js";
import { counted } from "./numbers.js";

const CELL = 24;
const HEIGHT = 30;
const REST = 9; // of a cell whose experts are elsewhere: the part that is not experts
const HOW = { resident: "", streamed: ", its weights come when they are used", shared: "shared by" };

/** @param {Element} box @param {any} answer a helm.plan-answer/1 */
export function showStrip(box, answer) {
  const { blocks, prompt_blocks: prompts } = answer;
  const layers = answer.plan.model.pattern.length;
  const rows =
    prompts.length > 0
      ? [
          ["While answering", blocks],
          ["While reading the prompt", prompts],
        ]
      : [["", blocks]];
  fill(
    box,
    rows.map(([title, runs]) =>
      h("figure", { class: "strip" }, title && h("figcaption", {}, title), picture(runs, layers, title), ruler(layers)),
    ),
    legend([...blocks, ...prompts], blocks),
  );
}

/** @param {{place: string, how: string}} run @returns {"cpu" | "gpu" | "gpu2" | "stream" | "shared" | "other"} the style of a run */
export function styleOf({ place, how }) {
  if (how === "shared") return "shared";
  if (how === "experts") return "experts";
  if (how === "streamed") return "stream";
  if (place.startsWith("CPU")) return "cpu";
  if (/^GPU \d*[02468]$/.test(place)) return "gpu2";
  return place.startsWith("GPU") || place.startsWith("accelerator") ? "gpu" : "other";
}

/** @typedef {{count: number, place: string, how: string}} Group */
/** @typedef {{count: number, place: string, eviction: string}} Cached */

/** @param {{place: string, how: string, experts?: Group[], cached?: Cached | null}} run @returns {string} */
export function runWords({ place, how, experts = [], cached = null }) {
  if (how === "shared") return `shared by ${place}`;
  if (how !== "experts") return `${named(place)}${HOW[how]}`;
  const words = `${named(place)}; of the experts of each, ${experts.map(groupWords).join(", ")}`;
  return cached === null ? words : `${words}, ${cachedWords(cached)}`;
}

const named = (place) => `on ${/\d$/.test(place) ? "" : "the "}${place}`;

function groupWords({ count, place, how }) {
  return `${count} ${how === "streamed" ? `come to the ${place} when they are used` : named(place)}`;
}

function cachedWords({ count, place, eviction }) {
  return `the ${count} ${eviction === "popularity" ? "most popular" : "used last"} also ${named(place)}`;
}

function picture(runs, layers, title) {
  const words = runs.map((run) => `layers ${run.layers[0] + 1} to ${run.layers[1] + 1} ${runWords(run)}`).join("; ");
  return svg(
    "svg",
    {
      viewBox: `0 0 ${layers * CELL} ${HEIGHT}`,
      role: "img",
      "aria-label": `${title ? `${title}: ` : ""}${words}`,
      preserveAspectRatio: "none",
      class: "strip-cells",
    },
    runs.flatMap((run) => cells(run)),
  );
}

function cells(run) {
  const style = styleOf(run);
  const made = [];
  for (let layer = run.layers[0]; layer <= run.layers[1]; layer += 1) {
    made.push(
      svg(
        "g",
        { class: `cell cell-${style}` },
        svg("title", {}, `layer ${layer + 1}: ${runWords(run)}`),
        ...(style === "experts" ? parts(run, layer * CELL) : [area(layer * CELL, 0, HEIGHT)]),
        style === "shared" &&
          svg("path", {
            d: `M${layer * CELL + 1} ${HEIGHT}L${layer * CELL + CELL - 1} 0V${HEIGHT - 3}q0 3 -3 3z`,
            class: "half",
          }),
        style === "stream" && svg("path", { d: stripes(layer * CELL), class: "stripe" }),
      ),
    );
  }
  return made;
}

const area = (left, top, height, style = "") =>
  svg("rect", { x: left + 1, y: top, width: CELL - 2, height, rx: 3, class: style });

/** The experts that are cached, over a half of the cell, as high as their part of all. */
const kept = (left, height, style) =>
  svg("rect", { x: left + CELL / 2, y: HEIGHT - height, width: CELL / 2 - 1, height, rx: 2, class: `cell-${style}` });

/** The rest of a layer, and below it its experts, as high as their part of all. */
function parts(run, left) {
  const all = run.experts.reduce((sum, group) => sum + group.count, 0);
  const room = HEIGHT - REST - 1;
  const made = [area(left, 0, REST, `cell-${styleOf({ ...run, how: "resident" })}`)];
  let top = REST + 1;
  for (const group of run.experts) {
    const height = (room * group.count) / all;
    made.push(area(left, top, height, `cell-${styleOf(group)}`));
    top += height;
  }
  if (run.cached) made.push(kept(left, (room * run.cached.count) / all, styleOf({ ...run.cached, how: "resident" })));
  return made;
}

const stripes = (left) => [6, 14, 22].map((x) => `M${left + x} 1L${left + x - 4} ${HEIGHT - 1}`).join("");

function ruler(layers) {
  return h("div", { class: "ruler", "aria-hidden": "true" }, h("span", {}, "layer 1"), h("span", {}, String(layers)));
}

function keyOf(run) {
  const coming = run.how === "experts" && run.experts.some((group) => group.how === "streamed");
  return coming ? "experts-stream" : styleOf(run);
}

function legend(all, blocks) {
  const kinds = new Map();
  for (const run of all) kinds.set(runWords(run), { run, count: 0 });
  for (const run of blocks) kinds.get(runWords(run)).count += run.layers[1] - run.layers[0] + 1;
  return h(
    "ul",
    { class: "legend" },
    [...kinds.values()].map(({ run, count }) =>
      h(
        "li",
        {},
        h("span", { class: `key key-${keyOf(run)}`, "aria-hidden": "true" }),
        count > 0 ? `${counted(count, "layer")} ${runWords(run)}` : `prompts: ${runWords(run)}`,
      ),
    ),
  );
}
