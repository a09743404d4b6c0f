/*
Write with the model of an exported page from JavaScript of your own, in Node.js, Deno, Bun or a browser. Copy this file; it needs
nothing else.

    import { open } from "./write.mjs";
    const model = open(await readFile("poems.html", "utf8")); // in a browser: await (await fetch("poems.html")).text()
    model.write({ prompt: "The sea", length: 200, temperature: 0.8, seed: 1 });
    model.item({ label: "Finnish", seed: 1 }); // of a run on items

The engine is the one in the page. It is run as code, so open only pages that you or somebody you trust has made.
*/

const content = (page, id) => page.match(new RegExp(`<script [^>]*id="${id}">([^]*?)</script>`))[1];
const TENSOR = /<script type="application\/octet-stream" data-tensor="([^"]+)" data-rows="(\d+)" data-columns="(\d+)" data-format="(\w+)">([^<]*)</g;

/** The model in the HTML of an exported page. */
export function open(page) {
  const engine = { exports: {} }, about = JSON.parse(content(page, "about")), tensors = {};
  new Function("module", content(page, "engine"))(engine);
  for (const [, name, rows, columns, format, data] of page.matchAll(TENSOR))
    tensors[name] = { rows: Number(rows), columns: Number(columns), format, data };
  return new PageModel(engine.exports, about, tensors);
}

class PageModel {
  constructor({ Model, Window, Random, choose }, about, tensors) {
    Object.assign(this, { about, Window, Random, choose, model: new Model(about.shape, tensors) });
    const { characters, folded } = about.tokenizer;
    this.characters = characters === null ? null : [...characters, ...(folded ? ["\ufffd"] : [])];
  }

  /** The ids of a text; characters that the model has never seen are left out. */
  encode(text) {
    const { newlines, lowercase, normalize, folded } = this.about.tokenizer;
    if (newlines === "fold") text = text.replace(/\r\n?/g, "\n");
    if (lowercase) text = text.toLowerCase();
    if (normalize !== "none") text = text.normalize(normalize);
    if (this.characters === null) return [...new TextEncoder().encode(text)];
    const ids = new Map(this.characters.map((character, id) => [character, id]));
    return [...text].map((character) => ids.get(character) ?? (folded ? this.about.never : -1)).filter((id) => id >= 0);
  }

  decode(ids) {
    return this.characters === null ? new TextDecoder().decode(Uint8Array.from(ids)) : ids.map((id) => this.characters[id]).join("");
  }

  /** What continues `prompt`: `length` characters (or bytes), or fewer if the text `stop` comes before. The same seed and options
   * give the same text, though not the one that sample.py gives. Temperature 0 takes the most likely character. */
  write({ prompt = "", length = 500, temperature = 0.8, topK = 0, seed = 0, stop = null } = {}) {
    const start = this.encode(prompt), window = new this.Window(this.model, this.model.contexts[0]), random = new this.Random(seed);
    const ids = start.length ? [...start] : [this.about.first], from = ids.length;
    while (ids.length < from + length) {
      let logits;
      for (const [, found] of window.read(ids)) logits = found;
      ids.push(this.choose(logits, { temperature, topK }, this.about.never, random));
      const end = stop === null ? -1 : this.decode(ids.slice(from)).indexOf(stop);
      if (end >= 0) return this.decode(ids.slice(from)).slice(0, end);
    }
    return this.decode(ids.slice(from));
  }

  /** An item of a run on items, with this label and beginning. `model.about.items.labels` are the labels. */
  item({ label = "", prompt = "", length = 1000, ...options } = {}) {
    const { end } = this.about.items;
    return prompt + this.write({ ...options, length, prompt: end + (label && label + "\t") + prompt, stop: end });
  }
}
