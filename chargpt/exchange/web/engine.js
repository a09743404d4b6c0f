"use strict";
/*
The engine: the model, and the worker that runs it. In the comments C is the model's width, d the size of a head, and S the
number of positions that are attended to.

All numbers lie in one array, `heap`, as float32. A matrix with N outputs and K inputs is stored in panels of 16 outputs,
[N / 16][K][16], so that the kernel reads it from one end to the other. The keys and values of a head have the same form: for
the scores, a panel holds 16 positions; for the output, 16 channels. So one kernel does all the multiplications.
*/
const PANEL = 16; // outputs in a panel
const GROUP = 4; // positions that are computed together while a text is read
const TOP = 8; // alternatives that are reported for each character
const SLICE = 30; // milliseconds of computing after which the worker reports and looks for messages
const padded = (n) => Math.ceil(n / PANEL) * PANEL;

/*
Code in WebAssembly (SIMD) for   out[p][n] += sum over k of x[p][k] * w[k][n]   with p from 0 to positions - 1.

Parameters: the addresses of out, w and x; the number of inputs and of panels; the bytes from one panel of w to the next, from
one out[p] to the next and from one x[p] to the next. The sums of `lanes` x 4 outputs stay in registers.
*/
function kernelCode(positions, lanes) {
  const [OUT, W, X, INPUTS, PANELS, W_STEP, OUT_STEP, X_STEP, LEFT, FROM, POINTERS] = Array(11).keys();
  const x = (p) => POINTERS + p, out = (p) => POINTERS + positions + p; // locals that hold addresses
  const VECTORS = POINTERS + 2 * positions, INPUT = VECTORS + lanes;
  const weight = (i) => VECTORS + i, sum = (p, i) => INPUT + 1 + p * lanes + i; // locals that hold vectors
  const each = (n, f) => Array.from({ length: n }, (_, i) => f(i));
  const get = (local) => [0x20, local], set = (local) => [0x21, local], plus = 0x6a;
  const number = (n) => [0x41, n & 0x7f | 0x80, n >> 7]; // n < 8192
  const load = (address, offset) => [get(address), 0xfd, 0x00, 2, wholeNumber(offset)];
  const loadFourTimes = (address) => [get(address), 0xfd, 0x09, 2, 0];
  const store = (address, offset, vector) => [get(address), get(vector), 0xfd, 0x0b, 2, wholeNumber(offset)];
  const multiplyAdd = (total, a, b) => [get(total), get(a), get(b), 0xfd, 0xe6, 1, 0xfd, 0xe4, 1, set(total)];
  const increase = (local, ...amount) => [get(local), amount, plus, set(local)];
  const repeat = (counter, body) => [0x03, 0x40, body, get(counter), number(1), 0x6b, 0x22, counter, 0x0d, 0, 0x0b];
  const outputs = (at) => [ // the outputs that begin at byte `at` of a panel
    get(W), number(at), plus, set(FROM), get(INPUTS), set(LEFT),
    each(positions, (p) => [p ? [get(x(p - 1)), get(X_STEP), plus] : get(X), set(x(p))]),
    each(positions, (p) => each(lanes, (i) => [load(out(p), at + 16 * i), set(sum(p, i))])),
    repeat(LEFT, [
      each(lanes, (i) => [load(FROM, 16 * i), set(weight(i))]),
      each(positions, (p) => [
        loadFourTimes(x(p)), set(INPUT),
        each(lanes, (i) => multiplyAdd(sum(p, i), INPUT, weight(i))),
        increase(x(p), number(4)),
      ]),
      increase(FROM, number(4 * PANEL)),
    ]),
    each(positions, (p) => each(lanes, (i) => store(out(p), at + 16 * i, sum(p, i)))),
  ];
  const body = [
    each(positions, (p) => [p ? [get(out(p - 1)), get(OUT_STEP), plus] : get(OUT), set(out(p))]),
    repeat(PANELS, [
      each(PANEL / 4 / lanes, (part) => outputs(16 * lanes * part)),
      each(positions, (p) => increase(out(p), number(4 * PANEL))),
      increase(W, get(W_STEP)),
    ]),
  ];
  const locals = [2, VECTORS - LEFT, 0x7f, sum(positions, 0) - VECTORS, 0x7b];
  return [locals, body, 0x0b];
}

