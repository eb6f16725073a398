// Runs the explorer's engine for a test: reads runs and orders from stdin, writes one answer each.
// Many numbers are sent as base64 of their 64 bits: JSON has no nan.
import { readFileSync } from "node:fs";
import { OPERATIONS, number } from "../../src/twelve_lab/explorer/engine.mjs";
import { read, write } from "../../src/twelve_lab/explorer/address.mjs";
import { State } from "../../src/twelve_lab/explorer/state.mjs";
import { explain } from "../../src/twelve_lab/explorer/writer.mjs";

const { runs, orders } = JSON.parse(readFileSync(0, "utf8"));
const state = runs.length ? new State(runs) : null;
let missing = [];
const place = (name, element) => state.engine.byName.get(name).start + element;
const text = (start) => explain(state.engine, start).join("\n");

function packed({ values, gradients, count }) {
  const both = [...values.slice(0, count), ...gradients.slice(0, count)];
  return Buffer.from(Float64Array.from(both).buffer).toString("base64");
}

// Orders that are not listed here are methods of the state.
const ANSWERS = {
  operations: () => Object.keys(OPERATIONS),
  compute: (name, ...parts) => String(OPERATIONS[name].value(parts.map(number))),
  put: (name, element, value) => state.put(place(name, element), number(value)),
  takes: (name, element, value) => state.engine.takes(place(name, element), number(value)),
  restore: (name, element) => state.put(place(name, element), null),
  numbers: () => packed(state.engine),
  before: () => packed(state.earlier),
  was: (name, element) => state.was(place(name, element)) ?? "none",
  back: (name, element) => {
    state.engine.back(place(name, element));
    return packed(state.engine);
  },
  // Local derivatives: [later place, place, slope].
  slopes: () =>
    state.engine.trees.flatMap((_, later) =>
      [...state.engine.slopes(later)].map(([place, slope]) => [later, place, slope]),
    ),
  explain: () => Array.from({ length: state.engine.count }, (_, start) => text(start)),
  explain_one: (name, element) => text(place(name, element)),
  learn: (rate, steps) => {
    for (let step = 0; step < steps; step++) state.learn(rate);
    return state.losses;
  },
  place: (name, index) => state.engine.place(name, index),
  choose: (number) => {
    missing = state.choose(number);
  },
  missing: () => missing,
  open: (address) => read(state, address),
  address: (chosen) => write(state, chosen),
  written: () => state.actions.map(({ name }) => name),
};

const answers = orders.map(([order, ...parts]) => {
  try {
    const answer = ANSWERS[order] ?? state[order].bind(state);
    return answer(...parts) ?? null;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));
