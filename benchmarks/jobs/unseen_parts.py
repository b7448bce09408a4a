"""More held-out jobs with independent parts: formats, people, months, towns, readers, aspects, queries and versions."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.jobs.checks import (
    Fact,
    code_blocks,
    every,
    holds,
    items,
    json_with,
    lacks,
    language,
    mentions,
    mentions_some,
    passes,
    plain,
    reworded,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob, Check, JobAnswer
from benchmarks.jobs.part_checks import TABLE_ROW, each_part, each_section, sections
from benchmarks.jobs.part_files import folder

_SETTINGS: Final = folder("""
--- settings.txt
The app is called Tidewatch. It listens on port 8085.
Debugging is off. The language of the interface is Portuguese (pt).
A session times out after 20 minutes.
Alarms go to harbour@tidewatch.example.
""")

_STREET_PARTY: Final = folder("""
--- chat.txt
[18:02] Nadia: so who does what on Saturday?
[18:03] Olaf: I can bring the two long tables, my van is free
[18:05] Nadia: great. I'll borrow the sound system from the school, and I'm the one who tells the police that we close
the street
[18:07] Pilar: put me down for lemonade, 10 litres!
[18:09] Ruben: games for the kids, that's me. Face paint as well?
[18:10] Pilar: no, the face paint is mine, I have the brushes. You could get bin bags, Ruben
[18:11] Ruben: ok, bin bags then
[18:15] Pilar: and who picks up the bread rolls at 9?
[18:16] Nadia: Olaf, as he has the van anyway
[18:16] Olaf: fine
""")

_BIRTHDAYS: Final = folder("""
--- birthdays.txt
Grandma Ilse - 3 March
Theo: 21 July
the twins Kai and Finn, 30 November
Maria (from work) 12/24
Bo - 9 July
Cem: January 17th
Lotte 2 March
uncle Ferdinand, Oct 31
Yara: 14 February (Valentine's!)
Piet - 6 December
Noa: 25 May
Samir, May 1st
""")

_RAIN: Final = folder("""
--- rain.csv
town,Apr,May,Jun,Jul,Aug,Sep
Alba,41,63,58,70,66,52
Corvo,88,79,94,61,73,97
Dune Bay,12,30,28,9,17,25
Elmton,55,50,47,52,61,48
Fjordby,120,96,101,115,118,109
""")

_FLYER: Final = folder("""
--- flyer.txt
SUMMER DAY AT THE MILL
Saturday from 11:00 on. Everybody is wellcome!

11:30 Puppet theatre for the little ones
13:00 Brass band
15:30 Raft race on the pond
19:00 Dance with the Silver Combo

Lemonade 2.00, cake 2.50, sausage in a roll 4.50
The profit goes to the new playgruond.
--- prices.csv
item,euros
cake,2.50
lemonade,2.00
sausage,3.50
--- programme.csv
time,what
11:30,puppet theatre
13:00,brass band
15:00,raft race
19:00,dance
""")

_LIBRARY: Final = folder("""
--- schema.sql
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER);
CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT);
-- returned is 1 for a book that is back, 0 for one that is still out
CREATE TABLE loans (book_id INTEGER, member_id INTEGER, returned INTEGER);
""")
_LIBRARY_TESTS: Final = """\
import sqlite3

ROWS = '''
INSERT INTO books VALUES (101, 'Dracula', 'Bram Stoker', 1897), (102, 'Emma', 'Jane Austen', 1815),
    (103, 'Ubik', 'Philip K. Dick', 1969), (104, 'Nada', 'Carmen Laforet', 1945),
    (105, 'The Martian Chronicles', 'Ray Bradbury', 1950);
INSERT INTO members VALUES (11, 'Aino'), (12, 'Bilal'), (13, 'Chloe');
INSERT INTO loans VALUES (102, 11, 1), (102, 12, 0), (103, 12, 1), (104, 11, 0), (101, 11, 1);
'''

def _rows(name):
    db = sqlite3.connect(":memory:")
    db.executescript(open("schema.sql").read() + ROWS)
    return db.execute(open(name).read()).fetchall()

