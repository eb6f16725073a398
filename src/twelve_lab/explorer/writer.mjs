// Format arithmetic like `explain` in Python: in symbols, then in digits.
import { isPlace, leaves, number } from "./engine.mjs";
import { message } from "./messages.mjs";

const COMPARISONS = ["==", "!=", "<", "<=", ">", ">="];
const LEVEL = { "+": 1, "-": 1, "*": 2, "/": 2, neg: 3, "**": 4 };
for (const sign of COMPARISONS) LEVEL[sign] = 0;
const TIGHT_LEFT = ["**", ...COMPARISONS];
const TIGHT_RIGHT = ["/", ...TIGHT_LEFT];
const SIGNS = { "*": "·", "**": "^" };
const SUMMANDS = 4;
const LARGEST_EXP = 300;

const bracketed = (text, outer) => (outer > 1 && text.startsWith("-") ? `(${text})` : text);
const few = (parts) =>
  parts.length <= SUMMANDS ? parts : [...parts.slice(0, SUMMANDS - 1), "…", parts.at(-1)];

export const formatNumber = (value, type = "float", digits = 4) => {
  if (type === "bool") return value ? "True" : "False";
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (type === "int" && Number.isInteger(value)) return String(value);
  const text = (Math.abs(value) + 1e-8).toFixed(digits);
  return value < 0 && Number(text) ? `-${text}` : text;
};

const general = (value) => {
  const text = value.toPrecision(6);
  const exponent = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(Number(text))));
  if (exponent >= -4 && exponent < 6) return String(Number(text));
  const [digits, power] = Number(text).toExponential().split("e");
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
};

const constant = (written) => {
  const value = number(written);
  if (!Number.isFinite(value)) return formatNumber(value);
  const squared = value * value;
  const whole = Math.round(squared);
  if (value > 0 && !Number.isInteger(value) && Math.abs(squared - whole) < 1e-12 && whole > 0) {
    return `sqrt(${whole})`;
  }
  return general(value);
};

// The branch that was computed: the active side of a condition, the selected element of a lookup.
const decided = (engine, tree) => {
  if (isPlace(tree) || tree[0] === "#") return tree;
  const [name, ...parts] = tree;
  const write = (part) => decided(engine, part);
  const exponentials = (scores) => {
    const largest = Math.max(...scores.map((score) => engine.value(score)));
    const far = Number.isFinite(largest) && Math.abs(largest) > LARGEST_EXP;
    const shift = (score) => (far ? ["-", write(score), ["#", largest]] : write(score));
    return { shift, far, largest, powers: scores.map((score) => ["exp", shift(score)]) };
  };
  if (name === "IF") return write(engine.value(parts[0]) ? parts[1] : parts[2]);
  if (name === "pick") return write(parts[1 + engine.value(parts[0])] ?? ["#", "nan"]);
  if (name === "softmax" || name === "safe_softmax") {
    const { powers } = exponentials(parts.slice(1));
    return ["/", powers[engine.value(parts[0])], ["sum", ...powers]];
  }
  if (name === "log_softmax") {
    const { powers, shift } = exponentials(parts.slice(1));
    return ["-", shift(parts[1 + engine.value(parts[0])]), ["log", ["sum", ...powers]]];
  }
  if (name === "logsumexp") {
    const { powers, far, largest } = exponentials(parts);
    const result = ["log", ["sum", ...powers]];
    return far ? ["+", result, ["#", largest]] : result;
  }
  if (name === "sigmoid") {
    const x = write(parts[0]);
    if (engine.value(parts[0]) < 0) return ["/", ["exp", x], ["+", ["#", 1], ["exp", x]]];
    return ["/", ["#", 1], ["+", ["#", 1], ["exp", ["neg", x]]]];
  }
  if (name === "NOT") return ["-", ["#", 1], write(parts[0])];
  if (name === "AND") return parts.map(write).reduce((a, b) => ["*", a, b]);
  if (name === "OR") return ["max", ...parts.map(write)];
  return [name, ...parts.map(write)];
};

// "[batch 0, query 1]"
const indexText = (axes, index) => {
  const parts = index.map((i, n) => `${/^\d*$/.test(axes[n]) ? "" : axes[n]} ${i}`.trim());
  return parts.length ? `[${parts.join(", ")}]` : "";
};

export const elementText = (engine, place) => {
  const tensor = engine.tensorOf(place);
  return tensor.name + indexText(tensor.axes, engine.index(place));
};

class Digits {
  constructor(engine) {
    this.engine = engine;
  }

  leaf(place, outer) {
    const { type } = this.engine.tensorOf(place);
    return bracketed(formatNumber(this.engine.values[place], type), outer);
  }

  sum(tree, outer) {
    const parts = terms(tree).map((part) => this.write(part, 1));
    const sum = few(parts).join(" + ");
    const text =
      parts.length > SUMMANDS ? message("{sum} [{count} terms]", { sum, count: parts.length }) : sum;
    return outer >= 1 ? `(${text})` : text;
  }

