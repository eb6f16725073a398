// What comes before reveal.js: equations are set and type is fitted while all slides have a size.
(() => {
  // What is set in which size, and how small it may become: first to the one, then to the other.
  const SIZES = {
    "--type": { of: "pre, .html", floors: [24, 16] },
    "--math": { of: "mjx-container", floors: [36, 24] },
    "--text": { of: "p:not(:has(mjx-container[display])), li, table", floors: [26, 20] },
  };

  const wide = (part, room) => part.scrollWidth > room || part.getBoundingClientRect().width > room;

  // Takes a pixel off where something is too wide, and off all where it is too much; then gives
  // back what was taken in vain.
  const fit = (slide) => {
    const body = slide.querySelector(".body");
    slide.classList.add("row");
    const size = (name) => parseFloat(getComputedStyle(slide).getPropertyValue(name));
    const change = (name, by) => slide.style.setProperty(name, `${size(name) + by}px`);
    const shrink = (name) => change(name, -1);
    const fits = (name) => {
      const parts = [...body.querySelectorAll(SIZES[name].of)];
      return !parts.some((part) => wide(part, body.clientWidth));
    };
    const full = () => body.scrollHeight > body.clientHeight || body.scrollWidth > body.clientWidth;
    const all = Object.keys(SIZES);
    const wanted = Object.fromEntries(all.map((name) => [name, size(name)]));
    for (const round of [0, 1]) {
      const larger = (name) => size(name) > SIZES[name].floors[round];
      for (const name of all) {
        while (larger(name) && !fits(name)) shrink(name);
      }
      if (!fits("--type")) slide.classList.remove("row");
      while (full() && all.some(larger)) all.filter(larger).forEach(shrink);
    }
    for (const name of all) {
      while (size(name) < wanted[name]) {
        change(name, 1);
        if (fits(name) && !full()) continue;
        shrink(name);
        break;
      }
    }
  };

  // How far a picture of 100 dots an inch may be blown up, how wide one may be for its height to
  // stand beside heading and words, where it can be larger than below them, and how small a picture
  // may become before the words, which are spoken anyway, give way to it.
  const [ZOOM, BESIDE, SMALL] = [1.8, 1.8, 0.96];
  const place = (picture) => {
    picture.style.maxWidth = `min(100%, ${ZOOM * picture.naturalWidth}px)`;
    const beside = picture.naturalWidth < BESIDE * picture.naturalHeight;
    picture.closest("section").classList.toggle("halves", beside);
  };

  const clear = (picture) => {
    const { width, height } = picture.getBoundingClientRect();
    if (Math.min(width / picture.naturalWidth, height / picture.naturalHeight) > SMALL) return;
    picture.closest("section").querySelectorAll(".words .text").forEach((text) => text.remove());
  };

  const start = async () => {
    await MathJax.startup.promise;
    // The speaker's view takes over the notes without the style that hides what is read aloud.
    document.querySelectorAll(".notes mjx-assistive-mml").forEach((part) => part.remove());
    await Promise.all([...document.images].map((picture) => picture.decode()));
    document.querySelectorAll(".figure img").forEach(place);
    document.querySelectorAll(".slides > section").forEach(fit);
    document.querySelectorAll(".figure img").forEach(clear);
    // A slide is light, whatever the reader's theme is, and so is what stands on it.
    document.querySelectorAll(".live iframe").forEach((frame) => {
      frame.contentWindow.postMessage({ theme: "light" }, "*");
    });
    document.body.classList.remove("laying");
    await Reveal.initialize({
      width: 1280,
      height: 720,
      margin: 0,
      center: false,
      display: "flex",
      hash: true,
      slideNumber: "c/t",
      transition: "none",
      backgroundTransition: "none",
      viewDistance: 3,
      pdfSeparateFragments: false,
      pdfMaxPagesPerSlide: 1,
      plugins: [RevealNotes],
    });
  };

  window.MathJax = {
    tex: { inlineMath: [["$", "$"]], displayMath: [["$$", "$$"]] },
    options: { enableMenu: false, ignoreHtmlClass: "code|output" },
    startup: {
      ready: () => {
        MathJax.startup.defaultReady();
        start();
      },
    },
  };
})();
