/** Asks for the key that a service wants which is not open to everyone. */

import { rememberKey } from "./api.js";
import { byId, fill, h } from "./dom.js";

/** @param {() => void} then is called with the key kept */
export function askForKey(then) {
  const dialog = byId("dialog");
  if (dialog.open) return;
  const input = h("input", { id: "key", type: "password", autocomplete: "current-password" });
  const form = h(
    "form",
    {},
    h("h2", { id: "dialog-title" }, "This service wants a key"),
    h("p", {}, "Whoever runs it gave you one. It is kept until this tab is closed."),
    h("div", { class: "field" }, h("label", { for: "key" }, "Key"), input),
    h(
      "p",
      { class: "dialog-foot" },
      h("button", { type: "submit", class: "main" }, "Use it"),
      h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    rememberKey(input.value.trim());
    dialog.close();
    then();
  });
  fill(dialog, form);
  dialog.showModal();
}
