"""nanoGPT's names in our words: for people who type its options, or give a file of its configuration.

Nothing here imports torch, so that a mistyped option is answered at once, and nothing is executed: a configuration of nanoGPT
is Python code, of which only assignments of literals are read.
"""

import ast
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from chargpt.project import command
from chargpt.terminal import NUMBER, UserError, shell_word, shown

SHAPE = {name: f"model.{name}" for name in ("n_layer", "n_head", "n_embd", "block_size", "bias")}
TRAINING = {  # of its train.py: our section.key
    "dropout": "model.dropout",
    "batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.accumulate",
    "max_iters": "train.max_steps",
    "eval_interval": "train.eval_interval",
    "log_interval": "train.log_interval",
    "learning_rate": "optim.learning_rate",
    "weight_decay": "optim.weight_decay",
    "grad_clip": "optim.grad_clip",
    "warmup_iters": "optim.warmup_steps",
}
DEFAULTS = {  # of its train.py, which a configuration changes
    "n_layer": "12",
    "n_head": "12",
    "n_embd": "768",
    "block_size": "1024",
    "dropout": "0.0",
    "bias": "False",
    "batch_size": "12",
    "gradient_accumulation_steps": "40",
    "max_iters": "600000",
    "eval_interval": "2000",
    "learning_rate": "6e-4",
    "min_lr": "6e-5",
    "decay_lr": "True",
    "warmup_iters": "2000",
    "weight_decay": "0.1",
    "beta1": "0.9",
    "beta2": "0.95",
    "grad_clip": "1.0",
    "dataset": "",
}
TRAIN = {  # what to write, with {} for the value
    **{name: f"{key}={{}}" for name, key in (SHAPE | TRAINING).items()},
    "lr": "optim.learning_rate={}",
    "max_steps": "train.max_steps={}",
    "steps": "train.max_steps={}",
    "num_epochs": "--epochs {}",
    "epoch": "--epochs {}",
    "epochs": "--epochs {}",  # our own options, typed as settings
    "minutes": "--minutes {}",
    "seed": "train.seed={}",
    "compile": "runtime.compile={}",
    "dtype": "runtime.precision={}",
    "device": "--device {}",
    "out_dir": "--run {}",
    "init_from": "--init-from {}",
    "dataset": "{}",
}
SAMPLE = {
    "start": "--prompt {}",
    "max_new_tokens": "--length {}",
    "max_tokens": "--length {}",
    "num_samples": "--samples {}",
    "top_k": "--top-k {}",
    "top_p": "--top-p {}",
    "temperature": "--temperature {}",
    "seed": "--seed {}",
    "device": "--device {}",
    "dtype": "--precision {}",
    "out_dir": "sample.py {}",
}
UNUSED = {  # names without an equivalent, and what there is
    "beta1": "optim.betas has both",
    "beta2": "optim.betas has both",
    "min_lr": "optim.final_fraction is the fraction of the rate at the end",
    "decay_lr": "optim.decay_fraction=0 keeps the rate",
    "lr_decay_iters": "the rate falls until train.max_steps",
    "eval_iters": "train.eval_chars says on how many characters to evaluate",
    "eval_only": "python -m chargpt score evaluates a run",
    "always_save_checkpoint": "the best and the newest checkpoints are kept",
    "wandb_log": "TensorBoard shows every run",
    "wandb_project": "TensorBoard shows every run",
    "wandb_run_name": "--run names a run",
    "backend": "torchrun starts several processes",
    "compile": "sampling is not compiled by torch",
    "init_from": "a run is named as in sample.py RUN",
}
CONSTANT_RATE = ["optim.schedule=linear", "optim.decay_fraction=0", "optim.warmup_steps=0"]
ON_OFF = {"True": "on", "False": "off"}
PRECISIONS = {"float16": "bfloat16"}
DATASETS = {"shakespeare_char": "shakespeare", "shakespeare": "shakespeare"}
CHARACTERS = "a model of tokens, which are pieces of words; the models here read and write characters"
MAX_BYTES, MAX_LINE = 100_000, 300  # of a configuration
SHAKESPEARE = "train_shakespeare_char.py"  # its configuration for a first training
CHECKPOINT = "ckpt.pt"  # in the folder that its train.py writes


