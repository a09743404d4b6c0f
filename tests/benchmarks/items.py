"""A run on items beside others, on the same split: naive Bayes and n-gram models for its labels, makemore's transformer for its items.

    python tests/benchmarks/items.py RUN                                       labels: accuracy, and whose label samples get
    python tests/benchmarks/items.py RUN --makemore DIR --steps N [--rate R]   bits per item of makemore's transformer

DIR holds makemore.py (github.com/karpathy/makemore). Its model has 4 layers of width 64, as in its own example, and is trained here
with its settings: batches of 32 items, AdamW with a constant rate. Prints a JSON object in a line for each result.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chargpt.analysis.item_facts import guess_labels
from chargpt.commands.common import load_run
from chargpt.sampling.item_writer import ItemWriter
from chargpt.sampling.options import SamplingOptions
from chargpt.text.item_stream import Item, items_in

SAMPLES = 250  # for each label
FOLDS = 5  # in which the settings of naive Bayes are chosen, on the training items

Classifier = Callable[[str], str]


def naive_bayes(items: Sequence[Item], longest: int, alpha: float) -> Classifier:
    """Multinomial naive Bayes on all n-grams of up to `longest` characters, ends included, with additive smoothing."""
    labels, counts = Counter(item.label for item in items), defaultdict[str, Counter[str]](Counter)
    for item in items:
        counts[item.label].update(_grams(item.text, longest))
    kinds = len(set().union(*counts.values()))
    totals = {label: counts[label].total() + alpha * kinds for label in labels}

    def classify(text: str) -> str:
        grams = _grams(text, longest)
        scores = {
            label: math.log(labels[label]) + sum(math.log((counts[label][gram] + alpha) / totals[label]) for gram in grams)
            for label in labels
        }
        return max(scores, key=scores.__getitem__)

    return classify


def _grams(text: str, longest: int) -> list[str]:
    text = f"\x02{text}\x03"
    return [text[i : i + n] for n in range(1, longest + 1) for i in range(len(text) - n + 1)]


def ngram_models(items: Sequence[Item], order: int = 4) -> Classifier:
    """An n-gram model for each label, interpolated as in chargpt/text/facts.py, and Bayes' rule."""
    labels = Counter(item.label for item in items)
    counts = {label: defaultdict[str, Counter[str]](Counter) for label in labels}
    for item in items:
        text = "\x02" * order + item.text + "\x03"
        for i in range(order, len(text)):
            for n in range(order + 1):
                counts[item.label][text[i - n : i]][text[i]] += 1
    kinds = len(set("".join(item.text for item in items))) + 1

    def log_probability(label: str, text: str) -> float:
        text, total = "\x02" * order + text + "\x03", math.log(labels[label])
        for i in range(order, len(text)):
            probability = 1 / kinds
            for n in range(order + 1):
                seen = counts[label].get(text[i - n : i])
                if seen is None:
                    break
                probability = (seen[text[i]] + len(seen) * probability) / (seen.total() + len(seen))
            total += math.log(probability)
        return total

    return lambda text: max(labels, key=lambda label: log_probability(label, text))


def accuracy(classify: Classifier, items: Sequence[Item]) -> float:
    return sum(classify(item.text) == item.label for item in items) / len(items)


def chosen_naive_bayes(items: Sequence[Item]) -> tuple[Classifier, int, float]:
    """Naive Bayes with the settings that are best in cross-validation on `items`."""
    found = []
    for longest in (2, 3, 4, 5):
        for alpha in (0.01, 0.1, 1.0):
            folds = [([x for i, x in enumerate(items) if i % FOLDS != fold], items[fold::FOLDS]) for fold in range(FOLDS)]
            mean = sum(accuracy(naive_bayes(train, longest, alpha), test) for train, test in folds) / FOLDS
            found.append((mean, longest, alpha))
    _, longest, alpha = max(found)
    return naive_bayes(items, longest, alpha), longest, alpha


def measure_labels(run: str) -> None:
    loaded = load_run(run, device="cpu")
    corpus = loaded.corpus()
    train, val = (items_in(ids, corpus.tokenizer, has_labels=True) for ids in (corpus.train, corpus.val))
    assert corpus.items is not None
    guesses = guess_labels(loaded, val, corpus.items.labels)
    print(json.dumps({"run": run, "items": len(val), "classifier": "the run", "accuracy": guesses.accuracy}), flush=True)
    classify, longest, alpha = chosen_naive_bayes(train)
    what = f"naive Bayes, 1- to {longest}-grams, alpha {alpha}"
    print(json.dumps({"run": run, "items": len(val), "classifier": what, "accuracy": accuracy(classify, val)}), flush=True)
    independent = ngram_models(train)
    what = "order-4 n-gram models"
    print(json.dumps({"run": run, "items": len(val), "classifier": what, "accuracy": accuracy(independent, val)}), flush=True)
    known = frozenset(item.text for item in train)
    for label in corpus.items.labels:
        wanted = SamplingOptions(items=SAMPLES, unique=True, new=True, seed=1)
        generator = loaded.text_generator(dataclasses.replace(wanted, unique=False))
        samples = list(ItemWriter(generator=generator, wanted=wanted, labels={label: 1}, known=known))
        print(json.dumps({"run": run, "label": label, "samples": len(samples), "accuracy": accuracy(independent, samples)}))


def measure_makemore(run: str, folder: str, *, steps: int, rate: float) -> None:
    sys.path.insert(0, folder)
    import makemore

    loaded = load_run(run, device="cpu")
    corpus = loaded.corpus()
    splits = [[item.text for item in items_in(ids, corpus.tokenizer, has_labels=False)] for ids in (corpus.train, corpus.val)]
    words = splits[0] + splits[1]
    characters, longest = sorted(set("".join(words))), max(map(len, words))
    data = [makemore.CharDataset(split, characters, longest) for split in splits]
    pairs = [[torch.stack(values) for values in zip(*(one[i] for i in range(len(one))))] for one in data]
    torch.manual_seed(1)
    shape = {"n_layer": 4, "n_head": 4, "n_embd": 64, "n_embd2": 64}
    size = {"vocab_size": data[0].get_vocab_size(), "block_size": data[0].get_output_length()}
    model = makemore.Transformer(makemore.ModelConfig(**size, **shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.99), eps=1e-8)
    (inputs, targets), (val_inputs, val_targets) = pairs
    for _ in range(steps):
        rows = torch.randint(len(inputs), (32,))
        _, loss = model(inputs[rows], targets[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(val_inputs), 500):
            logits, _ = model(val_inputs[start : start + 500], None)
            wanted = val_targets[start : start + 500]
            total += F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-1, reduction="sum").item()
    bits = total / len(val_inputs) / math.log(2)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"program": "makemore", "parameters": parameters, "steps": steps, "rate": rate, "bits_per_item": bits}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--makemore", metavar="DIR")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=5e-4)
    options = parser.parse_args()
    if options.makemore is None:
        measure_labels(options.run)
    else:
        measure_makemore(options.run, options.makemore, steps=options.steps, rate=options.rate)
