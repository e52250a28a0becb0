/** Says in plain words what documents call by short names. What is not known here is shown as it is. */

/** Methods: [what people call it, what it does]; the service says which there are, and what others do. */
const METHODS = {
  best: [
    "Best of several",
    "tries an optimised layout, a split by layers, llama.cpp and vLLM, and takes the simplest that nothing clearly beats",
  ],
  optimal: ["Optimised layout", "every layer is placed by itself; a proof says how far from the ideal it is"],
  "layer-split": ["Split by layers", "the first layers run on the CPU, the others on the GPU"],
  "op-split": ["Split inside layers", "each layer is divided between CPU and GPU"],
  flexgen: ["FlexGen", "weights wait in RAM and come to the GPU when they are used"],
  "flexgen-lp": ["FlexGen, own search", "FlexGen's own choice of shares in GPU memory, RAM and storage"],
  "layerwise-map": ["HeLM shares", "a share of every layer stays on the GPU, the rest comes when it is used"],
  "weights-on-host": ["Weights in RAM", "the GPU computes, all weights come from RAM"],
  "cpu-only": ["CPU alone", "the GPU is not used"],
  hetegen: ["HeteGen", "every matrix is shared between CPU and GPU"],
  twinpilots: ["TwinPilots", "some layers stay on the GPU, some come to it, some run on the CPU"],
  accelerate: ["Accelerate", "Hugging Face's device_map=auto"],
  "zero-inference": ["DeepSpeed ZeRO", "DeepSpeed's ZeRO-Inference"],
  vllm: ["vLLM", "all computed on the GPU; weights without room there wait in RAM"],
  "llama-cpp": ["llama.cpp", "the last layers on the GPU, the others on the CPU"],
};

/** Engines: what people call them. */
const ENGINES = { ours: "Helm, or whichever is best", "zero-inference": "DeepSpeed ZeRO-Inference", freetoken: "FreeToken" };

/** @param {string} name @returns {string} */
export const engineName = (name) => ENGINES[name] ?? METHODS[name]?.[0] ?? name;

/** What the service says of methods. @type {Map<string, string>} */
const toldOfMethods = new Map();

/** @param {{name: string, about: string}[]} entries of the service's list of methods */
export function learnMethods(entries) {
  for (const { name, about } of entries) toldOfMethods.set(name, about);
}

/** @param {string} name @returns {string} */
export const methodName = (name) => METHODS[name]?.[0] ?? name;

/** @param {string} name @returns {string} */
export const methodAbout = (name) => METHODS[name]?.[1] ?? toldOfMethods.get(name) ?? "";

/** Formats of weights: [name, bits a weight]; the smallest first. */
export const FORMATS = {
  iq2_m: ["IQ2_M", "2.9 bit"],
  iq3_xxs: ["IQ3_XXS", "3.3 bit"],
  q3_k_m: ["Q3_K_M", "4 bit"],
  iq4_xs: ["IQ4_XS", "4.5 bit"],
  q4_k_m: ["Q4_K_M", "4.9 bit"],
  q4_k: ["Q4_K", "4.5 bit"],
  q4_0: ["Q4_0", "4.5 bit"],
  q4: ["Q4", "4.5 bit, groups"],
  q5_k_m: ["Q5_K_M", "5.7 bit"],
  q6_k: ["Q6_K", "6.6 bit"],
  q8_0: ["Q8_0", "8.5 bit"],
  q8: ["Q8", "8.5 bit, groups"],
  f16: ["FP16", "16 bit"],
  bf16: ["BF16", "16 bit"],
  f32: ["FP32", "32 bit"],
};

export const CACHE_FORMATS = { f16: "FP16", q8_0: "Q8_0, half", bf16: "BF16", f32: "FP32" };

/** @param {string} name @returns {string} */
export const formatName = (name) => FORMATS[name]?.[0] ?? name;

/** Kinds of sources, the surest first: [short, long]. */
export const SOURCES = {
  measured: ["measured", "measured on a machine like this"],
  fitted: ["fitted", "a curve fitted to published or own measurements"],
  paper: ["paper", "a figure that a paper states"],
  datasheet: ["data sheet", "the vendor's data sheet, or derived from it"],
  class: ["typical", "typical of devices of this kind"],
  assumed: ["assumed", "nobody measured it: an assumption with a wide interval"],
  user: ["yours", "a number that you changed"],
};

