/* Teaching: a text, a lesson in a worker of its own, the curve, and what becomes of the model. */
const learning = JSON.parse($("learning").textContent); // {numbers, code}
const source = document.documentElement.outerHTML; // the page without a model, before anything is shown in it
const MEMORY = (navigator.deviceMemory ?? 2) * 2 ** 27; // bytes that a lesson may take: an eighth of the device's
const SHOWN = 40; // samples
let lesson = null, taught = null; // the worker; {about, tensors} that it has given, or those of the page
let points = [], ngram = NaN, isSafe = true, isLearning = false; // points: [share, loss, validation loss]

const saying = (text) => ($("lesson").textContent = text);
const choices = (loss) => Math.exp(loss).toFixed(loss < 2.3 ? 1 : 0); // as many equal ones are as hard to guess
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

const pasted = (text) => new File([text, "\n"], "pasted text");

function teach() {
  const files = [...$("files").files, ...($("material").value.trim() ? [pasted($("material").value.trim())] : [])];
  if (!files.length) return saying("Give it a text first: paste one, or choose files.");
  const model = $("begins").value === "model" ? taught : null;
  lesson?.terminate(); // with all of its memory
  lesson = startWorker(HEARD, (message) => HEARD.failed({ message }));
  points = [];
  ngram = NaN;
  for (const id of ["practice", "curve-says"]) $(id).replaceChildren();
  setLearning(true);
  saying("Reading the text \u2026");
  lesson.postMessage({ kind: "learn", ...learning, files, minutes: Number($("minutes").value), memory: MEMORY, model });
}

function setLearning(now) {
  isLearning = now;
  if (now) isSafe = false;
  $("learn").textContent = now ? "Stop" : "Teach";
  $("share").hidden = !now;
  $("pace").textContent = "";
  for (const id of ["keep", "save", "ways"]) $(id).hidden = now || taught?.about.weights !== "float32";
  if (now) $("resume").hidden = true;
}

const HEARD = { // messages from the worker
  phase({ text }) {
    saying(`${text[0].toUpperCase()}${text.slice(1)} \u2026`);
  },
  planned(plan) {
    ({ ngram } = plan);
    const size = `${count(plan.parameters)} parameters (${plan.shape.n_layer} layers, width ${plan.shape.n_embd})`;
    const often = plan.epochs < 1 ? `there is time for ${percent(plan.epochs)} of them` : `about ${plan.epochs.toFixed(1)} times over`;
    saying(`A model of ${size} learns from ${count(plan.characters)} characters, ${often}.`);
    $("curve").hidden = $("practice").hidden = false;
  },
  progress({ share, speed, left, loss }) {
    $("share").value = share;
    points.push([share, loss, null]);
    $("pace").textContent = `${count(speed)} characters a second, ${clock(Math.max(0, left))} left`; // too often for a screen reader
    drawCurve();
  },
  evaluated({ share, step, val, loss, sample }) {
    points.push([share, loss, val]);
    drawCurve();
    const entry = create("p", "", escaped(sample));
    entry.prepend(create("b", "", step ? `After ${count(step)} steps` : "Before the first step"));
    $("practice").prepend(entry);
    if ($("practice").children.length > SHOWN) $("practice").lastChild.remove();
  },
  learned({ model, isOver, kept, ...found }) {
    taught = model;
    const { step, val_loss } = model.about;
    setLearning(false);
    $("resume").hidden = isOver;
    $("begins").value = "model";
    $("share").value = 1;
    const [own, counts] = [val_loss, found.ngram].map((loss) => [choices(loss), loss.toFixed(2)]);
    const loss = `On text that it has not read, it is as unsure as if it chose among ${own[0]} characters (loss ${own[1]}); ${
      `a table of character counts chooses among ${counts[0]} (${counts[1]}).`}`;
    const more = val_loss > found.ngram ? " More minutes would help, or a longer text." : "";
    const knows = val_loss - found.loss > learning.numbers.law.STUDENT_GAP * 10 ? " It knows a part of your text by heart." : "";
    const back = kept < step ? ` It was best after ${count(kept)} steps, so that is what the page has now.` : "";
    saying(`${isOver ? "Done." : "Stopped."} ${loss}${more}${knows}${back}`);
    adopt(model);
    remember();
  },
  failed({ message }) {
    setLearning(false);
    isSafe = true;
    saying(`It could not learn: ${message}.`);
  },
};

/** Training loss, validation loss, and that of counts, over the share of the lesson that is over. Above is less: y is minus the loss. */
function drawCurve() {
  const known = (index) => points.filter((point) => Number.isFinite(point[index] ?? NaN)).map((point) => [point[0], point[index]]);
  const lines = { read: known(1), unread: known(2), counts: Number.isFinite(ngram) ? [[0, ngram], [1, ngram]] : [] };
  const losses = Object.values(lines).flat().map(([, loss]) => loss), top = Math.max(...losses), low = Math.min(...losses);
  if (!losses.length) return;
  const room = (top - low) * 0.08 + 0.05, last = ([...line]) => line.at(-1)?.[1].toFixed(2) ?? "not known yet";
  for (const [name, line] of Object.entries(lines)) $(`loss-${name}`).setAttribute("points", line.map(([share, loss]) => [share, top - loss]).join(" "));
  $("losses").setAttribute("viewBox", `0 ${-room} 1 ${top - low + 2 * room}`);
  const says = `Loss, the lower the better: ${last(lines.read)} on what it reads (grey), ${last(lines.unread)} on text that it has not read (blue), ${
    `${last(lines.counts)} of a table of character counts (dashed)`}`;
  $("curve-says").textContent = says;
  $("curve").setAttribute("aria-label", says);
}

