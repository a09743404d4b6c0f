/* What a model consists of. Both the engine and the interface have it. */
const LAYER = { // the shapes of the weights of a layer, times C, as step.h numbers them
  "norm_1.weight": [1], "norm_1.bias": [1], "attn.qkv.weight": [3, 1], "attn.qkv.bias": [3], "attn.proj.weight": [1, 1], "attn.proj.bias": [1],
  "norm_2.weight": [1], "norm_2.bias": [1], "mlp.up.weight": [4, 1], "mlp.up.bias": [4], "mlp.down.weight": [1, 4], "mlp.down.bias": [1],
};

/** The names and shapes of the weights of a model: the matrices of its layers, the embeddings, then all vectors. */
function shapesOf({ n_layer, n_embd: C, block_size, vocab_size, bias, positions }) {
  const matrices = [], vectors = [["norm.weight", [C]], ["norm.bias", [C]]];
  for (let i = 0; i < n_layer; i++) for (const [name, shape] of Object.entries(LAYER)) {
    (shape.length > 1 ? matrices : vectors).push([`blocks.${i}.${name}`, shape.map((n) => n * C)]);
  }
  matrices.push(["token_embedding.weight", [vocab_size, C]]);
  if (positions === "learned") matrices.push(["position_embedding.weight", [block_size, C]]);
  return [...matrices, ...vectors.filter(([name]) => bias || !name.endsWith("bias"))];
}

/** Those of a model in a page, which has a table of positions, learned or not, unless they are rotary. */
const storedShapesOf = (shape) => shapesOf({ ...shape, positions: shape.positions === "rotary" ? "rotary" : "learned" });

const lengthOf = (size) => size.reduce((a, b) => a * b, 1);
