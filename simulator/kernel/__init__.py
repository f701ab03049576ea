"""The inner loops of the simulator: plain Python, compiled where a C compiler is at hand.

Every module here is ordinary typed Python that runs as it stands. The `.pxd` file beside it gives Cython the C types, and
`setup.py` compiles the pair; the same source then runs several times faster (docs/simulator.md says how many). Nothing here does
I/O, imports more than the standard library, or keeps time as anything but integer nanoseconds.
"""


def compiled() -> bool:
    """Whether these modules run compiled here."""
    from simulator.kernel import loop

    return not loop.__file__.endswith(".py")
