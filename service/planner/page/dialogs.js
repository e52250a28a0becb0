/** Dialogs that describe a model or a machine: a pasted document, parts, or numbers that are edited. */

import { ask, get } from "./api.js";
import { Combobox } from "./combobox.js";
import { byId, fill, h } from "./dom.js";
import { readNumber, writeNumber } from "./entry.js";
import { machineNumbers, modelNumbers, withNumbers } from "./editable.js";

const CONFIG_EXAMPLE = '{\n  "model_type": "qwen3",\n  "num_hidden_layers": 36,\n  "hidden_size": 4096,\n  …\n}';
const PROFILE_EXAMPLE = "what helm-profile wrote: a helm.hardware/1 document";

/** @param {(document: any) => void} use takes the model that the service read */
export function pasteModel(use) {
  paste(
    "A model of your own",
    "Paste the config.json of a Hugging Face repository, or a Model document. The service reads it; nothing is kept.",
    CONFIG_EXAMPLE,
    async (content, name) => {
      if (name && typeof content === "object" && content && !("schema" in content))
        content._name_or_path = content._name_or_path || name;
      const model = await ask("v1/models", content);
      return name ? { ...model, name } : model;
    },
    use,
    true,
  );
}

/** @param {(document: any) => void} use takes a Hardware document */
export function pasteMachine(use) {
  paste(
    "A machine that was measured",
    "Paste the record that helm-profile wrote. The service checks it; nothing is kept.",
    PROFILE_EXAMPLE,
    (content) => ask("v1/hardware", content),
    use,
    false,
  );
}

function paste(title, words, example, read, use, named) {
  const area = h("textarea", {
    id: "pasted",
    rows: 12,
    spellcheck: false,
    placeholder: example,
    "aria-describedby": "dialog-fault",
  });
  const name =
    named &&
    h("input", { id: "pasted-name", type: "text", placeholder: "my-model", maxLength: 100, autocomplete: "off" });
  open(
    title,
    [
      h("p", {}, words),
      name &&
        h("div", { class: "field" }, h("label", { for: "pasted-name" }, "Name ", h("small", {}, "as you like")), name),
      h("div", { class: "field" }, h("label", { for: "pasted" }, "Document"), area),
    ],
    "Use it",
    async () => use(await read(json(area.value), name ? name.value.trim() : "")),
    area,
  );
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error("not JSON"), { problem: { detail: "This is not JSON", remedy: error.message } });
  }
}

/**
 * @param {{cpu: string, ram: number, gpu?: string, link?: string} | undefined} parts as they are now
 * @param {(parts: any) => void} use
 */
export function machineOfParts(parts, use) {
  const gpu = h("input", { id: "part-gpu", type: "text", value: parts?.gpu ?? "", placeholder: "none" });
  const cpu = h("input", { id: "part-cpu", type: "text", value: parts?.cpu ?? "" });
  const count = h("input", { id: "part-count", type: "text", inputMode: "numeric", value: "1" });
  const ram = h("input", { id: "part-ram", type: "text", value: parts ? `${parts.ram / 1e9} GB` : "32 GB" });
  const memory = h("input", {
    id: "part-memory",
    type: "text",
    value: parts?.memory ?? "",
    placeholder: "the CPU's own, or 2x DDR5-6000",
  });
  const link = h("input", {
    id: "part-link",
    type: "text",
    value: parts?.link ?? "",
    placeholder: "the best that both can do, or pcie4x8",
  });
  const boxes = [
    ["v1/hardware?kind=gpus", gpu],
    ["v1/hardware?kind=cpus", cpu],
  ];
  const field = (input, words, small) =>
    h(
      "div",
      { class: "field" },
      h("label", { for: input.id }, words, small && h("small", {}, ` ${small}`)),
      h("div", { class: "combo" }, input),
    );
  open(
    "A machine of parts",
    [
      h("p", {}, "Figures come from data sheets and from what was measured on parts like these."),
      field(gpu, "GPU"),
      h("div", { class: "pair" }, field(count, "GPUs", "how many"), field(ram, "RAM")),
      field(cpu, "CPU"),
      field(memory, "Memory", "channels and kind: what is in makes answers surer"),
      field(link, "Link", "of each GPU"),
    ],
    "Use it",
    async () => {
      const several = count.value.trim() !== "1" && gpu.value.trim() ? `${count.value.trim()}x ` : "";
      const made = {
        cpu: cpu.value.trim(),
        ram: readNumber(ram.value, "B"),
        ...(gpu.value.trim() && { gpu: several + gpu.value.trim() }),
        ...(memory.value.trim() && { memory: memory.value.trim() }),
        ...(link.value.trim() && { link: link.value.trim() }),
      };
      await ask("v1/hardware", made);
      use(made);
    },
    gpu,
  );
  for (const [path, input] of boxes) {
    const box = new Combobox({ input, choose: () => {} });
    get(path).then(
      ({ entries }) => box.offer(entries),
      () => {},
    );
  }
}

/** @param {any} model @param {(document: any) => void} use */
export function editModel(model, use) {
  editNumbers(
    `Numbers of ${model.name}`,
    "What you change counts as yours; nothing else of the model changes.",
    modelNumbers(model),
    async (changes) => {
      use(await ask("v1/models", withNumbers(model, changes)));
    },
  );
}

/** @param {any} machine @param {(document: any) => void} use */
export function editMachine(machine, use) {
  editNumbers(
    `Numbers of ${machine.name}`,
    "A figure that you change counts as yours. Its interval stays as wide as it was, in per cent.",
    machineNumbers(machine),
    async (changes) => {
      use(await ask("v1/hardware", withNumbers(machine, changes)));
    },
  );
}

function editNumbers(title, words, groups, use) {
  const inputs = [];
  const row = (entry) => {
    const input = h("input", {
      type: "text",
      id: `number-${inputs.length}`,
      value: writeNumber(entry.value, entry.unit),
      autocomplete: "off",
    });
    inputs.push({ entry, input, before: input.value });
    return h(
      "div",
      { class: "number" },
      h("label", { for: input.id }, entry.words, entry.source && h("small", {}, ` ${entry.source}`)),
      input,
    );
  };
  open(
    title,
    [
      h("p", {}, words),
      ...groups.map(({ title: name, entries }) =>
        h("fieldset", {}, h("legend", {}, name), h("div", { class: "numbers" }, entries.map(row))),
      ),
    ],
    "Use these",
    async () => {
      const changes = inputs
        .filter(({ input, before }) => input.value.trim() !== before)
        .map(({ entry, input }) => ({
          path: entry.path,
          value: readNumber(input.value, entry.unit),
          figure: entry.figure,
          layers: entry.layers,
        }));
      await use(changes);
    },
  );
}

function open(title, content, verb, act, focus) {
  const dialog = byId("dialog");
  const fault = h("p", { class: "fault", id: "dialog-fault", role: "alert", hidden: true });
  const done = h("button", { type: "submit", class: "main" }, verb);
  const form = h(
    "form",
    { novalidate: true },
    h("h2", { id: "dialog-title" }, title),
    ...content,
    fault,
    h(
      "p",
      { class: "dialog-foot" },
      done,
      h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    done.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      if (!error.problem) throw error;
      fault.hidden = false;
      fault.textContent = [error.problem.field, error.problem.detail, error.problem.remedy].filter(Boolean).join(": ");
    } finally {
      done.disabled = false;
    }
  });
  fill(dialog, form);
  dialog.showModal();
  (focus ?? form.querySelector("input, textarea"))?.focus();
}
