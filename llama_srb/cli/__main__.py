"""`python -m llama_srb.cli`, as ./api.py calls it."""

from . import main

main()
