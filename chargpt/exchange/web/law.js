/* What to train for a text and a time: law.py and adaptation.py of planning/, for the optimizer of --minutes, with their numbers. */

/** The value at a number, between those of the `points` next to it, by its logarithm. */
function interpolated(points, at) {
  const next = points.findIndex(([number]) => number >= at);
  if (next <= 0) return points.at(next)[1];
  const [[a, low], [b, high]] = points.slice(next - 1, next + 1);
  return low + Math.log(at / a) / Math.log(b / a) * (high - low);
}

/** How many new characters teach as much as `seen` characters of this text, which repeats itself. */
function effectiveCharacters({ characters }, seen) {
  const { REPEATS } = P.law, more = seen / characters - 1;
  return more <= 0 ? seen : characters * (1 + REPEATS * (1 - Math.exp(-more / REPEATS)));
}

/** The loss to expect of a model with `parameters` in its blocks that has seen so many characters. */
function expectedLoss(text, parameters, seen) {
  const L = P.law, { sees, useful_parameters } = P.optimizer, n = text.characters;
  const size = 1 / (1 / Math.min(parameters, useful_parameters * n) + 1 / (L.MAX_USEFUL * n));
  const isLong = Math.min(1, Math.max(0, Math.log(n / L.SEES_ALL) / Math.log(L.SEES_LEAST / L.SEES_ALL)));
  const useful = Math.max(effectiveCharacters(text, seen), 1) * sees ** isLong;
  const learned = L.SEEN * (parameters / 1e5) ** L.GROWTH * (1e6 / useful) ** L.SEEN_POWER;
  const short = Math.min(1, n / 1e6) ** L.TEXT_POWER * Math.min(1, n / L.SHORT_TEXT) ** L.SHORT_POWER;
  return Math.min(text.ngram * short * (L.FLOOR + L.SIZE * (1e5 / size) ** L.SIZE_POWER + learned), text.entropy);
}

/** Weight decay and dropout. */
function regularization(text, parameters, seen) {
  const L = P.law, epochs = seen / text.characters, repeated = epochs ** 2 * parameters / text.characters;
  let decay = interpolated(L.WEIGHT_DECAY, repeated), dropping = repeated;
  if (text.characters < L.RARE * text.vocabulary) {
    const [first, full] = L.RARE_EPOCHS, memorised = Math.min(1, Math.max(0, (epochs - first) / (full - first)));
    decay = Math.max(decay, L.WEIGHT_DECAY[0][1] ** (1 - memorised) * L.RARE_DECAY ** memorised);
    if (text.vocabulary > L.LARGE_VOCABULARY) dropping *= L.EMBEDDING_MEMORISES ** memorised;
  }
  const dropout = interpolated(L.DROPOUT, dropping);
  const most = parameters <= L.SMALL ? P.optimizer.small_dropout : 1;
  return [Number(decay.toPrecision(2)), Number(Math.min(dropout, most).toFixed(2))];
}

/** The training of a model with `parameters` in its blocks. */
function recipeFor(text, parameters, seen) {
  const L = P.law, [decay, dropout] = regularization(text, parameters, seen);
  const most = parameters < L.MEDIUM ? L.MOST_IN_STEP : L.MOST_IN_STEP_MEDIUM;
  const inStep = Math.min(most, Math.max(L.LEAST_IN_STEP, L.IN_STEP_MULTIPLE * Math.round(seen / L.STEPS / L.IN_STEP_MULTIPLE)));
  const highest = Math.max(L.LOWEST_LIMIT, L.MAX_TIMESCALES / (decay * Math.max(1, seen / inStep)));
  const rate = Math.min(highest, P.optimizer.rates.find(([size]) => parameters <= size)[1]);
  const momentum = parameters < L.LARGE ? L.MOMENTUM : L.MOMENTUM_LARGE;
  return { decay, dropout, rate: Number(rate.toPrecision(2)), momentum, inStep };
}

function contextFor(text, width, seen) {
  const L = P.law, learnsMuch = width > L.NARROW || effectiveCharacters(text, seen) * text.entropy > L.MUCH_SEEN;
  const wanted = L.SHORT_CONTEXT * (learnsMuch ? 2 : 1) * (text.vocabulary > L.LARGE_VOCABULARY ? 2 : 1);
  return Math.max(L.SHORTEST_CONTEXT, Math.min(wanted, Math.floor(text.characters / 2), text.judged - 1));
}

