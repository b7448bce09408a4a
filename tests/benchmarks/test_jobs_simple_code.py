"""The simple held-out jobs with code: each check accepts right code and names what is wrong with other.

They run model-written code in the sandbox, and are slow for it.
"""

from benchmarks.jobs.part_files import folder
from benchmarks.jobs.simple_code import JOBS
from tests.benchmarks.chat_answers import Mistake

RIGHT = folder('''
--- hashtags
tags.py
```python
import re


def hashtags(text):
    return list(dict.fromkeys(tag.lower() for tag in re.findall(r"#(\\w+)", text)))
```
--- temperatures
convert.py
```python
def c_to_f(celsius):
    return round(celsius * 9 / 5 + 32, 1)


def f_to_c(fahrenheit):
    return round((fahrenheit - 32) * 5 / 9, 1)
```
--- pupil-without-grades
grades.py
```python
def average(grades):
    if not grades:
        return None
    return sum(grades) / len(grades)


def best(grades):
    """Return the highest grade."""
    return max(grades)


def line(name, grades):
    return name + ": " + ", ".join(str(grade) for grade in grades)
```
--- telefonbuch
telefonbuch.py
```python
def suche(buch, name):
    for eintrag, nummer in buch.items():
        if eintrag.lower() == name.strip().lower():
            return nummer
    return None
```
--- count-lines-script
count_lines.py
```python
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    print(sum(1 for line in file if line.strip()))
```
''')

OTHER_WORDS = folder('''
--- hashtags
Sure! Here is the function:

```python
def hashtags(text: str) -> list[str]:
    """Return the hashtags of a text."""
    tags = []
    for part in text.split("#")[1:]:
        tag = ""
        for sign in part:
            if not (sign.isalnum() or sign == "_"):
                break
            tag += sign.lower()
        if tag and tag not in tags:
            tags.append(tag)
    return tags
```
--- temperatures
```python
# convert.py
def c_to_f(celsius: float) -> float:
    """Convert degrees Celsius to Fahrenheit."""
    return round(celsius * 1.8 + 32, 1)

def f_to_c(fahrenheit: float) -> float:
    """Convert degrees Fahrenheit to Celsius."""
    return round((fahrenheit - 32) / 1.8, 1)


if __name__ == "__main__":
    print(c_to_f(20))
```
--- pupil-without-grades
Both mistakes are fixed:

```python
def average(grades):
    return sum(grades) / len(grades) if grades else None


def best(grades):
    """Return the highest grade."""
    return sorted(grades)[-1]


def line(name, grades):
    return name + ": " + ", ".join(str(grade) for grade in grades)
```
--- telefonbuch
```python
def suche(buch: dict[str, str], name: str) -> str | None:
    klein = {key.strip().casefold(): value for key, value in buch.items()}
    return klein.get(name.strip().casefold())
```
--- count-lines-script
**count_lines.py**
```python
import sys


def main() -> None:
    count = 0
    with open(sys.argv[1]) as handle:
        for line in handle.readlines():
            if not line.isspace():
                count += 1
    print(count)


if __name__ == "__main__":
    main()
```
''')

WRONG: dict[str, list[Mistake]] = {
    "hashtags": [
        (r"\.lower\(\)", "", "failed test_lower_case"),
        (r"dict\.fromkeys", "", "failed test_only_once"),
        (r"#\(", "(#", "failed test_underscore"),
    ],
    "temperatures": [
        (r"\+ 32", "- 32", "failed test_to_fahrenheit"),
        (r"\* 5 / 9, 1", "* 5 / 9, 2", "failed test_one_decimal"),
        ("def f_to_c", "def to_c", "failed to import"),
    ],
    "pupil-without-grades": [
        ("return None", "return 0", "failed test_no_grades"),
        ("max", "min", "failed test_best"),
        (r"def line(?s:.*)", "```", "failed to import"),
    ],
    "telefonbuch": [
        (r"name\.strip\(\)", "name", "failed test_spaces"),
        (r"eintrag\.lower\(\)", "eintrag", "failed test_case"),
        ("return None", "return ''", "failed test_unknown"),
    ],
    "count-lines-script": [
        (r"line\.strip\(\)", "line", "failed test_lines"),
        (r"line\.strip\(\)", r"line.rstrip('\\n')", "failed test_spaces"),
        ("print", "len", "failed test_lines"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


def test_simple_jobs_with_code_are_held_out() -> None:
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG) == 5
    assert all(job.held_out and job.group == "code" for job in JOBS)
    assert all(name in job.request for job in JOBS for name in job.outputs)
