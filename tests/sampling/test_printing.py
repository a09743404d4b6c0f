import io
import json

from chargpt.sampling.printing import JsonPrinter, TextPrinter
from chargpt.sampling.stop_rules import Character

WRITTEN = [Character("a", -0.1), Character("\n", -2.0), Character("中", -5.0)]


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


def test_a_colour_is_for_the_words_of_the_model_alone():
    file = io.StringIO()
    printer = TextPrinter(file, coloured=True)
    printer.prompt("p")
    printer.add(WRITTEN[:1])
    printer.add([])
    printer.prompt("q")
    assert file.getvalue() == "p\033[35ma\033[0mq"
