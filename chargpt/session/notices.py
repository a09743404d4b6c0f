"""What is said before a training begins: a few lines for everybody, and every line for those who ask."""

from chargpt.terminal import LABEL, Notice, notice_line, one_line


class Notices:
    """Prints what matters, and keeps every line for details.txt in the run.

    `verbose` prints every line, in the order in which they come, and nothing that only sums others up.
    """

    def __init__(self, *, verbose: bool = True) -> None:
        self.verbose = verbose
        self.lines: list[str] = []  # all that was said, in full
        self._held: list[str] = []

    def say(self, label: str, text: str) -> None:
        """A line that everybody needs now: a warning, for example."""
        self._keep(label, text)
        print(notice_line(label, text), flush=True)

    def later(self, label: str, text: str) -> None:
        """A line that everybody needs, but after those on the text and on the model: `release` prints it."""
        self._keep(label, text)
        if self.verbose:
            print(notice_line(label, text), flush=True)
        else:
            self._held.append(notice_line(label, text))

    def detail(self, label: str, text: str) -> None:
        """A line for those who ask."""
        self._keep(label, text)
        if self.verbose:
            print(notice_line(label, text), flush=True)

    def add(self, notice: Notice, *, is_later: bool = False) -> None:
        """A notice of the plan. A line that `is_later` comes with `release`."""
        kinds = {"line": self.later if is_later else self.say, "detail": self.detail, "summary": self.summary}
        kinds[notice.kind](notice.label, notice.text)

    def summary(self, label: str, text: str) -> None:
        """A line that sums up lines for those who ask; they get those instead."""
        if not self.verbose:
            print(notice_line(label, text), flush=True)

    def release(self) -> None:
        """Print the lines that were to come later."""
        for line in self._held:
            print(line, flush=True)
        self._held = []

    def _keep(self, label: str, text: str) -> None:
        self.lines.append(f"{label:<{LABEL}}{one_line(text)}")
