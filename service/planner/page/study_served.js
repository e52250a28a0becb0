/** What a study's answers say of many users and of costs, as columns of its table, and the circumstances of each. */

import { number, tokens } from "./numbers.js";

const known = (value) => value !== null && value !== undefined;

/** Write a number that was searched for, with its interval, and say where runs were too few to settle it. */
function searched(value, low, high, settled) {
  if (!known(value)) return "–";
  const ends = known(low) && known(high) && low !== high ? ` (${number(low)} to ${number(high)})` : "";
  return `${number(value)}${ends}${settled === false ? ", not settled" : ""}`;
}

const COLUMNS = {
  users: ["Users at most", (row) => searched(row.users, row.users_low, row.users_high, row.users_settled)],
  rate: ["Requests/s at most", (row) => searched(row.rate, row.rate_low, row.rate_high, row.rate_settled)],
  replicas: ["Machines needed", (row) => searched(row.replicas, null, null, row.replicas_settled)],
  cost: ["A million tokens", (row, prices) => (known(row.cost) ? `${number(row.cost)} ${prices.currency}` : "–")],
};

/**
 * @param {any} report a helm.study-report/1
 * @returns {{words: string, of: (row: any) => string}[]} columns of which some row has a value
 */
export function servedColumns({ rows, study }) {
  const pricesOf = (row) => study.prices.find(({ name }) => name === row.prices);
  return Object.entries(COLUMNS)
    .filter(([name]) => rows.some((row) => known(row[name])))
    .map(([, [words, write]]) => ({ words, of: (row) => write(row, pricesOf(row)) }));
}

const CIRCUMSTANCES = {
  prompt_tokens: (value) => `prompts of ${tokens(value)}`,
  output_tokens: (value) => `answers of ${tokens(value)}`,
  slo: (value) => value ?? "no limits",
  requests: (value) => value,
  target_rate: (value) => `${number(value)} requests/s`,
  target_users: (value) => `${number(value)} users`,
  think: (value) => `thinking ${value}`,
  prices: (value) => `prices: ${value}`,
};

/**
 * Say what differs between the circumstances of a study.
 * @param {any[]} scenarios @param {number} one of them @returns {string} `prompts of 512, 8 users`; nothing where there is one
 */
export function circumstances(scenarios, one) {
  return Object.entries(CIRCUMSTANCES)
    .filter(([name]) => scenarios.some((other) => other[name] !== scenarios[0][name]))
    .map(([name, write]) => write(scenarios[one][name]))
    .join(", ");
}
