/** Sliders for what one would like to change: memory, bandwidth, context, requests at a time. They answer while they move. */

import { byId, fill, h } from "./dom.js";
import { bytes, number, perSecond, tokens } from "./numbers.js";

const GIB = 2 ** 30;
const MEMORY_STOPS = [
  2, 3, 4, 6, 8, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 141, 160, 192,
];
const RAM_STOPS = [4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
const FACTORS = [0.25, 0.33, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4];
const BATCHES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];
const CONTEXTS = [
  256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304, 131072,
  262144, 524288, 1048576,
];

/**
 * @typedef {object} Slider
 * @property {string} name
 * @property {(known: Known) => string} label
 * @property {(known: Known) => boolean} there whether it means anything for this machine
 * @property {(known: Known) => number[]} stops in order
 * @property {(known: Known) => number} now its value as the question has it
 * @property {(value: number, known: Known) => string} words
 * @property {(value: number, known: Known) => any} patch of the question
 * @typedef {{question: import("./question.js").Question, machine: any, model: any}} Known
 */

const ACCELERATED = ["vram", "loopback"];

/** @type {Slider[]} */
const SLIDERS = [
  sized("vram", "GPU memory", MEMORY_STOPS, (machine) => accelerated(machine)),
  sized("ram", "RAM", RAM_STOPS, (machine) => host(machine)),
  faster("vram_bw", "GPU memory bandwidth", (machine) => accelerated(machine)?.bandwidth.value),
  faster("dram_bw", "RAM bandwidth", (machine) => host(machine)?.bandwidth.value),
  faster("link", "Link to the GPU", (machine) => linkTo(machine)?.bandwidth.value),
  {
    name: "context",
    label: () => "Context",
    there: () => true,
    stops: ({ question, model }) => {
      const least = Number(question.prompt) + Number(question.answer);
      const most = model?.max_context ?? 131072;
      return withValue(
        CONTEXTS.filter((stop) => stop >= least && stop <= most),
        Number(question.context),
      );
    },
    now: ({ question }) => Number(question.context),
    words: (value) => `${tokens(value)} tokens`,
    patch: (value) => ({ context: value }),
  },
  {
    name: "batch",
    label: () => "Requests at a time",
    there: () => true,
    stops: ({ question }) => withValue(BATCHES, Number(question.batch)),
    now: ({ question }) => Number(question.batch),
    words: (value) => String(value),
    patch: (value) => ({ batch: value }),
  },
];

/**
 * Make the sliders, and show them anew whenever the question, the machine or the model is another one.
 * @param {import("./question.js").Store} store
 * @returns {{machine: (document: any) => void, model: (document: any) => void}} hear of documents
 */
export function connectSliders(store) {
  const known = { question: store.question, machine: null, model: null };
  const rows = SLIDERS.map((slider) => row(slider, store, known));
  fill(
    byId("sliders"),
    rows.map(({ element }) => element),
  );
  const show = () => {
    for (const { update } of rows) update();
    byId("reset").hidden = Object.keys(known.question.changes).length === 0;
  };
  store.listen((question) => {
    known.question = question;
    show();
  });
  byId("reset").addEventListener("click", () => store.change({ changes: {} }));
  show();
  return {
    machine: (document) => {
      known.machine = document;
      show();
    },
    model: (document) => {
      known.model = document;
      show();
    },
  };
}

