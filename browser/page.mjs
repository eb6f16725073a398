// The page of exercises: an editor, the verdicts of the course, and the progress in this browser.
import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { message, translate } from "../src/twelve_lab/explorer/messages.mjs";

const byId = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
};

const data = JSON.parse(byId("data").textContent);
translate(data.messages);
const tasks = data.groups.flatMap((group) => group.tasks.map((task) => Object.assign(task, { group })));
const byKey = new Map(tasks.map((task) => [task.key, task]));

// --- browser storage: each answer under its own key, and the text of progress.json ---

const PROGRESS = "twelve-numbers-progress";
const answerKey = (task) => `twelve-numbers-answer-${task.key}`;
const memory = new Map(); // fallback for a browser without storage
const get = (key) => {
  try {
    return localStorage.getItem(key) ?? memory.get(key) ?? null;
  } catch {
    return memory.get(key) ?? null;
  }
};
const put = (key, text) => {
  try {
    localStorage.setItem(key, text);
  } catch {
    memory.set(key, text);
    byId("kept").textContent = message("This browser stores nothing: save progress.json before you leave the page.");
  }
};
const codeOf = (task) => get(answerKey(task)) ?? task.code;
const isBegun = (task) => codeOf(task) !== task.code;
const EMPTY = { version: data.version, exercises: {}, "by hand": {} };
const progress = () => {
  try {
    return { ...EMPTY, ...JSON.parse(get(PROGRESS)) };
  } catch {
    return EMPTY;
  }
};
const isSolved = (task, { exercises } = progress()) => Boolean(exercises[task.id]?.solved);

// --- the editor ---

