/* The user interface: what is written, the chosen character with its alternatives, and the attention that led to it. */
const $ = (id) => document.getElementById(id);
const ASKED = 200; // characters in the list of those that the prompt leaves out
const MOST = 20000; // ids of a prompt; more would make the page slow
// What could reorder or hide text; it is shown as an escape. (chargpt/formatting.py has the same list.)
const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const NAMES = { " ": "space", "\n": "line break", "\t": "tab", "\ufffd": "any other character" };
const SIGNS = { " ": "\u2423", "\n": "\u21b5", "\t": "\u21e5" };
const WIDE = /[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\u{20000}-\u{3ffff}]/u; // East Asian characters

/* ---- The model ---- */

let about, shape, tokenizer, items; // items: {end, labels} of a model of items; null of any other
let usual, limits, unit; // bits: what an id costs on average, and where a colour begins; what ids are

const escaped = (text) => text.replace(CONTROLS, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** How an id is shown by itself: a sign, and what a screen reader says. */
function shown(id) {
  const { isBytes, characters } = tokenizer;
  if (isBytes && id > 127) return { sign: id.toString(16).toUpperCase(), name: `byte ${id.toString(16).toUpperCase()}` };
  const character = isBytes ? String.fromCharCode(id) : characters[id];
  const sign = SIGNS[character] ?? (/\p{M}/u.test(character) ? "\u25cc" + character : escaped(character));
  return { sign, name: NAMES[character] ?? escaped(character), point: "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") };
}

const percent = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.00095 ? `${(100 * p).toFixed(1)} %` : p > 0 ? "< 0.1 %" : "0 %");
const count = (n) => Math.round(n).toLocaleString("en");
const create = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });

/* ---- The text: each id with its prediction, shown as spans, a line in a div ---- */

const records = []; // of each id: {id, from: where its context began, probability, top}
const spans = []; // of each id; the bytes of a character share one
let hidden = 0; // ids at the beginning that are not shown: the newline that a text without a prompt continues
let promptEnd = 0; // the first id that the model wrote
let decoder = null, line = null, open = null; // open: the span of a character whose last byte has not come

function clear() {
  records.length = spans.length = 0;
  decoder = tokenizer.isBytes ? new TextDecoder("utf-8", { ignoreBOM: true }) : null;
  line = open = null;
  $("text").replaceChildren();
  choose(-1);
}

function append(record) {
  const index = records.push(record) - 1;
  if (index < hidden) return spans.push(null);
  const span = open ?? newSpan(index);
  spans.push(span);
  span.bits += Number.isNaN(record.probability) ? 0 : -Math.log2(record.probability);
  const text = decoder ? decoder.decode(Uint8Array.of(record.id), { stream: true }) : tokenizer.characters[record.id];
  open = text === "" ? span : null;
  show(span, text || "\ufffd");
  if (text.endsWith("\n")) line = null;
}

function newSpan(index) {
  if (line === null) line = $("text").appendChild(create("div", "line"));
  const span = line.appendChild(create("span"));
  span.index = index;
  span.bits = 0;
  return span;
}

function show(span, text) {
  const visible = escaped(text.replace("\n", ""));
  const level = Number.isNaN(records[span.index].probability) ? 1 : limits.filter((limit) => span.bits >= limit).length;
  span.textContent = visible;
  span.className = `s${level}`;
  if (span.index < promptEnd) span.classList.add("prompt");
  if (text.endsWith("\n")) span.classList.add("end");
  if (visible !== text.replace("\n", "")) span.classList.add("odd");
}

/** Show only the first n ids. */
function truncate(n) {
  const kept = records.slice(0, n);
  clear();
  kept.forEach(append);
}

/* ---- Writing ---- */

/** A worker of the engine; `heard` has an act for each kind of its messages. */
function startWorker(heard, failed) {
  const started = new Worker(URL.createObjectURL(new Blob([$("engine").textContent], { type: "text/javascript" })));
  started.onmessage = ({ data }) => heard[data.kind](data);
  started.onerror = (event) => failed(event.message || "it allows no workers here");
  return started;
}

