import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import publish_run

import chargpt
import sample
import train
from chargpt.errors import UserError
from chargpt.program import run_program
from chargpt.sampling.cli import parse_options
from chargpt.text.tokenizer import Tokenizer

ROOT = Path(sample.__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(publish_run(tmp_path_factory.mktemp("runs") / "tiny", steps=(500, 1000)))


@pytest.fixture
def call(capsys):
    """Run the program in this process: exit code, standard output, standard error."""

    def call(*argv: str) -> tuple[int, str, str]:
        code = run_program(lambda: sample.main(list(argv)))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def write(call, run):
    """What the program writes with these options, which must be right."""

    def write(*argv: str) -> str:
        code, out, err = call(run, "--seed", "1", "--length", "60", *argv)
        assert code == 0, err
        return out

    return write


def program(*argv: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(ROOT / "sample.py"), *argv], capture_output=True, timeout=60, **options)


def test_the_text_is_the_prompt_its_continuation_and_a_newline_and_that_of_its_seed(write):
    texts = [write("--prompt", "abc 中", "--length", "40", "--seed", seed) for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith("abc 中") and text.endswith("\n") and len(text) == len("abc 中") + 40 + 1 for text in texts)


def test_samples_are_divided_by_dashes_and_each_is_that_of_its_seed(call, run):
    """Also those of a second batch: 32 are written at once."""
    _, out, err = call(run, "--prompt", "ab", "--seed", "5", "--samples", "34", "--length", "60")
    samples = out.split("---------------\n")
    for seed in (5, 36, 37):
        assert samples[seed - 5] == call(run, "--prompt", "ab", "--seed", str(seed), "--length", "60")[1]
    assert len(samples) == 34 and "2,040 characters" in err


def test_controls_reach_the_sampler(write):
    plain = write()
    for options in (["--temperature", "0"], ["--top-k", "2"], ["--top-p", "0.3"], ["--min-p", "0.9"], ["--overflow", "exact"]):
        assert write(*options) != plain, options
    assert write("--temperature", "0", "--seed", "2") == write("--temperature", "0", "--seed", "3")
    assert write("--top-k", "99", "--top-p", "1", "--min-p", "0", "--repetition-penalty", "1") == plain
    cold, warm, dashes = write("--temperature", "0.1"), write("--temperature", "1.5"), "---------------"
    assert write("--temperature", "0.1,1.5") == f"{dashes} temperature 0.1\n{cold}{dashes} temperature 1.5\n{warm}"


def test_json_lines_hold_what_is_needed_to_repeat_them(write, run):
    lines = write("--json", "--samples", "2", "--prompt", "ab", "--top-k", "3").splitlines()
    first, second = map(json.loads, lines)
    assert (first["seed"], second["seed"], first["step"], first["top_k"], first["run"]) == (1, 2, 500, 3, "tiny")
    assert first["prompt"] + first["text"] + "\n" == write("--prompt", "ab", "--top-k", "3")
    assert len(first["log_probabilities"]) == len(first["text"]) == 60 and max(first["log_probabilities"]) < 0


def test_json_is_one_array_where_that_is_asked_for(write):
    for options in (["--samples", "3"], ["--samples", "1"], ["--next", "2"], ["--temperature", "0,1"]):
        lines = [json.loads(line) for line in write("--json", *options).splitlines()]
        assert json.loads(write("--json-array", *options)) == lines


def test_a_model_that_has_no_more_lines_says_so_in_one_line(call, run):
    given = [run, "--allow", "a\n", "--temperature", "1e30", "--seed", "1", "--unique"]  # a line of n letters once in 2^n lines
    code, out, err = call(*given, "--lines", "90")
    lines = out.splitlines()
    assert code == 0 and len({*lines}) == len(lines) > 5 and all(line and {*line} == {"a"} for line in lines)  # --unique
    assert out.endswith("a\n") and f"\nonly {len(lines)} of 90 lines were written, since the next 1,000 " in err
    assert err.count("\n") == 3 and err.endswith("; raise --temperature\n")


def test_a_stop_text_or_the_last_line_ends_the_sample_and_is_not_printed(write):
    plain = write("--length", "200").rstrip("\n")
    stop = plain[50:53]
    lines = write("--lines", "4", "--length", "200")
    assert lines.count("\n") == 4 and plain.startswith(lines)
    assert write("--length", "200", "--stop", stop) == plain[: plain.index(stop)] + "\n"
    assert write("--length", "200", "--stop", stop, "--keep-stop") == plain[: plain.index(stop)] + stop + "\n"


