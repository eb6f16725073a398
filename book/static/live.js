// Gives the frame of the live model the colour scheme of the page and the height of its content. On
// the home page, the model's message stays visible as long as a part of the model is visible.
{
  const HIGHEST = 1100; // for a part in a lesson
  const frames = () => [...document.querySelectorAll("iframe.explorer, iframe.live")];
  const dress = () => {
    const theme = document.documentElement.dataset.theme;
    for (const frame of frames()) frame.contentWindow.postMessage({ theme }, "*");
  };
  const foot = document.createElement("p");
  foot.className = "live-foot";
  foot.ariaHidden = "true";
  const seen = new IntersectionObserver(([{ isIntersecting }]) => {
    foot.hidden = !isIntersecting;
  });
  // Run now: a frame may be ready before the page around it.
  addEventListener("message", ({ source, data }) => {
    const frame = frames().find((each) => each.contentWindow === source);
    if (!frame) return;
    const home = frame.matches(".explorer");
    if (home && Array.isArray(data?.said)) {
      foot.textContent = data.said.join("\u2002 ");
      if (foot.isConnected) return;
      document.body.append(foot);
      seen.observe(frame);
    }
    if (!(data?.height > 0)) return;
    const height = Math.min(Math.ceil(data.height), home ? Infinity : HIGHEST);
    if (home || height > frame.clientHeight) frame.style.height = `${height}px`;
    dress();
  });
  new MutationObserver(dress).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
}
