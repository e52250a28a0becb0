/** Says short things to screen readers, and shows notes that go away by themselves. */

import { byId, fill, h } from "./dom.js";

/** Seconds without a newer sentence after which one is said: while a slider moves nothing is. */
const QUIET_S = 0.7;
const NOTE_S = 3;

let waiting = 0;

/** @param {string} sentence */
export function announce(sentence) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    byId("announcer").textContent = sentence;
  }, QUIET_S * 1000);
}

/** @param {string} text @param {"good" | "bad"} [kind] */
export function note(text, kind = "good") {
  const box = byId("notes");
  fill(box, h("p", { class: `note note-${kind}` }, text));
  clearTimeout(note.timer);
  note.timer = setTimeout(() => fill(box), NOTE_S * 1000);
}

/**
 * Copy text and say so.
 * @param {string} text @param {string} what was copied
 */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
  note(`${what} copied`);
}

/** Pages that are not served by HTTPS or from this machine have no clipboard interface. */
function copyBySelection(text) {
  const field = h("textarea", { class: "offscreen", value: text, readOnly: true });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
