/** A field of a form: its label, its control, and a place for what is wrong with it. */

import { h } from "./dom.js";

/**
 * @typedef {object} Field
 * @property {HTMLElement} element
 * @property {HTMLInputElement | HTMLSelectElement} control
 * @property {string[]} names  that the service has for it, as `serving.rate`
 * @property {() => string} [written]  what the document has of it, where several fields have one name there
 * @property {(problem: any | null) => void} say  shows what is wrong; null: nothing is
 */

/**
 * @param {{control: any, words: string, small?: string, names: string[], shown?: any, below?: any[]}} settings
 *   `shown`: what holds the control, `below` it
 * @returns {Field}
 */
export function field({ control, words, small, names, shown = control, below = [] }) {
  const fault = h("p", { class: "fault", id: `${control.id}-fault`, role: "alert", hidden: true });
  control.setAttribute("aria-describedby", fault.id);
  const label = h("label", { for: control.id }, words, small && h("small", {}, ` ${small}`));
  const say = (problem) => {
    fault.hidden = problem === null;
    fault.textContent = problem && [problem.detail ?? problem.title, problem.remedy].filter(Boolean).join(": ");
    control.setAttribute("aria-invalid", String(problem !== null));
  };
  return { element: h("div", { class: "field" }, label, shown, below, fault), control, names, say };
}

/**
 * @param {{id: string, words: string, small?: string, value: string | number, names?: string[], inputMode?: string}} settings
 * @returns {Field} a line of text
 */
export function textField({ id, words, small, value, names = [], inputMode = null }) {
  const control = h("input", { id, type: "text", value, inputMode, autocomplete: "off" });
  return field({ control, words, small, names });
}

/**
 * Show a problem at the field that it is about, go there, and show nothing at the others.
 * @param {Field[]} fields @param {any | null} problem @returns {boolean} whether there is such a field
 */
export function sayFault(fields, problem) {
  for (const one of fields) one.say(null);
  const name = problem?.field ?? "";
  const within = (own) => `${name}.`.startsWith(`${own}.`);
  const about = (one) => Math.max(0, ...one.names.filter(within).map((own) => own.length));
  const most = Math.max(0, ...fields.map(about));
  if (most === 0) return false;
  const nearest = fields.filter((one) => about(one) === most);
  const blamed = nearest.find((one) => one.written?.().endsWith(String(problem.value))) ?? nearest[0];
  for (let box = blamed.element.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  blamed.say(problem);
  blamed.control.focus();
  return true;
}
