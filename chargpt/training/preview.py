"""What to expect of a training before it begins. The program `python -m chargpt text TEXT` examines a text."""

import time
from pathlib import Path

import torch

from chargpt.config import Config, apply, apply_overrides, read_yaml
from chargpt.terminal import Parser, shown
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import load_corpus
from chargpt.text.report import examine
from chargpt.training.runtime import Runtime, choose_runtime
from model import GPT


def outlook(corpus: EncodedText, config: Config, *, parameters: int, characters_per_second: float) -> str:
    """A line on what that many parameters, trained as `config` says, mean for this text and this machine."""
    per_step = config.train.batch_size * config.train.accumulate * config.model.block_size
    epochs = config.train.max_steps * per_step / len(corpus.train)
    minutes = config.train.max_steps * per_step / characters_per_second / 60
    per_character = 37 * config.model.n_layer * config.model.n_embd + 3 * corpus.tokenizer.vocab_size
    memory = 16 * parameters + 4 * config.train.batch_size * config.model.block_size * per_character
    expected = _overfitting(epochs, parameters / len(corpus.train))
    cost = f"about {minutes:.1f} minutes and {memory / 1e9:.1f} GB"
    return f"outlook     {epochs:.1f} epochs for {parameters:,} parameters: {expected}; {cost}"


def _overfitting(epochs: float, parameters_per_character: float) -> str:
    """Up to 4 epochs are nearly as good as new text, beyond about 16 they teach little (Muennighoff et al. 2023,
    arXiv 2305.16264); a model with more parameters than there are characters then learns them by heart."""
    if epochs < 1:
        return "it will not see all of the text; more steps would help"
    if epochs <= 4:
        return "no overfitting expected"
    if epochs <= 16 or parameters_per_character < 1:
        return "little overfitting expected, watch val/loss"
    return "overfitting expected, the best checkpoint will be an early one; more text, weight decay or a smaller model help"


def trial(config: Config, vocab_size: int, runtime: Runtime) -> tuple[int, float]:
    """How many parameters the model has, and how many characters a second it learns from: the best of a few small steps."""
    model = GPT(config.model, vocab_size).to(runtime.device)
    parameters, block_size = model.parameter_count(), config.model.block_size
    batch_size = min(config.train.batch_size, 1 + int(3e9 / (parameters * block_size)))  # a moment, even for a large model
    idx = torch.zeros(batch_size, block_size, dtype=torch.int64, device=runtime.device)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        with torch.autocast(runtime.device.type, runtime.precision, enabled=runtime.precision != torch.float32):
            loss = model(idx, idx)
        loss.backward()
        loss.item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    return parameters, idx.numel() / min(seconds)


def main(argv: list[str]) -> int:
    """The program: what a text is like, and what to expect of a model of it."""
    parser = Parser(prog="python -m chargpt text", description="What a text is like, before training on it.")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="as for train.py; and settings, section.key=value")
    parser.add_argument("--config", metavar="FILE", help="a YAML file, as for train.py")
    arguments = parser.parse_intermixed_args(argv)
    texts = [text for text in arguments.texts if "=" not in text or Path(text).exists()]
    settings = [text for text in arguments.texts if text not in texts]
    root = Path(__file__).parents[2]
    config = apply_overrides(Config(), settings)
    runtime = choose_runtime(config.runtime)
    file = arguments.config or root / "configs" / f"{'gpu' if runtime.device.type == 'cuda' else 'cpu'}.yaml"
    config = apply_overrides(apply(Config(), read_yaml(file), where=shown(file)), settings)
    corpus = load_corpus(texts, config.data, root=root, block_size=config.model.block_size)
    print(*corpus.describe(), *examine(corpus), sep="\n", flush=True)
    parameters, speed = trial(config, corpus.tokenizer.vocab_size, runtime)
    print(outlook(corpus, config, parameters=parameters, characters_per_second=speed))
    return 0
