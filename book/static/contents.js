// The contents on the right follow the reading: the last heading that has come to the top of the
// window is marked, and its line stays in view. The theme marks one only while it passes there.
const TOP = 110;
document.addEventListener("readystatechange", () => {
  const list = document.getElementById("pst-page-toc-nav");
  if (document.readyState !== "interactive" || !list) return;
  list.removeAttribute("id"); // by which the theme would find it
  const links = [...list.querySelectorAll("a")];
  const box = list.closest(".bd-sidebar-secondary");
  const follow = () => {
    const page = document.scrollingElement;
    const atEnd = page.scrollTop > 0 && page.scrollTop + innerHeight >= page.scrollHeight - 2;
    const read = ({ hash }) =>
      document.getElementById(decodeURIComponent(hash.slice(1)))?.getBoundingClientRect().top < TOP;
    const here = atEnd ? links.at(-1) : links.findLast(read);
    if (here?.hasAttribute("aria-current")) return;
    for (const link of links) link.removeAttribute("aria-current");
    here?.setAttribute("aria-current", "true");
    const line = (here ?? links[0])?.getBoundingClientRect();
    const room = box?.getBoundingClientRect();
    if (!line?.height || !room) return;
    if (line.top < room.top + 60 || line.bottom > Math.min(room.bottom, innerHeight) - 60) {
      box.scrollTop += line.top - room.top - room.height / 2;
    }
  };
  addEventListener("scroll", follow, { passive: true });
  addEventListener("resize", follow);
  addEventListener("load", follow);
});
