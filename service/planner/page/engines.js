/** Settings with which a person's own engine does what a plan says, with a button that copies them. */

import { ask } from "./api.js";
import { byId, fill, h } from "./dom.js";
import { copy } from "./live.js";
import { number, seconds, slower } from "./numbers.js";
import { Panel } from "./panel.js";
import { asked, ofEngine } from "./question.js";
import { engineName, layout } from "./words.js";

/** Engines that are offered; beside them that of the question. */
const ENGINES = ["llama.cpp", "vllm", "accelerate", "zero-inference"];

/** @returns {{panel: Panel, show: (answer: any) => void}} */
export function enginesPanel() {
  let engine = ENGINES[0];
  let followed = "";
  let answer = null;
  const panel = new Panel("engines", async (question, signal) => {
    if (followed !== question.engine && ofEngine(question)) {
      engine = question.engine;
      offer(engine);
    }
    followed = question.engine;
    const its = await ask("v1/plans", asked({ ...question, engine }), { signal });
    fill(panel.body, settings(engine, its, answer));
  });
  const offer = (own) => {
    fill(
      byId("engine-choices"),
      [...new Set([...ENGINES, own])].map((name) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(name === engine),
            dataset: { engine: name },
            on: {
              click: () => {
                engine = name;
                press(name);
                panel.again();
              },
            },
          },
          engineName(name),
        ),
      ),
    );
  };
  offer(engine);
  return {
    panel,
    show: (now) => {
      answer = now;
    },
  };
}

function press(name) {
  for (const button of byId("engine-choices").children)
    button.setAttribute("aria-pressed", String(button.dataset.engine === name));
}

function settings(engine, its, best) {
  const { speed, plan } = its;
  return [
    its.settings.map((setting) =>
      h(
        "div",
        { class: "command" },
        h("pre", { tabIndex: 0, "aria-label": `settings for ${setting.engine}` }, h("code", {}, setting.command)),
        h("button", { type: "button", class: "main", on: { click: () => copy(setting.command, "Settings") } }, "Copy"),
      ),
    ),
    its.settings.length === 0 &&
      h(
        "p",
        { class: "empty" },
        `The planner knows what ${engineName(engine)} would do here, but not yet the flags that make it do so.`,
      ),
    h(
      "p",
      { class: "lead" },
      h("strong", {}, `${number(speed.decode_rate.mid)} tokens/s`),
      ` (${number(speed.decode_rate.low)} to ${number(speed.decode_rate.high)}), first token after ${seconds(speed.ttft.mid)}`,
      layout(plan.label) && `; ${layout(plan.label)}`,
      best && compared(speed, best),
      ".",
    ),
  ];
}

function compared(speed, best) {
  const times = speed.request.mid / best.speed.request.mid;
  if (times > 1.0005)
    return `; the whole request takes ${slower(times)} than the answer above`.replace(
      "times as long than",
      "times as long as",
    );
  return times < 0.9995 ? "; faster than the answer above, but not clearly" : "; the same as the answer above";
}
