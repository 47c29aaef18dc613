"use strict";

// Elements and numbers.  Text enters the page as text nodes and attributes only.

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
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
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

// Things that a chart tells apart have these numbers; the last stands for what is left over.
const REST = 8;
const LEFT_OVER = new Set(["(unaccounted)", "other"]);

/** The number of the colour of the ith thing called `name`. */
function seriesNumber(name, i) {
  return LEFT_OVER.has(name) ? REST : Math.min(i, REST);
}

function seriesColour(number) {
  return colour(`series-${number}`);
}
