"""Compiles inner loops; everything else of the build is in pyproject.toml.

Modules with a .pxd beside them are ordinary Python with C types. Where Cython or a C compiler is missing the build goes on
without: the same source then runs interpreted, several times slower.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup

FOLDERS = ("simulator/kernel", "policies/learned/sched2/state")
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # the annotations are for readers and mypy; the .pxd files give the C types
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


def extensions() -> list[Extension]:
    """One extension per module that has C types."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(".".join(pxd.with_suffix("").parts), [str(pxd.with_suffix(".py"))], extra_compile_args=["-O2", "-g0"])
        for folder in FOLDERS
        for pxd in sorted(Path(folder).glob("*.pxd"))
    ]
    compiled: list[Extension] = cythonize(modules, compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True)
    for extension in compiled:
        extension.optional = True  # set here, because cythonize makes new extensions without it
    return compiled


setup(ext_modules=extensions())
