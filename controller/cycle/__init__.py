"""The path of one cycle: observe, decide, plan, apply; `cycle.py` is the whole of it. Imports `preempt` and all below it."""