/* ---- What becomes of it ---- */

/** Offer bytes or text as a file. */
function download(parts, name, type) {
  const link = create("a"), url = URL.createObjectURL(new Blob(parts, { type }));
  Object.assign(link, { href: url, download: name.replace(/[^\p{L}\p{N} ._-]/gu, "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  isSafe = true;
}

/** The weights in float32 and what is needed to use them: a safetensors file, as `export --to safetensors` writes it. */
function keptFile({ about: { shape, tokenizer: vocabulary, step, val_loss, texts }, tensors }) {
  const { vocab_size, ...model } = { ...shape, dropout: 0 }, sizes = shapesOf(shape), header = { __metadata__: { format: "pt" } };
  for (const [name, value] of Object.entries({ model, vocabulary, state: { step, val_loss, texts } })) header.__metadata__[name] = JSON.stringify(value);
  let end = 0;
  for (const [name, size] of sizes) header[name] = { dtype: "F32", shape: size, data_offsets: [end, (end += 4 * lengthOf(size))] };
  const text = asJson(header), length = 8 * Math.ceil(text.length / 8);
  return [BigUint64Array.of(BigInt(length)), new TextEncoder().encode(text.padEnd(length)), ...sizes.map(([name]) => tensors[name])];
}

/** This page with what it has learned, in float16. */
function* pageWith({ about: model, tensors }) {
  const place = source.indexOf('<script type="text/plain" id="engine">'), about = asJson({ ...model, weights: "float16" });
  const known = /(<script type="application\/json" id="about">)[^]*?(?=<\/script>)/;
  yield `<!doctype html>\n${source.slice(0, place).replace(known, (_, tag) => tag + about)}`;
  for (const [name, numbers] of Object.entries(tensors)) {
    const data = base64Of(new Uint8Array(float16Of(numbers).buffer));
    yield `<script type="application/octet-stream" data-tensor="${name}">${data}<\/script>\n`;
  }
  yield source.slice(place);
}

/** JSON in ASCII that means nothing in HTML. */
const asJson = (value) => JSON.stringify(value).replace(/[<>&\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function base64Of(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x6000) text += btoa(String.fromCharCode(...bytes.subarray(i, i + 0x6000))); // a multiple of 3
  return text;
}

/** The float16 numbers nearest to float32 ones, as 16 bits each. */
function float16Of(numbers) {
  const bits = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length);
  return Uint16Array.from(bits, (word, i) => {
    const sign = word >>> 16 & 0x8000, size = Math.abs(numbers[i]);
    if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24);
    return sign | Math.min(0x7bff, ((word & 0x7fffffff) - 0x38000000 + 0xfff + (word >>> 13 & 1)) >>> 13);
  });
}

/** A place of this page in the browser that lasts until the next visit, where a browser gives one to a file; else null. */
function memory(mode, act) {
  return new Promise((resolve) => {
    const opening = indexedDB.open("chargpt", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("models");
    opening.onerror = () => resolve(null);
    opening.onsuccess = () => {
      const asked = act(opening.result.transaction("models", mode).objectStore("models"));
      asked.onsuccess = () => resolve(asked.result ?? null);
      asked.onerror = () => resolve(null);
    };
  }).catch(() => null);
}

async function remember() {
  if (await memory("readwrite", (models) => models.put(taught, location.pathname))) isSafe = true;
}

async function recall() {
  const model = await memory("readonly", (models) => models.get(location.pathname)), back = $("back");
  if (!model || isLearning) return;
  back.textContent = `Go on with \u201c${escaped(model.about.run)}\u201d, which it learned here before`;
  back.hidden = false;
  back.addEventListener("click", () => {
    taught = model;
    adopt(model);
    setLearning(false);
    back.hidden = true;
  });
}

$("learn").addEventListener("click", () => (isLearning ? lesson.postMessage({ kind: "stop" }) : teach()));
$("material").addEventListener("paste", (event) => {
  const text = event.clipboardData.getData("text/plain"), given = new DataTransfer();
  if (text.length < 20_000) return; // browsers take minutes to lay out a long one: it becomes a file
  event.preventDefault();
  for (const file of [...$("files").files, pasted(text)]) given.items.add(file);
  $("files").files = given.files;
  saying(`Your text of ${count(text.length)} characters is among the files.`);
});
$("resume").addEventListener("click", () => {
  setLearning(true);
  lesson.postMessage({ kind: "resume" });
});
$("keep").addEventListener("click", () => download(keptFile(taught), `${taught.about.run}.safetensors`, "application/octet-stream"));
$("save").addEventListener("click", () => download([...pageWith(taught)], `${taught.about.run}.html`, "text/html"));
for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, (event) => {
  event.preventDefault(); // a file that is dropped beside the field would replace the page
  $("teach").classList.toggle("over", kind === "dragover");
  if (kind !== "drop" || !event.dataTransfer.files.length) return;
  $("files").files = event.dataTransfer.files;
  $("teach").open = true;
});
addEventListener("beforeunload", (event) => isLearning || !isSafe ? event.preventDefault() : null);

taught = stored;
$("teach").hidden = false;
if (!stored) {
  $("teach").open = true;
  $("name").textContent = document.title = "A page that learns";
  $("facts").textContent = "Give it a text, and it learns to write like it: in this page, on this device.";
}
if (!stored || shape.n_embd % 8) { // the kernel computes widths of whole vectors
  $("begins").value = "nothing";
  $("this-model").disabled = true;
}
recall();
