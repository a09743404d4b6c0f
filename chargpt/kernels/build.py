"""Compiles every kernel into a folder: the libraries of a wheel, which then needs no compiler where it is installed.

Those of pages that learn are among them if the package ziglang is installed.

    python -m chargpt.kernels.build FOLDER [--target TARGET]

Without a target, the compiler of this machine is used. A target is a name of ziglang, such as aarch64-linux-gnu.2.28,
x86_64-windows-gnu or aarch64-macos.
"""

import argparse
import platform
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from chargpt.kernels import compiler
from chargpt.kernels.compiler import LEARN, WEB_LINK, WEB_TARGET, Unavailable, compilers, is_x86_64, library_suffix


def build(folder: Path, target: str | None = None) -> list[Path]:
    """Write the libraries of all sources, for all sets of instructions, and return their paths.

    Raises Unavailable where there is no compiler, and subprocess.CalledProcessError where one fails.
    """
    found = compilers(target)
    if not found:
        raise Unavailable(
            f"{'a target needs the package ziglang' if target else 'no C compiler found'}; {compiler.HOW_TO_INSTALL}"
        )
    machine = target.partition("-")[0] if target else platform.machine()
    sets = [
        (source, name)
        for source in compiler.SOURCES
        for name in source.instructions
        if name == "baseline" or is_x86_64(machine)
    ]
    libraries = [folder / (source.name(name) + library_suffix(target)) for source, name in sets]
    options = () if target and "windows" in target else compiler.OPTIONS
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        making = [pool.submit(found[0].compile, *what, library, options=options) for what, library in zip(sets, libraries)]
        for web, name in product(compilers(WEB_TARGET), LEARN.instructions):
            libraries.append(folder / (LEARN.name(name) + library_suffix(WEB_TARGET)))
            making.append(pool.submit(web.compile, LEARN, name, libraries[-1], options=(), link=WEB_LINK))
        for made in making:
            made.result()
    for beside in (*folder.glob("*.pdb"), *folder.glob("*.lib")):  # what a linker for Windows writes beside a library
        beside.unlink()
    return libraries


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chargpt.kernels.build", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--target", help="a name of ziglang (default: this machine)")
    arguments = parser.parse_args(argv)
    try:
        libraries = build(arguments.folder, arguments.target)
    except (Unavailable, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        print(f"error: build: {error}\n{said.decode('utf-8', 'replace')}".rstrip(), file=sys.stderr)
        return 2 if isinstance(error, Unavailable) else 1
    print(*libraries, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
