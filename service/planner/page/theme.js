/** Light, dark, or as the system says; remembered on this machine. */

import { byId } from "./dom.js";

const KEY = "helm-theme";
const ORDER = ["auto", "light", "dark"];
const WORDS = { auto: "as your system", light: "light", dark: "dark" };

/** Let the button go through the themes. */
export function connectTheme() {
  const button = byId("theme");
  let theme = ORDER.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    button.querySelector(".theme-word").textContent = WORDS[theme];
    button.setAttribute("aria-label", `Colours: ${WORDS[theme]}. Change`);
    dispatchEvent(new CustomEvent("helm-theme"));
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    dispatchEvent(new CustomEvent("helm-theme")),
  );
  apply();
}

/** @param {string} name of a custom property, `gpu` @returns {string} its colour now, for canvases */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Draw a canvas anew when colours change, for as long as it is in the page. @param {Element} element @param {() => void} draw */
export function whileThere(element, draw) {
  const redraw = () => (element.isConnected ? draw() : removeEventListener("helm-theme", redraw));
  addEventListener("helm-theme", redraw);
}
