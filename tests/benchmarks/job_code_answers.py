"""Answers to jobs with code, written by hand: for each job the files of a right answer, and how to make it wrong."""

from dataclasses import dataclass

from benchmarks.jobs.job import JobAnswer


@dataclass(frozen=True, slots=True)
class WrittenCode:
    """The files of a right answer, and replacements that each make it wrong."""

    files: dict[str, str]
    faults: tuple[tuple[str, str], ...]

    @property
    def right(self) -> JobAnswer:
        """Return the right answer."""
        return JobAnswer("", self.files)

    @property
    def wrong(self) -> list[JobAnswer]:
        """Return the wrong answers."""
        return [
            JobAnswer("", {name: text.replace(*fault) for name, text in self.files.items()}) for fault in self.faults
        ]


_SLUGIFY = """\
import re


def slugify(text):
    text = text.lower()
    for letter, plain in {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}.items():
        text = text.replace(letter, plain)
    return re.sub("[^a-z0-9]+", "-", text).strip("-") or "n-a"
"""
_DURATIONS = """\
import re

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_duration(text: str) -> int:
    text = text.strip().lower()
    if not re.fullmatch(r"(\\d+\\s*[dhms]\\s*)+", text):
        raise ValueError(f"no duration: {text!r}")
    return sum(int(number) * SECONDS[unit] for number, unit in re.findall(r"(\\d+)\\s*([dhms])", text))
"""
_CART = """\
class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, price, quantity=1):
        self.items.append((name, price, quantity))

    def total(self):
        return sum(price * quantity for _, price, quantity in self.items)

    def remove(self, name):
        self.items = [item for item in self.items if item[0] != name]

    def count(self):
        return sum(item[2] for item in self.items)
"""
_PAGES = """\
def page_count(total, size):
    return -(-total // size)


def page(items, number, size):
    start = (number - 1) * size
    return items[start:start + size]


def page_links(current, last):
    return [number for number in (current - 1, current, current + 1) if 1 <= number <= last]
"""
_ROMAN = """\
NUMERALS = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX",
            5: "V", 4: "IV", 1: "I"}


def to_roman(number):
    if number < 1 or number > 3999:
        raise ValueError("accepted: 1 to 3999")
    result = ""
    for value, numeral in NUMERALS.items():
        count, number = divmod(number, value)
        result += numeral * count
    return result
"""
_ROMAN_TESTS = """\
import pytest

from roman import to_roman


@pytest.mark.parametrize(("number", "roman"), [(4, "IV"), (9, "IX"), (1994, "MCMXCIV"), (1, "I"), (3999, "MMMCMXCIX")])
def test_numbers(number, roman):
    assert to_roman(number) == roman


def test_outside():
    for number in (0, 4000):
        with pytest.raises(ValueError):
            to_roman(number)
"""
_LUHN = """\
def is_valid(number: str) -> bool:
    digits = [c for c in number if c not in " -"]
    if len(digits) < 2 or not all(c in "0123456789" for c in digits):
        return False
    doubled = [sum(divmod(int(c) * 2, 10)) for c in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0
"""
_LUHN_TESTS = """\
import unittest

from luhn import is_valid


class LuhnTest(unittest.TestCase):
    def test_valid(self):
        self.assertTrue(is_valid("4539148803436467"))

    def test_invalid(self):
        self.assertFalse(is_valid("4539148803436466"))
"""
_PRICES = """\
def _reduced(price, discount):
    if price < 0:
        raise ValueError("negative price")
    return max(1.0, round(price - price * discount, 2))


def price_for_student(price):
    return _reduced(price, 0.2)


def price_for_senior(price):
    return _reduced(price, 0.15)


def price_for_member(price):
    return _reduced(price, 0.1)
"""
_SHIPPING = """\
DAYS = {"DE": (1, 3), "AT": (2, 4), "FR": (2, 5), "JP": (4, 12)}


def shipping_days(country, express):
    if country not in DAYS:
        raise ValueError("we do not ship to " + country)
    fast, normal = DAYS[country]
    return fast if express else normal
"""
_TOP_WORDS = """\
import re
import sys
from collections import Counter

if len(sys.argv) < 2:
    print("usage: top_words.py FILE", file=sys.stderr)
    sys.exit(2)
words = re.findall(r"\\w+", open(sys.argv[1], encoding="utf-8").read().lower())
for word, count in sorted(Counter(words).items(), key=lambda pair: (-pair[1], pair[0]))[:3]:
    print(word, count)
"""
_SUMS = """\
import csv
import sys

sums = {}
for row in csv.DictReader(sys.stdin):
    try:
        amount = float(row["amount"])
    except ValueError:
        continue
    sums[row["category"]] = sums.get(row["category"], 0) + amount
for category, amount in sorted(sums.items(), key=lambda pair: -pair[1]):
    print(f"{category} {amount:.2f}")
"""
_STACK = """\
class Stack:
    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def pop(self):
        return self._items.pop()

    def peek(self):
        return self._items[-1]

    def is_empty(self):
        return not self._items

"""
_RPN = """\
import operator

from stack import Stack

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def evaluate(expression):
    stack = Stack()
    for token in expression.split():
        if token in OPERATORS:
            right, left = stack.pop(), stack.pop()
            stack.push(OPERATORS[token](left, right))
        else:
            stack.push(float(token))
    return stack.pop()
"""
_SHAPES = """\
import math


class Circle:
    name = "circle"

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * self.radius ** 2


class Rectangle:
    name = "rectangle"

    def __init__(self, width, height):
        self.width, self.height = width, height

    def area(self):
        return self.width * self.height
"""
_REPORT = """\
def report(shapes):
    lines = [f"{shape.name}: {shape.area():.2f}" for shape in shapes]
    return "\\n".join([*lines, f"total: {sum(shape.area() for shape in shapes):.2f}"])
"""
_KONTO = """\
class Konto:
    def __init__(self, inhaber):
        self.inhaber = inhaber
        self.stand = 0

    def einzahlen(self, betrag):
        if betrag <= 0:
            raise ValueError("Betrag")
        self.stand += betrag

    def abheben(self, betrag):
        if betrag <= 0 or betrag > self.stand:
            raise ValueError("Betrag")
        self.stand -= betrag
"""
_ANAGRAMMES = """\
def grouper(mots):
    groupes = {}
    for mot in mots:
        groupes.setdefault("".join(sorted(mot)), []).append(mot)
    return [sorted(groupe) for groupe in groupes.values() if len(groupe) > 1]
"""
_TODO = """\
class TodoList:
    def __init__(self):
        self.tasks = []

    def add(self, title, priority=2):
        if priority not in (1, 2, 3):
            raise ValueError("priority: 1 to 3")
        self.tasks.append({"title": title, "done": False, "priority": priority})
        return len(self.tasks)

    def finish(self, number):
        self.tasks[number - 1]["done"] = True

    def open(self):
        tasks = [task for task in self.tasks if not task["done"]]
        return [task["title"] for task in sorted(tasks, key=lambda task: task["priority"])]

    def progress(self):
        return f"{sum(task['done'] for task in self.tasks)} of {len(self.tasks)} done"
"""

