// The pages that this reader has read, stored in this browser alone. A lesson or workshop is marked
// when its end comes into view, or by the button there; the list of pages shows the marks.
{
  const KEY = "twelve-numbers-read";
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const make = (tag, attributes, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };

  // The marks: true is read; false was set by the reader, and scrolling to the end does not change
  // it. Null if the browser cannot store them.
  const kept = () => {
    try {
      return new Map(Object.entries(JSON.parse(localStorage.getItem(KEY)) ?? {}));
    } catch (error) {
      return error instanceof SyntaxError ? new Map() : null;
    }
  };

  // The key of a page's mark, such as "notebooks/04_attention", or nothing.
  const nameOf = (address) =>
    address.startsWith(root.href) &&
    address.slice(root.href.length).match(/^(notebooks\/[\w/]+)\.html/)?.[1];

  addEventListener("DOMContentLoaded", () => {
    const read = kept();
    if (!read) return;
    const texts = JSON.parse(document.getElementById("messages").textContent);
    const message = (template, values = {}) =>
      (texts[template] ?? template).replace(/\{(\w+)\}/g, (_, name) => values[name]);
    const here = nameOf(location.href);
    const linksIn = (part) =>
      [...document.querySelectorAll(`${part} a`)]
        .map((link) => ({ link, name: nameOf(link.href), title: link.textContent.trim() }))
        .filter(({ name, title }) => name && title);
    const listed = linksIn(".bd-sidebar-primary .bd-links");
    const lessons = listed.filter(({ name }) => !/\/(workshop|by_hand)\//.test(name));
    const isHome = /^course\.html([#?].*)?$/.test(location.href.slice(root.href.length));
    const ticked = isHome ? [...listed, ...linksIn("article")] : listed;

    const button = make("button", { type: "button" });
    const said = make("span", { role: "status" });
    const bar = make("div", { className: "reading d-print-none" });

    // The first unread lesson after this one, else the first unread lesson of the course.
    const next = () => {
      const at = lessons.findIndex(({ name }) => name === here?.replace("/workshop", ""));
      const open = ({ name }) => !read.get(name);
      return lessons.slice(at + 1).find(open) ?? lessons.find(open);
    };

    const draw = () => {
      for (const { link, name } of ticked) {
        link.querySelector(".tick")?.remove();
        if (!read.get(name)) continue;
        const sign = make("span", {}, "✓");
        sign.setAttribute("role", "img");
        sign.setAttribute("aria-label", message("read"));
        link.append(make("span", { className: "tick" }, " ", sign));
      }
      const count = lessons.filter(({ name }) => read.get(name)).length;
      const found = next();
      const values = { count, total: lessons.length, next: "\n" };
      const [before, after = ""] = (
        found
          ? message("{count} of {total} lessons read. Next unread: {next}.", values)
          : message("{count} of {total} lessons read. That is the whole course.", values)
      ).split("\n");
      const link = found ? [make("a", { href: found.link.href }, found.title)] : [];
      said.replaceChildren(before, ...link, after);
      const isRead = read.get(here) === true;
      const mark = isRead ? message("Mark as unread") : message("Mark as read");
      button.textContent = here ? mark : message("Forget");
      bar.classList.toggle("done", here ? isRead : !found);
      bar.hidden = !here && !count;
    };

    const keep = () => {
      draw();
      try {
        localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(read)));
      } catch {
        // The browser's storage is full: the marks last until the reader leaves the page.
      }
    };

    button.addEventListener("click", () => {
      if (!here) read.clear();
      else read.set(here, !read.get(here));
      keep();
    });
    bar.append(said, button);
    draw();
    if (here) {
      document.querySelector("article").append(bar);
      const end = new IntersectionObserver((seen) => {
        if (!seen.some(({ isIntersecting }) => isIntersecting)) return;
        end.disconnect();
        if (read.has(here)) return;
        read.set(here, true);
        keep();
      });
      end.observe(bar);
    } else if (isHome) document.querySelector("article h1 ~ p")?.after(bar);
  });
}
