"""The jobs with code and tests. Prompts and rules were made with their results at hand."""

import ast
from collections.abc import Callable
from typing import Final

from benchmarks.jobs.checks import every, has_file, in_turn, passes, passes_own, refuses
from benchmarks.jobs.hidden_tests import parse_python
from benchmarks.jobs.job import BenchJob

_SLUG_TESTS: Final = """\
from slugify import slugify

def test_words():
    assert slugify("Hello World") == "hello-world"
    assert slugify("Ready, Steady & Go!") == "ready-steady-go"

def test_ends_and_runs():
    assert slugify("  --Already--slugged-- ") == "already-slugged"
    assert slugify("a___b...c") == "a-b-c"

def test_digits():
    assert slugify("Top 10 of 2024") == "top-10-of-2024"

def test_umlauts():
    assert slugify("Größe über Äpfel") == "groesse-ueber-aepfel"

def test_nothing_left():
    assert slugify("?!") == "n-a"
"""
_DURATION_TESTS: Final = """\
from durations import parse_duration

def _fails(text):
    try:
        parse_duration(text)
    except ValueError:
        return True
    return False

def test_single_units():
    assert parse_duration("45s") == 45
    assert parse_duration("3m") == 180
    assert parse_duration("2h") == 7200
    assert parse_duration("1d") == 86400

def test_several():
    assert parse_duration("1h 30m") == 5400
    assert parse_duration("1d2h3m4s") == 93784

def test_case_and_spaces():
    assert parse_duration("  1H 5M ") == 3900

def test_refused():
    assert _fails("") and _fails("abc") and _fails("10") and _fails("5x")
    assert _fails("1h foo")
"""
_CART: Final = '''\
class Cart:
    """A shopping cart. Prices are in cents."""

    def __init__(self):
        self.items = []

    def add(self, name, price, quantity=1):
        self.items.append((name, price, quantity))

    def total(self):
        total = 0
        for name, price, quantity in self.items:
            total = price * quantity
        return total

    def remove(self, name):
        self.items = [item for item in self.items if item[0] != name]

    def count(self):
        return len(self.items)
'''
_CART_GIVEN_TESTS: Final = """\
from cart import Cart


def test_total():
    cart = Cart()
    cart.add("pen", 120, 3)
    cart.add("pad", 450)
    assert cart.total() == 810


def test_carts_are_separate():
    first, second = Cart(), Cart()
    first.add("pen", 120)
    assert second.total() == 0


def test_remove_takes_all_with_this_name():
    cart = Cart()
    cart.add("pen", 120)
    cart.add("pen", 150)
    cart.add("pad", 450)
    cart.remove("pen")
    assert cart.total() == 450


def test_count_adds_up_quantities():
    cart = Cart()
    cart.add("pen", 120, 3)
    cart.add("pad", 450)
    assert cart.count() == 4
"""
_CART_TESTS: Final = """\
from cart import Cart

def _filled():
    cart = Cart()
    for name, price, quantity in [("a", 100, 2), ("a", 50, 1), ("a", 25, 4), ("b", 10, 3)]:
        cart.add(name, price, quantity)
    return cart

def test_total():
    assert _filled().total() == 380
    assert Cart().total() == 0

def test_separate():
    assert _filled().count() == 10
    assert Cart().count() == 0

def test_remove():
    cart = _filled()
    cart.remove("a")
    assert cart.total() == 30 and cart.count() == 3
    cart.remove("none")
    assert cart.count() == 3
"""
_PAGES: Final = '''\
def page_count(total, size):
    """How many pages of this size are needed for `total` items."""
    return total // size


def page(items, number, size):
    """Return page `number`, counted from 1."""
    start = number * size
    return items[start:start + size]


def page_links(current, last):
    """Numbers of the pages to link to: the neighbours of the current one and itself, within 1 to last."""
    return [number for number in range(current - 1, current + 2) if 1 <= number <= last]
'''
_PAGES_GIVEN_TESTS: Final = """\
from pages import page, page_count, page_links


def test_page_count():
    assert page_count(10, 5) == 2
    assert page_count(11, 5) == 3
    assert page_count(0, 5) == 0


def test_page():
    assert page(["a", "b", "c"], 1, 2) == ["a", "b"]
    assert page(["a", "b", "c"], 2, 2) == ["c"]


def test_links_at_the_ends():
    assert page_links(1, 9) == [1, 2]
    assert page_links(9, 9) == [8, 9]
    assert page_links(5, 9) == [4, 5, 6]
"""
_PAGES_TESTS: Final = """\
from pages import page, page_count, page_links

def test_page_count():
    assert [page_count(n, 7) for n in (0, 1, 6, 7, 8, 70, 71)] == [0, 1, 1, 1, 2, 10, 11]

def test_page():
    items = list(range(10))
    assert page(items, 1, 4) == [0, 1, 2, 3] and page(items, 3, 4) == [8, 9] and page(items, 4, 4) == []

def test_links():
    assert page_links(1, 1) == [1] and page_links(2, 3) == [1, 2, 3] and page_links(1, 2) == [1, 2]
"""
_ROMAN: Final = """\
def to_roman(number):
    if not 1 <= number <= 3999:
        raise ValueError(number)
    signs = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
             (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
    text = ""
    for value, sign in signs:
        while number >= value:
            text, number = text + sign, number - value
    return text
"""
_ROMAN_TESTS: Final = """\
from roman import to_roman

def _fails(number):
    try:
        to_roman(number)
    except ValueError:
        return True
    return False

def test_simple():
    assert [to_roman(n) for n in (1, 3, 5, 8, 10, 50, 100, 500, 1000)] == "I III V VIII X L C D M".split()

def test_subtraction():
    assert [to_roman(n) for n in (4, 9, 40, 90, 400, 900)] == "IV IX XL XC CD CM".split()

def test_long():
    assert to_roman(1994) == "MCMXCIV" and to_roman(3888) == "MMMDCCCLXXXVIII" and to_roman(3999) == "MMMCMXCIX"

def test_limits():
    assert _fails(0) and _fails(-1) and _fails(4000)
"""
_LUHN: Final = """\
def is_valid(number):
    digits = number.replace(" ", "").replace("-", "")
    if not digits.isdigit() or len(digits) < 2:
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit)
        if index % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0
"""
_LUHN_TESTS: Final = """\
from luhn import is_valid

def test_right_numbers():
    assert is_valid("4539148803436467") is True
    assert is_valid("79927398713") is True
    assert is_valid("18") is True

def test_wrong_numbers():
    assert is_valid("4539148803436466") is False
    assert is_valid("79927398710") is False

def test_separators():
    assert is_valid("4539 1488 0343 6467") is True
    assert is_valid("4539-1488-0343-6467") is True

def test_no_number():
    assert is_valid("") is False
    assert is_valid("4539a48803436467") is False
    assert is_valid("7") is False
"""
_PRICES: Final = """\
def price_for_student(price):
    if price < 0:
        raise ValueError("negative price")
    result = price - price * 0.2
    result = round(result, 2)
    if result < 1:
        result = 1.0
    return result


def price_for_senior(price):
    if price < 0:
        raise ValueError("negative price")
    result = price - price * 0.15
    result = round(result, 2)
    if result < 1:
        result = 1.0
    return result


def price_for_member(price):
    if price < 0:
        raise ValueError("negative price")
    result = price - price * 0.1
    result = round(result, 2)
    if result < 1:
        result = 1.0
    return result
"""
_PRICES_TESTS: Final = """\
from prices import price_for_member, price_for_senior, price_for_student

KINDS = (price_for_student, price_for_senior, price_for_member)

def test_discounts():
    assert [kind(100) for kind in KINDS] == [80.0, 85.0, 90.0]

def test_rounding():
    assert [kind(9.99) for kind in KINDS] == [7.99, 8.49, 8.99]

def test_at_least_one():
    assert [kind(0) for kind in KINDS] == [1.0, 1.0, 1.0] and price_for_student(1.2) == 1.0

def test_negative():
    for kind in KINDS:
        try:
            kind(-0.01)
        except ValueError as error:
            assert str(error) == "negative price"
        else:
            raise AssertionError("accepted")
"""
_SHIPPING: Final = '''\
def shipping_days(country, express):
    """Working days until a parcel arrives. Raises ValueError for a country that we do not ship to."""
    if country == "DE":
        if express:
            return 1
        else:
            return 3
    else:
        if country == "AT":
            if express:
                return 2
            else:
                return 4
        else:
            if country == "FR":
                if express:
                    return 2
                else:
                    return 5
            else:
                if country == "JP":
                    if express:
                        return 4
                    else:
                        return 12
                else:
                    raise ValueError("we do not ship to " + country)
'''
_SHIPPING_TESTS: Final = """\
from shipping import shipping_days

def test_days():
    expected = {"DE": (1, 3), "AT": (2, 4), "FR": (2, 5), "JP": (4, 12)}
    assert {name: (shipping_days(name, True), shipping_days(name, False)) for name in expected} == expected

def test_unknown():
    for express in (True, False):
        try:
            shipping_days("XX", express)
        except ValueError as error:
            assert str(error) == "we do not ship to XX"
        else:
            raise AssertionError("accepted")
"""
_TOP_WORDS_TESTS: Final = """\
import subprocess, sys

def _run(text, *arguments):
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write(text)
    return subprocess.run([sys.executable, "top_words.py", *arguments], capture_output=True, text=True)

def test_counts():
    done = _run("The cat and the dog. THE cat, and a bird\\nand the end\\n", "text.txt")
    assert done.stdout.split("\\n")[:3] == ["the 4", "and 3", "cat 2"]

def test_only_three():
    assert len(_run("a b c d a b c a b a\\n", "text.txt").stdout.strip().split("\\n")) == 3

def test_ties_by_alphabet():
    assert _run("pear fig plum apple", "text.txt").stdout.strip().split("\\n") == ["apple 1", "fig 1", "pear 1"]

def test_without_an_argument():
    assert _run("x").returncode == 2
"""
_SUMS_TESTS: Final = """\
import subprocess, sys

def _run(text):
    return subprocess.run([sys.executable, "sums.py"], input=text, capture_output=True, text=True)

def test_sums():
    done = _run("category,amount\\nfood,10.50\\nrent,700\\nfood,4.25\\nfun,20\\n")
    assert done.stdout.strip().split("\\n") == ["rent 700.00", "fun 20.00", "food 14.75"]

def test_bad_amounts_are_left_out():
    done = _run("category,amount\\nfood,abc\\nfood,1\\nfun,\\n")
    assert done.stdout.strip() == "food 1.00" and done.returncode == 0

def test_empty():
    assert _run("category,amount\\n").stdout.strip() == ""
"""
_RPN_TESTS: Final = """\
from rpn import evaluate
from stack import Stack

def _raises(error, call, *arguments):
    try:
        call(*arguments)
    except error:
        return True
    return False

def test_stack():
    stack = Stack()
    assert stack.is_empty()
    stack.push(1)
    stack.push(2)
    assert stack.pop() == 2 and stack.peek() == 1
    assert not stack.is_empty()

def test_empty_stack():
    assert _raises(IndexError, Stack().pop) and _raises(IndexError, Stack().peek)

def test_evaluate():
    assert evaluate("3 4 +") == 7
    assert evaluate("5 1 2 + 4 * + 3 -") == 14
    assert evaluate("8 2 /") == 4
    assert evaluate("2 8 -") == -6

def test_uses_the_stack():
    with open("rpn.py", encoding="utf-8") as file:
        assert "Stack" in file.read()
"""
_SHAPES_TESTS: Final = """\
import math
from report import report
from shapes import Circle, Rectangle

def test_shapes():
    assert Rectangle(2, 3.5).area() == 7
    assert abs(Circle(2).area() - 4 * math.pi) < 1e-9
    assert Rectangle(2, 3).name == "rectangle" and Circle(1).name == "circle"

def test_report():
    lines = report([Rectangle(1, 2), Circle(1), Rectangle(3, 3)]).strip().split("\\n")
    assert lines == ["rectangle: 2.00", "circle: 3.14", "rectangle: 9.00", "total: 14.14"]

def test_empty_report():
    assert report([]).strip() == "total: 0.00"
"""
_ACCOUNT_TESTS: Final = """\
from konto import Konto

def _fails(call, *arguments):
    try:
        call(*arguments)
    except ValueError:
        return True
    return False

def test_deposit_and_withdraw():
    konto = Konto("Ayla")
    assert konto.inhaber == "Ayla" and konto.stand == 0
    konto.einzahlen(100)
    konto.abheben(30)
    assert konto.stand == 70

def test_wrong_amounts():
    konto = Konto("Ayla")
    assert _fails(konto.einzahlen, 0) and _fails(konto.einzahlen, -5) and _fails(konto.abheben, -1)
    assert konto.stand == 0

def test_never_negative():
    konto = Konto("Ayla")
    konto.einzahlen(50)
    assert _fails(konto.abheben, 51) and konto.stand == 50
    konto.abheben(50)
    assert konto.stand == 0
"""
_ANAGRAM_TESTS: Final = """\
from anagrammes import grouper

def test_groups():
    groups = grouper(["chien", "niche", "rat", "chat", "art", "tar"])
    assert sorted(groups) == [["art", "rat", "tar"], ["chien", "niche"]]

def test_none():
    assert grouper([]) == [] and grouper(["un", "deux"]) == []
"""
_TODO: Final = '''\
class TodoList:
    def __init__(self):
        self.tasks = []

    def add(self, title):
        """Add a task and return its number, counted from 1."""
        self.tasks.append({"title": title, "done": False})
        return len(self.tasks)

    def finish(self, number):
        self.tasks[number - 1]["done"] = True

    def open(self):
        """Titles of the tasks that are not done."""
        return [task["title"] for task in self.tasks if not task["done"]]
'''
_TODO_TESTS: Final = """\
from todo import TodoList

def test_as_before():
    todo = TodoList()
    assert todo.add("a") == 1 and todo.add("b") == 2
    todo.finish(1)
    assert todo.open() == ["b"]

def test_urgent_first():
    todo = TodoList()
    todo.add("low", priority=3)
    todo.add("plain")
    todo.add("urgent", priority=1)
    todo.add("plain too", priority=2)
    assert todo.open() == ["urgent", "plain", "plain too", "low"]

def test_numbers_stay():
    todo = TodoList()
    todo.add("low", priority=3)
    todo.add("urgent", priority=1)
    todo.finish(1)
    assert todo.open() == ["urgent"]

def test_refused():
    todo = TodoList()
    for priority in (0, 4):
        try:
            todo.add("x", priority=priority)
        except ValueError:
            continue
        raise AssertionError("accepted")
    assert todo.open() == []

def test_progress():
    todo = TodoList()
    assert todo.progress() == "0 of 0 done"
    for title in "abc":
        todo.add(title)
    todo.finish(2)
    assert todo.progress() == "1 of 3 done"
"""


