/** The methods of planning that the service has, in its order. */

import { get } from "./api.js";
import { learnMethods } from "./words.js";

/** The method that chooses among others' plans. */
export const BEST = "best";

/** @type {Promise<string[]> | null} */
let coming = null;

/**
 * Return the names of all methods, asked for once; a refusal is not kept, so that the next call asks again.
 * @returns {Promise<string[]>}
 */
export function methods() {
  coming ??= asked();
  return coming;
}

async function asked() {
  try {
    const { entries } = await get("v1/strategies");
    learnMethods(entries);
    return entries.map(({ name }) => name);
  } catch (error) {
    coming = null;
    throw error;
  }
}

/**
 * Fill a select with all methods once they are known; until then, and where none come, it has the one that is chosen.
 * @param {HTMLSelectElement} select @param {(name: string) => HTMLOptionElement} option
 */
export async function offerMethods(select, option) {
  try {
    const names = await methods();
    const { value } = select;
    select.replaceChildren(...names.map(option));
    chooseMethod(select, value, option);
  } catch (error) {
    if (!error.problem) throw error;
  }
}

/**
 * Choose a method; one that the service does not have is for the service to refuse.
 * @param {HTMLSelectElement} select @param {string} name @param {(name: string) => HTMLOptionElement} option
 */
export function chooseMethod(select, name, option) {
  if (![...select.options].some(({ value }) => value === name)) select.append(option(name));
  select.value = name;
}
