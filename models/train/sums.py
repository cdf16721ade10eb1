"""Sums of three numbers with their steps, for a model that adds: knows nothing of tokens or of training.

    47+85+96: 85+96=181 1+7=8 8+4=12 1+0+1=2 181+47=228 so 228

The numbers are added in any order. Before one addition in two stand its columns, from the units on. So texts
of one sum differ in their steps and in their length.
"""

import random
from itertools import zip_longest
from zlib import crc32

LEAST, MOST = 10, 99


def problem(dice: random.Random) -> tuple[int, ...]:
    return tuple(dice.randint(LEAST, MOST) for _ in range(3))


def question(numbers: tuple[int, ...]) -> str:
    return "+".join(map(str, numbers)) + ":"


def is_held_out(numbers: tuple[int, ...]) -> bool:
    """One sum in fifty is never trained on, in no order of its numbers."""
    return crc32(question(tuple(sorted(numbers))).encode()) % 50 == 0


def columns(a: int, b: int) -> list[str]:
    """The digits of both from the right, with what is carried: 6+9=15, 8+5+1=14, for 86 + 59."""
    steps, carried = [], 0
    for x, y in zip_longest(reversed(str(a)), reversed(str(b)), fillvalue="0"):
        total = int(x) + int(y) + carried
        steps.append(f"{x}+{y}{'+1' * carried}={total}")
        carried = total // 10
    return steps


def solution(numbers: tuple[int, ...], dice: random.Random) -> str:
    total, *others = dice.sample(numbers, len(numbers))
    steps: list[str] = []
    for number in others:
        steps += columns(total, number) if dice.random() < 0.5 else []
        steps.append(f"{total}+{number}={total + number}")
        total += number
    return " " + " ".join([*steps, "so", str(total)])


def texts(count: int, seed: int) -> list[str]:
    """Questions that are not held out, each with one solution."""
    dice, made = random.Random(seed), list[str]()
    while len(made) < count:
        numbers = problem(dice)
        if not is_held_out(numbers):
            made.append(question(numbers) + solution(numbers, dice))
    return made


def held_out(count: int, seed: int) -> list[tuple[str, str]]:
    """Questions that no text for training has, each with its answer."""
    dice, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        numbers = problem(dice)
        if is_held_out(numbers):
            found[question(numbers)] = str(sum(numbers))
    return list(found.items())
