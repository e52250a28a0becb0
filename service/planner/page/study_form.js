/** The form of a study: a question for every combination of what is listed. */

import { chosenList } from "./chosen_list.js";
import { byId, h } from "./dom.js";
import { chooseMethod, offerMethods } from "./methods.js";
import { counted } from "./numbers.js";
import { machineLabel, modelLabel, readCount } from "./question.js";
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
 * @param {(study: any, button: HTMLButtonElement) => void} start
 * @returns {{form: HTMLFormElement, study: () => any}}
 */
export function studyForm(question, given, start) {
  const first = given ?? firstStudy(question);
  const lists = listsOf(first);
  const text = (id, words, value, small) =>
    h(
      "div",
      { class: "field" },
      h("label", { for: id }, words, small && h("small", {}, ` ${small}`)),
      h("input", { id, type: "text", value, autocomplete: "off" }),
    );
  const count = h("span", {});
  const begin = h("button", { type: "submit", class: "main" }, "Start");
  const form = h(
    "form",
    { novalidate: true },
    h(
      "div",
      { class: "study-form" },
      lists.models.element,
      lists.machines.element,
      lists.changes.element,
      lists.formats.element,
      lists.engines.element,
      text("study-prompts", "Prompts", first.prompt_tokens.join(", "), "tokens: 512, or 512..4096"),
      text("study-batches", "Requests at a time", first.batches.join(", "), "1, or 1..8"),
      text("study-answers", "Answers", first.output_tokens.join(", "), "tokens"),
      method(first.strategies[0]),
    ),
    h("div", { class: "study-foot" }, begin, count),
  );
  const tally = () => {
    const size = Object.values(lists).reduce((product, one) => product * Math.max(1, one.values.length), 1);
    count.textContent = `${counted(size, "question")} for each prompt and number of requests`;
  };
  for (const one of Object.values(lists)) one.changed = tally;
  tally();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    start(studyOf(lists), begin);
  });
  return { form, study: () => studyOf(lists) };
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
    models: chosenList({ id: "study-models", words: "Models", values: first.models, path: "v1/models" }),
    machines: chosenList({ id: "study-machines", words: "Machines", values: first.machines, path: "v1/hardware" }),
    changes: chosenList({
      id: "study-changes",
      words: "Changes of each machine",
      values: first.changes,
      suggestions: Object.keys(CHANGES),
      name: called,
    }),
    formats: chosenList({
      id: "study-formats",
      words: "Weights",
      values: first.formats,
      suggestions: Object.keys(FORMATS),
      name: formatName,
    }),
    engines: chosenList({
      id: "study-engines",
      words: "Run by",
      values: first.engines ?? ["ours"],
      suggestions: ["ours", "llama.cpp", "vllm", "accelerate"],
      name: engineName,
    }),
  };
}

/** What is said of methods that answer many questions: how long they take. */
const PACES = { "layer-split": "quick", best: "thorough, slow", optimal: "thorough, slow" };

function method(now) {
  const option = (name) => h("option", { value: name }, [methodName(name), PACES[name]].filter(Boolean).join(": "));
  const select = h("select", { id: "study-method" });
  chooseMethod(select, now, option);
  void offerMethods(select, option);
  return h("div", { class: "field" }, h("label", { for: "study-method" }, "Method", h("small", {}, " of Helm; engines have their own")), select);
}

function studyOf(lists) {
  const counts = (id) =>
    byId(id)
      .value.split(",")
      .map((part) => part.trim())
      .filter(Boolean)
      .map((part) => (part.includes("..") ? part : readCount(part)));
  return {
    schema: "helm.study/1",
    name: "study",
    ...Object.fromEntries(Object.entries(lists).map(([name, { values }]) => [name, values])),
    prompt_tokens: counts("study-prompts"),
    output_tokens: counts("study-answers"),
    batches: counts("study-batches"),
    strategies: [byId("study-method").value],
  };
}
