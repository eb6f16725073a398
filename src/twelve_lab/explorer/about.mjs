// All about one number: its name and arithmetic, what it is computed from and what uses it, the
// gradient of the loss, and its threads as a list.
import { begin, button, byId, change, choose, drags, drops, make, move, onChoose, onDraw, shown, state, view, within } from "./core.mjs";
import { cell } from "./cells.mjs";
import { message } from "./messages.mjs";
import { spoken, textOf } from "./names.mjs";
import { placeFormula } from "./formula.mjs";
import { slopesOf, tipOf } from "./threads.mjs";
import { elementText, explain, formatNumber, sources } from "./writer.mjs";

const MANY = 12; // the first entries of a longer list that are shown

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
    // An action begins with the first move: a touch alone changes nothing.
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

// The shares of the gradient that come back through each later number.
const through = (engine, place) =>
  engine.uses(place)
    .map((later) => [later, engine.gradients[later], engine.slopes(later).get(place) ?? 0])
    .filter(([, arrived, own]) => arrived * own !== 0)
    .sort((a, b) => Math.abs(b[1] * b[2]) - Math.abs(a[1] * a[2]))
    .map(([later, arrived, own]) => [later, `${formatNumber(arrived)} · ${formatNumber(own)} = ${formatNumber(arrived * own)}`]);

const gradient = (engine, place) => {
  if (engine.target < 0) return [message("The run ends with no loss.")];
  if (engine.tensorOf(place).type !== "float") return [message("None: this number cannot change by a small amount.")];
  if (place === engine.target) return [message("1: it is the loss")];
  const text = formatNumber(engine.gradients[place]);
  const parts = through(engine, place);
  if (!parts.length) return [`= ${text}`];
  return [message("= {gradient}, the sum of the gradients through:", { gradient: text }), parts];
};

const section = (title, id) => {
  const body = make("div", { id });
  const node = make("section", {}, make("h3", {}, title), body);
  let last = null;
  return {
    node,
    // Nothing to show hides the title, too.
    show: (key, build) => {
      if (key === last) return;
      last = key;
      const parts = build();
      node.hidden = !parts.length;
      body.replaceChildren(...parts.map((part) => (Array.isArray(part) ? listOf(part) : part)));
    },
  };
};

const write = () => {
  const place = view.chosen;
  const panel = byId("about");
  panel.hidden = place < 0;
  if (place < 0) return;
  const tensor = state.engine.tensorOf(place);
  const lines = make("pre", { id: "text" });
  const from = section(message("Computed from"), "sources");
  const by = section(message("Used by"), "users");
  const loss = section(message("Gradient of the loss"), "gradient");
  const threads = section(message("Its threads"), "slopes");
  panel.replaceChildren(
    make("div", { class: "bar" },
      make("h2", { id: "name", tabindex: -1 }, spoken(place)),
      button("×", () => choose(-1), { class: "close", "aria-label": message("Close") })),
    editor(place),
    make("div", { id: "about-formula" }),
    make("p", { class: "note" }, make("code", {}, elementText(state.engine, place)), tensor.step ? `, ${message("step {number}", { number: tensor.step })}` : ""),
    lines, threads.node, from.node, by.node, loss.node,
  );
  onDraw(() => {
    const engine = shown();
    lines.textContent = explain(engine, place).slice(1).join("\n");
    const values = (places) => places.map((each) => [each, textOf(each)]);
    const list = (places) => (places.length ? [values(places)] : []);
    const used = sources(engine, place);
    const users = engine.uses(place).filter((later) => sources(engine, later).includes(place));
    const keyOf = (places) => places.map((each) => spoken(each) + textOf(each)).join();
    from.show(keyOf(used), () => list(used));
    by.show(keyOf(users), () => list(users));
    const found = gradient(engine, place);
    loss.show(JSON.stringify(found), () => found);
    const slopes = slopesOf(place).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 40);
    threads.show(JSON.stringify(slopes), () => (slopes.length ? [slopes.map(([each, slope]) => [each, tipOf(slope)])] : []));
  });
};

export const buildAbout = () => within("about", write);
onChoose(() => {
  buildAbout();
  placeFormula();
});
