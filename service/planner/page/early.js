/** Asks the question of the address with the quick method, before most of the page is here. */

import { ask } from "./api.js";
import { read } from "./link.js";
import { QUICK, asked } from "./question.js";
import { viewOf } from "./views.js";

/**
 * The question of the address and, where its view is up, the answer that is on its way.
 * @type {Promise<{question: import("./question.js").Question, coming: Promise<any> | null}>}
 */
export const early = begin();

async function begin() {
  const question = await readOr(location.hash);
  if (viewOf(location.hash) !== "plan") return { question, coming: null };
  const coming = ask("v1/plans", asked(question, QUICK));
  coming.catch(() => {}); // who waits for it hears of it
  return { question, coming };
}

/**
 * Read a link; one that cannot be read asks the first question instead.
 * @param {string} hash @returns {Promise<import("./question.js").Question>}
 */
export async function readOr(hash) {
  try {
    return await read(hash);
  } catch {
    return read("");
  }
}
