/** The table of other methods and engines beside the answer, and the plans that were nearly chosen. */

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { intervalBar } from "./figure.js";
import { bytes, counted, number, seconds, secondsRange, slower } from "./numbers.js";
import { Panel, progress } from "./panel.js";
import { plainMemories } from "./plain_names.js";
import { BEST, asked, forOurs } from "./question.js";
import { scrolling } from "./sources.js";
import { layout, memoryName, methodAbout, methodName } from "./words.js";
import { used } from "./memory.js";

const NEAR = 6;

/** @returns {{panel: Panel, show: (answer: any) => void}} */
export function alternativesPanel() {
  let answer = null;
  const panel = new Panel("alternatives", async (question, signal, said) => {
    const body = { question: asked(forOurs(question), BEST) };
    if (panel.loaded === null) fill(panel.body, h("p", { class: "empty" }, "Asking every method what it would do…"));
    const told = await ask("v1/comparisons", body, { signal, onJob: (job) => said(progress(job)) });
    const table = { ...told, memory_names: plainMemories(told.memory_names) };
    fill(panel.body, comparison(table), answer && near(answer));
  });
  return {
    panel,
    show: (now) => {
      answer = now;
    },
  };
}

function comparison(table) {
  const fits = table.rows.filter((row) => row.verdict === "fits");
  const others = table.rows.filter((row) => row.verdict !== "fits");
  const memories = Object.keys(table.memory_names).filter((name) =>
    fits.some((row) => row.planned.memory.some((use) => use.memory === name && used(use) > 0)),
  );
  const most = Math.max(
    ...fits
      .map((row) => row.planned.speed.request.high)
      .sort((one, other) => one - other)
      .slice(0, 4),
    1e-9,
  );
  const heads = [
    "Method",
    "Whole request",
    "Interval",
    "Tokens/s",
    "First token",
    ...memories.map((name) => table.memory_names[name] ?? name),
  ];
  return [
    scrolling(
      "Other ways to run it",
      h(
        "table",
        { class: "ways-table" },
        h("caption", { class: "offscreen" }, "Methods and engines, the fastest first"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((word, place) =>
              h("th", { scope: "col", class: place > 0 && place !== 2 ? "count" : null }, word),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          fits.map((row) => fitRow(row, memories, most)),
        ),
      ),
    ),
    others.length > 0 &&
      h(
        "details",
        { class: "more" },
        h("summary", {}, `${counted(others.length, "method does", "methods do")} not work here, and why`),
        h(
          "ul",
          { class: "misfits" },
          others.map((row) => h("li", {}, h("strong", {}, methodName(row.strategy)), `: ${reason(row, table)}`)),
        ),
      ),
  ];
}

function fitRow(row, memories, most) {
  const { speed, memory, label } = row.planned;
  return h(
    "tr",
    {},
    h(
      "th",
      { scope: "row" },
      methodName(row.strategy),
      h("span", { class: "sub" }, layout(label) || methodAbout(row.strategy).split(";")[0]),
      h("code", { class: "sub", title: label }, label),
    ),
    h(
      "td",
      { class: "count" },
      seconds(speed.request.mid),
      h(
        "span",
        { class: "sub" },
        row.relative === null || row.relative === undefined
          ? ""
          : row.relative < 1.0005
            ? "fastest"
            : slower(row.relative),
      ),
    ),
    h(
      "td",
      { class: "wide" },
      intervalBar(speed.request, most),
      h("span", { class: "ends" }, secondsRange(speed.request)),
    ),
    h(
      "td",
      { class: "count" },
      number(speed.decode_rate.mid),
      h("span", { class: "sub" }, `${number(speed.decode_rate.low)} to ${number(speed.decode_rate.high)}`),
    ),
    h("td", { class: "count" }, seconds(speed.ttft.mid)),
    memories.map((name) => h("td", { class: "count" }, sizeIn(memory, name))),
  );
}

function sizeIn(memory, name) {
  const use = memory.find((one) => one.memory === name);
  return use && used(use) > 0 ? bytes(used(use)) : "–";
}

function reason(row, table) {
  const lacks = Object.entries(row.lacks ?? {}).map(
    ([memory, size]) => `${bytes(size)} more needed in ${memoryName(memory, { memories: [] }, table.memory_names)}`,
  );
  return [row.reason, ...lacks, row.remedy].filter(Boolean).join("; ");
}

function near(answer) {
  const { passed_over: passed } = answer.plan;
  const rows = [
    ...passed.map((plan) =>
      h(
        "li",
        {},
        h("strong", {}, methodName(plan.strategy)),
        ` ${layout(plan.label)} `,
        h("code", {}, plan.label),
        `: ${seconds(plan.seconds)} expected, saves ${seconds(plan.gain.mid)} (${secondsRange(plan.gain)}), and is more complicated`,
      ),
    ),
    ...answer.runner_ups
      .slice(0, NEAR)
      .map((plan) => h("li", {}, `${layout(plan.label)} `, h("code", {}, plan.label), `: ${seconds(plan.seconds)}`)),
    ...answer.rejected.slice(0, NEAR).map((plan) =>
      h(
        "li",
        {},
        `${layout(plan.label)} `,
        h("code", {}, plan.label),
        `: would take ${seconds(plan.seconds)}, but lacks ${Object.entries(plan.lacks)
          .map(([memory, size]) => `${bytes(size)} in ${memoryName(memory, answer.plan.hardware, answer.memory_names)}`)
          .join(" and ")}`,
      ),
    ),
  ];
  return (
    rows.length > 0 &&
    h(
      "details",
      { class: "more" },
      h("summary", {}, `What was nearly chosen: ${counted(rows.length, "layout")}`),
      h("ul", { class: "misfits" }, rows),
    )
  );
}
