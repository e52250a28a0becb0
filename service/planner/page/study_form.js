/** The form of a study: a question for every combination of what is listed. */

import { chosenList } from "./chosen_list.js";
import { h } from "./dom.js";
import { readSeveral } from "./entry.js";
import { field, sayFault, textField } from "./field.js";
import { chooseMethod, offerMethods } from "./methods.js";
import { counted } from "./numbers.js";
import { machineLabel, modelLabel, readCount } from "./question.js";
import { studyCosts } from "./study_costs.js";
import { studyLimits } from "./study_limits.js";
import { studyServing } from "./study_serving.js";
import { FORMATS, engineName, formatName, methodName } from "./words.js";

/** Changes that are offered, in words; others may be written as helm-whatif takes them. */
const CHANGES = {
  "as it is": "as it is",
  "vram=12GiB": "12 GiB on the GPU",
  "vram=16GiB": "16 GiB on the GPU",
  "vram=24GiB": "24 GiB on the GPU",
  "+1 gpu": "one more GPU",
  "dram_bw=x1.5": "RAM ×1.5 as fast",
  "link=x2": "link twice as fast",
  "ram=x2": "twice the RAM",
};

/**
 * @param {import("./question.js").Question} question with which a new study begins
 * @param {any | null} given the study of a link
 * @param {(study: any, button: HTMLButtonElement, refuse: (problem: any) => boolean) => void} start
 *   `refuse` shows a problem at its field, where there is one
 * @returns {{form: HTMLFormElement, study: () => any}}
 */
export function studyForm(question, given, start) {
  const first = given ?? firstStudy(question);
  const lists = listsOf(first);
  const counts = countsOf(first);
  const method = methodField(first.strategies[0]);
  const limits = studyLimits(first.slo ?? []);
  const serving = studyServing(first.serving, first);
  const costs = studyCosts(first.prices?.[0]);
  const sensitivity = textField({
    id: "study-sensitivity",
    words: "How sure",
    small: "so many best answers are asked again with uncertain figures; 0: none",
    value: first.sensitivity ?? 1,
    names: ["sensitivity"],
    inputMode: "numeric",
  });
  const count = h("span", {});
  const begin = h("button", { type: "submit", class: "main" }, "Start");
  const main = [...Object.values(lists), ...Object.values(counts), method, sensitivity];
  const form = h(
    "form",
    { novalidate: true },
    h(
      "div",
      { class: "study-form" },
      main.map(({ element }) => element),
    ),
    h(
      "details",
      { class: "more", open: Boolean(first.slo?.length || first.serving || first.prices) },
      h("summary", {}, "Limits, many users, costs"),
      limits.element,
      serving.element,
      costs.element,
    ),
    h("div", { class: "study-foot" }, begin, count),
  );
  const tally = () => {
    const size = Object.values(lists).reduce((product, one) => product * Math.max(1, one.values.length), 1);
    count.textContent = `${counted(size, "question")} for each prompt and number of requests`;
    costs.show(lists.machines.values);
  };
  for (const one of Object.values(lists)) one.changed = tally;
  tally();
  const fields = () => [...main, ...limits.fields(), ...serving.fields(), ...costs.fields()];
  const study = () => ({
    schema: "helm.study/1",
    name: "study",
    ...Object.fromEntries(Object.entries(lists).map(([name, { values }]) => [name, values])),
    ...Object.fromEntries(Object.entries(counts).map(([name, { control }]) => [name, readSeveral(control.value, readCount)])),
    strategies: [method.control.value],
    sensitivity: readCount(sensitivity.control.value),
    ...limits.document(),
    ...serving.document(),
    ...costs.document(),
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sayFault(fields(), null);
    start(study(), begin, (problem) => sayFault(fields(), problem));
  });
  return { form, study };
}

function firstStudy(question) {
  return {
    models: "name" in question.model ? [modelLabel(question)] : ["Qwen3-8B"],
    machines: "name" in question.machine ? [machineLabel(question)] : ["rtx4060-laptop"],
    changes: ["as it is", "vram=12GiB", "dram_bw=x1.5"],
    formats: [question.format],
    engines: [question.engine],
    prompt_tokens: [question.prompt],
    output_tokens: [question.answer],
    batches: [1],
    strategies: ["layer-split"],
  };
}

function listsOf(first) {
  const called = (value) => CHANGES[value] ?? value;
  return {
    models: chosenList({
      id: "study-models",
      words: "Models",
      values: first.models,
      path: "v1/models",
      names: ["models", "model"],
    }),
    machines: chosenList({
      id: "study-machines",
      words: "Machines",
      values: first.machines,
      path: "v1/hardware",
      names: ["machines", "hardware"],
    }),
    changes: chosenList({
      id: "study-changes",
      words: "Changes of each machine",
      values: first.changes,
      names: ["changes"],
      suggestions: Object.keys(CHANGES),
      name: called,
    }),
    formats: chosenList({
      id: "study-formats",
      words: "Weights",
      values: first.formats,
      names: ["formats"],
      suggestions: Object.keys(FORMATS),
      name: formatName,
    }),
    engines: chosenList({
      id: "study-engines",
      words: "Run by",
      values: first.engines ?? ["ours"],
      names: ["engines"],
      suggestions: ["ours", "llama.cpp", "vllm", "accelerate"],
      name: engineName,
    }),
  };
}

/** What is said of methods that answer many questions: how long they take. */
const PACES = { "layer-split": "quick", best: "thorough, slow", optimal: "thorough, slow" };

function countsOf(first) {
  const line = (name, id, words, small) =>
    textField({ id, words, small, value: first[name].join(", "), names: [name] });
  return {
    prompt_tokens: line("prompt_tokens", "study-prompts", "Prompts", "tokens: 512, or 512..4096"),
    batches: line("batches", "study-batches", "Requests at a time", "1, or 1..8"),
    output_tokens: line("output_tokens", "study-answers", "Answers", "tokens"),
  };
}

function methodField(now) {
  const option = (name) => h("option", { value: name }, [methodName(name), PACES[name]].filter(Boolean).join(": "));
  const control = h("select", { id: "study-method" });
  chooseMethod(control, now, option);
  void offerMethods(control, option);
  const small = "of Helm; engines have their own";
  return field({ control, words: "Method", small, names: ["strategies", "strategy"] });
}
