// Numbers on the screen: colours, digits and tables.
import { data, make, onDraw, shown, state, view } from "./core.mjs";
import { axisName, spoken, textOf, wordAt, worded } from "./names.mjs";

// --- one number ---

export const placeOf = (node) => Number(node.dataset.at);

export const cell = (place, label = null) => {
  const node = make("button", { class: "n", type: "button", tabindex: -1 }, " ");
  node.dataset.at = place;
  node.dataset.label = label ?? "";
  return node;
};

// In an open part, the chosen number is an input field.
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
  // Each extra digit before the decimal point removes one after it, so the number fits its cell.
  const whole = Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1)));
  const digits = Math.max(0, (node.closest(".open") ? 4 : 2) - whole);
  const text = textOf(place, { digits });
  if (node.tagName === "INPUT") {
    if (document.activeElement !== node || !node.dataset.typing) node.value = text;
    node.setAttribute("aria-valuenow", value);
  } else if (node.firstChild.data !== text) node.firstChild.data = text;
  const label = `${node.dataset.label || spoken(place)} ${text}`;
  if (node.getAttribute("aria-label") !== label) node.setAttribute("aria-label", label);
  // Shade attention weights as shares of 1, and the loss relative to that of a blind guess.
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

// A table of the last two axes of a tensor, from element `start`; `axes` adds names and brackets.
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

// Tables of a whole tensor; `fixed` selects one index of a leading axis, such as { batch: 1 }.
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
