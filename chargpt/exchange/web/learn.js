/*
A model in training, in a worker, as training/ has it. learn.c computes gradients and updates. The numbers of the program, `P`, come
with the page. T, C, V and B are those of model.py; ids are numbers below V.
*/
let P = null;
const HIGH = ""; // the upper half, which is 0, of the number of 64 bits before it
const LEARNER = [ // the fields of `Step` in step.h, and of `Learner` in learn.c after them, as numbers of 32 bits
  "B", "T", "h", "C", "V", "layers", "threads", "add", "seed", HIGH, "threshold", "scale", "count", HIGH, "matrices", HIGH, "places", "weights",
  "positions", "cosine", "sine", "idx", "targets", "expected", "gradient", "logits", "scratch", ...Array(5), // no OpenMP
  "muon", "decayed", "rounds", "weights", "means", "squares", "start", "coefficients",
];
const ONE = 0x3f800000; // the bits of 1 in float32
/** What learn.c would take from a C library. It starts no threads. */
const LIBRARY = { logf: Math.log, log2f: Math.log2, pthread_create: () => 1, pthread_join: () => 1 };

/* ---- The batch of a step: batches.py ---- */

function splitmix64(state) {
  const mask = (1n << 64n) - 1n;
  let x = (state + 0x9e3779b97f4a7c15n) & mask;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & mask;
  return x ^ (x >> 31n);
}

/** Where the windows of a step begin in n ids. */
function startsOf(step, n, T, { B, seed }) {
  const perEpoch = Math.max(1, Math.floor((n - T) / T));
  return Array.from({ length: B }, (_, i) => {
    const sample = step * B + i, mixed = splitmix64(BigInt(Math.floor(sample / perEpoch)) ^ splitmix64(BigInt(seed)));
    const [first, ...key] = Array.from({ length: 8 }, (_, j) => splitmix64(BigInt(j) + mixed));
    return permuted(sample % perEpoch, perEpoch, key) * T + Number(first % BigInt(n - perEpoch * T));
  });
}

/** The place of a number among those below `size`, in the order of a key. */
function permuted(number, size, key) {
  const bits = Math.max(1, 32 - Math.clz32(size - 1)), mask = 2 ** bits - 1, shift = (bits + 1) >> 1;
  const [start, ...rest] = key.map((n) => Number(n & 0xffffffffn) | 0); // the upper bits of a key count in no number of up to 32 bits
  let x = number;
  do {
    x = (x + start) & mask;
    for (let i = 0; i < 3; i++) x = (Math.imul(x ^ (x >>> shift), rest[i] | 1) + rest[i + 3]) & mask;
    x ^= x >>> shift;
  } while (x >= size);
  return x;
}

/* ---- A model in training ---- */

const parametersOf = (shape) => sum(shapesOf(shape).map(([, size]) => lengthOf(size)));
const inBlocks = ({ n_layer, n_embd }) => 12 * n_layer * n_embd ** 2;

/** New weights, by name: those of initialisation.py for rotary positions and biases. */
function initialWeights(shape, seed) {
  const { EMBEDDING_STD, INITIAL_STD, RANDOM_SHARE, SCORE_DIFFERENCE } = P.initial, { n_layer, n_head: h, n_embd: C } = shape;
  const random = new Random(seed), d = C / h, half = d / 2, weights = {};
  const normal = () => Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
  for (const [name, size] of shapesOf(shape)) {
    const writes = /attn.proj|mlp.down/.test(name), ofMatrix = writes ? INITIAL_STD / Math.sqrt(2 * n_layer) : 1 / Math.sqrt(size[1]);
    const deviation = name.includes("embedding") ? EMBEDDING_STD : ofMatrix, constant = Number(name.endsWith("weight"));
    weights[name] = Float32Array.from({ length: lengthOf(size) }, () => (size.length > 1 ? deviation * normal() : constant));
  }
  const matrix = weights["blocks.0.attn.qkv.weight"], vector = weights["blocks.0.attn.qkv.bias"], angle = (i) => 10000 ** (-2 * i / d);
  const drop = sum(Array.from({ length: half }, (_, i) => 1 - Math.cos(angle(i)))), strength = Math.sqrt(SCORE_DIFFERENCE * Math.sqrt(d) / drop);
  for (let i = 0; i < 2 * C * C; i++) matrix[i] *= RANDOM_SHARE;
  for (let head = 0; head < h; head++) for (let i = 0; i < Math.floor((d + 5) / 6); i++) {
    vector[head * d + i] = strength;
    vector[C + head * d + i] = strength * Math.cos((head + 1) * angle(i));
    vector[C + head * d + half + i] = strength * Math.sin((head + 1) * angle(i));
  }
  return weights;
}

