// A number on the screen: its colour and digits, and the hand that drags, types or steps it.
import {
  begin, change, choose, data, drags, drops, look, make, move, notice, onDraw, refresh, shown, state, undo, view,
} from "./core.mjs";
import { message } from "./messages.mjs";
import { axisName, spoken, textOf, wordAt, worded } from "./names.mjs";

const PIXEL = 0.01; // of change for each pixel of a drag
const STEPS = { "+": 0.1, "=": 0.1, "-": -0.1, PageUp: 1, PageDown: -1 };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// --- one number ---

const placeOf = (node) => Number(node.dataset.at);

export const cell = (place, label = null) => {
  const node = make("button", { class: "n", type: "button", tabindex: -1 }, " ");
  node.dataset.at = place;
  node.dataset.label = label ?? "";
  return node;
};

// The chosen number of an open part is a field.
const swapped = (node) => {
  const isField = node.tagName === "INPUT";
  if (isField === (placeOf(node) === view.chosen && Boolean(node.closest(".open")))) return node;
  const attributes = { class: node.className, tabindex: 0, "data-at": node.dataset.at, "data-label": node.dataset.label };
  const twin = isField
    ? make("button", { ...attributes, type: "button" }, " ")
    : make("input", { ...attributes, type: "text", inputmode: "decimal", role: "spinbutton", autocomplete: "off" });
  const focused = document.activeElement === node;
  node.replaceWith(twin);
  if (focused) twin.focus({ preventScroll: true });
  return twin;
};

let limits = new Map();
const limitOf = (tensor, values) => {
  if (!limits.has(tensor)) {
    const sizes = values.subarray(tensor.start, tensor.start + tensor.size).map(Math.abs);
    limits.set(tensor, sizes.reduce((a, b) => (b > a && b < Infinity ? b : a), 0));
  }
  return limits.get(tensor);
};

const paint = (old) => {
  const node = swapped(old);
  const place = placeOf(node);
  const { engine } = state;
  const { values } = shown();
  const tensor = engine.tensorOf(place);
  const value = values[place];
  const digits = node.closest(".open") ? 4 : 2;
  const text = textOf(place, { digits });
  if (node.tagName === "INPUT") {
    if (document.activeElement !== node || !node.dataset.typing) node.value = text;
    node.setAttribute("aria-valuenow", value);
  } else if (node.firstChild.data !== text) node.firstChild.data = text;
  const label = `${node.dataset.label || spoken(place)} ${text}`;
  if (node.getAttribute("aria-label") !== label) node.setAttribute("aria-label", label);
  // Attention weights are shares of 1; the loss is compared with a blind guess.
  const share = tensor.name.endsWith(".weights");
  const guess = place === engine.target && data.vocab && Math.log(data.vocab.length);
  const strength = share ? value : Math.abs(value) / (guess || limitOf(tensor, values));
  const filled = tensor.type === "float" && Number.isFinite(strength) ? Math.min(1, strength) : 0;
  node.style.setProperty("--f", `${(filled * 100).toFixed(0)}%`);
  const { classList } = node;
  classList.toggle("share", share);
  classList.toggle("up", !share && value > 0);
  classList.toggle("down", !share && value < 0);
  const was = state.was(place);
  const moved = was !== undefined && !Object.is(was, engine.values[place]) &&
    textOf(place, { values: engine.values }) !== textOf(place, { values: { [place]: was } });
  classList.toggle("moved", moved);
  classList.toggle("held", shown().held.has(place));
  classList.toggle("chosen", place === view.chosen);
  if (tensor.type === "bool") {
    classList.toggle("hidden-key", !value);
    node.setAttribute("aria-pressed", Boolean(value));
  }
};
onDraw(() => {
  limits = new Map();
  for (const node of document.querySelectorAll(".n")) paint(node);
  for (const group of document.querySelectorAll(".tables")) {
    if (!group.querySelector(".n[tabindex='0']")) group.querySelector(".n")?.setAttribute("tabindex", 0);
  }
});

// --- tables of numbers ---

