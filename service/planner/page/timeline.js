/** The timeline of a plan: what CPU, GPU and the copies between them do, for the prompt and the first tokens. */

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { Gantt, firstFrom } from "./gantt.js";
import { percent, seconds } from "./numbers.js";
import { Panel, progress } from "./panel.js";
import { scrolling } from "./sources.js";
import { GROUPS, operation, operationGroup, resource } from "./words.js";

/** Decode steps that are drawn after the prompt: more look alike. */
const STEPS = 3;
const MOST_ROWS = 40;

/** @returns {{panel: Panel, show: (answer: any) => void}} */
export function timelinePanel() {
  let answer = null;
  const panel = new Panel("timeline", async (question, signal, said) => {
    const plan = answer.plan;
    const body = { plan, timeline: true, steps: Math.min(STEPS, Math.max(0, plan.workload.output_tokens - 1)) };
    if (panel.loaded === null)
      fill(panel.body, h("p", { class: "empty" }, "Going through the prompt and the first tokens…"));
    const simulated = await ask("v1/simulations", body, { signal, onJob: (job) => said(progress(job)) });
    showTimeline(panel.body, simulated, answer);
  });
  return {
    panel,
    show: (now) => {
      answer = now;
    },
  };
}

function showTimeline(box, { timeline, replay }, { plan, memory_names: names }) {
  const { lanes, passes } = lanesOf(timeline.traceEvents, plan.hardware, names);
  const table = h("details", { class: "more" }, h("summary", {}, "What is in view, as a table"), h("div"));
  const said = h("p", { class: "gantt-said", "aria-live": "off" });
  const gantt = new Gantt(lanes, passes, (view) => {
    said.textContent = `${seconds(view.start)} to ${seconds(view.end)}`;
    if (table.open) fill(table.lastChild, inView(lanes, view));
  });
  table.addEventListener("toggle", () => table.open && fill(table.lastChild, inView(lanes, gantt.view)));
  const button = (words, title, act) =>
    h("button", { type: "button", title, "aria-label": title, on: { click: act } }, words);
  fill(
    box,
    h(
      "div",
      { class: "gantt-tools" },
      h(
        "div",
        { class: "choices" },
        passes
          .slice(0, 2)
          .map((pass) => button(pass.words, `Show ${pass.words}`, () => gantt.show(pass.start, pass.end))),
        button("All", "Show all", () => gantt.show(0, gantt.length)),
      ),
      h(
        "div",
        { class: "gantt-zoom" },
        button("−", "Zoom out", () => gantt.zoom(1.35)),
        button("+", "Zoom in", () => gantt.zoom(1 / 1.35)),
        button("←", "Move left", () => gantt.pan(-0.25)),
        button("→", "Move right", () => gantt.pan(0.25)),
      ),
      said,
    ),
    gantt.element,
    h(
      "ul",
      { class: "legend" },
      Object.entries(GROUPS).map(([group, words]) =>
        h("li", {}, h("span", { class: `key key-op-${group}`, "aria-hidden": "true" }), words),
      ),
      h("li", { class: "hint" }, "drag to move; Ctrl and wheel, or + and −, to zoom"),
    ),
    busy(replay, plan.hardware, names),
    table,
  );
  const first = passes[1] ?? passes[0];
  gantt.show(first.start, first.end);
}

/** Read Trace Events: operations are those with a task; passes have an iteration. */
function lanesOf(events, hardware, names) {
  const lanes = new Map();
  const passes = new Map();
  for (const event of events) {
    if (event.ph === "M" && event.name === "thread_name")
      lanes.set(event.tid, { words: resource(event.args.name, hardware, names), spans: [] });
    if (event.ph !== "X") continue;
    const [start, end] = [event.ts / 1e6, (event.ts + event.dur) / 1e6];
    if (event.args.task !== undefined) lanes.get(event.tid).spans.push(span(event, start, end));
    else if (event.args.iteration !== undefined) {
      const known = passes.get(event.args.iteration);
      if (known) Object.assign(known, { start: Math.min(known.start, start), end: Math.max(known.end, end) });
      else passes.set(event.args.iteration, { words: event.name === "prefill" ? "Prompt" : "One token", start, end });
    }
  }
  const shown = [...lanes.values()].filter((lane) => lane.spans.length > 0);
  for (const lane of shown) lane.spans.sort((one, other) => one.start - other.start);
  return { lanes: shown, passes: [...passes.entries()].sort(([one], [other]) => one - other).map(([, pass]) => pass) };
}

function span(event, start, end) {
  const layer = /^\d+\/(\d+)\./.exec(event.args.task);
  const moves = /@/.test(event.args.task);
  return {
    start,
    end,
    words: operation(event.name),
    group: moves ? "copy" : operationGroup(event.name),
    bytes: event.args.bytes,
    layer: layer ? Number(layer[1]) : null,
  };
}

function inView(lanes, { start, end }) {
  const sums = new Map();
  for (const lane of lanes) {
    for (
      let place = firstFrom(lane.spans, start);
      place < lane.spans.length && lane.spans[place].start <= end;
      place += 1
    ) {
      const one = lane.spans[place];
      const key = `${lane.words}\n${one.words}`;
      const sum = sums.get(key) ?? { lane: lane.words, words: one.words, count: 0, time: 0 };
      sum.count += 1;
      sum.time += Math.min(one.end, end) - Math.max(one.start, start);
      sums.set(key, sum);
    }
  }
  const rows = [...sums.values()].sort((one, other) => other.time - one.time);
  return [
    scrolling(
      "What is in view",
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Where", "Operation", "Times", "Together", "Of what is in view"].map((word, place) =>
              h("th", { scope: "col", class: place > 1 ? "count" : null }, word),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          rows
            .slice(0, MOST_ROWS)
            .map((row) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, row.lane),
                h("td", {}, row.words),
                h("td", { class: "count" }, row.count),
                h("td", { class: "count" }, seconds(row.time)),
                h("td", { class: "count" }, percent(row.time / (end - start))),
              ),
            ),
        ),
      ),
    ),
    rows.length > MOST_ROWS && h("p", { class: "empty" }, `${rows.length - MOST_ROWS} more take less time.`),
  ];
}

function busy(replay, hardware, names) {
  const { resources, seconds: whole } = replay.decode.seconds > 0 ? replay.decode : replay.prefill;
  const rows = resources.filter((lane) => lane.busy_s / whole >= 0.01);
  return h(
    "p",
    { class: "lead gantt-lead" },
    "Of the time for all tokens of the answer, ",
    rows.flatMap((lane, place) => [
      place > 0 && (place === rows.length - 1 ? " and " : ", "),
      resource(lane.name, hardware, names),
      " worked ",
      h("strong", {}, percent(lane.busy_s / whole)),
    ]),
    ". Times are medians; the interval above says how sure they are.",
  );
}
