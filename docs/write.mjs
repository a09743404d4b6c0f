/*
Write with the model of an exported page from JavaScript of your own, in Node.js, Deno, Bun or a browser. Copy this file; it needs
nothing else.

    import { open } from "./write.mjs";
    const model = open(await readFile("poems.html", "utf8")); // in a browser: await (await fetch("poems.html")).text()
    model.write({ prompt: "The sea", length: 200, temperature: 0.8, seed: 1 });
    model.item({ label: "Finnish", seed: 1 }); // of a run on items

The engine is the one in the page. It is run as code, so open only pages that you or somebody you trust has made.
*/

function content(page, id) {
  const found = page.match(new RegExp(`<script [^>]*id="${id}">([^]*?)</script>`));
  if (!found) throw new Error(`this is no page that chargpt has exported: it has no script ${id}`);
  return found[1];
}
const TENSOR = /<script type="application\/octet-stream" data-tensor="([^"]+)">([^<]*)</g;

/** The model in the HTML of an exported page. */
export function open(page) {
  const engine = { exports: {} }, about = JSON.parse(content(page, "about")), tensors = {};
  new Function("module", content(page, "engine"))(engine);
  for (const [, name, data] of page.matchAll(TENSOR)) tensors[name] = data;
  return new PageModel(engine.exports, about, tensors);
}

class PageModel {
  constructor({ Model, Writer, Tokenizer }, about, tensors) {
    Object.assign(this, { about, Writer, model: new Model(about, tensors), tokenizer: new Tokenizer(about.tokenizer) });
  }

  /** What continues `prompt`: `length` characters (or bytes), or fewer if the text `stop` comes before. The same seed and options
   * give the same text, though not the one that sample.py gives. Temperature 0 takes the most likely character. */
  write({ prompt = "", length = 500, temperature = 0.8, topK = 0, seed = 0, stop = null } = {}) {
    const start = this.tokenizer.encode(prompt).ids, ids = [], text = start.length ? [...start] : [this.tokenizer.first];
    for (const record of new this.Writer(this.model, this.tokenizer.never).write(text, { length, temperature, topK, seed })) {
      if (record) ids.push(record.id); // (it yields null where it reads)
      const end = stop === null ? -1 : this.tokenizer.decode(ids).indexOf(stop);
      if (end >= 0) return this.tokenizer.decode(ids).slice(0, end);
    }
    return this.tokenizer.decode(ids);
  }

  /** An item of a run on items, with this label and beginning. `model.about.items.labels` are the labels. */
  item({ label = "", prompt = "", length = 1000, ...options } = {}) {
    if (!this.about.items) throw new Error("this model writes no items; use write()");
    const { end } = this.about.items;
    return prompt + this.write({ ...options, length, prompt: end + (label && label + "\t") + prompt, stop: end });
  }
}
