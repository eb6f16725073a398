"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  const unpack = async () => {
    const bytes = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  const data = await unpack();
  let run = data.runs[0];
  let here = null; // [tensor, element]
  const past = [];

  const border = (axis) => data.styles[axis.split("*").at(-1)] || data.neutral;
  const indexOf = (shape, element) => {
    const index = [];
    for (const size of [...shape].reverse()) {
      index.unshift(element % size);
      element = Math.floor(element / size);
    }
    return index;
  };
  const label = (tensor, position, index) => {
    const axis = tensor.axes[position];
    let names = tensor.labels[axis];
    if (names && Array.isArray(names[0])) names = names[index[tensor.axes.indexOf("batch")] ?? 0];
    return names ? names[index[position]] : String(index[position]);
  };
  const described = (tensor, element) => {
    const index = indexOf(tensor.shape, element);
    const parts = index.map((i, n) => `${tensor.axes[n]} ${i}`.trim());
    return tensor.name + (parts.length ? `[${parts.join(", ")}]` : "");
  };

  // One table for each index of the leading axes; a cell is a button, one of them in the tab order.
  const grid = (number, lit, asked) => {
    const tensor = run.tensors[number];
    const shape = [...tensor.shape];
    const rank = shape.length;
    const columns = rank ? shape[rank - 1] : 1;
    const rows = rank > 1 ? shape[rank - 2] : 1;
    const count = tensor.texts.length / (rows * columns);
    const tables = [];
    for (let block = 0; block < count; block++) tables.push(table(number, block, rows, columns, lit, asked));
    const holder = make("div", { class: "tensor" }, ...tables);
    const buttons = holder.querySelectorAll("td button");
    const first = holder.querySelector("td.asked button") || holder.querySelector("td.lit button");
    (first || buttons[0]).tabIndex = 0;
    return holder;
  };

  const table = (number, block, rows, columns, lit, asked) => {
    const tensor = run.tensors[number];
    const rank = tensor.shape.length;
    const start = block * rows * columns;
    const node = make("table");
    const lead = indexOf(tensor.shape, start).slice(0, Math.max(0, rank - 2));
    const words = lead.map((i, n) => `${tensor.axes[n]} ${label(tensor, n, lead)}`.trim());
    node.append(make("caption", {}, words.join(", ") || tensor.name));
    const head = make("thead");
    const corner = () => make("td", { colspan: 2, style: "border:0" });
    const columnAxis = rank ? tensor.axes[rank - 1] : "";
    if (columnAxis) {
      const name = make("th", { scope: "colgroup", colspan: columns }, columnAxis);
      name.style.borderBottom = border(columnAxis);
      head.append(make("tr", {}, corner(), name));
    }
    const names = make("tr", {}, corner());
    for (let j = 0; j < columns; j++) {
      const index = indexOf(tensor.shape, start + j);
      names.append(make("th", { scope: "col" }, rank ? label(tensor, rank - 1, index) : ""));
    }
    head.append(names);
    const body = make("tbody");
    for (let i = 0; i < rows; i++) {
      const row = make("tr");
      const rowAxis = rank > 1 ? tensor.axes[rank - 2] : "";
      if (i === 0) {
        const name = make("th", { scope: "rowgroup", rowspan: rows }, rowAxis);
        if (rowAxis) name.style.borderRight = border(rowAxis);
        row.append(name);
      }
      const index = indexOf(tensor.shape, start + i * columns);
      row.append(make("th", { scope: "row" }, rank > 1 ? label(tensor, rank - 2, index) : ""));
      for (let j = 0; j < columns; j++) {
        const element = start + i * columns + j;
        const button = make("button", { type: "button", tabindex: -1 }, tensor.texts[element]);
        button.dataset.tensor = number;
        button.dataset.element = element;
        const cell = make("td", {}, button);
        cell.style.backgroundColor = tensor.fills[element];
        if (asked === element) {
          cell.classList.add("asked");
          button.setAttribute("aria-current", "true");
        }
        if (lit && lit.has(element)) {
          cell.classList.add("lit");
          button.setAttribute("aria-description", "used");
        }
        row.append(cell);
      }
      body.append(row);
    }
    node.append(head, body);
    return node;
  };

  const showTensor = (number, asked = -1) => {
    const tensor = run.tensors[number];
    byId("name").textContent = tensor.name;
    const sizes = tensor.axes.map((axis, n) => `${axis} ${tensor.shape[n]}`.trim()).join(", ");
    const source = tensor.given ? "given to the run" : `step ${tensor.step}; code: ${tensor.code}`;
    byId("about").textContent = `(${sizes || "one number"}) ${source}`;
    byId("tensor").replaceChildren(grid(number, null, asked));
    for (const button of document.querySelectorAll("nav button")) {
      const isHere = Number(button.dataset.tensor) === number;
      if (isHere) {
        button.setAttribute("aria-current", "true");
        if (button.closest("#list")) {
          const list = byId("list").parentElement;
          list.scrollTop = button.offsetTop - list.clientHeight / 2;
        }
      } else button.removeAttribute("aria-current");
    }
  };

  const explain = (number, element, remember = true) => {
    if (remember && here) past.push(here);
    here = [number, element];
    byId("back").disabled = past.length === 0;
    showTensor(number, element);
    const tensor = run.tensors[number];
    const [lines, expression, value, used] = tensor.cells[element];
    const text = [described(tensor, element), ...lines, `  = ${tensor.texts[element]}`];
    const box = make("div", {}, make("pre", { id: "text" }, text.join("\n")));
    const python = make("pre", { id: "expression" }, expression);
    python.dataset.value = value;
    box.append(make("details", {}, make("summary", {}, "the same in full precision, as Python"), python));
    byId("explanation").replaceChildren(box);
    const groups = new Map();
    for (const [home, at] of used) {
      if (!groups.has(home)) groups.set(home, new Set());
      groups.get(home).add(at);
    }
    const parts = [];
    for (const [home, lit] of groups) {
      parts.push(make("h3", {}, run.tensors[home].name), grid(home, lit, -1));
    }
    byId("inputs").replaceChildren(...parts);
    const button = document.querySelector("#tensor td.asked button");
    if (button) button.focus({ preventScroll: true });
  };

  const back = () => {
    const last = past.pop();
    if (last) {
      explain(...last, false);
      byId("back").disabled = past.length === 0;
    }
  };

  const move = (button, key) => {
    const cell = button.parentElement;
    const row = cell.parentElement;
    const tables = [...button.closest(".tensor").querySelectorAll("table")];
    const cells = [...row.querySelectorAll("td button")];
    const rows = [...row.parentElement.querySelectorAll("tr")];
    const j = cells.indexOf(button);
    const i = rows.indexOf(row);
    let next = null;
    if (key === "ArrowLeft") next = cells[j - 1];
    if (key === "ArrowRight") next = cells[j + 1];
    const beside = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (beside) {
      let target = rows[i + beside];
      if (!target) {
        const other = tables[tables.indexOf(button.closest("table")) + beside];
        const others = other ? [...other.querySelectorAll("tbody tr")] : [];
        target = beside > 0 ? others[0] : others.at(-1);
      }
      next = target && target.querySelectorAll("td button")[j];
    }
    if (!next && (key === "ArrowLeft" || key === "ArrowRight")) {
      const other = tables[tables.indexOf(button.closest("table")) + (key === "ArrowLeft" ? -1 : 1)];
      const line = other && other.querySelectorAll("tbody tr")[i];
      const found = line ? [...line.querySelectorAll("td button")] : [];
      next = key === "ArrowLeft" ? found.at(-1) : found[0];
    }
    if (!next) return;
    button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };

  const list = () => {
    // In the order of the run; a new heading where the module changes.
    const parts = [];
    let above = null;
    run.tensors.forEach((tensor, number) => {
      const place = tensor.name.lastIndexOf(".");
      let path = place < 0 ? "the model" : tensor.name.slice(0, place);
      if (tensor.given) path = "given: weights and inputs";
      if (path !== above) parts.push(make("h3", {}, path), make("ol"));
      above = path;
      const short = tensor.given ? tensor.name : tensor.name.slice(place + 1);
      parts.at(-1).append(make("li", {}, chooser(number, short)));
    });
    byId("list").replaceChildren(...parts);
    const stations = run.stations.map((number) => {
      const tensor = run.tensors[number];
      return make("li", {}, chooser(number, tensor.name.replace(/_residual\.added$/, " + what went in")));
    });
    byId("strip").replaceChildren(...stations);
  };

  const chooser = (number, words) => {
    const button = make("button", { type: "button" }, words);
    button.dataset.tensor = number;
    button.addEventListener("click", () => {
      showTensor(number);
      byId("name").focus();
    });
    return button;
  };

  const start = (number) => {
    run = data.runs[number];
    past.length = 0;
    here = null;
    byId("back").disabled = true;
    list();
    byId("explanation").replaceChildren(make("p", {}, "Choose a number."));
    byId("inputs").replaceChildren();
    const last = run.tensors.findLastIndex((tensor) => !tensor.given);
    showTensor(last);
  };

  data.runs.forEach((each, number) => byId("runs").append(make("option", { value: number }, each.title)));
  byId("runs").addEventListener("change", (event) => start(Number(event.target.value)));
  byId("back").addEventListener("click", back);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("td button");
    if (button) explain(Number(button.dataset.tensor), Number(button.dataset.element));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Backspace" && event.target.tagName !== "SELECT") {
      event.preventDefault();
      back();
    } else if (event.key.startsWith("Arrow") && event.target.matches("td button")) {
      event.preventDefault();
      move(event.target, event.key);
    }
  });
  start(0);
  document.body.dataset.ready = "true";
})();