def _parsed(accepts: Callable[[ast.Module], bool]) -> Callable[[str], bool]:
    """Return whether a source parses and its tree is as `accepts` wants it."""

    def check(source: str) -> bool:
        try:
            return accepts(parse_python(source))
        except ValueError:
            return False

    return check


def _count(tree: ast.AST, *kinds: type[ast.AST]) -> int:
    return sum(isinstance(node, kinds) for node in ast.walk(tree))


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "slugify",
        "code",
        "Write a Python function slugify(text) in slugify.py. Lower case; ä ö ü ß become ae oe ue ss; every run of "
        "characters that are not a-z or 0-9 becomes one hyphen; no hyphen at the start or the end. If nothing is left "
        'it returns "n-a".',
        passes(_SLUG_TESTS, "slugify.py"),
        outputs=("slugify.py",),
    ),
    BenchJob(
        "durations",
        "code",
        "i need parse_duration(text) -> int in durations.py, it returns seconds. understands things like '45s', "
        "'1h 30m', '1d2h3m4s' (d h m s, upper or lower case, spaces between don't matter). anything else, also an "
        "empty string or a number without unit: ValueError",
        passes(_DURATION_TESTS, "durations.py"),
        outputs=("durations.py",),
    ),
    BenchJob(
        "cart-bugs",
        "code",
        "The tests in test_cart.py fail. Fix cart.py so that all of them pass; don't touch the tests. Give me the "
        "whole corrected cart.py.",
        passes(_CART_TESTS, "cart.py"),
        {"cart.py": _CART, "test_cart.py": _CART_GIVEN_TESTS},
        ("cart.py",),
    ),
    BenchJob(
        "pages-bugs",
        "code",
        "pages.py is buggy, see test_pages.py. Please repair it and give me the full new pages.py.",
        passes(_PAGES_TESTS, "pages.py"),
        {"pages.py": _PAGES, "test_pages.py": _PAGES_GIVEN_TESTS},
        ("pages.py",),
    ),
    BenchJob(
        "roman-with-tests",
        "code",
        "Put a function to_roman(number) into roman.py that gives Roman numerals for 1 to 3999 and raises ValueError "
        "for everything outside. Also write pytest tests in test_roman.py: one for 4, 9 and 1994, and one that 0 and "
        "4000 are refused.",
        in_turn(
            passes(_ROMAN_TESTS, "roman.py"),
            passes_own("test_roman.py", {"roman.py": _ROMAN}),
            refuses("test_roman.py", {"roman.py": _ROMAN.replace('(4, "IV"), ', "")}),
        ),
        outputs=("roman.py", "test_roman.py"),
    ),
    BenchJob(
        "luhn-with-tests",
        "code",
        "Credit card checksum (Luhn): write luhn.py with is_valid(number: str) -> bool. Spaces and hyphens in the "
        "number are ignored; other characters, an empty string or a single digit are simply not valid. And add "
        "test_luhn.py with pytest tests - 4539148803436467 is a valid number, 4539148803436466 is not.",
        in_turn(
            passes(_LUHN_TESTS, "luhn.py"),
            passes_own("test_luhn.py", {"luhn.py": _LUHN}),
            refuses("test_luhn.py", {"luhn.py": "def is_valid(number):\n    return True\n"}),
        ),
        outputs=("luhn.py", "test_luhn.py"),
    ),
    BenchJob(
        "prices-refactored",
        "code",
        "prices.py has the same code three times. Please move what they share into one helper function "
        "_reduced(price, discount) that the three functions call. They keep their names and behave exactly as before. "
        "Same file name please.",
        every(
            passes(_PRICES_TESTS, "prices.py"),
            has_file("prices.py", _parsed(lambda tree: _count(tree, ast.Raise) == 1), "the check is not there once"),
        ),
        {"prices.py": _PRICES},
        ("prices.py",),
    ),
    BenchJob(
        "shipping-refactored",
        "code",
        "Nobody can read shipping.py any more with all those nested ifs. Can you rewrite it with a dictionary so that "
        "a new country is one more line? Behaviour and error message must stay the same.",
        every(
            passes(_SHIPPING_TESTS, "shipping.py"),
            has_file(
                "shipping.py",
                _parsed(lambda tree: _count(tree, ast.If, ast.IfExp) <= 3 and _count(tree, ast.Dict) >= 1),
                "it still has nested ifs, or no dictionary",
            ),
        ),
        {"shipping.py": _SHIPPING},
        ("shipping.py",),
    ),
    BenchJob(
        "top-words-script",
        "code",
        "A small command line script, top_words.py: `python top_words.py FILE` prints the three most frequent words of "
        "the file with their counts, one per line like `the 4`. Case doesn't matter, punctuation isn't part of a word, "
        "and words that are equally frequent come in alphabetical order. Without an argument it exits with code 2.",
        passes(_TOP_WORDS_TESTS, "top_words.py"),
        outputs=("top_words.py",),
    ),
    BenchJob(
        "sums-script",
        "code",
        "sums.py should read CSV with the header category,amount from stdin and print the sum per category like "
        "`food 14.75` (two decimals), the largest sum first. Lines whose amount isn't a number are skipped. Python, "
        "standard library only.",
        passes(_SUMS_TESTS, "sums.py"),
        outputs=("sums.py",),
    ),
    BenchJob(
        "calculator-in-two-files",
        "code",
        "Two files please. stack.py: class Stack with push, pop, peek and is_empty; pop and peek on an empty stack "
        "raise IndexError. rpn.py: a function evaluate(expression) for reverse polish notation like '3 4 +' with + - * "
        "and /; it imports and uses Stack from stack.py.",
        passes(_RPN_TESTS, "rpn.py", "stack.py"),
        outputs=("stack.py", "rpn.py"),
    ),
    BenchJob(
        "shapes-in-two-files",
        "code",
        "I want shapes.py with the classes Circle(radius) and Rectangle(width, height) - both with a method area() and "
        "an attribute name ('circle', 'rectangle') - and report.py with a function report(shapes) that returns a text: "
        "one line per shape, `name: area` with two decimals, in the order of the list, and as last line `total: ...`, "
        "two decimals as well.",
        passes(_SHAPES_TESTS, "report.py", "shapes.py"),
        outputs=("shapes.py", "report.py"),
    ),
    BenchJob(
        "bank-account",
        "code",
        "Schreib mir bitte in konto.py eine Klasse Konto(inhaber) mit den Attributen inhaber und stand (am Anfang 0) "
        "und den Methoden einzahlen(betrag) und abheben(betrag). Beträge müssen größer als 0 sein, und der Stand darf "
        "nie negativ werden, sonst ValueError und der Stand bleibt, wie er ist.",
        passes(_ACCOUNT_TESTS, "konto.py"),
        outputs=("konto.py",),
    ),
    BenchJob(
        "anagrams",
        "code",
        "Écris une fonction grouper(mots) dans anagrammes.py : elle regroupe les mots qui sont des anagrammes les uns "
        "des autres et renvoie une liste de listes. Chaque groupe est trié avec sorted(), et seuls les groupes d'au "
        "moins deux mots comptent.",
        passes(_ANAGRAM_TESTS, "anagrammes.py"),
        outputs=("anagrammes.py",),
    ),
    BenchJob(
        "todo-with-priorities",
        "code",
        "Please extend todo.py: add() gets an optional priority from 1 (urgent) to 3 (can wait), default 2, anything "
        "else is a ValueError. open() lists urgent ones first and otherwise in the order they were added; the numbers "
        'for finish() don\'t change. New method progress() that returns e.g. "1 of 3 done". Everything else stays.',
        passes(_TODO_TESTS, "todo.py"),
        {"todo.py": _TODO},
        ("todo.py",),
    ),
)  # Fifteen jobs, of which every second one is held out
