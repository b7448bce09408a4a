"""The later held-out jobs with code: each check accepts right code and names what is wrong with other.

They run model-written code in the sandbox, and are slow for it.
"""

from benchmarks.jobs.later_code import JOBS
from benchmarks.jobs.part_files import folder
from tests.benchmarks.chat_answers import Mistake

RIGHT = folder('''
--- strong-password
strong.py
```python
def is_strong(password):
    return len(password) >= 8 and any(c.isdigit() for c in password) and any(c.isupper() for c in password)
```
--- price-tag-error
tag.py
```python
def tag(name, price):
    """Return the text of a price tag."""
    return f"{name}: {price:.2f} EUR"


def tags(prices):
    return [tag(name, price) for name, price in prices.items()]
```
--- greeting-for-given-tests
greet.py
```python
def greeting(name, hour):
    if hour < 12:
        time = "morning"
    elif hour < 18:
        time = "afternoon"
    else:
        time = "evening"
    return f"Good {time}, {name}!" if name else f"Good {time}!"
```
--- numbered-lines-script
numbered.py
```python
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    for number, line in enumerate(file, 1):
        print(f"{number}: {line.rstrip(chr(10))}")
```
--- customers-from-graz
graz.sql
```sql
SELECT name FROM customers WHERE city = 'Graz' AND since < 2020 ORDER BY name;
```
--- moyenne-sans-absents
moyenne.py
```python
def moyenne(notes):
    presentes = [note for note in notes if note is not None]
    if not presentes:
        return None
    return round(sum(presentes) / len(presentes), 1)
```
--- loop-as-comprehension
squares.py
```python
def even_squares(numbers):
    return [number * number for number in numbers if number % 2 == 0]
```
''')

OTHER_WORDS = folder('''
--- strong-password
Here's the function:

```python
import re


def is_strong(password: str) -> bool:
    """Check if a password is strong."""
    if len(password) < 8:
        return False
    if not re.search(r"[0-9]", password):
        return False
    return bool(re.search(r"[A-Z]", password))


# Example usage
print(is_strong("Harbour7"))
```
--- price-tag-error
The price has to be formatted as a string:

```python
def tag(name, price):
    """Return the text of a price tag."""
    return name + ": " + format(price, ".2f") + " EUR"


def tags(prices):
    return [tag(name, price) for name, price in prices.items()]
```

Now `tag("Tea", 2.5)` returns `Tea: 2.50 EUR`.
--- greeting-for-given-tests
**greet.py**

```python
def greeting(name: str, hour: int) -> str:
    if 18 <= hour:
        text = "Good evening"
    elif 12 <= hour:
        text = "Good afternoon"
    else:
        text = "Good morning"
    if name != "":
        text += ", " + name
    return text + "!"
```
--- numbered-lines-script
```python
import sys


def main():
    number = 1
    for line in open(sys.argv[1]).read().splitlines():
        print(str(number) + ": " + line)
        number += 1


if __name__ == "__main__":
    main()
```
--- customers-from-graz
You can use this query:

```sql
-- customers from Graz from before 2020
SELECT c.name
FROM customers AS c
WHERE c.city = 'Graz'
  AND c.since <= 2019
ORDER BY c.name ASC
```
--- moyenne-sans-absents
Voici la fonction :

```python
def moyenne(notes):
    total = 0
    nombre = 0
    for note in notes:
        if note is None:
            continue
        total += note
        nombre += 1
    return round(total / nombre, 1) if nombre > 0 else None
```
--- loop-as-comprehension
Your teacher is right:

```python
def even_squares(numbers):
    result = [n ** 2 for n in numbers if not n % 2]
    return result
```
''')

WRONG: dict[str, list[Mistake]] = {
    "strong-password": [
        (">= 8", "> 8", "failed test_strong"),
        (r"len\(password\) >= 8 and ", "", "failed test_too_short"),
        ("isdigit", "isalnum", "failed test_no_digit"),
        ("isupper", "islower", "failed test_no_capital_letter"),
    ],
    "price-tag-error": [
        (":.2f", "", "failed test_two_decimals"),
        (r"{price:.2f}", "{price}0", "failed test_whole_number"),
        ("def tags(?s:.*)", "```", "failed to import"),
    ],
    "greeting-for-given-tests": [
        ("< 12", "<= 12", "failed test_afternoon"),
        ("< 18", "< 20", "failed test_evening"),
        (" if name else.*", "", "failed test_no_name"),
    ],
    "numbered-lines-script": [
        (", 1", "", "failed test_numbers"),
        (r"\.rstrip\(chr\(10\)\)", "", "failed test_numbers"),
        (r"rstrip\(chr\(10\)\)", "strip()", "failed test_spaces_stay"),
    ],
    "customers-from-graz": [
        ("city = 'Graz' AND ", "", "failed test_only_graz"),
        ("< 2020", "<= 2020", "failed test_before_2020"),
        (" ORDER BY name", "", "failed test_order"),
        ("customers", "clients", "failed test_all_names"),
    ],
    "moyenne-sans-absents": [
        (" if note is not None", "", "failed test_absent"),
        (" is not None", "", "failed test_zero_counts"),
        ("return None", "return 0", "failed test_no_mark"),
        (r", 1\)", ", 2)", "failed test_one_decimal"),
    ],
    "loop-as-comprehension": [
        ("== 0", "== 1", "failed test_results"),
        (r"\[(.*)\]", r"list(\1)", "failed test_list_comprehension"),
        ("even_squares", "squares", "failed to import"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


def test_later_jobs_with_code_are_held_out() -> None:
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG) == 7
    assert all(job.held_out and job.group == "code" for job in JOBS)
    assert all(name in job.request for job in JOBS for name in job.outputs)
