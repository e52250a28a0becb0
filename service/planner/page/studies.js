/** Studies: many models, machines, changes and settings at once, with progress, and what is to be known of the answers. */

import { cancelled, ended, followed, get, isAborted, result, resultFile, start } from "./api.js";
import { byId, fill, h } from "./dom.js";
import { PACKED, packed, unpacked } from "./link.js";
import { announce } from "./live.js";
import { counted } from "./numbers.js";
import { refusal } from "./panel.js";
import { progressBar } from "./serving.js";
import { studyForm } from "./study_form.js";
import { studyReport } from "./study_report.js";
import { viewOf } from "./views.js";

const PARQUET = "application/vnd.apache.parquet";
/**
 * @param {import("./question.js").Store} store whose question a new study begins with
 * @returns {{link: () => Promise<string>}} writes the study of the form into an address
 */
export function connectStudies(store) {
  let built = false;
  let study = null;
  const build = async () => {
    if (built || viewOf(location.hash) !== "studies") return;
    built = true;
    const made = page(store.question, await linked(location.hash));
    study = made.study;
    fill(byId("studies"), made.parts);
  };
  addEventListener("popstate", build);
  document.addEventListener("click", () => setTimeout(build));
  void build();
  return { link: async () => `#view=studies&study=${PACKED}${await packed(study())}` };
}

/** Return the study of a link; null where it has none that can be read. */
async function linked(hash) {
  const text = new URLSearchParams(hash.slice(1)).get("study");
  try {
    return text ? await unpacked(text) : null;
  } catch {
    return null;
  }
}

function page(question, given) {
  const results = h("section", { class: "card", hidden: true, "aria-label": "Result of the study" });
  const jobs = h("section", { class: "card", hidden: true, "aria-labelledby": "jobs-title" });
  const { form, study } = studyForm(question, given, (asked, button, refuse) =>
    void run(asked, button, refuse, results, jobs),
  );
  void showJobs(jobs, results);
  const about =
    "One question for every combination. The answers say which machine, which weights and which change is worth it, " +
    "and how sure that is.";
  const head = [h("h2", { id: "study-title" }, "A study"), h("p", { class: "lead" }, about)];
  return {
    parts: [h("section", { class: "card", "aria-labelledby": "study-title" }, head, form), results, jobs],
    study,
  };
}

async function run(study, begin, refuse, results, jobs) {
  begin.disabled = true;
  try {
    results.hidden = false;
    await follow(await start("v1/studies", study), results);
  } catch (error) {
    if (isAborted(error)) return;
    if (!error.problem) throw error;
    results.hidden = refuse(error.problem);
    fill(
      results,
      refusal(
        {
          title: "This study cannot be answered.",
          ...error.problem,
          detail: [error.problem.field, error.problem.detail].filter(Boolean).join(": "),
        },
        () => void run(study, begin, refuse, results, jobs),
      ),
    );
  } finally {
    begin.disabled = false;
    void showJobs(jobs, results);
  }
}

/** Follow a study's job to its end and show what came of it. */
async function follow(job, box) {
  const bar = progressBar(() => {
    void cancelled(job).catch(() => {});
  });
  box.hidden = false;
  fill(box, h("h2", {}, "Answering"), bar.element);
  try {
    const done = await followed(job, { onJob: bar.show });
    const report = await result(done);
    fill(box, studyReport(report), downloads(done, report));
    announce(`The study is done: ${counted(report.rows.length, "answer")}.`);
  } catch (error) {
    if (!error.problem) throw error;
    if (error.problem.code !== "cancelled" && error.problem.status !== 404) throw error;
    fill(
      box,
      h("h2", {}, "Cancelled"),
      h("p", { class: "empty" }, "Answers that are there already are kept: the same study goes on where it was."),
    );
    announce("The study was cancelled.");
  }
}

function downloads(job, report) {
  const save = (blob, name) => {
    const address = URL.createObjectURL(blob);
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
  return h(
    "p",
    { class: "study-foot" },
    h(
      "button",
      {
        type: "button",
        on: { click: () => save(new Blob([JSON.stringify(report)], { type: "application/json" }), "study.json") },
      },
      "Save as JSON",
    ),
    h(
      "button",
      { type: "button", on: { click: async () => save(await resultFile(job, PARQUET), "study.parquet") } },
      "Save the table as Parquet",
    ),
  );
}

async function showJobs(box, results) {
  let told;
  try {
    told = (await get("v1/jobs")).jobs.filter((job) => job.kind === "study");
  } catch (error) {
    if (!error.problem) throw error;
    return;
  }
  box.hidden = told.length === 0;
  fill(
    box,
    h("h2", { id: "jobs-title" }, "Studies so far"),
    h(
      "ul",
      { class: "jobs" },
      told
        .slice(0, 12)
        .map((job) =>
          h(
            "li",
            {},
            h(
              "span",
              {},
              new Date(job.created * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" }),
            ),
            h(
              "span",
              {},
              { queued: "waits", running: "is being answered", done: "done", failed: "failed", cancelled: "cancelled" }[
                job.state
              ],
            ),
            job.total ? h("span", {}, counted(job.total, "question")) : null,
            (job.state === "done" || !ended(job)) &&
              h("button", { type: "button", class: "link", on: { click: () => void follow(job, results) } }, "show"),
          ),
        ),
    ),
  );
}
