"""Names of other programs in our words, for "did you mean": nanoGPT, char-rnn, torch-rnn and textgenrnn."""

from chargpt.errors import Message, Option, Words
from chargpt.project import command

OF_TRAIN, OF_SAMPLE = " of train.py", " of sample.py"
MEANT: dict[Words, str] = {  # a setting or an option of ours, or what there is in its place: names of theirs, with _ for -
    Option("model.n_layer"): "n_layer num_layers rnn_layers",
    Option("model.n_head"): "n_head",
    Option("model.n_embd"): "n_embd rnn_size",
    Option("model.block_size"): "block_size seq_length",
    Option("model.bias"): "bias",
    Option("model.dropout"): "dropout",
    Option("train.batch_size"): "batch_size",
    Option("train.accumulate"): "gradient_accumulation_steps",
    Option("train.max_steps"): "max_iters max_steps steps",
    Option("train.eval_interval"): "eval_interval eval_val_every",
    Option("train.eval_chars"): "eval_iters",
    Option("train.log_interval"): "log_interval print_every",
    Option("checkpoint.interval"): "checkpoint_every",
    Option("data.val_fraction"): "val_frac",
    Option("optim.learning_rate"): "learning_rate lr",
    Option("optim.weight_decay"): "weight_decay",
    Option("optim.grad_clip"): "grad_clip",
    Option("optim.warmup_steps"): "warmup_iters",
    Option("optim.betas"): "beta1 beta2",
    Option("optim.final_fraction"): "min_lr",
    Option("optim.decay_fraction"): "decay_lr",
    Option("runtime.compile"): "compile",
    Message(Option("runtime.precision"), OF_TRAIN, ", or ", Option("precision"), OF_SAMPLE): "dtype",
    Option("train.seed"): "seed",
    Message(Option("epochs"), OF_TRAIN): "epoch epochs num_epochs max_epochs",
    Message(Option("minutes"), OF_TRAIN): "minutes",
    Option("device"): "device",
    Option("device", "cuda"): "gpu gpuid",
    Message(Option("start", "NAME"), OF_TRAIN): "start",
    Message(Option("init_from"), OF_TRAIN): "init_from",
    Message(Option("run"), OF_TRAIN, ", or RUN alone for sample.py"): "out_dir checkpoint_dir",
    Message(Option("run"), OF_TRAIN): "checkpoint_name savefile wandb_run_name",
    Message(Option("text"), ", the path of a text"): "dataset data_dir input_txt",
    Message(Option("prompt"), OF_SAMPLE): "prime primetext start_text prefix",
    Message(Option("length"), OF_SAMPLE): "max_new_tokens max_tokens max_gen_length",
    Message(Option("samples"), OF_SAMPLE): "num_samples",
    Message(Option("ban_word"), OF_SAMPLE): "ban_words exclude not without bad_words",
    Message(Option("train.max_steps"), OF_TRAIN, ", until which the rate falls"): "lr_decay_iters",
    command("score"): "eval_only",
    Option("checkpoint.keep"): "always_save_checkpoint",
    "TensorBoard, which shows every run": "wandb wandb_log wandb_project",
    f"{command('report')}, or TensorBoard": "plot",
    "torchrun, which starts several processes": "backend",
}
ALIASES = {theirs: ours for ours, names in MEANT.items() for theirs in names.split()}


def alias(name: str, *, program: str = "train") -> Words:
    """What another program's name, typed as an option or as a setting of `program`, is called here; empty if it is none."""
    ours = ALIASES.get(name.lstrip("-").replace("-", "_"), "")
    is_setting = isinstance(ours, Option) and "." in ours.name
    pieces = ours.pieces if isinstance(ours, Message) else [ours, OF_TRAIN] if is_setting else [ours]
    return ours and Message(*(piece for piece in pieces if piece != f" of {program}.py"))