let current;
const view = new EditorView({ parent: byId("editor") });
const extensions = () => [
  keymap.of([{ key: "Mod-Enter", run: () => check() || true }, ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
  lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(),
  indentUnit.of("    "), EditorState.tabSize.of(4), python(), syntaxHighlighting(classHighlighter),
  EditorView.contentAttributes.of({ "aria-label": message("Your answer"), "aria-describedby": "keys", spellcheck: "false", autocapitalize: "off" }),
  EditorView.updateListener.of((update) => {
    if (update.docChanged) put(answerKey(current), update.state.doc.toString());
  }),
];

// --- Python, in a worker ---

let worker, running, waiting;
let isReady = false;
const verdicts = new Map();
const say = (text) => {
  byId("state").textContent = text;
};
const failed = (reason) => {
  byId("loading").hidden = true;
  running = waiting = undefined;
  say(location.protocol === "file:"
    ? message("A browser runs Python only in pages from a server. In the folder of this file, run python -m http.server 8000 --bind 127.0.0.1, then open http://127.0.0.1:8000. Nothing is checked here.")
    : message("Python could not be loaded, so no answer can be checked: {reason}. Your answers are kept. Reload the page to try again.", { reason }));
  buttons();
};
const MB = 1e6;
const received = ({ data: reply }) => {
  if (reply.failed) return failed(reply.failed);
  if (reply.loaded) {
    byId("loading").value = reply.loaded / data.size;
    const [loaded, size] = [reply.loaded, data.size].map((count) => (count / MB).toFixed(1));
    return byId("size").replaceChildren(message("{loaded} of {size} MB", { loaded, size }));
  }
  if (reply.ready) {
    isReady = true;
    byId("loading").hidden = true;
    say(message("Python is ready."));
    if (waiting) send(waiting);
    return buttons();
  }
  if (reply.call === "accept") return opened(reply);
  if (reply.crashed) {
    verdicts.set(reply.key, { error: message("Python broke off and starts again: {reason}", { reason: reply.crashed }) });
    start();
    return drawVerdict();
  }
  running = undefined;
  if (reply.progress) put(PROGRESS, reply.progress);
  verdicts.set(reply.key, reply);
  say("");
  buttons();
  drawProgress();
  if (reply.key === current.key) drawVerdict();
};
const start = () => {
  worker?.terminate();
  isReady = false;
  running = undefined;
  byId("loading").hidden = false;
  byId("state").replaceChildren(message("Python is loading. You can write already."), " ", make("span", { id: "size", ariaLive: "off" }));
  if (location.protocol === "file:") return failed("file:");
  worker = new Worker(`${data.python ?? ""}worker.mjs`, { type: "module" });
  worker.onmessage = received;
  worker.onerror = (event) => failed(event.message ?? "worker.mjs");
  return buttons();
};
const send = (task) => {
  waiting = undefined;
  running = task;
  say(message("Your answer runs …"));
  const before = task.group.tasks.slice(0, task.group.tasks.indexOf(task)).filter(isBegun).map(codeOf);
  worker.postMessage({
    call: "judge", language: data.language, key: task.key, id: task.id, name: task.name, by_hand: task.group.by_hand,
    code: codeOf(task), given: [...task.given, ...before], progress: get(PROGRESS),
  });
  buttons();
};
const check = () => {
  if (current.absent || running || byId("check").disabled) return;
  verdicts.delete(current.key);
  drawVerdict();
  if (isReady) return send(current);
  waiting = current;
  say(message("Your answer is checked as soon as Python is loaded."));
};
const buttons = () => {
  document.body.dataset.python = running ? "runs" : isReady ? "ready" : byId("loading").hidden ? "failed" : "loads";
  byId("stop").disabled = !running;
  byId("check").disabled = Boolean(running) || (!isReady && byId("loading").hidden);
};
byId("check").addEventListener("click", check);
byId("stop").addEventListener("click", () => {
  start();
  byId("verdict").textContent = message("Stopped. Python starts again.");
  view.focus();
});

// --- one exercise ---

const drawVerdict = () => {
  const reply = verdicts.get(current.key);
  byId("verdict").replaceChildren();
  if (!reply) return;
  if (reply.printed) byId("verdict").append(make("pre", {}, reply.printed));
  if (reply.error) byId("verdict").append(make("p", { className: "error" }, reply.error));
  else if (reply.html) byId("verdict").insertAdjacentHTML("beforeend", reply.html); // the course escapes all texts
};
const link = (task, text) => (task ? [make("a", { href: `#${task.key}` }, text)] : []);
const show = (task) => {
  current = task;
  const { group } = task;
  byId("lesson").replaceChildren(group.address ? make("a", { href: group.address }, group.title) : group.title);
  byId("title").textContent = task.title;
  byId("about").innerHTML = group.about;
  byId("about").parentElement.hidden = !group.about;
  byId("ask").innerHTML = task.about;
  byId("absent").hidden = !task.absent;
  byId("absent").textContent = message("This page cannot check this exercise. The notebook can.");
  byId("answer").hidden = Boolean(task.absent);
  const next = tasks[tasks.indexOf(task) + 1];
  const before = tasks[tasks.indexOf(task) - 1];
  byId("onward").replaceChildren(...link(before, message("Previous exercise")), ...link(next, message("Next exercise")));
  view.setState(EditorState.create({ doc: codeOf(task), extensions: extensions() }));
  drawVerdict();
  drawList();
};
byId("again").addEventListener("click", () => {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: current.code } });
  view.focus();
  if (!current.group.by_hand) return;
  // Start the clock of a page to write by hand, like `twelve-numbers blank`.
  const kept = progress();
  const record = { right: [], failed: false, ...kept["by hand"][current.id], started: `${new Date().toISOString().slice(0, 19)}+00:00` };
  put(PROGRESS, JSON.stringify({ ...kept, "by hand": { ...kept["by hand"], [current.id]: record } }));
});

// --- the list ---

