"""Building the benchmark's C programs with the system's compiler, against the libzmq that pyzmq carries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import zmq

_SOURCES = Path(__file__).parent / "native"


class NotBuildableError(Exception):
    """There is no C compiler, or no libzmq to link with. The message says which."""


def build(name: str, directory: Path) -> Path:
    """Compile ``native/<name>.c`` into ``directory`` and return the program.

    Raises:
        NotBuildableError: It cannot be.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotBuildableError("no C compiler (cc) is installed")
    library = _libzmq()
    program = directory / name
    done = subprocess.run(
        [
            compiler,
            "-O2",
            "-o",
            str(program),
            str(_SOURCES / f"{name}.c"),
            str(library),
            f"-Wl,-rpath,{library.parent}",
            # What libzmq itself needs lies beside it under names that only its own loader knows.
            "-Wl,--allow-shlib-undefined",
            "-lpthread",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotBuildableError(f"{name}.c does not compile: {done.stderr.strip().splitlines()[-1]}")
    return program


def _libzmq() -> Path:
    bundled = sorted((Path(zmq.__file__).parents[1] / "pyzmq.libs").glob("libzmq*.so*"))
    if not bundled:
        raise NotBuildableError("this pyzmq carries no libzmq to link with")
    return bundled[0]
