// Pointer and keyboard: drag a number, type a value, step it with keys, move between numbers.
import { begin, change, choose, drags, drops, look, move, notice, refresh, state, undo } from "./core.mjs";
import { placeOf } from "./cells.mjs";
import { message } from "./messages.mjs";
import { spoken, textOf } from "./names.mjs";

const PIXEL = 0.01; // change per pixel of a drag
const STEPS = { "+": 0.1, "=": 0.1, "-": -0.1, PageUp: 1, PageDown: -1 };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

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
  const { node, moving = false } = drag ?? {};
  drag = null;
  if (!moving) return;
  // The click that ends a drag selects nothing.
  const swallow = (event) => {
    if (event.target === node) event.stopPropagation();
  };
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

// The nearest number in a direction: first in the same tables, then on the whole page.
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
