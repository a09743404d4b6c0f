"""How far each export is from its run: the table of docs/lab/exports.md.

    python tests/benchmarks/export_parity.py TEXT [--steps N]

Trains a small model for each kind of positions, with and without biases, and each kind of vocabulary, exports it to every
format, and prints what the certificates say. Needs requirements-export.txt. It takes some minutes on two cores.
"""

import argparse
import contextlib
import importlib
import io
import itertools
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POSITIONS, BIASES = ("learned", "sinusoidal", "rotary"), (False, True)
VOCABULARIES = {
    "characters": [],
    "bytes": ["data.vocabulary=bytes"],
    "folded, lower case": ["data.max_vocab=40", "data.lowercase=true", "data.newlines=fold", "data.normalize=NFKC"],
}
SHAPE = ["--config", "tiny", "model.n_embd=64", "model.n_head=4", "model.block_size=64", "train.sample_length=0"]
TARGETS = {
    "hf": ("chargpt.exchange.hugging_face", "transformers"),
    "gguf": ("chargpt.exchange.gguf_model", "xllamacpp"),
}


def measure(text: str, folder: Path, *, steps: int) -> list[tuple[str, dict[str, float]]]:
    """A row for each kind of model: its name, and the largest difference in each target. A certificate that fails raises."""
    rows = []
    for positions, bias, (vocabulary, settings) in itertools.product(POSITIONS, BIASES, VOCABULARIES.items()):
        run = folder / f"{positions}-{bias}-{vocabulary.partition(',')[0]}"
        shape = [f"model.positions={positions}", f"model.bias={bias}", f"train.max_steps={steps}"]
        train([text, "--run", str(run), *SHAPE, *shape, *settings])
        name = f"| {positions} | {'yes' if bias else 'no'} | {vocabulary} |"
        rows.append((name, {target: difference(run, target, folder) for target in TARGETS}))
        print(rows[-1][0], rows[-1][1], file=sys.stderr, flush=True)
    return rows


def train(arguments: list[str]) -> None:
    """Train a run without printing."""
    import train as program

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert program.main(arguments) == 0


def difference(run: Path, target: str, folder: Path) -> float:
    """The largest difference in the certificate of an export."""
    from chargpt.exchange.certificate import reference_text
    from chargpt.exchange.export import ExportOptions
    from chargpt.sampling.loaded_model import load_model

    loaded, _ = load_model(str(run), folder, device="cpu")
    ids, ids_from = reference_text(loaded, root=ROOT, length=4096)
    assert "validation text" in ids_from
    options = ExportOptions(name=run.name, texts=[], ids=ids, ids_from=ids_from)
    lines = importlib.import_module(TARGETS[target][0]).write(loaded, run.with_name(f"{run.name}-{target}"), options)
    return float(re.search(r"differ by at most (\S+)", lines[-1])[1])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.text, Path(folder), steps=options.steps)
    print(f"| positions | biases | vocabulary | {' | '.join(f'{p} {version(p)}' for _, p in TARGETS.values())} |")
    print("|---|---|---|" + "---|" * len(TARGETS))
    for name, differences in rows:
        print(name, " | ".join(f"{value:.1e}" for value in differences.values()), "|")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
