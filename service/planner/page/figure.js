/** Draws an interval: a band from the 5th to the 95th percentile with a mark at the median, on a scale of its own. */

import { h } from "./dom.js";
import { SOURCES } from "./words.js";

/**
 * @param {{low: number, mid: number, high: number}} interval
 * @param {number} [most] the end of the scale, by default a little more than the interval's; an arrow says that one goes on
 * @returns {HTMLElement} decoration: the numbers stand beside it as text
 */
export function intervalBar({ low, mid, high }, most = high * 1.04) {
  const end = most > 0 ? most : 1;
  const at = (value) => `${Math.min(100, (100 * value) / end).toFixed(2)}%`;
  return h(
    "span",
    { class: `interval${high > end ? " beyond" : ""}`, "aria-hidden": "true" },
    h("span", { class: "interval-band", vars: { from: at(low), to: at(high) } }),
    h("span", { class: "interval-mid", vars: { at: mid > end ? "-99rem" : at(mid) } }),
  );
}

/**
 * A bar of parts, such as shares of sources.
 * @param {{kind: string, share: number, words: string}[]} parts @returns {HTMLElement}
 */
export function shareBar(parts) {
  return h(
    "span",
    { class: "shares", "aria-hidden": "true" },
    parts.map(({ kind, share }) =>
      h("span", { class: `share source-${kind}`, vars: { size: `${(share * 100).toFixed(2)}%` } }),
    ),
  );
}

/** Shares of a phase's seconds by the kind of their source. */
export function phaseSources(phase) {
  const sums = new Map();
  for (const {
    source,
    seconds: { mid },
  } of phase.terms)
    sums.set(source, (sums.get(source) ?? 0) + mid);
  const all = [...sums.values()].reduce((sum, value) => sum + value, 0) || 1;
  return Object.keys(SOURCES)
    .filter((kind) => sums.get(kind) > 0)
    .map((kind) => ({ kind, share: sums.get(kind) / all, words: SOURCES[kind][0] }));
}

/** @param {{share: number, words: string}[]} sources @returns {string} `88 % fitted, 12 % paper` */
export function sourcesInWords(sources) {
  const told = sources.filter(({ share }) => share >= 0.005).sort((one, other) => other.share - one.share);
  return told.map(({ share, words }) => `${Math.round(share * 100)} % ${words}`).join(", ");
}
