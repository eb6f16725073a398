// Shared by all modules of the page: data, state, and redrawing after a change.
import { message, translate } from "./messages.mjs";
import { State } from "./state.mjs";

export const byId = (id) => document.getElementById(id);
const filled = (node, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
};
export const make = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
export const button = (text, action, attributes = {}) => {
  const node = make("button", { type: "button", ...attributes }, text);
  node.addEventListener("click", action);
  return node;
};

const unpack = async () => {
  const bytes = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};
export const data = await unpack();
translate(data.messages);
export const state = new State(data.runs);

const LINGER = 1200; // milliseconds

// The view: chosen number, front sentence, dragged number, and whether it shows the earlier state.
export const view = { chosen: -1, front: 0, dragged: -1, before: false, teaching: false };
const media = (query) => window.matchMedia(query);
const [wide, still] = ["(min-width: 1270px)", "(prefers-reduced-motion: reduce)"].map(media);
export const isWide = () => wide.matches && !data.panels;
export const onWide = (act) => wide.addEventListener("change", act);
export const isStill = () => still.matches;

let earlier = null;
export const shown = () => (view.before ? (earlier ??= state.earlier) : state.engine);
export const at = (name, ...index) => state.engine.place(name, index);
export const named = (name) => state.engine.byName.get(name);
export const has = (name) => state.engine.byName.has(name);

// --- redraws: draw functions, keyed by their part of the page ---

// The numbers belong to the scope "page", which is painted last.
const drawn = new Map(["tools", "stage", "map", "tensors", "about"].map((name) => [name, []]));
let scope = "page";
export const within = (name, build) => {
  const outer = scope;
  scope = name;
  drawn.set(name, []);
  try {
    return build();
  } finally {
    scope = outer;
  }
};
export const onDraw = (draw) => {
  if (!drawn.has(scope)) drawn.set(scope, []);
  drawn.get(scope).push(draw);
};
export const refresh = () => {
  for (const draws of drawn.values()) for (const draw of draws) draw();
};

const settled = [];
export const onSettle = (act) => settled.push(act);
// End an action: redraw the page, announce the result, update the address.
export const settle = () => {
  refresh();
  for (const act of settled) act();
};

// --- actions ---

export const look = (before) => {
  if (view.before === before || (before && state.before.number !== state.number)) return;
  view.before = before;
  earlier = null;
  refresh();
};

// Stop training, and remove the threads of an earlier drag.
const stop = () => {
  view.teaching = false;
  view.dragged = -1;
};
export const begin = () => {
  stop();
  look(false);
  state.begin();
};

let waiting = false;
// Change a number during a drag: compute and draw at most once per frame.
export const move = (place, value) => {
  state.set(place, value);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    state.follow();
    refresh();
  });
};

// The threads of a change stay visible for a moment after the drag.
let lingering = 0;
export const drags = (place) => {
  clearTimeout(lingering);
  view.dragged = place;
};
export const drops = () => {
  state.follow();
  settle();
  clearTimeout(lingering);
  lingering = setTimeout(() => {
    view.dragged = -1;
    refresh();
  }, LINGER);
};

// Change several numbers in one action: each to a value, or with null back to its own result.
export const change = (...changes) => {
  begin();
  for (const [place, value] of changes) state.set(place, value);
  state.follow();
  settle();
};

export const undo = () => {
  stop();
  const { number } = state;
  if (state.undo()) rebuilt(number);
};
export const reset = () => {
  stop();
  state.reset();
  settle();
};

const choosers = [];
export const onChoose = (act) => choosers.push(act);
// Select a number, or -1 for none; no number changes.
export const choose = (place) => {
  view.chosen = place;
  for (const act of choosers) act();
  settle();
};

let build = () => {};
export const onBuild = (action) => {
  build = action;
};
// Show another configuration, and select the same number there if it exists.
const rebuilt = (from) => {
  if (from !== state.number) {
    view.chosen = state.twin(view.chosen, from, state.number);
    build();
  }
  settle();
};
export const chooseRun = (number) => {
  const from = state.number;
  stop();
  const missing = state.choose(number);
  rebuilt(from);
  notice(missing.length
    ? message("This model has no {names}; what was changed there is left out.", { names: missing.join(", ") })
    : "");
};

export const notice = (words) => {
  byId("notice").textContent = words;
};
