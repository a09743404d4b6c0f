"""`python -m chargpt import DIR [TEXT ...] --run NAME`: a model of another program becomes a run."""

from collections.abc import Sequence
from pathlib import Path

from chargpt.commands.common import verb_parser
from chargpt.errors import UserError
from chargpt.formatting import shown
from chargpt.planning.cli import texts_and_settings
from chargpt.project import project_root
from chargpt.text.formats import CHECKPOINT


def main(argv: Sequence[str]) -> int:
    """Make a run of the model that the options in `argv` name. Returns the exit code. Raises UserError."""
    about = """Make a run from a folder of transformers (GPT-2 or Starcoder2 with a vocabulary of characters or bytes), from a
    checkpoint of nanoGPT (ckpt.pt and meta.pkl), or from a file that a page has kept."""
    parser = verb_parser("import", "DIR [TEXT ...] --run NAME [--meta FILE] [--config FILE] [section.key=value ...]", about)
    add = parser.add_argument
    add("folder", metavar="DIR", help="the folder of the model, or the file that a page has kept")
    add("words", nargs="*", metavar="TEXT", help="the text that a resumed run is trained on, and settings as section.key=value")
    add("--run", required=True, metavar="NAME", help="the name of the new run in checkpoints/, or a path")
    add("--meta", metavar="FILE", help="nanoGPT's meta.pkl (default: the one in DIR)")
    add("--config", metavar="FILE", help="settings as YAML, or the name of a preset (default: the defaults of the settings)")
    options = parser.parse_intermixed_args(argv)
    from chargpt.exchange.hugging_face import read_folder
    from chargpt.exchange.importing import of_page, save_run
    from chargpt.exchange.nanogpt import read_nanogpt

    folder = Path(options.folder)
    folder = folder.parent if folder.name == CHECKPOINT else folder
    if (folder / CHECKPOINT).exists():
        model = read_nanogpt(folder, meta=None if options.meta is None else Path(options.meta))
    elif options.meta is not None:
        raise UserError(f"--meta: given, but {shown(folder)} holds no {CHECKPOINT} of nanoGPT; leave it out")
    elif folder.is_file():
        model = of_page(folder)
    elif (folder / "config.json").exists():
        model = read_folder(folder)
    else:
        what = "give the folder of a model, or a file that a page has kept"
        raise UserError(f"{shown(folder)}: holds neither config.json nor {CHECKPOINT}; {what}")
    texts, settings = texts_and_settings(options.words)
    save_run(model, texts, name=options.run, preset=options.config, settings=settings, root=project_root())
    return 0
