"""Manual pages and shell completions, made from the command trees of all programs.
Imports `serving/runtime`.

`python -m policies.serving.manual --out FOLDER` writes them in the layout of /usr/share, and `make man` into build/share.
"""