def check_words(argv: Sequence[str], names: Mapping[str, str], *, known: Collection[str], bare: Iterable[str] = ()) -> None:
    """Raise UserError if `argv` has options of nanoGPT, with what to write in their place.

    `names` is TRAIN or SAMPLE, `known` are our own options, and `bare` are words without dashes that may be such options.
    """
    found: dict[str, str | None] = {}
    typed: list[str] = []
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    for word, following in zip(words, [*words[1:], "--"]):
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        is_bare = bool(equals) and word in bare and not word.startswith("-")
        if not (is_bare or (option.startswith("--") and option not in known)):
            continue
        if names is TRAIN and name in SAMPLE and name not in TRAIN:
            sample = _written(SAMPLE[name], name, value if equals else None if following.startswith("--") else following)
            raise UserError(f"{option}: an option of sample.py; after the training, write {command('sample')} {sample}")
        if name not in names and name not in UNUSED:
            continue
        typed.append(option)
        found[name] = value if equals else None if following.startswith("--") else following
    if found:
        ours, unused = in_our_words(found, names)
        what_to_do = [f"write {' '.join(ours)}"] if ours else []
        what_to_do += [f"leave out {name} ({why})" for name, why in unused.items()]
        kind = "no such option or setting" if len(typed) == 1 else "no such options or settings"
        raise UserError(f"{', '.join(typed)}: {kind}; {', and '.join(what_to_do)}")


