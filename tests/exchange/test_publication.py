"""An export is published whole or not at all, and replaces nothing but an earlier export."""

import os
from pathlib import Path

import pytest

from chargpt.exchange.html import SOURCE
from chargpt.exchange.publication import check_destination, publish
from chargpt.terminal import UserError


def folder_of(**files: str):
    """A writer of a folder with these files."""

    def write(path: Path) -> str:
        path.mkdir()
        for name, content in files.items():
            (path / f"{name}.json").write_text(content)
        return "done"

    return write


def test_a_folder_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "poems-hf"

    def write(path: Path) -> None:
        folder_of(config="1")(path)
        assert not target.exists()

    publish(target, write, is_folder=True, force=False)
    assert [path.name for path in target.iterdir()] == ["config.json"]
    assert os.listdir(tmp_path) == ["poems-hf"]


@pytest.mark.parametrize("force", [False, True])
def test_a_failure_leaves_everything_as_it_was(tmp_path, force):
    target = tmp_path / "poems-hf"
    if force:
        publish(target, folder_of(config="old"), is_folder=True, force=False)

    def write(path: Path) -> None:
        folder_of(config="new")(path)
        raise UserError("the logits differ")

    with pytest.raises(UserError, match="differ"):
        publish(target, write, is_folder=True, force=force)
    assert os.listdir(tmp_path) == ["poems-hf"] * force
    assert not force or (target / "config.json").read_text() == "old"


def test_only_force_replaces_an_earlier_export(tmp_path):
    target = tmp_path / "poems-hf"
    publish(target, folder_of(config="old", more="x"), is_folder=True, force=False)
    with pytest.raises(UserError, match="exists; choose another DIR, or replace it with --force"):
        publish(target, folder_of(config="new"), is_folder=True, force=False)
    assert publish(target, folder_of(config="new"), is_folder=True, force=True) == "done"
    assert {path.name: path.read_text() for path in target.iterdir()} == {"config.json": "new"}
    assert os.listdir(tmp_path) == ["poems-hf"]


def test_a_file_is_replaced_by_force_alone(tmp_path):
    target = tmp_path / "poems.html"
    target.write_bytes(SOURCE.read_bytes())
    with pytest.raises(UserError, match="exists"):
        check_destination(target, is_folder=False, force=False)
    publish(target, lambda path: path.write_text("new"), is_folder=False, force=True)
    assert target.read_text() == "new" and os.listdir(tmp_path) == [target.name]


def test_force_never_replaces_a_file_that_no_export_wrote(tmp_path):
    for name, content in (("thesis.tex", b"years of work"), ("page.html", b"<!doctype html>\n<p>mine"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="no export wrote this file"):
            publish(tmp_path / name, lambda path: path.write_text("new"), is_folder=False, force=True)
        assert (tmp_path / name).read_bytes() == content


def test_force_never_replaces_a_folder_by_a_file_or_a_file_by_a_folder(tmp_path):
    (tmp_path / "page.html").write_bytes(SOURCE.read_bytes())
    (tmp_path / "folder").mkdir()
    for name, is_folder, problem in (("page.html", True, "not a folder"), ("folder", False, "not a file")):
        with pytest.raises(UserError, match=problem):
            check_destination(tmp_path / name, is_folder=is_folder, force=True)


@pytest.mark.parametrize("content", ["thesis.tex", "config.json/inner", ".git/config"])
def test_force_never_replaces_a_folder_with_other_files(tmp_path, content):
    file = tmp_path / "work" / content
    file.parent.mkdir(parents=True)
    file.write_text("years of work")
    with pytest.raises(UserError, match="which no export writes"):
        publish(tmp_path / "work", folder_of(config="new"), is_folder=True, force=True)
    assert file.read_text() == "years of work"


def test_force_never_follows_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UserError, match="not a folder"):
        check_destination(tmp_path / "link", is_folder=True, force=True)


@pytest.mark.parametrize("name", ["absent/poems", "..", "."])
def test_a_destination_without_a_folder_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="its folder does not exist"):
        check_destination(Path(name), is_folder=True, force=False)


def test_a_destination_that_appears_meanwhile_stays(tmp_path):
    target = tmp_path / "poems.safetensors"

    def write(path: Path) -> None:
        path.write_text("ours")
        target.write_text("theirs")

    with pytest.raises(UserError, match="exists"):
        publish(target, write, is_folder=False, force=False)
    assert target.read_text() == "theirs"
