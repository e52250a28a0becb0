/**
 * Asks the service as the question changes: a quick method while something moves, the chosen one when it rests. One quick
 * request is under way at a time; when it ends, the newest position is asked. An answer that is older than what is shown
 * is dropped.
 */

import { ask, isAborted } from "./api.js";
import { QUICK, asked } from "./question.js";
import { withPlainNames } from "./plain_names.js";

/** Seconds without a change after which the chosen method is asked. */
const REST_S = 0.4;
/** Seconds in which the quick answer is painted before the service is busy again, after a change that stands alone. */
const PAINT_S = 0.1;
/** Seconds after which a request for a former position is given up for a newer one: that costs the service a process. */
const PATIENCE_S = 2;
/** Answers that are kept, so that going back is instant. */
const KEPT = 200;

/**
 * @typedef {object} Shown
 * @property {any} [answer] a helm.plan-answer/1
 * @property {any} [problem] why there is none
 * @property {boolean} quick whether the quick method made it and a better answer is still to come
 * @property {boolean} stale whether the question has changed since
 * @property {import("./question.js").Question} question that it answers
 */

export class Asker {
  /**
   * @param {(shown: Shown) => void} show is told of every answer or refusal
   * @param {(what: {quick: boolean, job?: any} | null) => void} wait is told what is under way
   */
  constructor(show, wait) {
    this.show = show;
    this.wait = wait;
    /** @type {Map<string, {answer?: any, problem?: any}>} */
    this.kept = new Map();
    this.number = 0;
    this.shownNumber = 0;
    /** @type {{since: number, control: AbortController} | null} */
    this.quick = null;
    /** @type {AbortController | null} */
    this.full = null;
    /** @type {{text: string, answer: Promise<any>} | null} */
    this.coming = null;
    this.rest = 0;
    this.restsAt = 0;
  }

  /**
   * Take an answer of the quick method that was asked for before.
   * @param {import("./question.js").Question} question @param {Promise<any>} answer
   */
  expect(question, answer) {
    this.coming = { text: key(question, QUICK), answer };
  }

  /**
   * Take a changed question.
   * @param {import("./question.js").Question} question @param {boolean} moving whether changes follow each other
   */
  take(question, moving) {
    this.question = question;
    this.number += 1;
    clearTimeout(this.rest);
    const known = this.kept.get(key(question, question.method));
    if (known && !moving) {
      this.tell(this.number, question, known, false);
      this.wait(null);
      return;
    }
    this.restsAt = performance.now() + (moving ? REST_S * 1000 : 0);
    void this.askQuick();
  }

  /** Ask the quick method about the newest question, unless it is busy with one that is not old yet. */
  async askQuick() {
    if (this.quick !== null) {
      if (performance.now() - this.quick.since < PATIENCE_S * 1000) return;
      this.quick.control.abort();
    }
    const { question, number } = this;
    const mine = { since: performance.now(), control: new AbortController() };
    this.quick = mine;
    this.wait({ quick: true });
    const outcome = await this.outcome(question, QUICK, { signal: mine.control.signal });
    if (this.quick !== mine) return;
    this.quick = null;
    const last = key(question, QUICK) === key(question, question.method) || isFinal(outcome?.problem);
    if (outcome) this.tell(number, question, outcome, !last);
    if (number !== this.number) return void this.askQuick();
    if (last) return this.wait(null);
    this.rest = setTimeout(() => this.askFull(), Math.max(PAINT_S * 1000, this.restsAt - performance.now()));
  }

  /**
   * Ask the chosen method about the question that rests. A request for a former question is given up only now: while a
   * slider moves it may go on, and its answer is kept, since the service would have to end a process for nothing.
   */
  async askFull() {
    this.full?.abort();
    const { question, number } = this;
    const control = new AbortController();
    this.full = control;
    this.wait({ quick: false });
    const onJob = (job) => number === this.number && this.wait({ quick: false, job });
    const outcome = await this.outcome(question, question.method, { signal: control.signal, onJob });
    if (this.full === control) this.full = null;
    if (!outcome || number !== this.number) return;
    this.tell(number, question, outcome, false);
    this.wait(null);
  }

  tell(number, question, outcome, quick) {
    if (number < this.shownNumber) return;
    this.shownNumber = number;
    this.show({ ...outcome, quick, stale: number !== this.number, question });
  }

  /** @returns {Promise<{answer?: any, problem?: any} | null>} null for a request that was given up */
  async outcome(question, strategy, options) {
    const known = this.kept.get(key(question, strategy));
    if (known) return known;
    const text = key(question, strategy);
    const coming = this.coming?.text === text ? this.coming.answer : null;
    this.coming = null;
    try {
      const answer = await (coming ?? ask("v1/plans", asked(question, strategy), options));
      return this.keep(text, { answer: withPlainNames(answer) });
    } catch (error) {
      if (isAborted(error)) return null;
      if (!error.problem) throw error;
      const outcome = { problem: error.problem };
      return error.problem.status === 422 ? this.keep(key(question, strategy), outcome) : outcome;
    }
  }

  keep(name, outcome) {
    this.kept.set(name, outcome);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    return outcome;
  }
}

/** Whether a refusal of the quick method is one for all methods. */
const isFinal = (problem) =>
  problem !== undefined && ([400, 401, 403].includes(problem.status) || problem.code === "unreachable");

const key = (question, strategy) => JSON.stringify(asked(question, strategy));
