/** A bar for each memory: weights, cache of past tokens, room to work, what is free, and what the system keeps. */

import { fill, h } from "./dom.js";
import { bytes, capacity } from "./numbers.js";
import { memoryName } from "./words.js";

const PARTS = [
  ["weights", "weights"],
  ["kv", "cache of past tokens"],
  ["buffers", "room to work"],
  ["pinned", "page-locking"],
  ["drafter", "what drafts tokens"],
];

/** @param {Element} box @param {any} answer a helm.plan-answer/1 */
export function showMemory(box, answer) {
  const { memory } = answer.plan.predicted;
  const records = Object.fromEntries(answer.plan.hardware.memories.map((one) => [one.name, one]));
  const shown = memory.filter(
    (use) => used(use) > 0 || ["dram", "vram", "unified", "loopback"].includes(records[use.memory].kind),
  );
  const kinds = PARTS.filter(([part]) => shown.some((use) => use[part] > 0));
  fill(
    box,
    h(
      "ul",
      { class: "memories" },
      shown.map((use) => tier(use, records[use.memory], answer)),
    ),
    h(
      "ul",
      { class: "legend" },
      kinds.map(([part, words]) => h("li", {}, h("span", { class: `key part-${part}`, "aria-hidden": "true" }), words)),
      h("li", {}, h("span", { class: "key part-free", "aria-hidden": "true" }), "free"),
      h("li", {}, h("span", { class: "key part-kept", "aria-hidden": "true" }), "kept for system and driver"),
    ),
  );
}

/** @param {any} use @returns {number} bytes */
export const used = (use) => use.weights + use.kv + use.buffers + use.pinned + (use.drafter ?? 0);

function tier(use, record, answer) {
  const size = Math.max(record.capacity, used(use));
  const told = PARTS.filter(([part]) => use[part] > 0).map(([part, words]) => `${words} ${bytes(use[part])}`);
  const free = Math.max(0, use.available - used(use));
  return h(
    "li",
    { class: "tier" },
    h(
      "div",
      { class: "tier-head" },
      h("strong", {}, memoryName(use.memory, answer.plan.hardware, answer.memory_names)),
      h(
        "span",
        { class: "tier-about" },
        record.product ? `${record.product}, ${capacity(record.capacity)}` : capacity(record.capacity),
      ),
      h(
        "span",
        { class: "tier-sum" },
        used(use) > 0 ? [h("b", {}, bytes(used(use))), ` of ${bytes(use.available)} usable`] : "not used",
      ),
    ),
    h(
      "div",
      { class: "tier-bar", "aria-hidden": "true" },
      PARTS.map(
        ([part]) => use[part] > 0 && h("span", { class: `part-${part}`, vars: { size: share(use[part], size) } }),
      ),
      h("span", { class: "part-free", vars: { size: share(free, size) } }),
      h("span", { class: "part-kept", vars: { size: share(size - used(use) - free, size) } }),
    ),
    h(
      "p",
      { class: "tier-parts" },
      [...told, `free ${bytes(free)}`].map((part) => h("span", {}, part)),
    ),
  );
}

const share = (part, whole) => `${((100 * part) / whole).toFixed(2)}%`;
