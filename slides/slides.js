// Typeset the equations, shrink the font of each slide until its content fits, and start reveal.js.
const FROM = 34;
const TO = 17;

// All slides are visible during measurement; reveal.js hides them afterwards.
const fit = (slide) => {
  const figure = slide.querySelector(".figure img");
  const narrow = figure?.naturalWidth < 1.55 * figure?.naturalHeight;
  slide.classList.toggle("tall", narrow && figure.naturalHeight > 520);
  const tooLarge = () => slide.scrollHeight > slide.clientHeight || slide.scrollWidth > slide.clientWidth;
  for (let size = FROM; size >= TO; size -= 1) {
    slide.style.fontSize = `${size}px`;
    if (!tooLarge()) break;
  }
  // If a figure or an output needs the room, drop the text: the speaker notes also have it.
  const { width, height } = figure?.getBoundingClientRect() ?? {};
  if (tooLarge() || width < 0.96 * figure?.naturalWidth || height < 0.96 * figure?.naturalHeight) {
    slide.querySelectorAll(".words").forEach((words) => words.remove());
  }
};

const start = async () => {
  await MathJax.startup.promise;
  // The speaker view lacks the style that hides screen-reader text.
  document.querySelectorAll(".notes mjx-assistive-mml").forEach((part) => part.remove());
  await Promise.all([...document.images].map((picture) => picture.decode()));
  document.querySelectorAll("section section").forEach(fit);
  for (const frame of document.querySelectorAll("iframe.live")) {
    frame.contentWindow.postMessage({ theme: "light" }, "*");
  }
  document.body.classList.remove("measured");
  await Reveal.initialize({
    width: 1280,
    height: 720,
    margin: 0,
    center: false,
    display: "flex",
    hash: true,
    slideNumber: "c/t",
    transition: "none",
    viewDistance: 3,
    pdfSeparateFragments: false,
    pdfMaxPagesPerSlide: 1,
    plugins: [RevealNotes],
  });
};

window.MathJax = {
  tex: { inlineMath: [["$", "$"]], displayMath: [["$$", "$$"]] },
  options: { enableMenu: false, ignoreHtmlClass: "highlight" },
  startup: {
    ready: () => {
      MathJax.startup.defaultReady();
      start();
    },
  },
};
