// Makes a book of the one page: contents with room for page numbers, and a running head a chapter.

// What is printed of a heading: its words without the sign that links to it.
const titleOf = (heading) => {
  const copy = heading.cloneNode(true);
  copy.querySelectorAll(".headerlink").forEach((sign) => sign.remove());
  return copy.textContent.trim();
};

const headingOf = (section) => section.querySelector(":scope > :is(h1, h2, h3, h4, h5, h6)");

// Headings as they are printed, in order.
const printedHeadings = () =>
  [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
    .filter((heading) => heading.offsetParent)
    .map(titleOf);

const made = (tag, className, ...content) => {
  const element = Object.assign(document.createElement(tag), { className });
  element.append(...content);
  return element;
};

// The number of the page on which something with an id stands. Three zeros are as wide as any.
const pageOf = (id) => {
  const page = made("span", "page", "000");
  page.dataset.of = id;
  return page;
};

// On paper nothing can be opened or changed: what a figure says in words goes, and the live parts,
// whose figures stay. What lies beside the pages does not come along.
const unfold = () => {
  document.querySelectorAll("iframe, .live").forEach((live) => live.remove());
  document.querySelectorAll("details").forEach((folded) => {
    if (/the figure in words/.test(folded.querySelector("summary").textContent)) folded.remove();
    else folded.open = true;
  });
  document.querySelectorAll("a.download").forEach((link) => link.removeAttribute("href"));
};

// What is folded on a screen until the reader has thought, and what the line says in its place.
const ANSWERS = [
  [/^Hint \d/, "Hints and answer"],
  [/^A solution/, "Answer"],
  [/^Answer/, "Answer"],
  [/^What it prints/, "What it prints"],
  [/^Which is wrong/, "Which is wrong?"],
];

// Move the answers of a chapter behind the book, each with a line to and fro. What hints at one
// exercise and what solves it stay together.
const answersOf = (chapter) => {
  const answers = new Map();
  for (const folded of chapter.querySelectorAll("details")) {
    const kind = folded.querySelector("summary > .collapsed") ?? folded.querySelector("summary");
    const [, line] = ANSWERS.find(([start]) => start.test(kind.textContent.trim())) ?? [];
    if (!line) continue;
    const section = folded.closest("section");
    const alone = /^W/.test(line) || (line === "Answer" && !answers.has(section));
    let answer = answers.get(section);
    if (alone || !answer) {
      const id = `${section.id}-answer-${answers.size}`;
      const [asked, link] = [made("p", "asked"), made("a", "", `${line}: page `, pageOf(id))];
      [asked.id, link.href] = [`${id}-asked`, `#${id}`];
      asked.append(link);
      const cell = folded.closest(".cell");
      if (line === "What it prints" || !cell) folded.before(asked);
      else cell.before(asked);
      const back = made("a", "", titleOf(headingOf(section)), ", page ", pageOf(asked.id));
      back.href = `#${asked.id}`;
      answer = made("div", "answer", made("p", "back", back));
      answer.id = id;
      answers.set(alone && answers.has(section) ? folded : section, answer);
    }
    // A cell that holds nothing else goes along with what it holds.
    const cell = folded.closest(".cell");
    const says = made("div", "cell", ...folded.childNodes);
    says.querySelector("summary").remove();
    if (/^Hint/.test(kind.textContent)) {
      says.querySelector("p")?.prepend(made("strong", "", kind.textContent.trim()), " ");
    }
    answer.append(says);
    folded.remove();
    if (cell && !cell.textContent.trim()) cell.remove();
  }
  if (!answers.size) return null;
  const gathered = made("section", "", made("h3", "", titleOf(headingOf(chapter))));
  gathered.id = `${chapter.id}-answers`;
  gathered.append(...answers.values());
  return gathered;
};

const gatherAnswers = (chapters) => {
  const answers = made("section", "answers", made("h2", "", "Answers"));
  answers.id = "answers";
  answers.append(...chapters.map(answersOf).filter(Boolean));
  return answers.children.length > 1 ? [answers] : [];
};

// An empty anchor in front of a heading stays behind on the page before it, or on a page of its own:
// what leads to the anchor leads to the section of the heading instead.
const leadToSections = () => {
  const sections = new Map();
  for (const anchor of document.querySelectorAll("span[id]:empty")) {
    let next = anchor.nextElementSibling;
    while (next?.matches("span[id]:empty")) next = next.nextElementSibling;
    if (next?.matches("h1, h2, h3, h4, h5, h6")) next = next.parentElement;
    if (next?.matches("section[id]")) sections.set(anchor, next.id);
  }
  const named = new Map([...sections].map(([anchor, section]) => [`#${anchor.id}`, section]));
  for (const link of document.querySelectorAll("a[href^='#']")) {
    const section = named.get(decodeURIComponent(link.getAttribute("href")));
    if (section) link.href = `#${section}`;
  }
  for (const anchor of sections.keys()) anchor.remove();
};

// A line of the contents.
const entry = (section, title) => {
  const link = made("a", "", title, " ", pageOf(section.id));
  link.href = `#${section.id}`;
  return link;
};

const listOf = (links) => made("ul", "", ...links.map((link) => made("li", "", link)));

// A heading that stands once in the book names a topic; "Exercises" stands in every chapter.
const topicsOf = (chapter, counts) =>
  [...chapter.querySelectorAll("section")].filter((section) => {
    const heading = headingOf(section);
    const exercise = section.parentElement.closest("section[id$='-exercises']");
    return heading?.matches("h3, h4") && counts.get(titleOf(heading)) === 1 && !exercise;
  });

const ORDINALS = ["one", "two", "three", "four", "five", "six"];

// A page that opens a part: its name, and its chapters.
const partOf = (title, place, chapters) => {
  const part = made("section", "part", made("p", "number", `Part ${ORDINALS[place]}`));
  part.id = `part-${place + 1}`;
  const list = listOf(chapters.map((chapter) => entry(chapter, titleOf(headingOf(chapter)))));
  list.className = "contents";
  part.append(made("h2", "", title), list);
  return part;
};

// The cover, with the title and the sentence that stands below it. Chromium takes the size of all
// pages from the first one, which must not be without margins: the cover is printed as the second.
const coverOf = (book, picture) => {
  const cover = made("div", "cover", book.querySelector(":scope > h1"));
  cover.append(book.querySelector(":scope > p"));
  cover.insertAdjacentHTML("afterbegin", picture);
  return cover;
};

// The page inside the cover.
const guideOf = (axes) => {
  const guide = made("section", "guide", made("h2", "", "How to read this book"));
  guide.id = "how-to-read";
  guide.insertAdjacentHTML(
    "beforeend",
    `<p>Read it with a pencil. Two sentences of two words, three numbers for each word: that is the
    example from the first page to the last, small enough to work out any number of it by hand.</p>
    <p>Where an arrow leads to a page at the end, stop and think: what will the code print? Which of
    the two lines is wrong? The <b>answers</b> stand there with the hints, and lead back. Where a
    chapter leaves room, there is squared paper for your own sums.</p>
    <p>In figures and tables a cell is red above zero and blue below, the stronger the larger the
    number. A bracket names the axis along which it runs, everywhere in the same colour:</p>
    <dl>${axes.map(([axis, css, means]) =>
      `<dt><span style="border-top:${css}"></span>${axis}</dt><dd>${means}</dd>`).join("")}</dl>
    <p>Every number here was computed by the code beside it. All of it runs: the notebooks open with
    <code>make lab</code>, the model that changes with every number you change with
    <code>make explorer</code>.</p>`,
  );
  return guide;
};

// Dress the one page as a book.
const bind = ([picture, axes]) => {
  unfold();
  leadToSections();
  const book = document.querySelector(".bd-article > section");
  book.prepend(guideOf(axes), coverOf(book, picture));
  const chapters = [...book.querySelectorAll(":scope > .toctree-wrapper > section")];
  const inBrief = book.querySelector(":scope > ul");
  const listed = inBrief.querySelectorAll("a").length;
  if (listed !== chapters.length) {
    throw new Error(`${listed} lines of contents for ${chapters.length} chapters`);
  }

  const answers = gatherAnswers(chapters);
  book.append(...answers);
  const counts = new Map();
  for (const heading of book.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    counts.set(titleOf(heading), (counts.get(titleOf(heading)) ?? 0) + 1);
  }

  const front = made("section", "front", made("h2", "", "Contents"));
  front.id = "contents";
  const brief = made("ul", "contents");
  let place = 0;
  [...inBrief.children].forEach((line, number) => {
    const own = chapters.slice(place, (place += line.querySelectorAll("a").length));
    const part = partOf(line.firstChild.textContent.trim(), number, own);
    const title = `Part ${ORDINALS[number]}: ${titleOf(headingOf(part))}`;
    brief.append(made("li", "", entry(part, title), listOf(own.map((chapter) =>
      entry(chapter, titleOf(headingOf(chapter)))))));
    own[0].before(part);
  });
  brief.append(...answers.map((one) => made("li", "", entry(one, titleOf(headingOf(one))))));
  front.append(brief);
  inBrief.replaceWith(front);

  const inFull = made("section", "", made("h2", "", "Topics"));
  inFull.id = "topics";
  const list = listOf(chapters.map((chapter) => entry(chapter, titleOf(headingOf(chapter)))));
  list.className = "contents topics";
  [...list.children].forEach((line, place) => {
    const topics = topicsOf(chapters[place], counts);
    if (topics.length) line.append(listOf(topics.map((one) => entry(one, titleOf(headingOf(one))))));
  });
  inFull.append(list);
  front.after(inFull);

  const heads = document.head.appendChild(document.createElement("style"));
  [front, inFull, ...chapters, ...answers].forEach((chapter, place) => {
    const head = JSON.stringify(titleOf(headingOf(chapter)));
    chapter.classList.add("chapter");
    chapter.style.page = `chapter-${place}`;
    heads.textContent += `@page chapter-${place} { @top-left { content: ${head}; } }\n`;
    if (!chapters.includes(chapter)) return;
    const room = made("div", "room");
    room.id = `room-${place}`;
    chapter.append(room);
  });
};

// What the numbers of pages are asked for: and, in a draft, where each chapter ends.
const listed = () => [
  ...new Set([...document.querySelectorAll(".page[data-of]")].map((page) => page.dataset.of)),
];

const askForEnds = () => {
  const ends = made("p", "ends");
  for (const { id } of document.querySelectorAll(".room")) {
    const link = made("a", "", "end ");
    link.href = `#${id}`;
    ends.append(link);
  }
  document.querySelector(".bd-article > section").append(ends);
  return [...ends.children].map((link) => link.getAttribute("href").slice(1));
};

// Number the pages, and rule what is left of the last page of a chapter for the reader's own sums.
const finish = (pages, rooms) => {
  document.querySelector(".ends").remove();
  document.querySelectorAll(".page[data-of]").forEach((page) => {
    page.textContent = pages[page.dataset.of];
  });
  for (const [id, height] of Object.entries(rooms)) {
    document.getElementById(id).append(made("p", "", "Room for your own sums and notes"), squared(height));
  }
};

const SQUARE = 5; // mm on paper
const ABOVE = 19; // mm for the line above the squares
const squared = (height) => {
  const [columns, rows] = [34, Math.floor((height - ABOVE) / SQUARE)];
  const across = Array.from({ length: rows + 1 }, (_, row) => `M0 ${SQUARE * row}h${SQUARE * columns}`);
  const down = Array.from({ length: columns + 1 }, (_, one) => `M${SQUARE * one} 0v${SQUARE * rows}`);
  const holder = made("div", "squared");
  const [w, h] = [SQUARE * columns, SQUARE * rows];
  holder.innerHTML =
    `<svg viewBox="-0.1 -0.1 ${w + 0.2} ${h + 0.2}" aria-hidden="true">` +
    `<path d="${across.join("")}${down.join("")}" fill="none" stroke="#b9c4cf" stroke-width="0.15"/></svg>`;
  return holder;
};
