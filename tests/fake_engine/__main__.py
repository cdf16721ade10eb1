"""Runs the package as a program: also by the path of its folder, and with -I."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from fake_engine.program import main

main()
