/** Keeps the whole question in the address, after `#`, so that a link asks it again; nothing of it goes to the server's log. */

import { CHANGES, FIRST } from "./question.js";

const COUNTS = ["prompt", "answer", "context", "batch"];
const WORDS = ["format", "kv", "engine", "goal", "method"];
const PARTS = ["cpu", "gpu", "link", "memory"];
/** RAM and the link of a machine of parts are parts, so changes of them have other names here. */
const writtenAs = (what) => (what === "link" ? "link_bw" : what === "ram" ? "ram_size" : what);
/** Mark before documents, which are compressed. */
export const PACKED = "~";

/** @param {import("./question.js").Question} question @returns {Promise<string>} what follows `#` */
export async function written(question) {
  const words = new URLSearchParams();
  words.set("model", "name" in question.model ? question.model.name : PACKED + (await packed(question.model.document)));
  const { machine } = question;
  if ("name" in machine) words.set("machine", machine.name);
  else if ("document" in machine) words.set("machine", PACKED + (await packed(machine.document)));
  else for (const [part, value] of Object.entries(machine.parts)) words.set(part, String(value));
  for (const name of [...WORDS, ...COUNTS]) words.set(name, String(question[name]));
  for (const [what, value] of Object.entries(question.changes)) words.set(writtenAs(what), value);
  return words.toString();
}

/**
 * Read what `written` wrote; what is missing is as a first visitor has it.
 * @param {string} text @returns {Promise<import("./question.js").Question>}
 */
export async function read(text) {
  const words = new URLSearchParams(text.replace(/^#/, ""));
  const question = { ...FIRST, changes: {} };
  const model = words.get("model");
  if (model) question.model = model.startsWith(PACKED) ? { document: await unpacked(model) } : { name: model };
  const machine = words.get("machine");
  if (machine)
    question.machine = machine.startsWith(PACKED) ? { document: await unpacked(machine) } : { name: machine };
  else if (words.has("cpu")) question.machine = { parts: partsOf(words) };
  for (const name of COUNTS) if (words.has(name)) question[name] = countOf(words.get(name));
  for (const name of WORDS) if (words.has(name)) question[name] = words.get(name);
  for (const what of CHANGES) if (words.has(writtenAs(what))) question.changes[what] = words.get(writtenAs(what));
  return question;
}

function partsOf(words) {
  const parts = { ram: countOf(words.get("ram") ?? "") };
  for (const part of PARTS) if (words.has(part)) parts[part] = words.get(part);
  return parts;
}

function countOf(text) {
  const value = Number(text);
  return text.trim() !== "" && Number.isFinite(value) ? value : text;
}

/** @param {any} document @returns {Promise<string>} it, compressed, as letters that an address may have */
export async function packed(document) {
  const stream = new Blob([JSON.stringify(document)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const content = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const byte of content) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} text that `packed` wrote, after the mark @returns {Promise<any>} */
export async function unpacked(text) {
  const plain = atob(text.slice(PACKED.length).replaceAll("-", "+").replaceAll("_", "/"));
  const stream = new Blob([Uint8Array.from(plain, (letter) => letter.charCodeAt(0))]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("deflate-raw"))).json();
}