class Learner {
  /** `weights` by name; `plan`: B, rate, decay, startDecay, momentum, dropout, warmup, falls (share of the run), steps, seconds, seed. */
  constructor(module, shape, weights, ids, plan) {
    const { n_layer: layers, n_head: h, n_embd: C, block_size: T, vocab_size: V } = shape, { B } = plan;
    this.kernel = new WebAssembly.Instance(module, { env: LIBRARY }).exports;
    Object.assign(this, { shape, plan, step: 0, used: 0, spans: new Map() });
    this.ids = ids.length > T ? ids : Uint32Array.from({ length: T + 1 }, (_, i) => ids[i % ids.length]);
    let count = 0;
    for (const [name, size] of shapesOf(shape)) this.spans.set(name, [count, count += lengthOf(size)]);
    const [tokens, afterTokens] = this.spans.get("token_embedding.weight"), table = this.spans.get("position_embedding.weight");
    this.fields = { B, T, h, C, V, layers, count, threads: 1, scale: ONE, matrices: tokens };
    Object.assign(this.fields, { muon: plan.optimizer === "muon" ? tokens : 0, decayed: table?.[1] ?? afterTokens });
    this.fixed = shape.positions === "sinusoidal" ? { "position_embedding.weight": weights["position_embedding.weight"] } : {};
    this.allocate(weights);
    this.weights = this.view(Float32Array, this.fields.weights, count);
    for (const [name, [begin]] of this.spans) this.weights.set(weights[name], begin);
    if (plan.startDecay) this.view(Float32Array, this.fields.start, count).set(this.weights);
  }

  /** Give each field of learn.c its memory, which then stays where it is. */
  allocate(weights) {
    const { plan, shape: { positions }, fields: f, fields: { B, T, h, C, V, layers, count } } = this, ofMatrices = P.NEWTON_SCHULZ;
    for (const name of ["weights", "gradient", "means", "squares", ...(plan.startDecay ? ["start"] : [])]) f[name] = this.take(4 * count);
    if (positions === "learned") f.positions = f.weights + 4 * this.spans.get("position_embedding.weight")[0];
    else if (positions === "rotary") [f.cosine, f.sine] = rotary(T, C / h).map((table) => this.put(Float32Array, table));
    else f.positions = this.put(Float32Array, weights["position_embedding.weight"]);
    const names = Array.from({ length: layers }, (_, i) => Object.keys(LAYER).map((name) => `blocks.${i}.${name}`)).flat();
    names.push("token_embedding.weight", "position_embedding.weight", "norm.weight", "norm.bias");
    f.places = this.put(BigInt64Array, names.map((name) => BigInt(this.spans.get(name)?.[0] ?? -1)));
    Object.assign(f, { coefficients: this.put(Float32Array, ofMatrices.flat()), rounds: ofMatrices.length });
    [f.idx, f.targets, this.logits] = [8 * B * T, 8 * B * T, 4 * B * T * V].map((bytes) => this.take(bytes));
    [this.at, this.update] = [this.take(4 * LEARNER.length), this.take(72)];
    f.threshold = plan.dropout * 2 ** 31;
    f.scratch = this.take(Math.max(...[0, this.logits].map((logits) => this.kernel.learn_scratch_size(this.describe({ logits })))));
  }

