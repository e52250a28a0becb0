/** The verdict: fits or not and why, the speeds with their intervals, and which of two answers is shown. */

import { byId, fill, h } from "./dom.js";
import { intervalBar, phaseSources, shareBar, sourcesInWords } from "./figure.js";
import { announce } from "./live.js";
import { echo, headlineOf, problemParts } from "./misfit.js";
import { counted, number, percent, seconds, secondsParts, tokens } from "./numbers.js";
import { ofEngine } from "./question.js";
import { engineName, methodAbout, methodName } from "./words.js";

/** A distance from the ideal that is none: prices have no more digits. */
const NOTHING = 5e-5;
const KV_MEANS = "what is kept of past tokens so that they need not be read again: keys and values";

/**
 * Show an answer or why there is none.
 * @param {import("./asker.js").Shown} shown
 * @param {{hardware?: any, help: {words: string, act: () => void}[]}} aids the machine, and what a click could change
 */
export function showVerdict(shown, aids) {
  const box = byId("verdict");
  box.dataset.state = shown.answer ? "fits" : shown.problem.code === "infeasible" ? "misfit" : "refused";
  box.classList.toggle("stale", shown.stale);
  fill(box, shown.answer ? answerParts(shown) : problemParts(shown, aids));
  if (!shown.stale && !shown.quick)
    announce(
      box.dataset.state === "fits" ? spoken(shown.answer) : `${headlineOf(shown.problem)}. ${shown.problem.detail}`,
    );
  showPocket(shown);
}

/** Say what is under way; null: nothing. @param {{quick: boolean, job?: any} | null} what */
export function showWaiting(what) {
  const box = byId("verdict");
  box.setAttribute("aria-busy", String(what !== null));
  const badge = box.querySelector(".badge-wait");
  if (badge) badge.hidden = what === null || what.quick;
  if (badge && what?.job?.total) badge.textContent = `comparing methods, ${what.job.done} of ${what.job.total}…`;
}

/** @param {any} answer @returns {"all" | "part" | "none"} how much of the weights is in an accelerator's memory */
export function placement({ plan }) {
  const kinds = Object.fromEntries(plan.hardware.memories.map((memory) => [memory.name, memory.kind]));
  const near = plan.predicted.memory.filter(({ memory }) => ["vram", "loopback", "unified"].includes(kinds[memory]));
  const far = plan.predicted.memory.filter((use) => !near.includes(use));
  const weights = (uses) => uses.reduce((sum, use) => sum + use.weights, 0);
  if (weights(near) === 0) return "none";
  return weights(far) > 0 ? "part" : "all";
}

const severalGpus = ({ plan }) => plan.predicted.memory.filter((use) => use.weights > 0).length > 1;

function headline(answer) {
  const accelerated = answer.plan.hardware.devices.length > 1;
  const where = placement(answer);
  if (!accelerated) return "It fits in RAM.";
  return {
    all: severalGpus(answer) ? "It fits on the GPUs." : "It fits on the GPU.",
    part: "It fits, divided between GPU and RAM.",
    none: "It fits, but not on the GPU.",
  }[where];
}

function answerParts(shown) {
  const { answer, question } = shown;
  const { speed, plan } = answer;
  const work = plan.workload;
  const several = work.batch * work.batches > 1;
  return [
    h(
      "div",
      { class: "verdict-head" },
      h(
        "div",
        {},
        h("p", { class: "echo" }, echo(question, plan.hardware)),
        h("h2", { id: "verdict-title" }, headline(answer)),
      ),
      badge(shown),
    ),
    h("p", { class: "in-short" }, inShort(answer.in_short)),
    h(
      "dl",
      { class: "figures" },
      figure(
        several ? "Speed, all together" : "Speed of the answer",
        speed.decode_rate,
        (value) => [number(value), "tokens/s"],
        several
          ? `${number(speed.decode_rate.mid / (work.batch * work.batches))} for each of ${work.batch * work.batches}`
          : `${seconds(speed.step.mid)} a token`,
        phaseSources(plan.predicted.decode),
      ),
      figure(
        "First token after",
        speed.ttft,
        secondsParts,
        `${tokens(work.prompt_tokens)} tokens to read${several ? `, ${work.batch} prompts` : ""}`,
        phaseSources(plan.predicted.prefill),
      ),
      figure(
        "Whole request",
        speed.request,
        secondsParts,
        `${tokens(work.prompt_tokens)} in, ${tokens(work.output_tokens)} out`,
        null,
      ),
      distance(plan),
    ),
    answer.warnings.length + answer.unused.length > 0 &&
      h(
        "ul",
        { class: "warnings" },
        [...answer.warnings, ...answer.unused].map((text) => h("li", {}, text)),
      ),
  ];
}

