"""The inner loops of the simulator: plain Python, compiled where a C compiler is available.

Every module here is ordinary typed Python that also runs uncompiled. The `.pxd` file beside it gives Cython the C types, and
`setup.py` compiles the pair; the same source then runs several times faster (docs/simulator.md has the factors). Modules here do
no I/O, import only the standard library, and keep time as integer nanoseconds.
"""


def compiled() -> bool:
    """Return whether these modules run compiled here."""
    from simulator.kernel import loop

    return not loop.__file__.endswith(".py")


COMPILED, INTERPRETED = "compiled", "interpreted"
MEND = "Install a C compiler and Python's headers (python3-dev), then install Headway again."


def kernel_text() -> str:
    """Return `compiled` or `interpreted`: the build works without a compiler, and without extensions that fail to compile."""
    return COMPILED if compiled() else INTERPRETED
