"use strict";
/* A vocabulary: from text to ids and back, as text/tokenizer.py does it. Both the engine and the interface have it. */

/** `text` as a tokenizer reads it. */
function normalized(text, { newlines, lowercase, normalize, characters }) {
  if (newlines === "fold" || (characters !== null && !characters.includes("\r"))) text = text.replace(/\r\n?/g, "\n");
  if (lowercase) text = text.toLowerCase();
  return normalize === "none" ? text : text.normalize(normalize);
}

class Tokenizer {
  /** `known`: what a run says of its tokenizer. The last id of one that is folded stands for all other characters. */
  constructor(known) {
    this.known = known;
    this.isBytes = known.characters === null;
    this.characters = this.isBytes ? [] : [...known.characters, ...(known.folded ? ["\ufffd"] : [])];
    this.size = this.isBytes ? 256 : this.characters.length;
    this.never = known.folded ? this.size - 1 : -1; // the id that is not written
    this.first = this.isBytes ? 10 : Math.max(0, this.characters.indexOf("\n")); // what a text without a prompt continues
    this.idOf = new Map([...(known.characters ?? "")].map((character, id) => [character, id]));
  }

  /** The ids of `text`, and the characters that are not known. */
  encode(text) {
    text = normalized(text, this.known);
    if (this.isBytes) return { ids: new TextEncoder().encode(text), unknown: [] };
    const { idOf, known, never } = this, ids = new Uint32Array(text.length), unknown = new Set();
    let n = 0;
    for (const character of text) {
      const id = this.idOf.get(character);
      if (id === undefined) unknown.add(character);
      if (id !== undefined || known.folded) ids[n++] = id ?? never;
    }
    return { ids: ids.subarray(0, n), unknown: [...unknown] };
  }

  decode(ids) {
    return this.isBytes ? new TextDecoder().decode(Uint8Array.from(ids)) : Array.from(ids, (id) => this.characters[id]).join("");
  }
}

