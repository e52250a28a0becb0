/**
 * Makes elements. Content is always text or nodes, never markup: nothing that a service or a link says can become HTML.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Props  `class`, `dataset`, `on` (listeners by event), properties and attributes
 */

/**
 * Make an HTML element.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/**
 * Make an SVG element.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/**
 * Replace all children of an element.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
}

/**
 * Return the element of the page with an id; a missing one is a mistake of ours.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}

/** @returns {string} an id that no other element has */
export function freshId(prefix = "e") {
  freshId.last = (freshId.last ?? 0) + 1;
  return `${prefix}-${freshId.last}`;
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) give(element, name, value);
  element.append(...nodes(children));
  return element;
}

function give(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") element.setAttribute("class", value);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
  else if (name === "vars")
    for (const [key, size] of Object.entries(value)) element.style.setProperty(`--${key}`, size);
  else if (name in element && !(element instanceof SVGElement) && !name.includes("-") && name !== "list")
    element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function nodes(children) {
  return children
    .flat(3)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}
