/*
The engine: the model, and the worker that runs it. In the comments C is the model's width, d the size of a head, T the length of
the context, and S the number of positions that are attended to. All numbers are float32, in one memory that WebAssembly reads.
*/
const TOP = 8; // alternatives that are reported for each character
const SLICE = 30; // milliseconds of computing after which the worker reports and looks for messages
const PANEL = 16; // outputs that are computed together

/* ---- The product of a matrix and a vector ---- */

/*
A matrix with N outputs and K inputs is stored in panels of 16 outputs, [N / 16][K][16], so that it is read from one end to the other.

This is a WebAssembly module (SIMD) that imports a memory m.m and exports `m`: out[n] += sum over k of x[k] * w[k][n]. Its parameters
are the addresses of out, w and x, the numbers of panels and of inputs, 1 at least, and the bytes from a panel to the next. The sums of
a panel, `LANES` vectors of 4, stay in registers.
*/
function kernelCode() {
  const [OUT, W, X, PANELS, INPUTS, STEP, LEFT, FROM, AT, INPUT, SUM] = Array(11).keys(), LANES = PANEL / 4;
  const number = (n) => [n & 0x7f | 0x80, n >> 7], get = (local) => [0x20, local], set = (local) => [0x21, local]; // n < 8192
  const each = (f) => Array.from({ length: LANES }, (_, i) => f(i)), increase = (local, ...amount) => [get(local), amount, 0x6a, set(local)];
  const repeat = (counter, body) => [0x03, 0x40, body, get(counter), 0x41, 1, 0x6b, 0x22, counter, 0x0d, 0, 0x0b];
  const load = (address, i) => [get(address), 0xfd, 0x00, 2, 16 * i], store = (address, i) => [get(address), get(SUM + i), 0xfd, 0x0b, 2, 16 * i];
  const body = repeat(PANELS, [
    [[W, FROM], [X, AT], [INPUTS, LEFT]].map(([from, to]) => [get(from), set(to)]),
    each((i) => [load(OUT, i), set(SUM + i)]),
    repeat(LEFT, [
      get(AT), 0xfd, 0x09, 2, 0, set(INPUT), // four times the same input
      each((i) => [get(SUM + i), get(INPUT), load(FROM, i), 0xfd, 0xe6, 1, 0xfd, 0xe4, 1, set(SUM + i)]),
      increase(AT, 0x41, 4), increase(FROM, 0x41, number(4 * PANEL)),
    ]),
    each((i) => store(OUT, i)),
    increase(OUT, 0x41, number(4 * PANEL)), increase(W, get(STEP)),
  ]);
  const sized = (...content) => [number(content.flat(Infinity).length), content], i32 = 0x7f, v128 = 0x7b, name = [1, 109];
  const code = sized(2, 3, i32, 1 + LANES, v128, body, 0x0b);
  const sections = [[1, 1, 0x60, 6, Array(6).fill(i32), 0], [2, 1, name, name, 2, 0, 0], [3, 1, 0], [7, 1, name, 0, 0], [10, 1, code]];
  return Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, sections.map(([id, ...content]) => [id, sized(...content)])].flat(Infinity));
}

const padded = (n) => Math.ceil(n / PANEL) * PANEL;

/** Zeros by name, in one memory, and `product`, which adds that of a matrix and x to `out`; from a panel to the next are `size` numbers. */
function arithmetic(lengths, webAssembly) {
  const places = [];
  let end = PANEL; // a panel may begin at the last number
  for (const [name, n] of Object.entries(lengths)) places.push([name, 4 * (end += padded(n)) - 4 * padded(n), n]);
  const compiled = webAssembly ? compiledProduct(end) : null, buffer = compiled?.buffer ?? new ArrayBuffer(4 * end);
  const numbers = Object.fromEntries(places.map(([name, at, n]) => [name, new Float32Array(buffer, at, n)]));
  return { numbers, product: compiled?.product ?? plainProduct, engine: compiled ? "WebAssembly" : "JavaScript" };
}

