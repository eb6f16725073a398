// A picture of the current state, 1200 x 630 pixels, for a message or a post.
import { byId, data, make, shown, state, view } from "./core.mjs";
import { message } from "./messages.mjs";
import { wordOf } from "./names.mjs";
import { idsOf, speaks, written } from "./output.mjs";

const [WIDTH, HEIGHT, TOP, ROOM] = [1200, 630, 128, 36];

const faceImage = async (word) => {
  const symbol = byId(`face-${word}`);
  if (!symbol) return null;
  const image = new Image();
  const shape = `width="96" height="96" viewBox="${symbol.getAttribute("viewBox")}"`;
  const source = `<svg xmlns="http://www.w3.org/2000/svg" ${shape}>${symbol.innerHTML}</svg>`;
  image.src = `data:image/svg+xml,${encodeURIComponent(source)}`;
  await image.decode();
  return image;
};

const paintMap = (context) => {
  const origin = byId("map").getBoundingClientRect();
  const scale = Math.min((WIDTH - 2 * ROOM) / origin.width, (HEIGHT - TOP - 54) / origin.height);
  context.save();
  context.translate((WIDTH - origin.width * scale) / 2, TOP);
  context.scale(scale, scale);
  for (const node of document.querySelectorAll("#stations :is(.station, .n)")) {
    const { left, top, width, height } = node.getBoundingClientRect();
    context.fillStyle = getComputedStyle(node).backgroundColor;
    context.beginPath();
    context.roundRect(left - origin.left, top - origin.top, width - 1, height - 1, node.matches(".n") ? 2 : 10);
    context.fill();
  }
  for (const path of document.querySelectorAll("#threads path")) {
    const style = getComputedStyle(path);
    context.globalAlpha = Number(style.strokeOpacity);
    context.strokeStyle = style.stroke;
    context.lineWidth = parseFloat(style.strokeWidth);
    context.stroke(new Path2D(path.getAttribute("d")));
  }
  context.restore();
};

const paint = async () => {
  const canvas = make("canvas", { width: WIDTH, height: HEIGHT });
  const context = canvas.getContext("2d");
  const { color, backgroundColor, fontFamily } = getComputedStyle(document.body);
  context.fillStyle = backgroundColor;
  context.fillRect(0, 0, WIDTH, HEIGHT);
  context.textBaseline = "middle";
  let x = ROOM;
  const write = (text, size, y = 66) => {
    context.fillStyle = color;
    context.font = `600 ${size}px ${fontFamily}`;
    context.fillText(text, x, y);
    x += context.measureText(text).width + 14;
  };
  const word = async (text) => {
    const image = await faceImage(text);
    if (image) context.drawImage(image, x, 40, 50, 50);
    x += image ? 56 : 0;
    write(text, 42);
  };
  if (speaks()) {
    for (const id of idsOf(view.front)) await word(wordOf(id, "src", 0));
    write("→", 42);
    for (const { word: said, graded, right } of written(view.front)) {
      await word(said);
      if (graded) write(right ? "✓" : "✗", 34);
    }
  } else write(data.runs[state.number].title, 42);
  paintMap(context);
  x = ROOM;
  if (state.engine.target >= 0) write(message("loss {value}", { value: shown().values[state.engine.target].toFixed(4) }), 22, HEIGHT - 28);
  context.textAlign = "right";
  x = WIDTH - ROOM;
  write(message("Pull a thread: Twelve Numbers"), 22, HEIGHT - 28);
  return canvas;
};

export const savePicture = async () => {
  const canvas = await paint();
  const link = make("a", { href: canvas.toDataURL("image/png"), download: "twelve-numbers.png" });
  link.click();
};
