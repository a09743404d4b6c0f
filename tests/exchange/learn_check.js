/*
node learn_check.js SCRIPT... MODULE: train a model by the scripts of a page, without a browser.

Standard input: JSON {numbers, shape, plan, ids, val, names, sizes, steps, measures}, a line, and then the weights, float32, in the order
of `names`. Standard output: a line of JSON {losses, val, starts, seconds}, and then the weights after the last step.
*/
"use strict";
const fs = require("fs");
const sources = process.argv.slice(2), code = sources.pop();
const scripts = { exports: {} };
new Function("module", sources.map((source) => fs.readFileSync(source, "utf8")).join("\n"))(scripts);
const { Learner, startsOf, setNumbers } = scripts.exports;
const input = fs.readFileSync(0), line = input.indexOf(10);
const { numbers, shape, plan, ids, val, names, sizes, steps } = JSON.parse(input.subarray(0, line).toString());
setNumbers(numbers);
const weights = {};
let at = line + 1;
names.forEach((name, i) => {
  weights[name] = new Float32Array(Uint8Array.from(input.subarray(at, (at += 4 * sizes[i]))).buffer);
});
const learner = new Learner(new WebAssembly.Module(fs.readFileSync(code)), shape, weights, Uint32Array.from(ids), plan);
const before = learner.evaluate(val), starts = startsOf(3, ids.length, shape.block_size, plan), losses = [], began = process.hrtime.bigint();
for (let i = 0; i < steps; i++) losses.push(learner.advance());
const seconds = Number(process.hrtime.bigint() - began) / 1e9, tensors = learner.tensors();
process.stdout.write(JSON.stringify({ losses, before, val: learner.evaluate(val), starts, seconds }) + "\n");
for (const name of names.filter((name) => tensors[name])) process.stdout.write(Buffer.from(tensors[name].buffer));
