// Panels of a live part in a lesson.
import { at, button, byId, change, data, make, named, onDraw, shown, state } from "./core.mjs";
import { cell, tablesOf } from "./cells.mjs";
import { message } from "./messages.mjs";
import { lossPanel, scores } from "./output.mjs";
import { formatNumber } from "./writer.mjs";

const STRETCHES = [
  ["× 10", (x) => x * 10],
  ["÷ 10", (x) => x / 10],
  ["+ 5", (x) => x + 5],
  ["− 5", (x) => x - 5],
  ["× (−1)", (x) => -x],
];

const PANELS = {
  table: ({ of, fixed }) => tablesOf(named(of), fixed),

  attention: ({ of, fixed }) => tablesOf(named(`${of}.weights`), fixed),

  // A table above a switch that fixes all numbers of the tensor at one value.
  hold: ({ of, fixed, value, says }) => {
    const { start, size } = named(of);
    const places = Array.from({ length: size }, (_, i) => start + i);
    const isHeld = () => places.every((place) => state.engine.values[place] === value);
    const node = button(message(says), () => {
      const held = isHeld();
      change(...places.map((place) => [place, held ? null : value]));
    });
    onDraw(() => node.setAttribute("aria-pressed", isHeld()));
    return make("div", {}, tablesOf(named(of), fixed), make("div", { class: "bar" }, node));
  },

  // A table, with buttons that change one of its rows.
  stretch: ({ of, fixed, row }) => {
    const start = at(of, ...row, 0);
    const places = Array.from({ length: named(of).shape.at(-1) }, (_, i) => start + i);
    const buttons = STRETCHES.map(([says, turn]) => button(says, () =>
      change(...places.map((place) => [place, Number(turn(state.engine.values[place]).toPrecision(12))]))));
    return make("div", {}, tablesOf(named(of), fixed), make("div", { class: "bar" }, ...buttons));
  },

  // A table with one weight and its gradient per row.
  gradients: ({ of, words }) => {
    const { start } = named(of);
    const rows = words.map((word, i) => {
      const slope = make("td", { class: "slope" });
      onDraw(() => {
        slope.textContent = formatNumber(shown().gradients[start + i]);
      });
      const weight = cell(start + i, message("weight of {word}", { word }));
      return make("tr", {}, make("th", { scope: "row" }, word), make("td", {}, weight), slope);
    });
    const heads = [message("weight"), message("gradient")].map((text) => make("th", { scope: "col" }, text));
    const head = make("thead", {}, make("tr", {}, make("td"), ...heads));
    return make("div", { class: "tables" }, make("table", {}, head, make("tbody", {}, ...rows)));
  },

  prediction: ({ only = -1 }) => {
    const batches = Array.from({ length: named("logits").shape[0] }, (_, n) => n);
    return make("div", { class: "pairs" },
      ...batches.filter((batch) => only < 0 || batch === only).map(scores));
  },

  learn: lossPanel,
};

export const buildPanels = () => {
  const parts = data.panels.map((options) => make("section", { class: `station open ${options.panel}`, "aria-label": message(options.title) },
    make("h3", {}, message(options.title)), PANELS[options.panel](options)));
  byId("stations").replaceChildren(...parts);
};
