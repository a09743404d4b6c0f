"""The table of the verbs. It imports none of them, so that a list of them needs no torch."""

VERBS = {  # verb: the module whose main(arguments) it is, and what it does
    "train": ("chargpt.commands.train", "a model of your own text"),
    "sample": ("chargpt.commands.sample", "text that a trained model writes"),
    "export": ("chargpt.commands.export", "a run in the format of another program: Hugging Face, GGUF, a web page"),
    "import": ("chargpt.commands.import_run", "a run from a model of transformers or nanoGPT"),
    "text": ("chargpt.commands.text", "what a text is like, and what to expect of a model trained on it"),
    "runs": ("chargpt.commands.runs", "a list of the runs: text, size, loss, date, and how far each one is"),
    "starts": ("chargpt.commands.starts", "a list of the models that come with the program and know a language"),
    "report": ("chargpt.commands.report", "a page on a run, or on several: curves, samples, what it knows and what it copies"),
    "score": ("chargpt.commands.score", "how well a model predicts a text, in total, by line and by character"),
    "classify": ("chargpt.commands.classify", "the label of each item, for a run on items with labels"),
    "losses": ("chargpt.commands.losses", "what is hard to predict: classes of characters, positions, confused pairs"),
    "trace": ("chargpt.commands.trace", "what a text, or what the model writes, has copied from the training text"),
    "attention": ("chargpt.commands.attention", "what each head attends to, as a page for the browser"),
}
