/** Curves: what longer prompts and more requests at a time do to speed, and the front of settings. */

import { ask } from "./api.js";
import { chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { FrontMethods, SOON, frontOf } from "./front.js";
import { number, seconds, tokens } from "./numbers.js";
import { Panel, progress } from "./panel.js";
import { BEST, QUICK, asked, forOurs, ofEngine } from "./question.js";

const PROMPTS = [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072];
const PLACES = ["prompts", "first", "batches", "front"];
const MOST_BATCH = 64;

/** @returns {{panel: Panel, show: (answer: any) => void}} */
export function curvesPanel() {
  let answer = null;
  let drawn = "";
  let points = [];
  const chosen = new FrontMethods(() => panel.again());
  const panel = new Panel("curves", async (question, signal, said) => {
    if (panel.body.querySelector("[data-curve]") === null) {
      drawn = "";
      fill(
        panel.body,
        h(
          "div",
          { class: "charts" },
          PLACES.map((name) =>
            h("div", { class: "chart-place", dataset: { curve: name } }, name === "front" ? frontPlace(chosen) : waits()),
          ),
        ),
      );
    }
    const [prompts, first, batches, front] = PLACES.map((name) => panel.body.querySelector(`[data-curve="${name}"]`));
    void chosen.learn();
    if (drawn !== JSON.stringify(question)) {
      const most = answer.plan.model.max_context - Number(question.answer);
      const byPrompt = await sweep(
        withOwn(PROMPTS, question.prompt).filter((size) => size <= most),
        question,
        signal,
        (text) => said(`a prompt of ${text} tokens…`),
      );
      fill(prompts, speedByPrompt(byPrompt, question));
      fill(first, firstByPrompt(byPrompt, question));
      points = await larger(question, SOON, signal, said);
      fill(batches, speedByBatch(points, question));
      drawn = JSON.stringify(question);
    }
    const compared = chosen.soon ? points : await larger(question, chosen.names, signal, said);
    fill(front.querySelector(".front-chart"), frontOf(compared, chosen.all));
  });
  return {
    panel,
    show: (now) => {
      answer = now;
    },
  };
}

/** Ask about one prompt after the other until one does not fit: longer ones would not either. Comparisons tell of misfits
 *  as answers, where plans refuse. */
async function sweep(prompts, question, signal, said) {
  const rows = [];
  for (const prompt of prompts) {
    said(tokens(prompt));
    const speed = await speedOf({ ...question, prompt, context: prompt + Number(question.answer) }, signal);
    if (speed === null) return { rows, end: prompt };
    rows.push({ value: prompt, speed });
  }
  return { rows, end: null };
}

/** Ask how fast a question's engine is, or the quick method; null: it does not fit. */
async function speedOf(question, signal) {
  if (!ofEngine(question)) {
    const body = { question: asked(question, QUICK), strategies: [QUICK, "llama-cpp"] };
    const table = await ask("v1/comparisons", body, { signal });
    const row = table.rows.find((one) => one.strategy === QUICK);
    return row.verdict === "fits" ? row.planned.speed : null;
  }
  try {
    return (await ask("v1/plans", asked(question), { signal })).speed;
  } catch (error) {
    if (error.problem?.code === "infeasible") return null;
    throw error;
  }
}

const withOwn = (values, own) =>
  [...new Set([...values, Number(own)])].filter((value) => value > 0).sort((one, other) => one - other);

const why = (end, words) => (end === null ? "" : ` From ${words(end)} on it does not fit.`);

function interval(rows, part, words) {
  const values = (end) => rows.map(({ speed }) => speed[part][end]);
  return {
    series: [
      { words, values: values("mid"), ink: 0 },
      { words: "at most", values: values("high"), kind: "edge", ink: 0 },
      { words: "at least", values: values("low"), kind: "edge", ink: 0 },
    ],
    bands: [[1, 2]],
  };
}

function speedByPrompt({ rows, end }, question) {
  return chart({
    title: "Speed, with a longer conversation",
    about: `Tokens a second by tokens of the prompt; room for prompt and answer.${why(end, tokens)}`,
    x: rows.map(({ value }) => value),
    xWords: "tokens of prompt",
    xText: tokens,
    yText: number,
    logX: true,
    mark: Number(question.prompt),
    ...interval(rows, "decode_rate", "tokens/s"),
  });
}

function firstByPrompt({ rows, end }, question) {
  return chart({
    title: "Wait for the first token",
    about: `Until the prompt is read, by its tokens.${why(end, tokens)}`,
    x: rows.map(({ value }) => value),
    xWords: "tokens of prompt",
    xText: tokens,
    yText: seconds,
    logX: true,
    logY: true,
    mark: Number(question.prompt),
    ...interval(rows, "ttft", "first token after"),
  });
}

const waits = () => h("p", { class: "empty" }, "…");

/** The buttons stay while what they choose is drawn again: whoever pressed one is still there. */
const frontPlace = (chosen) => [chosen.element, h("div", { class: "front-chart" }, waits())];

/** Plans for one, two, four .. requests at a time, by some methods. */
async function larger(question, strategies, signal, said) {
  const what = `more requests at a time, by ${strategies.length} methods`;
  said(`${what}…`);
  const body = {
    question: asked(forOurs({ ...question, batch: 1 }), BEST),
    strategies,
    most: Math.max(MOST_BATCH, Number(question.batch)),
  };
  const { points } = await ask("v1/comparisons", body, { signal, onJob: (job) => said(`${what}: ${progress(job)}`) });
  return points;
}

function speedByBatch(points, question) {
  const rows = points
    .filter(({ strategy }) => strategy === QUICK)
    .map(({ batch, planned }) => ({ value: batch, speed: planned.speed }));
  const last = rows.at(-1)?.value ?? 0;
  const all = interval(rows, "decode_rate", "all together");
  const one = rows.map(({ value, speed }) => speed.decode_rate.mid / value);
  return chart({
    title: "Speed, with more requests at a time",
    about: `Tokens a second of all together, and of each${ofEngine(question) ? ", split by layers by Helm" : ""}.${why(last < MOST_BATCH ? 2 * last : null, String)}`,
    x: rows.map(({ value }) => value),
    xWords: "at a time",
    xText: String,
    yText: number,
    logX: true,
    mark: Number(question.batch),
    series: [...all.series, { words: "each of them", values: one, ink: 1 }],
    bands: all.bands,
  });
}
