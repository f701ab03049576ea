"""The inner loops of the simulator: plain Python, compiled where a C compiler is at hand.

Every module here is ordinary typed Python that runs as it stands. The `.pxd` file beside it gives Cython the C types, and
`setup.py` compiles the pair; the same source then runs several times faster (docs/simulator.md says how many). Nothing here does
I/O, imports more than the standard library, or keeps time as anything but integer nanoseconds.
"""


def compiled() -> bool:
    """Return whether these modules run compiled here."""
    from simulator.kernel import loop

    return not loop.__file__.endswith(".py")


COMPILED, INTERPRETED = "compiled", "interpreted"
MEND = "Install a C compiler and Python's headers (python3-dev), then install Headway again."


def kernel_text() -> str:
    """Return `compiled` or `interpreted`: the build goes on without a compiler, and without an extension that fails to compile."""
    return COMPILED if compiled() else INTERPRETED
