"""The library: the five lines of the README, and that its numbers are the model's own."""

import concurrent.futures
import copy
import inspect
import logging
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import publish_run

import chargpt
import sample
from chargpt import errors
from chargpt.errors import Problem, UserError
from chargpt.model import GPT, MLP
from chargpt.planning.cli import TrainKeywords
from chargpt.sampling import loaded_model, surprisal
from chargpt.sampling.options import ItemKeywords, TextKeywords
from chargpt.training.evaluation import evaluate

ROOT = Path(sample.__file__).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return publish_run(tmp_path_factory.mktemp("runs") / "poems", steps=(500, 1000))


@pytest.fixture(scope="module")
def model(run):
    return chargpt.load(run)


def test_it_works_from_another_folder_and_importing_it_is_cheap(run, tmp_path, monkeypatch):
    code = f"import sys; sys.path.append({str(ROOT)!r}); import chargpt; print(chargpt.load and 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
    monkeypatch.chdir(tmp_path)
    model = chargpt.load(run)
    assert len(model.generate("abc", length=20, seed=1)) == 23 and model.score("abcd") > 0
    assert tuple(model.logits("abc").shape) == (3, 11)


def test_to_show_a_model_changes_nothing_and_decides_nothing(run):
    model = chargpt.load(run)
    before = dict(vars(model))
    assert re.fullmatch(r"<chargpt.LoadedModel poems, step 500, .* parameters>", f"{model!r}") and str(model) == repr(model)
    assert vars(model) == before, "no engine is compiled, no GPU asked"


def test_beside_a_gpu_a_small_model_is_written_on_the_cpu(run, monkeypatch):
    """Unless the user names the GPU, or decode.c cannot be had. Whatever else is computed, is computed on the GPU."""
    monkeypatch.setattr(loaded_model, "may_have_gpu", lambda: True)
    monkeypatch.setattr("chargpt.device.choose_device", lambda name: torch.device("meta"))
    asked = chargpt.load(run, device="cuda")
    monkeypatch.setattr(loaded_model, "FASTER_THAN_GPU", asked.parameters)
    monkeypatch.setattr(loaded_model, "c_engine", lambda shape: (object(), "cpu (compiled)"))
    auto = chargpt.load(run)
    assert asked.engine() == chargpt.load(run).engine() == "meta" and auto.model.token_embedding.weight.is_meta
    monkeypatch.setattr(loaded_model, "FASTER_THAN_GPU", asked.parameters + 1)
    assert chargpt.load(run).engine() == "cpu (compiled)" and chargpt.load(run, device="cuda").engine() == "meta"
    several = chargpt.load(run)  # of which a GPU writes as many at once as it has room for
    assert several.engine(1) == several.engine() and several.engine(2) == "meta" and several.describe(2).endswith(", meta")
    assert several.writer(2).new_texts != several.writer().new_texts
    monkeypatch.setattr(loaded_model, "c_engine", lambda shape: (None, "cpu (not compiled: no compiler)"))
    assert chargpt.load(run).engine() == "meta"


def test_a_run_is_found_by_its_name(run, installed):
    (installed / "checkpoints").symlink_to(run.parent)
    assert chargpt.load("poems").step == chargpt.load(run / "step-00000500").step == 500
    with pytest.raises(UserError, match="no run of that name"):
        chargpt.load("peoms")


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.2, "top_k": 3}, {"stop": "a"}, {"lines": 2, "ban": "b"}, {"overflow": "exact"}]
)
def test_the_text_is_that_of_the_program(model, run, capsys, options):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    assert sample.main([str(run), "--prompt", "ab", "--length", "60", "--seed", "7", *flags]) == 0
    assert capsys.readouterr().out == model.generate("ab", length=60, seed=7, **options) + "\n"


def test_logits_and_scores_are_the_models_in_float32_as_in_the_validation(model):
    text = "abcd efgh\n" * 7  # several windows, and a part of one
    ids = model.tokenizer.encode(text)
    assert model.score(text) == pytest.approx(evaluate(model.model, ids), abs=1e-6)
    one = -model.logits("abc").log_softmax(-1)[[0, 1], ids[1:3].tolist()].mean().item()
    assert model.score("abc") == pytest.approx(one, abs=1e-6)
    logits = model.logits("ab\nc")
    torch.testing.assert_close(logits, model.model(torch.from_numpy(model.tokenizer.encode("ab\nc"))[None])[0].detach())
    assert logits.dtype == torch.float32 and not logits.requires_grad


