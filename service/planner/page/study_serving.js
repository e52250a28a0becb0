/** What the machines of a study serve: which requests, under which policies, how many of them or for how many users. */

import { chosenList } from "./chosen_list.js";
import { h } from "./dom.js";
import { readSeveral } from "./entry.js";
import { textField } from "./field.js";
import { readCount } from "./question.js";

/** Policies of serving that are offered, in words; those that others add may be written. */
const POLICIES = {
  "gpu-only": "all on the GPU",
  "simple-offload": "attention on the CPU",
  symmetric: "two equal halves",
  "fastdecode-plus": "halves, attention on the CPU",
  neo: "NEO",
  apex: "APEX",
  adaptive: "whatever is fastest",
};
/** Requests of one run; a search takes more by itself. */
const REQUESTS = 400;

/**
 * @param {any} given the `serving` of a study @param {{prompt_tokens: any[], output_tokens: any[]}} lengths of its requests
 * @returns {{element: HTMLElement, fields: () => import("./field.js").Field[], document: () => any}}
 */
export function studyServing(given, lengths) {
  const like = `synthetic:n=${REQUESTS},input=${lengths.prompt_tokens[0]},output=${lengths.output_tokens[0]}`;
  const requests = chosenList({
    id: "study-requests",
    words: "Requests, described",
    values: given?.requests ?? [],
    suggestions: [like],
    name: (value) => (value === like ? `${REQUESTS} requests like yours` : value),
    names: ["serving.requests"],
  });
  const policies = chosenList({
    id: "study-policies",
    words: "Policies of serving",
    values: given?.policies ?? ["gpu-only"],
    suggestions: Object.keys(POLICIES),
    name: (value) => POLICIES[value] ?? value,
    names: ["serving.policies"],
  });
  const line = (name, words, small) =>
    textField({
      id: `study-${name}`,
      words,
      small,
      value: (given?.[name] ?? []).join(", "),
      names: [`serving.${name}`],
    });
  const rate = line("rate", "For so many requests", "a second: 2, or 1..64: how many machines?");
  const users = line("users", "For so many users", "8, or 8..64: how many machines?");
  const think = line("think", "Users think for", "10s, or 5s, 60s: how many users at most?");
  const fields = [requests, policies, rate, users, think];
  return {
    element: h(
      "fieldset",
      {},
      h("legend", {}, "Served to many"),
      h("p", { class: "about" }, "Simulated request by request, within the limits above; without requests one at a time."),
      h(
        "div",
        { class: "study-form" },
        fields.map(({ element }) => element),
      ),
    ),
    fields: () => fields,
    document: () => {
      const asked = {
        ...several("rate", rate, readRate),
        ...several("users", users, readCount),
        ...several("think", think, (text) => text),
      };
      if (requests.values.length === 0 && Object.keys(asked).length === 0) return {};
      return { serving: { requests: requests.values, policies: policies.values, ...asked } };
    },
  };
}

function several(name, { control }, read) {
  const values = readSeveral(control.value, read);
  return values.length > 0 ? { [name]: values } : {};
}

const readRate = (text) => (Number.isFinite(Number(text)) ? Number(text) : text);
