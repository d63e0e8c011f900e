// Pictures of the cache: a square per block, a map of layers.
const GAP = 1;
const MOST_HEIGHT = 420; // pixels; a large cache gets smaller squares
const hues = (number) => (number * 137.5 + 210) % 360; // neighbours differ
const isDark = () => document.documentElement.dataset.theme === "dark";

export const ownerColour = (request) => `hsl(${hues(request)} 58% ${isDark() ? 62 : 48}%)`;

function stateColour(name) {
  const colours = isDark()
    ? { free: "#252c36", used: "#7fb0ea", shared: "#d9c25c", cached: "#56657a", pinned: "#b78ae0" }
    : { free: "#e7eaef", used: "#3b76b8", shared: "#c29a1a", cached: "#a9b8ca", pinned: "#8453b5" };
  return colours[name];
}

function sized(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

export function swatch(name, colour = stateColour(name)) {
  const canvas = document.createElement("canvas");
  square(sized(canvas, 12, 12), 0, 0, 12, colour, name === "shared");
  return canvas;
}

function square(context, x, y, side, colour, isStriped) {
  context.fillStyle = colour;
  context.fillRect(x, y, side, side);
  if (!isStriped || side < 4) return;
  context.strokeStyle = isDark() ? "#0009" : "#fffc";
  context.lineWidth = Math.max(1, side / 7);
  context.beginPath();
  context.moveTo(x, y + side);
  context.lineTo(x + side, y);
  context.stroke();
}

/// The side of a square with which `count` of them fill the width, and not too much of the height.
function sideFor(count, width) {
  for (let side = 16; side > 2; --side) {
    const rows = Math.ceil(count / Math.floor(width / (side + GAP)));
    if (rows * (side + GAP) <= MOST_HEIGHT) return side;
  }
  return 2;
}

export function drawBlocks(canvas, view, owners) {
  const total = view.blocks.reduce((sum, value, index) => sum + (index % 2 ? value : 0), 0);
  const width = canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(canvas.parentElement).paddingLeft);
  const side = sideFor(total, width);
  const columns = Math.max(1, Math.floor(width / (side + GAP)));
  const context = sized(canvas, width, Math.ceil(total / columns) * (side + GAP));
  let block = 0;
  for (let i = 0; i < view.blocks.length; i += 2) {
    const name = view.states[view.blocks[i]];
    for (const end = block + view.blocks[i + 1]; block < end; ++block) {
      const held = owners.get(block);
      const colour = held ? ownerColour(view.sequences[held[0]].request ?? 0) : stateColour(name);
      const x = (block % columns) * (side + GAP);
      square(context, x, Math.floor(block / columns) * (side + GAP), side, colour, name === "shared");
    }
  }
}

/// A row per layer, a column per range of tokens; `most` is the fullest colour.
export function drawMap(canvas, rows, most, [red, green, blue]) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.flat().forEach((value, index) => image.data.set([red, green, blue, 255 * Math.min(1, value / most)], 4 * index));
  context.putImageData(image, 0, 0);
}
