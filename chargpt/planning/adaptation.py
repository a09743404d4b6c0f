"""Settings for a training that begins with the weights of a start or of another run: low rates, few epochs, an early end.

A model that knows its language forgets it at the rates of a training from scratch, and memorises a short text in a few epochs.
"""

import math

from chargpt.formatting import shown
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning.budget import EVALUATION_SHARE
from chargpt.planning.chosen_for_time import Job, multiple
from chargpt.planning.initial_settings import Asked
from chargpt.runs.beginning import start_from
from chargpt.runs.blank_model import blank_model
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.settings import Settings, Source
from chargpt.text.corpus import Corpus
from chargpt.text.facts import NGRAM_MODEL
from chargpt.text.passages import has_read
from chargpt.training.evaluation import evaluate, validation_split
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES

FEWEST_EPOCHS, EPOCHS = 2, 6  # epochs for a text like those of the start, and the most of any
# How many more for each nat that the start loses on the text, compared with its own: for a model of up to SMALL parameters.
EPOCHS_OF_A_NAT = 1.5
SMALL = 1_300_000  # a larger model memorises the text sooner
SMALL_SPLIT = 3000  # characters of a validation split below which it cannot choose the checkpoint: the noise is too large
NOISE = 2.0  # nats: a loss on n characters has a standard error of about NOISE / sqrt(n)
# Steps in which the rate rises, and what AdamW needs from scratch for few epochs.
WARMUP_STEPS, WEIGHT_DECAY, DROPOUT = 5, 0.1, 0.0
# The decay towards the weights of the start, times the steps: short runs and long ones keep about the same share of them. A
# model of up to SMALL parameters has none: it memorises little, and learns a text of another kind more slowly.
START_DECAY_STEPS = 800
# Evaluations of a run of less than two epochs; a longer one has one every half epoch, and so many at most.
EVALUATIONS, MOST_EVALUATIONS = 12, 40
PATIENCE = 4  # evaluations without a better loss, after which the run ends: two epochs, or more if there is little time
# Characters of a text whose rate is the lower one of `OptimizerKind.start_rates`, and the power with which the rate grows.
LOWEST_RATE_FOR, RATE_POWER = 10_000, 0.3
FAR = 1.0  # nats that a start loses on a text, compared with its own: with this many or more, the rate is the higher one
# What this rate is multiplied by for a run that goes on with its own text, in steps of the most characters: such a model has
# ended with a rate of almost 0, and a high one undoes what it has learned (docs/lab/growth.md).
GROWN_RATE = 0.3
STEP_CHARACTERS, STEPS = (512, 2048), 1200  # characters in a step, least and most; steps, about, if the text is long enough
MEASURED = 8000  # characters of the validation split on which the loss of a start is measured; on a CPU, so not more


def begun(source: Checkpoint, corpus: Corpus) -> tuple[GPT, str]:
    """A model with the weights of `source` and the characters of the text, and what to say of characters that differ."""
    model = blank_model(source.state.config.model, corpus.tokenizer.vocab_size)
    return model, start_from(source, model, corpus.tokenizer)


def loss_on(corpus: Corpus, model: GPT, *, characters: int = MEASURED) -> float:
    """The loss of a model on so many characters by which the text judges: of one that has grown, on what is new."""
    new = corpus.held_out(is_new=True)
    return evaluate(model, validation_split(new if len(new) > 1 else corpus.evaluation_ids, characters), marks=corpus.marks)


def distance_of(source: Checkpoint, loss: float) -> float:
    """The nats that a start with this `loss` on a text loses, compared with its own text; 0 if its loss there is not known."""
    own_loss = source.state.progress.best_loss
    return 0.0 if own_loss is None else max(0.0, loss - own_loss)


def measure_start(
    source: Checkpoint, corpus: Corpus, *, ngram_loss: float, lost: bool, loss: float | None = None
) -> tuple[float, list[Notice]]:
    """The distance of the text from those of the start, and what to say of it. `ngram_loss` is that of an n-gram model; `lost`
    says whether a text that the start has read is in no cache; `loss` is that on the text, if a trial has measured it."""
    state, measured = source.state, len(corpus.evaluation_ids)
    model, vocabulary = begun(source, corpus)
    loss = loss_on(corpus, model) if loss is None else loss
    error = f" (±{NOISE / math.sqrt(measured):.2f})" if measured < SMALL_SPLIT else ""
    before = f"training begins with the model {source.run}; so far, its loss on your text is {loss:.2f}{error}"
    said = [Notice(Kind.START, f"{before}; lower is better, and {NGRAM_MODEL} has {ngram_loss:z.2f}")]
    said += [Notice(Kind.CHARACTERS, vocabulary)] * bool(vocabulary)
    is_compared = corpus.growth is not None or state.fingerprint == corpus.fingerprint
    has_read_it = has_read(source.path, corpus)
    if corpus.is_validated and not is_compared and (lost or has_read_it or {*state.texts} & {*corpus.texts}):
        why = "it has read passages of your text; " * has_read_it + "no copy of all that it has read is in the cache; " * lost
        what = "it may have learned from your validation text, and then the losses look too good; start from another run, "
        said.append(Notice(Kind.WARNING, f"{shown(source.path)}: {why}{what}or give another text as data.val_text=FILE"))
    return distance_of(source, loss), said


