/** Why a question has no answer: what does not fit and by how much, or what the service refuses, and what would help. */

import { byId, h } from "./dom.js";
import { bytes, capacity, tokens } from "./numbers.js";
import { machineLabel, modelLabel } from "./question.js";
import { change, formatName, memoryName } from "./words.js";

/** @param {import("./question.js").Question} question @param {any} hardware @returns {string} what was asked, in a line */
export function echo(question, hardware) {
  const products = hardware?.devices.map((device) => device.product).filter(Boolean) ?? [];
  const last = products.at(-1);
  const several = products.slice(1).filter((product) => product === last).length;
  const changes = Object.entries(question.changes).map(([what, value]) => change(`${what}=${value}`));
  return [
    modelLabel(question),
    formatName(question.format),
    last ? `${several > 1 ? `${several}× ` : ""}${last}` : machineLabel(question),
    ...changes,
    `${tokens(Number(question.context))} context`,
    Number(question.batch) > 1 && `${question.batch} at a time`,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** @param {any} problem @returns {string} */
export const headlineOf = (problem) =>
  problem.code === "infeasible"
    ? "It does not fit"
    : problem.code === "unreachable"
      ? "The service does not answer"
      : "This question has no answer";

/**
 * @param {import("./asker.js").Shown} shown without an answer
 * @param {{hardware?: any, help: {words: string, act: () => void}[]}} aids @returns {Node[]}
 */
export function problemParts(shown, { hardware, help }) {
  const { problem, question, quick } = shown;
  return [
    h(
      "div",
      { class: "verdict-head" },
      h(
        "div",
        {},
        h("p", { class: "echo" }, echo(question, hardware)),
        h("h2", { id: "verdict-title" }, `${headlineOf(problem)}.`),
      ),
      quick &&
        h(
          "p",
          { class: "badges" },
          h("span", { class: "badge badge-quick", dataset: { answer: "quick" } }, "quick answer"),
          h("span", { class: "badge-wait" }, "trying other methods…"),
        ),
    ),
    h(
      "p",
      { class: "in-short" },
      sentence(reasonOf(problem, question)),
      problem.remedy && ` ${sentence(problem.remedy)}`,
    ),
    problem.lacks &&
      h(
        "ul",
        { class: "lacks" },
        Object.entries(problem.lacks).map(([memory, size]) => lack(memory, size, hardware)),
      ),
    help.length > 0 &&
      h(
        "p",
        { class: "help" },
        h("span", {}, "Try"),
        help.map(({ words, act }) => h("button", { type: "button", on: { click: act } }, words)),
      ),
    byId("strip").querySelector(".body").childElementCount > 0 &&
      h("p", { class: "foot-note former" }, "Below, dimmed: your last question that had an answer."),
  ];
}

function reasonOf(problem, question) {
  if (problem.code !== "infeasible")
    return problem.field
      ? `${fieldWords(problem.field)}: ${problem.detail}${(problem.value ?? "") ? ` (${problem.value})` : ""}`
      : problem.detail;
  return `No way to place ${modelLabel(question)} with ${formatName(question.format)} weights fits into the memories of this machine`;
}

const FIELDS = {
  model: "Model",
  hardware: "Machine",
  prompt_tokens: "Prompt",
  output_tokens: "Answer",
  context: "Context",
  batch: "Requests at a time",
  format: "Weights",
  kv_format: "Cache",
  changes: "What if",
  strategy: "Method",
  objective: "Best at",
};

/** @param {string} field @returns {string} */
export const fieldWords = (field) => FIELDS[field.split(".")[0]] ?? field;

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`).replace(/^./, (letter) => letter.toUpperCase());

function lack(memory, size, hardware) {
  const here = hardware?.memories.find((one) => one.name === memory);
  const has = here?.available;
  return h(
    "li",
    {},
    h("strong", {}, hardware ? memoryName(memory, hardware) : memory),
    `: ${bytes(size)} more is needed`,
    has && [
      ` than the ${bytes(has)} that ${here.kind === "vram" ? "can be used of" : "are free of"} ${capacity(here.capacity)}`,
      h(
        "span",
        { class: "lack-bar", "aria-hidden": "true", vars: { has: `${((100 * has) / (has + size)).toFixed(1)}%` } },
        h("span"),
        h("span"),
      ),
    ],
  );
}