/** A memory of so many numbers with the compiled kernel, or null if the browser cannot have it. */
function compiledProduct(count) {
  try {
    const memory = new WebAssembly.Memory({ initial: Math.ceil(count / 16384) });
    const kernel = new WebAssembly.Instance(new WebAssembly.Module(kernelCode()), { m: { m: memory } }).exports.m;
    const product = (out, matrix, x, inputs, size = inputs * PANEL) =>
      kernel(out.byteOffset, matrix.byteOffset, x.byteOffset, Math.ceil(out.length / PANEL), inputs, 4 * size);
    return { buffer: memory.buffer, product };
  } catch {
    return null;
  }
}

/** The same in JavaScript, for browsers without WebAssembly or its SIMD instructions: 4 outputs at a time. */
function plainProduct(out, matrix, x, inputs, size = inputs * PANEL) {
  for (let n = 0; n < out.length; n += 4) {
    let a = 0, b = 0, c = 0, d = 0;
    for (let k = 0, at = (n >> 4) * size + n % PANEL; k < inputs; k++, at += PANEL) {
      const input = x[k];
      a += input * matrix[at];
      b += input * matrix[at + 1];
      c += input * matrix[at + 2];
      d += input * matrix[at + 3];
    }
    [a, b, c, d].forEach((sum, i) => (out[n + i] += sum)); // (nothing is beyond the end)
  }
}

/* ---- The model ---- */

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The numbers of a tensor: float32 as they are, or in base64, little-endian, float16, or of int8 a matrix in rows after a float32 factor for each. */
function numbersOf(data, [rows, columns], weights) {
  if (weights === "float32") return data;
  const { buffer } = bytesOf(data);
  if (weights === "int8" && columns) {
    const factors = new Float32Array(buffer, 0, rows);
    return new Float32Array(new Int8Array(buffer, 4 * rows)).map((number, i) => number * factors[Math.floor(i / columns)]);
  }
  const bits = new Uint32Array(new Uint16Array(buffer)).map((half) => (half & 0x8000) << 16 | (half & 0x7fff) << 13);
  return new Float32Array(bits.buffer).map((number) => number * 2 ** 112); // in float32, the exponents are so much smaller
}

/** The error function by formula 7.1.26 of Abramowitz and Stegun, to 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? tail - 1 : 1 - tail;
}

const isMatrix = (name) => /(token_embedding|qkv|proj|up|down).weight$/.test(name);

/** Fill `numbers` with a tensor, a matrix in panels. */
function fill(numbers, name, given, [rows, columns]) {
  if (!isMatrix(name)) return numbers.set(given);
  for (let n = 0, i = 0; n < rows; n++)
    for (let k = 0, at = (n >> 4) * columns * PANEL + n % PANEL; k < columns; k++, at += PANEL) numbers[at] = given[i++];
}

/** Cosines and sines of rotary positions, [T][d / 2] each. */
function rotary(T, d) {
  const half = d / 2, angle = (i) => Math.floor(i / half) * 10000 ** (-(i % half) / half);
  return [Math.cos, Math.sin].map((f) => Float32Array.from({ length: T * half }, (_, i) => f(angle(i))));
}

