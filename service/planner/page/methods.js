/** The methods of planning, and the engines, that the service has, in its order. */

import { get } from "./api.js";
import { learnMethods } from "./words.js";

/** Lists by path. @type {Map<string, Promise<{name: string, about: string}[]>>} */
const coming = new Map();

/** Return a list of names, asked for once; a refusal is not kept, so that the next call asks again. */
function listed(path) {
  if (!coming.has(path)) coming.set(path, fetched(path));
  return coming.get(path);
}

async function fetched(path) {
  try {
    return (await get(path)).entries;
  } catch (error) {
    coming.delete(path);
    throw error;
  }
}

/** @returns {Promise<string[]>} the names of all methods */
export async function methods() {
  const entries = await listed("v1/strategies");
  learnMethods(entries);
  return entries.map(({ name }) => name);
}

/** @returns {Promise<string[]>} the names of all engines, our own first */
export const engines = async () => (await listed("v1/engines")).map(({ name }) => name);

/**
 * Fill a select with all methods, or other names, once they are known; until then, and where none come, it has the one
 * that is chosen.
 * @param {HTMLSelectElement} select @param {(name: string) => HTMLOptionElement} option
 * @param {() => Promise<string[]>} [all]
 */
export async function offerMethods(select, option, all = methods) {
  try {
    const names = await all();
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
