// Trees of elements, and how the page becomes one. Text is only ever text: nothing here, and nothing
// that uses it, writes HTML, so whatever a job is called, it is shown and never run.

const SVG = "http://www.w3.org/2000/svg";

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

const isThere = (child) => child !== null && child !== undefined && child !== false && child !== "";

function add(node, children) {
  for (const child of children.flat(Infinity).filter(isThere)) {
    node.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element: attributes by name, children as nodes, text, or lists of them. */
export const el = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

/** An image for eyes and, through `words`, for screen readers. */
export const image = (width, height, words, ...parts) =>
  svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words }, parts);

/** In place of an element that was drawn last time, has this key, and is to stay as it is. */
export const unchanged = (tag, key) => el(tag, { "data-key": key, "data-same": true });

// What the user did to an element and no page says: it stays when the page is drawn again.
const KEPT = { DETAILS: ["open"], DIALOG: ["open"] };

/** Make the children of `parent` like `nodes`, changing what is another and leaving the rest as it
 * is: focus, selection, scrolled parts and opened details stay. Elements with `data-key` are the
 * same where the key is. */
export function become(parent, nodes) {
  const focused = document.activeElement;
  patchChildren(parent, nodes.flat(Infinity).filter(isThere));
  if (focused && focused !== document.activeElement && focused.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

const keyOf = (node) => node.getAttribute?.("data-key") ?? null;

function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const child of parent.childNodes) {
    const key = keyOf(child);
    if (key !== null && !keyed.has(key)) keyed.set(key, child);
  }
  const named = new Set(wanted.map(keyOf).filter((key) => key !== null));
  let here = parent.firstChild;
  for (const one of wanted) {
    const next = one instanceof Node ? one : document.createTextNode(String(one));
    const key = keyOf(next);
    // What is keyed and gone is taken away first, so that those after it need not move.
    while (here && keyOf(here) !== null && !named.has(keyOf(here))) here = removed(here);
    let old = key !== null ? keyed.get(key) : here && keyOf(here) === null ? here : null;
    if (key !== null) keyed.delete(key); // one that comes twice is two
    if (old && !same(old, next)) old = null;
    if (!old) {
      parent.insertBefore(next, here);
      continue;
    }
    if (old === here) here = here.nextSibling;
    else parent.insertBefore(old, here);
    patch(old, next);
  }
  while (here) here = removed(here);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName;

function patch(old, next) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  if (next.hasAttribute("data-same")) return;
  if (old.isEqualNode(next)) return; // by far the most, and the browser is quick to see it
  const kept = KEPT[old.nodeName] || [];
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value && !kept.includes(name)) old.setAttribute(name, value);
  }
  if (old.nodeName === "SELECT") {
    patchChildren(old, [...next.childNodes]);
    const chosen = next.querySelector("option[selected]");
    if (chosen && document.activeElement !== old) old.value = chosen.value;
    return;
  }
  if (old.nodeName === "INPUT") {
    if (document.activeElement !== old && next.hasAttribute("value")) old.value = next.getAttribute("value");
    return;
  }
  patchChildren(old, [...next.childNodes]);
}