  /** Where `bytes` of new memory begin. It is never given back: a new training is a new instance. */
  take(bytes) {
    const { memory, __heap_base } = this.kernel, at = Math.ceil((this.end ?? __heap_base.value) / 64) * 64;
    this.end = at + bytes;
    try {
      memory.grow(Math.max(0, Math.ceil((this.end - memory.buffer.byteLength) / 65536)));
    } catch {
      throw new RangeError("this device has too little memory for it");
    }
    return at;
  }

  view(Type, at, n) {
    return new Type(this.kernel.memory.buffer, at, n);
  }

  put(Type, numbers) {
    const at = this.take(Type.BYTES_PER_ELEMENT * numbers.length);
    this.view(Type, at, numbers.length).set(numbers);
    return at;
  }

  /** Fill the structure of learn.c with the fields, some of which are `others` for once; returns where it is. */
  describe(others = {}) {
    const fields = { ...this.fields, ...others };
    this.view(Int32Array, this.at, LEARNER.length).set(LEARNER.map((name) => fields[name] ?? 0));
    return this.at;
  }

  /** Set the inputs and the targets: windows of `ids` from `starts` on; beyond the end, nothing counts. */
  fill(ids, starts) {
    const { B, T, idx, targets } = this.fields, [inputs, following] = [idx, targets].map((at) => this.view(Int32Array, at, 2 * B * T));
    inputs.fill(0);
    following.fill(-1);
    starts.forEach((start, row) => {
      for (let t = 0, i = 2 * row * T; t < T && start + t + 1 < ids.length; t++, i += 2) {
        inputs[i] = ids[start + t];
        following[i] = ids[start + t + 1];
        following[i + 1] = 0;
      }
    });
  }

  /** How much of the run is over, by steps or by time, 0 to 1. */
  get share() {
    return Math.max(this.step / this.plan.steps, this.used / this.plan.seconds);
  }

  get rate() {
    const { rate, warmup, falls, steps } = this.plan, start = Math.max(1 - falls, warmup / steps);
    return rate * (this.step < warmup ? (this.step + 1) / (warmup + 1) : 1 - Math.max(0, this.share - start) / (1 - start));
  }

  /** Take a step; returns the loss of its batch. Throws if it is not a number. */
  advance() {
    const { plan, step } = this, { grad_clip, betas } = P.optim, n = step + 1, done = betas.map((beta) => 1 - beta ** n);
    this.fields.seed = plan.seed * 1000003 + step;
    this.fill(this.ids, startsOf(step, this.ids.length, this.fields.T, plan));
    const loss = this.kernel.step_run(this.describe());
    const update = [this.rate, grad_clip, plan.decay, plan.startDecay, ...betas, ...done, plan.momentum];
    this.view(Float64Array, this.update, update.length).set(update);
    if (!Number.isFinite(loss + this.kernel.learn_update(this.at, this.update))) throw new RangeError("the loss is not a number any more");
    this.step = n;
    return loss;
  }

  /** The mean loss on `ids`. */
  evaluate(ids) {
    const { B, T, V } = this.fields, windows = Math.ceil((ids.length - 1) / T), at = this.describe({ logits: this.logits, threshold: 0 });
    let loss = 0;
    for (let first = 0; first < windows; first += B) {
      this.fill(ids, Array.from({ length: Math.min(B, windows - first) }, (_, row) => (first + row) * T));
      this.kernel.step_run(at);
      const last = Math.min(B * T, ids.length - 1 - first * T), logits = this.view(Float32Array, this.logits, last * V);
      for (let i = 0; i < last; i++) loss -= Math.log(prediction(logits.subarray(i * V, (i + 1) * V), ids[first * T + i + 1]).probability);
    }
    return loss / (ids.length - 1);
  }

  /** What the page and `Model` read, in float32. */
  tensors(vector = this.weights) {
    return { ...this.fixed, ...Object.fromEntries([...this.spans].map(([name, span]) => [name, vector.slice(...span)])) };
  }
}

if (typeof module === "object") Object.assign(module.exports, { Learner, startsOf, setNumbers: (numbers) => (P = numbers) });