def adapt(settings: Settings, job: Job, asked: Asked, *, distance: float) -> Settings:
    """`settings` for a run from the weights of a start at this `distance`, see `measure_start`.

    What was `asked` decides which length and which optimizer are left to choose. The rest of a preset is replaced: its
    rate is one for a training from scratch. If the user gives the epochs, or the validation split is small, the last
    checkpoint is the best one.
    """
    minutes, epochs = asked.options.minutes, asked.options.epochs
    parameters, affordable = parameter_count(settings.values.model, job.corpus.tokenizer.vocab_size), float(MOST_EVALUATIONS)
    if epochs is not None or asked.is_open:
        settings = _with_batch(settings, job, distance=distance, parameters=parameters, epochs=epochs)
        seen = (epochs or settings.values.train.max_epochs or math.inf) * len(job.corpus.train)
        if minutes is not None or epochs is None:
            known = job.speeds.time_model(settings.values)
            seen = min(seen, known.in_steps(job.seconds) / known.step * settings.values.chars_per_step)
            affordable = EVALUATION_SHARE * job.seconds / max(known.evaluation, 1e-9)
        steps = max(1, math.ceil(seen / settings.values.chars_per_step))
        settings = settings.decide("the epochs and the time", train={"max_steps": steps})
    config, characters = settings.values, len(job.corpus.train)
    passes = config.train.max_steps * config.chars_per_step / characters
    evaluations = max(1, min(MOST_EVALUATIONS, affordable, 2 * passes if passes >= 2 else EVALUATIONS))
    interval = max(1, math.ceil(config.train.max_steps / evaluations))
    is_to_end = epochs is not None or len(job.corpus.val) < SMALL_SPLIT
    optim = {
        "learning_rate": min(config.optim.learning_rate, _rate(config.optim.name, job.corpus, distance)),
        "weight_decay": WEIGHT_DECAY,
        # Towards the start in a run of this length (L2-SP, arXiv 1802.01483).
        "start_decay": float(f"{START_DECAY_STEPS / config.train.max_steps:.2g}") if parameters > SMALL else 0.0,
        "warmup_steps": WARMUP_STEPS,
        "decay_fraction": 1.0,  # the rate falls from the first steps on, and patience counts from there
    }
    return settings.without(Source.PRESET).choose(
        "a model that knows its language is trained gently",
        model={"dropout": DROPOUT},
        optim=optim,
        train={"patience": 0 if is_to_end else PATIENCE, "eval_interval": interval},
        checkpoint={"interval": interval} | ({"best": "last"} if is_to_end else {}),
    )


def _with_batch(settings: Settings, job: Job, *, distance: float, parameters: int, epochs: float | None) -> Settings:
    """With optimizer and batch, and with these epochs, or those that fit the text."""
    settings = settings.choose("a start learns most with it", optim={"name": WITH_MINUTES})
    (least, most), characters, config = STEP_CHARACTERS, len(job.corpus.train), settings.values
    least = most if job.corpus.has_grown else least
    windows = min(most, max(least, EPOCHS * characters / STEPS)) / config.model.block_size / config.train.accumulate
    settings = settings.choose("the length of the text", train={"batch_size": multiple(windows, of=job.processes)})
    gentle = FEWEST_EPOCHS + EPOCHS_OF_A_NAT * distance / max(1.0, parameters / SMALL) ** 2
    passes = epochs or min(EPOCHS, round(gentle, 1))
    return settings.choose("the distance of the text from those of the start", train={"max_epochs": passes})


def _rate(optimizer: str, corpus: Corpus, distance: float) -> float:
    """The learning rate for a text: higher for a long one, and the farther it is from those of the start."""
    lowest, highest = OPTIMIZERS[optimizer].start_rates
    same_kind = min(highest, max(lowest, lowest * (len(corpus.train) / LOWEST_RATE_FOR) ** RATE_POWER))
    rate = same_kind * (highest / same_kind) ** math.sqrt(min(1.0, distance / FAR))
    return float(f"{rate * (GROWN_RATE if corpus.has_grown else 1):.2g}")
