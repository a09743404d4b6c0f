"""A run on disk: its folder and lock, checkpoints, loading, and starting from another run."""

import sys
import types


class _Package(types.ModuleType):
    """This package, whose name is also that of a function of the library: `chargpt.runs("poems*")`."""

    def __call__(self, *names: object) -> object:
        from chargpt.runs.listing import runs

        return runs(*names)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _Package
