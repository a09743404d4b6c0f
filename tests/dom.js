// Runs the script of a page without a browser. The page's elements are stand-ins that keep what the script gives them: text, children,
// attributes, listeners. Pictures are not drawn. Reads {page, script, code} as JSON from stdin: `script` is a pattern of the <script>
// tag, and `code` is the body of an async function that sees what the script declares. Writes what it returns, as JSON.
"use strict";
const { page, script, code } = JSON.parse(require("fs").readFileSync(0, "utf8"));

class Element {
  constructor(name = "div") {
    Object.assign(this, { tagName: name, children: [], dataset: {}, style: { setProperty() {} }, attributes: {}, listeners: {}, own: "", className: "" });
    this.classList = {
      add: (...names) => (this.className = [...new Set([...this.className.split(" ").filter(Boolean), ...names])].join(" ")),
      remove: (name) => (this.className = this.className.split(" ").filter((other) => other && other !== name).join(" ")),
      toggle: (name, on) => (on ? this.classList.add(name) : this.classList.remove(name)),
    };
    this.selectedIndex = this.clientWidth = this.scrollWidth = this.scrollHeight = this.scrollTop = 0;
  }
  get textContent() { return this.own + this.children.map((child) => child.textContent ?? child).join(""); }
  set textContent(text) { [this.own, this.children] = [String(text), []]; }
  get valueAsNumber() { return Number(this.value); }
  get rows() { return this.children; }
  get tBodies() { return [{ rows: [], addEventListener() {} }]; }
  get tHead() { return new Element("thead"); }
  append(...children) { this.children.push(...children); }
  prepend(...children) { this.children.unshift(...children); }
  appendChild(child) { this.append(child); return child; }
  replaceChildren(...children) { this.textContent = ""; this.append(...children); }
  addEventListener(kind, listener) { this.listeners[kind] = listener; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getClientRects() { return [{ left: 0, top: 0, width: 8, height: 16 }]; }
  getBoundingClientRect() { return { left: 0, top: 0, right: 8, bottom: 16, width: 8, height: 16 }; }
  getContext() {
    return new Proxy({}, { get: (_, name) => name === "createImageData" || name === "getImageData"
      ? (...size) => ({ data: new Uint8ClampedArray(4 * (name === "createImageData" ? size[0] * size[1] : 1)) }) : () => {} });
  }
  querySelectorAll() { return []; }
  querySelector() { return null; }
  focus() {}
  remove() {}
  scrollIntoView() {}
  reportValidity() { return true; }
}

const elements = {};
const content = (pattern) => page.match(new RegExp(`<script${pattern}>([^]*?)</script>`))?.[1];
const byId = (id) => (elements[id] ??= Object.assign(new Element(), { own: content(`[^>]*id="${id}"[^>]*`) ?? "", value: "" }));
const posted = []; // messages to the worker
const globals = {
  document: { getElementById: byId, createElement: (name) => new Element(name), body: new Element("body"), documentElement: Object.assign(new Element("html"), { outerHTML: page }),
    querySelectorAll: () => [], querySelector: () => new Element(), addEventListener() {}, createRange: () => ({}) },
  Option: class extends Element { constructor(text, value) { super("option"); Object.assign(this, { own: text, value }); } },
  Worker: class { postMessage(message) { posted.push(message); } },
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  getComputedStyle: () => ({ getPropertyValue: () => "0 0 0" }),
  requestAnimationFrame: (draw) => setTimeout(draw, 0),
  addEventListener() {},
  devicePixelRatio: 1,
  navigator: {},
  location: { pathname: "/page.html" },
  indexedDB: { open: () => ({}) },
  posted,
};
const run = new Function(...Object.keys(globals), `return (async () => { ${content(script)}\n${code} })()`);
run(...Object.values(globals)).then((result) => process.stdout.write(JSON.stringify(result)), (error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
});