class Model {
  /** `shape`: the fields of GPTConfig, and vocab_size. `tensors`: what `numbersOf` reads, by name, all in one kind of `weights`. */
  constructor({ shape, weights }, tensors, { webAssembly = true } = {}) {
    const { n_layer, n_head, n_embd: C, block_size: T, vocab_size } = shape, heads = n_layer * n_head, stored = storedShapesOf(shape);
    const lengths = { x: C, normed: C, qkv: 3 * C, mixed: C, hidden: 4 * C, logits: vocab_size, scores: heads * padded(T),
      keys: 2 * heads * padded(T) * C / n_head, values: 2 * heads * padded(C / n_head) * T };
    for (const [name, [rows, columns = 1]] of stored) lengths[name] = (isMatrix(name) ? padded(rows) : rows) * columns;
    const { numbers, product, engine } = arithmetic(lengths, webAssembly);
    for (const [name, size] of stored) fill(numbers[name], name, numbersOf(tensors[name], size, weights), size);
    Object.assign(this, numbers, { shape, product, engine, angles: shape.positions === "rotary" ? rotary(T, C / n_head) : null });
    Object.assign(this, { norm: this.layer("norm"), embedding: this.layer("token_embedding"), positions: this.layer("position_embedding").weight });
    const names = ["norm_1", "attn.qkv", "attn.proj", "norm_2", "mlp.up", "mlp.down"];
    this.blocks = Array.from({ length: n_layer }, (_, i) => Object.fromEntries(names.map((name) => [name, this.layer(`blocks.${i}.${name}`)])));
    this.shareOut(heads, n_head);
  }

  /** Give each head of each layer its part of the numbers. */
  shareOut(heads, n_head) {
    const part = (all, i, parts) => all.subarray(i * all.length / parts, (i + 1) * all.length / parts);
    const each = (f) => Array.from({ length: heads }, (_, i) => f(i)), ofQkv = (i) => part(this.qkv, i, 3 * n_head);
    this.heads = each((i) => ({ query: ofQkv(i % n_head), key: ofQkv(n_head + i % n_head), value: ofQkv(2 * n_head + i % n_head),
      scores: part(this.scores, i, heads), mixed: part(this.mixed, i % n_head, n_head) }));
    // What the model has read, as ids, with the keys, [T / 16][d][16], and the values, [d / 16][T][16].
    this.contexts = [0, heads].map((first) => ({ ids: [], caches: each((i) => (
      { keys: part(this.keys, first + i, 2 * heads), values: part(this.values, first + i, 2 * heads) })) }));
  }

  /** The weights of a linear layer or a norm. */
  layer(name) {
    return { weight: this[`${name}.weight`], bias: this[`${name}.bias`] };
  }

  /** Add the output of a linear layer to `out`. */
  add(out, { weight, bias }, x) {
    if (bias) for (let i = 0; i < out.length; i++) out[i] += bias[i];
    this.product(out, weight, x, x.length);
  }