def test_a_damaged_best_checkpoint_is_a_warning(tmp_path):
    run = publish_run(tmp_path / "hurt", steps=(500, 1000))
    file = run / "step-00000500" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="newest checkpoint instead"):
        assert chargpt.load(run).step == 1000


def test_a_list_of_texts_is_scored_like_each_alone(model):
    texts = ["ab", "abcd efgh\n" * 7, "ccc", "abcd efgh\n" * 20, "h" * 17, "h" * 18, "ab"]
    for stride in (0, 1, 5, 16):
        alone = [model.score(text, stride=stride) for text in texts]
        assert model.score(texts, stride=stride) == pytest.approx(alone, abs=1e-5)
    assert model.score(tuple(texts)) == model.score(texts) and model.score([]) == []


def test_a_text_of_a_list_that_is_too_short_has_no_loss_and_is_counted(model):
    said = r"2 of 4 texts have less than two .*, the first is text\[1\]; their losses are nan"
    with pytest.warns(UserWarning, match=said):
        losses = model.score(["ab", "", "abcd", "É"], unknown="skip")
    assert np.isnan(losses).tolist() == [False, True, False, True] and losses[::2] == model.score(["ab", "abcd"])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.generate(temprature=1), "generate() .* 'temprature'; did you mean temperature?"),
        (lambda model: model.generate(["a"], max_new_tokens=1), "generate() .* 'max_new_tokens'; did you mean length?"),
        (lambda model: model.stream(stops="a"), "stream() .* 'stops'; did you mean stop?"),
        (lambda model: model.items(lable="a"), "items() .* 'lable'; did you mean label?"),
        (lambda model: model.items(lines=3), "items() .* 'lines'; use count, prompt, .*, min_p"),
        (lambda model: model.score("ab", strid=1), "score() .* 'strid'; did you mean stride?"),
        (lambda model: chargpt.load(devise="cpu"), "load() .* 'devise'; did you mean device?"),
        (lambda model: chargpt.train(minuets=1), "train() .* 'minuets'; did you mean minutes?"),
        (lambda model: chargpt.train(max_iters=1), "train() .* 'max_iters'; did you mean settings={'train.max_steps': ...}?"),
        (lambda model: chargpt.train(n_layr=1), "train() .* 'n_layr'; did you mean settings={'model.n_layer': ...}?"),
    ],
)
def test_a_wrong_keyword_is_named_with_the_right_one(model, call, says):
    with pytest.raises(TypeError, match=f"^{re.escape(says)}$".replace(r"\.\*", ".*")):
        call(model)


@pytest.mark.parametrize(("method", "own"), [("generate", "stop"), ("stream", "lines"), ("items", "match")])
def test_a_notebook_shows_every_keyword(model, method, own):
    signature = inspect.signature(getattr(model, method))
    shown = signature.parameters
    assert {"prompt", "temperature", own} <= shown.keys() and "options" not in shown and "self" not in shown
    assert shown["temperature"].annotation is float and str(shown["temperature"]) == "temperature: float = 0.8"
    assert signature.return_annotation == getattr(chargpt.LoadedModel, method).__annotations__["return"]


@pytest.mark.parametrize("options", [{"length": 30}, {"lines": 2, "stop": "gh"}, {"length": 0}, {"lines": 3, "unique": True}])
def test_a_text_comes_in_pieces_as_it_is_written(model, options):
    for prompt in ("", "ab"):
        pieces = list(model.stream(prompt, seed=3, temperature=1.0, **options))
        assert "".join(pieces) == model.generate(prompt, seed=3, temperature=1.0, **options) and all(pieces)
    assert len(list(model.stream("ab", length=300, seed=3))) > 3


def test_the_library_shows_itself_and_nothing_else():
    assert {"load", "start", "train", "Training", "NoSpace", "UnknownCharacters"} < {*dir(chargpt)} == {*chargpt.__all__}
    kinds = [kind for kind in map(chargpt.__getattr__, dir(chargpt)) if isinstance(kind, type) and issubclass(kind, Problem)]
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Problem)}
    assert {*kinds} == known - {Problem, UserError}  # the latter is a ValueError of no kind
    assert all(issubclass(kind, ValueError) != issubclass(kind, RuntimeError) for kind in kinds)
    assert all(getattr(chargpt, name) for name in dir(chargpt))