function row(slider, store, known) {
  const id = `slider-${slider.name}`;
  const input = h("input", { type: "range", id, min: "0", step: "1", "aria-describedby": `${slider.name}-fault` });
  const label = h("label", { for: id });
  const output = h("output", { for: id });
  const fault = h("p", { class: "fault", id: `${slider.name}-fault`, hidden: true });
  const element = h("div", { class: "slider" }, label, output, input, fault);
  let stops = [];
  let dragging = false;
  input.addEventListener("input", () => {
    dragging = true;
    store.change(slider.patch(stops[Number(input.value)], known), true);
  });
  input.addEventListener("change", () => {
    dragging = false;
    update();
  });
  const update = () => {
    element.hidden = !slider.there(known);
    if (element.hidden) return;
    label.textContent = slider.label(known);
    const value = slider.now(known);
    if (!dragging) stops = slider.stops(known);
    input.max = String(Math.max(0, stops.length - 1));
    const place = nearest(stops, value);
    if (!dragging) input.value = String(place);
    const words = slider.words(value, known);
    output.textContent = words;
    input.setAttribute("aria-valuetext", words);
    input.style.setProperty("--at", `${stops.length > 1 ? (100 * Number(input.value)) / (stops.length - 1) : 0}%`);
    element.classList.toggle("changed", slider.name in known.question.changes);
  };
  return { element, update };
}

function sized(name, words, stops, memoryOf) {
  return {
    name,
    label: () => words,
    there: ({ machine }) => machine !== null && memoryOf(machine) !== undefined,
    stops: ({ machine, question }) =>
      withValue(
        stops.map((size) => size * GIB),
        memoryOf(machine).capacity,
        sizeNow(question.changes[name], memoryOf(machine).capacity),
      ),
    now: ({ machine, question }) => sizeNow(question.changes[name], memoryOf(machine).capacity),
    words: (value) => (Number.isInteger(value / GIB) ? `${value / GIB} GiB` : bytes(value)),
    patch: (value, { machine, question }) => ({
      changes: changed(question.changes, name, value === memoryOf(machine).capacity ? null : written(value)),
    }),
  };
}

function faster(name, words, rateOf) {
  return {
    name,
    label: () => words,
    there: ({ machine }) => machine !== null && rateOf(machine) !== undefined,
    stops: ({ question }) => withValue(FACTORS, factorNow(question.changes[name])),
    now: ({ question }) => factorNow(question.changes[name]),
    words: (value, { machine }) =>
      `${perSecond(rateOf(machine) * value, "B/s")}${value === 1 ? "" : `, ×${number(value)}`}`,
    patch: (value, { question }) => ({ changes: changed(question.changes, name, value === 1 ? null : `x${value}`) }),
  };
}

const written = (size) => (Number.isInteger(size / GIB) ? `${size / GIB}GiB` : `${size}B`);

function changed(changes, name, value) {
  const { [name]: _, ...others } = changes;
  return value === null ? others : { ...others, [name]: value };
}

function sizeNow(text, base) {
  if (text === undefined) return base;
  const match = /^x?\s*([\d.]+)\s*([a-zA-Z]*)$/.exec(text);
  if (match === null) return base;
  if (text.startsWith("x")) return base * Number(match[1]);
  const units = { "": 1, B: 1, MB: 1e6, GB: 1e9, TB: 1e12, MiB: 2 ** 20, GiB: GIB, TiB: 2 ** 40 };
  return Number(match[1]) * (units[match[2]] ?? 1);
}

function factorNow(text) {
  const value = Number((text ?? "x1").replace(/^x/, ""));
  return Number.isFinite(value) && value > 0 ? value : 1;
}

function withValue(stops, ...values) {
  return [...new Set([...stops, ...values.filter((value) => Number.isFinite(value) && value > 0)])].sort(
    (one, other) => one - other,
  );
}

function nearest(stops, value) {
  return stops.reduce(
    (best, stop, place) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? place : best),
    0,
  );
}

/** @param {any} machine @returns {any} the first memory of an accelerator's own */
export function accelerated(machine) {
  return machine.memories.find((memory) => ACCELERATED.includes(memory.kind));
}

/** @param {any} machine @returns {any} the memory of the first device, which is the CPU */
export function host(machine) {
  return machine.memories.find((memory) => memory.name === machine.devices[0].memory);
}

function linkTo(machine) {
  const near = accelerated(machine);
  return (
    near && machine.links.find((link) => link.target_memory === near.name && link.source_memory === host(machine).name)
  );
}
