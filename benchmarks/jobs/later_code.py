"""Later held-out jobs with code: short functions, a repair, given tests, a script, a query and a shorter form."""

from typing import Final

from benchmarks.jobs.checks import passes
from benchmarks.jobs.job import BenchJob

_STRONG_TESTS: Final = """\
from strong import is_strong

def test_strong():
    assert is_strong("Harbour7") is True and is_strong("7even-Seas Around") is True

def test_too_short():
    assert is_strong("Harbo7r") is False and is_strong("") is False

def test_no_digit():
    assert is_strong("HarbourSeven") is False

def test_no_capital_letter():
    assert is_strong("harbour77") is False and is_strong("12345678") is False
"""
_TAG: Final = '''\
def tag(name, price):
    """Return the text of a price tag."""
    return name + ": " + price + " EUR"


def tags(prices):
    return [tag(name, price) for name, price in prices.items()]
'''
_TAG_TESTS: Final = """\
from tag import tag, tags

def test_two_decimals():
    assert tag("Tea", 2.5) == "Tea: 2.50 EUR" and tag("Jam", 3.75) == "Jam: 3.75 EUR"

def test_whole_number():
    assert tag("Honey", 4) == "Honey: 4.00 EUR"

def test_tags_as_before():
    assert tags({"Tea": 2.5, "Honey": 4}) == ["Tea: 2.50 EUR", "Honey: 4.00 EUR"]
"""
_GREET_GIVEN_TESTS: Final = """\
from greet import greeting


def test_morning():
    assert greeting("Ana", 5) == "Good morning, Ana!"
    assert greeting("Ana", 11) == "Good morning, Ana!"


def test_afternoon():
    assert greeting("Ben", 12) == "Good afternoon, Ben!"
    assert greeting("Ben", 17) == "Good afternoon, Ben!"


def test_evening():
    assert greeting("Cleo", 18) == "Good evening, Cleo!"
    assert greeting("Cleo", 23) == "Good evening, Cleo!"


def test_no_name():
    assert greeting("", 9) == "Good morning!"
"""
_GREET_TESTS: Final = """\
from greet import greeting

def test_morning():
    assert greeting("Ida", 5) == "Good morning, Ida!" and greeting("Ida", 11) == "Good morning, Ida!"

def test_afternoon():
    assert greeting("Jo", 12) == "Good afternoon, Jo!" and greeting("Jo", 17) == "Good afternoon, Jo!"

def test_evening():
    assert greeting("Kim", 18) == "Good evening, Kim!" and greeting("Kim", 23) == "Good evening, Kim!"

def test_no_name():
    assert greeting("", 9) == "Good morning!" and greeting("", 13) == "Good afternoon!"
"""
_NUMBERED_TESTS: Final = """\
import subprocess, sys

def _run(text):
    with open("poem.txt", "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([sys.executable, "numbered.py", "poem.txt"], capture_output=True, text=True)
    return done.stdout

def test_numbers():
    assert _run("rain\\nsnow\\nhail\\n").splitlines() == ["1: rain", "2: snow", "3: hail"]

def test_last_line_without_end():
    assert _run("rain\\nsnow").splitlines() == ["1: rain", "2: snow"]

def test_spaces_stay():
    assert _run("rain\\n  snow  in May\\n").splitlines() == ["1: rain", "2:   snow  in May"]
"""
_SCHEMA: Final = {
    "schema.sql": """\
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT,
    city TEXT,
    since INTEGER  -- the year in which they became a customer
);
"""
}
_GRAZ_TESTS: Final = """\
import sqlite3

ROWS = '''
INSERT INTO customers (name, city, since) VALUES
    ('Wolf', 'Graz', 2012), ('Adler', 'Linz', 2011), ('Biber', 'Graz', 2019), ('Dachs', 'Graz', 2020),
    ('Fuchs', 'Graz', 2023), ('Amsel', 'Graz', 2015);
'''

def _names():
    db = sqlite3.connect(":memory:")
    db.executescript(open("schema.sql").read() + ROWS)
    return [row[-1] for row in db.execute(open("graz.sql").read())]

def test_only_graz():
    assert "Adler" not in _names()

def test_before_2020():
    assert not {"Dachs", "Fuchs"}.intersection(_names())

def test_all_names():
    assert sorted(_names()) == ["Amsel", "Biber", "Wolf"]

def test_order():
    assert _names() == sorted(_names())
"""
_MEAN_TESTS: Final = """\
from moyenne import moyenne

def test_mean():
    assert moyenne([12, 15]) == 13.5 and moyenne([8]) == 8

def test_absent():
    assert moyenne([12, None, 15, None]) == 13.5

def test_zero_counts():
    assert moyenne([0, None, 10]) == 5

def test_one_decimal():
    assert moyenne([10, 10, 11]) == 10.3

def test_no_mark():
    assert moyenne([]) is None and moyenne([None, None]) is None
"""
_SQUARES: Final = """\
def even_squares(numbers):
    result = []
    index = 0
    while index < len(numbers):
        number = numbers[index]
        if number % 2 == 0:
            square = number * number
            result.append(square)
        index = index + 1
    return result
"""
_SQUARES_TESTS: Final = """\
import ast

from squares import even_squares

def test_results():
    assert even_squares([1, 2, 3, 4, -6]) == [4, 16, 36] and even_squares([]) == [] and even_squares([7]) == []

def test_list_comprehension():
    nodes = [*ast.walk(ast.parse(open("squares.py", encoding="utf-8").read()))]
    assert any(isinstance(node, ast.ListComp) for node in nodes)
    assert not any(isinstance(node, ast.While) for node in nodes)
"""

JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "strong-password",
        "code",
        "Please write the Python function is_strong(password) for me, in strong.py. It returns True if a password has "
        "8 characters or more and at least one digit and one capital letter in it, and False otherwise.",
        passes(_STRONG_TESTS, "strong.py"),
        outputs=("strong.py",),
        held_out=True,
    ),
    BenchJob(
        "price-tag-error",
        "code",
        'tag("Tea", 2.5) gives me `TypeError: can only concatenate str (not "float") to str`. it should return '
        "'Tea: 2.50 EUR', always with two decimals. can you fix tag.py? whole file please",
        passes(_TAG_TESTS, "tag.py"),
        {"tag.py": _TAG},
        ("tag.py",),
        held_out=True,
    ),
    BenchJob(
        "greeting-for-given-tests",
        "code",
        "I've written test_greet.py, and now I need a greet.py for which all of these tests pass.",
        passes(_GREET_TESTS, "greet.py"),
        {"test_greet.py": _GREET_GIVEN_TESTS},
        ("greet.py",),
        held_out=True,
    ),
    BenchJob(
        "numbered-lines-script",
        "code",
        "python script numbered.py: prints all lines of a text file with the number in front, like `1: first line`. "
        "the file name is the argument (`python numbered.py poem.txt`). no blank lines in between, and spaces inside "
        "the lines stay as they are",
        passes(_NUMBERED_TESTS, "numbered.py"),
        outputs=("numbered.py",),
        held_out=True,
    ),
    BenchJob(
        "customers-from-graz",
        "code",
        "SQL beginner here (SQLite). The table is in schema.sql. What's the query for the names of all customers from "
        "Graz who became customers before 2020, in alphabetical order? Only the names. I'd like it as graz.sql",
        passes(_GRAZ_TESTS, "graz.sql", given=_SCHEMA),
        _SCHEMA,
        ("graz.sql",),
        held_out=True,
    ),
    BenchJob(
        "moyenne-sans-absents",
        "code",
        "J'ai besoin d'une fonction Python moyenne(notes) dans moyenne.py. notes est une liste de nombres ; None veut "
        "dire que l'élève était absent et ne compte pas. Le résultat est arrondi à une décimale, et s'il n'y a aucune "
        "note, c'est None.",
        passes(_MEAN_TESTS, "moyenne.py"),
        outputs=("moyenne.py",),
        held_out=True,
    ),
    BenchJob(
        "loop-as-comprehension",
        "code",
        "squares.py works, but our teacher says a list comprehension would do the same in one line. Can you show me "
        "the file that way? even_squares keeps its name and returns the same as before.",
        passes(_SQUARES_TESTS, "squares.py"),
        {"squares.py": _SQUARES},
        ("squares.py",),
        held_out=True,
    ),
)
