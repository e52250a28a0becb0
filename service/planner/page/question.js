/** Holds the question that the page asks, and writes it as the service reads it. */

/**
 * @typedef {{name: string} | {document: any}} ModelChoice
 * @typedef {{name: string} | {parts: {cpu: string, ram: number, gpu?: string, link?: string, memory?: string}} | {document: any}} MachineChoice
 * @typedef {object} Question
 * @property {ModelChoice} model
 * @property {MachineChoice} machine
 * @property {Record<string, string>} changes  of the machine by what is changed: `vram` to `12GiB`, `dram_bw` to `x1.5`
 * @property {string} format  of the weights
 * @property {string} kv  format of the cache
 * @property {number | string} prompt  tokens; text where it is not a number, for the service to refuse
 * @property {number | string} answer  tokens
 * @property {number | string} context  tokens that caches have room for
 * @property {number | string} batch  requests at a time
 * @property {string} engine  whose speed is predicted
 * @property {string} goal  what the plan is to be best at
 * @property {string} method  by which it is made once nothing moves any more
 */

/** The quick method that answers while something moves. */
export const QUICK = "layer-split";
/** The method that chooses among others' plans, and that of an engine is its own. */
export const BEST = "best";
/** Helm's own executor, as an engine. */
export const OURS = "ours";

/** @type {Question} what a visitor without a link sees: a usual model on a usual laptop */
export const FIRST = {
  model: { name: "Qwen3-8B" },
  machine: { name: "rtx4060-laptop" },
  changes: {},
  format: "q4_k",
  kv: "f16",
  prompt: 512,
  answer: 256,
  context: 4096,
  batch: 1,
  engine: OURS,
  goal: "request",
  method: BEST,
};

/** What sliders and links change of a machine, in the order in which it is done: the same changes are the same question. */
export const CHANGES = ["vram", "ram", "vram_bw", "dram_bw", "link", "gpu_flops", "cpu_flops"];

const inOrder = (changes) =>
  Object.fromEntries(CHANGES.filter((what) => what in changes).map((what) => [what, changes[what]]));

/** Holds a question and tells listeners of its changes. */
export class Store {
  /** @param {Question} question */
  constructor(question) {
    /** @type {Question} */
    this.question = question;
    /** @type {Set<(question: Question, moving: boolean) => void>} */
    this.listeners = new Set();
  }

  /**
   * Change some of the question.
   * @param {Partial<Question>} patch
   * @param {boolean} [moving] whether more of the same will follow at once, as from a slider that is dragged
   */
  change(patch, moving = false) {
    this.question = { ...this.question, ...patch };
    if (patch.changes) this.question.changes = inOrder(patch.changes);
    for (const listener of this.listeners) listener(this.question, moving);
  }

  /** @param {(question: Question, moving: boolean) => void} listener */
  listen(listener) {
    this.listeners.add(listener);
  }
}

/** @param {Question} question @returns {any} the machine without its changes, as the service reads it */
export function plainMachine({ machine }) {
  return "name" in machine ? machine.name : "parts" in machine ? machine.parts : machine.document;
}

/** @param {Question} question @returns {boolean} whether the speed of an engine is asked for */
export const ofEngine = ({ engine }) => engine !== OURS;

/**
 * Write a question as the service reads it; where the speed of an engine is asked for, its own plan is.
 * @param {Question} question @returns {any} a helm.planner-question/1
 */
export function asked(question, strategy = question.method) {
  const base = plainMachine(question);
  const changes = Object.entries(question.changes).map(([what, value]) => `${what}=${value}`);
  return {
    schema: "helm.planner-question/1",
    model: "name" in question.model ? question.model.name : question.model.document,
    hardware: changes.length > 0 ? { base, changes } : base,
    prompt_tokens: question.prompt,
    output_tokens: question.answer,
    context: question.context,
    batch: question.batch,
    format: question.format,
    kv_format: question.kv,
    objective: question.goal,
    ...(ofEngine(question) ? { engine: question.engine, strategy: BEST } : { strategy }),
  };
}

/** @param {Question} question @returns {Question} the same one for our own executor: methods are compared for it */
export const forOurs = (question) => ({ ...question, engine: OURS });

/** @param {Question} question @returns {string} the model's name */
export function modelLabel({ model }) {
  return "name" in model ? model.name : (model.document.name ?? "your model");
}

/** @param {Question} question @returns {string} what to call the machine */
export function machineLabel({ machine }) {
  if ("name" in machine) return machine.name;
  if ("parts" in machine) return [machine.parts.gpu, machine.parts.cpu].filter(Boolean).join(" + ");
  return machine.document.name ?? "your machine";
}

/**
 * Read a number of tokens as people write it.
 * @param {string} text `4096`, `4k`, `1M` @returns {number | string} the text where it is no number
 */
export function readCount(text) {
  const match = /^\s*(\d[\d,_ ]*(?:\.\d+)?)\s*([kKmM]?)\s*$/.exec(text);
  if (match === null) return text.trim();
  const unit = { "": 1, k: 2 ** 10, m: 2 ** 20 }[match[2].toLowerCase()];
  return Number(match[1].replace(/[,_ ]/g, "")) * unit;
}