const QUICK_ABOUT =
  "One quick method: the first layers on the CPU, the others on the GPU. The best of several methods follows when nothing moves.";

/** @returns {[string, string]} by whom the answer is, and what that means */
function author({ question, quick }) {
  if (ofEngine(question)) return [`as ${engineName(question.engine)} runs it`, "its own plan, at its own speed"];
  if (quick) return ["quick answer: split by layers", QUICK_ABOUT];
  const name = question.method === "best" ? "best of several methods" : `method: ${methodName(question.method)}`;
  return [name, methodAbout(question.method)];
}

function badge(shown) {
  const { quick } = shown;
  const [name, about] = author(shown);
  return h(
    "p",
    { class: "badges" },
    h(
      "span",
      {
        class: `badge ${quick ? "badge-quick" : "badge-best"}`,
        title: about,
        dataset: { answer: quick ? "quick" : "best" },
      },
      name,
    ),
    quick && h("span", { class: "badge-wait", hidden: shown.stale }, "looking for a better one…"),
  );
}

/** The planner's sentence, with its abbreviations explained. */
function inShort(text) {
  const sentence = `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
    .replaceAll("; ", ". ")
    .replace(/\. ([a-z])/g, (_, letter) => `. ${letter.toUpperCase()}`);
  return sentence.split(/\b(KV)\b/).map((part) => (part === "KV" ? h("abbr", { title: KV_MEANS }, "KV cache") : part));
}

function figure(title, interval, write, foot, sources) {
  const [value, unit] = write(interval.mid);
  const [low, lowUnit] = write(interval.low);
  const [high, highUnit] = write(interval.high);
  return h(
    "div",
    { class: "figure" },
    h("dt", {}, title),
    h(
      "dd",
      {},
      h("span", { class: "value" }, value, h("small", {}, ` ${unit}`)),
      intervalBar(interval),
      h("span", { class: "ends" }, `${low}${lowUnit === highUnit ? "" : ` ${lowUnit}`} to ${high} ${highUnit}`),
      sources &&
        h(
          "a",
          { class: "of", href: "#sources", dataset: { jump: "sources" } },
          shareBar(sources),
          h("span", {}, sourcesInWords(sources)),
        ),
      h("span", { class: "foot-note" }, foot),
    ),
  );
}

function proofWords({ ways }, gap) {
  const all = `${counted(ways, "way")} to place a layer, combined at will: proved`;
  return gap < NOTHING
    ? ["", "none", `nothing is faster of ${all}`]
    : ["at most", percent(gap), `slower than any of ${all}`];
}

function distance(plan) {
  const proof = plan.certificate;
  const gap = proof ? proof.gap : plan.predicted.decode.gap;
  const words = proof
    ? proofWords(proof, gap)
    : ["within", `${number(1 + gap, 2)}×`, "of what this machine's bandwidth and arithmetic allow for a token at all"];
  return h(
    "div",
    { class: "figure figure-proof" },
    h("dt", {}, "From the ideal"),
    h(
      "dd",
      {},
      h("span", { class: "value" }, h("small", {}, `${words[0]} `), words[1]),
      h("span", { class: "foot-note" }, words[2]),
    ),
  );
}

function spoken({ speed, in_short: short }) {
  const { low, mid, high } = speed.decode_rate;
  const rate = `${number(mid)} tokens a second, between ${number(low)} and ${number(high)}`;
  return `It fits. ${rate}. First token after ${seconds(speed.ttft.mid)}. ${short.split("; ").at(-1)}.`;
}

function showPocket({ answer, problem, stale }) {
  const box = byId("pocket");
  box.dataset.state = answer ? "fits" : "misfit";
  box.classList.toggle("stale", stale);
  fill(
    box,
    answer
      ? [
          h("strong", {}, `${number(answer.speed.decode_rate.mid)} tokens/s`),
          h("span", {}, `${number(answer.speed.decode_rate.low)} to ${number(answer.speed.decode_rate.high)}`),
          h("span", {}, `first after ${seconds(answer.speed.ttft.mid)}`),
        ]
      : [h("strong", {}, headlineOf(problem))],
  );
}