def test_small_work_uses_one_thread_and_the_number_stays(model, monkeypatch):
    seen, forward = [], GPT.forward
    monkeypatch.setattr(GPT, "forward", lambda *given: seen.append(torch.get_num_threads()) or forward(*given))
    torch.set_num_threads(2)
    model.score("abcd"), model.score(["abcd", "ef"]), model.logits("ab")
    with pytest.raises(ValueError):
        model.logits("É")
    assert set(seen) == {1} and torch.get_num_threads() == 2
    monkeypatch.setattr(surprisal, "SMALL_WORK", 0)
    model.score("abcd"), model.score(["abcd", "ef"])
    assert seen[-2:] == [2, 2]


@pytest.mark.parametrize(
    "options", [{"length": 40}, {"length": 40, "temperature": 1.3, "stop": "ab"}, {"lines": 2, "ban": "h"}]
)
def test_a_list_of_prompts_is_continued_as_each_alone(model, options):
    prompts = ["ab", "", "abcdefgh" * 5, "cd", "中", "ab", "ef gh"]
    texts = model.generate(prompts, seed=7, **options)
    assert texts == [model.generate(prompt, seed=7 + i, **options) for i, prompt in enumerate(prompts)]
    assert texts[0] != texts[5] and model.generate([]) == [] and model.generate(prompts) != texts  # another seed


def test_the_next_characters_are_the_models(model):
    expected = model.logits("ab").softmax(-1)[-1]
    found = model.next("ab", 4)
    assert [chance for _, chance in found] == pytest.approx(expected.topk(4).values.tolist(), abs=1e-6)
    assert [model.tokenizer.ids_of(text).item() for text, _ in found] == expected.topk(4).indices.tolist()
    assert sum(chance for _, chance in model.next("abcd" * 30, 99)) == pytest.approx(1) and len(model.next()) == 10


def test_lines_that_are_different(model):
    text = model.generate(lines=5, unique=True, allow="ab\n", temperature=2.0, seed=1)
    assert len(text.split("\n")) == len(set(text.split("\n"))) == 5 and "" not in text.split("\n")
    with pytest.warns(UserWarning, match="of 50 lines were written, .* were blank, banned or not new; raise temperature$"):
        few = model.generate(lines=50, unique=True, allow="a\n", temperature=1e30, seed=1)
    assert 5 < len(few.split("\n")) < 50


def test_characters_that_the_model_does_not_know_can_be_skipped(model):
    assert [model.score("aÉb", unknown="skip")] == model.score(["aÉb"], unknown="skip") == [model.score("ab")]
    assert model.generate("Éab", length=5, seed=1, unknown="skip") == model.generate("ab", length=5, seed=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.generate(temperature=-1), "temperature=-1: use 0"),
        (lambda model: model.generate(top_k=1.5), "top_k=1.5: use a whole number"),
        (lambda model: model.generate(top_p=0), "top_p=0: use a number above 0"),
        (lambda model: model.generate(lines=2, ban="\n"), "lines=2: this model writes no newlines; use length"),
        (lambda model: model.generate(unique=True), "unique: .*how many lines to write, with lines=20"),
        (lambda model: model.generate(allow=""), "allow='': this model cannot write ''; use characters of its training text"),
        (lambda model: model.generate(ban="\n abcdefgh中"), "ban: no character is left"),
        (lambda model: model.generate(overflow="no"), "overflow='no': use one of refill, exact"),
        (lambda model: model.generate(stop=["a", 3]), r"stop\[1\]=3: use a str"),
        (lambda model: model.generate(allow=["a"]), r"allow=\['a'\]: use a str"),
        (lambda model: model.generate(["a", None]), r"prompt\[1\]=None: use a str"),
        (lambda model: model.score(["ab", "aÉ"]), r"text\[1\]: characters that the model has never seen: .* unknown='skip'$"),
        (lambda model: model.next(["ab"]), r"prompt=\['ab'\]: use one str"),
        (lambda model: model.items(), "items: the run 'poems' was not trained on items; .*settings={'data.items': 'line'}$"),
        (lambda model: model.items(min_length=5, max_length=3), "min_length=5: use at most 3, or a larger max_length$"),
        (lambda model: model.generate(label="a"), "label: the run 'poems' was not trained on items"),
        (lambda model: model.score("a"), "text='a': use at least two characters"),
        (lambda model: model.logits(""), "text: empty; use 1 to 16 characters"),
        (lambda model: model.logits("a" * 17), "text: 17 characters; use 1 to 16 characters, the model's block_size"),
        (lambda model: model.score(b"ab"), "text=b'ab': use a str, or a list of str"),
        (lambda model: model.score("ab", stride=17), "stride=17: use 16 or less, the characters the model reads at once"),
        (lambda model: model.score("ab", unknown="no"), "unknown='no': use one of error, skip"),
        (lambda model: model.attention("É"), "text: characters that the model has never seen: .*; remove them$"),
        (lambda model: chargpt.load(model.path, device="gpu"), "device='gpu': use auto, cpu, cuda"),
        (lambda model: chargpt.load(model.path, device="cuda:99"), "device='cuda:99': torch sees .*; use device='cpu'"),
        (lambda model: chargpt.load(model.path, precision="int4"), "precision='int4': use one of float32"),
    ],
)
def test_a_mistake_is_a_value_error_that_speaks_of_arguments(model, call, says):
    with pytest.raises(ValueError, match=f"^{says}") as error:
        call(model)
    assert "--" not in str(error.value)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_and_a_pickle_write_and_score_as_the_model(run, precision, copied):
    model = chargpt.load(run, precision=precision)
    again = copied(model)
    assert again.generate("ab", length=30, seed=1) == model.generate("ab", length=30, seed=1)
    assert again.score("abcd") == model.score("abcd") and repr(again) == repr(model)


