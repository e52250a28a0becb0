/** The fields of a question: model, machine, formats, tokens; each shows what the service says is wrong with it. */

import { get } from "./api.js";
import { Combobox } from "./combobox.js";
import { byId, fill, h } from "./dom.js";
import { editMachine, editModel, machineOfParts, pasteMachine, pasteModel } from "./dialogs.js";
import { note } from "./live.js";
import { chooseMethod, engines, offerMethods } from "./methods.js";
import { bytes, capacity, tokens } from "./numbers.js";
import { ofEngine, plainMachine, readCount } from "./question.js";
import { CACHE_FORMATS, FORMATS, engineName, methodAbout, methodName } from "./words.js";

/** Fields of a question by the name that the service has for them: the id of the control and of its fault. */
const CONTROLS = {
  model: ["model", "model-fault"],
  hardware: ["machine", "machine-fault"],
  format: ["format", "format-fault"],
  kv_format: ["kv", "kv-fault"],
  prompt_tokens: ["prompt", "prompt-fault"],
  output_tokens: ["answer-tokens", "answer-fault"],
  context: ["slider-context", "context-fault"],
  batch: ["slider-batch", "batch-fault"],
  engine: ["engine", "engine-fault"],
  objective: ["goal", "goal-fault"],
  strategy: ["method", "method-fault"],
  changes: ["more", "changes-fault"],
};

const COUNTS = { prompt: "prompt", "answer-tokens": "answer" };

/**
 * Connect all fields to the store.
 * @param {import("./question.js").Store} store
 * @param {(machine: any) => void} machineKnown hears of the machine's document when it is another one
 * @param {(model: any) => void} modelKnown hears of the model's document
 * @param {Promise<any>} answered names to choose from are asked for after the first answer, which people wait for
 */
export function connectFields(store, machineKnown, modelKnown, answered) {
  fill(
    byId("format"),
    Object.entries(FORMATS).map(([name, [short, long]]) => h("option", { value: name }, `${short}, ${long}`)),
  );
  fill(
    byId("kv"),
    Object.entries(CACHE_FORMATS).map(([name, words]) => h("option", { value: name }, words)),
  );
  const models = new Combobox({ input: byId("model"), choose: (name) => void chooseModel(store, name) });
  const machines = new Combobox({
    input: byId("machine"),
    choose: (name) => store.change({ machine: { name }, changes: {} }),
  });
  void answered.then(() => {
    void offerMethods(byId("method"), methodOption).then(() => showMethod(store.question));
    void offerMethods(byId("engine"), engineOption, engines).then(() => showMethod(store.question));
    void offer(models, "v1/models");
    void offer(machines, "v1/hardware", machineTitle);
  });
  for (const [id, name] of [
    ["format", "format"],
    ["kv", "kv"],
    ["engine", "engine"],
    ["goal", "goal"],
    ["method", "method"],
  ]) {
    byId(id).addEventListener("change", (event) => store.change({ [name]: event.target.value }));
  }
  for (const [id, name] of Object.entries(COUNTS)) {
    byId(id).addEventListener("change", (event) =>
      store.change(roomFor({ ...store.question, [name]: readCount(event.target.value) }, name)),
    );
  }
  byId("question").addEventListener("submit", (event) => event.preventDefault());
  const documents = { model: null, machine: null };
  connectDialogs(store, documents);
  const follow = follower(documents, machineKnown, modelKnown);
  const show = (question) => {
    showFields(question, models, machines);
    follow(question);
  };
  store.listen(show);
  show(store.question);
}

/** Choose a model of the catalogue; one that is not there is for the service to refuse. */
async function chooseModel(store, name) {
  let model = null;
  try {
    model = await get(`v1/models/${encodeURIComponent(name)}`);
  } catch (error) {
    if (!error.problem) throw error;
  }
  store.change({ model: { name }, ...(model && contextWithin(model, store.question)) });
}

/** A context that is longer than a model can have becomes its longest, where prompt and answer still fit. */
function contextWithin(model, { prompt, answer, context }) {
  if (!(Number(context) > model.max_context) || Number(prompt) + Number(answer) > model.max_context) return {};
  note(`${model.name} has a context of at most ${tokens(model.max_context)} tokens`);
  return { context: model.max_context };
}

/** The context grows with prompt and answer; it is not made smaller. */
function roomFor(question, changed) {
  const { prompt, answer, context } = question;
  const patch = { [changed]: question[changed] };
  const need = Number(prompt) + Number(answer);
  if (Number.isInteger(need) && need > Number(context)) patch.context = need;
  return patch;
}

const methodOption = (name) => h("option", { value: name }, methodName(name));
const engineOption = (name) => h("option", { value: name }, engineName(name));

/** Show who plans: an engine plans as it does itself, whatever method is chosen for our own. */
function showMethod(question) {
  chooseMethod(byId("engine"), question.engine, engineOption);
  chooseMethod(byId("method"), question.method, methodOption);
  byId("method").disabled = ofEngine(question);
  byId("method-about").textContent = ofEngine(question)
    ? `as ${engineName(question.engine)} does it`
    : methodAbout(question.method);
}

async function offer(combobox, path, title) {
  try {
    const { entries } = await get(path);
    combobox.offer(entries.map((entry) => ({ ...entry, about: plainAbout(entry.about), title: title?.(entry) })));
  } catch (error) {
    if (!error.problem) throw error;
  }
}

