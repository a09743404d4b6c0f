import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chargpt.files import publish_file
from chargpt.kernels import compiler
from chargpt.kernels.compiler import COMPILERS, Source, Unavailable, library_suffix, load

EXPORT = "#ifdef _WIN32\n__declspec(dllexport)\n#endif\n"
SOURCE = EXPORT + "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def one_way(monkeypatch, tmp_path) -> None:
    """Without libraries in the package, and without the package ziglang, a compiler of the machine is the only way."""
    monkeypatch.setattr(compiler, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(compiler, "ZIGLANG", "no_such_package")


@pytest.fixture
def source(tmp_path) -> Source:
    path = tmp_path / "answer.c"
    path.write_text(SOURCE)
    return Source(path, ("-O1",), ("baseline",))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def library(source, cache):
    """The compiled source. Skips where there is no compiler."""
    try:
        assert load(source, cache=cache).answer() == 42
    except Unavailable as reason:
        pytest.skip(f"needs a C compiler: {reason}")
    (library,) = cache.glob(f"*{library_suffix()}")
    return library


def only_compiler(folder: Path, script: str, monkeypatch) -> None:
    """Makes `script` the only compiler that is found. It can call the real one as "$REAL"."""
    real = next(filter(None, map(shutil.which, COMPILERS)), "false")
    (folder / "cc").write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
    (folder / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{Path(real).parent}")


needs_shell = pytest.mark.skipif(os.name == "nt", reason="needs a shell for a compiler that is a script")


@needs_shell
@pytest.mark.parametrize(
    "script, reason",
    [
        ("echo 'cc: error: no licence' >&2; exit 1", "cc: cc: error: no licence"),
        ("exit 1", "cc: it failed without a message"),
        ("exit 0", "code.so"),
        (
            'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done; exit 0',
            "invalid ELF|too short|not a valid",
        ),
    ],
)
def test_a_compiler_that_fails_is_a_reason_on_one_line(source, cache, tmp_path, monkeypatch, script, reason):
    only_compiler(tmp_path, script, monkeypatch)
    with pytest.raises(Unavailable, match=reason) as error:
        load(source, cache=cache)
    assert "\n" not in str(error.value)


def test_without_a_compiler_the_reason_says_so(source, cache, no_compiler):
    with pytest.raises(Unavailable, match="^no C compiler found; to install one: pip install ziglang$"):
        load(source, cache=cache)


def test_a_source_that_does_not_compile_names_its_error_and_leaves_no_file(library, source, cache):
    before = sorted(cache.iterdir())
    source.path.write_text("#error needs another CPU\n")
    with pytest.raises(Unavailable, match="needs another CPU"):
        load(source, cache=cache)
    assert sorted(cache.iterdir()) == before


def test_a_source_is_compiled_once_and_again_if_it_has_changed(library, source, cache):
    made = library.stat().st_mtime_ns
    assert load(source, cache=cache).answer() == 42
    assert sorted(cache.iterdir()) == [library.with_suffix(".sha256"), library] and library.stat().st_mtime_ns == made
    source.path.write_text(SOURCE.replace("42", "43"))
    assert load(source, cache=cache).answer() == 43 and len([*cache.iterdir()]) == 4


@pytest.mark.parametrize("suffix", [library_suffix(), ".sha256"])
@pytest.mark.parametrize("length", [0, 20])
def test_a_damaged_library_or_record_means_compiling_again(library, source, cache, suffix, length):
    path = library.with_suffix(suffix)
    right = path.read_bytes()
    publish_file(path, right[:length])  # a new file: this process has loaded the old one
    assert load(source, cache=cache).answer() == 42 and path.read_bytes() == right


needs_x86 = pytest.mark.skipif(not compiler.is_x86_64(platform.machine()), reason="needs instructions that x86-64 may lack")


@needs_shell
@needs_x86
def test_a_compiler_that_does_not_know_the_newest_instructions_is_used_for_older_ones(library, source, tmp_path, monkeypatch):
    refuse = 'for flag; do case "$flag" in -mavx512*) echo "error: unsupported argument" >&2; exit 1;; esac; done'
    only_compiler(tmp_path, f'{refuse}; exec "$REAL" "$@"', monkeypatch)
    monkeypatch.setattr(compiler, "available_instructions", lambda *_: list(compiler.INSTRUCTIONS))
    loaded = load(replace(source, instructions=("baseline", "avx512")), cache=tmp_path / "other")
    assert loaded.answer() == 42 and Path(loaded._name).name.startswith("answer-baseline-")


@needs_x86
def test_the_processor_has_the_instructions_that_its_system_reports(library, cache):
    """Linux names them in /proc/cpuinfo."""
    if not Path("/proc/cpuinfo").is_file():
        pytest.skip("needs /proc/cpuinfo")
    line = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0]
    flags = set(line.replace("avx512_bf16", "avx512bf16").split())
    assert compiler.available_instructions(cache) == [
        name for name in compiler.INSTRUCTIONS if set(compiler._features(name)) <= flags
    ]


def test_a_source_for_other_processors_is_a_reason(library, source, cache, monkeypatch):
    monkeypatch.setattr(compiler, "available_instructions", lambda *_: ["baseline"])
    with pytest.raises(Unavailable, match="needs a processor with avx512bf16 and bmi2 instructions"):
        load(replace(source, instructions=("avx512bf16",)), cache=cache)


def test_a_library_of_the_package_is_used_before_any_compiler(library, source, cache, tmp_path, monkeypatch):
    compiler.PACKAGED.mkdir()
    (found,) = compiler.compilers()
    found.compile(source, "baseline", compiler.PACKAGED / (source.name("baseline") + library_suffix()))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load(source, cache=tmp_path / "absent").answer() == 42 and not (tmp_path / "absent").exists()


@pytest.mark.nightly
def test_without_a_compiler_of_the_machine_the_one_of_ziglang_is_used(source, cache, tmp_path, monkeypatch):
    pytest.importorskip("ziglang", reason="needs the package ziglang")
    monkeypatch.setattr(compiler, "ZIGLANG", "ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load(source, cache=cache).answer() == 42 and len(compiler.compilers()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the folder for caches is that of Linux")
def test_where_no_home_can_be_written_the_reason_says_what_to_do(library, source, tmp_path, monkeypatch):
    (tmp_path / "home").touch()  # a file: root may write into any folder
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(Unavailable, match="home.*set CHARGPT_HOME"):
        load(source)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # of a user without an entry, as a container may have
    with pytest.raises(Unavailable, match="no home folder .*compiled code; set CHARGPT_HOME to a folder that can be written$"):
        load(source)
    for variable, place in (("XDG_CACHE_HOME", "chargpt"), ("CHARGPT_HOME", "cache/chargpt")):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert load(source).answer() == 42 and list((tmp_path / variable / place).glob("*.so"))