def _differ(rows, wanted):
    return len(rows) != len(wanted) or not all(set(cells) <= set(row) for cells, row in zip(wanted, rows))

def test_old():
    rows = _rows("old.sql")
    assert not _differ(rows, [("Emma",), ("Dracula",), ("Nada",)]), f"old.sql gives {rows}"

def test_out():
    rows = sorted(_rows("out.sql"), key=lambda row: "Nada" in row)
    assert not _differ(rows, [("Emma", "Bilal"), ("Nada", "Aino")]), f"out.sql gives {rows}"

def test_busy():
    rows = sorted(_rows("busy.sql"), key=lambda row: [name in row for name in ("Chloe", "Bilal", "Aino")])
    assert not _differ(rows, [("Aino", 3), ("Bilal", 2), ("Chloe", 0)]), f"busy.sql gives {rows}"
"""

_FLATS_ES: Final = folder("""
--- centro.txt
Piso en el centro, segundo sin ascensor. 58 m2, dos habitaciones. Alquiler: 690 euros al mes, calefacción incluida.
La comunidad son 45 euros aparte.
--- parque.txt
Ático junto al parque con terraza, 64 m2. 720 euros al mes todo incluido (comunidad y calefacción).
--- rio.txt
Vivienda a orillas del río con ascensor, 71 m2. Renta mensual de 640 euros, más 30 euros de comunidad y 55 de
calefacción. Garaje opcional por 60 euros.
""")

_EXHIBITS_DE: Final = folder("""
--- exponate.json
[
  {"inventar": "M-0412", "name": "Taschenuhr", "jahr": 1887, "herkunft": "Genf",
   "notiz": "lag nach einer Flut drei Monate in einem Keller und läuft noch"},
  {"inventar": "M-0077", "name": "Webstuhl", "jahr": 1910, "herkunft": "Chemnitz",
   "notiz": "eine Familie hat drei Generationen lang Tischdecken darauf gewebt"},
  {"inventar": "M-1203", "name": "Tauchhelm", "jahr": 1934, "herkunft": "Kiel",
   "notiz": "16 kg schwer, vorderes Fenster lässt sich abschrauben"},
  {"inventar": "M-0850", "name": "Kaffeemühle", "jahr": 1952, "herkunft": "Graz",
   "notiz": "Geschenk einer Bäckerei, im Film Morgenrot zu sehen"}
]
""")

_HOURS_FR: Final = folder("""
--- bibliotheque.txt
La bibliothèque vous accueille du mardi au vendredi de 10 h à 19 h et le samedi de 10 h à 17 h.
--- dechetterie.csv
jour,ouverture,fermeture
lundi,8:30,12:00
mercredi,8:30,17:30
samedi,9:00,18:30
--- mairie.md
# Mairie
Du lundi au vendredi : 9 h - 12 h et 14 h - 16 h 30
Samedi et dimanche : fermé
--- piscine.html
<h1>Piscine</h1>
<ul>
  <li>lundi à vendredi : 7 h - 21 h</li>
  <li>samedi : 9 h - 20 h</li>
  <li>dimanche : 9 h - 13 h</li>
