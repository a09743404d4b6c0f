"""The page that `score --html` writes: one file without a network, the text coloured by surprise above everything else."""

import base64
import hashlib
import heapq
import html
import math
import unicodedata
from pathlib import Path

import numpy as np

from chargpt.files import publish_file
from chargpt.insight.score_output import Summary
from chargpt.insight.scored_text import Line

MOST_CHARACTERS = 200_000  # that the page shows: more would make a browser slow
LISTED = 10  # of the most surprising lines
SHORTEST = 12  # characters of such a line
LEVELS = (0.25, 0.5, 1, 2, 3, 4.5, 6.5, 9)  # bits at which a deeper colour begins
STEPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."  # bits of a character, in quarters
JOINERS = "\u200c\u200d"  # invisible, but scripts and emoji need them

STYLE = """
:root{color-scheme:light dark;--ink:#1c1e21;--dim:#63686f;--paper:#fdfdfc;--line:#dcdedf;--bar:#3f6fb5;--rgb:214,84,20}
@media(prefers-color-scheme:dark){:root{--ink:#e4e5e6;--dim:#9a9fa6;--paper:#16181b;--line:#34383d;--bar:#7ba6e6;--rgb:255,125,45}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.4rem 0;max-width:46rem}
.dim,.n{color:var(--dim)}
table{border-collapse:collapse;width:100%;font-size:.95rem}
td,th{padding:.2rem .6rem .2rem 0;text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}th{font-weight:600;border-bottom:1px solid var(--line)}
td.w{width:40%}.bar{display:block;height:.8rem;border-radius:2px;background:var(--line)}.own{background:var(--bar)}
pre,.l{font:14px/1.65 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.l{display:flex;gap:.8rem}.n{flex:none;width:3.6rem;text-align:right;user-select:none;text-decoration:none}
.b{flex:none;width:2.6rem;text-align:right;color:var(--dim);user-select:none}
.t{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;min-width:0}
.t i{font-style:normal;opacity:.75}
.s1{background:rgba(var(--rgb),.07)}.s2{background:rgba(var(--rgb),.13)}.s3{background:rgba(var(--rgb),.2)}
.s4{background:rgba(var(--rgb),.29)}.s5{background:rgba(var(--rgb),.4)}.s6{background:rgba(var(--rgb),.53)}
.s7{background:rgba(var(--rgb),.68)}.s8{background:rgba(var(--rgb),.88)}
.key span{padding:.1rem .45rem}
#about{position:sticky;bottom:0;background:var(--paper);border-top:1px solid var(--line);padding:.4rem 0;min-height:2.3rem}
.l:target{outline:2px solid var(--bar)}
@media(max-width:40rem){body{padding:.6rem}.n{width:2.4rem}.l{gap:.45rem}td.w{width:25%}.wide{display:none}}
@media print{#about{display:none}}
"""

SCRIPT = """
const about = document.getElementById("about"), steps = document.body.dataset.steps;
const place = (x, y) => {
  if (document.caretPositionFromPoint) {
    const at = document.caretPositionFromPoint(x, y);
    return at && [at.offsetNode, at.offset];
  }
  const range = document.caretRangeFromPoint(x, y);
  return range && [range.startContainer, range.startOffset];
};
const show = event => {
  const line = event.target.closest && event.target.closest(".t"), at = line && place(event.clientX, event.clientY);
  if (!at || !line.contains(at[0])) return;
  const range = document.createRange();
  range.selectNodeContents(line);
  range.setEnd(at[0], at[1]);
  const characters = Array.from(line.textContent);
  let index = Array.from(range.toString()).length;
  const box = document.createRange();
  box.setStart(at[0], at[1]);
  box.collapse(true);
  if (index > 0 && event.clientX < box.getBoundingClientRect().left) index -= 1;
  index = Math.min(index, characters.length - 1);
  const code = line.dataset.bits[index], step = steps.indexOf(code);
  const what = code === "-" ? "not predicted: the first character of the text"
    : code === "+" ? "16 bits or more: fewer than one time in 65,000"
    : (step / 4).toFixed(2) + " bits: the model gave it " + (100 / 2 ** (step / 4)).toPrecision(2) + " %";
  about.textContent = "\\u201c" + characters[index] + "\\u201d  " + what;
};
document.addEventListener("pointermove", show);
document.addEventListener("click", show);
"""


