/*
node page_check.js PAGE: run the engine of an exported page without a browser.

Standard input: JSON {windows, prompt, length, webAssembly}. Standard output, little-endian: the logits of every position of
every window, float32, and then the `length` ids, int32, that greedily continue the prompt.
*/
"use strict";
const fs = require("fs");

process.on("uncaughtException", (error) => {
  console.error(error.message.split("\n")[0]);
  process.exit(1);
});

const page = fs.readFileSync(process.argv[2], "utf8");
const { windows, prompt, length, webAssembly } = JSON.parse(fs.readFileSync(0, "utf8"));
const content = (id) => page.match(new RegExp(`<script [^>]*id="${id}">([^]*?)</script>`))[1];
const about = JSON.parse(content("about"));
const tensors = {};
for (const [, name, data] of page.matchAll(/<script type="application\/octet-stream" data-tensor="([^"]+)">([^<]*)</g)) tensors[name] = data;

const engine = { exports: {} }; // the engine is that of the page, not the source beside this file
new Function("module", content("engine"))(engine);
const { Model, Writer, Tokenizer } = engine.exports;
const model = new Model(about, tensors, { webAssembly }), { never } = new Tokenizer(about.tokenizer);
for (const ids of windows) {
  for (const [, logits] of new Writer(model, never).read(ids)) process.stdout.write(Buffer.from(logits.slice().buffer));
}
const text = [...prompt];
for (const _ of new Writer(model, never).write(text, { length, seed: 0, temperature: 0, topK: 0 }));
process.stdout.write(Buffer.from(Int32Array.from(text.slice(prompt.length)).buffer));