const worker = startWorker({ ready: loaded, characters: arrived, done: finished, attention: looked }, (message) => {
  ready = false;
  setRunning(false);
  $("status").textContent = `The model cannot run in this browser: ${message}`;
});
let job = 0, running = false, ready = false, seed = 0;

/** Write on from `ids`; the records of the first `known` of them are there already. */
function write(ids, known) {
  seed = $("seed").value === "" ? crypto.getRandomValues(new Uint32Array(1))[0] : $("seed").valueAsNumber;
  const temperature = $("temperature").valueAsNumber, topK = $("top-k").valueAsNumber || 0, length = $("length").valueAsNumber;
  job += 1;
  worker.postMessage({ kind: "write", job, text: ids, known, length, seed, temperature, topK });
  $("status").textContent = "";
  tell("");
  setRunning(true);
}

function start() {
  const { ids: all, unknown } = tokenizer.encode($("prompt").value), ids = all.slice(-MOST);
  const notes = [];
  if (unknown.length) {
    const what = tokenizer.never >= 0 ? "Read as one unknown character" : "Left out, because the model has never seen them";
    const more = unknown.length > ASKED ? ` and ${count(unknown.length - ASKED)} more` : "";
    notes.push(`${what}: ${escaped(unknown.slice(0, ASKED).join(" "))}${more}`);
  }
  if (ids.length < all.length) {
    notes.push(`The prompt has ${count(all.length)} ${unit}; the page uses the last ${count(MOST)} of them.`);
  }
  $("notice").textContent = notes.join("\n");
  const before = items ? tokenizer.encode(items.end + (items.labels.length ? `${$("label").value}\t` : "")).ids : ids.length ? [] : [tokenizer.first];
  hidden = before.length;
  promptEnd = before.length + ids.length;
  clear();
  write([...before, ...ids], 0);
}

/** Replace the id at `index`, forget what follows, and write on. */
function branch(index, id) {
  if (!ready || index < hidden || !$("form").reportValidity()) return;
  const [, probability] = records[index].top.find(([other]) => other === id);
  const record = { ...records[index], id, probability };
  stop();
  promptEnd = Math.min(promptEnd, index);
  truncate(index);
  append(record);
  choose(index, { pin: true });
  write(records.map((r) => r.id), records.length);
}

function stop() {
  job += 1; // what still comes is ignored
  worker.postMessage({ kind: "stop" });
  if (running) tell(`Stopped after ${count(records.length - hidden)} characters.`);
  setRunning(false);
}

function setRunning(now) {
  running = now;
  $("start").textContent = now ? "Stop" : items ? "Another one" : "Write";
  $("start").disabled = !ready;
  $("continue").disabled = $("copy").disabled = now || records.length <= hidden;
  $("text").setAttribute("aria-busy", now);
}

const tell = (text) => ($("said").textContent = text);

function loaded({ engine }) {
  ready = true;
  about.engine = engine;
  $("status").textContent = "";
  fillDetails();
  setRunning(false);
  start(); // a first text, so that the page shows what it does
}

function arrived({ job: of, characters }) {
  if (of !== job) return;
  characters.forEach(append);
  $("status").textContent = `${count(records.length - hidden)} characters`;
}

function finished({ job: finishedJob, written, milliseconds }) {
  if (finishedJob !== job) return;
  setRunning(false);
  const speed = `${count(written)} characters, ${count(1000 * written / milliseconds)} a second`;
  $("status").textContent = `${speed}, seed ${seed}`;
  tell(`Finished: ${speed}.`);
}

/* ---- The chosen character ---- */

let chosen = -1, pinned = false;
const narrow = matchMedia("(max-width: 62rem)"); // where the panel is below the text

/** Show the prediction of the id at `index` (-1: of none). A pinned choice does not follow the mouse. */
function choose(index, { pin = false, say = false } = {}) {
  if (chosen >= 0) spans[chosen]?.classList.remove("chosen");
  chosen = index;
  pinned = pin && index >= 0;
  document.body.classList.toggle("choosing", index >= 0);
  lit.splice(0).forEach((span) => span.style.setProperty("--look", 0));
  $("heads").hidden = true;
  $("hint").hidden = index >= 0;
  $("prediction").hidden = index < 0;
  if (index < 0) return;
  spans[index].classList.add("chosen");
  showPrediction(index, say);
  if (pinned && narrow.matches) {
    spans[index].scrollIntoView({ block: "nearest" });
    document.querySelector("aside").scrollIntoView({ block: "nearest" });
  }
  if (index > 0 && index > records[index].from) askAttention(index);
}

