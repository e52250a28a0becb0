/** A field into which several values are typed or chosen. */

import { get } from "./api.js";
import { Combobox } from "./combobox.js";
import { fill, h } from "./dom.js";
import { field } from "./field.js";

/**
 * @param {{id: string, words: string, values: string[], path?: string, suggestions?: string[], name?: (value: string) => string, names?: string[]}}
 *   settings `path` of a listing to choose from, or `suggestions`; `name`: what a value is called; `names` of the field
 * @returns {import("./field.js").Field & {values: string[], changed: () => void}}
 */
export function chosenList({ id, words, values, path, suggestions = [], name = (value) => value, names = [] }) {
  const chips = h("div", { class: "chips", role: "list", "aria-label": words });
  const input = h("input", { id, type: "text", placeholder: path ? "type a name" : "write one, or choose below" });
  const offers = suggestions.map((value) =>
    h("button", { type: "button", value, on: { click: () => add(value) } }, name(value)),
  );
  const made = {
    ...field({
      control: input,
      words,
      names,
      shown: h("div", { class: "combo" }, input),
      below: [chips, suggestions.length > 0 && h("div", { class: "suggestions" }, offers)],
    }),
    values: [...values],
    changed: () => {},
  };
  const show = () => {
    fill(
      chips,
      made.values.map((value) =>
        h(
          "span",
          { class: "token", role: "listitem" },
          name(value),
          h(
            "button",
            {
              type: "button",
              "aria-label": `Remove ${name(value)}`,
              on: {
                click: () => {
                  made.values = made.values.filter((one) => one !== value);
                  show();
                },
              },
            },
            "×",
          ),
        ),
      ),
    );
    for (const offer of offers) offer.hidden = made.values.includes(offer.value);
    made.changed();
  };
  const add = (value) => {
    if (value && !made.values.includes(value)) made.values.push(value);
    input.value = "";
    show();
  };
  if (path) {
    queueMicrotask(() => {
      const box = new Combobox({
        input,
        choose: (value) => {
          add(value);
          box.set("");
        },
      });
      get(path).then(
        ({ entries }) => box.offer(entries),
        () => {},
      );
    });
  } else {
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        add(input.value.trim());
      }
    });
    input.addEventListener("blur", () => add(input.value.trim()));
  }
  show();
  return made;
}
