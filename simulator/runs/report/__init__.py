"""The comparison of several policies as one HTML page that needs no network.
Imports `cluster`, `errors`, `kernel`, `results`, `runs/scenario`, `slowdown` and `traces`; of other packages `policies`.

The page draws with 38 kB of its own code on a canvas. plotly.js would add 1.5 MB to every page, and its Gantt chart took 2.8 s
to draw, and again to zoom, at 20,000 runs and did not end within 150 s at the 120,000 that a page may contain; a canvas draws these
in 0.3 s (headless Chromium 150). matplotlib draws the pictures that stand still.
"""