/** A whole number as WebAssembly writes it. */
function wholeNumber(n) {
  return n < 128 ? [n] : [n & 127 | 128, ...wholeNumber(n >> 7)];
}

/** A WebAssembly module that imports a memory m.m and exports the kernels `one`, for one position, and `group`, for GROUP. */
function moduleBytes() {
  const list = (items) => [wholeNumber(items.length), items];
  const sized = (content) => [wholeNumber([content].flat(Infinity).length), content];
  const name = (text) => list([...text].map((c) => c.charCodeAt(0)));
  const sections = [
    [1, list([[0x60, list(Array(8).fill(0x7f)), list([])]])], // the type of both functions
    [2, list([[name("m"), name("m"), 2, 0, 0]])],
    [3, list([0, 0])],
    [7, list([[name("one"), 0, 0], [name("group"), 0, 1]])],
    [10, list([sized(kernelCode(1, 4)), sized(kernelCode(GROUP, 2))])],
  ];
  return Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, sections.map(([id, content]) => [id, sized(content)])].flat(Infinity));
}

/** The same kernel in JavaScript, for browsers without WebAssembly or its SIMD instructions: 4 outputs at a time. */
function plainKernel(heap, positions) {
  return (out, w, x, inputs, panels, wStep, outStep, xStep) => {
    for (let p = 0; p < positions; p++) {
      const first = (x + p * xStep) >>> 2, end = first + inputs; // (a quotient would be a slow index)
      for (let n = 0; n < panels * PANEL; n += 4) {
        const to = ((out + p * outStep) >>> 2) + n;
        let from = ((w + (n >> 4) * wStep) >>> 2) + n % PANEL;
        let a = heap[to], b = heap[to + 1], c = heap[to + 2], d = heap[to + 3];
        for (let i = first; i < end; i++, from += PANEL) {
          const input = heap[i];
          a += input * heap[from];
          b += input * heap[from + 1];
          c += input * heap[from + 2];
          d += input * heap[from + 3];
        }
        heap[to] = a;
        heap[to + 1] = b;
        heap[to + 2] = c;
        heap[to + 3] = d;
      }
    }
  };
}

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The values of all 65,536 float16 numbers. */
function float16Values() {
  return Float32Array.from({ length: 65536 }, (_, bits) => {
    const exponent = bits >> 10 & 31, fraction = (bits & 1023) / 1024;
    return (bits & 0x8000 ? -1 : 1) * (exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14);
  });
}

/** The numbers of a tensor: float32 as they are, or in base64, little-endian, float16, or int8 in rows after a float32 factor for each. */
function numbersOf({ rows, columns, format, data }, float16) {
  if (format === "float32") return data;
  const bytes = bytesOf(data), view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const numbers = new Float32Array(rows * columns);
  for (let row = 0, i = 0; row < rows; row++) {
    const factor = format === "int8" ? view.getFloat32(4 * row, true) : 1;
    for (let column = 0; column < columns; column++, i++) {
      numbers[i] = format === "int8" ? factor * view.getInt8(4 * rows + i) : float16[view.getUint16(2 * i, true)];
    }
  }
  return numbers;
}

/** The error function by formula 7.1.26 of Abramowitz and Stegun, to 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? tail - 1 : 1 - tail;
}

/** The text that the model has read, as ids, with the keys, values and queries of each position. */
class Context {
  constructor({ n_layer, n_head, n_embd, block_size }, take) {
    const d = n_embd / n_head;
    this.ids = [];
    this.keySize = padded(block_size) * d; // of a head: [block_size / 16][d][16]
    this.valueSize = padded(d) * block_size; // of a head: [d / 16][block_size][16]
    this.keys = take(n_layer * n_head * this.keySize);
    this.values = take(n_layer * n_head * this.valueSize);
    this.queries = take(n_layer * block_size * n_embd); // [n_layer][block_size][C], for `attention`
  }
}