  /** Set `normed`. */
  normalise({ weight, bias }) {
    const { x, normed } = this, C = x.length;
    let mean = 0, variance = 0;
    for (let i = 0; i < C; i++) mean += x[i];
    mean /= C;
    for (let i = 0; i < C; i++) variance += (x[i] - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / C + 1e-5);
    for (let i = 0; i < C; i++) normed[i] = (x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
  }

  /** Rotate the pairs (i, i + d/2) of a query or a key by the angles of position t. */
  rotate(vector, t) {
    const [cosines, sines] = this.angles, half = vector.length / 2;
    for (let i = 0, at = t * half; i < half; i++, at++) {
      const a = vector[i], b = vector[half + i];
      vector[i] = a * cosines[at] - b * sines[at];
      vector[half + i] = b * cosines[at] + a * sines[at];
    }
  }

  /** Attention of a head at position t: sets its part of `mixed`, and `scores`, the weights of the t + 1 positions. */
  attend({ query, key, value, scores, mixed }, { keys, values }, t) {
    const d = query.length, T = this.shape.block_size, S = t + 1, scale = 1 / Math.sqrt(d);
    if (this.angles) {
      this.rotate(query, t);
      this.rotate(key, t);
    }
    for (let i = 0; i < d; i++) {
      keys[((t >> 4) * d + i) * PANEL + t % PANEL] = key[i];
      values[((i >> 4) * T + t) * PANEL + i % PANEL] = value[i];
      query[i] *= scale;
    }
    this.product(scores.fill(0).subarray(0, S), keys, query, d);
    let most = -Infinity, total = 0;
    for (let s = 0; s < S; s++) if (scores[s] > most) most = scores[s];
    for (let s = 0; s < S; s++) total += scores[s] = Math.exp(scores[s] - most);
    for (let s = 0; s < S; s++) scores[s] /= total;
    this.product(mixed.fill(0), values, scores, S, T * PANEL); // (what it adds beyond d is zero)
  }

  /** Read an id; returns the logits after it, which the next call overwrites. */
  read({ ids, caches }, id) {
    const { x, normed, qkv, mixed, hidden, logits, heads, shape: { n_head } } = this, t = ids.push(id) - 1;
    for (let i = 0; i < x.length; i++) x[i] = this.embedding.weight[((id >> 4) * x.length + i) * PANEL + id % PANEL];
    if (this.positions) for (let i = 0; i < x.length; i++) x[i] += this.positions[t * x.length + i];
    this.blocks.forEach((block, layer) => {
      this.normalise(block.norm_1);
      this.add(qkv.fill(0), block["attn.qkv"], normed);
      for (let i = layer * n_head; i < (layer + 1) * n_head; i++) this.attend(heads[i], caches[i], t);
      this.add(x, block["attn.proj"], mixed);
      this.normalise(block.norm_2);
      this.add(hidden.fill(0), block["mlp.up"], normed);
      for (let i = 0; i < hidden.length; i++) hidden[i] *= 0.5 * (1 + erf(hidden[i] * Math.SQRT1_2)); // GELU
      this.add(x, block["mlp.down"], hidden);
    });
    this.normalise(this.norm);
    this.add(logits.fill(0), this.embedding, normed);
    return logits;
  }
}

/* ---- Writing ---- */

/** Continues a text with the ids that a model chooses, in its first context. The id `never` is not chosen, and `end` ends the text. */
class Writer {
  constructor(model, never, end = -1) {
    Object.assign(this, { model, never, end, context: model.contexts[0], from: -1 }); // from: where the context begins in the text
  }

  /** Read `text`, which continues what was read before. Yields the index of each id that was read, and the logits after it. */
  *read(text) {
    const { model, context: { ids } } = this, { block_size } = model.shape;
    if (this.from < 0 || text.length - this.from > block_size) { // a full context drops its older half and reads the rest again
      this.from = Math.max(0, text.length - (this.from < 0 ? block_size : Math.max(1, block_size >> 1)));
      ids.length = 0;
    }
    for (let i = this.from + ids.length; i < text.length; i++) yield [i, model.read(this.context, text[i])];
  }

  /**
   * Continue `text` by `length` ids. Yields for each from index `known` on the id, where its context began, and what the model
   * predicted in its place; and null for one that it reads again, so that whoever listens may stop it.
   */
  *write(text, { length, known = text.length, seed, temperature, topK }) {
    const given = text.length, random = new Random(seed);
    const record = (id, predicted = { probability: NaN, top: [] }) => ({ id, from: Math.max(0, this.from), ...predicted });
    for (; known <= Math.max(0, given - this.model.shape.block_size); known++) yield record(text[known]);
    while (text.length < given + length) {
      let logits;
      for (const [index, following] of this.read(text)) {
        const next = index + 1;
        logits = following;
        yield known <= next && next < given ? record(text[next], prediction(logits, text[next])) : null;
      }
      known = given;
      const id = choose(logits, { temperature, topK }, this.never, random);
      if (id === this.end) return;
      text.push(id);
      yield record(id, prediction(logits, id));
    }
  }
}

/** splitmix32. `next` gives 53 random bits as a number from 0 up to 1. */
class Random {
  constructor(seed) {
    this.state = seed;
  }

  bits() {
    let z = this.state = this.state + 0x9e3779b9 | 0;
    z = Math.imul(z ^ z >>> 16, 0x21f0aaad);
    z = Math.imul(z ^ z >>> 15, 0x735a2d97);
    return (z ^ z >>> 15) >>> 0;
  }

