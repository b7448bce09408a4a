"""The unseen jobs with independent parts: each check accepts right answers and names what is wrong with others.

Answers are written as a chat writes them, with their files in the text.
"""

import re

import pytest

from benchmarks.jobs.checks import every, lacks, mentions
from benchmarks.jobs.job import JobAnswer
from benchmarks.jobs.measure import JOBS as ALL_JOBS
from benchmarks.jobs.part_checks import each_section, sections
from benchmarks.jobs.part_files import folder
from benchmarks.jobs.unseen_parts import JOBS
from tests.benchmarks.chat_answers import Mistake, chat_answer

RIGHT = folder("""
--- settings-formats
settings.json
```json
{
  "name": "Tidewatch",
  "port": 8085,
  "debug": false,
  "language": "pt",
  "timeout": 20,
  "contact": "harbour@tidewatch.example"
}
```
settings.toml
```toml
name = "Tidewatch"
port = 8085
debug = false
language = "pt"
timeout = 20
contact = "harbour@tidewatch.example"
```
settings.env
```
NAME=Tidewatch
PORT=8085
DEBUG=false
LANGUAGE=pt
TIMEOUT=20
CONTACT=harbour@tidewatch.example
```
--- street-party-chores
**nadia.txt**
```
Borrow the sound system from the school
Tell the police that the street is closed
```
**olaf.txt**
```
Bring two long tables
Pick up the bread rolls at 9
```
**pilar.txt**
```
Lemonade (10 litres)
Face paint, bring brushes
```
**ruben.txt**
```
Games for the kids
Get bin bags
```
--- birthday-calendar
# January
- 17: Cem
# February
- 14: Yara
# March
- 2: Lotte
- 3: Grandma Ilse
# April
-
# May
- 1: Samir
- 25: Noa
# June
-
# July
- 9: Bo
- 21: Theo
# August
-
# September
-
# October
- 31: Uncle Ferdinand
# November
- 30: Kai and Finn
# December
- 6: Piet
- 24: Maria
--- wettest-months
{"Alba": {"month": "Jul", "mm": 70}, "Corvo": {"month": "Sep", "mm": 97}, "Dune Bay": {"month": "May", "mm": 30},
 "Elmton": {"month": "Aug", "mm": 61}, "Fjordby": {"month": "Apr", "mm": 120}}
--- moon-for-three
## Child
The moon is a big ball, and the sun shines on one side of it. While it walks around us, we see a lot of the bright side
or only a bit of it.

## Teenager
The sun always illuminates one half of the moon. As the moon orbits the earth in about 29.5 days, we look at that half
from different angles. At new moon the lit side faces away from us, then it grows (waxing crescent, first quarter,
gibbous) until full moon, and shrinks again (waning). The shadow of the earth is not the cause; it makes eclipses.

## Text message
The sun lights half of the moon. As it circles us we see more or less of that half, so its shape seems to change.
--- flyer-proof
# Spelling
- wellcome -> welcome
- playgruond -> playground

# Prices
- sausage in a roll: 4.50 -> 3.50

# Times
- raft race: 15:30 -> 15:00
--- library-queries
old.sql
```sql
SELECT title FROM books WHERE year < 1950 ORDER BY year;
```
out.sql
```sql
SELECT b.title, m.name FROM loans l
JOIN books b ON b.id = l.book_id JOIN members m ON m.id = l.member_id WHERE l.returned = 0;
```
busy.sql
```sql
SELECT m.name, COUNT(l.book_id) FROM members m LEFT JOIN loans l ON l.member_id = m.id GROUP BY m.id;
```
--- pisos-alquiler
| Piso | m2 | Total al mes |
|---|---|---|
| centro | 58 | 735 € |
| parque | 64 | 720 € |
| río | 71 | 725 € |

El más barato es el del parque y el más grande, el del río.
--- museumsschilder
Taschenuhr
1887, Genf
Nach einer Flut lag sie drei Monate in einem Keller, und sie läuft immer noch.

Webstuhl
1910, Chemnitz
Auf ihm hat eine Familie drei Generationen lang Tischdecken gewebt.

Tauchhelm
1934, Kiel
Der Helm ist 16 kg schwer, und sein vorderes Fenster lässt sich abschrauben.

Kaffeemühle
1952, Graz
Sie ist das Geschenk einer Bäckerei und im Film Morgenrot zu sehen.
--- samedi-fermeture
Bibliothèque : 17 h
Déchetterie : 18 h 30
Mairie : fermée le samedi
Piscine : 20 h

La piscine ferme le plus tard.
--- what-changed
- garden: hedges 1.50 m -> 1.20 m
- guest room: nothing changed
- laundry: price of a wash 1.80 -> 2.20 euros, closing time 21:00 -> 20:00
--- rehearsal-evening
| | Mon | Tue | Wed | Thu | Fri |
|---|---|---|---|---|---|
| Anton | no | yes | no | yes | yes |
| Beatriz | yes | yes | no | yes | no |
| Claire | yes | no | yes | yes | no |
| Dan | no | yes | yes | yes | yes |

Thursday suits everybody.
""")

