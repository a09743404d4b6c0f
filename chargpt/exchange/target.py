"""What an export gets and returns: the contract between `python -m chargpt export` and the writer of each format."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chargpt.sampling.loaded_model import LoadedModel


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What an export is told beside the model."""

    name: str  # of the run, for titles and file names inside the export; it may contain any character that a file name may
    texts: list[str]  # the names of the training texts, without folders
    ids: np.ndarray  # ids of a real text for comparing logits and measuring losses, (n,) int64, n >= 2
    ids_from: str  # where `ids` come from, in words
    weights: str = "float16"  # or "int8": how a page holds the weights


# Writes the export of a LoadedModel (on the CPU, in evaluation mode) to a path that does not exist yet, a file or a folder as
# its format needs, and returns the lines to print. The caller gives the path its final name after the function returns; when it
# raises, nothing is published. Raises UserError if the format cannot hold the model, or if the export, loaded again in its
# target, differs from the model by more than a bound. Files are synced (`chargpt.files.SyncedFile` or `write_synced`).
ExportWriter = Callable[[LoadedModel, Path, ExportOptions], list[str]]