/** @param {string} text as evidence has it, `paper: HELM (2026) ..` @returns {{kind: string, where: string}} */
export function sourceOf(text) {
  const [kind, ...rest] = text.split(": ");
  if (!(kind in SOURCES)) return { kind: "assumed", where: text };
  const where = rest.join(": ");
  return { kind, where: where.startsWith(`${kind}: `) ? where.slice(kind.length + 2) : where };
}

/** What limits an operation. */
export const BOUNDS = {
  memory: "memory",
  compute: "arithmetic",
  launch: "start of work",
  link: "copying",
  overhead: "fixed cost",
};

const OPERATIONS = {
  embedding: "look up the tokens",
  positions: "positions",
  norm1: "norm before attention",
  q: "attention: queries",
  k: "attention: keys",
  v: "attention: values",
  append: "attention: write the cache",
  attention: "attention over past tokens",
  scores: "attention: scores",
  softmax: "attention: softmax",
  wv: "attention: weighted values",
  o: "attention: output",
  norm2: "norm before feed-forward",
  gate: "feed-forward: gate",
  up: "feed-forward: up",
  down: "feed-forward: down",
  final_norm: "last norm",
  head: "choose the next token",
  submission: "hand work to the GPU",
  hidden: "values between layers",
  kv: "cache of past tokens",
  keys: "cache: keys",
  values: "cache: values",
};

/** @param {string} name of an operation or a transfer, `q`, `q.weights`, `hidden` @returns {string} */
export function operation(name) {
  const [op, ...rest] = name.split(".");
  const what = OPERATIONS[op] ?? op;
  if (rest.length === 0) return what;
  const of = rest.join(" ");
  return of === "weights" ? `weights of ${what}` : `${what}, ${of}`;
}

/** @param {string} name @returns {"attention" | "feed" | "ends" | "copy"} the group an operation is coloured by */
export function operationGroup(name) {
  const op = name.split(".")[0];
  if (name.includes(".") || ["hidden", "kv", "keys", "values"].includes(op)) return "copy";
  if (["gate", "up", "down", "norm2"].includes(op)) return "feed";
  if (["embedding", "positions", "final_norm", "head", "submission"].includes(op)) return "ends";
  return "attention";
}

export const GROUPS = { attention: "attention", feed: "feed-forward", ends: "first and last", copy: "copies" };

const DEVICES = { cpu: "CPU", cuda: "GPU", rocm: "GPU", metal: "GPU", loopback: "accelerator" };

/**
 * Say what a lane or a device is: `GPU`, `copies RAM → GPU`.
 * @param {string} name as a prediction names it
 * @param {any} hardware a Hardware document
 * @param {Record<string, string>} [memories] what people call its memories
 * @returns {string}
 */
export function resource(name, hardware, memories = {}) {
  const [owner, lane] = name.split(":");
  const device = hardware.devices.find((one) => one.name === owner);
  if (device)
    return deviceName(device, hardware) + (lane === "decompress" ? ", expanding weights" : lane ? `, ${lane}` : "");
  const link = hardware.links.find((one) => one.name === owner);
  if (link) {
    const [from, to] = [link.source_memory, link.target_memory].map((memory) => memoryName(memory, hardware, memories));
    return `${lane === "activations" ? "values" : "copies"} ${from} → ${to}`;
  }
  return hardware.memories.some((one) => one.name === owner) ? memoryName(owner, hardware, memories) : name;
}

/** @param {any} device @param {any} hardware @returns {string} `GPU`, or `GPU cuda1` where there are several */
export function deviceName(device, hardware) {
  const word = DEVICES[device.kind] ?? device.name;
  const alike = hardware.devices.filter((one) => one.kind === device.kind);
  if (alike.length === 1) return word;
  return `${word} ${alike.indexOf(device) + 1}`;
}

/** @param {string} name @param {any} hardware @param {Record<string, string>} names @returns {string} */
export function memoryName(name, hardware, names = {}) {
  if (names[name]) return names[name];
  const kind = hardware.memories.find((one) => one.name === name)?.kind;
  return { dram: "RAM", vram: "GPU memory", unified: "shared memory", nvme: "NVMe" }[kind] ?? name;
}

const RATES = { "bytes/s": "B/s", s: "s" };

/**
 * Say what a piece of evidence is about.
 * @param {string} what `cuda prefill FLOP/s *`, `h2d latency s`
 * @param {any} hardware
 * @param {Record<string, string>} memories
 * @returns {{words: string, unit: string}}
 */