const heading = (scope, tensor, axis, index) => {
  const node = make("th", { scope });
  onDraw(() => {
    const word = wordAt(tensor, axis, index);
    if (node.dataset.word === word) return;
    node.dataset.word = word;
    node.title = word;
    node.replaceChildren(...worded(word));
  });
  return node;
};

// The last two axes of a tensor, from element `start`; `axes` adds their names and brackets.
export const tableOf = (tensor, start, { title = "", axes = false, rowWords = true, faces = false } = {}) => {
  const rank = tensor.shape.length;
  const columns = rank ? tensor.shape[rank - 1] : 1;
  const rows = rank > 1 ? tensor.shape[rank - 2] : 1;
  const { engine } = state;
  const style = (axis) => `--axis: ${data.styles[tensor.axes[axis]?.split("*").at(-1)] ?? data.neutral}`;
  const named = (axis) => axes || Boolean(tensor.words[axis]);
  const blank = (count) => (count ? [make("td", { colspan: count })] : []);
  const before = rows > 1 && rowWords && named(rank - 2) ? 1 + axes : 0;
  const head = make("thead");
  if (rank && axes && axisName(tensor, rank - 1)) {
    const attributes = { scope: "colgroup", colspan: columns, style: style(rank - 1) };
    head.append(make("tr", {}, ...blank(before), make("th", attributes, axisName(tensor, rank - 1))));
  }
  if (rank && named(rank - 1)) {
    const words = Array.from({ length: columns }, (_, j) => heading("col", tensor, rank - 1, engine.index(start + j)));
    head.append(make("tr", {}, ...blank(before), ...words));
  }
  const body = make("tbody");
  for (let i = 0; i < rows; i++) {
    const row = make("tr");
    if (before && axes && i === 0) {
      row.append(make("th", { scope: "rowgroup", rowspan: rows, style: style(rank - 2) }, axisName(tensor, rank - 2)));
    }
    if (before) row.append(heading("row", tensor, rank - 2, engine.index(start + i * columns)));
    for (let j = 0; j < columns; j++) row.append(make("td", {}, cell(start + i * columns + j)));
    body.append(row);
  }
  return make("table", { class: faces && "faces" }, title ? make("caption", {}, title) : null, head, body);
};

// Tables of a whole tensor; `fixed` takes one index of a leading axis, such as { batch: 1 }.
export const tablesOf = (tensor, fixed = {}, options = { axes: true }) => {
  const size = tensor.shape.slice(-2).reduce((a, b) => a * b, 1);
  const holder = make("div", { class: "tables" });
  for (let start = tensor.start; start < tensor.start + tensor.size; start += size) {
    const lead = state.engine.index(start).slice(0, Math.max(0, tensor.shape.length - 2));
    if (lead.some((i, n) => tensor.axes[n] in fixed && fixed[tensor.axes[n]] !== i)) continue;
    const titles = lead.map((i, n) => (tensor.shape[n] === 1 ? "" : `${axisName(tensor, n)} ${i}`.trim()));
    holder.append(tableOf(tensor, start, { title: titles.filter(Boolean).join(", "), ...options }));
  }
  return holder;
};

// --- drag ---

let drag = null;
const takes = (place) => state.engine.tensorOf(place).type === "float";
document.addEventListener("pointerdown", (event) => {
  const node = event.target.closest(".n");
  if (!node || event.button || !takes(placeOf(node))) return;
  drag = { node, x: event.clientX, from: state.engine.values[placeOf(node)], moving: false };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const far = event.clientX - drag.x;
  if (!drag.moving && Math.abs(far) < 4) return;
  if (!drag.moving) {
    drag.moving = true;
    begin();
    drags(placeOf(drag.node));
    drag.node.setPointerCapture?.(event.pointerId);
  }
  event.preventDefault();
  const step = event.shiftKey ? PIXEL / 10 : PIXEL;
  move(placeOf(drag.node), Math.round((drag.from + far * step) * 1000) / 1000);
});
const drop = () => {
  const { moving = false } = drag ?? {};
  drag = null;
  if (!moving) return;
  // The click that ends a drag chooses nothing.
  const swallow = (event) => event.stopPropagation();
  document.addEventListener("click", swallow, { capture: true, once: true });
  setTimeout(() => document.removeEventListener("click", swallow, { capture: true }));
  drops();
};
document.addEventListener("pointerup", drop);
document.addEventListener("pointercancel", drop);

