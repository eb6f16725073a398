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

// On paper nothing can be opened: answers and hints are, and what a figure says in words goes.
// What lies beside the pages does not come along.
const unfold = () => {
  document.querySelectorAll("details").forEach((folded) => {
    if (/the figure in words/.test(folded.querySelector("summary").textContent)) folded.remove();
    else folded.open = true;
  });
  document.querySelectorAll("a.download").forEach((link) => link.removeAttribute("href"));
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

// A line of the contents. Three zeros are as wide as any page number.
const entry = (section, title) => {
  const link = document.createElement("a");
  const page = Object.assign(document.createElement("span"), { className: "page" });
  link.href = `#${section.id}`;
  link.append(title, " ", page);
  page.dataset.of = section.id;
  page.textContent = "000";
  return link;
};

const listOf = (links) => {
  const list = document.createElement("ul");
  for (const link of links) list.appendChild(document.createElement("li")).append(link);
  return list;
};

// A heading that stands once in the book names a topic; "Exercises" stands in every chapter.
const topicsOf = (chapter, counts) =>
  [...chapter.querySelectorAll("section")].filter((section) => {
    const heading = headingOf(section);
    const exercise = section.parentElement.closest("section[id$='-exercises']");
    return heading?.matches("h3, h4") && counts.get(titleOf(heading)) === 1 && !exercise;
  });

const bind = () => {
  unfold();
  leadToSections();
  const book = document.querySelector(".bd-article > section");
  const chapters = [...book.querySelectorAll(":scope > .toctree-wrapper > section")];
  const counts = new Map();
  for (const heading of book.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    counts.set(titleOf(heading), (counts.get(titleOf(heading)) ?? 0) + 1);
  }

  const inBrief = book.querySelector(":scope > ul");
  inBrief.classList.add("contents");
  const links = [...inBrief.querySelectorAll("a")];
  if (links.length !== chapters.length) {
    throw new Error(`${links.length} lines of contents for ${chapters.length} chapters`);
  }
  links.forEach((link, place) =>
    link.replaceWith(entry(chapters[place], titleOf(headingOf(chapters[place])))),
  );

  const inFull = document.createElement("section");
  inFull.id = "topics";
  inFull.appendChild(document.createElement("h2")).textContent = "Topics";
  const list = listOf(chapters.map((chapter) => entry(chapter, titleOf(headingOf(chapter)))));
  list.className = "contents topics";
  [...list.children].forEach((line, place) => {
    const topics = topicsOf(chapters[place], counts);
    if (topics.length) line.append(listOf(topics.map((one) => entry(one, titleOf(headingOf(one))))));
  });
  inFull.append(list);
  inBrief.after(inFull);

  const heads = document.head.appendChild(document.createElement("style"));
  [inFull, ...chapters].forEach((chapter, place) => {
    const head = JSON.stringify(titleOf(headingOf(chapter)));
    chapter.classList.add("chapter");
    chapter.style.page = `chapter-${place}`;
    heads.textContent += `@page chapter-${place} { @top-left { content: ${head}; } }\n`;
  });
};

const numberPages = (pages) =>
  document.querySelectorAll(".contents .page").forEach((page) => {
    page.textContent = pages[page.dataset.of];
  });
