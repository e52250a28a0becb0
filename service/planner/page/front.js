/** Settings that nothing beats in both speed and wait: of methods that answer soon, and of all that a visitor adds. */

import { chart } from "./chart.js";
import { fill, h } from "./dom.js";
import { note } from "./live.js";
import { methods } from "./methods.js";
import { BEST } from "./question.js";
import { number, seconds } from "./numbers.js";
import { methodAbout, methodName } from "./words.js";

/** Methods that are compared until others are chosen: together they take about a second, all there are half a minute. */
export const SOON = ["layer-split", "llama-cpp", "vllm", "flexgen"];
/** The service compares no fewer. */
const FEWEST = 2;

/** Which methods are compared, with the buttons that choose them. */
export class FrontMethods {
  /** @param {() => void} changed is called when others are chosen */
  constructor(changed) {
    this.changed = changed;
    this.chosen = new Set(SOON);
    /** @type {string[]} all that there are, in the order of their colours */
    this.all = [...SOON];
    this.summary = h("summary", {});
    this.buttons = h("div", { class: "choices", role: "group", "aria-label": "Methods that are compared" });
    this.element = h("details", { class: "more front-methods" }, this.summary, this.buttons);
    this.show();
  }

  /** Learn which methods there are, where the service says so. */
  async learn() {
    try {
      const others = (await methods()).filter((name) => name !== BEST && !this.all.includes(name));
      if (others.length === 0) return;
      this.all = [...this.all, ...others];
      this.show();
    } catch (error) {
      if (!error.problem) throw error;
    }
  }

  /** @returns {string[]} the methods that are chosen, in the order of their colours */
  get names() {
    return this.all.filter((name) => this.chosen.has(name));
  }

  /** @returns {boolean} whether only those are compared that answer soon */
  get soon() {
    return this.names.join() === SOON.join();
  }

  show() {
    const whole = this.names.length === this.all.length;
    this.summary.textContent = `Compares ${this.names.length} of ${this.all.length} methods`;
    fill(
      this.buttons,
      this.all.map((name) => this.button(methodName(name), methodAbout(name), this.chosen.has(name), name)),
      this.button("All", "takes half a minute or so", whole, "all"),
    );
  }

  button(words, title, pressed, method) {
    const on = { click: () => this.press(method) };
    return h("button", { type: "button", title, "aria-pressed": String(pressed), dataset: { method }, on }, words);
  }

  press(method) {
    const chosen = new Set(this.chosen);
    if (method === "all")
      for (const name of this.all) this.names.length === this.all.length ? chosen.delete(name) : chosen.add(name);
    else if (!chosen.delete(method)) chosen.add(method);
    if (chosen.size === 0) for (const name of SOON) chosen.add(name);
    if (chosen.size < FEWEST) return note("At least two methods are compared", "bad");
    this.chosen = chosen;
    this.show();
    this.buttons.querySelector(`[data-method="${method}"]`).focus();
    this.changed();
  }
}

/**
 * Draw plans for one, two, four .. requests at a time by several methods.
 * @param {any[]} points of a helm.comparison/1 @param {string[]} all methods in the order of their colours
 * @returns {HTMLElement}
 */
export function frontOf(points, all) {
  const rows = points
    .map((point) => ({ ...point, time: point.planned.speed.request.mid, rate: point.planned.speed.rate.mid }))
    .sort((one, other) => one.time - other.time);
  const series = all
    .map((name, ink) => ({
      words: methodName(name),
      values: rows.map((row) => (row.strategy === name ? row.rate : null)),
      kind: "points",
      ink,
    }))
    .filter(({ values }) => values.some((value) => value !== null));
  series.push({
    words: "the best of them",
    values: rows.map((row) => (row.front ? row.rate : null)),
    kind: "front",
    ink: 4,
  });
  const best = rows.filter((row) => row.front).map((row) => row.batch);
  return chart({
    title: "Settings that nothing beats in both",
    about: `Seconds of a whole request against tokens a second of all. The line joins the best: ${best.join(", ")} at a time.`,
    x: rows.map((row) => row.time),
    xWords: "for a request",
    xText: seconds,
    yText: number,
    series: series.reverse(),
    logX: true,
    timeX: true,
  });
}