const machineTitle = ({ name }) => name;

/** `dram 16.00 GB, vram 8.59 GB` in people's words. */
function plainAbout(about) {
  return about
    .replace(/\bdram(\d*) /g, "RAM$1 ")
    .replace(/\bvram(\d*) /g, "GPU memory$1 ")
    .replace(/\.00 /g, " ")
    .replace(/\bunified /g, "shared memory ");
}

function connectDialogs(store, documents) {
  const useModel = (document) => store.change({ model: { document }, ...contextWithin(document, store.question) });
  const useMachine = (machine) => store.change({ machine, changes: {} });
  byId("model-paste").addEventListener("click", () => pasteModel(useModel));
  byId("model-edit").addEventListener("click", () => documents.model && editModel(documents.model, useModel));
  byId("machine-paste").addEventListener("click", () => pasteMachine((document) => useMachine({ document })));
  byId("machine-parts").addEventListener("click", () =>
    machineOfParts(store.question.machine.parts, (parts) => useMachine({ parts })),
  );
  byId("machine-edit").addEventListener(
    "click",
    () => documents.machine && editMachine(documents.machine, (document) => store.change({ machine: { document } })),
  );
}

/** Fetch the documents of model and machine when others are chosen. */
function follower(documents, machineKnown, modelKnown) {
  const texts = { model: "", machine: "" };
  const know = { model: modelKnown, machine: machineKnown };
  const about = { model: modelAbout, machine: machineAbout };
  const load = async (kind, choice, path) => {
    const text = JSON.stringify(choice);
    if (text === texts[kind]) return;
    texts[kind] = text;
    try {
      const document = await (typeof choice === "string"
        ? get(`${path}/${encodeURIComponent(choice)}`)
        : kind === "machine"
          ? post(path, choice)
          : choice);
      if (text !== texts[kind]) return;
      documents[kind] = document;
      byId(`${kind}-about`).textContent = about[kind](document);
      know[kind](document);
    } catch (error) {
      if (!error.problem) throw error;
      if (text === texts[kind]) byId(`${kind}-about`).textContent = "";
    }
  };
  return (question) => {
    void load("model", "name" in question.model ? question.model.name : question.model.document, "v1/models");
    void load("machine", plainMachine(question), "v1/hardware");
  };
}

async function post(path, body) {
  const { ask } = await import("./api.js");
  return ask(path, body);
}

function modelAbout(model) {
  const bodies = model.layouts.flatMap((layout) => layout.residuals.flatMap(({ bodies }) => bodies));
  const shapes = bodies.filter(({ op }) => op.kind === "attention").map(({ op }) => headsOf(op));
  const parts = [
    `${model.pattern.length} layers of ${model.hidden}`,
    [...new Set(shapes)].join(" or "),
    `up to ${tokens(model.max_context)} tokens`,
  ];
  return parts.filter(Boolean).join(", ");
}

function headsOf({ heads, kv_heads: cached }) {
  return cached === heads ? `${heads} heads` : `${heads} heads over ${cached} of the cache`;
}

function machineAbout(machine) {
  const parts = machine.devices.map((device) => device.product).filter(Boolean);
  const counted = [...new Set(parts)].map((part) => {
    const count = parts.filter((one) => one === part).length;
    return count > 1 ? `${count}× ${part}` : part;
  });
  const memories = machine.memories.map(
    (memory) =>
      `${capacity(memory.capacity)} ${{ dram: "RAM", vram: "on the GPU", unified: "shared" }[memory.kind] ?? memory.name}`,
  );
  return `${counted.join(", ")}; ${memories.join(", ")}`;
}

function showFields(question, models, machines) {
  models.set(
    "name" in question.model ? question.model.name : `${question.model.document.name ?? "your model"} (yours)`,
  );
  const { machine } = question;
  machines.set(
    "name" in machine
      ? machine.name
      : "parts" in machine
        ? `${[machine.parts.gpu, machine.parts.cpu].filter(Boolean).join(" + ")}, ${bytes(machine.parts.ram)} RAM`
        : `${machine.document.name ?? "your machine"} (yours)`,
  );
  for (const [id, name] of [
    ["format", "format"],
    ["kv", "kv"],
    ["goal", "goal"],
  ])
    byId(id).value = question[name];
  for (const [id, name] of Object.entries(COUNTS))
    if (document.activeElement !== byId(id) || typeof question[name] === "number")
      byId(id).value = String(question[name]);
  showMethod(question);
}

/**
 * Show a refusal at the field at fault, and nothing at the others.
 * @param {any | null} problem
 */
export function showFaults(problem) {
  const field = problem && problem.code !== "infeasible" ? (problem.field ?? "") : "";
  const name = field.split(".")[0];
  for (const [known, [control, fault]] of Object.entries(CONTROLS)) {
    const box = document.getElementById(fault);
    const input = document.getElementById(control);
    if (box === null || input === null) continue;
    const wrong = known === name || (known === "hardware" && name === "changes" && field === "hardware.changes");
    box.hidden = !wrong;
    box.textContent = wrong ? [problem.detail, problem.remedy].filter(Boolean).join(": ") : "";
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}
