"""Held-out jobs for which one call is enough, simple enough for a careful model of 1.5B parameters."""

import re
from typing import Final

from benchmarks.jobs.checks import (
    every,
    holds,
    in_order,
    items,
    json_with,
    lacks,
    language,
    mentions,
    number,
    plain,
    reworded,
    words,
)
from benchmarks.jobs.job import BenchJob
from benchmarks.jobs.part_checks import only

_ROTA: Final = """\
Copper Kettle, week 32

Monday: early Anouk, late Piotr
Tuesday: early Piotr, late Selma
Wednesday: early Selma, late Anouk
Thursday: early Anouk, late Deshawn
Friday: early Deshawn, late Piotr

Phones
Anouk 555-0119
Deshawn 555-0164
Piotr 555-0178
Selma 555-0131
"""
_FORM: Final = """\
Registration for boarding

Owner: Frances Okoye, 4 Mill Lane
Dates: 2 to 16 August
The dog is called Biscuit. He is a border collie and turned 4 in March.
He eats twice a day and does not like thunder.
Vaccinations are up to date.
"""
_HEATING: Final = "hey, heating in flat 7 is dead since monday, 15 degrees in here!! send someone asap"
_VILLAGE: Final = """\
town hall 1892
mill 1655
fire station 1958
church tower 1704
school 1926
railway station 1871
"""
_REPLIES: Final = """\
Barbecue on 12 July, replies so far

Amina: yes, brings a salad
Bert: no, he is away
Clara: no answer yet
Dmitri: yes
Elif: no answer yet
Farid: yes, with both kids
Greta: no answer yet
Hugo: no, has to work
"""
_WARRANTY: Final = """\
Garantía del patinete Rodalia X2

El patinete tiene una garantía de 24 meses.
La batería tiene una garantía de 12 meses.
Los neumáticos no tienen garantía.

Problemas con la batería: baterias@rodalia.example
Otros problemas: info@rodalia.example
Guarde el recibo de compra.
"""
_BRIDGE: Final = """\
Der Gemeinderat hat am Montag über die alte Fußgängerbrücke an der Aue gesprochen.
Das Geländer ist verrostet, und einige Bretter sind morsch.
Deshalb wird die Brücke ab dem 3. Mai für sechs Wochen gesperrt und repariert.
Fußgänger nehmen in dieser Zeit bitte den Mühlsteg.
Die Arbeiten kosten 48.000 Euro, die das Land zur Hälfte bezahlt.
"""
_SIGN: Final = """\
OPEN EVERY DAY EXCEPT MONDAY

Fresh bred and rolls from 6 am.
Coffee to take away: 2.20
Please ask us about alergens.
Dogs are welcome outside.
"""
_ARTICLE: Final = """\
Since Tuesday the city library has lent out more than books. Six sewing machines stand on a shelf next to the
entrance, and everybody with a library card may take one home for two weeks. "Many people want to mend their
clothes, but a machine is expensive," says the librarian, Joyce Adeyemi. The first four were gone within an hour.
Thread and needles are included. On Saturdays a tailor shows beginners how it works.
"""
_PACKING: Final = """\
Things we must not forget this time:
the tent, of course,
the sleeping bags,
the stove
and matches for it,
a torch,
and the first-aid kit.
"""

JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "late-shift",
        "one-call",
        "quick one: who has the late shift on thursday and what's their number? rota.txt",
        every(
            mentions("Deshawn", ("555 0164", "5550164")),
            lacks("555 0119", "555 0178", "555 0131"),
            words(2, 60),
        ),
        {"rota.txt": _ROTA},
        held_out=True,
    ),
    BenchJob(
        "dog-as-json",
        "one-call",
        "Our kennel software reads JSON. Please put the dog from form.txt into dog.json, with the keys name, breed and "
        "age (a number).",
        json_with({"name": "Biscuit", "breed": "border collie", "age": 4}, "dog.json"),
        {"form.txt": _FORM},
        ("dog.json",),
        held_out=True,
    ),
    BenchJob(
        "formal-to-landlord",
        "one-call",
        f'My landlord is rather old-fashioned. Please make a formal, polite message out of this: "{_HEATING}"',
        every(
            language("en"),
            mentions(("7", "seven"), "Monday", ("15*", "fifteen"), ("heat*", "radiator*")),
            lacks("hey", "asap", "!!", "dead"),
            words(15, 200),
            reworded(_HEATING, 0.75),
        ),
        held_out=True,
    ),
    BenchJob(
        "oldest-building-first",
        "one-call",
        "Sort the buildings in village.txt by age, the oldest first. One per line, with the year.",
        every(
            items(6),
            in_order("mill", "church tower", "railway station", "town hall", "school", "fire station"),
            *(
                number(year, near=building)
                for building, year in (
                    ("mill", 1655),
                    ("church tower", 1704),
                    ("railway station", 1871),
                    ("town hall", 1892),
                    ("school", 1926),
                    ("fire station", 1958),
                )
            ),
        ),
        {"village.txt": _VILLAGE},
        held_out=True,
    ),
    BenchJob(
        "no-answer-yet",
        "one-call",
        "Who hasn't told us yet whether they come to the barbecue? It's all in replies.txt, I only need the names.",
        every(
            only(("clara", "elif", "greta"), ("amina", "bert", "clara", "dmitri", "elif", "farid", "greta", "hugo")),
            words(3, 40),
        ),
        {"replies.txt": _REPLIES},
        held_out=True,
    ),
    BenchJob(
        "bateria-con-garantia",
        "one-call",
        "Se me ha estropeado la batería del patinete. ¿Cuántos meses de garantía tiene, y a qué correo escribo? Está "
        "en garantia.txt",
        every(
            mentions(("12*", "doce", "un año"), "baterias@rodalia.example"),
            lacks("info@rodalia.example"),
            words(3, 80),
        ),
        {"garantia.txt": _WARRANTY},
        held_out=True,
    ),
    BenchJob(
        "thanks-in-french",
        "one-call",
        'How do I write this in French, politely? It goes to my host family. "Thank you very much for the lovely week. '
        'I left my green jacket in the kitchen."',
        every(
            language("fr"),
            mentions(
                ("merci", "remerci*"),
                "semaine",
                ("veste", "blouson", "manteau"),
                ("vert", "verte"),
                "cuisine",
            ),
            words(10, 110),
        ),
        held_out=True,
    ),
    BenchJob(
        "bruecke-in-einem-satz",
        "one-call",
        "Fass mir aktuell.txt bitte in einem einzigen Satz zusammen, höchstens 30 Wörter. Kommt in den Schaukasten.",
        every(
            language("de"),
            words(7, 34),
            mentions(
                ("Brücke*", "Fußgängerbrücke*", "Fussgängerbrücke*"),
                ("3. Mai", "3.5.", "03.05.", "dritten Mai", "sechs Wochen", "6 Wochen", "sechswöchig*"),
                ("gesperrt*", "sperr*", "geschlossen", "Sperrung", "repariert", "Reparatur*", "saniert", "renoviert"),
            ),
            holds(
                lambda text: len(re.findall(r"(?<!\d)[.!?](?=\s+[A-ZÄÖÜ]|\s*$)", text.strip())) <= 1,
                "there are more sentences",
            ),
        ),
        {"aktuell.txt": _BRIDGE},
        held_out=True,
    ),
    BenchJob(
        "two-typos",
        "one-call",
        "there are two spelling mistakes in sign.txt. fix them, leave everything else alone and give me the whole text",
        every(
            mentions(
                "open every day except monday",
                "fresh bread and rolls from 6 am",
                "coffee to take away: 2.20",
                "please ask us about allergens",
                "dogs are welcome outside",
            ),
            lacks("fresh bred and rolls", "ask us about alergens"),
            words(20, 90),
        ),
        {"sign.txt": _SIGN},
        held_out=True,
    ),
    BenchJob(
        "fitting-headline",
        "one-call",
        "Which headline fits article.txt? 1) Library closes over the summer 2) Borrow a sewing machine from the "
        "library 3) Tailor opens a shop in the old station. Just the number please.",
        every(
            holds(lambda text: set(re.findall(r"\b[123]\b", text)) <= {"2"}, "it is another headline"),
            mentions(("2", "sewing machine")),
            lacks("closes over", "opens a shop"),
            words(1, 30),
        ),
        {"article.txt": _ARTICLE},
        held_out=True,
    ),
    BenchJob(
        "packing-checklist",
        "one-call",
        "we're off camping on friday!! make packing.txt a markdown checklist (- [ ]) pls, one thing per line, save as "
        "checklist.md",
        every(
            holds(
                lambda text: len(re.findall(r"^\s*[-*+] \[ ?\] *\w", text, re.MULTILINE)) == 6,
                "it does not have six boxes",
                "checklist.md",
            ),
            mentions(
                "tent",
                ("sleeping bags", "sleeping bag"),
                "stove",
                "matches",
                ("torch", "flashlight"),
                ("first-aid kit", "first aid kit", "aid kit"),
                file="checklist.md",
            ),
        ),
        {"packing.txt": _PACKING},
        ("checklist.md",),
        held_out=True,
    ),
    BenchJob(
        "full-disk-for-dad",
        "one-call",
        'My dad\'s laptop says "Your startup disk is almost full". What does that mean and what can he do about it? '
        "Two or three simple sentences that I can read to him on the phone.",
        every(
            language("en"),
            mentions(
                ("space", "room", "storage", "full*", "memory"),
                (
                    "delet*",
                    "remov*",
                    "free*",
                    "empty*",
                    "clear*",
                    "clean*",
                    "uninstall*",
                    "move*",
                    "moving",
                    "transfer*",
                    "get rid*",
                    "throw*",
                    "make some room",
                ),
            ),
            words(15, 120),
            holds(
                lambda text: len(re.findall(r"[.!?](?=[\s\"']|$)", plain(text))) <= 4,
                "there are more than three sentences",
            ),
        ),
        held_out=True,
    ),
)
