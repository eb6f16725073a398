// Words of the sentences, and readable names of numbers.
import { at, byId, data, make, shown, state, svg } from "./core.mjs";
import { message } from "./messages.mjs";
import { formatNumber } from "./writer.mjs";

export const wordOf = (id, side, position) => {
  if (id < 0) return message("not graded");
  if (side === "tgt" && id === 0 && position === 0) return "<start>";
  return data.vocab?.[id] ?? String(id);
};

// The word of an index along an axis; the index itself if the axis has no words.
export const wordAt = (tensor, axis, index) => {
  const words = tensor.words[axis];
  const batch = index[tensor.axes.indexOf("batch")] ?? 0;
  if (Array.isArray(words)) return (Array.isArray(words[0]) ? words[batch] : words)[index[axis]];
  if (typeof words !== "string") return String(index[axis]);
  return wordOf(shown().values[at(words, batch, index[axis])], words, index[axis]);
};

// The face of a word, hidden from screen readers; "" for a word without a face.
export const faceOf = (word) =>
  byId(`face-${word}`)
    ? svg("svg", { class: "face", "aria-hidden": "true" }, svg("use", { href: `#face-${word}` }))
    : "";
// A word with its face or sign; where room is short, only the face or sign is shown.
export const worded = (word) => {
  const sign = { "<start>": "▸", "<pad>": "∅" }[word];
  const face = sign ? make("span", { class: "sign", "aria-hidden": "true" }, sign) : faceOf(word);
  return [face, make("span", { class: face ? "text" : "" }, word)];
};

const isTable = ({ weight, shape, name }) => weight && shape.length === 2 && /embedding/.test(name);

export const axisName = (tensor, axis) => {
  if (!/^\d*$/.test(tensor.axes[axis])) return tensor.axes[axis];
  if (tensor.axes[axis] || !tensor.weight || tensor.shape.length !== 2) return "";
  return (isTable(tensor) ? ["word", "d_model"] : ["out", "in"])[axis];
};

const part = (tensor, axis, index) => {
  const number = index[axis];
  const name = axisName(tensor, axis);
  if (name === "word") return wordOf(number, "", 0);
  if (tensor.words[axis]) return wordAt(tensor, axis, index);
  if (!name || name === "d_model") return message("number {number}", { number });
  return name === "head" ? message("head {number}", { number }) : `${name} ${number}`;
};

const labelOf = (tensor) => {
  if (isTable(tensor)) return tensor.name.startsWith("tgt") ? message("target table") : message("table");
  const path = tensor.name.split(".");
  const side = path.length > 2 && /coder$/.test(path[0]) ? `${path[0]} ` : "";
  return side + path.slice(-2).join(".");
};

// A readable name: "table: dog, number 0" or "encoder self_attention.weights: head 0, dog to fish".
export const spoken = (place) => {
  const tensor = state.engine.tensorOf(place);
  const index = state.engine.index(place);
  const worded = tensor.words.some((words) => typeof words === "string");
  const parts = index
    .map((_, axis) => axis)
    .filter((axis) => tensor.shape[axis] > 1 && !(worded && tensor.axes[axis] === "batch"))
    .map((axis) => part(tensor, axis, index));
  const label = labelOf(tensor);
  return parts.length ? message("{tensor}: {index}", { tensor: label, index: parts.join(", ") }) : label;
};

export const textOf = (place, { digits = 4, values = shown().values } = {}) => {
  const { type } = state.engine.tensorOf(place);
  if (type === "bool") return values[place] ? "✓" : "✗";
  return formatNumber(values[place], type, digits);
};

// Format the change of a number, as in "moves it by -0.031".
export const slopeText = (slope) => {
  const size = Math.abs(slope);
  const text = size >= 0.0005 || size === 0 ? slope.toFixed(3) : slope.toExponential(1);
  return slope > 0 ? `+${text}` : text;
};
