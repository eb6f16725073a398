// Build the page, and respond to changes of its address, theme and model.
import {
  at, byId, change, choose, chooseRun, data, has, isStill, make, named, notice, onBuild, onSettle, onWide, refresh, reset, settle,
  state, view, within,
} from "./core.mjs";
import "./hand.mjs";
import { read, write } from "./address.mjs";
import { buildAbout } from "./about.mjs";
import { buildDares } from "./dares.mjs";
import { buildMap, buildTensors } from "./map.mjs";
import { buildPanels } from "./panels.mjs";
import { buildStage, buildTools } from "./stage.mjs";
import { message } from "./messages.mjs";
import { announce, idsOf, written } from "./output.mjs";
import { savePicture } from "./picture.mjs";
import { placeFormula } from "./formula.mjs";
import { demonstrate, weave } from "./threads.mjs";

// --- the address ---

let timer = 0;
const remember = () => {
  clearTimeout(timer);
  if (data.panels) return;
  timer = setTimeout(() => {
    try {
      const address = write(state, view.chosen);
      history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
    } catch {
      // A page in an iframe may have no address of its own.
    }
  }, 200);
};
const copy = async () => {
  const link = `${location.href.split("#")[0]}#${write(state, view.chosen)}`;
  try {
    await navigator.clipboard.writeText(link);
    notice(message("Copied: the link opens this state."));
  } catch {
    notice(link);
  }
};

let speaking = 0;
onSettle(() => {
  remember();
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    byId("said").textContent = announce();
  }, 300);
});

// --- build ---

const bringToFront = (batch) => {
  view.front = batch;
  choose(-1);
  build();
  settle();
};

const build = () => {
  if (data.panels) within("map", buildPanels);
  else {
    byId("lead").hidden = !has("memory") && !has("decoder_output");
    within("map", () => weave(buildMap()));
    within("stage", () => buildStage({ front: bringToFront, copy }));
    buildDares();
    buildAbout();
    placeFormula();
    within("tensors", buildTensors);
  }
  refresh();
};
onBuild(build);

// The front sentence is that of the chosen number, or else the first sentence without padding.
const frontOf = (place) => {
  const { engine } = state;
  const batch = place < 0 ? -1 : engine.tensorOf(place).axes.indexOf("batch");
  if (batch >= 0) return engine.index(place)[batch];
  const count = (named("src") ?? named("ids"))?.shape[0] ?? 0;
  const full = Array.from({ length: count }, (_, n) => !idsOf(n).includes(0));
  return Math.max(0, full.indexOf(true));
};

const open = () => {
  const [place, unknown] = read(state, location.hash.slice(1));
  notice(unknown.length
    ? message("The address names what this page does not have; it was left out: {names}.", { names: unknown.join(", ") })
    : "");
  view.front = frontOf(place);
  view.chosen = -1;
  build();
  choose(data.panels ? -1 : place);
  if (!location.hash && data.lessons && !isStill()) demonstrate(at("logits", view.front, 0, 3));
};

// Translate the fixed texts of page.html.
const translatePage = () => {
  const texts = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const fixed = !text.parentElement.closest("script, noscript") && text.data.trim();
    if (fixed) text.data = text.data.replace(fixed, () => message(fixed));
  }
  for (const name of ["aria-label", "title"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) node.setAttribute(name, message(node.getAttribute(name)));
  }
  document.title = message(document.title);
};

const THEMES = ["dark", "light"];
// Use the theme that the reader chose in the book, or else that of the system. The pages of the
// book send their theme to their iframes.
const followTheme = () => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const dress = (wanted) => {
    document.documentElement.dataset.theme = THEMES.includes(wanted) ? wanted : THEMES[Number(!dark.matches)];
  };
  try {
    dress(localStorage.getItem("theme"));
  } catch {
    dress(); // a page in an iframe has no storage
  }
  dark.addEventListener("change", () => dress());
  if (window.parent === window) return;
  window.addEventListener("message", (event) => {
    if (event.source === window.parent && THEMES.includes(event.data?.theme)) dress(event.data.theme);
  });
  document.body.classList.add("framed");
  new ResizeObserver(() => {
    const { bottom } = document.body.getBoundingClientRect();
    window.parent.postMessage({ height: bottom + scrollY + 8 }, "*");
  }).observe(document.body);
};

followTheme();
translatePage();
for (const [number, run] of data.runs.entries()) byId("runs").append(make("option", { value: number }, run.title));
byId("runs").parentElement.hidden = data.runs.length < 2;
byId("runs").addEventListener("change", () => chooseRun(Number(byId("runs").value)));
onSettle(() => {
  byId("runs").value = state.number;
});
byId("sheet").addEventListener("click", () => {
  const isTall = byId("side").classList.toggle("tall");
  byId("sheet").setAttribute("aria-expanded", isTall);
  byId("sheet").textContent = isTall ? message("Less") : message("More");
});
byId("tensors").addEventListener("toggle", () => {
  within("tensors", buildTensors);
  refresh();
});
within("tools", () => byId("tools").prepend(...buildTools(savePicture)));
if (data.panels) {
  document.body.classList.add("part");
  document.querySelector("h1").textContent = message(data.title);
  byId("lead").textContent = message(data.lead);
}
const { href } = data.lessons?.["00"] ?? {};
if (href) Object.assign(byId("course"), { href, hidden: false });
open();
window.addEventListener("hashchange", open);
onWide(() => choose(view.chosen));

// API for tests, dares and experiments; names and indices are those of the Python trace.
window.twelve = {
  get: (name, index = []) => state.engine.values[state.engine.place(name, index)],
  set: (name, index, value) => {
    if (typeof value !== "number" || Number.isNaN(value)) throw new TypeError(`${name} takes a number, not ${value}`);
    const place = state.engine.place(name, index);
    if (!state.engine.takes(place, value))
      throw new RangeError(`${name} cannot hold ${value}: a mask takes 0 and 1, ids the rows of their tables`);
    change([place, value]);
  },
  grad: (name, index = []) => state.engine.gradients[state.engine.place(name, index)],
  loss: () => (state.engine.target < 0 ? NaN : state.engine.values[state.engine.target]),
  reset,
  actions: () => state.actions,
  changes: () => [...state.engine.changes()].map(([place, value]) => {
    const { name, type } = state.engine.tensorOf(place);
    return { name, type, index: state.engine.index(place), value };
  }),
  moved: (name) => {
    const { start, size } = named(name);
    const { values, original } = state.engine;
    return values.subarray(start, start + size).filter((value, i) => !Object.is(value, original[start + i])).length;
  },
  says: () => sentences(state.engine.values),
  said: () => sentences(state.before.values),
  steps: () => state.steps,
  losses: () => state.losses,
  place: (name, index = []) => state.engine.place(name, index),
  model: () => data.runs[state.number].title,
};
const sentences = (values) => Array.from({ length: named("logits").shape[0] }, (_, batch) => written(batch, values));
document.body.dataset.ready = "true";
