/** A combobox with a list that filters as one types, after the ARIA Authoring Practices (editable, list autocomplete). */

import { fill, freshId, h } from "./dom.js";

/** Entries that are shown at a time; typing finds the others. */
const MOST_SHOWN = 60;

/** @typedef {{name: string, about: string, title?: string}} Entry */

export class Combobox {
  /**
   * @param {object} settings
   * @param {HTMLInputElement} settings.input with a label of its own
   * @param {(name: string) => void} settings.choose is told of a name that was chosen, or typed and left
   */
  constructor({ input, choose }) {
    this.input = input;
    this.choose = choose;
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Entry[]} */
    this.shown = [];
    this.active = -1;
    this.value = input.value;
    this.list = h("ul", {
      class: "options",
      role: "listbox",
      id: freshId("options"),
      "aria-label": input.getAttribute("aria-label") ?? input.labels?.[0]?.textContent ?? "choices",
    });
    this.list.hidden = true;
    for (const [name, value] of Object.entries({
      role: "combobox",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": this.list.id,
      autocomplete: "off",
      spellcheck: "false",
    }))
      input.setAttribute(name, value);
    input.after(this.list);
    input.addEventListener("input", () => this.open(input.value));
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("click", () => this.toggle());
    input.addEventListener("blur", () => this.leave());
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => this.click(event));
  }

  /** @param {Entry[]} entries in the order in which they are offered */
  offer(entries) {
    this.entries = entries;
    if (!this.list.hidden) this.open(this.input.value);
  }

  /** @param {string} name is shown as chosen */
  set(name) {
    this.value = name;
    this.input.value = name;
  }

  open(text) {
    this.shown = matching(this.entries, text).slice(0, MOST_SHOWN);
    this.active = -1;
    fill(
      this.list,
      this.shown.length > 0
        ? this.shown.map((entry, place) => this.option(entry, place))
        : h("li", { class: "nothing", role: "option", "aria-disabled": "true" }, "Nothing has this in its name"),
    );
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  toggle() {
    if (!this.list.hidden) return this.close();
    this.open("");
    this.input.select();
  }

  option(entry, place) {
    return h(
      "li",
      { role: "option", id: `${this.list.id}-${place}`, "aria-selected": "false", dataset: { place: String(place) } },
      h("strong", {}, entry.title ?? entry.name),
      h("span", {}, entry.about),
    );
  }

  key(event) {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      event.preventDefault();
      if (this.list.hidden) this.open("");
      const count = this.shown.length;
      if (count > 0)
        this.activate((this.active + (key === "ArrowDown" ? 1 : this.active < 0 ? 0 : -1) + count) % count);
    } else if (key === "Enter" && !this.list.hidden) {
      event.preventDefault();
      const typed = this.shown.find((entry) => entry.name.toLowerCase() === this.input.value.trim().toLowerCase());
      const entry = this.shown[this.active] ?? typed ?? (this.input.value !== this.value ? this.shown[0] : undefined);
      if (entry) this.take(entry.name);
      else this.leave();
    } else if (key === "Escape") {
      event.preventDefault();
      if (this.list.hidden) this.input.value = "";
      else this.set(this.value);
      this.close();
    } else if (key === "Tab" && !this.list.hidden && this.shown[this.active]) {
      this.take(this.shown[this.active].name);
    }
  }

  activate(place) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = place;
    const option = this.list.children[place];
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", option.id);
  }

  click(event) {
    const option = event.target.closest("[data-place]");
    if (option) this.take(this.shown[Number(option.dataset.place)].name);
  }

  take(name) {
    this.set(name);
    this.close();
    this.choose(name);
  }

  /** What was typed counts as it is when the field is left: the service says what it thinks of it. */
  leave() {
    this.close();
    const typed = this.input.value.trim();
    if (typed === "" || typed === this.value) return this.set(this.value);
    const entry = this.entries.find((one) => one.name.toLowerCase() === typed.toLowerCase());
    this.take(entry?.name ?? typed);
  }
}

/**
 * Return the entries that have every word of a text in name or description; names that begin with it come first.
 * @param {Entry[]} entries @param {string} text @returns {Entry[]}
 */
export function matching(entries, text) {
  const words = plain(text).split(" ").filter(Boolean);
  const scored = entries.map((entry) => ({ entry, score: score(entry, words) })).filter(({ score }) => score > 0);
  return scored.sort((one, other) => other.score - one.score).map(({ entry }) => entry);
}

function score({ name, about, title = "" }, words) {
  const [short, long] = [plain(`${name} ${title}`), plain(`${name} ${title} ${about}`)];
  if (!words.every((word) => long.includes(word) || long.replaceAll(" ", "").includes(word))) return 0;
  const inName = words.filter((word) => short.includes(word)).length;
  return 1 + inName + (words.length > 0 && short.startsWith(words[0]) ? 1 : 0);
}

const plain = (text) =>
  text
    .toLowerCase()
    .replace(/[^a-z0-9.]+/g, " ")
    .trim();
