"use strict";

// Elements and numbers.  Text enters the page as text nodes and attributes only.

/** A choice of the phase of the run; `chosen(i)` is called with the number of a phase. */
function phaseChoice(id, names, chosen) {
  const select = el("select", { id, on: { change: () => chosen(Number(select.value)) } },
    names.map((name, i) => el("option", { value: i }, name)));
  const label = el("label", { for: id }, "Phase");
  return { select, nodes: names.length > 1 ? [label, select] : [] };
}

const NA = "n/a";

/** Make an element; `on` maps events to listeners, strings among `children` become text. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        node.addEventListener(event, listener);
      }
    } else if (value === true) {
      node.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value);
    }
  }
  // One by one: a call takes so many arguments only.
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

/** Milliseconds with as many digits as mean something. */
function formatMs(value) {
  if (value === null || value === undefined) return NA;
  const digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
  return value.toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

function formatCount(value) {
  return value === null || value === undefined ? NA : value.toLocaleString("en-US");
}

/** A fraction of 1 in per cent. */
function formatShare(value) {
  return value === null || value === undefined ? NA : (100 * value).toFixed(1);
}

/** The value of a colour of the style sheet, as it is at present. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Call `action` once after a pause in the calls. */
function debounced(action, pause) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, pause);
  };
}

/** A box that scrolls sideways, also by keyboard. */
function scrollable(label, child) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, child);
}
