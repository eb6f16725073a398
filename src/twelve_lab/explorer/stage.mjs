// The line that stays on the screen: the sentence, what is written, the loss, and what to do.
import { byId, data, isStill, make, onDraw, reset, shown, state, undo, view, look, button } from "./core.mjs";
import { message } from "./messages.mjs";
import { faceOf, wordOf } from "./names.mjs";
import { blindGuess, curve, reads, speaks, teachButton, teachTools, verdict, written } from "./output.mjs";

const FLIP = 500; // milliseconds until the written word follows a drag

const sentence = (batch) => {
  const ids = state.engine.byName.get(reads() === "tgt" ? "src" : "ids");
  const [, length] = ids.shape;
  const words = Array.from(shown().values.subarray(ids.start + batch * length, ids.start + (batch + 1) * length));
  return words.filter((id) => id !== 0 || batch === view.front).map((id, n) => wordOf(id, "src", n));
};

const spelled = (word) => make("span", { class: "spelled" }, faceOf(word), word);

// A sentence and the model's words with their marks. A sentence in the background is a button.
const line = (batch, act) => {
  const read = make("span", { class: "read" });
  const said = make("span", { class: "said" });
  const node = make(batch === view.front ? "p" : "button", { class: "sentence" }, read, make("span", { class: "to" }, "→"), said);
  if (batch !== view.front) {
    node.type = "button";
    node.addEventListener("click", () => act(batch));
  }
  let timer = 0;
  let last = "";
  const show = () => {
    const answers = written(batch);
    said.replaceChildren(...answers.filter(({ graded }) => graded || batch === view.front).map((answer) => {
      const { word, graded, right } = answer;
      const sign = graded ? (right ? "✓" : "✗") : "";
      return make("span", { class: `answer ${graded ? (right ? "right" : "wrong") : ""}`, title: verdict(answer) },
        spelled(word), make("span", { class: "sign" }, sign));
    }));
    const flipped = answers.map(({ word }) => word).join();
    if (last && last !== flipped && !isStill()) said.classList.add("flipped");
    last = flipped;
  };
  said.addEventListener("animationend", () => said.classList.remove("flipped"));
  onDraw(() => {
    read.replaceChildren(...sentence(batch).map(spelled));
    clearTimeout(timer);
    const now = written(batch).map(({ word }) => word).join();
    // During a drag the pulse walks through the stations first.
    if (last && now !== last && view.dragged >= 0 && !isStill()) timer = setTimeout(show, FLIP);
    else show();
  });
  return node;
};

export const undoButton = () => {
  const node = button(message("Undo"), undo);
  onDraw(() => {
    node.disabled = !state.past.length;
  });
  return node;
};

export const buildStage = ({ front, copy }) => {
  const { target } = state.engine;
  const parts = [];
  if (speaks()) {
    const count = state.engine.byName.get("logits").shape[0];
    const batches = [view.front, ...Array.from({ length: count }, (_, n) => n).filter((n) => n !== view.front)];
    parts.push(make("div", { class: "sentences" }, ...batches.slice(0, 3).map((batch) => line(batch, front))));
  }
  if (target >= 0) {
    const loss = make("b");
    onDraw(() => {
      const value = shown().values[target];
      loss.textContent = Number.isFinite(value) ? value.toFixed(4) : String(value);
    });
    parts.push(make("div", { class: "loss" }, make("span", {}, message("loss")), loss,
      make("span", { class: "spark" }, data.vocab ? blindGuess() : null, curve({ "aria-hidden": "true" }))));
  }
  parts.push(make("div", { class: "acts" }, target >= 0 ? teachButton() : null, undoButton(), button(message("Copy link"), copy)));
  byId("stage").replaceChildren(...parts);
};

// What is needed less often; a live part of a lesson has some of it.
export const buildTools = (save) => {
  const again = button(message("Start again"), reset);
  const before = button(message("Show before (hold B)"), () => look(!view.before));
  onDraw(() => {
    again.disabled = !state.actions.length;
    before.setAttribute("aria-pressed", view.before);
    const { number, values } = state.before;
    before.disabled = number !== state.number || values.every((value, i) => Object.is(value, state.engine.values[i]));
  });
  if (data.panels) return [undoButton(), again, before];
  return [...(state.engine.target < 0 ? [] : teachTools()), again, before, button(message("Save picture"), save, { id: "picture" })];
};