class Model {
  /** `shape`: the fields of GPTConfig, and vocab_size. `tensors`: what `numbersOf` reads, by name. */
  constructor(shape, tensors, { webAssembly = true } = {}) {
    const { n_layer, n_head, n_embd: C, block_size, vocab_size, bias, positions } = shape;
    let size = 0;
    const take = (n) => (size += padded(n)) - padded(n);
    const loads = []; // tensors, and where they belong; a matrix in panels has a number of inputs
    const vector = (name, n) => (loads.push({ name, at: take(n) }), loads.at(-1).at);
    const matrix = (name, outputs, inputs) => {
      loads.push({ name, at: take(padded(outputs) * inputs), inputs });
      return { at: loads.at(-1).at, inputs, panels: padded(outputs) / PANEL, bias: -1 };
    };
    const linear = (name, outputs, inputs) =>
      ({ ...matrix(`${name}.weight`, outputs, inputs), bias: bias ? vector(`${name}.bias`, outputs) : -1 });
    const norm = (name) => ({ weight: vector(`${name}.weight`, C), bias: bias ? vector(`${name}.bias`, C) : -1 });
    this.shape = shape;
    this.d = C / n_head;
    this.embedding = matrix("token_embedding.weight", vocab_size, C);
    this.positions = positions === "rotary" ? -1 : vector("position_embedding.weight", block_size * C);
    this.blocks = Array.from({ length: n_layer }, (_, i) => ({
      norm1: norm(`blocks.${i}.norm_1`),
      qkv: linear(`blocks.${i}.attn.qkv`, 3 * C, C),
      proj: linear(`blocks.${i}.attn.proj`, C, C),
      norm2: norm(`blocks.${i}.norm_2`),
      up: linear(`blocks.${i}.mlp.up`, 4 * C, C),
      down: linear(`blocks.${i}.mlp.down`, C, 4 * C),
    }));
    this.norm = norm("norm");
    // GROUP rows each: the residual stream, its normalised copy, and what the layers make of it.
    const rows = (n) => ({ step: padded(n), at: take(GROUP * padded(n)) });
    [this.x, this.normed, this.qkv, this.hidden, this.logits] = [C, C, 3 * C, 4 * C, vocab_size].map(rows);
    this.y = rows(C + PANEL); // the last head may be wider than what is left of C
    this.scores = take(block_size);
    this.contexts = [new Context(shape, take), new Context(shape, take)];
    this.startKernels(size, webAssembly);
    this.load(loads, tensors);
    this.angles = positions === "rotary" ? this.rotaryTable() : null;
  }

  startKernels(size, webAssembly) {
    const memory = webAssembly && typeof WebAssembly === "object" ? compiledMemory(size) : null;
    this.engine = memory ? "WebAssembly" : "JavaScript";
    this.heap = new Float32Array(memory ? memory.buffer : size);
    this.one = memory ? memory.one : plainKernel(this.heap, 1);
    this.group = memory ? memory.group : plainKernel(this.heap, GROUP);
  }

  load(loads, tensors) {
    const float16 = float16Values();
    for (const { name, at, inputs } of loads) {
      const numbers = numbersOf(tensors[name], float16);
      if (!inputs) this.heap.set(numbers, at);
      else for (let i = 0, n = 0; i < numbers.length; n++) {
        const row = at + (n >> 4) * inputs * PANEL + n % PANEL;
        for (let k = 0; k < inputs; k++, i++) this.heap[row + k * PANEL] = numbers[i];
      }
    }
  }

  /** Cosine and sine of each pair, [block_size][d / 2][2]. */
  rotaryTable() {
    const { d, shape: { block_size } } = this, table = new Float32Array(block_size * d);
    for (let at = 0; at < table.length; at++) {
      const i = at % d, angle = Math.floor(at / d) * 10000 ** (-(i - i % 2) / d);
      table[at] = i % 2 ? Math.sin(angle) : Math.cos(angle);
    }
    return table;
  }

