"""The unseen jobs with code: each check accepts right code, however it is written, and names what is wrong with other.

They run model-written code in the sandbox, and are slow for it.
"""

from benchmarks.jobs.measure import JOBS as ALL_JOBS
from benchmarks.jobs.part_files import folder
from benchmarks.jobs.unseen_code import JOBS
from tests.benchmarks.chat_answers import Mistake

RIGHT = folder('''
--- free-court-times
court.py
```python
def free_times(bookings, opens=8, closes=22):
    free = []
    time = opens
    for start, end in sorted(bookings):
        if min(start, closes) > time:
            free.append((time, min(start, closes)))
        time = max(time, end)
    if time < closes:
        free.append((time, closes))
    return free
```
--- wrong-standings
standings.py
```python
def standings(results):
    """Return (team, points, goal difference) for each team, the best one first."""
    points, difference = {}, {}
    for home, away, home_goals, away_goals in results:
        for team in (home, away):
            points.setdefault(team, 0)
            difference.setdefault(team, 0)
        difference[home] += home_goals - away_goals
        difference[away] -= home_goals - away_goals
        if home_goals > away_goals:
            points[home] += 3
        elif home_goals < away_goals:
            points[away] += 3
        else:
            points[home] += 1
            points[away] += 1
    rows = [(team, points[team], difference[team]) for team in points]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))
```
--- privacy-for-given-tests
privacy.py
```python
def initials(name):
    return " ".join(f"{word[0].upper()}." for word in name.split())


def mask_email(address):
    if "@" not in address:
        raise ValueError(address)
    return address[0] + "***@" + address.split("@")[1]


def mask_phone(number):
    digits = [place for place, sign in enumerate(number) if sign.isdigit()]
    return "".join("*" if place in digits[:-2] else sign for place, sign in enumerate(number))
```
--- wechselgeld
wechselgeld.py
```python
MUENZEN = [200, 100, 50, 20, 10, 5, 2, 1]


def wechselgeld(preis, gezahlt):
    if gezahlt < preis:
        raise ValueError("zu wenig Geld")
    rest = gezahlt - preis
    ergebnis = []
    for muenze in MUENZEN:
        while rest >= muenze:
            ergebnis.append(muenze)
            rest -= muenze
    return ergebnis
```
test_wechselgeld.py
```python
import pytest

from wechselgeld import wechselgeld


def test_muenzen():
    assert wechselgeld(112, 200) == [50, 20, 10, 5, 2, 1]


def test_zu_wenig():
    with pytest.raises(ValueError):
        wechselgeld(200, 112)
```
--- late-tools-script
late.py
```python
import json

with open("loans.json", encoding="utf-8") as file:
    loans = [loan for loan in json.load(file) if not loan["returned"]]
late = [loan for loan in loans if loan["days"] > 14]
for loan in sorted(late, key=lambda loan: loan["days"], reverse=True):
    print(f"{loan['tool']} ({loan['member']}): {loan['days'] - 14} days late")
print(f"{len(late)} of {len(loans)} late")
```
--- next-bus
bus.py
```python
def _minutes(time):
    hours, minutes = time.split(":")
    return int(hours) * 60 + int(minutes)


def next_bus(now, times):
    """Return the first departure at or after `now`."""
    later = [time for time in times if _minutes(time) >= _minutes(now)]
    return min(later or times, key=_minutes)
```
''')

OTHER_WORDS = folder('''
--- free-court-times
Here's the function. It marks the hours that are taken and joins the others:

```python
# court.py
from itertools import groupby


def free_times(bookings, opens=8, closes=22):
    """Return the free times of the court."""
    taken = {hour for start, end in bookings for hour in range(start, end)}
    free = []
    for is_taken, hours in groupby(range(opens, closes), key=lambda hour: hour in taken):
        if not is_taken:
            run = list(hours)
            free.append((run[0], run[-1] + 1))
    return free


if __name__ == "__main__":
    print(free_times([(10, 12), (15, 16)]))
```

Let me know if you also need half hours.
--- wrong-standings
I found three mistakes: the goal difference of the away team, the point for a draw, and the order.

```python
from collections import Counter


def standings(results):
    points, difference, teams = Counter(), Counter(), []
    for home, away, home_goals, away_goals in results:
        teams += [home, away]
        for team, goals, against in ((home, home_goals, away_goals), (away, away_goals, home_goals)):
            points[team] += 3 if goals > against else int(goals == against)
            difference[team] += goals - against
    rows = [(team, points[team], difference[team]) for team in set(teams)]
    rows.sort()
    return sorted(rows, key=lambda row: row[1:], reverse=True)
```
--- privacy-for-given-tests
```python
"""Hide personal data."""

import re


def initials(name: str) -> str:
    return re.sub(r"\\s*(\\S)\\S*", lambda match: match[1].upper() + ". ", name.strip()).strip()


def mask_email(email: str) -> str:
    user, at, domain = email.partition("@")
    if not at:
        raise ValueError("no @")
    return f"{user[:1]}***@{domain}"


def mask_phone(phone: str) -> str:
    return re.sub(r"\\d(?=(?:\\D*\\d){2})", "*", phone)
```
--- wechselgeld
Gerne! Zuerst die Funktion:

**wechselgeld.py**
```python
def wechselgeld(preis: int, gezahlt: int) -> list[int]:
    """Gibt das Wechselgeld in Münzen zurück."""
    differenz = gezahlt - preis
    if differenz < 0:
        raise ValueError(f"Es fehlen {-differenz} Cent")
    muenzen = []
    for wert in [200, 100, 50, 20, 10, 5, 2, 1]:
        anzahl, differenz = divmod(differenz, wert)
        muenzen.extend([wert] * anzahl)
    return muenzen
```

Und die Tests:

**test_wechselgeld.py**
```python
from wechselgeld import *
import pytest


class TestWechselgeld:
    def test_beispiel(self):
        assert wechselgeld(preis=112, gezahlt=200) == [50, 20, 10, 5, 2, 1]

    def test_passend(self):
        assert wechselgeld(500, 500) == []

    @pytest.mark.parametrize("gezahlt", [0, 99])
    def test_fehler(self, gezahlt):
        pytest.raises(ValueError, wechselgeld, 100, gezahlt)
```
--- late-tools-script
Save this as `late.py` and run `python late.py`:

```python
#!/usr/bin/env python3
import json
from pathlib import Path

LIMIT = 14


def main():
    out, late = 0, []
    for entry in json.loads(Path("loans.json").read_text()):
        if entry["returned"]:
            continue
        out += 1
        if entry["days"] > LIMIT:
            late.append((entry["days"] - LIMIT, entry["tool"], entry["member"]))
    late.sort(reverse=True)
    for days, tool, member in late:
        print("%s (%s): %d days late" % (tool, member, days))
    print(len(late), "of", out, "late")


if __name__ == "__main__":
    main()
```
--- next-bus
Aquí tienes `bus.py` corregido. Las horas se comparaban como textos, y por eso «9:05» era mayor que «10:10».

```python
from datetime import datetime


def next_bus(now, times):
    def parse(text):
        return datetime.strptime(text, "%H:%M")

    ordered = sorted(times, key=parse)
    for time in ordered:
        if parse(time) >= parse(now):
            return time
    return ordered[0]
```
''')

