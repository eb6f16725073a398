// Sets the equations, lets the type of each slide shrink until it fits, and starts reveal.js.
const FROM = 34;
const TO = 17;

// All slides are laid out while they are measured; reveal.js hides them afterwards.
const fit = (slide) => {
  const figure = slide.querySelector(".figure img");
  const narrow = figure?.naturalWidth < 1.6 * figure?.naturalHeight;
  slide.classList.toggle("tall", narrow && figure.naturalHeight > 520);
  const tooLarge = () => slide.scrollHeight > slide.clientHeight || slide.scrollWidth > slide.clientWidth;
  for (let size = FROM; size >= TO; size -= 1) {
    slide.style.fontSize = `${size}px`;
    if (!tooLarge()) break;
  }
  // The notes hold the words of a figure that needs their room.
  const { width, height } = figure?.getBoundingClientRect() ?? {};
  if (width < 0.96 * figure?.naturalWidth || height < 0.96 * figure?.naturalHeight) {
    slide.querySelectorAll(".words").forEach((words) => words.remove());
  }
};

const start = async () => {
  await MathJax.startup.promise;
  // The speaker's view has no style that hides what is read aloud.
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