/** A training from nothing: shape, plan and speed with the lowest loss to expect. `measured(shape, B)` gives characters a second. */
function planFromNothing(text, seconds, measured, mostNumbers) {
  const L = P.law, useful = L.MAX_EPOCHS * text.characters, candidates = [];
  for (const [n_layer, n_embd] of L.SHAPES) {
    const shape = { n_layer, n_embd, n_head: n_embd / L.HEAD_SIZE, dropout: 0, ...P.optimizer.model, vocab_size: text.vocabulary };
    shape.block_size = contextFor(text, n_embd, 0);
    if (candidates.length && parametersOf(shape) > mostNumbers) break;
    const speed = measured(shape, Math.max(1, Math.round(L.LEAST_IN_STEP / shape.block_size)));
    const seen = Math.min(useful, speed * seconds), loss = expectedLoss(text, inBlocks(shape), seen);
    if (candidates.length > 1 && loss > candidates.at(-1).loss + L.CLEARLY_WORSE) break;
    shape.block_size = contextFor(text, n_embd, seen);
    candidates.push({ shape, speed, loss, plan: completed(text, shape, seen, useful) });
  }
  const lowest = Math.min(...candidates.map(({ loss }) => loss));
  return candidates.find(({ loss }) => loss <= lowest + L.NEGLIGIBLE);
}

/** The plan of a shape that sees so many characters in its time, and `useful` ones at most. */
function completed(text, shape, seen, useful) {
  const L = P.law, { inStep, ...recipe } = recipeFor(text, inBlocks(shape), seen), epochs = seen / text.characters;
  const B = Math.max(1, Math.round(inStep / shape.block_size)), stepsOf = (characters) => Math.floor(characters / (B * shape.block_size));
  const averaged = text.characters <= L.AVERAGED_UP_TO && epochs >= L.AVERAGED_FROM ? L.AVERAGED : 0;
  const warmup = Math.min(P.optim.warmup_steps, Math.floor(stepsOf(seen) / 10)), patience = epochs > L.PATIENT_EPOCHS ? 3 : 0;
  const length = { steps: Math.max(L.MIN_STEPS, stepsOf(useful)), warmup, falls: P.optim.decay_fraction, averaged, patience };
  return { B, ...recipe, ...length, startDecay: 0, evaluations: EVALUATIONS };
}

/** A training of a model that knows a language, `distance` nats from the text: gentle, for a few epochs of `most` characters in all. */
function planFromModel(text, shape, distance, most) {
  const S = P.start, [lowest, highest] = P.optimizer.start_rates, parameters = parametersOf(shape), n = text.characters;
  const gentle = S.FEWEST_EPOCHS + S.EPOCHS_OF_A_NAT * distance / Math.max(1, parameters / S.SMALL) ** 2;
  const [least, largest] = S.STEP_CHARACTERS, inStep = Math.min(largest, Math.max(least, S.EPOCHS * n / S.STEPS));
  const B = Math.max(1, Math.round(inStep / shape.block_size)), perStep = B * shape.block_size;
  const steps = Math.max(1, Math.ceil(Math.min(Math.min(S.EPOCHS, Number(gentle.toFixed(1))) * n, most) / perStep));
  const sameKind = Math.min(highest, Math.max(lowest, lowest * (n / S.LOWEST_RATE_FOR) ** S.RATE_POWER));
  const rate = Number((sameKind * (highest / sameKind) ** Math.sqrt(Math.min(1, distance / S.FAR))).toPrecision(2));
  const startDecay = parameters > S.SMALL ? Number((S.START_DECAY_STEPS / steps).toPrecision(2)) : 0, passes = steps * perStep / n;
  const length = { steps, warmup: Math.min(S.WARMUP_STEPS, steps >> 1), falls: 1, averaged: 0 };
  const evaluations = passes >= 2 ? Math.min(S.MOST_EVALUATIONS, Math.floor(2 * passes)) : S.EVALUATIONS;
  const patience = text.judged < S.SMALL_SPLIT ? 0 : S.PATIENCE, { momentum } = P.optim;
  return { B, rate, startDecay, decay: S.WEIGHT_DECAY, dropout: S.DROPOUT, momentum, ...length, evaluations, patience };
}
