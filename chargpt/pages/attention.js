
"use strict";
// The page of `python -m chargpt attention`. A map is what one choice shows: a head, the mean of a layer, or the mean of all. Its
// weights are a Uint8Array with the triangle of attention, row by row: t * (t + 1) / 2 + s holds round(255 * sqrt(weight)) of how
// much character t attends to character s.

const facts = JSON.parse(document.getElementById("facts").textContent);
const T = facts.characters.length, TRIANGLE = T * (T + 1) / 2;
const WEIGHT = Float32Array.from({ length: 256 }, (_, level) => (level / 255) ** 2);
const LISTED = 5, LEAST = 0.0005, CONTEXT = 6, SMALL = 96;
const byId = id => document.getElementById(id);
const text = byId("text");
const spans = [], maps = [];
let all;  // the triangles of all heads, one after the other
let shown = 0;  // the index of the map that is shown
let marked = 0, keptMarked = false, pointedAt = -1;

const element = (name, content = "", className = "") => {
  const made = document.createElement(name);
  made.textContent = content;
  if (className) made.className = className;
  return made;
};
const label = i => facts.labels[facts.characters[i]];
const isEscape = content => content.length > 1 && content[0] === "\\";
const inText = i => label(i).length > 1 && label(i)[0] === "◌" ? label(i).slice(1) : label(i);  // a mark joins the letter before
const level = (weights, t, s) => weights[t * (t + 1) / 2 + s];
const colour = name => getComputedStyle(document.body).getPropertyValue(name).trim();

async function readWeights() {
  const encoded = atob(JSON.parse(byId("weights").textContent));
  const packed = new Uint8Array(encoded.length);
  for (let i = 0; i < encoded.length; i++) packed[i] = encoded.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function mean(parts) {
  const levels = new Uint8Array(TRIANGLE), sum = new Float32Array(TRIANGLE);
  for (const part of parts) for (let i = 0; i < TRIANGLE; i++) sum[i] += WEIGHT[part[i]];
  for (let i = 0; i < TRIANGLE; i++) levels[i] = Math.round(255 * Math.sqrt(sum[i] / parts.length));
  return levels;
}

function weightsOf(map) {  // means are computed when they are first shown
  map.weights ??= mean(map.heads.map(head => all.subarray(head * TRIANGLE, (head + 1) * TRIANGLE)));
  return map.weights;
}

function listMaps() {
  const range = n => Array.from({ length: n }, (_, i) => i);
  const { layers, heads } = facts;
  maps.push({ title: "mean of all heads", short: "all", name: "", heads: range(layers * heads) });
  for (let layer = 0; layer < layers; layer++) {
    const first = layer * heads;
    maps.push({ title: `layer ${layer + 1}, mean`, short: `${layer + 1} mean`, name: "", layer, heads: range(heads).map(h => first + h) });
    for (let head = 0; head < heads; head++) {
      const weights = all.subarray((first + head) * TRIANGLE, (first + head + 1) * TRIANGLE);
      const name = facts.names[layer][head];
      maps.push({ title: `layer ${layer + 1}, head ${head + 1}`, short: `${layer + 1}.${head + 1}`, name, layer, head, weights });
    }
  }
}

function writeText() {
  for (let i = 0; i < T; i++) {
    const span = element("span", { "␣": " ", "↵": "↵\n", "⇥": "⇥\t" }[label(i)] ?? inText(i));
    if (isEscape(label(i)) || "↵⇥".includes(label(i))) span.className = "shown";
    span.dataset.i = i;
    spans.push(span);
  }
  text.replaceChildren(...spans);
}

// A ground behind each character, in two colours (see attention.css); shades are relative to the strongest weight of each.
function drawOverText() {
  const weights = weightsOf(maps[shown]), levels = spans.map((_, i) => level(weights, Math.max(i, marked), Math.min(i, marked)));
  const [to, from] = [levels.slice(0, marked + 1), levels.slice(marked + 1)].map(part => Math.max(1, ...part));
  spans.forEach((span, i) => {
    span.style.setProperty("--shade", levels[i] / (i > marked ? from : to));
    span.classList.toggle("marked", i === marked);
    span.classList.toggle("pointed", i === pointedAt);
  });
}

function gainOf(weights) {  // what makes all but one in 500 of the weights of a map less than opaque
  const counts = new Uint32Array(256);
  for (let i = 0; i < weights.length; i++) counts[weights[i]]++;
  let top = 255;
  for (let left = weights.length / 500; top > 16 && (left -= counts[top]) > 0; top--);
  return 255 / top;
}

function paint(canvas, width, levels, gain) {  // one colour, whose opacity is the level of a weight
  canvas.width = canvas.height = width;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour("--accent");
  context.fillRect(0, 0, 1, 1);
  const accent = context.getImageData(0, 0, 1, 1), image = context.createImageData(width, width);
  const out = new Uint32Array(image.data.buffer), palette = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    accent.data[3] = Math.min(255, gain * value);
    palette[value] = new Uint32Array(accent.data.buffer)[0];
  }
  for (let i = 0; i < out.length; i++) out[i] = palette[levels[i]];
  context.putImageData(image, 0, 0);
}

