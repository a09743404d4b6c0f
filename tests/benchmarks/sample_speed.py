"""Characters per second of sampling, by us and by others, beside the bound that this machine's memory sets.

    python tests/benchmarks/sample_speed.py [--nanogpt DIR] [--llama2c BINARY] [--llamacpp] [--transformers]
        [--run RUN] [--rounds N]

All models have random weights and 65 characters. They take turns, so that a drift in the machine's speed affects all of them;
medians are printed. A text grows from one character to the whole block. nanoGPT has no cache and would take minutes, so it is
timed in the middle of the block, where the cost of a character is average. BINARY is llama2.c's run.c, built by
gcc -Ofast -march=native -fopenmp run.c -lm; its network is as large as ours. llama.cpp, in the package xllamacpp, gets our
GGUF export with its matrices in F16 and in Q8_0. The floor is reading every weight once per character: the time that torch takes
to sum as many numbers, in large pages as ours are. Memory beyond the caches is read in the same way, for comparison.
"""

import argparse
import functools
import importlib.util
import multiprocessing
import re
import secrets
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from machine_speed import limits, machine_name  # noqa: E402

from chargpt.model import GPT, GPTConfig  # noqa: E402
from chargpt.sampling.c_texts import PRECISIONS, c_engine, c_writer, in_large_pages, rounded  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402
from chargpt.sampling.torch_texts import torch_writer  # noqa: E402
from chargpt.sampling.writer import Writer  # noqa: E402

VOCAB = 65
BEYOND_CACHES = 75_000_000  # numbers


@dataclass(frozen=True)
class Shape:
    name: str
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int

    def model(self) -> GPT:
        torch.manual_seed(0)
        config = GPTConfig(n_layer=self.n_layer, n_head=self.n_head, n_embd=self.n_embd, block_size=self.block_size, bias=True)
        return GPT(config, VOCAB).eval()


SHAPES = (Shape("0.8M (4/4/128, 64)", 4, 4, 128, 64), Shape("10.65M (6/6/384, 256)", 6, 6, 384, 256))


