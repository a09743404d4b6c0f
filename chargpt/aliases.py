"""Names of other programs in our words, for "did you mean": nanoGPT, char-rnn, torch-rnn and textgenrnn."""

from chargpt.errors import Message, Option, Words
from chargpt.project import command

MEANT: dict[Words, str] = {  # a setting or an option of ours, or what there is in its place: names of theirs, with _ for -
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
    Message(Option("epochs"), " of train.py"): "epoch epochs num_epochs max_epochs",
    Message(Option("minutes"), " of train.py"): "minutes",
    Option("device"): "device",
    Option("device", "cuda"): "gpu gpuid",
    Message(Option("start", "NAME"), " of train.py"): "start",
    Message(Option("init_from"), " of train.py"): "init_from",
    Message(Option("run"), " of train.py, or RUN alone for sample.py"): "out_dir checkpoint_dir",
    Message(Option("run"), " of train.py"): "checkpoint_name savefile wandb_run_name",
    Message(Option("text"), ", the path of a text"): "dataset data_dir input_txt",
    Message(Option("prompt"), " of sample.py"): "prime primetext start_text prefix",
    Message(Option("length"), " of sample.py"): "max_new_tokens max_tokens max_gen_length",
    Message(Option("samples"), " of sample.py"): "num_samples",
    "train.max_steps, until which the rate falls": "lr_decay_iters",
    command("score"): "eval_only",
    "checkpoint.keep": "always_save_checkpoint",
    "TensorBoard, which shows every run": "wandb wandb_log wandb_project",
    f"{command('report')}, or TensorBoard": "plot",
    "torchrun, which starts several processes": "backend",
}
ALIASES = {theirs: ours for ours, names in MEANT.items() for theirs in names.split()}


def alias(name: str) -> Words:
    """What another program's name, typed as an option or as a setting, is called here; empty if it is no such name."""
    return ALIASES.get(name.lstrip("-").replace("-", "_"), "")
