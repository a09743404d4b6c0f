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


MEANT: dict[str | Ours, str] = {  # a setting or an option of ours, or what there is in its place: names of theirs, with _ for -
    "model.n_layer": "n_layer num_layers rnn_layers",
    "model.n_head": "n_head",
    "model.n_embd": "n_embd rnn_size",
    "model.block_size": "block_size seq_length",
    "model.bias": "bias",
    "model.dropout": "dropout",
    "train.batch_size": "batch_size",
    "train.accumulate": "gradient_accumulation_steps",
    "train.max_steps": "max_iters max_steps steps",
    "train.eval_interval": "eval_interval eval_val_every",
    "train.eval_chars": "eval_iters",
    "train.log_interval": "log_interval print_every",
    "checkpoint.interval": "checkpoint_every",
    "data.val_fraction": "val_frac",
    "optim.learning_rate": "learning_rate lr",
    "optim.weight_decay": "weight_decay",
    "optim.grad_clip": "grad_clip",
    "optim.warmup_steps": "warmup_iters",
    "optim.betas": "beta1 beta2",
    "optim.final_fraction": "min_lr",
    "optim.decay_fraction": "decay_lr",
    "runtime.compile": "compile",
    "runtime.precision, or --precision of sample.py": "dtype",
    "train.seed": "seed",
    Ours("epochs", of="train.py"): "epoch epochs num_epochs max_epochs",
    Ours("minutes", of="train.py"): "minutes",
    Ours("device"): "device",
    Ours("device", "cuda"): "gpu gpuid",
    Ours("start", "NAME", of="train.py"): "start",
    Ours("init_from", of="train.py"): "init_from",
    Ours("run", of="train.py", more=", or RUN alone for sample.py"): "out_dir checkpoint_dir",
    Ours("run", of="train.py"): "checkpoint_name savefile wandb_run_name",
    Ours("text", more=", the path of a text"): "dataset data_dir input_txt",
    Ours("prompt", of="sample.py"): "prime primetext start_text prefix",
    Ours("length", of="sample.py"): "max_new_tokens max_tokens max_gen_length",
    Ours("samples", of="sample.py"): "num_samples",
    "train.max_steps, until which the rate falls": "lr_decay_iters",
    command("score"): "eval_only",
    "checkpoint.keep": "always_save_checkpoint",
    "TensorBoard, which shows every run": "wandb wandb_log wandb_project",
    f"{command('report')}, or TensorBoard": "plot",
    "torchrun, which starts several processes": "backend",
}
ALIASES = {theirs: ours for ours, names in MEANT.items() for theirs in names.split()}


def alias(name: str, *, program: str = "") -> Words:
    """What another program's name, typed as an option or as a setting, is called here; empty if it is no such name.

    `program` is the one of ours that the user calls; others are named.
    """
    ours = ALIASES.get(name.lstrip("-").replace("-", "_"), "")
    return ours.removesuffix(f" of {program}") if isinstance(ours, str) else ours.words(program)
