"""The library behind train.py and sample.py.

>>> import chargpt
>>> model = chargpt.load("poems")
>>> print(model.generate("The sea", length=200, seed=1))
>>> model.score("The sea is calm tonight.")  # nats per character
>>> model.logits("The sea")  # (7, vocab_size)
>>> model.attention("The sea")  # (n_layer, n_head, 7, 7)
"""

import os


def load(
    run: str | os.PathLike | None = None,
    *,
    device: str = "auto",
    precision: str = "float32",
) -> "LoadedModel":  # noqa: F821 (imported below)
    """The trained model of `run`, its best checkpoint: see `LoadedModel`.

    `run` is the name of a run in the folder checkpoints, the path of a run, or the path of one of its checkpoints;
    None is the newest run. `device` is auto, cpu, cuda, cuda:N or mps. `precision`, to which the weights are rounded, is
    float32, bfloat16 or int8. Warns if the best checkpoint is damaged and another one is used. Raises ValueError for another
    precision, if there is no such run, and if no checkpoint of it can be used.
    """
    import warnings

    from chargpt.project import project_root
    from chargpt.sampling.loaded_model import load_model  # imports torch, which takes seconds

    name = None if run is None else str(run)
    loaded, problems = load_model(name, project_root() / "checkpoints", device=device, precision=precision)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return loaded