function showPrediction(index, say) {
  const { id, probability, top } = records[index], { sign, name, point } = shown(id);
  $("choices").replaceChildren();
  $("glyph").textContent = sign;
  $("glyph").classList.toggle("long", sign.length > 2);
  const label = [name === sign ? "" : name, point].filter(Boolean).join(" ");
  if (Number.isNaN(probability)) {
    $("what").textContent = `${label}: the model saw nothing before it, so there is no prediction.`;
    if (say) tell(`${name}, no prediction`);
    return;
  }
  const bits = -Math.log2(probability), surprise = `${percent(probability)}, ${Math.abs(bits).toFixed(1)} bits`;
  $("what").textContent = `${label ? label + ": " : ""}${surprise} of surprise`;
  const rows = top.some(([other]) => other === id) ? top : [...top, [id, probability]];
  $("choices").replaceChildren(...rows.map(([other, p], i) => choiceRow(index, other, p, i, other === id)));
  const others = top.filter(([other]) => other !== id).slice(0, 3).map(([other, p]) => `${shown(other).name} ${percent(p)}`);
  if (say) tell(`${name}, ${surprise}. Alternatives: ${others.join(", ")}.`);
}

function choiceRow(index, id, p, number, isTaken) {
  const { sign, name } = shown(id), row = create("li", isTaken ? "taken" : ""), button = row.appendChild(create("button"));
  button.type = "button";
  button.append(create("b", sign.length > 2 ? "long" : "", sign), create("span", "bar"), create("span", "share", percent(p)));
  const bar = button.children[1].appendChild(create("span"));
  bar.style.width = `${100 * p}%`;
  button.disabled = id === tokenizer.never;
  button.setAttribute("aria-label", `${name}, ${percent(p)}${isTaken ? ", chosen" : ""}`);
  if (number < 9) button.setAttribute("aria-keyshortcuts", number + 1);
  button.addEventListener("click", () => branch(index, id));
  return row;
}

/* ---- Attention ---- */

let asked = -1, waiting = false, looking = null; // looking: {index, weights of each head} that is shown
const lit = []; // spans that show how much attention they get

/** Ask the worker, one question at a time; the newest one waits. */
function askAttention(index) {
  asked = index;
  if (waiting) return;
  waiting = true;
  worker.postMessage({ kind: "inspect", index, ids: records.slice(records[index].from, index).map((r) => r.id) });
}

function looked(data) {
  waiting = false;
  if (asked !== data.index) askAttention(asked);
  else if (chosen === data.index) {
    looking = data;
    $("heads").hidden = false;
    drawAttention();
  }
}

/** The weights of a head on the context of the character that is looked at; head -1 is the mean of the layer's heads. */
function headWeights(layer, head) {
  const all = looking.weights.slice(layer * shape.n_head, (layer + 1) * shape.n_head);
  return head < 0 ? all[0].map((_, s) => all.reduce((sum, weights) => sum + weights[s], 0) / all.length) : all[head];
}

function drawAttention() {
  if (!looking || looking.index !== chosen) return;
  const layer = $("layer").selectedIndex, head = $("head").selectedIndex - 1, weights = headWeights(layer, head);
  drawOverText(weights);
  drawMap(layer, head);
  const from = records[looking.index].from;
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 5).filter((i) => weights[i] >= 0.01);
  $("most").replaceChildren(...order.flatMap((i, n) => {
    const back = looking.index - from - i, where = back === 1 ? "the last one" : `${back} back`;
    return [n ? ", " : "Most: ", create("b", "", shown(records[from + i].id).sign), ` ${percent(weights[i])} (${where})`];
  }));
}

