/*
Learning, in a worker: what training/, planning/law.py and planning/adaptation.py do, for one browser. learn.c computes gradients and
updates; the numbers of the program, `P`, come with the page. T, C, V and B are those of model.py; ids are numbers below V.
*/
const LEARNER = ["B", "T", "h", "C", "V", "layers", "count", "muon", "decayed", "threshold", "seed", "places", "weights", "gradient",
  "means", "squares", "start", "positions", "cosine", "sine", "idx", "targets", "logits", "coefficients", "rounds", "scratch"]; // of learn.c
const LAYER = ["norm_1.weight", "norm_1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias",
  "norm_2.weight", "norm_2.bias", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"]; // as step.h numbers them
const SHORTEST = 200, LONGEST = 5e7; // characters of a text that a model can learn from, and of one that a page reads
const EVALUATIONS = 12, EVALUATION_SHARE = 0.05, SAMPLE = 160; // of a run, at least; of its time, at most; characters
let P = null; // the numbers of the program
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/* ---- The text ---- */

/** The characters of the content of files: UTF-8 or UTF-16, else what Windows writes in the West. */
function decoded(content) {
  const bytes = new Uint8Array(content), mark = bytes[0] << 8 | bytes[1];
  if (mark === 0xfffe || mark === 0xfeff) return new TextDecoder(mark === 0xfffe ? "utf-16le" : "utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** The ids of `text` after its normalisation; unknown characters have the id of folded ones, or none. */
function idsOf(text, tokenizer) {
  if (tokenizer.characters === null) return new TextEncoder().encode(text);
  const characters = [...tokenizer.characters], ids = new Uint32Array(text.length), known = new Map(characters.map((c, id) => [c, id]));
  let n = 0;
  for (const character of text) {
    const id = known.get(character) ?? (tokenizer.folded ? characters.length : -1);
    if (id >= 0) ids[n++] = id;
  }
  return ids.subarray(0, n);
}

/** `text` as a tokenizer reads it. */
function normalized(text, { newlines, lowercase, normalize, characters }) {
  if (newlines === "fold" || (characters !== null && !characters.includes("\r"))) text = text.replace(/\r\n?/g, "\n");
  if (lowercase) text = text.toLowerCase();
  return normalize === "none" ? text : text.normalize(normalize);
}

/** `tokenizer` with every character of `text` that it does not know yet. */
function grown(tokenizer, text) {
  if (tokenizer.characters === null) return tokenizer;
  const all = new Set([...tokenizer.characters, ...text.replace(/\p{Surrogate}/gu, "")]);
  return { ...tokenizer, characters: [...all].sort((a, b) => a.codePointAt(0) - b.codePointAt(0)).join("") };
}

/** A known character that resembles another one, as `Tokenizer.nearest` finds it, or undefined. */
function nearest(character, known) {
  const base = [...character.normalize("NFKD").trimStart(), " "][0], swap = (c) => (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase());
  const group = P.LOOK_ALIKES.find((all) => all.includes(character) || all.includes(base)) ?? base;
  const kind = [/\p{P}/u, /\p{S}/u, /\p{Z}/u, /\p{N}/u].find((pattern) => pattern.test(character));
  const distance = (c) => Math.abs(c.codePointAt(0) - character.codePointAt(0));
  const alike = kind ? [...known.keys()].filter((c) => kind.test(c)).sort((a, b) => distance(a) - distance(b)) : [];
  return [swap(character), base, ...group, swap(base), ...alike].find((c) => known.has(c));
}

/** The mean loss on `val`, in nats, of a table of counts of up to four neighbours in `train` (Witten and Bell 1991). */
function ngramLoss(train, val, V) {
  const order = Math.min(V ** 4 < Number.MAX_SAFE_INTEGER ? 3 : 2, train.length - 1, val.length - 1), n = val.length - order;
  const gram = (ids, end, length) => {
    let number = 0;
    for (let i = end - length; i < end; i++) number = number * V + ids[i];
    return number;
  };
  let shares = new Float64Array(n).fill(1 / V);
  for (let length = 1; length <= order + 1; length++) {
    const times = new Map(), contexts = new Map(); // of each gram; of what precedes its last id: [times, kinds]
    for (let end = order + 1; end <= train.length; end++) {
      const key = gram(train, end, length), before = times.get(key) ?? 0, context = gram(train, end - 1, length - 1);
      times.set(key, before + 1);
      const counted = contexts.get(context);
      if (!counted) contexts.set(context, [1, 1]);
      else counted[0]++, before || counted[1]++;
    }
    shares = shares.map((share, i) => {
      const end = order + i + 1, [total, kinds] = contexts.get(gram(val, end - 1, length - 1)) ?? [0, 0];
      return total ? ((times.get(gram(val, end, length)) ?? 0) + kinds * share) / (total + kinds) : share;
    });
  }
  return -sum(shares.map(Math.log)) / n;
}

/** The loss on `ids` of a model that knows their frequencies alone. */
function entropyOf(ids, V) {
  const counts = new Float64Array(V);
  for (const id of ids) counts[id]++;
  return -sum(counts.map((n) => (n ? (n / ids.length) * Math.log(n / ids.length) : 0)));
}

/* ---- The batch of a step: batches.py ---- */

function splitmix64(state) {
  const mask = (1n << 64n) - 1n;
  let x = (state + 0x9e3779b97f4a7c15n) & mask;
  x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
  x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & mask;
  return x ^ (x >> 31n);
}

class Batches {
  constructor(ids, T, size, seed) {
    this.ids = ids.length > T ? ids : Uint32Array.from({ length: T + 1 }, (_, i) => ids[i % ids.length]);
    this.perEpoch = Math.max(1, Math.floor((this.ids.length - T) / T));
    Object.assign(this, { T, size, seed: BigInt(seed), epoch: -1, key: null });
  }

  /** Where the windows of a step begin. */
  starts(step) {
    return Array.from({ length: this.size }, (_, i) => {
      const sample = step * this.size + i, epoch = Math.floor(sample / this.perEpoch);
      if (epoch !== this.epoch) this.setEpoch(epoch);
      return this.permuted(sample % this.perEpoch) * this.T + this.offset;
    });
  }

  setEpoch(epoch) {
    const mixed = splitmix64(BigInt(epoch) ^ splitmix64(this.seed));
    const [first, ...key] = Array.from({ length: 8 }, (_, i) => splitmix64(BigInt.asUintN(64, BigInt(i) + mixed)));
    this.epoch = epoch;
    this.offset = Number(first % BigInt(this.ids.length - this.perEpoch * this.T));
    this.key = key.map((n) => Number(n & 0xffffffffn) | 0); // the upper bits of a key count in no number of up to 32 bits
  }

  permuted(number) {
    const bits = Math.max(1, 32 - Math.clz32(this.perEpoch - 1)), mask = 2 ** bits - 1, shift = (bits + 1) >> 1, [start, ...rest] = this.key;
    let x = number;
    do {
      x = (x + start) & mask;
      for (let i = 0; i < 3; i++) x = (Math.imul(x ^ (x >>> shift), rest[i] | 1) + rest[i + 3]) & mask;
      x ^= x >>> shift;
    } while (x >= this.perEpoch);
    return x;
  }
}

/* ---- A model in training ---- */

/** The names and shapes of the weights of a model, and the order in which they lie in the vectors, as in weights.py. */
function shapesOf({ n_layer, n_embd: C, block_size, vocab_size, bias, positions }) {
  const sizes = { "attn.qkv.weight": [3 * C, C], "attn.proj.weight": [C, C], "mlp.up.weight": [4 * C, C], "mlp.down.weight": [C, 4 * C],
    "attn.qkv.bias": [3 * C], "mlp.up.bias": [4 * C] };
  const layers = Array.from({ length: n_layer }, (_, i) => i), some = (names) => layers.flatMap((i) => names.map((name) => [`blocks.${i}.${name}`, sizes[name] ?? [C]]));
  const vectors = LAYER.filter((name) => name.includes("norm") || name.endsWith("bias")).filter((name) => bias || !name.endsWith("bias"));
  return [...some(["attn.qkv.weight", "attn.proj.weight"]), ...some(["mlp.up.weight"]), ...some(["mlp.down.weight"]),
    ["token_embedding.weight", [vocab_size, C]], ...(positions === "learned" ? [["position_embedding.weight", [block_size, C]]] : []),
    ...some(vectors), ["norm.weight", [C]], ...(bias ? [["norm.bias", [C]]] : [])];
}

const lengthOf = (size) => size.reduce((a, b) => a * b, 1);
const parametersOf = (shape) => sum(shapesOf(shape).map(([, size]) => lengthOf(size)));
const inBlocks = ({ n_layer, n_embd }) => 12 * n_layer * n_embd ** 2;

/** New weights, by name: those of initialisation.py for rotary positions and biases. */
function initialWeights(shape, seed) {
  const random = new Random(seed), { n_layer, n_head: h, n_embd: C } = shape, d = C / h, half = d / 2, weights = {};
  const normal = () => Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
  for (const [name, size] of shapesOf(shape)) {
    const writes = /attn.proj|mlp.down/.test(name), deviation = name.includes("embedding") ? P.initial.EMBEDDING_STD : writes ? P.initial.INITIAL_STD / Math.sqrt(2 * n_layer) : 1 / Math.sqrt(size[1]);
    weights[name] = Float32Array.from({ length: lengthOf(size) }, () => (size.length > 1 ? deviation * normal() : Number(name.endsWith("weight"))));
  }
  const angle = (i) => 10000 ** (-2 * i / d), drop = sum(Array.from({ length: half }, (_, i) => 1 - Math.cos(angle(i))));
  const strength = Math.sqrt(P.initial.SCORE_DIFFERENCE * Math.sqrt(d) / drop), matrix = weights["blocks.0.attn.qkv.weight"], vector = weights["blocks.0.attn.qkv.bias"];
  for (let i = 0; i < 2 * C * C; i++) matrix[i] *= P.initial.RANDOM_SHARE;
  for (let head = 0; head < h; head++) for (let i = 0; i < (d + 5 - (d + 5) % 6) / 6; i++) {
    vector[head * d + i] = strength;
    vector[C + head * d + i] = strength * Math.cos((head + 1) * angle(i));
    vector[C + head * d + half + i] = strength * Math.sin((head + 1) * angle(i));
  }
  return weights;
}

class Learner {
  /** `weights` by name; `plan`: B, rate, decay, startDecay, momentum, dropout, warmup, falls (share of the run), steps, seconds, seed. */
  constructor(module, shape, weights, ids, plan) {
    const { n_layer: layers, n_head: h, n_embd: C, block_size: T, vocab_size: V, positions } = shape, sizes = shapesOf(shape), { B } = plan;
    this.kernel = new WebAssembly.Instance(module).exports;
    Object.assign(this, { shape, plan, step: 0, used: 0, batches: new Batches(ids, T, B, plan.seed), spans: new Map() });
    const count = parametersOf(shape), places = [], f = this.fields = { B, T, h, C, V, layers, count, rounds: P.NEWTON_SCHULZ.length, threshold: plan.dropout * 2 ** 31 };
    let end = 0;
    for (const [name, size] of sizes) this.spans.set(name, [end, end += lengthOf(size)]);
    for (let i = 0; i < layers; i++) places.push(...LAYER.map((name) => `blocks.${i}.${name}`));
    places.push("token_embedding.weight", "position_embedding.weight", "norm.weight", "norm.bias");
    f.decayed = (this.spans.get("position_embedding.weight") ?? this.spans.get("token_embedding.weight"))[1];
    f.muon = plan.optimizer === "muon" ? this.spans.get("token_embedding.weight")[0] : 0;
    for (const name of ["weights", "gradient", "means", "squares", ...(plan.startDecay ? ["start"] : [])]) f[name] = this.take(4 * count);
    const table = positions === "learned" ? [] : positions === "rotary" ? rotary(T, C / h) : [weights["position_embedding.weight"]];
    const at = table.map((numbers) => this.put(Float32Array, numbers));
    Object.assign(f, positions === "rotary" ? { cosine: at[0], sine: at[1] } : { positions: at[0] ?? f.weights + 4 * this.spans.get("position_embedding.weight")[0] });
    f.places = this.put(BigInt64Array, places.map((name) => BigInt(this.spans.get(name)?.[0] ?? -1)));
    f.coefficients = this.put(Float32Array, P.NEWTON_SCHULZ.flat());
    [f.idx, f.targets, f.logits] = [8 * B * T, 8 * B * T, 4 * B * T * V].map((bytes) => this.take(bytes));
    [this.at, this.update] = [this.take(4 * LEARNER.length), this.take(72)];
    this.describe();
    f.scratch = this.take(this.kernel.learn_scratch_size(this.at));
    this.describe();
    this.weights = this.view(Float32Array, f.weights, count);
    for (const [name, [begin]] of this.spans) this.weights.set(weights[name], begin);
    if (f.start) this.view(Float32Array, f.start, count).set(this.weights);
  }

  take(bytes) {
    const at = this.kernel.learn_memory(bytes);
    if (!at) throw new RangeError("too little memory");
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

  describe() {
    this.view(Int32Array, this.at, LEARNER.length).set(LEARNER.map((name) => this.fields[name] ?? 0));
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
    const { plan, step } = this, [beta1, beta2] = P.optim.betas, n = step + 1;
    this.fields.seed = plan.seed * 1000003 + step;
    this.describe();
    this.fill(this.batches.ids, this.batches.starts(step));
    const loss = this.kernel.learn_gradient(this.at);
    this.view(Float64Array, this.update, 9).set([this.rate, P.optim.grad_clip, plan.decay, plan.startDecay, beta1, beta2, 1 - beta1 ** n, 1 - beta2 ** n, plan.momentum]);
    if (!Number.isFinite(loss + this.kernel.learn_update(this.at, this.update))) throw new RangeError("the loss is not a number any more");
    this.step = n;
    return loss;
  }

  /** The mean loss on `ids`. */
  evaluate(ids) {
    const { B, T } = this.fields, windows = Math.ceil((ids.length - 1) / T);
    let loss = 0;
    for (let first = 0; first < windows; first += B) {
      this.fill(ids, Array.from({ length: Math.min(B, windows - first) }, (_, row) => (first + row) * T));
      loss += this.kernel.learn_loss(this.at);
    }
    return loss / (ids.length - 1);
  }

  /** What the page and `Model` read. */
  tensors(vector = this.weights) {
    const found = {};
    for (const [name, [rows, columns]] of shapesOf(this.shape)) {
      const data = vector.slice(...this.spans.get(name));
      found[name] = { rows: columns ? rows : 1, columns: columns ?? rows, format: "float32", data };
    }
    return found;
  }
}

/** Cosines and sines of rotary positions, [T][d / 2] each. */
function rotary(T, d) {
  return [Math.cos, Math.sin].map((f) => Float32Array.from({ length: T * d / 2 }, (_, i) => f(Math.floor(i / (d / 2)) * 10000 ** (-2 * (i % (d / 2)) / d))));
}

/* ---- A lesson: messages from the page, and what they start ---- */

/** The compiled kernel, with the best instructions that this browser has. */
async function compiled(code) {
  for (const name of ["relaxed", "simd"]) {
    const zipped = new Blob([bytesOf(code[name])]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(zipped).arrayBuffer();
    if (WebAssembly.validate(bytes)) return WebAssembly.compile(bytes);
  }
  throw new Error("this browser has no SIMD in WebAssembly; a newer one can learn");
}

/** About `size` of the ids in 16 pieces from all over. */
function sampled(ids, size) {
  const piece = size >> 4, from = (i) => Math.floor(i * (ids.length - piece) / 15);
  return ids.length <= size ? ids : Uint32Array.from({ length: 16 * piece }, (_, i) => ids[from(Math.floor(i / piece)) + i % piece]);
}

class Lesson {
  /** `contents`: texts, or the bytes of files; `tensors`: of the model to begin with, or null; `memory`: bytes that it may take. */
  constructor(given) {
    P = given.numbers;
    Object.assign(this, { given, channel: new MessageChannel(), stopped: false, best: null, mean: null, means: 0, worse: 0, losses: [] });
    this.prepare().then(() => this.learn()).catch((error) => postMessage({ kind: "failed", message: error.message }));
  }

  async prepare() {
    const { contents, tensors, about, minutes, memory, code } = this.given, began = performance.now(), module = await compiled(code);
    const plain = { characters: "", folded: false, newlines: "fold", lowercase: false, normalize: "none" }, before = tensors ? about.tokenizer : plain;
    const text = normalized(contents.map((c) => (typeof c === "string" ? c : decoded(c))).join("\n").slice(0, LONGEST), before);
    if (text.length < SHORTEST) throw new Error(`the text has ${text.length} characters, and ${SHORTEST} are needed; give a longer one`);
    const tokenizer = this.tokenizer = grown(before, text), V = tokenizer.characters === null ? 256 : [...tokenizer.characters].length + tokenizer.folded;
    const ids = idsOf(text, tokenizer), train = ids.subarray(0, Math.floor(ids.length * (1 - P.val_fraction))), val = ids.subarray(train.length);
    const measured = sampled(val, P.start.MEASURED), ngram = ngramLoss(sampled(train, 3e5), sampled(val, 1e5), V);
    const facts = this.facts = { characters: train.length, judged: val.length, vocabulary: V, ngram, entropy: entropyOf(train, V) };
    const passed = () => (performance.now() - began) / 1000, left = () => Math.max(6 * minutes, 60 * minutes - passed()), timed = { rate: 0, decay: 0, startDecay: 0, momentum: 0, dropout: 0, warmup: 0, falls: 1, steps: 1e9, seconds: 1e9, optimizer: P.optimizer.name, seed: P.train.seed };
    let shape, plan, weights, speed;
    postMessage({ kind: "phase", text: "measuring how fast this device learns" });
    if (tensors) {
      shape = { ...about.shape, vocab_size: V, dropout: 0 };
      weights = this.grownWeights(tensors, before, tokenizer);
      const trial = new Learner(module, shape, weights, train, { ...timed, B: planFromModel(facts, shape, 0, Infinity).B });
      speed = this.speedOf(trial);
      plan = planFromModel(facts, shape, Math.max(0, trial.evaluate(measured) - (about.val_loss ?? Infinity)), speed * left());
    } else {
      const timings = passed() + Math.min(P.law.TIMING_SECONDS, 3 * minutes), speeds = new Map();
      let known = null; // the last shape that was timed, and its speed
      const speedOf = (tried, B) => {
        const faster = known && (parametersOf(known.tried) / parametersOf(tried)) ** P.law.STEP_TIME_EXPONENT;
        const found = known && passed() > timings ? known.speed * faster : this.speedOf(new Learner(module, tried, initialWeights(tried, 1), train, { ...timed, B }));
        known = { tried, speed: found };
        speeds.set(tried.n_embd, found);
        return found;
      };
      ({ shape, plan } = planFromNothing(facts, 0.95 * left(), speedOf, memory / 64)); // 14 vectors, and as much for a second one
      weights = initialWeights(shape, P.train.seed);
      speed = speeds.get(shape.n_embd);
    }
    this.plan = { ...timed, ...plan, seconds: left() };
    this.learner = new Learner(module, shape, weights, train, this.plan);
    const affordable = EVALUATION_SHARE * this.plan.seconds * 3 * speed / plan.evaluations; // the forward pass is a third of a step
    this.judged = val.subarray(0, P.train.eval_chars); // at the end; on the way, as much of it as there is time for
    this.val = sampled(this.judged, Math.max(2000, affordable));
    this.due = 0;
    postMessage({ kind: "planned", parameters: parametersOf(shape), shape, speed, ngram, characters: ids.length, epochs: Math.min(plan.steps * plan.B * shape.block_size, speed * left()) / train.length });
  }

  /** Characters a second of a learner, after what the browser needs to compile the code well. */
  speedOf(learner) {
    const { B, T } = learner.fields, began = performance.now();
    let best = Infinity;
    for (let i = 0; i < 3 || performance.now() - began < 200; i++) {
      const before = performance.now();
      learner.advance();
      best = Math.min(best, performance.now() - before);
    }
    return 1000 * B * T / best;
  }

  /** The weights of the model to begin with, with a row of the embedding for each character of the new vocabulary. */
  grownWeights(tensors, before, after) {
    const float16 = float16Values(), weights = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, numbersOf(tensor, float16)]));
    const old = weights["token_embedding.weight"], C = this.given.about.shape.n_embd, rows = old.length / C;
    const row = (i) => old.subarray(i * C, (i + 1) * C), mean = Float32Array.from({ length: C }, (_, c) => sum(Array.from({ length: rows }, (_, i) => old[i * C + c])) / rows);
    if (after.characters !== before.characters) {
      const known = new Map([...before.characters].map((c, i) => [c, i])), unknown = before.folded ? row(rows - 1) : mean;
      const places = [...after.characters].map((c) => known.get(known.has(c) ? c : nearest(c, known)));
      const begun = weights["token_embedding.weight"] = new Float32Array((places.length + after.folded) * C);
      [...places, ...(after.folded ? [undefined] : [])].forEach((place, i) => begun.set(place === undefined ? unknown : row(place), i * C));
    }
    return weights;
  }

  async learn() {
    const { learner, plan } = this;
    let told = 0, usual = Infinity;
    while (!this.stopped && learner.share < 1 && !(plan.patience && this.worse >= plan.patience)) {
      const began = performance.now();
      if (learner.share >= this.due) {
        this.due = learner.share + 1 / plan.evaluations;
        this.evaluate();
      }
      this.losses.push(learner.advance());
      if (plan.averaged && learner.share > 1 - plan.averaged) this.average();
      const took = (performance.now() - began) / 1000;
      usual = Math.min(usual, took);
      learner.used += Math.min(took, 20 * usual + 1); // a device that sleeps does not learn
      if (performance.now() - told > 8 * SLICE) {
        told = performance.now();
        const { B, T } = learner.fields, left = Math.min(plan.seconds - learner.used, (plan.steps - learner.step) * learner.used / learner.step);
        postMessage({ kind: "progress", share: learner.share, speed: learner.step * B * T / learner.used, left, loss: this.loss() });
      }
      await this.turn();
    }
    this.evaluate();
    this.give();
  }

  loss() {
    const last = this.losses.slice(-50);
    return sum(last) / last.length;
  }

  average() {
    const { weights } = this.learner, share = 1 / ++this.means, mean = this.mean ??= weights.slice();
    for (let i = 0; i < mean.length; i++) mean[i] += (weights[i] - mean[i]) * share;
  }

  evaluate() {
    const { learner, plan } = this, val = learner.evaluate(this.val), isFalling = learner.share > 1 - plan.falls;
    if (plan.patience && !(val >= this.best?.val)) this.best = { val, step: learner.step, weights: learner.weights.slice() };
    this.worse = this.best?.step === learner.step ? 0 : this.worse + isFalling;
    this.last = val;
    postMessage({ kind: "evaluated", share: learner.share, step: learner.step, val, loss: this.losses.length ? this.loss() : NaN, sample: this.sample() });
  }

  /** Ids that the model writes now. */
  sample() {
    const { shape } = this.learner, model = new Model(shape, this.tensors(), {}), window = new Window(model, model.contexts[0]), random = new Random(this.learner.step + 1);
    const text = [this.first], never = this.tokenizer.folded ? shape.vocab_size - 1 : -1;
    while (text.length <= SAMPLE) {
      let logits;
      for (const [, following] of window.read(text)) logits = following;
      text.push(choose(logits, { temperature: 0.8, topK: 0 }, never, random));
    }
    return textOf(text.slice(1), this.tokenizer);
  }

  get first() {
    return this.tokenizer.characters === null ? 10 : Math.max(0, [...this.tokenizer.characters].indexOf("\n"));
  }

  tensors(vector) {
    const found = this.learner.tensors(vector), { "position_embedding.weight": table } = this.given.tensors ?? {};
    return this.learner.shape.positions === "sinusoidal" ? { ...found, "position_embedding.weight": table } : found;
  }

  /** Give the page what was learned: the last weights, their mean, or the best ones. */
  give() {
    const { learner, given: { about, tensors, names, run }, tokenizer, facts } = this, { shape, step } = learner, last = learner.weights.slice();
    let [val, weights, kept] = [this.last, last, step];
    if (this.mean) {
      learner.weights.set(this.mean);
      const ofMean = learner.evaluate(this.val);
      if (!(ofMean > val)) [val, weights] = [ofMean, this.mean];
    }
    if (this.best?.val < val) [val, weights, kept] = [this.best.val, this.best.weights, this.best.step];
    learner.weights.set(weights);
    if (!this.stopped) val = learner.evaluate(this.judged);
    learner.weights.set(last);
    const never = tokenizer.folded ? shape.vocab_size - 1 : -1, texts = [...(tensors ? about.texts : []), ...names];
    const taught = { run, step, val_loss: val, texts, parameters: weights.length, shape, tokenizer, never, first: this.first, weights: "float32", items: tensors ? about.items : null };
    postMessage({ kind: "learned", about: taught, tensors: this.tensors(weights), ngram: facts.ngram, loss: this.loss(), kept, isOver: !this.stopped });
  }

  turn() {
    return Engine.prototype.turn.call(this);
  }

  stop() {
    this.stopped = true;
  }

  /** Go on after `stop`. */
  resume() {
    this.stopped = false;
    this.learn().catch((error) => postMessage({ kind: "failed", message: error.message }));
  }
}

/** The text of ids. */
function textOf(ids, { characters }) {
  if (characters === null) return new TextDecoder().decode(Uint8Array.from(ids));
  const all = [...characters];
  return ids.map((id) => all[id] ?? "\ufffd").join("");
}

BEGINS.learn = Lesson;

if (typeof module === "object") Object.assign(module.exports, { Learner, setNumbers: (numbers) => (P = numbers) });
