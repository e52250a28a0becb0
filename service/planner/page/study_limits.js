/** The limits of a study, an SLO: how long people wait, and for how many of the requests that holds. */

import { h } from "./dom.js";
import { textField } from "./field.js";

const LIMITS = {
  ttft: ["First token within", "seconds, or 300ms"],
  tpot: ["Each further token within", "seconds, or 100ms"],
  share: ["For how many requests", "%, of what is served: 99"],
};

/**
 * @param {string[]} given SLOs of a study, of which the first is shown
 * @returns {{element: HTMLElement, fields: () => import("./field.js").Field[], document: () => any}}
 */
export function studyLimits(given) {
  const known = Object.fromEntries((given[0] ?? "").split(",").map((item) => item.split("=")));
  const fields = Object.entries(LIMITS).map(([name, [words, small]]) => {
    const value = name === "share" && known.share ? Number((known.share * 100).toPrecision(12)) : (known[name] ?? "");
    const made = textField({ id: `study-${name}`, words, small, value, names: ["slo"] });
    return { ...made, name, written: () => limit(name, made.control.value.trim()) };
  });
  return {
    element: h(
      "fieldset",
      {},
      h("legend", {}, "Limits to keep"),
      h(
        "div",
        { class: "study-form" },
        fields.map(({ element }) => element),
      ),
    ),
    fields: () => fields,
    document: () => {
      const slo = fields.map(({ written }) => written()).filter(Boolean);
      return slo.length > 0 ? { slo: [slo.join(",")] } : {};
    },
  };
}

/** Write a limit; what is no number is for the service to refuse. */
function limit(name, text) {
  if (text === "") return "";
  const value = text.replace(/\s*%$/, "");
  if (name === "share") return `share=${Number.isFinite(Number(value)) ? Number(value) / 100 : value}`;
  return `${name}=${Number.isFinite(Number(text)) ? `${text}s` : text.replace(/\s+/, "")}`;
}