def test_the_likeliest_next_characters_are_those_of_the_library(write, run):
    found, expected = json.loads(write("--next", "4", "--prompt", "ab", "--json"))["next"], chargpt.load(run).next("ab", 4)
    assert [each["text"] for each in found] == [text for text, _ in expected]
    assert [each["probability"] for each in found] == [round(chance, 6) for _, chance in expected]
    lines = write("--next", "4", "--prompt", "ab").splitlines()
    assert [line.split() for line in lines] == [[repr(text), f"{chance:.2%}"] for text, chance in expected]


def test_unknown_characters_of_the_prompt_are_listed_or_skipped(call, run):
    code, out, err = call(run, "--prompt", "aÉb\0\ud800")
    assert code == 2 and not out and err.count("\n") == 1
    assert all(part in err for part in ("U+00C9", "U+0000", "U+D800", "--unknown skip"))
    code, out, err = call(run, "--prompt", "aÉb\0\ud800É", "--unknown", "skip", "--length", "0")
    assert (code, out) == (0, "ab\n") and "never seen them: É \\x00 \\ud800\n" in err


def test_what_is_typed_is_not_refused_but_named(call, run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("b’é\n"))
    code, out, err = call(run, "--interactive", "--prompt", "a’", "--length", "0")
    assert (code, out) == (0, "a\nb\n") and "left out, since the model has never seen them: ’\n" in err
    assert "the model has never seen them: ’ é\n" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("b’\n"))
    code, out, err = call(run, "--interactive", "--unknown", "error", "--length", "0")
    assert (code, out) == (0, "") and "error: prompt: " in err and "U+2019" in err


def test_a_folded_character_is_never_written_and_cannot_stop(call, tmp_path):
    run = str(publish_run(tmp_path / "folded", Tokenizer("\nab", folded=True)))
    code, out, _ = call(run, "--prompt", "a中", "--length", "300")
    assert code == 0 and out.startswith("a\ufffd") and "\ufffd" not in out[2:]
    assert call(run, "--stop", "中")[0] == 2


def test_a_model_of_bytes_writes_text_and_refuses_to_ban_parts_of_characters(call, tmp_path):
    run = str(publish_run(tmp_path / "bytes", Tokenizer(None)))
    code, out, _ = call(run, "--prompt", "中", "--length", "50")
    assert code == 0 and out.startswith("中")
    code, _, err = call(run, "--ban", "中")
    assert code == 2 and "use English letters, digits and signs (ASCII)" in err and err.count("\n") == 1


def test_what_writes_is_said_on_standard_error(call, run):
    _, _, err = call(run, "--seed", "7", "--length", "10")
    chosen, speed = err.splitlines()
    assert all(part in chosen for part in ("tiny", "step 500", "1.5000", "3,744 parameters", "cpu", "0.8", "seed 7"))
    assert re.fullmatch(r"10 characters in .* s, .* a second", speed)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--temperature", "-1"], "--temperature: -1 given; use"),
        (["--temperature", "hot"], "--temperature: 'hot' given; use 0"),
        (["--top-k", "-1"], "--top-k: -1 given; use"),
        (["--length", "9" * 30], "--length: "),
        (["--seed", "-1"], "--seed: -1 given; use"),
        (["--seed", str(2**80)], f"--seed: {2**80} given; use a whole number from 0 to 2^63 - 1"),
        (["--stop", "aÉ"], "--stop: 'aÉ' given, but this model cannot write 'É'; use characters of its training text"),
        (["--temperature", "0.5,,1"], "--temperature: '' given; use 0"),
        (["--unknown", "guess"], "--unknown: 'guess' given; use one of error, skip"),
        (["--device", "gpu"], "--device: 'gpu' given; use auto, cpu"),
        (["--device", "cuda:99"], "--device: 'cuda:99' given, "),
        (["--prompt", "-a"], "--prompt: expected one argument; if its value begins with a dash, write --prompt=VALUE"),
        (["--prompt-file", "missing.txt"], "missing.txt: No such file"),
        (["--lenght", "5"], "--lenght: no such option; did you mean --length?"),
        (["The sea"], "The sea: given after RUN; a prompt is given with --prompt 'The sea'"),
        (["-p", "The sea"], "-p: no such option; did you mean --precision or --prompt or"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, run, argv, says):
    code, out, err = call(run, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and says in err and "; " in err
    assert not says.startswith("--") or err.startswith(f"error: {says}")


@pytest.mark.parametrize("name", ["tiney", "", "no/such/run", "step-00000500"])
def test_an_unknown_run_is_an_error_that_names_the_known(call, installed, name):
    assert "train one with" in call()[2]
    publish_run(installed / "checkpoints" / "tiny")
    code, out, err = call(name)
    assert (code, out) == (2, "") and "tiny" in err.partition("; ")[2] and err.count("\n") == 1


def test_the_program_streams_in_an_ascii_locale_and_knows_nothing_of_its_folder(run, tmp_path):
    # LC_ALL alone: from 3.7 on Python reads the C locale's arguments as UTF-8, unless told otherwise.
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    done = program(run, "--prompt", "中", "--length", "20", cwd=tmp_path, env=environment, stdin=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout.startswith("中".encode()) and b"Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--prompt", "--stop", "--ban", "--allow", "--label", "--ban-word", "--match"])
def test_what_is_typed_in_utf8_is_read_so_whatever_the_locale(option):
    """In an ASCII locale, Python gives the bytes as surrogates. Bytes that are not UTF-8 are no unknown characters."""
    need = ["--lines", "2"] if option == "--ban-word" else []
    if sys.getfilesystemencoding() != "utf-8":
        pytest.skip("the bytes of arguments are those of UTF-8 only there")
    for text in ("中", "sea’é", "a"):
        typed = text.encode().decode("ascii", "surrogateescape")
        read, plain = (parse_options([option, one, *need, "--seed", "1"]) for one in (typed, text))
        assert read == plain
    with pytest.raises(UserError, match=f"^{option}: bytes that are not UTF-8 given; set your terminal"):
        parse_options([option, "caf\udce9", *need])