class Page:
    """Collects the lines of a text, as many as the page shows, and writes the page."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._characters = 0
        self._left_out = 0
        self._lines = 0
        self._worst: list[tuple[float, int, str]] = []  # a heap of the most surprising lines that are shown

    def begin(self, label: str) -> None:
        """Begin a text."""
        self._parts.append(f"<h2>{_text(label)}</h2>")

    def add(self, line: Line) -> None:
        """Show a line, unless the page is full."""
        if self._characters + len(line.text) > MOST_CHARACTERS:
            self._left_out += len(line.text)
            return
        self._characters += len(line.text)
        self._lines += 1
        self._parts.append(_line(line, self._lines, anchor=True))
        if len(line.text) >= SHORTEST and not math.isnan(line.mean):
            entry = (line.mean, self._lines, _line(line, self._lines, anchor=False))
            (heapq.heappush if len(self._worst) < LISTED else heapq.heappushpop)(self._worst, entry)

    def write(self, target: Path, summary: Summary) -> None:
        """Write the page as the file `target`. Raises OSError."""
        publish_file(target, self.html(summary).encode("utf-8"))

    def html(self, summary: Summary) -> str:
        """The page."""
        facts = summary.facts
        bars, bar_style = _bars(summary)
        style = STYLE + bar_style
        policy = f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(SCRIPT)}'"
        title = f"How well {facts['run']} predicts a text"
        left_out = f" {self._left_out:,} further characters are not shown." if self._left_out else ""
        worst = "".join(shown for _, _, shown in sorted(self._worst, reverse=True))
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_text(title)}</title><style>{style}</style></head>
<body data-steps="{STEPS}">
<h1>{_text(title)}</h1>
<p>The model of run <b>{_text(str(facts["run"]))}</b>, step {facts["step"]:,}, predicts each character from those before it. A
character of <i>n</i> bits had the probability 1/2<sup>n</sup>. <span class="dim">Windows of {facts["context"]:,}
characters, one every {facts["stride"]:,}.{left_out}</span></p>
{bars}
{_texts_table(summary)}
<h2>Most surprising lines</h2>
<p class="dim">Bits per character, and the line.</p>
{worst or '<p class="dim">No line is long enough.</p>'}
<h2>The text</h2>
<p class="key">Bits: {_key()} <span class="dim">Point at a character to see its own.</span></p>
{"".join(self._parts)}
<div id="about" class="dim">Point at a character.</div>
<script>{SCRIPT}</script></body></html>
"""


def _line(line: Line, number: int, *, anchor: bool) -> str:
    """A line of the text: its number, which is a link to it elsewhere, and its characters in stretches of one colour."""
    bits = line.bits
    predicted = np.nan_to_num(bits)
    levels = np.searchsorted(LEVELS, predicted, side="right")
    levels = np.where(np.isnan(bits), 0, levels)
    ends = np.flatnonzero(np.diff(levels)) + 1
    stretches = []
    for start, stop in zip([0, *ends.tolist()], [*ends.tolist(), len(levels)]):
        shown = "".join(map(_character, line.text[start:stop]))
        stretches.append(f'<span class="s{levels[start]}">{shown}</span>' if levels[start] else shown)
    codes = "".join(_code(value) for value in bits.tolist())
    head = f'<a class="n">{number}</a>' if anchor else f'<a class="n" href="#l{number}">{number}</a>'
    mean = "" if anchor else f'<span class="b">{line.mean:.2f}</span>'
    name = f' id="l{number}"' if anchor else ""
    return f'<div class="l"{name}>{head}{mean}<span class="t" data-bits="{codes}">{"".join(stretches)}</span></div>\n'


def _code(bits: float) -> str:
    """The bits of a character as one character, for the script."""
    if math.isnan(bits):
        return "-"
    step = round(4 * bits)
    return STEPS[step] if step < len(STEPS) else "+"


def _character(character: str) -> str:
    """One character as HTML that shows one character: what is invisible, or could reorder a line, is replaced by a symbol."""
    if character == "\n":
        return "<i>⏎</i>"
    kind = unicodedata.category(character)
    if character == "\t" or character in JOINERS or kind not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return html.escape(character)
    point = ord(character)
    symbol = chr(0x2400 + point) if point < 0x20 else "\u2421" if point == 0x7F else "\ufffd"
    return f'<i title="U+{point:04X}">{symbol}</i>'


def _text(text: str) -> str:
    """A name as HTML."""
    return "".join(map(_character, text))


def _key() -> str:
    """The legend of the colours."""
    ends = [0, *LEVELS]
    return "".join(f'<span class="s{i}">{end:g}{"+" if i == len(LEVELS) else ""}</span>' for i, end in enumerate(ends))


def _bars(summary: Summary) -> tuple[str, str]:
    """The comparison with other programs in bits per byte as a table with bars, and the style of the bars."""
    total = summary.total
    rows = [(f"model {summary.facts['run']}", total.bits_per_byte)]
    if summary.ngram is not None:
        order, bits = summary.ngram
        rows.append((f"order-{order} n-gram model of its training text", bits * total.ids / max(1, total.bytes)))
    absent = []
    for name, size in summary.sizes.items():
        if size is None:
            absent.append(name)
        else:
            rows.append((name, 8 * size / max(1, summary.bytes)))
    longest = max(value for _, value in rows) or 1.0
    cells, style = [], []
    for i, (name, value) in enumerate(rows):
        own = " own" if i == 0 else ""
        cells.append(
            f'<tr><td>{_text(name)}</td><td>{value:.3f}</td><td class="w"><span class="bar{own}" id="w{i}"></span></td></tr>'
        )
        style.append(f"#w{i}{{width:{100 * value / longest:.1f}%}}")
    note = f'<p class="dim">Not present on this machine: {", ".join(absent)}.</p>' if absent else ""
    table = f"<table><tr><th></th><th>bits per byte</th><th></th></tr>{''.join(cells)}</table>{note}"
    return table, "".join(style)


def _texts_table(summary: Summary) -> str:
    """The numbers of each text."""
    rows = summary.texts if len(summary.texts) == 1 else [*summary.texts, ("all texts", summary.total)]
    cells = [
        f'<tr><td>{_text(label)}</td><td>{total.characters:,}</td><td class="wide">{total.bytes:,}</td>'
        f"<td>{total.bits_per_character:.4f}</td><td>{total.loss:.4f}</td></tr>"
        for label, total in rows
    ]
    head = '<tr><th>text</th><th>characters</th><th class="wide">bytes</th><th>bits per character</th><th>loss, nats</th></tr>'
    return f"<h2>Texts</h2><table>{head}{''.join(cells)}</table>"


def _hash(content: str) -> str:
    """The SHA-256 that a content security policy names an inline style or script by."""
    return base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode()