const drawList = () => {
  const kept = progress();
  const open = new Set([...document.querySelectorAll("#groups details[open]")].map((node) => node.dataset.title));
  const items = data.groups.flatMap((group, i) => {
    const list = group.tasks.map((task) => {
      const node = make("a", { href: `#${task.key}`, className: task.absent ? "absent" : "" }, task.title);
      if (task === current) node.setAttribute("aria-current", "page");
      if (isSolved(task, kept)) node.append(make("span", { className: "tick", role: "img", ariaLabel: message("solved") }, " ✓"));
      return make("li", {}, node);
    });
    const count = group.tasks.filter((task) => isSolved(task, kept)).length;
    const summary = make("summary", {}, group.title, " ", make("span", { className: "note" }, `${count}/${group.tasks.length}`));
    const details = make("details", { open: open.has(group.title) || group === current?.group }, summary, make("ul", {}, ...list));
    details.dataset.title = group.title;
    const begins = group.by_hand && !data.groups[i - 1]?.by_hand;
    return [...(begins ? [make("h2", {}, message("By hand"))] : []), details];
  });
  byId("groups").replaceChildren(...items);
};
const drawProgress = () => {
  const kept = progress();
  const total = new Set(tasks.map(({ id }) => id));
  const solved = [...total].filter((id) => isSolved({ id }, kept)).length;
  byId("solved").textContent = message("Solved: {solved} of {total}", { solved, total: total.size });
  drawList();
};

// --- progress.json: the progress file of the course, plus the answers ---

byId("save").addEventListener("click", () => {
  const answers = Object.fromEntries(tasks.filter(isBegun).map((task) => [task.key, codeOf(task)]));
  const text = `${JSON.stringify({ ...progress(), answers }, null, 1)}\n`;
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  make("a", { href: address, download: "progress.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), MB);
});
byId("open").addEventListener("change", async () => {
  const [file] = byId("open").files;
  byId("open").value = "";
  byId("kept").textContent = message("The file is read as soon as Python is loaded.");
  worker?.postMessage({ call: "accept", language: data.language, text: await file.text() });
});
const opened = ({ content, error }) => {
  byId("kept").textContent = error ?? message("Progress and answers were read from the file.");
  if (error) return;
  const { answers, ...kept } = content;
  put(PROGRESS, JSON.stringify(kept));
  for (const [key, code] of Object.entries(answers ?? {})) {
    if (byKey.has(key) && typeof code === "string") put(answerKey(byKey.get(key)), code);
  }
  show(current);
  drawProgress();
};

// --- the page ---

const translatePage = () => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const fixed = !text.parentElement.closest("script, noscript") && text.data.trim();
    if (fixed) text.data = text.data.replace(fixed, () => message(fixed));
  }
  for (const node of document.querySelectorAll("[aria-label]")) node.ariaLabel = message(node.ariaLabel);
  document.title = message(document.title);
};
// Use the theme that the reader chose in the book, or else that of the system.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const dress = () => {
  const chosen = get("theme");
  document.documentElement.dataset.theme = ["dark", "light"].includes(chosen) ? chosen : dark.matches ? "dark" : "light";
};
dress();
dark.addEventListener("change", dress);
translatePage();
byId("limits").hidden = !data.stand_in;
if (data.book) byId("lesson").before(make("p", {}, make("a", { href: `${data.book}course.html` }, message("The course"))));
const wide = window.matchMedia("(min-width: 56rem)");
const fold = () => {
  byId("list").open = wide.matches;
};
fold();
wide.addEventListener("change", fold);
const follow = (moves) => {
  const task = byKey.get(decodeURIComponent(location.hash.slice(1)));
  show(task ?? current ?? tasks.find((each) => !each.absent && !isSolved(each)) ?? tasks[0]);
  for (const other of document.querySelectorAll("[hreflang]")) other.hash = current.key;
  if (!moves) return;
  if (!wide.matches) byId("list").open = false;
  byId("title").focus();
};
window.addEventListener("hashchange", () => follow(true));
// Redraw when another tab of this page stores progress.
window.addEventListener("storage", ({ key }) => key === PROGRESS && drawProgress());
follow(false);
drawProgress();
start();