// --- type ---

const typed = (node) => {
  if (!node.dataset.typing) return;
  delete node.dataset.typing;
  const place = placeOf(node);
  const text = node.value.trim().replace(",", ".");
  if (text === "" || !Number.isFinite(Number(text))) {
    const values = { text: node.value, name: spoken(place), value: textOf(place) };
    notice(message("“{text}” is no number; {name} stays {value}.", values));
    refresh();
  } else {
    notice("");
    if (text !== textOf(place)) change([place, Number(text)]);
  }
};
document.addEventListener("input", (event) => {
  if (event.target.matches("input.n")) event.target.dataset.typing = "true";
});
document.addEventListener("focusout", (event) => {
  if (event.target.matches("input.n")) typed(event.target);
});

// --- keys ---

// The nearest number in a direction, in the same tables or else on the whole page.
const beside = (node, [right, down]) => {
  const box = node.getBoundingClientRect();
  const nearest = (root) => {
    let [best, least] = [null, Infinity];
    for (const other of root.querySelectorAll(".n")) {
      const { left, top, width } = other.getBoundingClientRect();
      const [x, y] = [left - box.left, top - box.top];
      const [ahead, aside] = right ? [x * right, y] : [y * down, x];
      const far = ahead + 3 * Math.abs(aside);
      if (width && ahead > 3 && far < least) [best, least] = [other, far];
    }
    return best;
  };
  return nearest(node.closest(".tables") ?? document) ?? nearest(document);
};

const step = (event, size) => {
  const place = placeOf(event.target);
  if (!takes(place)) return;
  event.preventDefault();
  delete event.target.dataset.typing;
  if (!event.repeat) begin();
  drags(place);
  state.put(place, Math.round((state.engine.values[place] + size) * 1000) / 1000);
  drops();
};

const BOX = "input[type=text], input[type=number], select";
document.addEventListener("keydown", (event) => {
  const { target: node, key } = event;
  const field = node.matches("input.n");
  if (field && (key === "ArrowUp" || key === "ArrowDown")) {
    step(event, (key === "ArrowUp" ? 1 : -1) * (event.shiftKey ? 0.01 : 0.1));
  } else if (node.matches(".n") && STEPS[key] && !(field && key.length === 1)) step(event, STEPS[key]);
  else if (field && key === "Enter") typed(node);
  else if (field && key === "Escape") {
    delete node.dataset.typing;
    choose(-1);
  } else if (node.matches("button.n") && ARROWS[key]) {
    event.preventDefault();
    beside(node, ARROWS[key])?.focus();
  } else if (node.matches("button.n") && /^[\d.]$/.test(key) && takes(placeOf(node))) choose(placeOf(node));
  else if (key === "Escape") choose(-1);
  else if (key.toLowerCase() === "b" && !node.matches(BOX) && !event.ctrlKey && !event.metaKey && !event.altKey) {
    if (!event.repeat) look(true);
  } else if (key === "z" && (event.ctrlKey || event.metaKey) && !node.matches(BOX)) {
    event.preventDefault();
    undo();
  }
});
document.addEventListener("keyup", (event) => {
  if (event.key.toLowerCase() === "b") look(false);
});
document.addEventListener("focusin", ({ target }) => {
  if (!target.matches(".tables .n")) return;
  for (const node of target.closest(".tables").querySelectorAll(".n")) node.tabIndex = node === target ? 0 : -1;
  if (target.matches("input")) target.select();
});
document.addEventListener("click", (event) => {
  const node = event.target.closest("button.n");
  if (!node) return;
  const place = placeOf(node);
  if (state.engine.tensorOf(place).type !== "bool") choose(place);
  else change([place, Number(!state.engine.values[place])]);
});
