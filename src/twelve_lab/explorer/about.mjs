// The details of one number: its name and arithmetic, its sources and users, its gradient, and its
// threads as a list.
import {
  begin, button, byId, change, choose, drags, drops, make, move, onChoose, onDraw, shown, state, view, within,
} from "./core.mjs";
import { cell } from "./cells.mjs";
import { message } from "./messages.mjs";
import { slopeText, spoken, textOf } from "./names.mjs";
import { placeFormula } from "./formula.mjs";
import { effectsOf, MOST, slopesOf } from "./threads.mjs";
import { elementText, explain, formatNumber, sources } from "./writer.mjs";

const MANY = 12; // entries shown at first of a longer list

const listOf = (entries) => {
  const list = make("ul", { class: "list" });
  const add = (from, to) => list.append(...entries.slice(from, to).map(([place, words]) =>
    make("li", {}, button(spoken(place), () => choose(place)), " ", words)));
  add(0, MANY);
  if (entries.length > MANY) {
    const more = button(message("and {count} more", { count: entries.length - MANY }), () => {
      more.parentElement.remove();
      add(MANY, entries.length);
    });
    list.append(make("li", {}, more));
  }
  return list;
};

const editor = (place) => {
  const { engine } = state;
  const { type } = engine.tensorOf(place);
  const parts = [];
  if (type === "float") {
    const value = Number.isFinite(engine.values[place]) ? engine.values[place] : 0;
    const reach = Math.max(2, 2 * Math.abs(value));
    const label = message("change {number}", { number: spoken(place) });
    const range = make("input", { type: "range", min: value - reach, max: value + reach, step: 0.01, "aria-label": label });
    // The first move begins an action: a touch alone changes nothing.
    let moving = false;
    range.addEventListener("input", () => {
      if (!moving) begin();
      moving = true;
      drags(place);
      move(place, Math.round(Number(range.value) * 1000) / 1000);
    });
    range.addEventListener("change", () => {
      moving = false;
      drops();
    });
    onDraw(() => {
      if (document.activeElement !== range) range.value = engine.values[place];
    });
    parts.push(make("span", { class: "open tables" }, cell(place)), range);
  } else parts.push(cell(place));
  const given = engine.trees[place] === null;
  const back = button(given ? message("As it was") : message("Follow again"), () => change([place, null]));
  onDraw(() => {
    back.hidden = !engine.changes().has(place);
  });
  return make("div", { class: "bar" }, ...parts, back);
};

// The contribution to the gradient from each later number.
const through = (engine, place) =>
  engine.uses(place)
    .map((later) => [later, engine.gradients[later], engine.slopes(later).get(place) ?? 0])
    .filter(([, arrived, own]) => arrived * own !== 0)
    .sort((a, b) => Math.abs(b[1] * b[2]) - Math.abs(a[1] * a[2]))
    .map(([later, ...factors]) => [later, `${factors.map((x) => formatNumber(x)).join(" · ")} = ${formatNumber(factors[0] * factors[1])}`]);

const gradient = (engine, place) => {
  if (engine.target < 0 || engine.tensorOf(place).type !== "float") return [];
  if (place === engine.target) return [message("1: it is the loss")];
  const shares = through(engine, place);
  const value = formatNumber(engine.gradients[place]);
  return [shares.length ? message("= {value}, the sum of the gradients through:", { value }) : `= ${value}`, ...shares];
};

const valued = (places) => places.map((place) => [place, textOf(place)]);
// Title, id and rows of each part. A row is a text, or a number with a comment.
const PARTS = [
  [message("Its threads: +0.1 here moves it by"), "slopes", (_, place) => slopesOf(place).slice(0, MOST).map(([from, slope]) => [from, slopeText(slope / 10)])],
  [message("Its threads: +0.1 in it changes"), "effects", (_, place) => (slopesOf(place).length ? [] : effectsOf(place).slice(0, MOST).map(([to, change]) => [to, slopeText(change)]))],
  [message("Computed from"), "sources", (engine, place) => valued(sources(engine, place))],
  [message("Used by"), "users", (engine, place) => valued(engine.uses(place).filter((later) => sources(engine, later).includes(place)))],
  [message("Gradient of the loss"), "gradient", gradient],
];

const part = ([title, id, rowsOf], place) => {
  const body = make("div", { id });
  const node = make("section", {}, make("h3", {}, title), body);
  let last = "";
  onDraw(() => {
    const rows = rowsOf(shown(), place);
    const key = rows.map((row) => (Array.isArray(row) ? spoken(row[0]) + row[1] : row)).join();
    node.hidden = !rows.length; // a part without rows is hidden, title included
    if (key === last) return;
    last = key;
    body.replaceChildren(...rows.filter((row) => !Array.isArray(row)), listOf(rows.filter(Array.isArray)));
  });
  return node;
};

const write = () => {
  const place = view.chosen;
  byId("about").hidden = place < 0;
  if (place < 0) return;
  const { step } = state.engine.tensorOf(place);
  const lines = make("pre", { id: "text" });
  onDraw(() => {
    lines.textContent = explain(shown(), place).slice(1).join("\n");
  });
  byId("about").replaceChildren(
    make("div", { class: "bar" }, make("h2", { id: "name" }, spoken(place)), editor(place),
      button("×", () => choose(-1), { class: "close", "aria-label": message("Close") })),
    make("div", { id: "about-formula" }),
    ...PARTS.map((each) => part(each, place)),
    make("p", { class: "note" }, make("code", {}, elementText(state.engine, place)),
      step ? `, ${message("step {number}", { number: step })}` : ""),
    lines,
  );
};

export const buildAbout = () => within("about", write);
onChoose(() => {
  buildAbout();
  placeFormula();
});
