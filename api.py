#!/usr/bin/env python3
"""Starts the server with the project's own Python: ./api.py --model m.gguf   (the same as `llama-srb serve`).

Any python3 can run this file, so it uses no new syntax. All other files need the Python in .venv.
"""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
PYTHON = os.path.join(HERE, ".venv", "bin", "python")

if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print(f"llama-srb: there is no {PYTHON}; run {HERE}/build.sh, which makes it", file=sys.stderr)
        sys.exit(2)
    # -P: Python must not import modules from the current folder
    os.execv(PYTHON, [PYTHON, "-P", "-m", "llama_srb.cli", "serve", *sys.argv[1:]])