def in_our_words(values: Mapping[str, str | None], names: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Words of our command line for values of nanoGPT's settings, and the names that have none, each with the reason.

    A value of None was not given. The first words are those that are not settings.
    """
    words: list[str] = []
    unused: dict[str, str] = {}
    for name, value in values.items():
        if name == "init_from" and names is TRAIN and value in ("resume", "scratch", None):
            words += ["--resume"] if value == "resume" else []
            unused |= {} if value == "resume" else {name: "a new run is the default"}
        elif name == "init_from" and is_gpt2(value):
            unused[name] = f"{value} is {CHARACTERS}"
        elif name == "decay_lr" and value in ON_OFF and names is TRAIN:
            words += ["optim.schedule=cosine"] if value == "True" else CONSTANT_RATE
        elif name in ("min_lr", "warmup_iters") and values.get("decay_lr") == "False":  # it has no effect there
            continue
        elif name in ("beta1", "beta2") and names is TRAIN:
            betas = f"optim.betas={values.get('beta1') or DEFAULTS['beta1']},{values.get('beta2') or DEFAULTS['beta2']}"
            words += [] if betas in words else [betas]
        elif name == "min_lr" and _fraction(value, values.get("learning_rate")):
            words.append(f"optim.final_fraction={_fraction(value, values['learning_rate'])}")
        elif name in names:
            words.append(_written(names[name], name, value))
        else:
            unused[name] = UNUSED[name]
    return sorted(words, key=lambda word: (not word.startswith("sample.py "), "=" in word)), unused


def _written(template: str, name: str, value: str | None) -> str:
    """`template` with a value, as a shell reads it."""
    if value is None:
        return template.format({"dataset": "TEXT", "out_dir": "NAME"}.get(name, "VALUE"))
    if name == "compile":
        value = ON_OFF.get(value, value)
    if name == "bias":
        value = value.lower()
    if name == "dtype":
        value = PRECISIONS.get(value, value)
    if name == "dataset":
        value = DATASETS.get(value, "TEXT")
    if name == "start" and value.startswith("FILE:"):
        template, value = "--prompt-file {}", value.removeprefix("FILE:")
    return template.format(shlex.quote(value))


def _fraction(part: str | None, whole: str | None) -> str:
    """`part` / `whole` if they are numbers of which it is a fraction; otherwise empty."""
    if not (part and whole and NUMBER.fullmatch(part) and NUMBER.fullmatch(whole) and 0 <= float(part) <= float(whole) > 0):
        return ""
    return f"{float(part) / float(whole):.6g}"


def is_gpt2(name: str | None) -> bool:
    """Whether nanoGPT would start from OpenAI's weights by this name."""
    return name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")


def read_config(path: Path) -> dict[str, str]:
    """The settings of nanoGPT that a file of its configuration assigns, as texts; empty if it is another file.

    Each line is read by itself, and only an assignment of a literal or of a product of two whole numbers counts.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        lines = data.decode("utf-8").splitlines() if len(data) <= MAX_BYTES else []
    except (OSError, UnicodeDecodeError):
        return {}
    found = [assignment for line in lines if len(line) <= MAX_LINE and (assignment := _assignment(line))]
    settings = {name: value for name, value in found if name in TRAIN or name in UNUSED}
    return settings if path.suffix == ".py" or len(settings) > 1 else {}


def _assignment(line: str) -> tuple[str, str] | None:
    """The name and the value in a line `name = literal`; None for any other line."""
    try:
        (statement,) = ast.parse(line).body
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return None
        value = _literal(statement.value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(value, (bool, int, float, str)) or not str(value).isprintable():
        return None
    return statement.targets[0].id, str(value)


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = ast.literal_eval(node.left), ast.literal_eval(node.right)
        if type(left) is int and type(right) is int:
            return left * right
    return ast.literal_eval(node)


def config_and_flags(argv: Sequence[str], *, known: Collection[str]) -> tuple[Path | None, dict[str, str | None], list[str]]:
    """The configuration of nanoGPT that a command line names, the options of nanoGPT in it, and its other words.

    `known` are our own options. A configuration is the value of --config, or a file in a folder `config`.
    """
    for word in argv:
        if Path(word).name == SHAKESPEARE and not Path(word.removeprefix("--config=")).exists():
            raise UserError(
                f"{word}: no such file; write shakespeare --config shakespeare-cpu, or -gpu, which has its settings"
            )
    path: Path | None = None
    flags: dict[str, str | None] = {}
    others: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option == "--config":
            path = Path(value if equals or not words else words.pop(0))
        elif not word.startswith("-") and Path(word).parent.name == "config" and read_config(Path(word)):
            path = Path(word)
        elif option not in known and (equals or word.startswith("--")) and (name in TRAIN or name in UNUSED):
            is_last = not words or words[0].startswith("--")
            flags[name] = value if equals else None if is_last else words.pop(0)
        else:
            others.append(word)
    return (path if path and read_config(path) else None), flags, others


def refuse_config(
    path: Path, *, flags: Mapping[str, str | None] = {}, ours: Sequence[str] = (), decided: Collection[str] = ()
) -> None:
    """Raise UserError if a file is a configuration of nanoGPT; the same command in our words is printed before.

    `flags` are options of nanoGPT, which replace values of the file, and `ours` are words of our own, which stay as they are;
    they decide the settings and options `decided`, and the text if "TEXT" is one of these.
    """
    if settings := read_config(path):
        words, unused = in_our_words({**DEFAULTS, **settings, **flags}, TRAIN)
        kept = [word for word in words if _decides(word) not in decided]
        print(f"{command('train')} {' '.join([*(shell_word(shown(word)) for word in ours), *kept])}", flush=True)
        reasons = ", ".join(f"{name} ({why})" for name, why in unused.items() if name in {**settings, **flags})
        left_out = f"; left out: {reasons}" if reasons else ""
        raise UserError(f"{shown(path)}: a configuration of nanoGPT, which is not executed; use the command above{left_out}")


def _decides(word: str) -> str:
    """The option or the section.key that one of our words decides; TEXT for a text."""
    if word.startswith("--"):
        return word.split(" ")[0]
    return word.partition("=")[0] if "=" in word else "TEXT"


def checkpoint_folder(path: Path) -> Path | None:
    """The folder that nanoGPT has written, if `path` is this folder or the checkpoint in it."""
    if path.name == CHECKPOINT and path.is_file():
        return path.parent
    return path if (path / CHECKPOINT).is_file() else None


def refuse_checkpoint(path: Path) -> None:
    """Raise UserError, which says how to make a run of it, if `path` is a checkpoint of nanoGPT or its folder."""
    if folder := checkpoint_folder(path):
        words = f"{command('import')} {shell_word(shown(folder))} --run NAME"
        raise UserError(f"{shown(path)}: a checkpoint of nanoGPT; make a run of it with {words}")