CODE_ANSWERS: dict[str, WrittenCode] = {
    "slugify": WrittenCode({"slugify.py": _SLUGIFY}, (('or "n-a"', ""), ('.strip("-")', ""))),
    "durations": WrittenCode({"durations.py": _DURATIONS}, (("fullmatch", "match"), (".lower()", ""))),
    "cart-bugs": WrittenCode({"cart.py": _CART}, (("item[2]", "1"), ("!=", "=="))),
    "pages-bugs": WrittenCode({"pages.py": _PAGES}, (("number - 1", "number"), ("1 <= number", "0 <= number"))),
    "roman-with-tests": WrittenCode(
        {"roman.py": _ROMAN, "test_roman.py": _ROMAN_TESTS}, (("3999:", "4000:"), ("(0, 4000)", "(0, 40)"))
    ),
    "luhn-with-tests": WrittenCode(
        {"luhn.py": _LUHN, "test_luhn.py": _LUHN_TESTS}, (('" -"', '" "'), ("self.assertFalse(is", "(is"))
    ),
    "prices-refactored": WrittenCode(
        {"prices.py": _PRICES},
        (("0.15", "0.2"), ("max(1.0, ", "(")),
    ),
    "shipping-refactored": WrittenCode({"shipping.py": _SHIPPING}, (("(2, 5)", "(2, 4)"), ("we do not", "We do not"))),
    "top-words-script": WrittenCode({"top_words.py": _TOP_WORDS}, ((".lower()", ""), ("sys.exit(2)", "sys.exit(1)"))),
    "sums-script": WrittenCode({"sums.py": _SUMS}, (("-pair[1]", "pair[1]"), ("        continue", "        raise"))),
    "calculator-in-two-files": WrittenCode(
        {"stack.py": _STACK, "rpn.py": _RPN},
        (("(left, right)", "(right, left)"), ("from stack import Stack", "Stack = list")),
    ),
    "shapes-in-two-files": WrittenCode(
        {"shapes.py": _SHAPES, "report.py": _REPORT}, ((" ** 2", " * 2"), ("total: ", ""))
    ),
    "bank-account": WrittenCode({"konto.py": _KONTO}, ((" or betrag > self.stand", ""), ("<= 0", "< 0"))),
    "anagrams": WrittenCode({"anagrammes.py": _ANAGRAMMES}, (("sorted(groupe)", "groupe"), ("> 1", "> 0"))),
    "todo-with-priorities": WrittenCode(
        {"todo.py": _TODO}, (("priority=2", "priority=1"), ("not in (1, 2, 3)", "< 0"))
    ),
}
