// Threads between numbers.
// At rest: which word attends to which; the width shows the weight.
// From a number under the pointer: what it depends on; the width shows the slope. From an input:
// what depends on it.
// During a drag: what changed, and how much.
// During training: the slopes of the loss.
// Red raises, blue lowers.
import { at, byId, data, make, onDraw, shown, state, svg, view } from "./core.mjs";
import { message } from "./messages.mjs";
import { slopeText, spoken, textOf } from "./names.mjs";

export const MOST = 40;
const WIDEST = 7; // pixels
const LEAST = 0.02; // relative to the widest
const PULSE = 90; // milliseconds from one station to the next

let arcs = [];
let pulled = -1;
const paths = new Map();
const layer = () => byId("threads");
const visible = () => {
  const nodes = new Map();
  for (const node of document.querySelectorAll("#map .n")) {
    const place = Number(node.dataset.at);
    if (!nodes.has(place)) nodes.set(place, []);
    nodes.get(place).push(node);
  }
  return nodes;
};
const orderOf = (node) => Number(node.closest(".station")?.dataset.order ?? 0);

// The points where a thread leaves one cell and reaches another, beside the digits.
const EDGE = 3;
const ends = (from, to, origin) => {
  const [a, b] = [from, to].map((node) => node.getBoundingClientRect());
  const aside = a.right <= b.left ? 1 : b.right <= a.left ? -1 : 0;
  const point = (box, side) => [
    (side > 0 ? box.right - EDGE : side < 0 ? box.left + EDGE : box.left + box.width / 2) - origin.left,
    (side ? box.top + box.height / 2 : b.top > a.top === (box === a) ? box.bottom - EDGE : box.top + EDGE) - origin.top,
  ];
  return [point(a, aside), point(b, -aside)];
};
// A curve between two points: it starts horizontally, or vertically if the points are far apart in
// height.
const curveOf = ([x1, y1], [x2, y2]) => {
  const [dx, dy] = [x2 - x1, y2 - y1];
  if (Math.abs(dx) * 2 < Math.abs(dy)) return `M${x1} ${y1}C${x1} ${y1 + dy / 2} ${x2} ${y2 - dy / 2} ${x2} ${y2}`;
  const bend = Math.sign(dx || 1) * Math.max(24, Math.abs(dx) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
};

// Draw threads. Keep existing path elements, so their pulse does not restart.
const draw = (threads) => {
  const kept = new Set();
  for (const { key, d, width, kind, delay = 0, colour = null } of threads) {
    kept.add(key);
    let path = paths.get(key);
    if (!path) {
      path = svg("path");
      paths.set(key, path);
      layer().append(path);
    }
    path.setAttribute("d", d);
    path.setAttribute("class", kind);
    if (kind === "raises") path.setAttribute("pathLength", 1);
    else path.removeAttribute("pathLength"); // its dashes have a fixed length
    path.style.cssText = `stroke-width:${width.toFixed(2)}px;--delay:${delay}ms${colour ? `;stroke:${colour}` : ""}`;
  }
  for (const [key, path] of paths) {
    if (kept.has(key)) continue;
    path.remove();
    paths.delete(key);
  }
};

const label = (id, node, words) => {
  const tip = byId(id);
  tip.hidden = !node;
  if (!node) return;
  tip.textContent = words;
  const box = node.getBoundingClientRect();
  const origin = byId("map").getBoundingClientRect();
  const width = tip.offsetWidth;
  const left = Math.min(Math.max(0, box.left + box.width / 2 - origin.left - width / 2), origin.width - width);
  tip.style.transform = `translate(${left}px, ${box.top - origin.top - tip.offsetHeight - 4}px)`;
};

// Describe the threads in a caption above the map; a live part of a lesson has no caption.
const caption = (words = "", ...ends) => {
  const node = byId("caption");
  if (!node || node.dataset.words === words) return;
  node.dataset.words = words;
  node.replaceChildren(words, ...ends.flatMap((end, n) => [" ", make("span", { class: ["raises", "lowers"][n] }, end)]));
};

// The largest visible entries of [index, amount], at most MOST.
const bySize = ([, a], [, b]) => Math.abs(b) - Math.abs(a);
const largest = (amounts, nodes) => {
  const found = amounts
    .filter(([place, amount]) => amount && Number.isFinite(amount) && nodes.has(place))
    .sort(bySize);
  const top = Math.abs(found[0]?.[1] ?? 0);
  return found.slice(0, MOST).filter(([, amount]) => Math.abs(amount) >= LEAST * top);
};

// All numbers that a number depends on, with their slopes, largest first.
export const slopesOf = (place) => {
  const slopes = shown().slopesOf(place).subarray(0, state.engine.count);
  return [...slopes.entries()]
    .filter(([other, slope]) => other !== place && slope && state.engine.tensorOf(other).type === "float")
    .sort(bySize);
};

// The changes of all numbers if a number increases by 0.1, or if an entry of a mask is toggled.
export const effectsOf = (place) => {
  const engine = shown();
  const amount = { float: 0.1, bool: 1 - 2 * engine.values[place] }[engine.tensorOf(place).type];
  const effects = amount ? engine.effectsOf(place, amount).subarray(0, engine.count) : [];
  return [...effects.entries()]
    .filter(([other, change]) => other !== place && Math.abs(change) > 1e-9 && Number.isFinite(change))
    .sort(bySize);
};

// Draw threads between one number and others; dim all numbers without a thread unless `quiet`.
const star = (centre, amounts, { outward = false, quiet = false, nodes }) => {
  const chosen = largest(amounts, nodes);
  const origin = byId("map").getBoundingClientRect();
  const [hub] = nodes.get(centre) ?? [];
  if (!hub) return [];
  const top = Math.abs(chosen[0]?.[1] ?? 1);
  const lit = new Set([hub]);
  draw(chosen.flatMap(([place, amount]) => nodes.get(place).map((node, n) => {
    lit.add(node);
    return {
      key: `${outward}:${centre}:${place}:${n}`,
      d: curveOf(...(outward ? ends(hub, node, origin) : ends(node, hub, origin))),
      width: 0.7 + (WIDEST - 0.7) * Math.abs(amount) / top,
      kind: amount > 0 ? "raises" : "lowers",
      delay: outward ? Math.max(0, orderOf(node) - orderOf(hub)) * PULSE : 0,
    };
  })));
  byId("map").classList.toggle("pulled", !quiet);
  for (const node of [...nodes.values()].flat()) node.classList.toggle("on", lit.has(node));
  return chosen;
};

// At rest: draw one thread per head from the row of a key to the row of a query.
const rest = () => {
  byId("map").classList.remove("pulled");
  label("tip", null);
  label("here", null);
  caption();
  const origin = byId("map").getBoundingClientRect();
  const rowsOf = (station) => Array.from(station?.querySelectorAll(".stream tbody tr") ?? [], (row) => row.getBoundingClientRect());
  const threads = [];
  for (const { attention, before, node, from } of arcs) {
    const [, heads, queries, keys] = attention.shape;
    const batch = Math.min(view.front, attention.shape[0] - 1);
    const sources = rowsOf(from ? document.querySelector(`[data-out="${from}"]`) : before).slice(0, keys);
    rowsOf(node).slice(0, queries).forEach((query, q) => sources.forEach((key, k) => {
      for (let head = 0; head < heads; head++) {
        const weight = shown().values[at(attention.name, batch, head, q, k)];
        if (!(weight > LEAST)) continue;
        const shift = (head - (heads - 1) / 2) * 5;
        const [y1, y2] = [key, query].map((box) => box.top + box.height / 2 + shift - origin.top);
        // In one column, a thread bends around on the left. Otherwise it leads from the right edge
        // of the key to the left edge of the query.
        const round = Math.abs(key.left - query.left) < 60;
        const [x1, x2] = [round ? key.left - 3 : key.right, query.left - 3].map((x) => x - origin.left);
        const out = from ? 22 + 7 * k + 2 * head : 4 + 4 * k + 2 * head;
        const d = round
          ? `M${x1} ${y1}C${x1 - out} ${y1} ${x2 - out} ${y2} ${x2} ${y2}`
          : curveOf([x1, y1], [x2, y2]);
        const colour = data.threads[k % data.threads.length];
        threads.push({ key: `${attention.name}:${head}:${q}:${k}`, d, width: 5 * weight, kind: "arc", colour });
      }
    }));
  }
  draw(threads);
};

const changes = () => {
  const amounts = [];
  for (let place = 0; place < state.engine.count; place++) {
    const amount = state.engine.values[place] - state.was(place);
    if (place !== view.dragged && Math.abs(amount) > 1e-9) amounts.push([place, amount]);
  }
  return amounts;
};

// Draw the threads of one number: backward to what it depends on, or forward from an input.
const pullThreads = (place, nodes) => {
  const name = spoken(place);
  const slopes = slopesOf(place);
  const outward = slopes.length === 0;
  const amounts = outward ? effectsOf(place) : slopes;
  if (!amounts.some(([other]) => nodes.has(other))) return false;
  if (!outward) caption(message("What “{name}” depends on:", { name }), message("raises it"), message("lowers it"));
  else if (state.engine.tensorOf(place).type === "bool") caption(message("What follows if “{name}” is pressed:", { name }), ...directions());
  else caption(message("What +0.1 in “{name}” changes:", { name }), ...directions());
  const [[other, amount]] = star(place, amounts, { outward, nodes });
  label("here", nodes.get(place)[0], message("{name} = {value}", { name, value: textOf(place) }));
  const change = slopeText(outward ? amount : amount / 10);
  label("tip", nodes.get(other)[0], outward ? change : message("+0.1 here moves it by {change}", { change }));
  return true;
};
const directions = () => [message("rises"), message("falls")];

const drawAll = () => {
  if (!layer()) return;
  const nodes = visible();
  const { target } = state.engine;
  if (view.dragged >= 0) {
    label("tip", null);
    label("here", nodes.get(view.dragged)?.[0], textOf(view.dragged));
    caption(message("What follows from “{name}”:", { name: spoken(view.dragged) }), ...directions());
    star(view.dragged, changes(), { outward: true, nodes });
  } else if (view.teaching && nodes.has(target)) {
    caption(message("The loss depends on every weight; each step moves them all downhill:"), message("raises it"), message("lowers it"));
    star(target, state.engine.weights.map((place) => [place, state.engine.gradients[place]]), { nodes });
  } else {
    const place = [pulled, view.chosen].find((each) => nodes.has(each));
    if (place !== undefined && pullThreads(place, nodes)) return;
    rest();
    // A live part of a lesson shows the threads of one of its numbers from the start.
    if (data.pulls) star(at(...data.pulls), slopesOf(at(...data.pulls)), { quiet: true, nodes });
  }
};

export const weave = (attentions) => {
  arcs = attentions;
};

let waiting = false;
const soon = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    drawAll();
  });
};
// A number is pulled while the pointer is over it or it has the focus.
const pull = (place) => {
  if (pulled === place) return;
  pulled = place;
  soon();
};
const placeAt = (target) => Number(target.closest?.("#map .n")?.dataset.at ?? -1);
document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "mouse") pull(placeAt(event.target));
});
document.addEventListener("focusin", (event) => pull(placeAt(event.target)));
document.addEventListener("focusout", () => pull(-1));
onDraw(soon);

// A short demonstration: show the threads of a number, unless the reader acts first.
export const demonstrate = (place) => {
  const timers = [setTimeout(() => pull(place), 800), setTimeout(() => pull(-1), 4200)];
  for (const event of ["pointermove", "pointerdown", "keydown", "wheel"])
    document.addEventListener(event, () => timers.forEach(clearTimeout), { once: true });
};
new ResizeObserver(soon).observe(document.body);