function drawMap() {
  const weights = weightsOf(maps[shown]), square = new Uint8Array(T * T);
  for (let t = 0; t < T; t++) square.set(weights.subarray(t * (t + 1) / 2, (t + 1) * (t + 2) / 2), t * T);
  paint(byId("weights-map"), T, square, gainOf(weights));
  byId("weights-map").style.imageRendering = T < 400 ? "pixelated" : "auto";
}

function drawSmall(canvas, map) {  // the strongest weight of each cell, so that thin lines stay visible
  const weights = weightsOf(map), width = Math.min(T, SMALL), strongest = new Uint8Array(width * width);
  const cell = Uint16Array.from({ length: T }, (_, t) => Math.floor(t * width / T));
  for (let t = 0, i = 0; t < T; t++) {
    const row = cell[t] * width;
    for (let s = 0; s <= t; s++, i++) {
      if (weights[i] > strongest[row + cell[s]]) strongest[row + cell[s]] = weights[i];
    }
  }
  paint(canvas, width, strongest, gainOf(weights));
  canvas.style.imageRendering = "pixelated";
}

function drawCross() {
  for (const [name, i] of [["--row", marked], ["--column", pointedAt]]) byId("map").style.setProperty(name, (i + 0.5) / T);
  byId("point").hidden = pointedAt < 0;
}

function percent(value) {
  return value >= 0.0995 ? `${(100 * value).toFixed(0)} %` : `${(100 * value).toFixed(1)} %`;
}

function list(target, entries) {  // entries: [place, level]
  entries.sort((a, b) => b[1] - a[1]);
  byId(target).replaceChildren(...entries.slice(0, LISTED).filter(entry => WEIGHT[entry[1]] >= LEAST).map(([i, value]) => {
    const item = element("li"), band = element("span", "", "band"), around = element("span", "", "mono");
    band.style.width = `${100 * WEIGHT[value]}%`;
    const letters = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, k) => inText(from + k)).join("");
    around.append(letters(Math.max(0, i - CONTEXT), i), element("b", label(i)), letters(i + 1, Math.min(T, i + 1 + CONTEXT)));
    item.append(band, element("span", percent(WEIGHT[value]), "share"), around);
    return item;
  }));
}

function describe() {
  const weights = weightsOf(maps[shown]), to = [], from = [];
  for (let s = 0; s <= marked; s++) to.push([s, level(weights, marked, s)]);
  for (let t = marked + 1; t < T; t++) from.push([t, level(weights, t, marked)]);
  const column = pointedAt >= 0 ? pointedAt : to.reduce((best, entry) => entry[1] > best[1] ? entry : best)[0];
  const back = marked - column, where = back === 0 ? "itself" : `${label(column)}, ${back} back`;
  byId("said").textContent =
    `${label(marked)} (character ${marked + 1} of ${T}) gives ${percent(WEIGHT[level(weights, marked, column)])} to ${where}`;
  list("to", to);
  list("from", from);
}

function redraw() {
  drawOverText();
  drawCross();
  describe();
}

function mark(i, column = -1) {
  if (i === marked && column === pointedAt) return;
  [marked, pointedAt] = [i, column];
  redraw();
}

function show(index) {
  shown = (index + maps.length) % maps.length;
  const map = maps[shown];
  byId("chosen").value = shown;
  const [layer, head, leaning] = facts.first, isFirst = map.layer === layer && map.head === head;
  byId("pattern").classList.toggle("named", Boolean(map.name));  // a phone shows the name in the list alone
  byId("pattern").textContent = map.name ? `pattern: ${map.name}` : isFirst && leaning ? `most like: ${leaning}` : "";
  maps.forEach((other, i) => other.button.setAttribute("aria-pressed", i === shown));
  for (const row of byId("measures").tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.map) === shown);
  drawMap();
  redraw();
}

