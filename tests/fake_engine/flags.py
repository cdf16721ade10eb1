"""The flags: a few of llama-batched's, and one for each fault."""

from __future__ import annotations

import argparse
import os

PROTOCOL = 1


def read_flags(argv: list[str]) -> argparse.Namespace:
    # No abbreviations: -c is llama.cpp's, not --code or the like.
    parser = argparse.ArgumentParser("fake_engine", allow_abbrev=False)
    add = parser.add_argument
    add("-np", "--parallel", type=int, default=32, help="sequences that run at once")
    add("--lora-scaled", default="", metavar="FILE:SCALE,…", help="more adapters, after those of --lora")
    add(
        "--lora", default="", metavar="FILE,…", help="adapters with the ids 0, 1, …; the files need not exist"
    )
    add("--adapter", action="append", default=[], metavar="ID:SCALE:PATH", help="these in place of --lora's")
    add("--load-seconds", type=float, default=0.0)
    add("--exit-while-loading", type=int, metavar="CODE")
    add("--no-ready", action="store_true", help="load for ever")
    add("--protocol", type=int, default=PROTOCOL)
    add("--backend", default="fake", help="the backend in the ready event")
    add("--gpu-bytes", type=int, default=0, help="of the model, on a GPU, as the ready event says")
    add("--token-delay", type=float, default=0.002, help="seconds between steps")
    add("--flood", action="store_true", help="no pause between steps")
    add("--torrent", action="store_true", help="steps of all sequences, made once; heeds only a whole cancel")
    add("--dimensions", type=int, default=2, help="of vectors")
    add("--alternatives", action="store_true", help="tokens with logprobs, as many as are asked for")
    add("--endless", action="store_true", help="no story ends before max_tokens")
    add("--die-after", type=int, metavar="K", help="SIGKILL itself after K stream events")
    add(
        "--first-steps",
        metavar="ENDS",
        help="with --journal: SIGNAL,works,…: how each process ends its first step, the last for the rest",
    )
    add("--poison", metavar="TEXT", help="a prompt with this text ends the process by SIGSEGV")
    add("--half-line", action="store_true", help="with --die-after: in the middle of the last line")
    add("--hang-after", type=int, metavar="K", help="do nothing any more after K stream events")
    add("--stall-after", type=int, metavar="K", help="obey on, but make no step after K stream events")
    add("--exit-after", type=int, metavar="K", help="say --last-words and exit with 1 after K stream events")
    add("--last-words", default="the model cannot be loaded", help="on stderr, before it exits")
    add("--rubbish-after", type=int, metavar="K", help="write what is no event after K stream events")
    add("--bad-line-after", type=int, metavar="K", help="the K-th stream event has a number that is none")
    add("--bad-done", action="store_true", help="each done has a number that is none")
    add("--late-lines", action="store_true", help="lines for a request after its done, and of unknown events")
    add(
        "--long-line",
        type=int,
        default=0,
        metavar="BYTES",
        help="the first text of each sequence has this size",
    )
    add("--stderr-flood", action="store_true", help="60 kB of log in each step")
    add("--overlook", metavar="OP", action="append", default=[], help="take no notice of such commands")
    add("--ignore-eof", action="store_true")
    add("--ignore-term", action="store_true")
    add("--version", action="version", version="version: fake")
    add("--self-test", action="store_true", help="say that all is right, and end")
    add("--journal", metavar="FILE", help="append what happens, as JSON lines")
    add("--only-first", metavar="FILE", help="behave if FILE is there, else make it and misbehave")
    for unused in ("-m", "-c", "--cache-ram", "--prefix-cache", "--prefix-cache-size"):
        add(unused, help="llama-batched's; any other flag is an error: a test's would have no effect")
    flags = parser.parse_args(argv)
    if flags.only_first and os.path.exists(flags.only_first):
        journal, parallel, delay = flags.journal, flags.parallel, flags.token_delay
        flags = parser.parse_args([])
        flags.journal, flags.parallel, flags.token_delay = journal, parallel, delay
    elif flags.only_first:
        open(flags.only_first, "w").close()
    if flags.flood:
        flags.token_delay = 0.0
    return flags
