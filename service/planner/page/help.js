/** What a click could change where nothing fits. */

import { accelerated } from "./sliders.js";
import { tokens } from "./numbers.js";
import { formatName } from "./words.js";

const GIB = 2 ** 30;
/** Formats from the largest to the smallest, of which the next smaller one is offered. */
const SMALLER = { f32: "f16", f16: "q8_0", bf16: "q8_0", q8_0: "q6_k", q8: "q6_k", q6_k: "q4_k_m" };
const CARDS = [4, 6, 8, 12, 16, 24, 32, 48, 80, 96, 141];

/**
 * @param {any} problem @param {import("./question.js").Store} store @param {any} machine a Hardware document
 * @returns {{words: string, act: () => void}[]}
 */
export function helpFor(problem, store, machine) {
  if (problem.code !== "infeasible") return [];
  const { question } = store;
  const help = [];
  const offer = (words, patch) => help.push({ words, act: () => store.change(patch) });
  if (SMALLER[question.format])
    offer(`${formatName(SMALLER[question.format])} weights`, { format: SMALLER[question.format] });
  if (["f32", "f16", "bf16"].includes(question.format)) offer("Q4_K_M weights", { format: "q4_k_m" });
  const least = Number(question.prompt) + Number(question.answer);
  if (Number(question.context) >= 2 * least) offer(`a context of ${tokens(least)}`, { context: least });
  if (Number(question.batch) > 1) offer("one request at a time", { batch: 1 });
  const near = machine && accelerated(machine);
  const lacks = Object.values(problem.lacks ?? {})[0];
  const card = near && lacks && CARDS.find((size) => size * GIB >= near.capacity + lacks);
  if (card) offer(`a GPU with ${card} GiB`, { changes: { ...question.changes, vram: `${card}GiB` } });
  return help.slice(0, 4);
}