/** A ground behind each character, as strong as the attention to it. */
function drawOverText(weights) {
  const from = records[looking.index].from, most = Math.max(...weights), looks = new Map(lit.splice(0).map((span) => [span, 0]));
  weights.forEach((weight, i) => { // bytes of a character share a span
    if (spans[from + i] && weight >= 0.004) looks.set(spans[from + i], Math.max(looks.get(spans[from + i]) ?? 0, weight));
  });
  for (const [span, weight] of looks) span.style.setProperty("--look", weight && (0.06 + 0.6 * Math.sqrt(weight / most)).toFixed(3));
  lit.push(...looks.keys());
}

/** All heads: a row for each layer, a column for each head, and in each cell the attention from the oldest character on. */
function drawMap(layer, head) {
  const { n_layer, n_head } = shape, map = $("map"), { color } = getComputedStyle(map), [width, height] = [200, 64];
  map.style.gridTemplateColumns = `repeat(${n_head}, 1fr)`;
  map.style.setProperty("--layers", n_layer);
  map.replaceChildren(...looking.weights.map((weights, i) => {
    const isTaken = Math.floor(i / n_head) === layer && (head < 0 || i % n_head === head), most = Math.max(...weights);
    const cell = Object.assign(create("canvas", isTaken ? "taken" : ""), { width, height }), context = cell.getContext("2d");
    context.fillStyle = color;
    context.scale(width / weights.length, height / most);
    weights.forEach((weight, s) => context.fillRect(s, most - weight, Math.max(0.85, weights.length / 100), weight));
    return cell;
  }));
}

/* ---- Events ---- */

const indexAt = (event) => event.target.index ?? -1;
const lastIndex = () => records.length - 1;

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) stop();
  else if (ready) start();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("continue").addEventListener("click", () => $("form").reportValidity() && write(records.map((r) => r.id), records.length));
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(tokenizer.decode(records.slice(hidden).map(({ id }) => id)));
  $("status").textContent = "copied";
});
$("copy").hidden = !navigator.clipboard;
$("temperature").addEventListener("input", showTemperature);
$("colours").addEventListener("change", () => $("text").classList.toggle("surprise", $("colours").checked));
$("close").addEventListener("click", () => choose(-1));
for (const id of ["layer", "head"]) $(id).addEventListener("change", drawAttention);
$("map").addEventListener("click", ({ target }) => {
  const i = [...$("map").children].indexOf(target);
  if (i < 0) return;
  $("layer").selectedIndex = Math.floor(i / shape.n_head);
  $("head").selectedIndex = 1 + i % shape.n_head;
  drawAttention();
});
$("text").addEventListener("pointermove", (event) => {
  const index = indexAt(event);
  if (!pinned && event.pointerType === "mouse" && index >= 0 && index !== chosen) choose(index);
});
$("text").addEventListener("click", (event) => {
  const index = indexAt(event);
  choose(index, { pin: index !== chosen || !pinned });
});
$("text").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || records.length <= hidden) return;
  const next = keyTarget(event.key);
  if (next !== null) choose(next, { pin: true, say: true });
  else if (event.key === "Enter" && chosen >= 0) $("choices").querySelector("button")?.focus();
  else if (/^[1-9]$/.test(event.key) && chosen >= 0) $("choices").querySelectorAll("button")[event.key - 1]?.click();
  else return;
  event.preventDefault();
  if (chosen >= 0) spans[chosen].scrollIntoView({ block: "nearest" });
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (running) stop();
  else if (chosen >= 0) {
    if ($("choices").contains(document.activeElement)) $("text").focus();
    choose(-1);
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAttention);

/** The index that a key leads to from the chosen character, or null. */
function keyTarget(key) {
  const at = chosen < 0 ? lastIndex() : chosen;
  if (key === "Home") return hidden;
  if (key === "End") return lastIndex();
  if (key === "ArrowLeft") return chosen < 0 ? at : Math.max(hidden, at - 1);
  if (key === "ArrowRight") return chosen < 0 ? at : Math.min(lastIndex(), at + 1);
  if (key === "ArrowUp" || key === "ArrowDown") return chosen < 0 ? at : otherLine(at, key === "ArrowUp" ? -1 : 1);
  return null;
}

