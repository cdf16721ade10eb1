"""Packages for rollouts and evaluations as clients. scripts/check-evals runs these tests; CI has none."""

from __future__ import annotations

import importlib.util
import os

from tests.support.serving import server

__all__ = ["server"]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "INSPECT_DISABLE_MODEL_API_CHECK": "1"}
PACKAGES = ("verifiers", "lm_eval", "inspect_ai")
HAS_ALL = all(importlib.util.find_spec(name) for name in PACKAGES)
if HAS_ALL:  # elsewhere other tests' processes would have them, too
    os.environ |= OFFLINE
collect_ignore_glob = [] if HAS_ALL else ["test_*.py"]