</ul>
""")

_RULES: Final = folder("""
--- garden_2023.txt
Hedges may be 1.50 m high at the most. Each plot pays 84 euros a year. Barbecues are allowed until 10 in the evening.
--- garden_2024.txt
Hedges may be 1.20 m high at the most. Each plot pays 84 euros a year. Barbecues are allowed until 10 in the evening.
--- guestroom_2023.txt
The guest room costs 25 euros a night. It has to be booked a week before. Pets stay outside.
--- guestroom_2024.txt
The guest room costs 25 euros a night. It has to be booked a week before. Pets stay outside.
--- laundry_2023.txt
A wash costs 1.80 euros. The machines run from 8:00 to 21:00. Everybody cleans the filter after use.
--- laundry_2024.txt
A wash costs 2.20 euros. The machines run from 8:00 to 20:00. Everybody cleans the filter after use.
""")

_BAND_MAILS: Final = folder("""
--- anton.txt
Hallo zusammen, montags und mittwochs habe ich Chor, an den anderen Abenden geht es bei mir. Gruß, Anton
--- beatriz.txt
¡Hola! Yo puedo el lunes, el martes y el jueves, los otros días trabajo. Besos, Beatriz
--- claire.txt
Coucou, le mardi je garde mes neveux et le vendredi je pars à la campagne. Sinon je suis libre. Claire
--- dan.txt
Hey, any evening is fine with me, just not Monday. Dan
""")

_MONTHS: Final[Mapping[str, Mapping[str, int]]] = {  # the days of the birthdays, by month and name
    "January": {"Cem": 17},
    "February": {"Yara": 14},
    "March": {"Lotte": 2, "Ilse": 3},
    "April": {},
    "May": {"Samir": 1, "Noa": 25},
    "June": {},
    "July": {"Bo": 9, "Theo": 21},
    "August": {},
    "September": {},
    "October": {"Ferdinand": 31},
    "November": {"Kai": 30, "Finn": 30},
    "December": {"Piet": 6, "Maria": 24},
}
_CHORES: Final[Mapping[str, tuple[Fact, ...]]] = {
    "nadia": (("sound*", "music system"), "police*"),
    "olaf": ("table*", ("roll*", "bread*")),
    "pilar": ("lemonade*", ("paint*", "face paint*", "facepaint*")),
    "ruben": ("game*", "bag*"),
}
_HEADING_END: Final = r"[^\n:]{0,60}?(?::|\*\*|\s[-\u2013\u2014]\s|$)"
_SUITS_ALL: Final = r"(?<!not )\b(?:everybody|everyone|all|four|common)\b"
_YES, _NO = ("yes", "y", "✓", "✔", "✔️", "✅"), ("no", "n", "✗", "✘", "❌", "-")
_WEEKDAYS: Final = {day: rf"\b{day}s?\b" for day in ("monday", "tuesday", "wednesday", "thursday", "friday")}


def _settings(file: str, read: Callable[[str], Mapping[str, Any]], rename: Callable[[str], str] = str) -> Check:
    """Require a file of settings, which may be in one group, with the right keys and values."""
    wanted = {
        "name": "Tidewatch",
        "port": 8085,
        "debug": lambda value: str(value).casefold() in ("false", "off", "no", "0"),
        "language": "pt",
        "timeout": lambda value: str(value) in ("20", "20.0"),
        "contact": "harbour@tidewatch.example",
    }
    check = json_with({rename(key): value for key, value in wanted.items()})

    def faults(answer: JobAnswer) -> list[str]:
        try:
            values = read(answer.file(file))
        except ValueError as error:
            return [f"it cannot be read: {error}"]
        groups = [value for value in values.values() if isinstance(value, dict)]
        return check(JobAnswer(json.dumps(groups[0] if len(groups) == len(values) == 1 else values, default=str)))

    return lambda answer: [f"{file}: {fault}" for fault in faults(answer)]


def _json_object(text: str) -> Mapping[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def _env(text: str) -> dict[str, str]:
    """Return the values of lines like `KEY=value`. Raises ValueError."""
    values: dict[str, str] = {}
    for line in (line.strip().removeprefix("export ") for line in text.splitlines()):
        if line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"this is no KEY=value: {line}")
            values[key.strip()] = value.split(" #")[0].strip().strip("\"'")
    return values


def _chores(name: str) -> Check:
    file = f"{name}.txt"
    others = [fact for other, facts in _CHORES.items() if other != name for fact in facts]
    return every(mentions(*_CHORES[name], file=file), lacks(*others, file=file), items(2, 4, file))


def _calendar(answer: JobAnswer) -> list[str]:
    """Require twelve months in order, and in each one the right names and days, or a dash."""
    headings = {month: rf"{month}\b[^\w\n]*(?:\d{{4}}[^\w\n]*)?$" for month in _MONTHS}
    months = sections(headings, answer.file("calendar.md"))
    if [*months] != [*_MONTHS]:
        return [f"the headings are {', '.join(months) or 'missing'}, not the twelve months"]
    return [f"{month}: {fault}" for month, days in _MONTHS.items() for fault in _month_faults(months[month], days)]


def _month_faults(text: str, days: Mapping[str, int]) -> list[str]:
    rows = text.splitlines()
    names = [name for month in _MONTHS.values() for name in month]
    faults = [f"{name} is wrong" for name in names if name not in days and re.search(rf"\b{name}\b", text)]
    for name, day in days.items():
        lines = [row for row in rows if re.search(rf"\b{name}\b", row)]
        if not any(re.search(rf"(?<!\d)0?{day}(?!\d)", line) for line in lines):
            faults.append(f"{name} on day {day} is missing")
    places = [text.find(name) for name in days]
    faults += ["the days are not in order"] if places != sorted(places) and len({*days.values()}) > 1 else []
    return faults + (["the dash is missing"] if not days and not re.search(r"[-\u2013\u2014]", text) else [])


def _bare_json(text: str) -> bool:
    """Return whether a text is JSON and nothing else; a fence around it is no text."""
    blocks = code_blocks(text)
    content = blocks[0] if len(blocks) == 1 and text.strip().startswith(("```", "~~~")) else text
    outside = text.replace(content, "").strip().strip("`~").strip()
    try:
        json.loads(content)
    except ValueError:
        return False
    return content is text or outside.casefold() in ("", "json")


def _no_earth_shadow(text: str) -> bool:
    """Return whether a text does not say that the shadow of the earth makes the phases."""
    sentences = re.split(r"[.!?](?:\s|$)", plain(text))
    shadow = re.compile(
        r"earth's (own )?shadow|shadow of (the |our )?earth|shadow from (the )?earth|earth (blocks|casts)"
    )
    denial = re.compile(r"\bnot\b|n't\b|\bnever\b|\bno\b|myth|mistake|misconception|eclipse")
    return not any(shadow.search(sentence) and not denial.search(sentence) for sentence in sentences)


def _text_message(answer: JobAnswer) -> list[str]:
    message = next((part for part in re.split(r"\n\s*\n", answer.text) if re.search(r"\w", part)), "")
    size = len(message.strip(' \n*_>"“”-'))
    return [] if size <= 160 else [f"it has {size} characters, not 160 at most"]


def _not_reversed(old: str, new: str, fault: str) -> Check:
    """Require that a text does not say that the new value became the old one. Both are patterns."""
    unit = r"(?: ?(?:€|eur|euros?|m|met(?:re|er)s?|high|o'clock))?"
    reversal = re.compile(rf"(?<![\d.,]){new}{unit} ?(?:->|→|=>|to|should be|must be) ?€?{old}(?!\d)")
    return holds(lambda text: not reversal.search(plain(text)), fault)


def _unchanged(text: str) -> bool:
    return bool(re.search(r"\bno\b|\bnone\b|nothing|unchanged|\bnot change|n't change|same|identical", plain(text)))


def _each_alone(owners: Mapping[str, str], names: Mapping[str, str]) -> Check:
    """Require that the prose says of one name alone that it has a quality: `owners` has the name by the quality.

    Qualities, and the names in `names`, are patterns without groups. A quality belongs to the name after it in a
    sentence that starts with a quality, else to the name before it. If no sentence has both, then the prose may
    mention no other name.
    """
    groups = {**{f"quality{place}": quality for place, quality in enumerate(owners)}, **names}
    token = re.compile("|".join(f"(?P<{group}>{pattern})" for group, pattern in groups.items()))

    def faults(text: str) -> list[str]:
        pairs: set[tuple[str, str]] = set()
        mentioned: set[str] = set()
        for sentence in re.split(r"[.;!?](?=\s|$)|\n", TABLE_ROW.sub("", text)):
            tokens = [match.lastgroup or "" for match in token.finditer(plain(sentence))]
            mentioned.update(token for token in tokens if token in names)
            if tokens and tokens[0] in names:
                tokens.reverse()
            for place, quality in enumerate(tokens):
                nearest = next((token for token in tokens[place:] if token in names), None)
                if quality not in names and nearest:
                    pairs.add((quality, nearest))
        return [
            f"it does not say of {right} alone: {quality.split('|')[0]}"
            for place, (quality, right) in enumerate(owners.items())
            if ({name for group, name in pairs if group == f"quality{place}"} or mentioned) != {right}
        ]

    return lambda answer: faults(answer.text)


def _has_table(text: str) -> bool:
    return len(TABLE_ROW.findall(text)) >= 4


def _label(year: str, origin: str, *notes: str) -> Check:
    return every(mentions(year, origin), mentions_some(1, *notes), words(6, 33))


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "settings-formats",
        "parts",
        "same settings in three formats please: settings.json, settings.toml, settings.env. the values are in "
        "settings.txt, keys: name, port, debug, language (the code), timeout (a plain number, minutes), contact. in "
        "the .env file the keys in capitals",
        every(
            _settings("settings.json", _json_object),
            _settings("settings.toml", tomllib.loads),
            _settings("settings.env", _env, str.upper),
        ),
        _SETTINGS,
        ("settings.json", "settings.toml", "settings.env"),
        held_out=True,
    ),
    BenchJob(
        "street-party-chores",
        "parts",
        "The chat about our street party has become rather long. Would you make each of the four a small to-do list "
        "out of it? One job per line, and only what that person has to do. Call the files nadia.txt, olaf.txt, "
        "pilar.txt and ruben.txt.",
        every(*map(_chores, _CHORES)),
        _STREET_PARTY,
        ("nadia.txt", "olaf.txt", "pilar.txt", "ruben.txt"),
        held_out=True,
    ),
    BenchJob(
        "birthday-calendar",
        "parts",
        "Can you turn birthdays.txt into a calendar that I can hang up in the kitchen? A heading for each of the "
        "twelve months, below it the days with the names, the earliest first, and just a dash in months without a "
        "birthday. calendar.md",
        _calendar,
        _BIRTHDAYS,
        ("calendar.md",),
        held_out=True,
    ),
    BenchJob(
        "wettest-months",
        "parts",
        "rain.csv has millimetres of rain. For every town I want to know its wettest month and how much rain fell in "
        "it, as one JSON object with the towns as keys, each with an object of month (as in the header) and mm. A "
        "script reads your answer, so nothing but the JSON.",
        every(
            json_with(
                {
                    "Alba": {"month": ("Jul", "July"), "mm": 70},
                    "Corvo": {"month": ("Sep", "September"), "mm": 97},
                    "Dune Bay": {"month": "May", "mm": 30},
                    "Elmton": {"month": ("Aug", "August"), "mm": 61},
                    "Fjordby": {"month": ("Apr", "April"), "mm": 120},
                }
            ),
            holds(_bare_json, "it is not JSON alone"),
        ),
        _RAIN,
        held_out=True,
    ),
    BenchJob(
        "moon-for-three",
        "parts",
        "Why does the moon change its shape from night to night? I need the explanation three times, with the "
        "headings Child, Teenager and Text message. The child is six: 60 words at the most, and neither 'orbit' nor "
        "'phase'. The teenager writes a test about it next week and should read the terms that belong to it. The text "
        "message may have 160 characters.",
        every(
            each_section(
                {
                    "Child": (
                        rf"(?:for (?:a |the )?)?child\b{_HEADING_END}",
                        every(words(12, 62), lacks("orbit*", "phase*"), mentions(("sun*", "light*", "lit"))),
                    ),
                    "Teenager": (
                        rf"(?:for (?:a |the )?)?teenager\b{_HEADING_END}",
                        every(
                            words(30, 350),
                            mentions(("sun*", "solar")),
                            mentions_some(
                                3,
                                ("orbit*", "revol*"),
                                "phase*",
                                "new moon",
                                "full moon",
                                "quarter*",
                                "waxing",
                                "waning",
                                "crescent*",
                                "gibbous",
                                "illuminat*",
                            ),
                        ),
                    ),
                    "Text message": (
                        rf"(?:for (?:a |the )?)?text message\b{_HEADING_END}",
                        every(_text_message, mentions("moon*", ("sun*", "light*", "lit", "illuminat*"))),
                    ),
                }
            ),
            holds(_no_earth_shadow, "it takes the phases for the shadow of the earth"),
        ),
        held_out=True,
    ),
    BenchJob(
        "flyer-proof",
        "parts",
        "The flyer goes to the printer's tonight! Please go through flyer.txt three times: Spelling, Prices (right "
        "are those in prices.csv), Times (right are those in programme.csv). One heading for each of the three and "
        "under it only what is wrong and what it has to be. I'll correct it myself.",
        each_section(
            {
                "Spelling": (rf"spelling\b{_HEADING_END}", mentions("welcome", "playground")),
                "Prices": (
                    rf"prices\b{_HEADING_END}",
                    every(
                        mentions("sausage*", ("3.50*", "3.5", "3,50*")),
                        lacks("cake", "lemonade"),
                        _not_reversed("4[.,]50?", "3[.,]50?", "3.50 is the right price"),
                    ),
                ),
                "Times": (
                    rf"times\b{_HEADING_END}",
                    every(
                        mentions(
                            "raft*", ("15:00*", "15.00", "15 h*", "15h", "3 pm", "3pm", "3:00 pm", "3 p.m*", "3:00pm")
                        ),
                        lacks("puppet*", "brass", "dance"),
                        _not_reversed("15:30", "15:00", "15:00 is the right time"),
                    ),
                ),
            }
        ),
        _FLYER,
        held_out=True,
    ),
    BenchJob(
        "library-queries",
        "parts",
        "Our little library runs on SQLite, the tables are in schema.sql. I'm after three queries, each in its own "
        "file. old.sql: the titles of the books from before 1950, oldest first. out.sql: the title of each book that "
        "is out at the moment, with the name of the member who has it. busy.sql: the names of all members, also those "
        "who never borrowed anything, with the number of their loans.",
        passes(_LIBRARY_TESTS, "old.sql", "out.sql", "busy.sql", given=_LIBRARY),
        _LIBRARY,
        ("old.sql", "out.sql", "busy.sql"),
        held_out=True,
    ),
    BenchJob(
        "pisos-alquiler",
        "parts",
        "Tengo tres anuncios de pisos: centro.txt, parque.txt y rio.txt. Hazme una tabla con los metros cuadrados y lo "
        "que pagaría en total cada mes por cada uno (con comunidad y calefacción, sin garaje). Debajo dime cuál es el "
        "más barato y cuál el más grande.",
        every(
            holds(_has_table, "there is no table"),
            each_part(
                {
                    "centro": (r"\bcentro\b", mentions("58*", "735*")),
                    "parque": (r"\bparque\b", mentions("64*", "720*")),
                    "río": (r"\br[ií]o\b", mentions("71*", "725*")),
                }
            ),
            _each_alone(
                {
                    r"más barat|más económic|menor (?:precio|coste|costo|gasto)|menos cuesta|cuesta menos": "parque",
                    r"más grande|mayor (?:superficie|tamaño)|más ampli|más metros|más espacios": "rio",
                },
                {"centro": r"\bcentro\b", "parque": r"\bparque\b", "rio": r"\br[ií]o\b"},
            ),
            language("es"),
        ),
        _FLATS_ES,
        held_out=True,
    ),
    BenchJob(
        "museumsschilder",
        "parts",
        "Für unsere kleine Ausstellung brauche ich zu jedem Gegenstand in exponate.json ein Schild: oben der Name, "
        "dann Jahr und Herkunft und ein ganzer Satz, der sagt, was daran besonders ist. Kein Schild darf mehr als 30 "
        "Wörter haben, die Inventarnummer gehört nicht drauf. Bitte alle vier in schilder.txt, dazwischen je eine "
        "Leerzeile.",
        every(
            each_part(
                {
                    "Taschenuhr": ("taschenuhr", _label("1887", "Genf*", "Flut*", "Keller*", "läuft*")),
                    "Webstuhl": ("webstuhl", _label("1910", "Chemnitz*", "Generation*", "Tischdecke*", "Familie*")),
                    "Tauchhelm": ("tauchhelm", _label("1934", "Kiel*", "16*", "Fenster*", "abschraub*", "schwer*")),
                    "Kaffeemühle": ("kaffeemühle", _label("1952", "Graz*", "Film*", "Morgenrot", "Bäckerei*")),
                },
                "schilder.txt",
            ),
            lacks("0412", "0077", "1203", "0850", file="schilder.txt"),
            holds(
                lambda text: len(re.findall(r"\n[ \t]*\n", text.strip())) >= 3,
                "there is no empty line between the labels",
                "schilder.txt",
            ),
            holds(lambda text: "{" not in text, "it is JSON", "schilder.txt"),
            language("de", "schilder.txt"),
        ),
        _EXHIBITS_DE,
        ("schilder.txt",),
        held_out=True,
    ),
    BenchJob(
        "samedi-fermeture",
        "parts",
        "À quelle heure ferment, le samedi, la bibliothèque, la déchetterie, la mairie et la piscine ? Les horaires "
        "sont dans les fichiers. Une ligne par lieu, puis lequel ferme le plus tard.",
        every(
            each_part(
                {
                    "bibliothèque": ("biblioth[eè]que", mentions("17*")),
                    "déchetterie": (
                        "d[ée]chett?erie",
                        mentions(("18 h 30", "18h30", "18:30", "18.30")),
                    ),
                    "mairie": (
                        r"\bmairie",
                        mentions(("fermé", "fermée", "fermés", "fermées", "pas ouvert*", "n'ouvre pas", "close")),
                    ),
                    "piscine": ("piscine", every(mentions("20*"), lacks("13*"))),
                }
            ),
            _each_alone(
                {r"plus tard|en dernier|la dernière": "piscine"},
                {
                    "bibliotheque": "biblioth[eè]que",
                    "dechetterie": "d[ée]chett?erie",
                    "mairie": r"\bmairie",
                    "piscine": "piscine",
                },
            ),
            language("fr"),
        ),
        _HOURS_FR,
        held_out=True,
    ),
    BenchJob(
        "what-changed",
        "parts",
        "what's new in the 2024 rules of garden, guest room and laundry compared to 2023? old -> new for each change, "
        "say so if nothing changed, and leave out what stayed as it was",
        every(
            each_part(
                {
                    "garden": (
                        r"\bgarden",
                        every(
                            mentions(("1.50*", "1.5", "1.5m", "150*"), ("1.20*", "1.2", "1.2m", "120*")),
                            lacks("84*", "barbecue*"),
                            _not_reversed("1[.,]50?", "1[.,]20?", "1.50 is the old height"),
                        ),
                    ),
                    "guest room": (
                        r"\bguest[ _-]?room",
                        every(
                            holds(_unchanged, "it does not say that nothing changed"),
                            lacks("25*"),
                        ),
                    ),
                    "laundry": (
                        r"\blaundry",
                        every(
                            mentions(
                                ("1.80*", "1.8"),
                                ("2.20*", "2.2"),
                                ("21*", "9 pm", "9pm", "9:00 pm", "9 p.m*"),
                                ("20:*", "20", "20.00", "20h", "8 pm", "8pm", "8:00 pm", "8 p.m*"),
                            ),
                            lacks("filter*"),
                            _not_reversed("1[.,]80?", "2[.,]20?", "1.80 is the old price"),
                            _not_reversed("21(?::00)?", "20(?::00)?", "21:00 is the old time"),
                        ),
                    ),
                }
            ),
            reworded("\n".join(_RULES.values()), 0.75),
        ),
        _RULES,
        held_out=True,
    ),
    BenchJob(
        "rehearsal-evening",
        "parts",
        "Our band is looking for an evening from Monday to Friday to rehearse, and all four have written a mail, each "
        "in the language they like best. Please make a table with a row for Anton, Beatriz, Claire and Dan and a "
        "column for each of the five days, yes or no in every cell. Below the table say which evening suits everybody.",
        every(
            table(
                *(
                    (name, *(_YES if day in days else _NO for day in range(5)))
                    for name, days in (
                        ("Anton", (1, 3, 4)),
                        ("Beatriz", (0, 1, 3)),
                        ("Claire", (0, 2, 3)),
                        ("Dan", (1, 2, 3, 4)),
                    )
                ),
                columns=6,
            ),
            _each_alone({_SUITS_ALL: "thursday"}, _WEEKDAYS),
        ),
        _BAND_MAILS,
        held_out=True,
    ),
)
