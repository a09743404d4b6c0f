/* The text of a lesson: from files to a vocabulary, and what text/facts.py measures. */
const LONGEST = 5e7; // characters of a text that a page reads
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

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

/** What is `known` of a tokenizer, with every character of `text`. */
function grown(known, text) {
  if (known.characters === null) return known;
  const all = new Set([...known.characters, ...text.replace(/\p{Surrogate}/gu, "")]);
  return { ...known, characters: [...all].sort((a, b) => a.codePointAt(0) - b.codePointAt(0)).join("") };
}

/** A known character that resembles another one, as `Tokenizer.nearest` finds it, or undefined. */
function nearest(character, known) {
  const base = [...character.normalize("NFKD").trimStart(), " "][0];
  const swap = (c) => (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase());
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

/** About `size` of the ids in 16 pieces from all over. */
function sampled(ids, size) {
  const piece = size >> 4, from = (i) => Math.floor(i * (ids.length - piece) / 15);
  return ids.length <= size ? ids : Uint32Array.from({ length: 16 * piece }, (_, i) => ids[from(Math.floor(i / piece)) + i % piece]);
}