def test_an_editor_and_a_type_checker_see_every_option():
    for method in (*typing.get_overloads(chargpt.LoadedModel.generate), chargpt.LoadedModel.stream):
        assert method.__annotations__["options"] == typing.Unpack[TextKeywords]
    assert chargpt.LoadedModel.items.__annotations__["options"] == typing.Unpack[ItemKeywords]
    assert chargpt.train.__annotations__["options"] == typing.Unpack[TrainKeywords]
    for function in (chargpt.load, chargpt.train):
        assert typing.get_type_hints(function)["return"] is chargpt.LoadedModel
    assert str(inspect.signature(chargpt.train).parameters["minutes"]) == "minutes: float | str | None = None"


def test_what_a_notebook_replaces_in_the_model_is_written(run, monkeypatch):
    """Also after decode.c has written: then torch writes, until the part is back."""
    loaded = chargpt.load(run)
    before = loaded.generate("a", length=30, temperature=0)
    monkeypatch.setattr(MLP, "forward", lambda self, x: self.down(torch.sin(3 * self.up(x))))
    ids = torch.tensor([loaded.tokenizer.encode("a").tolist()])
    changed = loaded.tokenizer.decode(loaded.model.generate(ids, 15, temperature=0)[0].tolist())
    assert loaded.generate("a", length=15, temperature=0) == changed != before[:16]
    monkeypatch.undo()
    assert loaded.generate("a", length=30, temperature=0) == before


def test_the_losses_of_characters_have_the_score_as_their_mean(run):
    model, text = chargpt.load(run), "bad cab, a deaf bad cafe feed".replace(",", "")
    for stride in (0, 1, 5):
        losses = model.losses(text, stride=stride)
        assert losses.shape == (len(text),) and np.isnan(losses[0])
        assert losses[1:].mean() == pytest.approx(model.score(text, stride=stride), abs=1e-5)
    with pytest.raises(chargpt.TextTooShort, match="text='a': use at least two"):
        model.losses("a")


def test_hidden_states_are_what_the_blocks_write(run):
    model = chargpt.load(run)
    states, config = model.hidden_states("abc"), model.config.model
    assert states.shape == (config.n_layer + 1, 3, config.n_embd)
    with torch.no_grad():
        logits = model.model.norm(states[-1]) @ model.model.token_embedding.weight.T
    assert torch.allclose(logits, model.logits("abc"), atol=1e-4)
    assert torch.allclose(model.hidden_states("ab"), states[:, :2], atol=1e-5)


def test_a_model_and_its_report_are_exported_in_any_thread(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = chargpt.load(run)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        path = pool.submit(model.export, "safetensors", tmp_path / "a.safetensors").result()
    assert chargpt.load(path).generate("ab", seed=1) == model.generate("ab", seed=1)
    with pytest.raises(ValueError, match="a.safetensors: exists; choose another name, or replace it with force=True"):
        model.export("safetensors", "a.safetensors")
    assert model.export("safetensors", "a.safetensors", force=True).exists()
    with pytest.raises(ValueError, match="to='pdf': use one of hf, gguf"):
        model.export("pdf")
    records = list[logging.LogRecord]()
    monkeypatch.setattr(logging.getLogger("chargpt"), "handle", records.append)
    page = chargpt.report(run, out="a.html")
    assert "What it was trained on" in page.read_text(encoding="utf-8")
    assert capsys.readouterr() == ("", "") and "text of this run is gone" in str([one.getMessage() for one in records])
