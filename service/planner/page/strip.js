/** The strip of layers in order: which run on the CPU, which on the GPU, which come to it, which both share. */

import { fill, h, svg } from "./dom.js";
import { counted } from "./numbers.js";

const CELL = 24;
const HEIGHT = 30;
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
  if (how === "streamed") return "stream";
  if (place.startsWith("CPU")) return "cpu";
  if (/^GPU \d*[02468]$/.test(place)) return "gpu2";
  return place.startsWith("GPU") || place.startsWith("accelerator") ? "gpu" : "other";
}

/** @param {{place: string, how: string}} run @returns {string} */
export function runWords({ place, how }) {
  if (how === "shared") return `shared by ${place}`;
  return `on ${/\d$/.test(place) ? "" : "the "}${place}${HOW[how]}`;
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
        svg("rect", { x: layer * CELL + 1, y: 0, width: CELL - 2, height: HEIGHT, rx: 3 }),
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

const stripes = (left) => [6, 14, 22].map((x) => `M${left + x} 1L${left + x - 4} ${HEIGHT - 1}`).join("");

function ruler(layers) {
  return h("div", { class: "ruler", "aria-hidden": "true" }, h("span", {}, "layer 1"), h("span", {}, String(layers)));
}

function legend(all, blocks) {
  const kinds = new Map();
  for (const run of all) kinds.set(`${run.place}/${run.how}`, { run, count: 0 });
  for (const run of blocks) kinds.get(`${run.place}/${run.how}`).count += run.layers[1] - run.layers[0] + 1;
  return h(
    "ul",
    { class: "legend" },
    [...kinds.values()].map(({ run, count }) =>
      h(
        "li",
        {},
        h("span", { class: `key key-${styleOf(run)}`, "aria-hidden": "true" }),
        count > 0 ? `${counted(count, "layer")} ${runWords(run)}` : `prompts: ${runWords(run)}`,
      ),
    ),
  );
}
