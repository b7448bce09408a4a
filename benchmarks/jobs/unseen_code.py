"""More held-out jobs with code: a function, two repairs, a module for given tests, one with tests, and a script."""

import json
from typing import Final

from benchmarks.jobs.checks import in_turn, passes, passes_own, refuses
from benchmarks.jobs.job import BenchJob

_COURT_TESTS: Final = """\
from court import free_times

def _free(*arguments, **named):
    return [tuple(gap) for gap in free_times(*arguments, **named)]

def test_nothing_booked():
    assert _free([]) == [(8, 22)]

def test_between_bookings():
    assert _free([(10, 12), (15, 16)]) == [(8, 10), (12, 15), (16, 22)]

def test_any_order():
    assert _free([(18, 20), (9, 10), (12, 14)]) == [(8, 9), (10, 12), (14, 18), (20, 22)]

def test_touching_and_overlapping():
    assert _free([(8, 10), (10, 12)]) == [(12, 22)]
    assert _free([(9, 15), (10, 11), (14, 17)]) == [(8, 9), (17, 22)]

def test_full():
    assert _free([(8, 15), (15, 22)]) == []

def test_outside_the_opening_hours():
    assert _free([(6, 9), (21, 23)]) == [(9, 21)]
    assert _free([(5, 7), (23, 24)]) == [(8, 22)]

def test_other_opening_hours():
    assert _free([(12, 13)], 10, 14) == [(10, 12), (13, 14)]
    assert _free([], opens=9, closes=18) == [(9, 18)]

def test_the_list_stays_as_it_is():
    bookings = [(18, 20), (9, 10)]
    free_times(bookings)
    assert bookings == [(18, 20), (9, 10)]
"""
_STANDINGS: Final = '''\
def standings(results):
    """Return (team, points, goal difference) for each team, the best one first.

    `results` are tuples (home, away, home_goals, away_goals). A win gives 3 points, a draw 1. With equal points the
    goal difference decides, then the name of the team (A before B).
    """
    points, difference = {}, {}
    for home, away, home_goals, away_goals in results:
        for team in (home, away):
            points.setdefault(team, 0)
            difference.setdefault(team, 0)
        difference[home] += home_goals - away_goals
        difference[away] += home_goals - away_goals
        if home_goals > away_goals:
            points[home] += 3
        elif home_goals < away_goals:
            points[away] += 3
        else:
            points[home] += 1
    rows = [(team, points[team], difference[team]) for team in points]
    return sorted(rows, key=lambda row: (row[1], row[2], row[0]))
'''
_STANDINGS_GIVEN_TESTS: Final = """\
from standings import standings


def test_win():
    assert standings([("Owls", "Bears", 3, 1)]) == [("Owls", 3, 2), ("Bears", 0, -2)]


def test_draw():
    assert standings([("Owls", "Bears", 1, 1)]) == [("Bears", 1, 0), ("Owls", 1, 0)]


def test_goal_difference_decides():
    results = [("Owls", "Bears", 1, 0), ("Foxes", "Crows", 4, 0)]
    assert [row[0] for row in standings(results)] == ["Foxes", "Owls", "Bears", "Crows"]
"""
_STANDINGS_TESTS: Final = """\
from standings import standings

def test_no_results():
    assert standings([]) == []

def test_away_win():
    assert standings([("B", "A", 0, 2)]) == [("A", 3, 2), ("B", 0, -2)]

def test_season():
    results = [("B", "A", 2, 2), ("A", "C", 1, 0), ("C", "B", 0, 3), ("D", "B", 1, 0), ("C", "D", 5, 0)]
    assert standings(results) == [("B", 4, 2), ("A", 4, 1), ("C", 3, 1), ("D", 3, -4)]

def test_names_decide_at_last():
    assert standings([("Y", "X", 0, 0), ("V", "W", 0, 0)]) == [(name, 1, 0) for name in "VWXY"]
"""
_PRIVACY_GIVEN_TESTS: Final = """\
import pytest

from privacy import initials, mask_email, mask_phone


def test_initials():
    assert initials("Ada Lovelace") == "A. L."
    assert initials("  juan carlos  ruiz ") == "J. C. R."


def test_email_keeps_the_first_letter_and_the_domain():
    assert mask_email("lena.fuchs@posteo.example") == "l***@posteo.example"
    assert mask_email("bo@mail.example") == "b***@mail.example"


def test_email_without_an_at_sign_is_refused():
    with pytest.raises(ValueError):
        mask_email("lena.fuchs")


def test_phone_keeps_the_last_two_digits_and_what_is_no_digit():
    assert mask_phone("0151 555 0177") == "**** *** **77"
    assert mask_phone("+49-30-555012") == "+**-**-****12"
"""
_PRIVACY_TESTS: Final = """\
from privacy import initials, mask_email, mask_phone

def test_initials():
    assert initials("Grace Brewster Hopper") == "G. B. H."
    assert initials("cher") == "C."
    assert initials(" mary   ann evans") == "M. A. E."

def test_email():
    assert mask_email("x@y.example") == "x***@y.example"
    assert mask_email("Kim.Okoye@shop.mail.example") == "K***@shop.mail.example"

def test_no_email():
    try:
        mask_email("posteo.example")
    except ValueError:
        return
    raise AssertionError("accepted")

def test_phone():
    assert mask_phone("(030) 55 60 71") == "(***) ** ** 71"
    assert mask_phone("+1 20 5 5") == "+* ** 5 5"
    assert mask_phone("112") == "*12"
"""
_CHANGE: Final = """\
def wechselgeld(preis, gezahlt):
    if gezahlt < preis:
        raise ValueError("zu wenig gezahlt")
    rest, muenzen = gezahlt - preis, []
    for muenze in (200, 100, 50, 20, 10, 5, 2, 1):
        muenzen += [muenze] * (rest // muenze)
        rest %= muenze
    return muenzen
"""
_CHANGE_TESTS: Final = """\
from wechselgeld import wechselgeld

def _fails(price, paid):
    try:
        wechselgeld(price, paid)
    except ValueError:
        return True
    return False

def test_coins():
    assert wechselgeld(112, 200) == [50, 20, 10, 5, 2, 1]
    assert wechselgeld(1, 1000) == [200, 200, 200, 200, 100, 50, 20, 20, 5, 2, 2]
    assert wechselgeld(160, 200) == [20, 20]

def test_exact():
    assert wechselgeld(350, 350) == [] and wechselgeld(0, 0) == []

def test_too_little():
    assert _fails(200, 199) and _fails(1, 0)
"""
_LOANS: Final = {
    "loans.json": """\
[
  {"tool": "hedge trimmer", "member": "Ines", "days": 20, "returned": false},
  {"tool": "tall ladder", "member": "Bo", "days": 35, "returned": true},
  {"tool": "drill", "member": "Amir", "days": 14, "returned": false},
  {"tool": "tile cutter", "member": "Bo", "days": 41, "returned": false},
  {"tool": "sander", "member": "Chiara", "days": 3, "returned": false},
  {"tool": "wheelbarrow", "member": "Devi", "days": 15, "returned": false}
]
"""
}
_OTHER_LOANS: Final = json.dumps(
    [
        {"tool": "saw", "member": "Eda", "days": 14, "returned": False},
        {"tool": "anvil", "member": "Finn", "days": 99, "returned": True},
        {"tool": "crowbar", "member": "Gil", "days": 24, "returned": False},
        {"tool": "spade", "member": "Hana", "days": 114, "returned": False},
    ]
)
_LATE_TESTS: Final = f"""\
import subprocess, sys

def _lines(loans=None):
    if loans is not None:
        with open("loans.json", "w", encoding="utf-8") as file:
            file.write(loans)
    done = subprocess.run([sys.executable, "late.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip()[-100:]
    return [line.strip() for line in done.stdout.strip().splitlines()]

def test_given_file():
    assert _lines() == [
        "tile cutter (Bo): 27 days late",
        "hedge trimmer (Ines): 6 days late",
        "wheelbarrow (Devi): 1 days late",
        "3 of 5 late",
    ]

def test_other_file():
    assert _lines({_OTHER_LOANS!r}) == ["spade (Hana): 100 days late", "crowbar (Gil): 10 days late", "2 of 3 late"]

def test_nothing_is_late():
    assert _lines("[]") == ["0 of 0 late"]
"""
_BUS: Final = '''\
def next_bus(now, times):
    """Return the first departure at or after `now`.

    Times are texts like "9:05" or "14:30", and `times` may be in any order.
    """
    later = [time for time in times if time > now]
    return min(later)
'''
_BUS_TESTS: Final = """\
from bus import next_bus

TIMES = ["14:30", "9:05", "10:10", "19:45", "7:50"]

def test_later_on_the_day():
    assert next_bus("9:30", TIMES) == "10:10"
    assert next_bus("7:51", TIMES) == "9:05"
    assert next_bus("0:00", TIMES) == "7:50"
    assert next_bus("10:11", TIMES) == "14:30"

def test_right_now():
    assert next_bus("14:30", TIMES) == "14:30" and next_bus("9:05", TIMES) == "9:05"

def test_after_the_last_one():
    assert next_bus("19:46", TIMES) == "7:50" and next_bus("23:59", ["22:00"]) == "22:00"

def test_the_list_stays_as_it_is():
    assert TIMES == ["14:30", "9:05", "10:10", "19:45", "7:50"]
"""

JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "free-court-times",
        "code",
        "For the booking page of our tennis club I need a Python function free_times(bookings, opens=8, closes=22) in "
        "court.py. bookings is a list of tuples (start, end) in full hours, e.g. [(10, 12), (15, 16)]. It returns the "
        "times at which the court is free as a list of tuples too, in order: [(8, 10), (12, 15), (16, 22)]. Bookings "
        "can come in any order, can touch or overlap, and can start before opening or end after closing. Don't change "
        "the list that is passed in.",
        passes(_COURT_TESTS, "court.py"),
        outputs=("court.py",),
        held_out=True,
    ),
    BenchJob(
        "wrong-standings",
        "code",
        "All three tests in test_standings.py are red although the docstring of standings.py says what it should do. "
        "What I need back is a standings.py that does it, complete. The tests are ok as they are.",
        passes(_STANDINGS_TESTS, "standings.py"),
        {"standings.py": _STANDINGS, "test_standings.py": _STANDINGS_GIVEN_TESTS},
        ("standings.py",),
        held_out=True,
    ),
    BenchJob(
        "privacy-for-given-tests",
        "code",
        "tests first: test_privacy.py is there, privacy.py isn't. write it so that the tests pass, no third-party "
        "packages",
        passes(_PRIVACY_TESTS, "privacy.py"),
        {"test_privacy.py": _PRIVACY_GIVEN_TESTS},
        ("privacy.py",),
        held_out=True,
    ),
    BenchJob(
        "wechselgeld",
        "code",
        "Für unsere Kasse: eine Python-Funktion wechselgeld(preis, gezahlt) in wechselgeld.py. Beide Beträge sind in "
        "Cent, zurück kommt eine Liste der Münzen (200, 100, 50, 20, 10, 5, 2, 1), so wenige wie möglich und die "
        "größte zuerst; bei passendem Geld eine leere Liste, bei zu wenig Geld ein ValueError. Dazu pytest-Tests in "
        "test_wechselgeld.py: dass bei einem Preis von 112 auf 200 die Münzen 50, 20, 10, 5, 2 und 1 herauskommen, und "
        "dass zu wenig Geld abgelehnt wird.",
        in_turn(
            passes(_CHANGE_TESTS, "wechselgeld.py"),
            passes_own("test_wechselgeld.py", {"wechselgeld.py": _CHANGE}),
            refuses("test_wechselgeld.py", {"wechselgeld.py": _CHANGE.replace(" 20,", "")}),
            refuses(
                "test_wechselgeld.py",
                {"wechselgeld.py": _CHANGE.replace('raise ValueError("zu wenig gezahlt")', "return []")},
            ),
        ),
        outputs=("wechselgeld.py", "test_wechselgeld.py"),
        held_out=True,
    ),
    BenchJob(
        "late-tools-script",
        "code",
        "loans.json has what is lent by our tool library. Please write a script late.py that reads it from the current "
        "folder. Tools may be kept for 14 days. For each one that is out longer it prints a line like "
        '`hedge trimmer (Ines): 6 days late` (always "days"), the one with the most days first, and at the end '
        "`3 of 5 late`. Ignore everything that has been returned, also in the total at the end. No packages please, "
        "plain Python.",
        passes(_LATE_TESTS, "late.py", given=_LOANS),
        _LOANS,
        ("late.py",),
        held_out=True,
    ),
    BenchJob(
        "next-bus",
        "code",
        "La función de bus.py falla. A las 9:30, con salidas a las 9:05 y a las 10:10, da «ValueError: min() iterable "
        "argument is empty»; un autobús que sale justo ahora no lo encuentra; y después del último debería devolver el "
        "primero del día siguiente, es decir, la hora más temprana de la lista. ¿Me devuelves bus.py corregido entero?",
        passes(_BUS_TESTS, "bus.py"),
        {"bus.py": _BUS},
        ("bus.py",),
        held_out=True,
    ),
)
