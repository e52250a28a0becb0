/**
 * A part of the page whose content takes the service a while. It is asked for when the part is in view and the question
 * rests; what it shows for a former question stays, dimmed, until then.
 */

import { isAborted } from "./api.js";
import { byId, fill, h } from "./dom.js";

export class Panel {
  /**
   * @param {string} id of the section
   * @param {(question: import("./question.js").Question, signal: AbortSignal, said: (text: string) => void) => Promise<void>} load
   *   asks and shows; `said` writes how far it is
   */
  constructor(id, load) {
    this.section = byId(id);
    this.body = this.section.querySelector(".body");
    this.status = this.section.querySelector(".status");
    this.load = load;
    this.seen = false;
    this.question = null;
    this.loaded = null;
    /** @type {AbortController | null} */
    this.control = null;
    new IntersectionObserver(
      ([entry]) => {
        this.seen = entry.isIntersecting;
        this.look();
      },
      { rootMargin: "120px" },
    ).observe(this.section);
  }

  /** Take a question that rests and has an answer; null: none has. @param {import("./question.js").Question | null} question */
  take(question) {
    this.question = question;
    this.control?.abort();
    this.control = null;
    this.section.classList.toggle("stale", this.loaded !== null && !this.knows(question));
    this.look();
  }

  knows(question) {
    return this.loaded !== null && JSON.stringify(question) === JSON.stringify(this.loaded);
  }

  /** Ask again, whatever was asked before. */
  again() {
    this.loaded = null;
    this.take(this.question);
  }

  async look() {
    if (!this.seen || this.question === null || this.knows(this.question) || this.control !== null) return;
    const { question } = this;
    const control = new AbortController();
    this.control = control;
    this.section.setAttribute("aria-busy", "true");
    try {
      await this.load(question, control.signal, (text) => this.say(text));
      this.loaded = question;
      this.section.classList.remove("stale");
      this.say("");
    } catch (error) {
      if (isAborted(error)) return;
      if (!error.problem) throw error;
      this.loaded = question;
      this.say("");
      fill(
        this.body,
        refusal(error.problem, () => this.again()),
      );
    } finally {
      if (this.control === control) this.control = null;
      this.section.setAttribute("aria-busy", "false");
    }
  }

  say(text) {
    if (this.status) this.status.textContent = text;
  }
}

/** @param {any} problem @param {() => void} again @returns {HTMLElement} */
export function refusal(problem, again) {
  return h(
    "div",
    { class: "refusal", role: "alert" },
    h(
      "p",
      {},
      h("strong", {}, problem.title ?? "This has no answer"),
      ` ${problem.detail ?? ""}`,
      problem.remedy && h("span", { class: "remedy" }, ` ${problem.remedy}`),
    ),
    h("button", { type: "button", on: { click: again } }, "Try again"),
  );
}

/** @param {any} job @returns {string} how far a job is, in words */
export function progress(job) {
  if (job.state === "queued") return "waiting for a free processor…";
  return job.total ? `${job.done} of ${job.total}…` : "working…";
}
