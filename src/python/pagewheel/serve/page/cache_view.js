// The live view of a model's cache, asked for twice a second while it is seen.
import { getJson } from "./api.js";
import { drawBlocks, drawMap, ownerColour, swatch } from "./cache_drawing.js";
import { byId, make } from "./dom.js";
import { state } from "./store.js";

const EVERY = 500; // milliseconds
let isShown = false;
let timer = null;
let before = null; // the view of the last time
let chosen = null; // the request whose kept tokens are asked for; null: of which most was evicted

export function showCache(shown) {
  isShown = shown;
  schedule(0);
}

document.addEventListener("visibilitychange", () => schedule(0));

function schedule(delay) {
  clearTimeout(timer);
  if (isShown && !document.hidden) timer = setTimeout(refresh, delay);
}

async function refresh() {
  try {
    const query = new URLSearchParams({ model: state.settings.model });
    if (chosen !== null) query.set("request", chosen);
    draw(await getJson(`/cache?${query}`));
  } catch (error) {
    const reasons = { 401: "The server wants an API key: enter it in the settings.", 403: "The server does not show its cache, as API keys share cached prefixes." };
    byId("cache-note").textContent = reasons[error.status] ?? "The view could not be loaded.";
  }
  schedule(EVERY);
}

function draw(view) {
  byId("cache-note").textContent = view.loaded ? "" : `${view.model} is not in memory.`;
  if (!view.loaded) return;
  const owners = ownersOf(view);
  drawTiles(view);
  drawBlocks(byId("blocks"), view, owners);
  drawLegend(view);
  drawSequences(view, owners);
  drawKept(view.kept);
  before = view;
}

/// Of each block, the sequences that hold it.
function ownersOf(view) {
  const owners = new Map();
  view.sequences.forEach((sequence, index) => {
    for (const block of sequence.blocks) owners.set(block, [...(owners.get(block) ?? []), index]);
  });
  return owners;
}

function counts(view) {
  const sums = view.states.map(() => 0);
  for (let i = 0; i < view.blocks.length; i += 2) sums[view.blocks[i]] += view.blocks[i + 1];
  return sums;
}

function drawTiles(view) {
  const [free, used, shared, cached, pinned] = counts(view);
  const seconds = before?.model === view.model ? view.time - before.time : 0;
  const rate = (name) => (seconds > 0 ? ((view[name] - before[name]) / seconds).toFixed(0) : "–");
  const hits = view.prompt_tokens ? `${Math.round((100 * view.prefix_hit_tokens) / view.prompt_tokens)}%` : "–";
  const tiles = {
    "tokens/s made": rate("generated_tokens"),
    "tokens/s computed": rate("computed_tokens"),
    "in the last step": `${view.step.tokens} of ${view.step.sequences}`,
    "last step": `${(view.step.microseconds / 1000).toFixed(1)} ms`,
    running: view.running,
    queue: view.queued,
    preempted: view.preempted,
    "from prefixes": hits,
    "blocks used": used + shared,
    "kept for prefixes": cached + pinned,
    "blocks free": free,
  };
  const items = Object.entries(tiles).map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value })));
  byId("tiles").replaceChildren(...items);
  byId("blocks").setAttribute("aria-label", `Blocks: ${used} used by one, ${shared} shared, ${cached} kept for prefixes, ${pinned} pinned, ${free} free`);
}

function drawLegend(view) {
  const sums = counts(view);
  const items = view.states.map((name, index) => make("li", {}, swatch(name), `${name} ${sums[index]}`));
  byId("legend").replaceChildren(...items);
}

function nameOf(sequence) {
  const name = sequence.request === null ? "·" : `#${sequence.request}`;
  return sequence.index ? `${name}.${sequence.index}` : name;
}

function sharedWith(view, owners, index) {
  const with_ = new Map();
  for (const block of view.sequences[index].blocks) {
    for (const other of owners.get(block)) if (other !== index) with_.set(other, (with_.get(other) ?? 0) + 1);
  }
  return [...with_].map(([other, count]) => `${nameOf(view.sequences[other])} (${count})`).join(", ") || "–";
}

function drawSequences(view, owners) {
  const rows = view.sequences.map((one, index) => {
    const mark = swatch("used", ownerColour(one.request ?? 0));
    const choose = make("button", { type: "button", textContent: nameOf(one) });
    choose.setAttribute("aria-label", `Show what eviction keeps of request ${nameOf(one)}`);
    choose.addEventListener("click", () => (chosen = chosen === one.request ? null : one.request));
    const cells = [one.state, `${one.tokens} (${one.prompt_tokens} prompt)`, one.blocks.length, one.evicted, one.prefix_hits, sharedWith(view, owners, index)];
    return make("tr", {}, make("td", {}, mark, " ", choose), ...cells.map((text) => make("td", { textContent: text })));
  });
  if (!rows.length) rows.push(make("tr", {}, make("td", { colSpan: 7, textContent: "No request is running." })));
  keepFocus(() => byId("sequences").tBodies[0].replaceChildren(...rows));
}

/// The table is drawn anew; whoever walks it by keyboard stays in place.
function keepFocus(work) {
  const buttons = () => [...byId("sequences").querySelectorAll("button")];
  const place = buttons().indexOf(document.activeElement);
  work();
  if (place >= 0) buttons()[place]?.focus();
}

function drawKept(kept) {
  byId("kept").hidden = !kept;
  if (!kept) return;
  byId("kept-text").textContent = `Request #${kept.request}: ${kept.layers.length} layers, ${kept.tokens} tokens so far; a column is ${kept.tokens_per_bin} tokens of the text.`;
  drawMap(byId("kept-map"), kept.layers, kept.tokens_per_bin, [47, 101, 163]);
  drawMap(byId("rotated-map"), kept.rotated, Math.max(1, ...kept.rotated.flat()), [184, 92, 40]);
}