def rate(characters: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return characters / (time.perf_counter() - started)


def ours(writer: Writer, batch: int, *, length: int, prompt: int = 1, overflow: str = "exact") -> float:
    """Characters per second of `batch` texts that continue `prompt` characters by `length`."""
    ids, texts, options = torch.randint(VOCAB, (prompt,)).tolist(), writer.new_texts(batch), SamplingOptions(overflow=overflow)
    again = Writer(lambda _: texts, writer.block_size)
    characters, started = 0, time.perf_counter()
    while not characters or time.perf_counter() - started < 0.3:
        for piece in again.pieces([ids] * batch, length, options, seeds=range(batch)):
            characters += sum(len(row) for row in piece.ids.tolist())
    return characters / (time.perf_counter() - started)


def nanogpt(folder: Path, shape: Shape) -> Callable[[int, int, int], float]:
    """A function (batch, prompt, length) -> characters a second by nanoGPT's own `generate`."""
    spec = importlib.util.spec_from_file_location("nanogpt", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=shape.block_size,
        vocab_size=VOCAB,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_embd=shape.n_embd,
        dropout=0.0,
        bias=True,
    )
    model = module.GPT(config).eval()

    def write(batch: int, prompt: int, length: int) -> float:
        ids = torch.randint(VOCAB, (batch, prompt))
        with torch.no_grad():
            return rate(batch * length, lambda: model.generate(ids, length, temperature=0.8, top_k=200))

    return write


def transformers(shape: Shape) -> Callable[[int, int], float]:
    """A function (batch, length) -> characters a second by transformers' GPT-2 with its cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=shape.block_size,
        n_embd=shape.n_embd,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()

    def write(batch: int, length: int) -> float:
        ids = torch.randint(VOCAB, (batch, 1))
        return rate(batch * length, lambda: model.generate(ids, do_sample=True, temperature=0.8, max_new_tokens=length))

    return write


def llama2c(binary: Path, shape: Shape, folder: Path) -> Callable[[], float]:
    """A function -> characters a second by llama2.c, whose gated MLP gets the hidden size that makes it as large as ours."""
    C, hidden, T = shape.n_embd, round(8 * shape.n_embd / 3), shape.block_size
    sizes = [C, *(4 * [C * C]), C, *(3 * [C * hidden])]  # of a layer: norm, attention, norm, MLP
    layers = [0.05 * torch.randn(shape.n_layer * size) for size in sizes]
    weights = [torch.randn(VOCAB, C), *layers, torch.ones(C), torch.zeros(T * C // shape.n_head)]
    weights[0][1] = 0.0  # its end of text, which then never is the likeliest
    header = struct.pack("7i", C, hidden, shape.n_layer, shape.n_head, shape.n_head, VOCAB, T)
    (folder / "model.bin").write_bytes(header + b"".join(part.numpy().tobytes() for part in weights))
    tokens = b"".join(struct.pack("fi", 0.0, 1) + bytes([48 + i]) for i in range(VOCAB))
    (folder / "tokenizer.bin").write_bytes(struct.pack("i", 1) + tokens)
    command = [binary.resolve(), folder / "model.bin", "-z", folder / "tokenizer.bin", "-t", "0", "-n", str(T)]

    def write() -> float:  # its clock counts milliseconds, so a short text is written many times
        seconds = []
        for _ in range(1 + 1000 // T):
            said = subprocess.run(command, capture_output=True, check=True).stderr.decode()
            seconds.append((T - 1) / float(re.search(r"tok/s: (\S+)", said)[1]))
        return (T - 1) / statistics.mean(seconds)

    return write


def gguf_file(model: GPT, kind: str, folder: Path) -> Path:
    """Our GGUF export of a model, with its matrices of weights in F16 or Q8_0."""
    import gguf

    from chargpt.exchange.gguf_model import write_gguf
    from chargpt.text.tokenizer import Tokenizer

    source, path = folder / "float32.gguf", folder / f"{kind}.gguf"
    if path.exists():
        return path
    if not source.exists():
        write_gguf(source, model, Tokenizer("".join(chr(48 + i) for i in range(VOCAB))))
    reader, quantized = gguf.GGUFReader(source), gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            is_list = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if is_list else None)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    for tensor in reader.tensors:
        if tensor.data.ndim == 2 and "position" not in tensor.name:
            writer.add_tensor(tensor.name, gguf.quants.quantize(tensor.data, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llamacpp(model: GPT, kind: str, texts: int, folder: Path) -> Callable[[], float]:
    """A function -> characters a second of so many texts by llama.cpp, with the matrices of weights in F16 or Q8_0.

    It runs in a process of its own, because its threads and those of torch slow each other down.
    """
    path, T = gguf_file(model, kind, folder), model.config.block_size

    def write() -> float:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(llamacpp_rate, path, T, texts, threads=torch.get_num_threads()).result()

    return write


def llamacpp_rate(path: Path, context: int, texts: int, *, threads: int) -> float:
    """Characters a second. One text is timed by llama.cpp's own clock, several by ours, with their prompts and its server."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = context * texts, texts, 0
    settings.cpuparams.n_threads = threads
    settings.warmup, settings.verbosity = False, -1
    settings.api_keys = [secrets.token_hex()]  # its server listens on a port
    rules = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True, "cache_prompt": False}
    question = {"prompt": [1], "n_predict": context - 3, **rules}  # it stops before the context is full
    server = xllamacpp.Server(settings)
    with ThreadPoolExecutor(texts) as pool:
        server.handle_completions(question)
        started = time.perf_counter()
        answers = list(pool.map(lambda _: server.handle_completions(question)["timings"], range(texts)))
        seconds = time.perf_counter() - started
    characters = sum(answer["predicted_n"] for answer in answers)
    return characters / seconds if texts > 1 else 1000 * characters / answers[0]["predicted_ms"]