OTHER_WORDS = folder("""
--- settings-formats
Sure! Here are the three files.

### settings.json
```json
{"settings": {"contact": "harbour@tidewatch.example", "name": "Tidewatch", "port": "8085", "debug": "false",
  "language": "PT", "timeout": 20}}
```

### settings.toml
```toml
# settings of Tidewatch
[settings]
name = 'Tidewatch'
port = 8_085
debug = false
language = 'pt'
timeout = 20  # minutes
contact = 'harbour@tidewatch.example'
```

### settings.env
```sh
export NAME="Tidewatch"
export PORT=8085
export DEBUG=0
export LANGUAGE="pt"
export TIMEOUT=20 # minutes
export CONTACT="harbour@tidewatch.example"
```

Let me know if you need YAML as well.
--- street-party-chores
Here are the lists:

nadia.txt:
```
To-do list for Nadia:
- [ ] get the sound system (school)
- [ ] inform the police
- [ ] close the street
```

olaf.txt:
```
To-do list for Olaf:
1. Take the two tables along in the van
2. Fetch the rolls at 9:00
```

pilar.txt:
```
To-do list for Pilar:
* 10 litres of lemonade
* Facepaint
```

ruben.txt:
```
To-do list for Ruben:
- Prepare some games
- Buy bags for the bins
```
--- birthday-calendar
Here is your calendar.

calendar.md
```markdown
**January**
17th - Cem

**February**
14th - Yara

**March**
2nd - Lotte
3rd - Ilse

**April**
—

**May**
1st - Samir
25th - Noa

**June**
—

**July**
9th - Bo
21st - Theo

**August**
—

**September**
—

**October**
31st - Ferdinand

**November**
30th - Finn
30th - Kai

**December**
6th - Piet
24th - Maria (from work)
```
--- wettest-months
```json
{
  "Fjordby": {"month": "April", "mm": 120},
  "Elmton": {"month": "aug", "mm": 61},
  "Dune Bay": {"month": "May", "mm": "30 mm"},
  "Corvo": {"month": "September", "mm": 97.0},
  "Alba": {"month": "July", "mm": 70}
}
```
--- moon-for-three
Of course! Here are three explanations.

**Child (six years old):** Imagine a ball and a lamp. The lamp is the sun, and it makes one half of the ball bright. The
moon goes round our home, the earth, and so we see a different piece of the bright half every night. Some nights it is
all of it, some nights just a thin slice.

**Teenager:** The phases of the moon come from its revolution around the earth. Half of it is in sunlight all the time,
but the angle between sun, moon and earth differs. It isn't the earth's shadow! The sequence is new moon, first quarter,
full moon, last quarter.

**Text message:** "Sunlight falls on one half of the moon. We see another part of that half each night, as it travels
around us :)"
--- flyer-proof
I went through the flyer three times.

1. **Spelling:** It has to be "welcome" (not "wellcome") and "playground".
2. **Prices:** The sausage should be €3,50, not €4,50.
3. **Times:** The raft race starts at 3 pm; the flyer has 15:30.
--- library-queries
Here you are.

**old.sql**
```sql
-- books from before 1950
SELECT title, year
FROM books
WHERE year <= 1949
ORDER BY year ASC
```

**out.sql**
```sql
SELECT members.name AS borrower, books.title
FROM books, members, loans
WHERE loans.book_id = books.id AND loans.member_id = members.id AND NOT loans.returned
```

**busy.sql**
```sql
SELECT name, (SELECT COUNT(*) FROM loans WHERE member_id = members.id) AS loans
FROM members
ORDER BY loans DESC;
```
--- pisos-alquiler
¡Claro! Aquí tienes la comparación:

| | Centro | Parque | Río |
|---|---:|---:|---:|
| **Superficie** | 58 m² | 64 m² | 71 m² |
| **Alquiler** | 690 € | 720 € | 640 € |
| **Comunidad y calefacción** | 45 € | incluido | 85 € |
| **Total** | 735,00 € | 720,00 € | 725,00 € |

- **Más barato:** el ático junto al parque (720 € al mes).
- **Más grande:** la vivienda del río, con 71 m².
--- museumsschilder
Gerne, hier sind die Schilder:

schilder.txt
```
**Kaffeemühle** (1952, aus Graz). Diese Mühle war ein Geschenk und ist in einem Film zu sehen.

**Tauchhelm** (1934, aus Kiel). Das Fenster des Helms kann man abschrauben.

**Taschenuhr** (1887, aus Genf). Die Uhr läuft noch, obwohl sie nach einer Flut im Wasser lag.

**Webstuhl** (1910, aus Chemnitz). Drei Generationen haben auf dem Webstuhl gearbeitet.
```
--- samedi-fermeture
Voici les horaires du samedi :

- **Bibliothèque** : elle ferme à 17h00 (ouverture à 10h00).
- **Déchetterie** : elle ferme à 18h30.
- **Mairie** : elle n'ouvre pas le samedi.
- **Piscine** : elle est ouverte de 9 h à 20 h.

Le lieu qui ferme le plus tard est donc la piscine, à 20 h.
--- what-changed
Compared to 2023, this is new in 2024:

**Laundry**
- One wash is now 2.20 euros (before: 1.80 euros).
- The machines stop at 8 pm instead of 9 pm.

**Garden**
- Maximum height of hedges: from 1.5 metres to 1.2 metres

**Guestroom**
- The rules are the same as last year.
--- rehearsal-evening
Here is the table:

| Name | Monday | Tuesday | Wednesday | Thursday | Friday |
|:---|:---:|:---:|:---:|:---:|:---:|
| **Anton** | No | Yes | No | Yes | Yes |
| **Beatriz** | Yes | Yes | No | Yes | No |
| **Claire** | Yes | No | Yes | Yes | No |
| **Dan** | No | Yes | Yes | Yes | Yes |

On Tuesday Claire is busy and on Friday she leaves. The evening that all four can make is **Thursday**.
""")