  write(tree, outer = 0) {
    if (isPlace(tree)) return this.leaf(tree, outer);
    const [name, ...parts] = tree;
    if (name === "#") return bracketed(constant(parts[0]), outer);
    if (name === "sum" || name === "dot") {
      const all = terms(tree);
      return all.length > 1 ? this.sum(tree, outer) : this.write(all[0], outer);
    }
    const level = LEVEL[name];
    if (level === undefined) {
      return `${name}(${few(parts.map((part) => this.write(part))).join(", ")})`;
    }
    let text;
    if (name === "neg") text = `-${this.write(parts[0], level)}`;
    else {
      const left = this.write(parts[0], level + Number(TIGHT_LEFT.includes(name)));
      const right = this.write(parts[1], Math.max(2, level + Number(TIGHT_RIGHT.includes(name))));
      text = left + (SIGNS[name] ?? ` ${name} `) + right;
    }
    return level < outer ? `(${text})` : text;
  }
}

class Symbols extends Digits {
  constructor(engine, path) {
    super(engine);
    this.path = path;
  }

  short(name) {
    return this.path && name.startsWith(`${this.path}.`) ? name.slice(this.path.length + 1) : name;
  }

  leaf(place) {
    const tensor = this.engine.tensorOf(place);
    return this.short(tensor.name) + indexText(tensor.axes, this.engine.index(place));
  }

  sum(tree, outer) {
    const [name, ...parts] = tree;
    const half = parts.length / 2;
    const sides = name === "dot" ? [parts.slice(0, half), parts.slice(half)] : [parts];
    const runs = sides.map((side) => this.run(side));
    if (!runs.every(Boolean)) return super.sum(tree, outer);
    if (name === "sum") return `sum(${runs[0]})`;
    const text = runs.join(" · ");
    return outer >= 1 ? `(${text})` : text;
  }

  // Format a slice if the elements are one whole axis of one tensor; otherwise return "".
  run(parts) {
    if (!parts.every(isPlace)) return "";
    const homes = new Set(parts.map((place) => this.engine.home[place]));
    if (homes.size > 1) return "";
    const tensor = this.engine.tensorOf(parts[0]);
    const places = parts.map((place) => this.engine.index(place));
    const moving = tensor.shape
      .map((_, n) => n)
      .filter((n) => new Set(places.map((p) => p[n])).size > 1);
    if (moving.length !== 1) return "";
    const [axis] = moving;
    if (places.length !== tensor.shape[axis] || places.some((p, i) => p[axis] !== i)) return "";
    const index = [...places[0]];
    index[axis] = ":";
    return this.short(tensor.name) + indexText(tensor.axes, index);
  }
}

const terms = ([name, ...parts]) => {
  if (name === "sum") return parts;
  const half = parts.length / 2;
  return parts.slice(0, half).map((left, i) => ["*", left, parts[half + i]]);
};

// Format digits, with the index of every factor between two bars.
class Factors extends Digits {
  leaf(place, outer) {
    return super.leaf(place, outer).replace(/[^()]+/, `|${place}|`);
  }
}

// The reason why a number has no formula: an input, a fixed number or a constant; "" otherwise.
const origin = (engine, place) => {
  const number = formatNumber(engine.values[place], engine.tensorOf(place).type);
  const tree = engine.trees[place];
  if (engine.held.has(place)) return message("{number}, held fast by you", { number });
  if (tree === null) return message("{number}, given to the run", { number });
  const shown = decided(engine, tree);
  if (!isPlace(shown) && shown[0] === "#") return message("{number}, a constant of the code", { number });
  return "";
};

// The numbers that a number is computed from, in the computed branch.
export const sources = (engine, place) =>
  origin(engine, place) ? [] : [...leaves(decided(engine, engine.trees[place]))];

// The formula in digits: a list that alternates texts and indices of numbers.
export const formula = (engine, place) => {
  const reason = origin(engine, place);
  if (reason) return [reason];
  const parts = new Factors(engine).write(decided(engine, engine.trees[place])).split("|");
  return parts.map((part, n) => (n % 2 ? Number(part) : part));
};

// The lines of an explanation.
export const explain = (engine, place) => {
  const tensor = engine.tensorOf(place);
  const lines = [elementText(engine, place)];
  const reason = origin(engine, place);
  if (reason) return [...lines, `  = ${reason}`];
  const shown = decided(engine, engine.trees[place]);
  if (tensor.code) lines.push(`  ${message("code: {code}", { code: tensor.code })}`);
  const dot = tensor.name.lastIndexOf(".");
  const symbols = new Symbols(engine, dot < 0 ? "" : tensor.name.slice(0, dot)).write(shown);
  if (isPlace(shown)) lines.push(`  ${message("copied from {source}", { source: symbols })}`);
  else lines.push(`  = ${symbols}`, `  = ${new Digits(engine).write(shown)}`);
  return [...lines, `  = ${formatNumber(engine.values[place], tensor.type)}`];
};