  /** Add the product of `rows` inputs with a matrix to `out`. */
  multiply(out, matrix, x, rows) {
    const kernel = rows === 1 ? this.one : this.group;
    kernel(4 * out.at, 4 * matrix.at, 4 * x.at, matrix.inputs, matrix.panels, 4 * matrix.inputs * PANEL, 4 * out.step, 4 * x.step);
  }

  /** Set `out` to the bias of a matrix. */
  fill(out, { bias, panels }, rows) {
    for (let p = 0, at = out.at; p < rows; p++, at += out.step) {
      if (bias < 0) this.heap.fill(0, at, at + panels * PANEL);
      else this.heap.copyWithin(at, bias, bias + panels * PANEL);
    }
  }

  add(to, from, n) {
    for (let i = 0; i < n; i++) this.heap[to + i] += this.heap[from + i];
  }

  normalise(norm, rows) {
    const { heap, shape: { n_embd: C } } = this;
    for (let p = 0; p < rows; p++) {
      const x = this.x.at + p * this.x.step, out = this.normed.at + p * this.normed.step;
      let mean = 0, variance = 0;
      for (let i = 0; i < C; i++) mean += heap[x + i];
      mean /= C;
      for (let i = 0; i < C; i++) variance += (heap[x + i] - mean) ** 2;
      const scale = 1 / Math.sqrt(variance / C + 1e-5);
      for (let i = 0; i < C; i++) heap[out + i] = (heap[x + i] - mean) * scale * heap[norm.weight + i];
      if (norm.bias >= 0) this.add(out, norm.bias, C);
    }
  }

  embed(id, t, p) {
    const { heap, shape: { n_embd: C } } = this, x = this.x.at + p * this.x.step;
    const row = this.embedding.at + (id >> 4) * C * PANEL + id % PANEL;
    for (let i = 0; i < C; i++) heap[x + i] = heap[row + i * PANEL];
    if (this.positions >= 0) this.add(x, this.positions + t * C, C);
  }

  /** Rotate the pairs (i, i + d/2) of a query or a key by the angles of position t. */
  rotate(at, t) {
    const { heap, d, angles } = this, half = d / 2;
    for (let i = 0; i < half; i++) {
      const cos = angles[t * d + 2 * i], sin = angles[t * d + 2 * i + 1], a = heap[at + i], b = heap[at + half + i];
      heap[at + i] = a * cos - b * sin;
      heap[at + half + i] = b * cos + a * sin;
    }
  }

  /** Attention of position t, in row p of the group: stores its key, value and query, and sets row p of y. */
  attend(context, layer, t, p) {
    const { heap, d, shape: { n_head, n_embd: C, block_size } } = this;
    const q = this.qkv.at + p * this.qkv.step, y = this.y.at + p * this.y.step, scale = 1 / Math.sqrt(d);
    heap.fill(0, y, y + C + PANEL);
    for (let head = 0; head < n_head; head++) {
      const query = q + head * d, key = query + C, value = key + C, index = layer * n_head + head;
      const keys = context.keys + index * context.keySize, values = context.values + index * context.valueSize;
      if (this.angles) {
        this.rotate(query, t);
        this.rotate(key, t);
      }
      const keyTo = keys + (t >> 4) * d * PANEL + t % PANEL;
      for (let i = 0; i < d; i++) {
        heap[query + i] *= scale;
        heap[keyTo + i * PANEL] = heap[key + i];
        heap[values + ((i >> 4) * block_size + t) * PANEL + i % PANEL] = heap[value + i];
      }
      this.attentionWeights(keys, query, t + 1);
      // The channels beyond d are zero, so that the next head's part of y stays as it is.
      this.one(4 * (y + head * d), 4 * values, 4 * this.scores, t + 1, padded(d) / PANEL, 4 * block_size * PANEL, 0, 0);
    }
    heap.copyWithin(context.queries + (layer * block_size + t) * C, q, q + C);
  }

