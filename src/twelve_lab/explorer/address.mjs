// The address of a state: all actions in order. Opening the address replays them.
// w=6:1.87 sets weight 6; n=memory:6:0.5 sets another number; l=187x0.3 trains for 187 steps with
// learning rate 0.3.

const STEPS = 5000; // maximum number of training steps in one address

const whole = (text, size) => (/^\d+$/.test(text) && Number(text) < size ? Number(text) : -1);

export const write = (state, chosen = -1) => {
  const { engine, actions, number } = state;
  const parts = number ? [`run=${number}`] : [];
  const named = (name, element) => `${encodeURIComponent(name)}:${element}`;
  for (const { rate, steps, name, element, value } of actions) {
    const weight = steps ? -1 : engine.weights.indexOf(engine.byName.get(name).start + element);
    if (steps) parts.push(`l=${steps}x${rate}`);
    else if (weight >= 0) parts.push(`w=${weight}:${value ?? ""}`);
    else parts.push(`n=${named(name, element)}:${value ?? ""}`);
  }
  if (chosen >= 0) {
    const { name, start } = engine.tensorOf(chosen);
    parts.push(`at=${named(name, chosen - start)}`);
  }
  return parts.join("&");
};

// Open an address. Return the index of the chosen number or -1, and the invalid parts.
export const read = (state, address) => {
  const parts = [...new URLSearchParams(address)];
  const unknown = [];
  const run = parts.findLast(([key]) => key === "run")?.[1] ?? "0";
  const number = whole(run, state.runs.length);
  state.start(Math.max(number, 0));
  if (number < 0) unknown.push(`run=${run}`);
  const { engine } = state;
  const placeOf = (name, element) => {
    const tensor = engine.byName.get(name);
    const at = tensor ? whole(element, tensor.size) : -1;
    return at < 0 ? -1 : tensor.start + at;
  };
  const written = (text) => (text.trim() === "" ? NaN : Number(text));
  const actionOf = (place, text) => {
    if (place < 0 || place === undefined || text === undefined) return null;
    const value = text === "" ? null : written(text);
    if (value !== null && !engine.takes(place, value)) return null;
    const { name, start } = engine.tensorOf(place);
    return { name, element: place - start, value };
  };
  let chosen = -1;
  let left = STEPS;
  const readers = {
    w: ([weight, value, ...more]) =>
      more.length ? null : actionOf(engine.weights[whole(weight, engine.weights.length)], value),
    n: ([name, element, value, ...more]) =>
      more.length ? null : actionOf(placeOf(name, element), value),
    l: ([text]) => {
      const [steps, rate, ...more] = text.split("x");
      const learned = { steps: whole(steps, left + 1), rate: written(rate ?? "") };
      if (more.length || learned.steps < 1 || !(learned.rate > 0 && learned.rate < Infinity)) return null;
      left -= learned.steps;
      return learned;
    },
  };
  const actions = [];
  for (const [key, text] of parts) {
    if (key === "at") {
      chosen = placeOf(...text.split(":"));
      if (chosen < 0) unknown.push(`at=${text}`);
    } else if (readers[key]) {
      const action = readers[key](text.split(":"));
      if (action) actions.push(action);
      else unknown.push(`${key}=${text}`);
    }
  }
  state.replay(actions);
  state.past = [];
  return [chosen, unknown];
};
