/** For many people: requests that come one after the other and are served, simulated request by request. */

import { ask, isAborted } from "./api.js";
import { byId, fill, h } from "./dom.js";
import { textField } from "./field.js";
import { counted, number, percent, seconds, whole } from "./numbers.js";
import { progress, refusal } from "./panel.js";
import { scrolling } from "./sources.js";

/** Requests of one run; a search takes more by itself. */
const REQUESTS = 400;
const LATENCIES = { ttft: "first token", tpot: "each further token", e2e: "whole request" };

/** @returns {{panel: {take: (question: any) => void}, show: (answer: any) => void}} */
export function servingPanel() {
  const body = byId("serving").querySelector(".body");
  let answer = null;
  let control = null;
  const input = (id, value, words, small) => textField({ id, words, small, value, inputMode: "decimal" }).element;
  const results = h("div", { class: "results" });
  const start = h("button", { type: "submit", class: "main" }, "Simulate");
  const form = h(
    "form",
    { novalidate: true },
    h(
      "p",
      { class: "lead" },
      "Requests like yours arrive at random and are served together, on this machine and with this layout. ",
      "How long do people wait, and how many can there be?",
    ),
    h(
      "div",
      { class: "form-row serving-row" },
      input("serve-rate", "0.2", "Requests", "a second"),
      input("serve-ttft", "2", "First token within", "seconds"),
      input("serve-tpot", "0.1", "Each token within", "seconds"),
      start,
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void run();
  });
  fill(body, form, results);

  async function run() {
    if (answer === null) return;
    control?.abort();
    const mine = new AbortController();
    control = mine;
    const bar = progressBar(() => mine.abort());
    fill(results, bar.element);
    try {
      fill(results, report(await simulated(simulationOf(answer.plan), { signal: mine.signal, onJob: bar.show })));
    } catch (error) {
      if (isAborted(error)) return void (control === mine && fill(results, h("p", { class: "empty" }, "Given up.")));
      if (!error.problem) throw error;
      fill(
        results,
        refusal(error.problem, () => void run()),
      );
    }
  }

  return {
    panel: { take: () => byId("serving").classList.toggle("stale", false) },
    show: (now) => {
      if (answer !== null && answer !== now && results.childElementCount > 0) {
        control?.abort();
        fill(results, h("p", { class: "empty" }, "The question has changed: simulate again."));
      }
      answer = now;
    },
  };
}

/** Ask for the highest rate too; where no rate misses the limits, for the rest alone. */
async function simulated(body, options) {
  try {
    return await ask("v1/simulations", body, options);
  } catch (error) {
    if (error.problem?.code !== "infeasible" || error.problem.field !== "slo") throw error;
    const { capacity: _, seeds: __, ...rest } = body;
    return { ...(await ask("v1/simulations", rest, options)), unlimited: true };
  }
}

function simulationOf(plan) {
  const { prompt_tokens: prompt, output_tokens: output } = plan.workload;
  const value = (id) => byId(id).value.trim();
  const serving = {
    requests: `synthetic:n=${REQUESTS},input=${prompt},output=${output},rate=${value("serve-rate")}`,
    slo: `ttft=${value("serve-ttft")}s,tpot=${value("serve-tpot")}s`,
  };
  return { plan, serving, capacity: true, seeds: 3 };
}

/**
 * A bar of a job's progress with a button that gives it up.
 * @param {() => void} cancel @returns {{element: HTMLElement, show: (job: any) => void}}
 */
export function progressBar(cancel) {
  const bar = h("progress", { "aria-label": "Progress" });
  const words = h("span", { role: "status" }, "starting…");
  return {
    element: h(
      "div",
      { class: "progress" },
      bar,
      words,
      h("button", { type: "button", on: { click: cancel } }, "Cancel"),
    ),
    show: (job) => {
      words.textContent = progress(job);
      if (job.total > 1) Object.assign(bar, { max: job.total, value: job.done });
    },
  };
}

function report({ serving, capacity, unlimited }) {
  const { counts, latency, throughput, goodput, activity } = serving;
  return [
    h(
      "dl",
      { class: "tiles" },
      capacity &&
        tile(
          "Most requests a second",
          number(capacity.rate),
          capacity.low !== null && capacity.low !== undefined
            ? `${number(capacity.low)} to ${number(capacity.high)} (95 %, over ${capacity.seeds.length} draws)`
            : "",
          "that keep both limits for 99 of 100",
        ),
      unlimited &&
        tile(
          "Most requests a second",
          "many",
          "",
          `no rate misses these limits with ${REQUESTS} requests: try tighter ones`,
        ),
      goodput &&
        tile(
          "At your rate",
          percent(goodput.share),
          goodput.met ? "the limits are kept" : "the limits are missed",
          "of requests are within both limits",
        ),
      tile(
        "Tokens a second",
        number(throughput.output_tokens),
        "",
        `${whole(counts.finished)} of ${counted(counts.asked, "request")} finished`,
      ),
      activity && tile("GPU at work", percent(activity.busy.gpu), "", "of the time"),
    ),
    scrolling(
      "Waiting times",
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Time to", "half of them", "9 of 10", "99 of 100", "longest"].map((word, place) =>
              h("th", { scope: "col", class: place > 0 ? "count" : null }, word),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          Object.entries(LATENCIES)
            .filter(([name]) => latency[name])
            .map(([name, words]) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, words),
                ["p50", "p90", "p99", "max"].map((part) => h("td", { class: "count" }, seconds(latency[name][part]))),
              ),
            ),
        ),
      ),
    ),
    h("p", { class: "empty" }, "Simulated with median times; the interval of the answer above applies to all of them."),
  ];
}

function tile(title, value, ends, foot) {
  return h(
    "div",
    { class: "figure" },
    h("dt", {}, title),
    h(
      "dd",
      {},
      h("span", { class: "value" }, value),
      ends && h("span", { class: "ends" }, ends),
      h("span", { class: "foot-note" }, foot),
    ),
  );
}
