// The live model in its frame: as dark or light as the page around it, and on the home page as high
// as it needs; its parts in the lessons have their heights.
addEventListener("DOMContentLoaded", () => {
  const frames = [...document.querySelectorAll("iframe.explorer, iframe.live")];
  const dress = () => {
    const theme = document.documentElement.dataset.theme;
    for (const frame of frames) frame.contentWindow.postMessage({ theme }, "*");
  };
  addEventListener("message", ({ source, data }) => {
    const frame = frames.find((each) => each.contentWindow === source);
    if (!frame || !(data?.height > 0)) return;
    if (frame.matches(".explorer")) frame.style.height = `${Math.ceil(data.height)}px`;
    dress();
  });
  new MutationObserver(dress).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
});