WRONG: dict[str, list[Mistake]] = {
    "free-court-times": [
        (r"sorted\(bookings\)", "bookings", "failed test_any_order"),
        (r"max\(time, end\)", "end", "failed test_touching_and_overlapping"),
        (r"min\(start, closes\)", "start", "failed test_outside_the_opening_hours"),
        (
            r"    for start, end in sorted\(bookings\)",
            "    bookings.sort()\n    for start, end in bookings",
            "stays_as",
        ),
    ],
    "wrong-standings": [
        (r"difference\[away\] -=", "difference[away] +=", "failed test_away_win"),
        (r"            points\[away\] \+= 1\n", "", "failed test_names_decide_at_last"),
        (r"-row\[2\], ", "", "failed test_season"),
        (r"\(-row\[1\], -row\[2\], row\[0\]\)", "row[1:], reverse=True", "failed test_names_decide_at_last"),
    ],
    "privacy-for-given-tests": [
        (r"\.upper\(\)", "", "failed test_initials"),
        (
            r"\(name\):\n.*",
            '(name):\n    return {"Ada Lovelace": "A. L."}.get(name, "J. C. R.")',
            "failed test_initials",
        ),
        (r'    if "@".*\n.*\n', "", "failed test_no_email"),
        (r'"\*\*\*@"', '"***"', "failed test_email"),
        (r"digits\[:-2\]", "digits[:-3]", "failed test_phone"),
    ],
    "wechselgeld": [
        ("50, 20, 10, 5, 2, 1]\n\n", "50, 25, 10, 5, 2, 1]\n\n", "failed test_coins"),
        (r"    if gezahlt < preis:\n.*\n", "", "failed test_too_little"),
        (r"test_wechselgeld\.py(?s:.*)", "", "there is no test_wechselgeld.py"),
        (r"def test_zu_wenig(?s:.*)", "```", "test_wechselgeld.py passes for a module that is wrong"),
        (r"assert wechselgeld\(112.*", "pass", "test_wechselgeld.py passes for a module that is wrong"),
        (r"== \[50, 20", "== [20, 50", "its tests fail"),
    ],
    "late-tools-script": [
        ("> 14", ">= 14", "failed test_given_file"),
        (r' if not loan\["returned"\]', "", "failed test_given_file"),
        (", reverse=True", "", "failed test_given_file"),
        (r'loan: loan\["days"\]', 'loan: str(loan["days"])', "failed test_other_file"),
        (r"^print\(.*\n", "", "failed test_nothing_is_late"),
    ],
    "next-bus": [
        (r">= _minutes\(now\)", "> _minutes(now)", "failed test_right_now"),
        ("later or times", "later", "failed test_after_the_last_one"),
        ("later or times, key=_minutes", "later or times", "failed test_later_on_the_day"),
        ("(?s)```python.*", "```python\ndef next_bus(now, times)\n```", "bus.py is no Python"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


def test_unseen_jobs_with_code_differ_from_all_others() -> None:
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG) == 6
    assert all(job.held_out and job.group == "code" for job in JOBS)
    assert len(ALL_JOBS) == len({job.name for job in ALL_JOBS}) == len({job.request for job in ALL_JOBS})
    openings = [tuple(job.request.casefold().split()[:2]) for job in ALL_JOBS if job.group == "code"]
    assert len(openings) == len({*openings})
    for job in JOBS:
        assert all(name in job.request for name in job.outputs), job.name
