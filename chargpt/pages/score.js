// Shows the bits of the character under the pointer. `steps`, which stands before this script, codes bits in quarters.
const about = document.getElementById("about");
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
  about.textContent = "\u201c" + characters[index] + "\u201d  " + what;
};
document.addEventListener("pointermove", show);
document.addEventListener("click", show);
