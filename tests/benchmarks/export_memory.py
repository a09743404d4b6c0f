"""How much memory exports and imports take: the table of docs/lab/exports.md. Linux only.

    python tests/benchmarks/export_memory.py [--width 640]

Makes a run with random weights, converts it in a process of its own for each format, and prints the largest resident memory above that of the process before it loads anything, as a multiple of the
weights' bytes. Each process converts a tiny run first, so that libraries are loaded. Needs the package gguf.
"""

import argparse
import contextlib
import importlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGE = {"n_layer": 6, "n_head": 10, "n_embd": 640, "block_size": 256}  # 30 million parameters
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16}
TARGETS = {"safetensors": "tensor_file", "hf": "hugging_face", "gguf": "gguf_model", "html": "html"}  # and their modules
IMPORTS = ("gpt2", "starcoder2", "nanogpt")


def peak(action: Callable[[], object]) -> int:
    """The largest resident memory, in bytes, while `action` runs, above that before it. Mapped files count."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    action()
    return memory("VmHWM") - before


def memory(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def make_runs(folder: Path) -> int:
    """A large and a tiny run for each kind of positions; returns the bytes of the large one's weights."""
    from chargpt.config import Config, TrainConfig
    from chargpt.model import GPT, GPTConfig
    from chargpt.runs.checkpoint import publish
    from chargpt.runs.checkpoint_schema import NO_TEXT, SavedState
    from chargpt.runs.stage import Length, Progress, Stage
    from chargpt.settings import Settings
    from chargpt.standard import model_source
    from chargpt.text.tokenizer import Tokenizer

    tokenizer = Tokenizer("\n" + "".join(map(chr, range(32, 127))))
    for name, size in (("tiny", TINY), ("large", LARGE)):
        for positions in ("learned", "rotary"):
            shape = GPTConfig(positions=positions, **size)
            config = Config(model=shape, train=TrainConfig(batch_size=1))
            state = SavedState(
                settings=Settings(config),
                tokenizer=tokenizer,
                texts=[],
                fingerprint=NO_TEXT,
                progress=Progress(step=1),
                stage=Stage(length=Length.of(config)),
                environment={},
                model_source=model_source(),
            )
            run = folder / f"{name}-{positions}"
            run.mkdir()
            weights = GPT(shape, tokenizer.vocab_size).state_dict()
            publish(run, weights=weights, training={}, state=state)
    return 4 * sum(tensor.numel() for tensor in weights.values())


def make_foreign(folder: Path, name: str) -> None:
    """What imports read: folders of transformers, and a checkpoint of nanoGPT with the state of its optimizer."""
    import torch

    from chargpt.exchange import hugging_face
    from chargpt.exchange.layouts import NANOGPT, renamed
    from chargpt.sampling.loaded_model import load_model

    for positions, kind in (("learned", "gpt2"), ("rotary", "starcoder2")):
        loaded, _ = load_model(str(folder / f"{name}-{positions}"), folder, device="cpu")
        hugging_face.write(loaded, folder / f"{name}-{kind}", options_of(loaded))
        if kind == "starcoder2":
            return
        model, shape = loaded.model, loaded.model.config
        named = renamed(model, NANOGPT).items()
        tensors = {key: tensor.detach().clone() for key, tensor in named if key.endswith(".weight")}
        ordered = sorted(tensors.values(), key=lambda tensor: tensor.dim() < 2)
        moments = {
            i: {"step": torch.tensor(1.0), "exp_avg": t.clone(), "exp_avg_sq": t.clone().abs()} for i, t in enumerate(ordered)
        }
        arguments = {key: getattr(shape, key) for key in ("n_layer", "n_head", "n_embd", "block_size", "bias", "dropout")}
        checkpoint = {
            "model": tensors,
            "model_args": {**arguments, "vocab_size": model.vocab_size},
            "optimizer": {"state": moments},
            "iter_num": 1,
            "config": {},
        }
        (folder / f"{name}-nanogpt").mkdir()
        torch.save(checkpoint, folder / f"{name}-nanogpt" / "ckpt.pt")
        import pickle

        stoi = {character: token_id for token_id, character in enumerate(loaded.tokenizer.characters)}
        (folder / f"{name}-nanogpt" / "meta.pkl").write_bytes(pickle.dumps({"stoi": stoi}))


def options_of(loaded: object) -> object:
    """The options of an export."""
    from chargpt.exchange.export import ExportOptions

    return ExportOptions(name="run", texts=[])


def measure_export(folder: Path, target: str) -> dict[str, int]:
    """The peak of loading a run and writing it."""
    from chargpt.sampling.loaded_model import load_model

    module = importlib.import_module(f"chargpt.exchange.{TARGETS[target]}")

    def export(name: str) -> None:
        loaded, _ = load_model(str(folder / f"{name}-learned"), folder, device="cpu")
        module.write(loaded, folder / f"{name}-{target}", options_of(loaded))

    export("tiny")
    return {"export": peak(lambda: export("large"))}


def measure_import(folder: Path, kind: str) -> dict[str, int]:
    """The peak of reading a foreign model, and of reading and saving it."""
    from chargpt.exchange.hugging_face import read_folder
    from chargpt.exchange.importing import save_run
    from chargpt.exchange.nanogpt import read_nanogpt

    def read(name: str) -> object:
        path = folder / f"{name}-{kind}"
        return read_nanogpt(path, meta=None) if kind == "nanogpt" else read_folder(path)

    def save(name: str) -> None:
        settings, run = {"runtime": {"device": "cpu"}}, str(folder / f"{name}-{kind}-run")
        save_run(read(name), [], name=run, preset=None, settings=settings, root=ROOT)

    with contextlib.redirect_stdout(io.StringIO()):
        save("tiny")
        return {"read": peak(lambda: read("large")), "saved": peak(lambda: save("large"))}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "WHAT"), help="measure one conversion in this process")
    parser.add_argument(
        "--width", type=int, default=LARGE["n_embd"], help="of the model, a multiple of 10 (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    LARGE["n_embd"] = options.width
    if options.child:
        folder, what = options.child
        print(json.dumps((measure_export if what in TARGETS else measure_import)(Path(folder), what)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        size = make_runs(Path(folder))
        make_foreign(Path(folder), "tiny")
        make_foreign(Path(folder), "large")
        print(f"weights: {size / 1e6:.0f} MB\n| | |\n|---|---|")
        for target in TARGETS:
            print(f"| export --to {target} | {child(folder, target)['export'] / size:.2f} |", flush=True)
        print("\n| | read | read and saved |\n|---|---|---|")
        for kind in IMPORTS:
            found = child(folder, kind)
            print(f"| import, {kind} | {found['read'] / size:.2f} | {found['saved'] / size:.2f} |", flush=True)
    return 0


def child(folder: str, what: str) -> dict[str, int]:
    """What a process of its own measures."""
    command = [sys.executable, __file__, "--child", folder, what]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
