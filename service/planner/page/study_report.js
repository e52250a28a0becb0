/** The report of a study: the best settings, upgrades, what is uncertain, the front of cost and speed, and every row. */

import { h } from "./dom.js";
import { intervalBar } from "./figure.js";
import { bytes, counted, number, percent, seconds, secondsRange } from "./numbers.js";
import { scrolling } from "./sources.js";
import { OURS } from "./question.js";
import { circumstances, servedColumns } from "./study_served.js";
import { change, engineName, figureKind, formatName, layout } from "./words.js";

const MOST_ROWS = 200;
/** A part of an answer that counts as no change. */
const LITTLE = 0.005;

/** @param {any} report a helm.study-report/1 @returns {Node[]} */
export function studyReport(report) {
  return [
    h("h2", {}, "What came of it"),
    h("p", { class: "lead" }, tally(report.counts)),
    h("div", { class: "results" }, best(report), upgrades(report), formats(report), uncertain(report), rows(report)),
  ];
}

function tally(counts) {
  const words = {
    fits: "fit",
    "does-not-fit": "do not fit",
    "does-not-apply": "make no sense there",
    failed: "failed",
  };
  return `${Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([status, count]) => `${counted(count, "question")} ${words[status]}`)
    .join(", ")}.`;
}

function table(title, heads, lines) {
  return h(
    "section",
    {},
    h("h3", {}, title),
    scrolling(
      title,
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((head) => h("th", { scope: "col", class: head.count ? "count" : null }, head.words ?? head)),
          ),
        ),
        h("tbody", {}, lines),
      ),
    ),
  );
}

const count = (words) => ({ words, count: true });
const cell = (...content) => h("td", { class: "count" }, ...content);
const first = (...content) => h("th", { scope: "row" }, ...content);

function best(report) {
  const { best: settings, rows: all, scenarios } = report;
  const served = servedColumns(report);
  const most = Math.max(
    ...settings.filter(({ row }) => row !== null && row !== undefined).map(({ row }) => all[row].request_high_s ?? 0),
    1e-9,
  );
  return table(
    "The best of each machine",
    [
      "Machine",
      "Model",
      "Weights",
      ...served.map(({ words }) => count(words)),
      count("Whole request"),
      "Interval",
      count("Tokens/s"),
      count("First token"),
    ],
    settings.map((setting) => {
      const where = circumstances(scenarios, setting.scenario);
      const named = [
        first(setting.machine, changed(setting.change), where && h("span", { class: "sub" }, where)),
        h("td", {}, setting.model),
      ];
      if (setting.row === null || setting.row === undefined)
        return h(
          "tr",
          {},
          named,
          h("td", { colSpan: 5 + served.length, class: "where" }, setting.missing ?? "nothing fits"),
        );
      const row = all[setting.row];
      const times = { low: row.request_low_s, mid: row.request_s, high: row.request_high_s };
      return h(
        "tr",
        {},
        named,
        h("td", {}, formatName(row.format ?? "f16"), by(row), under(row)),
        served.map(({ of }) => cell(of(row))),
        cell(seconds(row.request_s)),
        h("td", { class: "wide" }, intervalBar(times, most), h("span", { class: "ends" }, secondsRange(times))),
        cell(number(row.decode_rate)),
        cell(seconds(row.ttft_s)),
      );
    }),
  );
}

/** The engine that runs it, where one was asked for. */
const by = ({ engine }) => engine && engine !== OURS && h("span", { class: "sub" }, `by ${engineName(engine)}`);

const under = ({ policy }) => policy && h("span", { class: "sub" }, `policy ${policy}`);

const experts = ({ experts: places }) => places && h("span", { class: "sub" }, `experts ${places}`);

const changed = (text) => text !== "as it is" && h("span", { class: "sub" }, change(text));

function upgrades({ upgrades: changes, rows: all }) {
  return (
    changes.length > 0 &&
    table(
      "What changes bring",
      ["Change", "Machine", "Model", count("As good as before"), count("Whole request")],
      changes.map((one) =>
        h(
          "tr",
          {},
          first(change(one.change)),
          h("td", {}, one.machine),
          h("td", {}, one.model),
          cell(one.times === null || one.times === undefined ? "did not fit before" : `${number(one.times, 3)}×`),
          cell(seconds(all[one.row].request_s)),
        ),
      ),
    )
  );
}

function formats({ formats: choices, study }) {
  return (
    choices.length > 0 &&
    study.formats.length > 1 &&
    table(
      "Most precise weights that fit",
      ["Machine", "Model", "Weights"],
      choices.map((one) =>
        h(
          "tr",
          {},
          first(one.machine, changed(one.change)),
          h("td", {}, one.model),
          h("td", {}, formatName(one.format)),
        ),
      ),
    )
  );
}

function uncertain({ sensitivity, measure }) {
  const write = measure === "request_s" ? seconds : number;
  const known = sensitivity.filter((one) => one.low !== null && one.low !== undefined);
  const large = known.filter((one) => Math.abs(one.high - one.low) > LITTLE * Math.max(one.low, one.high));
  const small = known.length - large.length;
  return (
    sensitivity.length > 0 &&
    h(
      "section",
      {},
      large.length > 0 &&
        table(
          "What is uncertain",
          [
            "Figure, from one end of its interval to the other",
            "Machine",
            "Model",
            count(measure === "request_s" ? "Whole request" : "Measure"),
            "Still the best",
          ],
          large.map((one) =>
            h(
              "tr",
              {},
              first(figureKind(one.figures)),
              h("td", {}, one.machine, changed(one.change)),
              h("td", {}, one.model),
              cell(`${write(Math.min(one.low, one.high))} to ${write(Math.max(one.low, one.high))}`),
              h(
                "td",
                {},
                one.stays_best === null || one.stays_best === undefined
                  ? "–"
                  : one.stays_best
                    ? "yes"
                    : "another machine may be better",
              ),
            ),
          ),
        ),
      small > 0 &&
        h(
          "p",
          { class: "empty" },
          `${counted(small, "other figure")} would change the answer by less than ${percent(LITTLE)}.`,
        ),
    )
  );
}

function rows({ rows: all }) {
  return h(
    "details",
    { class: "more" },
    h("summary", {}, `Every answer, ${all.length} in all`),
    scrolling(
      "Every answer",
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            [
              "Model",
              "Machine",
              "Change",
              "Weights",
              count("Prompt"),
              count("At a time"),
              "Answer",
              count("Whole request"),
              count("Tokens/s"),
              count("GPU memory"),
            ].map((head) => h("th", { scope: "col", class: head.count ? "count" : null }, head.words ?? head)),
          ),
        ),
        h(
          "tbody",
          {},
          all
            .slice(0, MOST_ROWS)
            .map((row) =>
              h(
                "tr",
                {},
                first(row.model),
                h("td", {}, row.machine),
                h("td", {}, change(row.change)),
                h("td", {}, formatName(row.format ?? "f16")),
                cell(row.prompt_tokens),
                cell(row.batch),
                h("td", {}, row.status === "fits" ? [layout(row.plan) || row.plan, experts(row)] : (row.missing ?? row.status)),
                cell(row.request_s === null || row.request_s === undefined ? "–" : seconds(row.request_s)),
                cell(row.decode_rate === null || row.decode_rate === undefined ? "–" : number(row.decode_rate)),
                cell(row.accelerator_bytes ? bytes(row.accelerator_bytes) : "–"),
              ),
            ),
        ),
      ),
    ),
    all.length > MOST_ROWS && h("p", { class: "empty" }, `${all.length - MOST_ROWS} more are in the files below.`),
  );
}
