/** Writes numbers for people: three significant digits, units that fit, never a false precision. */

const BYTE_STEPS = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];
const RATE_STEPS = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];
const GIB = 2 ** 30;

/** @param {number} value @param {number} [digits] @returns {string} `34.5`, `1,240`, `0.083` */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size) + 1e-9));
  const rounded = Number(value.toFixed(Math.min(places, 8)));
  return rounded.toLocaleString("en", { maximumFractionDigits: Math.min(places, 8) });
}

/** @param {number} value @returns {string} a whole number with separators */
export function whole(value) {
  return Math.round(value).toLocaleString("en");
}

/** @param {number} size bytes @returns {string} `4.69 GB` */
export function bytes(size) {
  const [step, unit] = BYTE_STEPS.find(([least]) => size >= least) ?? BYTE_STEPS.at(-1);
  return `${number(size / step)} ${unit}`;
}

/** @param {number} size bytes @returns {string} `8 GiB` where that is a round number, as cards are sold; else as bytes */
export function capacity(size) {
  const gib = size / GIB;
  return Math.abs(gib - Math.round(gib)) < 1e-6 && gib >= 1 ? `${Math.round(gib)} GiB` : bytes(size);
}

/** @param {number} rate per second @param {string} unit `B/s`, `FLOP/s` @returns {string} `218 GB/s` */
export function perSecond(rate, unit) {
  const [step, prefix] = RATE_STEPS.find(([least]) => rate >= least) ?? RATE_STEPS.at(-1);
  return `${number(rate / step)} ${prefix}${unit}`;
}

/** @param {number} time @returns {[string, string]} a value and its unit: `["157", "ms"]` */
export function secondsParts(time) {
  if (time === 0) return ["0", "s"];
  if (time < 1e-3) return [number(time * 1e6), "µs"];
  if (time < 1) return [number(time * 1e3), "ms"];
  if (time < 120) return [number(time), "s"];
  if (time < 7200) return [number(time / 60), "min"];
  if (time < 172800) return [number(time / 3600), "h"];
  return [number(time / 86400), "days"];
}

/** @param {number} time @returns {string} `157 ms` */
export function seconds(time) {
  return secondsParts(time).join(" ");
}

/**
 * Write an interval, its unit once where both ends have the same.
 * @param {{low: number, high: number}} interval @returns {string} `260 to 523 ms`
 */
export function secondsRange({ low, high }) {
  const [[first, unit], [last, lastUnit]] = [secondsParts(low), secondsParts(high)];
  return `${first}${unit === lastUnit ? "" : ` ${unit}`} to ${last} ${lastUnit}`;
}

/**
 * Write a time of an axis, with as many digits as tell neighbours apart.
 * @param {number} time @param {number} step between neighbours @returns {string} `1.765 s`
 */
export function tick(time, step) {
  const [size, unit] = [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
  ].find(([least]) => Math.max(time, step) >= least) ?? [1e-6, "µs"];
  const places = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(time / size).toFixed(Math.min(places, 9))} ${unit}`;
}

/** @param {number} share @returns {string} `3.1 %` */
export function percent(share) {
  const value = share * 100;
  return `${value > 0 && value < 0.05 ? "< 0.1" : number(value, value < 10 ? 2 : 3)} %`;
}

/** @param {number} times @returns {string} how much slower: `same`, `12 % slower`, `3.8 times as long` */
export function slower(times) {
  if (times < 1.0005) return "the same";
  if (times < 2) return `${percent(times - 1)} longer`;
  return `${number(times, 2)} times as long`;
}

/** @param {number} tokens @returns {string} `512`, `4k`, `1M` */
export function tokens(tokens) {
  if (tokens >= 2 ** 20 && tokens % 2 ** 20 === 0) return `${tokens / 2 ** 20}M`;
  if (tokens >= 1024 && tokens % 1024 === 0) return `${tokens / 1024}k`;
  return whole(tokens);
}

/** @param {number} count @param {string} one @param {string} [several] @returns {string} `1 layer`, `36 layers` */
export function counted(count, one, several = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : several}`;
}