// The character to begin with: of the text after its first quarter, that whose attention is the most on one character. The last
// two characters count only for a head that follows the character before.
function clearest(map) {
  const least = ["previous", "itself"].includes(map.name) ? 0 : 2, weights = weightsOf(map);
  let best = T - 1, most = -1;
  for (let t = Math.floor(T / 4); t < T; t++) {
    for (let s = 0; s <= t - least; s++) if (level(weights, t, s) > most) [best, most] = [t, level(weights, t, s)];
  }
  return best;
}

function fillChoices() {
  const grid = byId("grid");
  grid.style.gridTemplateColumns = `repeat(${facts.heads + 1}, auto)`;
  maps.forEach((map, i) => {
    byId("chosen").append(new Option(map.name ? `${map.title} (${map.name})` : map.title, i));
    map.button = element("button");
    map.canvas = element("canvas");
    map.button.setAttribute("aria-label", map.name ? `${map.title}, ${map.name}` : map.title);
    map.button.append(map.canvas, map.short, element("span", map.name, "name"));
    map.button.addEventListener("click", () => show(i));
    if (i === 0) map.button.style.gridColumn = "1 / -1";
    grid.append(map.button);
  });
}

function listenToMeasures() {
  const table = byId("measures"), [body] = table.tBodies, signs = {};  // of the last order by a column
  body.addEventListener("click", event => show(Number(event.target.closest("tr").dataset.map)));
  table.tHead.addEventListener("click", event => {
    const column = event.target.closest("button")?.parentElement.cellIndex, sign = signs[column] = -(signs[column] ?? -1);
    const value = row => column ? Number(row.cells[column].textContent) : -row.dataset.map;
    if (column >= 0) body.append(...[...body.rows].sort((a, b) => sign * (value(b) - value(a))));
  });
}

function nextLine(from, direction) {  // the nearest character of the line above or below
  const box = i => spans[i].getClientRects()[0], { left, top } = box(from);
  let best = from, least = Infinity;
  for (let i = from + direction; i >= 0 && i < T; i += direction) {
    const other = box(i);
    if (Math.abs(other.top - top) < 2) continue;
    if (best !== from && Math.abs(other.top - box(best).top) > 2) break;
    if (Math.abs(other.left - left) < least) [best, least] = [i, Math.abs(other.left - left)];
  }
  return best;
}

function listen() {
  const at = event => Number(event.target.dataset?.i ?? -1);
  text.addEventListener("pointermove", event => { if (!keptMarked && at(event) >= 0) mark(at(event)); });
  text.addEventListener("click", event => {
    if (at(event) < 0) return;
    keptMarked = !(keptMarked && at(event) === marked);
    mark(at(event));
  });
  const keys = {
    ArrowLeft: () => Math.max(0, marked - 1), ArrowRight: () => Math.min(T - 1, marked + 1), Home: () => 0, End: () => T - 1,
    ArrowUp: () => nextLine(marked, -1), ArrowDown: () => nextLine(marked, 1),
  };
  text.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") keptMarked = false;
    else if (event.key === "Enter") keptMarked = true;
    else if (event.key === "PageUp" || event.key === "PageDown") show(shown + (event.key === "PageUp" ? -1 : 1));
    else if (keys[event.key]) {
      mark(keys[event.key]());
      spans[marked].scrollIntoView({ block: "nearest" });
    } else return;
    event.preventDefault();
  });
  byId("map").addEventListener("pointermove", event => {
    const box = byId("weights-map").getBoundingClientRect();
    const place = share => Math.max(0, Math.min(T - 1, Math.floor(T * share)));
    const t = place((event.clientY - box.top) / box.height);
    mark(t, Math.min(t, place((event.clientX - box.left) / box.width)));
  });
  byId("map").addEventListener("pointerleave", () => mark(marked));
  byId("chosen").addEventListener("change", event => show(Number(event.target.value)));
  byId("before").addEventListener("click", () => show(shown - 1));
  byId("after").addEventListener("click", () => show(shown + 1));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}

async function drawSmallOnes() {  // one for each picture of the screen, so that the page answers meanwhile
  for (const map of maps) {
    await new Promise(requestAnimationFrame);
    drawSmall(map.canvas, map);
  }
}

function drawAll() {
  drawMap();
  redraw();
  return drawSmallOnes();
}

async function start() {
  writeText();
  all = await readWeights();
  listMaps();
  fillChoices();
  listenToMeasures();
  listen();
  const first = maps.findIndex(map => map.layer === facts.first[0] && map.head === facts.first[1]);
  marked = clearest(maps[first]);
  show(first);
  performance.mark("ready");
  await drawSmallOnes();
  document.body.dataset.state = "complete";
}

start().catch(problem => { byId("said").textContent = `The weights could not be read: ${problem.message}; use a newer browser.`; });