/** The character above (-1) or below (1) the one at `index`: the nearest one of the next line on the screen. */
function otherLine(index, direction) {
  const box = (i) => spans[i].getBoundingClientRect(), { left, top } = box(index);
  let best = index, row = null;
  for (let i = index + direction; i >= hidden && i <= lastIndex(); i += direction) {
    const other = box(i);
    if (Math.abs(other.top - top) < 8) continue;
    if (row !== null && Math.abs(other.top - row) >= 8) break;
    if (row === null || Math.abs(other.left - left) < Math.abs(box(best).left - left)) best = i;
    row = other.top;
  }
  return best;
}

/* ---- The beginning ---- */

function showTemperature() {
  const value = $("temperature").valueAsNumber;
  $("temperature-value").textContent = value === 0 ? "0, always the most likely" : value.toFixed(2);
}

function fillDetails() {
  const details = {
    model: `${count(about.parameters)} parameters; ${shape.n_layer} layers, ${shape.n_head} heads, width ${shape.n_embd}, ${shape.positions} positions`,
    run: `${about.run}, step ${count(about.step)}${about.texts.length ? `, trained on ${about.texts.join(", ")}` : ""}`,
    vocabulary: `${count(shape.vocab_size)} ${unit}${tokenizer.never >= 0 ? "; the last one stands for all rarer characters and is never written" : ""}`,
    context: `${count(shape.block_size)} ${unit}`,
    weights: about.weights,
    engine: about.engine,
  };
  for (const [name, text] of Object.entries(details)) $(`of-${name}`).textContent = escaped(text);
}

/** Show a model, and let the worker write with its weights. */
function adopt({ about: known, tensors }) {
  about = known;
  ({ shape, items } = about);
  tokenizer = new Tokenizer(about.tokenizer);
  const { isBytes, characters, never } = tokenizer, loss = about.val_loss, millions = about.parameters / 1e6;
  unit = isBytes ? "bytes" : "characters";
  usual = loss === null ? Math.log2(shape.vocab_size) / 3 : loss / Math.LN2;
  limits = [0.5, 1.5, 3].map((times) => times * usual);
  const size = `${millions < 0.1 ? count(about.parameters) : millions.toFixed(millions < 10 ? 1 : 0) + " million"} parameters`;
  const reached = loss === null ? "" : `, validation loss ${loss.toFixed(2)} nats (${usual.toFixed(2)} bits)`;
  $("name").textContent = document.title = escaped(about.run);
  $("facts").textContent = `A language model of ${unit} with ${size}${reached}. It runs in this page.`;
  $("text").classList.toggle("wide", characters.filter((c) => WIDE.test(c)).length > characters.length / 2);
  for (const [id, n] of [["layer", shape.n_layer], ["head", shape.n_head]]) {
    $(id).replaceChildren(...Array.from({ length: n }, (_, i) => create("option", "", `${i + 1} of ${n}`)));
  }
  $("head").prepend(create("option", "", "mean of all"));
  $("head").selectedIndex = 0;
  for (const [level, times] of [[2, "1.5"], [3, "3"]]) {
    $(`limit-${level}`).textContent = `${limits[level - 1].toFixed(1)} bits or more (${times} \u00d7 ${loss === null ? "a usual average" : "the model's average"})`;
  }
  if (items) $("prompt").placeholder = "How the item begins; empty: any item";
  $("label-choice").hidden = !items?.labels.length;
  $("label").replaceChildren(...(items?.labels ?? []).map((label) => Object.assign(create("option", "", escaped(label)), { value: label })));
  for (const id of ["form", "written", "aside", "more"]) $(id).hidden = false;
  ready = false;
  worker.postMessage({ kind: "load", about, tensors, never, end: items ? tokenizer.encode(items.end).ids[0] : -1 });
}

/** The weights in the page, by name; their elements go. */
function storedTensors() {
  const elements = [...document.querySelectorAll("script[data-tensor]")];
  elements.forEach((element) => element.remove());
  return Object.fromEntries(elements.map((element) => [element.dataset.tensor, element.textContent]));
}

const known = JSON.parse($("about").textContent), stored = known && { about: known, tensors: storedTensors() }; // null in a page that has learned nothing
$("label").addEventListener("change", () => { if (ready) { stop(); start(); } });
showTemperature();
if (stored) adopt(stored);
