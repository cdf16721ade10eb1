"""Runs llama.cpp's tests of its server against this one: python -m tests.peer [--all] [--baseline] [TEST…]

Without options it runs the subset that CI runs. Tests are ids in the folder tools/server/tests of llama.cpp:
unit/test_basic.py::test_server_props. PEER_LOG=FILE gets the output of pytest.
"""

from __future__ import annotations

import argparse
import time

from tests.peer import baseline, suite


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", metavar="TEST")
    parser.add_argument("--all", action="store_true", help="all tests of the suite")
    parser.add_argument(
        "--baseline", action="store_true", help="compile llama-server, run all, and write baseline.json"
    )
    parser.add_argument("--llama-server", action="store_true", help="run llama-server instead of this server")
    parser.add_argument("--workers", type=int, default=2, help="tests at the same time (default: 2)")
    given = parser.parse_args()
    if given.baseline:
        print(baseline.make(given.workers))
        return
    began = time.monotonic()
    server = suite.llama_server() if given.llama_server else suite.OURS
    chosen = suite.all_tests() if given.all else given.tests or baseline.subset()
    found = suite.run(server, chosen, given.workers)
    for line in baseline.report(found):
        print(line)
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(bool(baseline.faults(found)))


if __name__ == "__main__":
    main()
