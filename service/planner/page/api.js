/** Talks to the planner service: documents, problems, jobs and their events. Paths are relative to the page. */

/** Seconds between looks at a job whose events cannot be read. */
const POLL_S = 0.7;
const KEY = "helm-key";

/** A refusal of the service (RFC 9457), or of the network. `problem` has its fields. */
export class Refusal extends Error {
  /** @param {Record<string, any>} problem */
  constructor(problem) {
    super(problem.detail ?? problem.title ?? "the service refused");
    this.problem = problem;
  }
}

/** @param {unknown} error @returns {boolean} whether we ourselves gave up on a request */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Keep the key that the service wants, for this tab. @param {string} key */
export function rememberKey(key) {
  sessionStorage.setItem(KEY, key);
}

/**
 * Return the JSON of a GET.
 * @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>}
 */
export async function get(path, signal) {
  return content(await request(path, { signal }));
}

/**
 * Return the answer to a POST, through a job where it takes long.
 * @param {string} path @param {unknown} body
 * @param {{signal?: AbortSignal, onJob?: (job: any) => void}} [options] `onJob` hears of the job's progress
 * @returns {Promise<any>}
 */
export async function ask(path, body, { signal, onJob } = {}) {
  const reply = await request(path, { method: "POST", body: JSON.stringify(body), signal });
  const answer = await content(reply);
  if (reply.status !== 202) return answer;
  return result(await followed(answer, { signal, onJob }), signal);
}

/**
 * Start a job and return it.
 * @param {string} path @param {unknown} body @param {AbortSignal} [signal] @returns {Promise<any>}
 */
export async function start(path, body, signal) {
  return content(await request(path, { method: "POST", body: JSON.stringify(body), signal }));
}

/**
 * Follow a job until it has ended, by its events, or by looking again and again where they do not come. An abort
 * cancels the job.
 * @param {any} job @param {{signal?: AbortSignal, onJob?: (job: any) => void}} options @returns {Promise<any>} the job
 */
export async function followed(job, { signal, onJob } = {}) {
  const cancel = () => void cancelled(job).catch(() => {});
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    let now = job;
    onJob?.(now);
    while (!ended(now)) {
      try {
        for await (const told of events(now, signal)) {
          now = told;
          onJob?.(now);
          if (ended(now)) break;
        }
      } catch (error) {
        if (isAborted(error)) throw error;
      }
      if (!ended(now)) {
        await pause(POLL_S, signal);
        now = await get(local(job.links.self), signal);
        onJob?.(now);
      }
    }
    if (now.state === "done") return now;
    throw new Refusal(now.error ?? { code: now.state, detail: "this work was cancelled" });
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

/** @param {any} job that is done @param {AbortSignal} [signal] @returns {Promise<any>} its result */
export function result(job, signal) {
  return get(local(job.links.result ?? `${job.links.self}/result`), signal);
}

/** @param {any} job @returns {Promise<Response>} */
export function cancelled(job) {
  return request(local(job.links.self), { method: "DELETE" });
}

/** @param {any} job @param {string} accept @returns {Promise<Blob>} its result in another form */
export async function resultFile(job, accept) {
  const reply = await request(local(job.links.result ?? `${job.links.self}/result`), { headers: { Accept: accept } });
  return reply.blob();
}

/** @param {any} job @returns {boolean} */
export const ended = (job) => ["done", "failed", "cancelled"].includes(job.state);

const local = (link) => link.replace(/^\//, "");

async function request(path, { method = "GET", body, signal, headers = {} } = {}) {
  const key = sessionStorage.getItem(KEY);
  const sent = { Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (key) sent.Authorization = `Bearer ${key}`;
  let reply;
  try {
    reply = await fetch(path, { method, body, signal, headers: sent });
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new Refusal({
      code: "unreachable",
      title: "The service does not answer",
      detail: "The planner service does not answer.",
      remedy: "Is helm-web still running? What you see is the last answer; the page tries again with your next change.",
    });
  }
  if (!reply.ok) throw new Refusal(await problem(reply));
  return reply;
}

async function problem(reply) {
  try {
    return { status: reply.status, ...(await reply.json()) };
  } catch {
    return {
      status: reply.status,
      code: "unreadable",
      title: reply.statusText,
      detail: `The service answered ${reply.status} ${reply.statusText}`.trim(),
    };
  }
}

async function content(reply) {
  try {
    return await reply.json();
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new Refusal({ code: "unreadable", detail: "The service's answer could not be read.", remedy: "Try again." });
  }
}

/** Yield jobs as the events of a stream tell of them; `EventSource` could not send a key. */
async function* events(job, signal) {
  const reply = await request(local(job.links.events), { signal, headers: { Accept: "text/event-stream" } });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n");
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trim());
      if (data.length > 0) yield JSON.parse(data.join("\n"));
    }
  }
}

function pause(time, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, time * 1000);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(new DOMException("gave up", "AbortError"));
      },
      { once: true },
    );
  });
}
