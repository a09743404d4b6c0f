"""Names of other programs in our words, for "did you mean": nanoGPT, char-rnn, torch-rnn and textgenrnn."""

from dataclasses import dataclass

from chargpt.errors import Message, Option, Words
from chargpt.project import command


@dataclass(frozen=True)
class Ours:
    """An option of ours that does what a name of theirs does."""

    name: str  # as an argument of Python
    value: str | None = None
    of: str = ""  # the program that has it; empty: each
    more: str = ""

    def words(self, program: str) -> Words:
        """The option, for a user of `program`."""
        of = f" of {self.of}" if self.of and self.of != program else ""
        return Message(Option(self.name, self.value), of, self.more)


ALIASES: dict[
    str, str | Ours
] = {  # a name of theirs, with _ for -: a setting or an option of ours, or what there is in its place
    "n_layer": "model.n_layer",
    "num_layers": "model.n_layer",
    "rnn_layers": "model.n_layer",
    "n_head": "model.n_head",
    "n_embd": "model.n_embd",
    "rnn_size": "model.n_embd",
    "block_size": "model.block_size",
    "seq_length": "model.block_size",
    "bias": "model.bias",
    "dropout": "model.dropout",
    "batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.accumulate",
    "max_iters": "train.max_steps",
    "max_steps": "train.max_steps",
    "steps": "train.max_steps",
    "eval_interval": "train.eval_interval",
    "eval_val_every": "train.eval_interval",
    "eval_iters": "train.eval_chars",
    "log_interval": "train.log_interval",
    "print_every": "train.log_interval",
    "checkpoint_every": "checkpoint.interval",
    "val_frac": "data.val_fraction",
    "learning_rate": "optim.learning_rate",
    "lr": "optim.learning_rate",
    "weight_decay": "optim.weight_decay",
    "grad_clip": "optim.grad_clip",
    "warmup_iters": "optim.warmup_steps",
    "beta1": "optim.betas",
    "beta2": "optim.betas",
    "min_lr": "optim.final_fraction",
    "decay_lr": "optim.decay_fraction",
    "compile": "runtime.compile",
    "dtype": "runtime.precision, or --precision of sample.py",
    "seed": "train.seed",
    "epoch": Ours("epochs", of="train.py"),
    "epochs": Ours("epochs", of="train.py"),
    "num_epochs": Ours("epochs", of="train.py"),
    "max_epochs": Ours("epochs", of="train.py"),
    "minutes": Ours("minutes", of="train.py"),
    "device": Ours("device"),
    "gpu": Ours("device", "cuda"),
    "gpuid": Ours("device", "cuda"),
    "start": Ours("start", "NAME", of="train.py"),
    "init_from": Ours("init_from", of="train.py"),
    "out_dir": Ours("run", of="train.py", more=", or RUN alone for sample.py"),
    "checkpoint_dir": Ours("run", of="train.py", more=", or RUN alone for sample.py"),
    "checkpoint_name": Ours("run", of="train.py"),
    "savefile": Ours("run", of="train.py"),
    "wandb_run_name": Ours("run", of="train.py"),
    "dataset": Ours("text", more=", the path of a text"),
    "data_dir": Ours("text", more=", the path of a text"),
    "input_txt": Ours("text", more=", the path of a text"),
    "prime": Ours("prompt", of="sample.py"),
    "primetext": Ours("prompt", of="sample.py"),
    "start_text": Ours("prompt", of="sample.py"),
    "prefix": Ours("prompt", of="sample.py"),
    "max_new_tokens": Ours("length", of="sample.py"),
    "max_tokens": Ours("length", of="sample.py"),
    "max_gen_length": Ours("length", of="sample.py"),
    "num_samples": Ours("samples", of="sample.py"),
    "lr_decay_iters": "train.max_steps, until which the rate falls",
    "eval_only": command("score"),
    "always_save_checkpoint": "checkpoint.keep",
    "wandb": "TensorBoard, which shows every run",
    "wandb_log": "TensorBoard, which shows every run",
    "wandb_project": "TensorBoard, which shows every run",
    "plot": f"{command('report')}, or TensorBoard",
    "backend": "torchrun, which starts several processes",
}


def alias(name: str, *, program: str = "") -> Words:
    """What another program's name, typed as an option or as a setting, is called here; empty if it is no such name.

    `program` is the one of ours that the user calls; others are named.
    """
    ours = ALIASES.get(name.lstrip("-").replace("-", "_"), "")
    return ours.removesuffix(f" of {program}") if isinstance(ours, str) else ours.words(program)
