"""llama-srb: n continuations of one prompt, all streaming at once, the prompt computed once."""

__version__ = "0.1.0"
