/** What the machines of a study cost: to buy, and to run. */

import { fill, h } from "./dom.js";
import { textField } from "./field.js";

/** What is said of every machine, by the name that a study's prices have for it. */
const OF_MACHINES = { machines: ["Price of", ""], watts: ["Power of", "watts, while it serves"] };
const OF_ALL = {
  energy: ["Price of energy", "a kWh"],
  years: ["Years of use", "over which machines are paid"],
  currency: ["Currency", ""],
};
const FIRST = { years: 3, currency: "USD" };

/**
 * @param {any} given the first prices of a study
 * @returns {{element: HTMLElement, fields: () => import("./field.js").Field[], document: () => any, show: (machines: string[]) => void}}
 *   `show` asks about these machines
 */
export function studyCosts(given) {
  const all = Object.entries(OF_ALL).map(([name, [words, small]]) => {
    const value = given?.[name] ?? FIRST[name] ?? "";
    return { name, ...textField({ id: `study-${name}`, words, small, value, names: [`prices.0.${name}`] }) };
  });
  /** Fields of every machine that was ever shown: one that comes again has its numbers still. */
  const kept = new Map();
  let shown = [];
  const box = h("div", { class: "study-form" });
  const show = (machines) => {
    for (const machine of machines) if (!kept.has(machine)) kept.set(machine, fieldsOf(machine, given, kept.size));
    shown = machines.flatMap((machine) => kept.get(machine));
    fill(
      box,
      [...shown, ...all].map(({ element }) => element),
    );
  };
  return {
    element: h("fieldset", {}, h("legend", {}, "Costs"), box),
    fields: () => [...shown, ...all],
    document: () => {
      const prices = {};
      for (const { name, machine, control } of shown)
        if (control.value.trim() !== "") prices[name] = { ...prices[name], [machine]: amount(control.value) };
      for (const { name, control } of all)
        if (control.value.trim() !== "" && (name === "energy" || Object.keys(prices).length > 0))
          prices[name] = name === "currency" ? control.value.trim() : amount(control.value);
      return Object.keys(prices).length > 0 ? { prices: [prices] } : {};
    },
    show,
  };
}

function fieldsOf(machine, given, number) {
  return Object.entries(OF_MACHINES).map(([name, [words, small]]) => ({
    name,
    machine,
    ...textField({
      id: `study-${name}-${number}`,
      words: `${words} ${machine}`,
      small,
      value: given?.[name]?.[machine] ?? "",
      names: [`prices.0.${name}.${machine}`],
    }),
  }));
}

/** Read an amount; what is no number is for the service to refuse. */
function amount(text) {
  const value = Number(text.replaceAll(",", ""));
  return Number.isFinite(value) ? value : text.trim();
}