export function evidence(what, hardware, memories) {
  const parts = what.split(" ");
  const owner = resource(parts[0], hardware, memories);
  const text = parts.slice(1).join(" ");
  if (/^(prefill|decode) FLOP\/s/.test(text)) {
    const [phase, , format] = parts.slice(1);
    const when = phase === "prefill" ? "reading the prompt" : "answering";
    return {
      words: `${owner}: arithmetic while ${when}${format && format !== "*" ? ` with ${formatName(format)}` : ""}`,
      unit: "FLOP/s",
    };
  }
  if (text === "read bytes/s") return { words: `${owner}: reading its memory`, unit: "B/s" };
  if (text === "bytes/s") return { words: `${owner}: speed`, unit: "B/s" };
  if (text === "latency s") return { words: `${owner}: delay of a copy`, unit: "s" };
  const unit = parts.at(-1);
  return unit in RATES
    ? { words: `${owner}: ${parts.slice(1, -1).join(" ")}`, unit: RATES[unit] }
    : { words: `${owner}: ${text}`, unit: "" };
}

/** @param {string} label of a plan @returns {string} a plan's label as words, where its form is known */
export function layout(label) {
  const split = /^cpu\((\d+)\)(?:->(?:cuda|rocm|metal|loopback)\((\d+)\))?$/.exec(label);
  if (split)
    return split[2]
      ? `the first ${split[1]} of ${Number(split[1]) + Number(split[2])} parts (input, layers, output) on the CPU, the others on the GPU`
      : "all on the CPU";
  if (/^(cuda|rocm|metal|loopback)\(\d+\)$/.test(label)) return "all on the GPU";
  const ngl = /^llama-cpp -ngl (\d+)( -ot \d+)?/.exec(label);
  if (ngl) return `${ngl[1]} parts (layers, output) on the GPU${ngl[2] ? ", some matrices kept in RAM" : ""}`;
  const waits = /^vllm .*?([\d.]+ GiB) offloaded/.exec(label);
  if (waits) return `${waits[1]} of weights wait in RAM`;
  if (/^vllm (cuda|rocm)\(\d+\)$/.test(label)) return "all on the GPU";
  const auto = /^accelerate (?:cuda|rocm)\((\d+)\)(?:<-cpu\((\d+)\))?/.exec(label);
  if (auto) return auto[2] ? `${auto[1]} parts stay on the GPU, ${auto[2]} come when used` : "all on the GPU";
  return "";
}

const CHANGED = {
  vram: "GPU memory",
  ram: "RAM",
  vram_bw: "GPU bandwidth",
  dram_bw: "RAM bandwidth",
  link: "link to the GPU",
  gpu_flops: "GPU arithmetic",
  cpu_flops: "CPU arithmetic",
};

/**
 * Say what a change of a machine is.
 * @param {string} text `vram=12GiB,link=x2`, `+1 gpu` @returns {string} `GPU memory 12 GiB, link to the GPU ×2`
 */
export function change(text) {
  return text
    .split(",")
    .map((item) => {
      const [name, value] = item.trim().split("=");
      if (value === undefined)
        return name.replace(/^\+\s*(\d+)\s*gpus?$/i, (_, count) =>
          count === "1" ? "one more GPU" : `${count} more GPUs`,
        );
      if (!(name in CHANGED)) return item.trim();
      return `${CHANGED[name]} ${value.replace(/^x/, "×").replace(/(\d)([A-Za-z])/, "$1 $2")}`;
    })
    .join(", ");
}

const OWNERS = {
  dram: "RAM",
  vram: "GPU memory",
  cpu: "CPU",
  cuda: "GPU",
  rocm: "GPU",
  metal: "GPU",
  h2d: "copies to the GPU",
  d2h: "copies from the GPU",
  engine: "the engine",
};
const PROPERTIES = {
  bandwidth: "bandwidth",
  read: "reading its memory",
  compute: "arithmetic",
  efficiency: "the share of its speed that it reaches",
  launch: "start of an operation",
  latency: "delay",
  overhead: "fixed costs",
  capacity: "size",
  kernels: "speed of its kernels",
};

/** @param {string} name of a kind of figures, `cuda.efficiency` @returns {string} */
export function figureKind(name) {
  const [owner, property] = name.split(".");
  return property === undefined
    ? name
    : `${OWNERS[owner] ?? owner}: ${PROPERTIES[property] ?? property.replaceAll("_", " ")}`;
}
