"""The table of the verbs. It imports none of them, so that a list of them needs no torch."""

VERBS = {  # verb: the module whose main(arguments) it is, and what it does
    "train": ("chargpt.commands.train", "train a model on your own text"),
    "sample": ("chargpt.commands.sample", "write text with a trained model"),
    "export": ("chargpt.commands.export", "write a run for another program: Hugging Face, llama.cpp, a browser"),
    "import": ("chargpt.commands.import_run", "make a run of a model from transformers or nanoGPT"),
    "text": ("chargpt.commands.text", "describe a text, and what to expect of a model trained on it"),
    "runs": ("chargpt.commands.runs", "list the runs: text, size, loss, date, and how far each one is"),
    "rename": ("chargpt.commands.rename", "give a run another name"),
    "copy": ("chargpt.commands.copy", "make a second run like another one"),
    "remove": ("chargpt.commands.remove", "delete runs, after a question"),
    "starts": ("chargpt.commands.starts", "list the models that come with the program and know a language"),
    "cite": ("chargpt.commands.cite", "print the facts on a run for a paper, and how to make it again"),
    "report": ("chargpt.commands.report", "make a page on one run or more: curves, samples, what it knows and what it copies"),
    "score": ("chargpt.commands.score", "measure how well a model predicts a text, in total, by line and by character"),
    "classify": ("chargpt.commands.classify", "find the label of each item, for a run on items with labels"),
    "losses": ("chargpt.commands.losses", "show what is hard to predict: classes of characters, positions, confused pairs"),
    "trace": ("chargpt.commands.trace", "find what a text, or what the model writes, has copied from the training text"),
    "attention": ("chargpt.commands.attention", "make a page that shows what each head attends to"),
}
DESTRUCTIVE = ("remove",)  # what is typed is never guessed to mean one of these, only known to
# What a person may type in place of a verb.
WORDS = {
    "runs": "list ls show status history",
    "remove": "delete del rm clean",
    "rename": "move mv ren",
    "copy": "cp duplicate clone",
    "sample": "generate gen write chat complete predict",
    "train": "fit learn finetune",
    "train --resume": "resume continue",
    "score": "eval evaluate perplexity test",
    "report": "compare plot",
    "text": "stats info analyze prepare",
    "export": "convert",
    "--version": "version",
    "--help": "help",
}
ALIASES = {word: verb for verb, words in WORDS.items() for word in words.split()}