  /** Set `scores` to the softmax of the products of a query with S keys. */
  attentionWeights(keys, query, S) {
    const { heap, scores, d } = this, panels = padded(S) / PANEL;
    heap.fill(0, scores, scores + panels * PANEL);
    this.one(4 * scores, 4 * keys, 4 * query, d, panels, 4 * d * PANEL, 0, 0);
    let most = -Infinity, total = 0;
    for (let s = scores; s < scores + S; s++) if (heap[s] > most) most = heap[s];
    for (let s = scores; s < scores + S; s++) total += heap[s] = Math.exp(heap[s] - most);
    for (let s = scores; s < scores + S; s++) heap[s] /= total;
  }

  /** Read 1 or GROUP ids. With `wantsLogits`, `logitsOf` then gives the logits after each of them. */
  read(context, ids, wantsLogits) {
    const { heap, shape: { n_embd: C } } = this, n = ids.length, start = context.ids.length;
    for (let p = 0; p < n; p++) this.embed(ids[p], start + p, p);
    this.blocks.forEach((block, layer) => {
      this.normalise(block.norm1, n);
      this.fill(this.qkv, block.qkv, n);
      this.multiply(this.qkv, block.qkv, this.normed, n);
      for (let p = 0; p < n; p++) this.attend(context, layer, start + p, p);
      this.addLinear(block.proj, this.y, n);
      this.normalise(block.norm2, n);
      this.fill(this.hidden, block.up, n);
      this.multiply(this.hidden, block.up, this.normed, n);
      for (let p = 0; p < n; p++) {
        const from = this.hidden.at + p * this.hidden.step, to = from + 4 * C;
        for (let i = from; i < to; i++) heap[i] *= 0.5 * (1 + erf(heap[i] * Math.SQRT1_2)); // GELU
      }
      this.addLinear(block.down, this.hidden, n);
    });
    context.ids.push(...ids);
    if (!wantsLogits) return;
    this.normalise(this.norm, n);
    this.fill(this.logits, this.embedding, n);
    this.multiply(this.logits, this.embedding, this.normed, n);
  }

  /** Add a linear layer's output to the residual stream. */
  addLinear(matrix, input, rows) {
    if (matrix.bias >= 0) for (let p = 0; p < rows; p++) this.add(this.x.at + p * this.x.step, matrix.bias, this.shape.n_embd);
    this.multiply(this.x, matrix, input, rows);
  }

  logitsOf(p) {
    const at = this.logits.at + p * this.logits.step;
    return this.heap.subarray(at, at + this.shape.vocab_size);
  }

  /** The attention weights of the last of S positions: [n_layer][n_head][S]. */
  attention(context, S) {
    const { n_layer, n_head, n_embd, block_size } = this.shape;
    const weights = new Float32Array(n_layer * n_head * S);
    for (let index = 0; index < n_layer * n_head; index++) {
      const layer = Math.floor(index / n_head), head = index % n_head;
      const query = context.queries + (layer * block_size + S - 1) * n_embd + head * this.d;
      this.attentionWeights(context.keys + index * context.keySize, query, S);
      weights.set(this.heap.subarray(this.scores, this.scores + S), index * S);
    }
    return weights;
  }
}

/** A memory of `size` numbers with the two compiled kernels, or null if the browser cannot have it. */
function compiledMemory(size) {
  try {
    const memory = new WebAssembly.Memory({ initial: Math.ceil(size / 16384) });
    const { one, group } = new WebAssembly.Instance(new WebAssembly.Module(moduleBytes()), { m: { m: memory } }).exports;
    return { buffer: memory.buffer, one, group };
  } catch {
    return null;
  }
}

/** The ids of `text` in a context of block_size: the last ones. A full context drops its older half and reads the rest again. */
class Window {
  constructor(model, context) {
    this.model = model;
    this.context = context;
    this.from = -1; // where the context begins in the text
  }

