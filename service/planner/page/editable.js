/** Says which numbers of a model or a machine can be edited, and makes the document with some of them changed. */

import { SOURCES, deviceName, formatName, memoryName, resource } from "./words.js";

/**
 * @typedef {{path: (string | number)[], words: string, value: number, unit: string, figure?: boolean, layers?: boolean, source?: string}} Entry
 * @typedef {{title: string, entries: Entry[]}} Group
 */

const MODEL = {
  hidden: "Width of a layer",
  vocab: "Tokens it knows",
  max_context: "Longest context",
};
/** The numbers of a body that can be edited without others that follow from them, by its kind. */
const BODIES = {
  attention: { heads: "Attention heads", kv_heads: "Heads of the cache" },
  "feed-forward": { width: "Width of feed-forward" },
  experts: { experts: "Experts", chosen: "Experts of a token", width: "Width of an expert" },
};
const MAX_LAYERS = 1024;
/** The key under which edited figures name their source. */
const YOURS = "yours";

/** @param {any} model @returns {Group[]} */
export function modelNumbers(model) {
  const layers = { path: ["pattern"], words: "Layers", value: model.pattern.length, unit: "", layers: true };
  const several = model.layouts.length > 1;
  return [
    { title: "Shape", entries: [layers, ...numbers(model, MODEL, [])] },
    ...model.layouts.map((layout, place) => ({
      title: several ? `Layers ${layout.letter}` : "Every layer",
      entries: layout.residuals.flatMap(({ bodies }, residual) =>
        bodies.flatMap(({ op }, body) =>
          numbers(op, BODIES[op.kind] ?? {}, ["layouts", place, "residuals", residual, "bodies", body, "op"]),
        ),
      ),
    })),
  ];
}

function numbers(part, words, path) {
  return Object.entries(words).map(([name, text]) => ({
    path: [...path, name],
    words: text,
    value: part[name],
    unit: "",
  }));
}

/** @param {any} machine @returns {Group[]} */
export function machineNumbers(machine) {
  const kind = (key) => SOURCES[machine.sources[key]?.kind]?.[0] ?? "";
  const figure = (path, words, value, unit) => ({
    path,
    words,
    value: value.value,
    unit,
    figure: true,
    source: kind(value.source),
  });
  return [
    ...machine.memories.map((memory, place) => ({
      title: [memoryName(memory.name, machine), memory.product].filter(Boolean).join(", "),
      entries: [
        { path: ["memories", place, "capacity"], words: "Size", value: memory.capacity, unit: "B" },
        {
          path: ["memories", place, "available"],
          words: "Usable for a model",
          value: memory.available,
          unit: "B",
          source: kind(memory.source),
        },
        figure(["memories", place, "bandwidth"], "Bandwidth", memory.bandwidth, "B/s"),
      ],
    })),
    ...machine.devices.map((device, place) => ({
      title: [deviceName(device, machine), device.product].filter(Boolean).join(", "),
      entries: [
        figure(["devices", place, "read"], "Reads its memory at", device.read, "B/s"),
        ...device.compute.map((row, line) =>
          figure(
            ["devices", place, "compute", line, "flops"],
            `Arithmetic, ${row.phase === "prefill" ? "prompt" : "answer"}${row.format === "*" ? "" : `, ${formatName(row.format)}`}`,
            row.flops,
            "FLOP/s",
          ),
        ),
        ...(device.launch ? [figure(["devices", place, "launch"], "Starts an operation in", device.launch, "s")] : []),
      ],
    })),
    ...machine.links.map((link, place) => ({
      title: resource(link.name, machine).replace(/^c/, "C"),
      entries: [
        figure(["links", place, "bandwidth"], "Speed", link.bandwidth, "B/s"),
        figure(["links", place, "latency"], "Delay", link.latency, "s"),
      ],
    })),
  ];
}

/**
 * Return the document with numbers changed; figures keep their relative interval and name the person as their source,
 * and a pattern begins again where there are more layers than it has letters.
 * @param {any} document @param {{path: (string | number)[], value: number, figure?: boolean, layers?: boolean}[]} changes @returns {any}
 */
export function withNumbers(document, changes) {
  const copy = structuredClone(document);
  for (const { path, value, figure, layers } of changes) {
    const holder = path.slice(0, -1).reduce((part, step) => part[step], copy);
    const last = path.at(-1);
    holder[last] = layers ? repeated(holder[last], value) : figure ? edited(holder[last], value) : value;
    if (figure) copy.sources[YOURS] = { kind: "user", where: "edited on the page" };
  }
  return copy;
}

function repeated(pattern, count) {
  if (!(Number.isInteger(count) && count >= 1 && count <= MAX_LAYERS)) return "";
  return pattern.repeat(Math.ceil(count / pattern.length)).slice(0, count);
}

function edited(figure, value) {
  const times = figure.value > 0 ? value / figure.value : 1;
  return {
    ...figure,
    value,
    p10: Math.min(value, figure.p10 * times),
    p90: Math.max(value, figure.p90 * times),
    source: YOURS,
  };
}