def test_a_reader_that_leaves_ends_the_program_quietly(run):
    writing = f"{sys.executable} {ROOT / 'sample.py'} {run} --length 100000 --prompt abcdefgh"
    command = f"{writing} | head -c 5; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, text=True)
    assert len(done.stdout.encode()) == 5 and done.stderr.splitlines()[-1] == "0" and len(done.stderr.splitlines()) == 2


def test_a_mistyped_option_does_not_wait_for_torch_nor_a_text_for_its_compiler(run):
    code = f"""
import sys, sample
from chargpt.program import run_program
print(run_program(lambda: sample.main(["--nosuch"])), "torch" in sys.modules)
print(run_program(lambda: sample.main([{run!r}, "--prompt", "a", "--length", "0"])), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, text=True)
    assert done.stdout == "2 False\na\n0 False\n", done.stderr


def test_unseen_writes_no_line_that_it_learned(call, tmp_path, capsys):
    lines = ["sea", "tea", "pea", "see", "tee"]
    text = tmp_path / "words.txt"
    text.write_text("".join(f"{lines[i % 5]}\n" for i in range(2000)))
    folder = str(tmp_path / "run")
    words = [str(text), "--config", "tiny", "--run", folder, f"data.cache={tmp_path}/cache", "train.max_steps=20"]
    assert train.main([*words, "train.sample_length=0"]) == 0
    capsys.readouterr()
    options = [folder, "--lines", "20", "--temperature", "1.5", "--seed", "1"]
    code, seen, _ = call(*options)
    assert code == 0 and set(seen.splitlines()) & set(lines)
    code, unseen, _ = call(*options, "--unseen")
    assert code == 0 and len(unseen.splitlines()) == 20 and not set(unseen.splitlines()) & set(lines)
    begun = call(*options, "--unseen", "--unique", "--prompt", "se")[1].splitlines()
    assert len(begun) == len({*begun}) == 20 and not {*begun} & {*lines}  # with the prompt that begins it
    text.write_text("tea\n" * 1000 + "pea\nsees\n")  # what counts is the text that was learned
    assert call(*options, "--unseen")[1] == unseen
    shutil.rmtree(tmp_path / "cache")
    code, _, err = call(*options, "--unseen")
    assert code == 2 and err.count("\n") == 1 and "text of this run is gone" in err


def test_unseen_neither_reads_nor_encodes_what_a_checkpoint_from_elsewhere_names(call, installed, tmp_path):
    os.mkfifo(tmp_path / "private.txt")  # reading it would block
    folder = publish_run(tmp_path / "theirs", texts=[str(tmp_path / "private.txt")], fingerprint="0" * 64)
    code, _, err = call(str(folder), "--lines", "2", "--unseen")
    assert code == 2 and "text of this run is gone" in err and not (tmp_path / "data").exists()
