/** A timeline of lanes on a canvas, with zoom by wheel, buttons, keys and two fingers. */

import { h } from "./dom.js";
import { perSecond, seconds, tick } from "./numbers.js";
import { colour, whileThere } from "./theme.js";
import { GROUPS } from "./words.js";

const LANE = 34;
const AXIS = 22;
const MAP = 26;
const LABEL_WIDTH = 44;
const STEP = 1.35;
const MIN_S = 2e-7;

/**
 * @typedef {{start: number, end: number, words: string, group: keyof GROUPS, bytes: number, layer: number | null}} Span
 * @typedef {{words: string, spans: Span[]}} Lane  spans in order, none of which overlaps the next
 * @typedef {{words: string, start: number, end: number}} Pass
 */

export class Gantt {
  /** @param {Lane[]} lanes @param {Pass[]} passes @param {(view: {start: number, end: number}) => void} moved */
  constructor(lanes, passes, moved) {
    this.lanes = lanes;
    this.passes = passes;
    this.moved = moved;
    this.length = Math.max(
      ...passes.map((pass) => pass.end),
      ...lanes.flatMap((lane) => lane.spans.slice(-1).map((span) => span.end)),
    );
    this.view = { start: 0, end: this.length };
    this.canvas = h("canvas", {
      class: "gantt-canvas",
      tabIndex: 0,
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label":
        "Timeline of lanes. Left and right arrows move, plus and minus zoom, Home shows all. A table of what is in view follows.",
    });
    this.tip = h("div", { class: "gantt-tip", hidden: true });
    this.element = h(
      "div",
      { class: "gantt" },
      h(
        "div",
        { class: "gantt-lanes", "aria-hidden": "true", vars: { axis: `${AXIS}px`, lane: `${LANE}px` } },
        lanes.map((lane) => h("span", {}, lane.words)),
      ),
      h("div", { class: "gantt-view" }, this.canvas, this.tip),
    );
    this.pointers = new Map();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    whileThere(this.canvas, () => this.draw());
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
    });
    canvas.addEventListener("pointermove", (event) => this.pointer(event));
    for (const end of ["pointerup", "pointercancel"])
      canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(1 / (STEP * STEP), this.timeAt(event.offsetX)));
  }

  /** Show a part of the time. @param {number} start @param {number} end */
  show(start, end) {
    const size = Math.min(this.length, Math.max(MIN_S, end - start));
    const first = Math.min(Math.max(0, start), this.length - size);
    this.view = { start: first, end: first + size };
    this.draw();
    this.moved(this.view);
  }

  /** @param {number} factor of the time in view @param {number} [at] what stays where it is */
  zoom(factor, at = (this.view.start + this.view.end) / 2) {
    const { start, end } = this.view;
    this.show(at - (at - start) * factor, at + (end - at) * factor);
  }

  /** @param {number} share of the time in view */
  pan(share) {
    const move = (this.view.end - this.view.start) * share;
    this.show(this.view.start + move, this.view.end + move);
  }

  wheel(event) {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      return this.pan((event.deltaX || event.deltaY) / this.canvas.clientWidth);
    }
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    this.zoom(STEP ** Math.sign(event.deltaY), this.timeAt(event.offsetX));
  }

  key(event) {
    const acts = {
      ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2),
      "+": () => this.zoom(1 / STEP),
      "=": () => this.zoom(1 / STEP),
      "-": () => this.zoom(STEP),
      Home: () => this.show(0, this.length),
    };
    const act = event.ctrlKey || event.metaKey ? undefined : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  pointer(event) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) return this.hover(event);
    this.tip.hidden = true;
    const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const [was, is] = [Math.abs(before.offsetX - other.offsetX), Math.abs(event.offsetX - other.offsetX)];
      if (was > 4 && is > 4) this.zoom(was / is, this.timeAt((event.offsetX + other.offsetX) / 2));
    } else {
      this.pan((before.offsetX - event.offsetX) / this.canvas.clientWidth);
    }
    this.pointers.set(event.pointerId, event);
  }

  hover(event) {
    const lane = this.lanes[Math.floor((event.offsetY - AXIS) / LANE)];
    const time = this.timeAt(event.offsetX);
    const slack = (3 * (this.view.end - this.view.start)) / this.canvas.clientWidth;
    const span =
      lane &&
      lane.spans
        .slice(firstFrom(lane.spans, time - slack))
        .find((one) => one.end >= time - slack && one.start <= time + slack);
    this.tip.hidden = !span;
    if (!span) return;
    this.tip.textContent = spanWords(span);
    const room = this.canvas.clientWidth - this.tip.offsetWidth;
    this.tip.style.setProperty("--x", `${Math.max(0, Math.min(room, event.offsetX + 12))}px`);
    this.tip.style.setProperty("--y", `${event.offsetY + 14}px`);
  }

  timeAt(x) {
    return this.view.start + ((this.view.end - this.view.start) * x) / this.canvas.clientWidth;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (width === 0) return;
    const height = AXIS + LANE * this.lanes.length + MAP;
    const scale = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const ink = Object.fromEntries(
      [...Object.keys(GROUPS), "line", "ink", "faint", "sunk", "card", "accent", "on-accent"].map((name) => [
        name,
        colour(name),
      ]),
    );
    pen.font = `500 11px ${colour("font")}`;
    pen.textBaseline = "middle";
    this.drawAxis(pen, width, ink);
    this.lanes.forEach((lane, place) => this.drawLane(pen, lane, AXIS + place * LANE, width, ink));
    this.drawMap(pen, AXIS + LANE * this.lanes.length, width, ink);
  }

  drawAxis(pen, width, ink) {
    const { start, end } = this.view;
    const step = niceStep((end - start) / Math.max(2, width / 110));
    for (let time = Math.ceil(start / step) * step; time <= end; time += step) {
      const x = Math.round(((time - start) / (end - start)) * width) + 0.5;
      pen.strokeStyle = ink.line;
      pen.beginPath();
      pen.moveTo(x, 16);
      pen.lineTo(x, AXIS + LANE * this.lanes.length);
      pen.stroke();
      pen.fillStyle = ink.faint;
      const words = tick(time, step);
      if (x + pen.measureText(words).width < width) pen.fillText(words, x + 3, 8);
    }
  }

  drawLane(pen, lane, top, width, ink) {
    const { start, end } = this.view;
    const scale = width / (end - start);
    let last = -1;
    for (
      let place = firstFrom(lane.spans, start);
      place < lane.spans.length && lane.spans[place].start <= end;
      place += 1
    ) {
      const span = lane.spans[place];
      const left = Math.max(0, (span.start - start) * scale);
      const right = Math.min(width, (span.end - start) * scale);
      if (right < last + 0.5) continue;
      const size = Math.max(0.75, right - left - (right - left > 3 ? 0.75 : 0));
      pen.fillStyle = ink[span.group];
      pen.fillRect(left, top + 5, size, LANE - 10);
      last = left + size;
      if (size > LABEL_WIDTH) this.drawWords(pen, span, left, top, size, ink);
    }
  }

  drawWords(pen, span, left, top, size, ink) {
    pen.save();
    pen.beginPath();
    pen.rect(left, top, size - 4, LANE);
    pen.clip();
    pen.fillStyle = span.group === "copy" ? "#1b2228" : ink.card;
    pen.fillText(span.words, left + 5, top + LANE / 2);
    pen.restore();
  }

  drawMap(pen, top, width, ink) {
    const [height, y] = [MAP - 10, top + 8];
    pen.fillStyle = ink.sunk;
    pen.fillRect(0, y, width, height);
    this.passes.forEach((pass, place) => {
      pen.fillStyle = place % 2 === 0 ? ink.line : ink.faint;
      pen.globalAlpha = 0.6;
      pen.fillRect(
        (pass.start / this.length) * width,
        y + 4,
        Math.max(1, ((pass.end - pass.start) / this.length) * width - 1),
        height - 8,
      );
      pen.globalAlpha = 1;
    });
    pen.strokeStyle = ink.accent;
    pen.lineWidth = 2;
    const left = (this.view.start / this.length) * width;
    pen.strokeRect(left + 1, y, Math.max(3, ((this.view.end - this.view.start) / this.length) * width - 2), height);
    pen.lineWidth = 1;
  }
}

/** @param {Span} span @returns {string} `attention: queries, layer 3: 58.9 µs, 157 GB/s` */
function spanWords({ words, layer, start, end, bytes }) {
  const place = layer === null ? "" : `, layer ${layer + 1}`;
  const rate = bytes > 0 ? `, ${perSecond(bytes / (end - start), "B/s")}` : "";
  return `${words}${place}: ${seconds(end - start)}${rate}`;
}

/** @param {Span[]} spans @param {number} time @returns {number} place of the first one that ends after a time */
export function firstFrom(spans, time) {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].end < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((times) => power * times >= least) ?? 10);
}
