import io
import json
import math

import pytest

from chargpt.sampling.printing import JsonPrinter, SurprisePrinter, TextPrinter
from chargpt.sampling.stop_rules import Character

WRITTEN = [Character("a", -0.1), Character("\n", -2.0), Character("中", -5.0)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(printer_type, *, heading: str = "") -> str:
    """Two samples, character by character."""
    file = io.StringIO()
    printer = printer_type(file)
    for seed in (1, 2):
        printer.begin("p", heading=heading, facts={"seed": seed})
        for character in WRITTEN:
            printer.add([character])
        printer.end()
    return file.getvalue()


def test_samples_end_with_a_newline_and_have_dashes_between_them():
    assert printed(TextPrinter) == "pa\n中\n---------------\npa\n中\n"


def test_a_heading_stands_beside_the_dashes_from_the_first_sample_on():
    assert printed(TextPrinter, heading="temperature 1") == 2 * "--------------- temperature 1\npa\n中\n"


def test_json_is_an_object_a_line_with_a_log_probability_a_character():
    samples = [json.loads(line) for line in printed(JsonPrinter).splitlines()]
    assert samples[1] == {"seed": 2, "prompt": "p", "text": "a\n中", "log_probabilities": [-0.1, -2.0, -5.0]}


@pytest.mark.parametrize(
    ("bits", "style"),
    [(0.0, "2"), (0.49, "2"), (0.51, "0"), (1.9, "0"), (2.1, "33"), (4.1, "31"), (7.9, "31"), (8.1, "1;31"), (50, "1;31")],
)
def test_surprise_has_a_colour_and_leaves_none_behind(bits, style):
    terminal, pipe = Terminal(), io.StringIO()
    for file in (terminal, pipe):
        SurprisePrinter(file).add([Character("a", -bits * math.log(2))])
    assert terminal.getvalue() == f"\033[{style}ma\033[0m" and pipe.getvalue() == "a"