  next() {
    return ((this.bits() >>> 5) * 2 ** 26 + (this.bits() >>> 6)) / 2 ** 53;
  }
}

/** The next id: the most likely one at temperature 0, otherwise one drawn by `random`. The id `never` is not chosen. */
function choose(logits, { temperature, topK }, never, random) {
  const V = logits.length, allowed = Float32Array.from(logits);
  if (never >= 0) allowed[never] = -Infinity;
  let best = 0, total = 0;
  for (let id = 1; id < V; id++) if (allowed[id] > allowed[best]) best = id;
  if (temperature === 0) return best;
  const least = topK > 0 && topK < V ? allowed.slice().sort()[V - topK] : -Infinity;
  const upTo = new Float64Array(V); // sums of what is in proportion to the probabilities
  for (let id = 0; id < V; id++) {
    if (allowed[id] >= least) total += Math.exp((allowed[id] - allowed[best]) / temperature);
    upTo[id] = total;
  }
  const point = random.next() * total;
  return upTo.findIndex((sum) => sum > point);
}

/** The probability of `id`, and the TOP most likely ids with theirs: those of the model, before temperature and top-k. */
function prediction(logits, id) {
  const top = [];
  for (let i = 0; i < logits.length; i++) {
    if (top.length === TOP && logits[i] <= logits[top[TOP - 1]]) continue;
    let place = top.length;
    while (place > 0 && logits[top[place - 1]] < logits[i]) place--;
    top.splice(place, 0, i);
    if (top.length > TOP) top.pop();
  }
  const most = logits[top[0]];
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp(logits[i] - most);
  const share = (i) => Math.exp(logits[i] - most) / total;
  return { probability: share(id), top: top.map((i) => [i, share(i)]) };
}

/* ---- The worker ---- */

const channel = new MessageChannel();

/** Let messages be handled. (A timer would wait 4 ms.) */
function turn() {
  return new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
}

/** Messages from the page, and what they start. */
class Engine {
  constructor({ about, tensors, never, end }) {
    Object.assign(this, { model: new Model(about, tensors), never, end, job: 0 });
    postMessage({ kind: "ready", engine: this.model.engine });
  }

  /** Continue `text` as `Writer.write` does, and report each id that is new. */
  async write({ job, text, ...settings }) {
    this.job = job;
    const given = text.length, started = performance.now();
    const report = [], tell = () => postMessage({ kind: "characters", job, characters: report.splice(0) });
    let due = started + SLICE;
    for (const record of new Writer(this.model, this.never, this.end).write(text, settings)) {
      if (record) report.push(record);
      if (performance.now() > due) {
        tell();
        await turn();
        due = performance.now() + SLICE;
      }
      if (this.job !== job) return;
    }
    tell();
    postMessage({ kind: "done", job, written: text.length - given, milliseconds: performance.now() - started });
  }

  stop() {
    this.job = 0;
  }

  /** The attention weights of each head of each layer to `ids`, of the last of them; the model reads them from position 0. */
  inspect({ index, ids }) {
    const context = this.model.contexts[1], read = context.ids;
    let same = 0;
    while (same < ids.length - 1 && read[same] === ids[same]) same++;
    read.length = same;
    for (const id of ids.slice(same)) this.model.read(context, id);
    postMessage({ kind: "attention", index, weights: this.model.heads.map(({ scores }) => scores.slice(0, ids.length)) });
  }
}

const BEGINS = { load: Engine }; // what a message to a worker begins; further ones are calls of what it has begun
if (typeof WorkerGlobalScope === "function") {
  let begun = null;
  onmessage = ({ data: { kind, ...message } }) => {
    if (BEGINS[kind]) begun = new BEGINS[kind](message);
    else begun[kind](message);
  };
}

if (typeof module === "object") module.exports = { Model, Writer, Tokenizer }; // under Node.js