  /** Read `text`, which continues what was read before. Yields the index of each id that was read, and the logits after it. */
  *read(text) {
    const { model, context } = this, { block_size } = model.shape;
    if (this.from < 0 || text.length - this.from > block_size) {
      const kept = this.from < 0 ? block_size : Math.max(1, block_size >> 1);
      this.from = Math.max(0, text.length - kept);
      context.ids.length = 0;
    }
    for (let i = this.from + context.ids.length; i < text.length; ) {
      const ids = text.slice(i, i + (text.length - i < GROUP ? 1 : GROUP));
      model.read(context, ids, true);
      for (let p = 0; p < ids.length; p++) yield [i + p, model.logitsOf(p)];
      i += ids.length;
    }
  }
}

/** xoshiro128** (Blackman and Vigna), seeded by splitmix32. `next` gives 53 random bits as a number from 0 up to 1. */
class Random {
  constructor(seed) {
    this.state = Uint32Array.from({ length: 4 }, () => {
      seed = seed + 0x9e3779b9 | 0;
      let z = Math.imul(seed ^ seed >>> 16, 0x21f0aaad);
      z = Math.imul(z ^ z >>> 15, 0x735a2d97);
      return z ^ z >>> 15;
    });
  }

  bits() {
    const s = this.state, rotate = (n, by) => n << by | n >>> 32 - by, result = Math.imul(rotate(Math.imul(s[1], 5), 7), 9), t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 11);
    return result >>> 0;
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

/** The worker: messages from the page, and what they start. */
class Engine {
  constructor({ shape, never, tensors, webAssembly }) {
    this.model = new Model(shape, tensors, { webAssembly });
    this.never = never;
    this.job = 0;
    this.channel = new MessageChannel();
    postMessage({ kind: "ready", engine: this.model.engine });
  }

  /** Continue `text` by `length` ids. Reports each id from index `known` on, and what the model predicted in its place. */
  async write({ job, text, known, length, seed, temperature, topK }) {
    this.job = job;
    const window = new Window(this.model, this.model.contexts[0]), random = new Random(seed);
    const given = text.length, started = performance.now();
    let report = [], due = started + SLICE, paused = 0;
    const note = (id, predicted) => report.push({ id, from: Math.max(0, window.from), ...predicted });
    const tell = async () => {
      const before = performance.now();
      postMessage({ kind: "characters", job, characters: report });
      report = [];
      await this.turn();
      due = performance.now() + SLICE;
      paused += performance.now() - before;
    };
    const unpredicted = { probability: NaN, top: [] };
    for (; known <= Math.max(0, given - this.model.shape.block_size); known++) note(text[known], unpredicted);
    while (this.job === job && text.length < given + length) {
      let logits;
      for (const [index, following] of window.read(text)) {
        logits = following;
        if (known <= index + 1 && index + 1 < given) note(text[index + 1], prediction(logits, text[index + 1]));
        if (performance.now() > due) await tell();
        if (this.job !== job) break;
      }
      if (this.job !== job) break;
      known = given;
      const id = choose(logits, { temperature, topK }, this.never, random);
      note(id, prediction(logits, id));
      text.push(id);
    }
    await tell();
    postMessage({ kind: "done", job, written: text.length - given, milliseconds: performance.now() - started - paused });
  }

  /** Let messages be handled. (A timer would wait 4 ms.) */
  turn() {
    return new Promise((resolve) => {
      this.channel.port1.onmessage = resolve;
      this.channel.port2.postMessage(null);
    });
  }

  stop() {
    this.job = 0;
  }

  /** The attention weights of the last of `ids`, which the model reads from position 0. */
  inspect({ index, ids }) {
    const context = this.model.contexts[1];
    let same = 0;
    while (same < ids.length && context.ids[same] === ids[same]) same++;
    if (same < ids.length) context.ids.length = same;
    while (context.ids.length < ids.length) {
      const at = context.ids.length;
      this.model.read(context, ids.slice(at, at + (ids.length - at < GROUP ? 1 : GROUP)), false);
    }
    postMessage({ kind: "attention", index, weights: this.model.attention(context, ids.length) });
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

if (typeof module === "object") module.exports = { Model, Window, Random, choose, prediction }; // under Node.js
