"""Held-out jobs with code: small functions and scripts of about ten lines."""

from typing import Final

from benchmarks.jobs.checks import passes
from benchmarks.jobs.job import BenchJob

_TAGS_TESTS: Final = """\
from tags import hashtags

def test_lower_case():
    assert hashtags("Off to #Lisbon with #family2024!") == ["lisbon", "family2024"]

def test_only_once():
    assert hashtags("#sun and #Sea, #SUN again") == ["sun", "sea"]

def test_underscore():
    assert hashtags("#good_morning.") == ["good_morning"]

def test_none():
    assert hashtags("no tags here") == [] and hashtags("") == []
"""
_CONVERT_TESTS: Final = """\
from convert import c_to_f, f_to_c

def test_to_fahrenheit():
    assert c_to_f(0) == 32 and c_to_f(100) == 212 and c_to_f(-40) == -40

def test_to_celsius():
    assert f_to_c(32) == 0 and f_to_c(98.6) == 37

def test_one_decimal():
    assert f_to_c(70) == 21.1 and c_to_f(36.66) == 98
"""
_GRADES: Final = '''\
def average(grades):
    return sum(grades) / len(grades)


def best(grades):
    """Return the highest grade."""
    return sorted(grades)[0]


def line(name, grades):
    return name + ": " + ", ".join(str(grade) for grade in grades)
'''
_GRADES_TESTS: Final = """\
from grades import average, best, line

def test_average():
    assert average([2, 4]) == 3 and average([7]) == 7

def test_no_grades():
    assert average([]) is None

def test_best():
    assert best([3, 9, 5]) == 9 and best([4]) == 4

def test_line_as_before():
    assert line("Ines", [3, 9]) == "Ines: 3, 9"
"""
_PHONE_BOOK_TESTS: Final = """\
from telefonbuch import suche

BOOK = {"Ayla Demir": "0151 5550101", "jan Vogel": "030 5550102"}

def test_as_written():
    assert suche(BOOK, "Ayla Demir") == "0151 5550101"

def test_case():
    assert suche(BOOK, "AYLA demir") == "0151 5550101" and suche(BOOK, "Jan Vogel") == "030 5550102"

def test_spaces():
    assert suche(BOOK, "  jan vogel ") == "030 5550102"

def test_unknown():
    assert suche(BOOK, "Jan") is None and suche({}, "Jan") is None
"""
_LINES_TESTS: Final = """\
import subprocess, sys

def _run(text):
    with open("text.txt", "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([sys.executable, "count_lines.py", "text.txt"], capture_output=True, text=True)
    return done.stdout.strip()

def test_lines():
    assert _run("one\\n\\ntwo\\nthree\\n\\n") == "3"

def test_spaces():
    assert _run("one\\n   \\n\\t\\n  two\\n") == "2"

def test_empty():
    assert _run("") == "0"
"""

JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "hashtags",
        "code",
        "need a python function hashtags(text) in tags.py: returns a list of the hashtags in a text, lower case and "
        "without the #, in the order they come and each only once. a hashtag is a # followed by letters, digits or _",
        passes(_TAGS_TESTS, "tags.py"),
        outputs=("tags.py",),
        held_out=True,
    ),
    BenchJob(
        "temperatures",
        "code",
        "Could you write me convert.py with the functions c_to_f(celsius) and f_to_c(fahrenheit)? Both results should "
        "be rounded to one decimal.",
        passes(_CONVERT_TESTS, "convert.py"),
        outputs=("convert.py",),
        held_out=True,
    ),
    BenchJob(
        "pupil-without-grades",
        "code",
        "grades.py has two mistakes: average() crashes for an empty list, it should return None then, and best() "
        "returns the lowest grade. Please send me the corrected grades.py, all of it.",
        passes(_GRADES_TESTS, "grades.py"),
        {"grades.py": _GRADES},
        ("grades.py",),
        held_out=True,
    ),
    BenchJob(
        "telefonbuch",
        "code",
        "Ich brauche in telefonbuch.py eine Python-Funktion suche(buch, name). buch ist ein Dictionary (Name -> "
        "Nummer), zurück kommt die Nummer oder None, wenn es den Namen nicht gibt. Groß- und Kleinschreibung sowie "
        "Leerzeichen vor und nach dem Namen sollen egal sein.",
        passes(_PHONE_BOOK_TESTS, "telefonbuch.py"),
        outputs=("telefonbuch.py",),
        held_out=True,
    ),
    BenchJob(
        "count-lines-script",
        "code",
        "Just a tiny Python script: `python count_lines.py FILE` prints how many lines of the file are not empty. "
        "Lines with nothing but spaces or tabs are empty too. It prints the number and nothing else.",
        passes(_LINES_TESTS, "count_lines.py"),
        outputs=("count_lines.py",),
        held_out=True,
    ),
)
