"""Runs the package as a program: also by the path of its folder, and with -I."""

import sys
from os.path import abspath, dirname

sys.path.append(dirname(dirname(abspath(__file__))))

from fake_engine.program import main

main()
