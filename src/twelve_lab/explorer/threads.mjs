// Threads between numbers. At rest: who looks at whom, as wide as the weight. From a number that is
// pointed at: what it depends on, as wide as the slope. During a drag: what changed, and how much.
// While it learns: the slopes of the loss. Red raises, blue lowers.
import { at, byId, data, isStill, onDraw, shown, state, svg, view } from "./core.mjs";
import { message } from "./messages.mjs";
import { slopeText, spoken, textOf } from "./names.mjs";

const MOST = 40;
const WIDEST = 7; // pixels
const LEAST = 0.02; // of the widest
const PULSE = 90; // milliseconds from station to station

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

// The points where a thread leaves one cell and reaches another: beside their digits.
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
// A curve from one point to another: it starts horizontally, or vertically if the points are far apart in height.
const curveOf = ([x1, y1], [x2, y2]) => {
  const [dx, dy] = [x2 - x1, y2 - y1];
  if (Math.abs(dx) * 2 < Math.abs(dy)) return `M${x1} ${y1}C${x1} ${y1 + dy / 2} ${x2} ${y2 - dy / 2} ${x2} ${y2}`;
  const bend = Math.sign(dx || 1) * Math.max(24, Math.abs(dx) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
};

// Draw threads, and keep the elements of those that were there: their pulse does not begin again.
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
    else path.removeAttribute("pathLength"); // its dashes have one length
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

// The largest entries of [place, amount], at most MOST of them that can be seen.
const largest = (amounts, nodes) => {
  const found = amounts
    .filter(([place, amount]) => amount && Number.isFinite(amount) && nodes.has(place))
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const top = Math.abs(found[0]?.[1] ?? 0);
  return found.slice(0, MOST).filter(([, amount]) => Math.abs(amount) >= LEAST * top);
};

// Every number on which a number depends, with its slope, the largest first.
export const slopesOf = (place) => {
  const slopes = shown().slopesOf(place).subarray(0, state.engine.count);
  return [...slopes.entries()].filter(([other, slope]) => other !== place && slope &&
    state.engine.tensorOf(other).type === "float");
};

const star = (centre, amounts, { outward = false, quiet = false, nodes }) => {
  const chosen = largest(amounts, nodes);
  const origin = byId("map").getBoundingClientRect();
  const [hub] = nodes.get(centre) ?? [];
  if (!hub) return [];
  const top = Math.abs(chosen[0]?.[1] ?? 1);
  const threads = chosen.flatMap(([place, amount]) => nodes.get(place).map((node, n) => {
    return {
      key: `${outward}:${centre}:${place}:${n}`,
      d: curveOf(...(outward ? ends(hub, node, origin) : ends(node, hub, origin))),
      width: 0.7 + (WIDEST - 0.7) * Math.abs(amount) / top,
      kind: amount > 0 ? "raises" : "lowers",
      delay: outward && !isStill() ? Math.max(0, orderOf(node) - orderOf(hub)) * PULSE : 0,
      nodes: [node, hub],
    };
  }));
  draw(threads);
  if (quiet) return chosen;
  const lit = new Set([hub, ...threads.flatMap((thread) => thread.nodes)]);
  byId("map").classList.add("pulled");
  for (const all of nodes.values()) for (const node of all) node.classList.toggle("on", lit.has(node));
  return chosen;
};

// At rest: a thread for each head from the row of a key to the row of a query.
const rest = () => {
  byId("map").classList.remove("pulled");
  label("tip", null);
  label("here", null);
  const origin = byId("map").getBoundingClientRect();
  const rowsOf = (station) => [...(station?.querySelectorAll(".stream tbody tr") ?? [])].map((row) => row.getBoundingClientRect());
  const threads = [];
  for (const { attention, before, node, from } of arcs) {
    const source = from ? document.querySelector(`[data-out="${from}"]`) : before;
    const [keys, queries] = [rowsOf(source), rowsOf(node)];
    const [, heads] = attention.shape;
    const batch = Math.min(view.front, attention.shape[0] - 1);
    keys.forEach((key, k) => queries.forEach((query, q) => {
      for (let head = 0; head < heads && k < attention.shape[3] && q < attention.shape[2]; head++) {
        const weight = shown().values[at(attention.name, batch, head, q, k)];
        if (!(weight > LEAST)) continue;
        const shift = (head - (heads - 1) / 2) * 5;
        const [y1, y2] = [key, query].map((box) => box.top + box.height / 2 + shift - origin.top);
        // In one column a thread goes round on the left, else from right to left.
        const round = Math.abs(key.left - query.left) < 60;
        const [x1, x2] = [(round ? key.left : key.right) - origin.left, query.left - origin.left];
        const out = from ? 22 + 7 * k + 2 * head : 4 + 4 * k + 2 * head;
        const d = round
          ? `M${x1} ${y1}C${x1 - out} ${y1} ${x2 - out} ${y2} ${x2} ${y2}`
          : curveOf([x1, y1], [x2, y2]);
        threads.push({ key: `${attention.name}:${head}:${q}:${k}`, d, width: 5 * weight, kind: "arc", colour: data.threads[k % data.threads.length] });
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

const drawAll = () => {
  if (!layer()) return;
  const nodes = visible();
  const { target } = state.engine;
  if (view.dragged >= 0) {
    label("tip", null);
    label("here", nodes.get(view.dragged)?.[0], textOf(view.dragged));
    star(view.dragged, changes(), { outward: true, nodes });
  } else if (view.teaching && nodes.has(target)) {
    star(target, state.engine.weights.map((place) => [place, state.engine.gradients[place]]), { nodes });
  } else {
    const place = [pulled, view.chosen].find((each) => nodes.has(each));
    if (place === undefined) {
      rest();
      // A live part of a lesson shows the threads of one of its numbers from the start.
      if (data.pulls) star(at(...data.pulls), slopesOf(at(...data.pulls)), { quiet: true, nodes });
      return;
    }
    const [strongest] = star(place, slopesOf(place), { nodes });
    const [hub] = nodes.get(place);
    label("here", hub, message("{name} = {value}", { name: spoken(place), value: textOf(place) }));
    label("tip", strongest && nodes.get(strongest[0])[0], strongest && tipOf(strongest[1]));
  }
};
export const tipOf = (slope) => message("+0.1 here moves it by {change}", { change: slopeText(slope / 10) });

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
// A number is pulled while it is pointed at or has the focus.
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

// A short demonstration: show the threads of a number, unless the reader does something first.
export const demonstrate = (place) => {
  const timers = [setTimeout(() => pull(place), 800), setTimeout(() => pull(-1), 4200)];
  for (const event of ["pointermove", "pointerdown", "keydown", "wheel"])
    document.addEventListener(event, () => timers.forEach(clearTimeout), { once: true });
};
new ResizeObserver(soon).observe(document.body);
