/* A lesson, in a worker: messages from the page, and what they start. */
const SHORTEST = 200; // characters of a text that a model can learn from
const EVALUATIONS = 12, EVALUATION_SHARE = 0.05; // of a run from nothing; of its time, at most
const VECTORS = 16; // as long as the weights, in bytes 4 each: what a lesson needs, and the page besides
const SAMPLE = 160, LATELY = 50; // characters; steps whose mean loss is told
const TOLD = 250, TIMED = 300; // milliseconds between two reports; of timing a model, at least
const TIMING_SECONDS = 4; // for timing models of several sizes, at most

/** The compiled kernel, with the best instructions that this browser has. */
async function compiled(code) {
  for (const name of ["relaxed", "simd"]) {
    const zipped = new Blob([bytesOf(code[name])]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(zipped).arrayBuffer();
    if (WebAssembly.validate(bytes)) return WebAssembly.compile(bytes);
  }
  throw new Error("this browser has no SIMD in WebAssembly; a newer one can learn");
}

/** The weights of a model by name, with a row of the embedding for each character of another vocabulary: `start_from` of models.py. */
function withVocabulary({ shape, weights: kind, tokenizer: before }, tensors, after) {
  const C = shape.n_embd, weights = {}, name = "token_embedding.weight";
  for (const [key, size] of storedShapesOf(shape)) weights[key] = numbersOf(tensors[key], size, kind);
  if (after.characters === before.characters) return weights;
  const old = weights[name], rows = old.length / C, row = (i) => old.subarray(i * C, (i + 1) * C);
  const mean = Float32Array.from({ length: C }, (_, c) => sum(Array.from({ length: rows }, (_, i) => old[i * C + c])) / rows);
  const known = new Map([...before.characters].map((c, i) => [c, i])), unknown = before.folded ? row(rows - 1) : mean;
  const places = [...after.characters].map((c) => known.get(known.has(c) ? c : nearest(c, known)));
  if (after.folded) places.push(undefined);
  weights[name] = new Float32Array(places.length * C);
  places.forEach((place, i) => weights[name].set(place === undefined ? unknown : row(place), i * C));
  return weights;
}

class Lesson {
  /** `files`: those with the text; `model`: {about, tensors} to begin with, or null; `memory`: bytes that it may take. */
  constructor(given) {
    P = given.numbers;
    Object.assign(this, { given, began: performance.now(), stopped: false });
    Object.assign(this, { losses: [], due: 0, worse: 0, best: null, mean: null, means: 0 }); // mean: of weights, and of how many
    this.attempt(async () => {
      this.module = await compiled(given.code);
      this.read(await Promise.all(given.files.map((file) => file.arrayBuffer())));
      postMessage({ kind: "phase", text: "measuring how fast this device learns" });
      this.begin(given.model ? this.fromModel(given.model) : this.fromNothing());
      await this.learn();
    });
  }

  attempt(act) {
    act().catch((error) => postMessage({ kind: "failed", message: error.message }));
  }

  /** Seconds of the lesson that are left: a tenth of them in any case. */
  get left() {
    return Math.max(6 * this.given.minutes, 60 * this.given.minutes - (performance.now() - this.began) / 1000);
  }

  /** Read the text, and measure what the law needs to know of it. */
  read(contents) {
    const plain = { characters: "", folded: false, newlines: "fold", lowercase: false, normalize: "none" };
    const all = contents.map(decoded).join("\n"), known = this.given.model?.about.tokenizer ?? plain;
    const text = normalized(all.slice(0, LONGEST), known), n = text.length;
    if (n < SHORTEST) throw new Error(`the text has ${n} characters, and ${SHORTEST} are needed; give a longer one`);
    this.tokenizer = new Tokenizer(grown(known, text));
    const { ids } = this.tokenizer.encode(text), V = this.tokenizer.size, border = Math.floor(ids.length * (1 - P.val_fraction));
    [this.train, this.judged] = [ids.subarray(0, border), ids.subarray(border, border + P.train.eval_chars)];
    const ngram = ngramLoss(sampled(this.train, 3e5), sampled(this.judged, 1e5), V), entropy = entropyOf(this.train, V);
    this.facts = { characters: border, judged: ids.length - border, vocabulary: V, ngram, entropy };
  }

  /** A learner that changes nothing. */
  trial(shape, weights, B) {
    const still = { rate: 0, decay: 0, startDecay: 0, momentum: 0, dropout: 0, warmup: 0, falls: 1 };
    return new Learner(this.module, shape, weights, this.train, { ...still, B, steps: 1e9, seconds: 1e9, ...this.always });
  }

  get always() {
    return { optimizer: P.optimizer.name, seed: P.train.seed };
  }

  fromModel({ about, tensors }) {
    const shape = { ...about.shape, vocab_size: this.facts.vocabulary, dropout: 0 };
    const weights = withVocabulary(about, tensors, this.tokenizer.known);
    const trial = this.trial(shape, weights, planFromModel(this.facts, shape, 0, Infinity).B), speed = speedOf(trial);
    const distance = trial.evaluate(sampled(this.judged, P.start.MEASURED)) - (about.val_loss ?? Infinity);
    return { shape, weights, speed, plan: planFromModel(this.facts, shape, Math.max(0, distance), speed * this.left) };
  }

  fromNothing() {
    const until = performance.now() + 1000 * Math.min(TIMING_SECONDS, 3 * this.given.minutes), speeds = [];
    const measured = (shape, B) => { // the speed of a larger model follows from that of the last one, if there is no time to measure it
      const size = parametersOf(shape), last = speeds.at(-1), isTimed = !last || performance.now() < until;
      const speed = isTimed ? speedOf(this.trial(shape, initialWeights(shape, 1), B)) : last.speed * (last.size / size) ** P.law.STEP_TIME_EXPONENT;
      speeds.push({ size, speed });
      return speed;
    };
    const { shape, plan, speed } = planFromNothing(this.facts, 0.95 * this.left, measured, this.given.memory / (4 * VECTORS));
    return { shape, plan, speed, weights: initialWeights(shape, P.train.seed) };
  }

  begin({ shape, weights, speed, plan }) {
    this.plan = { ...plan, seconds: this.left, ...this.always };
    this.learner = new Learner(this.module, shape, weights, this.train, this.plan);
    const affordable = EVALUATION_SHARE * this.plan.seconds * 3 * speed / plan.evaluations; // the forward pass is a third of a step
    this.val = sampled(this.judged, Math.max(2000, affordable)); // all that is judged: at the end
    const characters = this.train.length, seen = Math.min(plan.steps * plan.B * shape.block_size, speed * this.left);
    const told = { parameters: parametersOf(shape), shape, speed, ngram: this.facts.ngram, characters, epochs: seen / characters };
    postMessage({ kind: "planned", ...told });
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
      if (performance.now() - told > TOLD) {
        told = performance.now();
        this.report();
      }
      await turn();
    }
    this.evaluate();
    this.give();
  }

  report() {
    const { learner, learner: { step, used, share, fields: { B, T } }, plan } = this;
    const left = Math.min(plan.seconds - used, (plan.steps - step) * used / step);
    postMessage({ kind: "progress", share, speed: step * B * T / used, left, loss: this.loss });
  }

  get loss() {
    const last = this.losses.slice(-LATELY);
    return sum(last) / last.length;
  }

  average() {
    const { weights } = this.learner, share = 1 / ++this.means, mean = this.mean ??= weights.slice();
    for (let i = 0; i < mean.length; i++) mean[i] += (weights[i] - mean[i]) * share;
  }

  evaluate() {
    const { learner, learner: { step, share }, plan } = this, val = this.last = learner.evaluate(this.val);
    if (plan.patience && !(val >= this.best?.val)) this.best = { val, step, weights: learner.weights.slice() };
    this.worse = this.best?.step === step ? 0 : this.worse + (share > 1 - plan.falls);
    postMessage({ kind: "evaluated", share, step, val, loss: this.loss, sample: this.sample() });
  }

  /** What the model writes now. */
  sample() {
    const { learner: { shape, step }, tokenizer: { first, never } } = this, ids = [];
    const writer = new Writer(new Model({ shape, weights: "float32" }, this.learner.tensors()), never);
    const settings = { length: SAMPLE, seed: step + 1, temperature: 0.8, topK: 0 };
    for (const record of writer.write([first], settings)) if (record) ids.push(record.id);
    return this.tokenizer.decode(ids);
  }

  /** The loss of other weights on `ids`. */
  lossOf(weights, ids) {
    const last = this.learner.weights.slice();
    this.learner.weights.set(weights);
    const loss = this.learner.evaluate(ids);
    this.learner.weights.set(last);
    return loss;
  }

  /** Give the page what was learned: the last weights, their mean, or the best ones. */
  give() {
    const { learner: { shape, step, weights }, given: { model: start, files }, tokenizer: { known } } = this, names = files.map(({ name }) => name);
    const found = [{ val: this.last, step, weights: weights.slice() }, ...(this.best ? [this.best] : [])];
    if (this.mean) found.push({ val: this.lossOf(this.mean, this.val), step, weights: this.mean });
    const kept = found.reduce((a, b) => (b.val < a.val ? b : a)), isOver = !this.stopped;
    const val_loss = isOver ? this.lossOf(kept.weights, this.judged) : kept.val, texts = [...(start?.about.texts ?? []), ...names];
    const about = { run: names[0].replace(/\.\w+$/, ""), step, val_loss, texts, parameters: weights.length, shape, tokenizer: known,
      weights: "float32", items: start?.about.items ?? null };
    const model = { about, tensors: this.learner.tensors(kept.weights) };
    postMessage({ kind: "learned", model, ngram: this.facts.ngram, loss: this.loss, kept: kept.step, isOver });
  }

  stop() {
    this.stopped = true;
  }

  /** Go on after `stop`. */
  resume() {
    this.stopped = false;
    this.attempt(() => this.learn());
  }
}

/** Characters a second of a learner, after a step in which the browser compiles: those of a busy device, if it is busy. */
function speedOf(learner) {
  const { B, T } = learner.fields;
  learner.advance();
  const began = performance.now();
  let steps = 0;
  while (steps < 2 || performance.now() - began < TIMED) {
    learner.advance();
    steps++;
  }
  return 1000 * B * T * steps / (performance.now() - began);
}

BEGINS.learn = Lesson;
