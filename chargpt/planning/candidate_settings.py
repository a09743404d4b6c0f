"""The settings of a candidate: a shape, completed for a run that sees a number of characters, by the recipe of law.py.

What the user has given stays.
"""

from collections.abc import Collection, Iterator

from chargpt.config import Config, apply_overrides
from chargpt.planning import law
from chargpt.planning.law import HEAD_SIZE, Text
from chargpt.runs.model_shape import check_size
from chargpt.terminal import UserError
from chargpt.text.corpus import Corpus

# Epochs from which a run ends early if the model begins to memorise its text.
PATIENT_EPOCHS = 4
# Characters of context, at least.
SHORTEST_CONTEXT = 16


def shapes_of(config: Config, corpus: Corpus, names: list[str], *, given: Collection[str]) -> Iterator[Config]:
    """`config` with optimizer and positions as in `names` and models of growing size, as far as what was given leaves a choice.

    Raises UserError if no model is possible.
    """
    seen, problem = [], None
    for n_layer, n_embd in law.SHAPES:
        heads = config.model.n_head if "model.n_head" in given else None
        width = config.model.n_embd if "model.n_embd" in given else multiple(n_embd, of=2 * (heads or 1))
        changes = [f"model.n_layer={n_layer}", f"model.n_embd={width}", f"model.n_head={heads or heads_for(width)}"]
        try:
            shaped = apply_overrides(config, unless(given, [*names, *changes]))
            check_size(shaped.model, corpus.tokenizer.vocab_size)  # before a model is made
        except UserError as error:  # for example a width that is not a multiple of the number of heads that was given
            problem = error
            continue
        if shaped.model not in seen:
            seen.append(shaped.model)
            yield shaped
    if not seen and problem is not None:
        raise problem


def with_context_and_batch(
    shape: Config, text: Text, *, longest: int, given: Collection[str], seen: int, processes: int = 1
) -> Config:
    """`shape` with the context, up to the `longest` one, and the batch for a run that sees about this many characters."""
    wanted = law.context_for(text, n_embd=shape.model.n_embd, seen=seen, optimizer=shape.optim.name)
    context = max(SHORTEST_CONTEXT, min(wanted, longest))
    config = apply_overrides(shape, unless(given, [f"model.block_size={context}"]))
    return with_batch(config, text, given=given, seen=seen, processes=processes)


def with_batch(config: Config, text: Text, *, given: Collection[str], seen: int, processes: int = 1) -> Config:
    """`config` with the batch for a run that sees this many characters; a multiple of the `processes`."""
    windows = round(recipe_of(config, text, seen=seen).characters_per_step / config.model.block_size / config.train.accumulate)
    batch = multiple(windows, of=processes)
    return apply_overrides(config, unless(given, [f"train.batch_size={batch}"]))


def completed(config: Config, text: Text, *, given: Collection[str], seen: int, evaluations: int) -> Config:
    """`config` with what follows from the characters that are seen, but for context and batch: length, rate, regularization."""
    recipe = recipe_of(config, text, seen=seen)
    steps = max(law.MIN_STEPS, seen // config.chars_per_step)
    interval = -(-steps // evaluations)  # rounded down, a few steps would be left for one more evaluation
    settings = {
        "model.dropout": recipe.dropout,
        "optim.weight_decay": recipe.weight_decay,
        "optim.learning_rate": recipe.learning_rate,
        "optim.momentum": recipe.momentum,
        "optim.warmup_steps": min(100, steps // 10),
        "train.max_steps": steps,
        "train.max_epochs": law.MAX_EPOCHS,
        "train.patience": 3 if seen > PATIENT_EPOCHS * text.characters else 0,
        "train.eval_interval": interval,
        "checkpoint.interval": interval,
    }
    return apply_overrides(config, unless(given, [f"{key}={value}" for key, value in settings.items()]))


def recipe_of(config: Config, text: Text, *, seen: int) -> law.Recipe:
    """The recipe of the law for a run with these settings that sees this many characters."""
    has_teachers, optimizer = bool(config.train.teachers), config.optim.name
    return law.recipe_for(text, parameters=in_blocks(config), seen=seen, optimizer=optimizer, has_teachers=has_teachers)


def in_blocks(config: Config) -> int:
    """The parameters of the matrices in the blocks, which do the work of a step: 12 C^2 in each."""
    return 12 * config.model.n_layer * config.model.n_embd**2


def unless(given: Collection[str], settings: list[str]) -> list[str]:
    """Those of `settings`, section.key=value, that the user has not given."""
    return [setting for setting in settings if setting.partition("=")[0] not in given]


def heads_for(width: int) -> int:
    """The number of heads for a width, of HEAD_SIZE channels each, or of a number of channels close to it."""
    possible = [heads for heads in range(1, width + 1) if width % heads == 0 and width // heads % 2 == 0]
    return min(possible or [1], key=lambda heads: abs(width // heads - HEAD_SIZE))


def multiple(number: float, *, of: int) -> int:
    """The multiple of `of` next to `number`, at least `of` itself."""
    return of * max(1, round(number / of))
