/** Reads numbers with units as people write them, and writes them so that they can be read again. */

const SIZES = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
const PREFIXES = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
const TIMES = { s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, ns: 1e-9 };

/**
 * @param {string} text `8 GB`, `218 GB/s`, `12 µs`, `36`
 * @param {"B" | "B/s" | "FLOP/s" | "s" | ""} unit that is meant where none is written
 * @returns {number} in base units
 * @throws an error with a `problem` where it is no number of that unit
 */
export function readNumber(text, unit) {
  const match = /^\s*([\d.,]+(?:e[+-]?\d+)?)\s*(\S*)\s*$/i.exec(text);
  const value = match ? Number(match[1].replaceAll(",", "")) * factor(match[2], unit) : NaN;
  if (!Number.isFinite(value))
    throw Object.assign(new Error(text), {
      problem: {
        detail: `“${text}” is not a number${unit ? ` in ${unit}` : ""}`,
        remedy: `write it like ${writeNumber(unit === "s" ? 5e-6 : 8e9, unit)}`,
      },
    });
  return unit === "B" ? Math.round(value) : value;
}

/**
 * Read what is separated by commas, ranges (`1..64`) as they are.
 * @template T @param {string} text @param {(part: string) => T} read @returns {(T | string)[]}
 */
export function readSeveral(text, read) {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean)
    .map((part) => (part.includes("..") ? part : read(part)));
}

function factor(written, unit) {
  if (written === "") return 1;
  if (unit === "B") return SIZES[written] ?? NaN;
  if (unit === "s") return TIMES[written] ?? NaN;
  if (unit === "") return { k: 1024, K: 1024, M: 2 ** 20 }[written] ?? NaN;
  return written.endsWith(unit) ? (PREFIXES[written.slice(0, -unit.length)] ?? NaN) : NaN;
}

/** @param {number} value in base units @param {string} unit @returns {string} */
export function writeNumber(value, unit) {
  if (unit === "B" && value >= 2 ** 30 && Number.isInteger(value / 2 ** 30)) return `${value / 2 ** 30} GiB`;
  if (unit === "B") return scaled(value, Object.entries({ B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 }));
  if (unit === "s") return scaled(value, Object.entries({ ns: 1e-9, µs: 1e-6, ms: 1e-3, s: 1 }));
  if (unit === "") return String(value);
  return scaled(
    value,
    Object.entries(PREFIXES).map(([prefix, size]) => [prefix + unit, size]),
  );
}

function scaled(value, units) {
  const [unit, size] = [...units].reverse().find(([, least]) => value >= least) ?? units[0];
  return `${Number((value / size).toPrecision(6))} ${unit}`;
}