def reading(numbers: int) -> Callable[[], float]:
    """A function -> how often a second as many float32 numbers can be read."""
    memory = torch.from_numpy(in_large_pages(4 * numbers)).view(torch.float32).zero_()
    return lambda: statistics.median(rate(1, memory.sum) for _ in range(max(3, 100_000_000 // numbers)))


def contenders(shape: Shape, arguments: argparse.Namespace, folder: Path) -> dict[str, Callable[[], float]]:
    """Everything to be timed, by name."""
    model, T = shape.model(), shape.block_size
    kernel, engine = c_engine(model.config)
    exact = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    stored = {name: rounded(exact, name) for name in PRECISIONS}
    in_c = {name: c_writer(weights, model.config, kernel=kernel, precision=name) for name, weights in stored.items()}
    weights = 12 * shape.n_layer * shape.n_embd**2 + VOCAB * shape.n_embd
    timed = {"1: floor": reading(weights)}
    memory = reading(BEYOND_CACHES)
    timed["1: floor, if memory were read"] = lambda: memory() * BEYOND_CACHES / weights
    theirs = nanogpt(arguments.nanogpt, shape) if arguments.nanogpt else None
    hugging_face = transformers(shape) if arguments.transformers else None
    for batch in (1, 32, 256):
        timed[f"{batch}: ours, {engine}"] = functools.partial(ours, in_c["float32"], batch, length=T - 1)
        timed[f"{batch}: ours, plain"] = functools.partial(ours, torch_writer(model), batch, length=T - 1)
        for precision in PRECISIONS[1:]:
            timed[f"{batch}: ours, {precision}"] = functools.partial(ours, in_c[precision], batch, length=T - 1)
        if theirs:
            timed[f"{batch}: nanoGPT"] = functools.partial(theirs, batch, T // 2, 1 + 16 // batch)
        if hugging_face:
            timed[f"{batch}: transformers"] = functools.partial(hugging_face, batch, T - 1)
    if arguments.llama2c:
        timed["1: llama2.c"] = llama2c(arguments.llama2c, shape, folder)
    if arguments.llamacpp:
        for batch in (1, 32):
            for quantized in ("F16", "Q8_0"):
                timed[f"{batch}: llama.cpp, {quantized}"] = llamacpp(model, quantized, batch, folder)
    for overflow, length in (("exact", 16), ("refill", 1000)):
        past = functools.partial(ours, in_c["float32"], 1, length=length, prompt=T, overflow=overflow)
        timed[f"1: ours past the block, {overflow}"] = past
    if theirs:
        timed["1: nanoGPT past the block"] = functools.partial(theirs, 1, T, 16)
    return timed


def first_character(run: str) -> tuple[float, float]:
    """Seconds until sample.py has written its first character, and until torch is imported."""

    def until_output(*command: str) -> float:
        started = time.perf_counter()
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdout.read(2)
            seconds = time.perf_counter() - started
            process.kill()
        return seconds

    ours, torch_alone = (str(ROOT / "sample.py"), run, "--prompt", "a"), ("-c", "import torch; print('ok')")
    pairs = [(until_output(*ours), until_output(*torch_alone)) for _ in range(5)]
    return tuple(map(statistics.median, zip(*pairs)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, metavar="DIR")
    parser.add_argument("--llama2c", type=Path, metavar="BINARY")
    parser.add_argument("--llamacpp", action="store_true", help="needs the packages gguf and xllamacpp")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--run", help="a run, to time sample.py's first character")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, choices=(0, 1), help="the number of one shape")
    arguments = parser.parse_args()
    print(f"{machine_name(torch.device('cpu'))}, torch {torch.__version__}; {limits(torch.device('cpu'))}\n")
    print("| shape | texts at once: who | characters a second | share of the floor |\n|---|---|---|---|")
    for number, shape in enumerate(SHAPES):
        if arguments.only not in (None, number):
            continue
        with tempfile.TemporaryDirectory() as folder:
            timed = contenders(shape, arguments, Path(folder))
            rates: dict[str, list[float]] = {name: [] for name in timed}
            for _ in range(arguments.rounds):
                for name, work in timed.items():
                    rates[name].append(work())
        fastest = statistics.median(rates["1: floor"])
        for name in sorted(rates, key=lambda name: int(name.partition(":")[0])):
            median = statistics.median(rates[name])
            share = f"{100 * median / fastest:.0f} %" if name.startswith("1:") else ""
            print(f"| {shape.name} | {name} | {median:,.0f} | {share} |", flush=True)
    if arguments.run:
        first, alone = first_character(arguments.run)
        print(f"\nfirst character of sample.py after {first:.2f} s; `import torch` alone takes {alone:.2f} s")


if __name__ == "__main__":
    main()