WRONG: dict[str, list[Mistake]] = {
    "settings-formats": [
        ('"port": 8085', '"port": 8080', "settings.json: /port is 8080, not 8085"),
        ('language = "pt"', "language = pt", "settings.toml: it cannot be read"),
        ("timeout = 20", 'timeout = "20 min of idling, 5 at night"', "settings.toml: /timeout"),
        ("DEBUG=false", "DEBUG=true", 'settings.env: /DEBUG is "true", not as it should be'),
        ("PORT=8085", "port=8085", "settings.env: /PORT is missing"),
        ("CONTACT=.*\n", "", "settings.env: /CONTACT is missing"),
        ("PORT=8085", "PORT: 8085", "settings.env: it cannot be read: this is no KEY=value: PORT: 8085"),
        (r"settings\.toml\n(?s:.*?)settings\.env", "settings.env", "settings.toml: /name is missing"),
        ("(?s)\\{\n.*?\\}\n", "[8085]\n", "settings.json: it cannot be read: it is no object"),
    ],
    "street-party-chores": [
        ("Pick up the bread rolls at 9", "Drive the van to the street", "olaf.txt: 'roll*' is missing"),
        ("Get bin bags", "Get bin bags\nFace paint", "ruben.txt: 'paint*' should not be there"),
        ("Lemonade.*\n", "Lemonade, ", "pilar.txt: there are 1 items, not 2 to 4"),
        ("Borrow the sound system.*\n", "", "nadia.txt: 'sound*' is missing"),
        (r"\*\*ruben(?s:.*)", "", "there is no ruben.txt"),
    ],
    "birthday-calendar": [
        ("- 21: Theo", "- 12: Theo", "July: Theo on day 21 is missing"),
        ("- 31: Uncle Ferdinand", "- 31: Uncle Ferdinand\n- 30: Finn", "October: Finn is wrong"),
        ("- 6: Piet\n- 24: Maria", "- 24: Maria\n- 6: Piet", "December: the days are not in order"),
        ("# August\n-\n", "", "not the twelve months"),
        ("# June\n-", "# June\nnobody", "June: the dash is missing"),
        ("- 17: Cem", "", "January: Cem on day 17 is missing"),
    ],
    "wettest-months": [
        ('"Sep"', '"Jun"', '/Corvo/month is "Jun"'),
        ('"mm": 61', '"mm": 52', "/Elmton/mm is 52, not 61"),
        ("Dune Bay", "Dunes", "/Dune Bay is missing"),
        (r'^\{"Alba', 'These are the wettest months:\n{"Alba', "it is not JSON alone"),
        (r"\}\}\s*$", "}", "it is not JSON alone"),
    ],
    "moon-for-three": [
        ("While it walks around us", "While it is in its orbit around us", "Child: 'orbit*' should not be there"),
        ("a lot of the bright side", "a lot " + "and a lot " * 20, "Child: there are"),
        ("The shadow of the earth is not the cause; it makes eclipses", "The earth's shadow hides the rest", "shadow"),
        ("(?s)At new moon.*?again.*?eclipses.", "We see more or less of it, and then it starts again.", "Teenager: "),
        ("that half, so", "that half of it, " + "of the half that is lit, " * 4 + "so", "Text message: it has"),
        ("(?s)## Text message.*", "", "there is no section Text message"),
    ],
    "flyer-proof": [
        ("- playgruond.*", "", "Spelling: 'playground' is missing"),
        ("4.50 -> 3.50", "3.50 -> 4.50", "Prices: 3.50 is the right price"),
        ("4.50 -> 3.50", "4.50 is too much", "Prices: '3.50*' is missing"),
        ("(# Prices\n)", r"\1- cake: 2.50 is right\n", "Prices: 'cake' should not be there"),
        ("15:30 -> 15:00", "15:30 -> 16:00", "Times: '15:00*' is missing"),
        ("15:30 -> 15:00", "15:00 should be 15:30", "Times: 15:00 is the right time"),
        ("# Times\n", "", "there is no section Times"),
    ],
    "library-queries": [
        ("year < 1950", "year <= 1950", "failed test_old"),
        ("LEFT JOIN", "JOIN", "failed test_busy"),
        (r"busy\.sql(?s:.*)", "", "there is no busy.sql"),
    ],
    "pisos-alquiler": [
        ("735", "690", "centro: '735*' is missing"),
        ("725", "785", "río: '725*' is missing"),
        ("El más barato es el del parque", "El más barato es el del río", "it does not say of parque alone: más barat"),
        ("y el más grande, el del río", "y el más grande, el del centro", "it does not say of rio alone: más grande"),
        (r"(?s)\|.*\|", "centro: 58 m2, 735 €; parque: 64 m2, 720 €; río: 71 m2, 725 €", "there is no table"),
        ("El más barato.*", "The cheapest one is the one in the park and the biggest one is at the river.", "language"),
    ],
    "museumsschilder": [
        ("1934", "1943", "Tauchhelm: '1934' is missing"),
        ("1910, Chemnitz", "1910", "Webstuhl: 'Chemnitz*' is missing"),
        ("Nach einer.*", "Das ist eine schöne alte Uhr.", "Taschenuhr: 0 of 'Flut*'"),
        ("immer noch", "immer noch, " + "und sie geht sehr genau, " * 5, "Taschenuhr: there are"),
        ("Kaffeemühle\n", "Kaffeemühle M-0850\n", "'0850' should not be there"),
        ("\n\n", "\n", "there is no empty line between the labels"),
        ("(?s)Kaffeemühle.*", "", "Kaffeemühle: the answer is empty"),
    ],
    "samedi-fermeture": [
        ("Bibliothèque : 17 h", "Bibliothèque : 19 h", "bibliothèque: '17*' is missing"),
        ("18 h 30", "17 h 30", "déchetterie: '18 h 30' is missing"),
        ("fermée le samedi", "16 h 30", "mairie: 'fermé' is missing"),
        ("La piscine ferme le plus", "La déchetterie ferme le plus", "it does not say of piscine alone: plus tard"),
        ("\nLa piscine ferme.*", "", "it does not say of piscine alone: plus tard"),
        ("Piscine : 20 h", "Piscine : 21 h", "piscine: '20*' is missing"),
        ("Piscine : 20 h", "Piscine : 20 h, dimanche 13 h", "piscine: '13*' should not be there"),
    ],
    "what-changed": [
        ("1.20 m", "1.30 m", "garden: '1.20*' is missing"),
        ("1.50 m -> 1.20 m", "1.20 m -> 1.50 m", "garden: 1.50 is the old height"),
        ("nothing changed", "pets are allowed now", "guest room: it does not say that nothing changed"),
        (", closing time.*", "", "laundry: '20:*' is missing"),
        ("1.20 m", "1.20 m, the fee stays at 84 euros", "garden: '84*' should not be there"),
        ("21:00 -> 20:00", "20:00 -> 21:00", "laundry: 21:00 is the old time"),
        ("1.80 -> 2.20", "from 2.20 to 1.80", "laundry: 1.80 is the old price"),
    ],
    "rehearsal-evening": [
        ("Claire \\| yes \\| no", "Claire | yes | yes", "the row ['Claire', "),
        ("\\| Dan.*\n", "", "the row ['Dan', "),
        ("Thursday suits", "Tuesday suits", "it does not say of thursday alone"),
        ("Thursday suits.*", "", "it does not say of thursday alone"),
        ("\\| yes \\|\n", "|\n", "there are rows that do not have 6 columns"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pisos-alquiler", "El más barato.*", "El del parque es el más barato; el del río es el más grande."),
        ("pisos-alquiler", "El más barato.*", "Parque es el más barato con 720 €, mientras que río es el más grande."),
        ("samedi-fermeture", "La piscine ferme.*", "Le plus tard : la piscine"),
        ("samedi-fermeture", "La piscine ferme.*", "La piscine ferme plus tard que la déchetterie et les autres."),
        ("samedi-fermeture", "Bibliothèque : 17 h", "Bibliothèque : 17 h (19 h en semaine)"),
        ("rehearsal-evening", "Thursday suits.*", "Thursday"),
        ("rehearsal-evening", "Thursday suits.*", "Everyone is free on Thursdays; not everyone is on Tuesdays."),
        (
            "rehearsal-evening",
            "Thursday suits.*",
            "On Monday Anton sings, on Friday Beatriz works: Thursday is for all.",
        ),
        ("rehearsal-evening", "yes", "✅"),
        ("flyer-proof", "4.50 -> 3.50", "4.50 should be 3.50"),
        ("what-changed", "21:00 -> 20:00", "8:00 to 21:00 -> 8:00 to 20:00"),
        ("what-changed", "1.50 m -> 1.20 m", "max. 1.20 m (2023: 1.50 m)"),
        ("birthday-calendar", "- 24: Maria", "- 24 December: Maria (from work)"),
        ("settings-formats", "DEBUG=false", "# no debugging\nDEBUG=False"),
    ],
)
def test_other_words_for_a_detail_are_accepted(name: str, old: str, new: str) -> None:
    job = next(job for job in JOBS if job.name == name)
    assert re.search(old, RIGHT[name])
    assert job.check(chat_answer(job, re.sub(old, new, RIGHT[name]))) == []


def test_unseen_jobs_differ_from_all_others() -> None:
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG) == 12
    assert all(job.held_out and job.group == "parts" for job in JOBS)
    assert len(ALL_JOBS) == len({job.name for job in ALL_JOBS}) == len({job.request for job in ALL_JOBS})
    openings = [tuple(job.request.casefold().split()[:2]) for job in ALL_JOBS if job.group == "parts"]
    assert len(openings) == len({*openings})
    for job in JOBS:
        assert all(name in job.request for name in job.outputs), job.name
        assert sum(len(text.split()) for text in job.files.values()) <= 450, job.name


def test_a_section_is_what_stands_below_or_after_its_heading() -> None:
    headings = {"Cats": r"cats\b[^\n:]*(?::|$)", "Dogs": r"dogs\b[^\n:]*(?::|$)"}
    assert sections(headings, "All:\n## 1. Dogs\nbark\n**Cats:** purr\n") == {"Dogs": "\nbark\n", "Cats": "** purr\n"}
    check = each_section(
        {
            "Cats": (headings["Cats"], every(mentions("purr"), lacks("bark"))),
            "Dogs": (headings["Dogs"], mentions("bark")),
        }
    )
    assert check(JobAnswer("Cats: they purr, unlike dogs\nDogs: they bark")) == []
    assert check(JobAnswer("Cats: they bark\nDogs: they bark")) == [
        "Cats: 'purr' is missing",
        "Cats: 'bark' should not be there",
    ]
    assert check(JobAnswer("Cats: they purr")) == ["there is no section Dogs"]
