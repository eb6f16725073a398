// Runs the explorer's engine for a test: reads runs and orders from stdin, writes one answer each.
// Many numbers go as base64 of their 64 bits, so that none is rounded, and nan stays nan.
import { readFileSync } from "node:fs";
import { OPERATIONS, number } from "../../src/twelve_lab/explorer/engine.mjs";
import { State } from "../../src/twelve_lab/explorer/state.mjs";
import { explain } from "../../src/twelve_lab/explorer/writer.mjs";

const { runs, orders } = JSON.parse(readFileSync(0, "utf8"));
const state = runs.length ? new State(runs) : null;
const packed = (numbers, count) => Buffer.from(numbers.slice(0, count).buffer).toString("base64");
const at = (name, element) => state.engine.byName.get(name).start + element;
const texts = (engine) =>
  Array.from({ length: engine.count }, (_, place) => explain(engine, place).lines.join("\n"));

const ANSWERS = {
  operations: () => Object.keys(OPERATIONS),
  compute: (name, ...parts) => String(OPERATIONS[name].value(parts.map(number))),
  put: (name, element, value) => state.put(at(name, element), number(value)),
  takes: (name, element, value) => state.engine.takes(at(name, element), number(value)),
  restore: (name, element) => {
    state.engine.restore(at(name, element));
    state.follow();
  },
  numbers: () => {
    const { values, gradients, count } = state.engine;
    return [packed(values, count), packed(gradients, count)];
  },
  before: () => packed(state.before, state.engine.count),
  other: () => packed(state.other.values, state.other.count),
  back: (name, element) => {
    state.engine.back(at(name, element));
    return packed(state.engine.gradients, state.engine.count);
  },
  // How fast each number grows with those in its own arithmetic: [later, place, slope].
  slopes: () =>
    state.engine.trees.flatMap((_, later) =>
      [...state.engine.slopes(later)].map(([place, slope]) => [later, place, slope]),
    ),
  uses: (name, element) => state.engine.uses(at(name, element)),
  explain: () => texts(state.engine),
  explain_one: (name, element) => explain(state.engine, at(name, element)).lines.join("\n"),
  learn: (rate, steps) => {
    for (let step = 0; step < steps; step++) state.learn(rate);
    return state.losses;
  },
  index: (place) => state.engine.index(place),
  place: (name, index) => state.engine.place(name, index),
  missing: () => state.missing,
  begin: () => state.begin(),
  undo: () => state.undo(),
  reset: () => state.reset(),
  choose: (run) => state.choose(run),
  compare: (run) => state.compare(run),
  written: () => state.written(),
  address: (chosen, extra) => state.address(chosen, extra),
  open: (address) => state.open(address),
};

const answers = orders.map(([order, ...parts]) => {
  try {
    return ANSWERS[order](...parts) ?? null;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));
