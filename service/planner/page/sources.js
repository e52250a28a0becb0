/** Where the numbers come from: every operation's time with what limits it and its source, and the machine's figures. */

import { byId, fill, h } from "./dom.js";
import { intervalBar, phaseSources, shareBar } from "./figure.js";
import { bytes, number, percent, perSecond, seconds, secondsRange } from "./numbers.js";
import { BOUNDS, SOURCES, evidence, operation, resource, sourceOf } from "./words.js";

/** Operations that take a smaller share of the time are added up. */
const SMALL = 0.01;
const PHASES = { decode: "a token of the answer", prefill: "the prompt" };

let phase = "decode";
let shown = null;

/** Make the switch between phases. */
export function connectSources() {
  fill(
    byId("phase-choices"),
    Object.entries(PHASES).map(([name, words]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(name === phase),
          dataset: { phase: name },
          on: { click: () => choose(name) },
        },
        words,
      ),
    ),
  );
}

function choose(name) {
  phase = name;
  for (const button of byId("phase-choices").children)
    button.setAttribute("aria-pressed", String(button.dataset.phase === name));
  if (shown) showSources(shown);
}

/** @param {any} answer a helm.plan-answer/1 */
export function showSources(answer) {
  shown = answer;
  const { plan, memory_names: names } = answer;
  const part = plan.predicted[phase];
  const shares = phaseSources(part);
  fill(
    byId("sources").querySelector(".body"),
    h(
      "div",
      { class: "source-sum" },
      shareBar(shares),
      h(
        "ul",
        { class: "legend" },
        shares.map(({ kind, share }) =>
          h(
            "li",
            {},
            h("span", { class: `key source-${kind}`, "aria-hidden": "true" }),
            `${percent(share)} of the time: ${SOURCES[kind][1]}`,
          ),
        ),
      ),
    ),
    bottleneck(part, plan, names),
    terms(part, plan, names),
    figures(answer),
  );
}

function bottleneck(part, plan, names) {
  const [, what, share] = /^(.*) \((.*)\)$/.exec(part.bottleneck) ?? [null, part.bottleneck, ""];
  const [owner, ...rest] = what.split(" ");
  const lane = resource(owner, plan.hardware, names);
  return h(
    "p",
    { class: "lead" },
    "Limited by ",
    h("strong", {}, `${lane} ${rest.join(" ")}`.trim()),
    share && `, busy ${share} of the time`,
    `. ${PHASES[phase].replace(/^./, (letter) => letter.toUpperCase())} takes `,
    h("strong", {}, seconds(part.seconds.mid)),
    ` (${secondsRange(part.seconds)}); no placement on this machine could do it in less than ${seconds(part.lower_bound)}.`,
  );
}

function terms(part, plan, names) {
  const sum = part.terms.reduce((total, term) => total + term.seconds.mid, 0) || 1;
  const large = part.terms
    .filter((term) => term.seconds.mid / sum >= SMALL)
    .sort((one, other) => other.seconds.mid - one.seconds.mid);
  const small = part.terms.length - large.length;
  const rest = 1 - large.reduce((total, term) => total + term.seconds.mid, 0) / sum;
  const most = Math.max(...large.map((term) => term.seconds.high), 1e-12);
  return scrolling(
    "Time of every operation",
    h(
      "table",
      {},
      h("caption", { class: "offscreen" }, `Operations of ${PHASES[phase]}, the longest first`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Operation", "Where", "Time", "Interval", "Share", "Bytes", "Limited by", "Source"].map((word, place) =>
            h("th", { scope: "col", class: [2, 4, 5].includes(place) ? "count" : null }, word),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        large.map((term) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, operation(term.op)),
            h("td", {}, resource(term.resource, plan.hardware, names)),
            h("td", { class: "count" }, seconds(term.seconds.mid)),
            h(
              "td",
              { class: "wide" },
              intervalBar(term.seconds, most),
              h("span", { class: "ends" }, secondsRange(term.seconds)),
            ),
            h("td", { class: "count" }, percent(term.seconds.mid / sum)),
            h("td", { class: "count" }, term.bytes > 0 ? bytes(term.bytes) : "–"),
            h("td", {}, BOUNDS[term.bound] ?? term.bound),
            h("td", {}, chip(term.source)),
          ),
        ),
        small > 0 &&
          h(
            "tr",
            { class: "rest" },
            h("th", { scope: "row" }, `${small} more`),
            h("td", {}, ""),
            h("td", { class: "count" }, seconds(rest * sum)),
            h("td"),
            h("td", { class: "count" }, percent(Math.max(0, rest))),
            h("td"),
            h("td"),
            h("td"),
          ),
      ),
    ),
  );
}

/** @param {string} kind @returns {HTMLElement} */
export function chip(kind) {
  const [short, long] = SOURCES[kind] ?? [kind, kind];
  return h("span", { class: `chip source-${kind}`, title: long }, short);
}

function figures({ plan, memory_names: names }) {
  return h(
    "details",
    { class: "more", open: false },
    h("summary", {}, `The machine's figures behind it, ${plan.evidence.length} in all`),
    scrolling(
      "Figures of the machine",
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Figure", "Value", "Source", "Where from"].map((word, place) =>
              h("th", { scope: "col", class: place === 1 ? "count" : null }, word),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          plan.evidence.map((row) => figureRow(row, plan.hardware, names)),
        ),
      ),
    ),
  );
}

function figureRow(row, hardware, names) {
  const { words, unit } = evidence(row.what, hardware, names);
  const { kind, where } = sourceOf(row.source);
  const value = unit === "s" ? seconds(row.value) : unit ? perSecond(row.value, unit) : number(row.value);
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, words),
    h("td", { class: "count" }, value),
    h("td", {}, chip(kind)),
    h(
      "td",
      { class: "where" },
      where,
      row.disturbed ? `; others took ${percent(row.disturbed)} of the time while it was measured` : "",
    ),
  );
}

/** A region that scrolls sideways by itself, so that the page never does. */
export function scrolling(label, ...children) {
  return h("div", { class: "scrolling", role: "region", "aria-label": label, tabIndex: 0 }, children);
}
