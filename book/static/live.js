// Gives the frame of a live part the colour scheme of the page and the height of its content.
{
  const HIGHEST = 1500;
  const frames = () => [...document.querySelectorAll("iframe.live")];
  const dress = () => {
    const theme = document.documentElement.dataset.theme;
    for (const frame of frames()) frame.contentWindow.postMessage({ theme }, "*");
  };
  // Run now: a frame may be ready before the page around it.
  addEventListener("message", ({ source, data }) => {
    const frame = frames().find((each) => each.contentWindow === source);
    if (!frame || !(data?.height > 0)) return;
    const height = Math.min(Math.ceil(data.height), HIGHEST);
    if (height > frame.clientHeight) frame.style.height = `${height}px`;
    dress();
  });
  new MutationObserver(dress).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
}
