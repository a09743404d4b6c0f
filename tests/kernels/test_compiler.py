import functools

import pytest

from chargpt.kernels.compiler import load

SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "answer.c"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def compiled(source, cache):
    """Compiles and loads the source; skips where there is no compiler."""
    compiled = functools.partial(load, source, flags=("-O1",), link=(), cache=cache)
    if compiled() is None:
        pytest.skip("needs a C compiler")
    return compiled


@pytest.mark.parametrize(
    "script", ["exit 1", "exit 0", 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done; exit 0', None]
)
def test_with_no_compiler_or_one_that_fails_there_is_no_library(source, cache, tmp_path, monkeypatch, script):
    if script:
        (tmp_path / "cc").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load(source, flags=(), link=(), cache=cache) is None


def test_a_source_that_does_not_compile_gives_no_library_and_leaves_no_file(source, cache):
    source.write_text("#error\n")
    assert load(source, flags=(), link=(), cache=cache) is None
    assert not cache.exists() or not list(cache.iterdir())


def test_a_cache_that_cannot_be_written_gives_no_library(source, tmp_path):
    (tmp_path / "file").touch()
    assert load(source, flags=(), link=(), cache=tmp_path / "file") is None


def test_a_source_is_compiled_once_and_leaves_nothing_else(compiled, cache):
    (library,) = cache.iterdir()
    made = library.stat().st_mtime_ns
    assert compiled().answer() == 42
    assert [library] == list(cache.iterdir()) and library.stat().st_mtime_ns == made


def test_a_changed_source_is_compiled_again(compiled, source):
    source.write_text(SOURCE.replace("42", "43"))
    assert compiled().answer() == 43
