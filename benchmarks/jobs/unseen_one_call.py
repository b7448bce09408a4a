"""More held-out jobs for which one call is enough: notes, amounts, rules, formats, lists, subtitles and messages."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.jobs.checks import (
    Fact,
    code_blocks,
    either,
    every,
    holds,
    in_turn,
    items,
    json_with,
    lacks,
    language,
    mentions,
    mentions_some,
    no_chatter,
    number,
    plain,
    rows_in_order,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob, Check, JobAnswer
from benchmarks.jobs.part_checks import only
from benchmarks.jobs.part_files import folder

_CAT: Final = folder("""
--- cat.txt
- Mimi, 3 years old, comes when you call her (mostly)
- small, grey, white front paws, a notch in the left ear
- red collar with a bell. No, the bell fell off in May
- last seen Sunday evening at about 7, behind the bakery in Weaver Street, a dog chased her
- needs pills for her thyroid, the vet says two weeks without them are no problem
- reward 50 euros?? Jan says 80. ok, 80
- call 0171 555 0136 (that's Jan, my phone is broken)
- we live in 14 Tanner Row, Brockmeyer is on the door
""")

_CREPES: Final = folder("""
--- crepes.md
# Crêpes de mamie

Pour 4 personnes :

- 250 g de farine
- 4 œufs
- 500 ml de lait
- 50 g de beurre fondu
- 2 cuillères à soupe de sucre
- 1 pincée de sel

Mélanger la farine, le sucre et le sel, ajouter les œufs, puis le lait peu à peu. Laisser reposer une heure. Cuire deux
minutes de chaque côté.
""")

_TARIFF: Final = folder("""
--- tariff.md
# Parcels

A parcel has the smallest size of which it keeps both limits.

| Size | Weight up to | Longest side up to |
|------|-------------:|-------------------:|
| S    | 2 kg         | 35 cm              |
| M    | 5 kg         | 60 cm              |
| L    | 10 kg        | 120 cm             |
| XL   | 30 kg        | 120 cm             |

Prices in euros:

| To             | S     | M     | L     | XL    |
|----------------|------:|------:|------:|------:|
| Germany        | 4.90  | 6.40  | 9.80  | 18.50 |
| EU             | 12.90 | 15.30 | 20.70 | 39.90 |
| Rest of Europe | 14.20 | 22.60 | 31.40 | 48.10 |

Norway, Switzerland and the United Kingdom are not in the EU. Parcels to these three also need a customs form.
""")

_SIGNATURE: Final = folder("""
--- mail.txt
Hallo Frau Petersen,

anbei wie besprochen das Angebot für die Dachrinne. Rufen Sie bei Fragen einfach an, am besten mobil, denn im Büro bin
ich selten.

Viele Grüße
Henrik Aaldering

--
Spenglerei Aaldering
Meisterbetrieb seit 1978
Tel. 04921 555010 | Fax 04921 555011 | mobil 0160 5550148
h.aaldering@spenglerei.example
Am Delft 9, 26721 Emden
""")

_FILMS: Final = folder("""
--- films.txt
Wishes for the open-air week:
Paddington 2 (2017) 103 min, from Sophie
Spirited Away (2001) 125 min, from the twins
Local Hero (1983) 111 min, from Graham
Microcosmos (1996) 77 min, from the school
Amélie (2001) 122 min, from nearly everybody
The Red Turtle (2016) 80 min, from Li
Some Like It Hot (1959) 121 min, from grandpa
""")

_DUES: Final = folder("""
--- socios.txt
Asociación de vecinos, socios de este año
Lucía Ferrer
Andrés Molina
Carmen Vidal
Hugo Prieto
Nuria Costa
Pablo Rivas
Teresa Bravo
Óscar Leal
--- pagos.csv
fecha;ordenante;importe;concepto
03/02;MOLINA ANDRES;25,00;cuota
05/02;Carmen Vidal;25,00;cuota anual
05/02;FERRER LUCIA;25,00;
11/02;Bar La Plaza;60,00;donativo fiesta
12/02;TERESA BRAVO;25,00;cuota y gracias
14/02;Prieto Hugo;25,00;cuota
""")

_KIOSK: Final = folder("""
--- kiosk.json
{
  'name': "Harbour Kiosk",
  "open": True,
  "currency": "EUR"
  "hours": {"mon-fri": "07:30-19:00", "sat": "08:00-14:00"},
  "products": [
    {"id": 1, "title": "Filter coffee", "price": 2.2},
    {"id": 2, "title": "Cheese roll", "price": 3.8},
    {"id": 7, "title": "Lemonade", "price": 2.5},
  ],
  "cards": false,
  "phone": "+49 431 555 0190
}
""")
_KIOSK_REPAIRED: Final = {
    "name": "Harbour Kiosk",
    "open": True,
    "currency": "EUR",
    "hours": {"mon-fri": "07:30-19:00", "sat": "08:00-14:00"},
    "products": [
        {"id": 1, "title": "Filter coffee", "price": 2.2},
        {"id": 2, "title": "Cheese roll", "price": 3.8},
        {"id": 7, "title": "Lemonade", "price": 2.5},
    ],
    "cards": False,
    "phone": "+49 431 555 0190",
}

_SUBTITLES: Final = folder("""
--- scene.srt
1
00:00:12,400 --> 00:00:14,900
You never told me that the bridge was closed.

2
00:00:15,200 --> 00:00:17,050
I wanted to, but you had already left.

3
00:00:18,350 --> 00:00:21,700
Then we walk. It is only two miles
to the lighthouse.

4
00:00:22,100 --> 00:00:24,600
In this fog? Not without a lamp.
""")
_CUES: Final[Mapping[str, Sequence[Fact]]] = {  # the time of each subtitle, and what its translation has to mention
    "00:00:12,400 --> 00:00:14,900": ["Brücke*", ("geschlossen", "gesperrt", "zu ist", "zu war", "dicht")],
    "00:00:15,200 --> 00:00:17,050": [("wollt*", "vor"), ("schon", "bereits", "weg", "fort", "gegangen")],
    "00:00:18,350 --> 00:00:21,700": [("Leuchtturm*", "Leuchtfeuer*"), ("zwei", "2")],
    "00:00:22,100 --> 00:00:24,600": ["Nebel*", ("Lampe*", "Laterne*", "Licht", "Leuchte", "Taschenlampe")],
}

_COMPLAINT: Final = folder("""
--- complaint.txt
Dear Ms Halloran,

on 8 May your fitter, Mr Desmond Pike, connected our new dishwasher. He was friendly and quick, but since that evening
water has been dripping from the hose. I called your office twice and was promised a visit, but nobody came. My
neighbour Ayesha Karim, who lives below us, now has a stain on her ceiling.

Please send somebody to 27 Quarry Lane before Friday. You reach me on 020 5550 0187 or at g.tremblay@mailbox.example.

Yours sincerely,
Nadine Tremblay
""")
_PERSONAL: Final = (
    "Halloran",
    "Desmond",
    "Pike",
    "Ayesha",
    "Karim",
    "Quarry",
    "020",
    "5550",
    "0187",
    "g.tremblay*",
    "mailbox*",
    "Nadine",
    "Tremblay",
)

_CHANGE: Final = {
    "change.diff": '''\
--- a/weather/client.py
+++ b/weather/client.py
@@ -5,12 +5,18 @@
 URL = "https://weather.example/api"
-TIMEOUT = 30  # seconds
+TIMEOUT = 10  # seconds
+RETRIES = 3


 def forecast(city):
     """Return the forecast for a city."""
-    return requests.get(URL, params={"q": city}, timeout=TIMEOUT).json()
+    for attempt in range(RETRIES):
+        try:
+            return requests.get(URL, params={"q": city}, timeout=TIMEOUT).json()
+        except requests.Timeout:
+            if attempt == RETRIES - 1:
+                raise
'''
}


def _has_phone_number(digits: str) -> Check:
    """Require a phone number, whose digits may be grouped in any way."""
    return holds(
        lambda text: digits in re.sub(r"\D", "", text), f"the phone number with {digits} is missing", "poster.txt"
    )


def _amount(value: float, ingredient: Fact) -> Check:
    """Require an amount in the line, the row or the part of a sentence that has the ingredient."""
    check = number(value, near=ingredient)

    def faults(answer: JobAnswer) -> list[str]:
        digits = {"six": "6", "trois": "3"}
        text = re.sub(r"\b(six|trois)\b", lambda match: digits[match[0].casefold()], answer.text, flags=re.IGNORECASE)
        return check(JobAnswer("\n".join(re.split(r";\s|,\s|\bet\b|\bpuis\b", text))))

    return faults


def _vcard(answer: JobAnswer) -> list[str]:
    """Require a vCard with a name, a company, an address for mail, and the mobile phone alone."""
    lines = [line.strip() for line in answer.file("kontakt.vcf").strip().splitlines()]
    if not lines or lines[0].upper() != "BEGIN:VCARD" or lines[-1].upper() != "END:VCARD":
        return ["kontakt.vcf is no vCard"]
    values: dict[str, list[str]] = {}
    for name, value in (line.split(":", 1) for line in lines if ":" in line):
        values.setdefault(name.split(";")[0].rpartition(".")[2].upper(), []).append(value.strip())
    phones = [re.sub(r"\D", "", value) for value in values.get("TEL", [])]
    wanted = {
        "VERSION": r"3\.0",
        "FN": "henrik aaldering",
        "ORG": "spenglerei aaldering;*",
        "EMAIL": r"(?:mailto:)?h\.aaldering@spenglerei\.example",
    }
    faults = [
        f"{name} is {values.get(name, 'missing')}"
        for name, pattern in wanted.items()
        if not any(re.fullmatch(pattern, plain(value)) for value in values.get(name, []))
    ]
    if len(phones) != 1 or not re.fullmatch(r"(?:0|49|0049|490)1605550148", phones[0]):
        faults.append(f"TEL is {phones}, not the mobile phone alone")
    return faults


def _subtitles(answer: JobAnswer) -> list[str]:
    """Require the numbers and times of the subtitles as they were, and under each what it says."""
    text = answer.file("szene.srt").strip()
    blocks = [block.strip().splitlines() for block in re.split(r"\n\s*\n", text)]
    heads = [[line.strip() for line in block[:2]] for block in blocks]
    if heads != [[str(place), time] for place, time in enumerate(_CUES, 1)]:
        return ["szene.srt: the numbers and times have changed"]
    return [
        f"subtitle {block[0].strip()}: {fault}"
        for block, facts in zip(blocks, _CUES.values(), strict=True)
        for fault in mentions(*facts)(JobAnswer("\n".join(block[2:])))
    ]


def _rest_unchanged(text: str) -> bool:
    """Return whether a text is the complaint word for word, but for what is personal in it."""
    optional = {"27", "lane", "ms", "mr", "example", "g", *(word.rstrip("*").casefold() for word in _PERSONAL)}
    before, after = (
        [word for word in re.findall(r"\w+", plain(it)) if word not in optional and not re.fullmatch("x+", word)]
        for it in (_COMPLAINT["complaint.txt"], text)
    )
    return before == after


def _message(*checks: Check) -> Check:
    """Apply checks to the message: to the only code block of an answer, else to all of its text."""

    def faults(answer: JobAnswer) -> list[str]:
        blocks = code_blocks(answer.text)
        return every(*checks)(JobAnswer((blocks[0] if len(blocks) == 1 else answer.text).strip()))

    return faults


def _has_short_subject(text: str) -> bool:
    subject = text.splitlines()[0].strip().strip("*`")
    return len(subject) <= 60 and not subject.endswith(".")


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "lost-cat-poster",
        "one-call",
        "Our cat has run away and I'm too upset to write anything sensible. Could you make the text of a poster out of "
        "my notes in cat.txt? How she looks, where and when she was last seen, the reward and the number to call, in "
        "at most 70 words, as poster.txt. Please leave out my surname, our address and everything about her health.",
        every(
            mentions(
                ("grey", "gray"),
                "Sunday",
                ("bakery", "baker's"),
                ("Weaver Street", "Weaver St"),
                ("80", "80eur", "eighty"),
                file="poster.txt",
            ),
            mentions_some(2, "paw*", ("notch*", "ear"), "collar", "small", "white", file="poster.txt"),
            _has_phone_number("1715550136"),
            lacks("Brockmeyer", "Tanner*", "50", "50€", "vet", "pill*", "thyroid", file="poster.txt"),
            words(18, 73, "poster.txt"),
            no_chatter("poster.txt"),
        ),
        _CAT,
        ("poster.txt",),
        held_out=True,
    ),
    BenchJob(
        "crepes-pour-six",
        "one-call",
        "Samedi on sera 6 à table. Tu peux adapter les quantités de crepes.md ? Juste la liste des ingrédients, sans "
        "la préparation, je la connais.",
        every(
            _amount(375, "farine"),
            _amount(6, ("œuf*", "oeuf*")),
            either(
                _amount(750, "lait"),
                mentions("lait", ("75 cl", "75cl", "0,75 l", "0.75 l", "7,5 dl", "3/4 l", "3/4 de litre")),
            ),
            _amount(75, "beurre"),
            _amount(3, "sucre"),
            mentions("sel"),
            lacks("reposer", "chaque côté", "peu à peu"),
            words(8, 120),
        ),
        _CREPES,
        held_out=True,
    ),
    BenchJob(
        "parcel-to-oslo",
        "one-call",
        "what does a parcel to oslo cost? 4.2 kilos, 75 x 40 x 20 cm, prices are in tariff.md. just size and price",
        every(
            mentions(("L", "large"), ("31.40*", "31,40*", "31.4", "31,4")),
            lacks("22.60", "20.70", "15.30", "48.10", "size M", "size: M", "medium"),
            words(2, 80),
        ),
        _TARIFF,
        held_out=True,
    ),
    BenchJob(
        "absender-als-vcard",
        "one-call",
        "Ich möchte den Absender von mail.txt in mein Adressbuch übernehmen. Machst du mir bitte eine vCard (Version "
        "3.0) daraus, als kontakt.vcf? Name, Firma, Handynummer und E-Mail-Adresse reichen, Festnetz und Fax sollen "
        "nicht hinein.",
        _vcard,
        _SIGNATURE,
        ("kontakt.vcf",),
        held_out=True,
    ),
    BenchJob(
        "open-air-films",
        "one-call",
        "People have sent their wishes for the open-air cinema, they are in films.txt. We have to be done two hours "
        "after we start, so nothing longer than that. Give me the rest as a Markdown table with film, year and "
        "minutes, the shortest film on top.",
        every(
            table(
                ("Microcosmos", 1996, 77),
                ("The Red Turtle", 2016, 80),
                ("Paddington 2", 2017, 103),
                ("Local Hero", 1983, 111),
                count=4,
                columns=3,
            ),
            rows_in_order("Microcosmos", "Red Turtle", "Paddington 2", "Local Hero"),
        ),
        _FILMS,
        held_out=True,
    ),
    BenchJob(
        "cuotas-pendientes",
        "one-call",
        "¿Quién no ha pagado todavía la cuota? Los socios están en socios.txt y lo que ha entrado en el banco en "
        "pagos.csv. Solo los nombres, uno por línea.",
        every(
            only(
                ["costa", "rivas", "leal"], ["ferrer", "molina", "vidal", "prieto", "costa", "rivas", "bravo", "leal"]
            ),
            items(3),
            words(3, 40),
        ),
        _DUES,
        held_out=True,
    ),
    BenchJob(
        "broken-kiosk-json",
        "one-call",
        "Since I edited kiosk.json by hand our till doesn't start any more: `Expecting property name enclosed in "
        "double quotes: line 2 column 3`. I guess that's not the only mistake. Can you give me back the whole "
        "kiosk.json so that it's valid JSON again? Names and values have to stay the same.",
        in_turn(
            json_with(_KIOSK_REPAIRED, "kiosk.json"),
            holds(
                lambda text: json.loads(text) == _KIOSK_REPAIRED, "a key or the type of a value changed", "kiosk.json"
            ),
        ),
        _KIOSK,
        ("kiosk.json",),
        held_out=True,
    ),
    BenchJob(
        "german-subtitles",
        "one-call",
        "Please translate scene.srt into German, the result goes into szene.srt. Mind the format: numbers and times "
        "must stay exactly as they are.",
        every(_subtitles, language("de", "szene.srt"), no_chatter("szene.srt")),
        _SUBTITLES,
        ("szene.srt",),
        held_out=True,
    ),
    BenchJob(
        "complaint-without-names",
        "one-call",
        "We'd like to show complaint.txt in a training. Replace the names of persons, the street, the phone number and "
        "the e-mail address with XXX (each time) and leave everything else word for word as it is. File name: "
        "complaint_xxx.txt",
        every(
            lacks(*_PERSONAL, file="complaint_xxx.txt"),
            holds(
                lambda text: len(re.findall("x{3,}", plain(text))) >= 7, "XXX is not there 7 times", "complaint_xxx.txt"
            ),
            holds(_rest_unchanged, "the rest has changed", "complaint_xxx.txt"),
        ),
        _COMPLAINT,
        ("complaint_xxx.txt",),
        held_out=True,
    ),
    BenchJob(
        "commit-message",
        "one-call",
        "commit message for change.diff? first line max 60 chars, no full stop at its end, then an empty line, then "
        "1-3 sentences about what's different now. only the message please, in English",
        _message(
            holds(_has_short_subject, "the first line is too long or ends in a full stop"),
            holds(lambda text: not "".join(text.splitlines()[1:2]).strip(), "the second line is not empty"),
            holds(lambda text: len(text.splitlines()) > 2, "there is only one line"),
            mentions(
                ("timeout*", "time out", "time-out"),
                ("10", "10s", "ten", "lower*", "reduc*", "short*", "decreas*", "cut*"),
                ("retr*", "attempt*", "tries", "again", "repeat*"),
            ),
            holds(
                lambda text: (
                    not re.search(
                        r"from 10 ?s?(econds)? to 30|(increas|extend)(e|es|ed|s|ing)? (the )?(request )?timeout",
                        plain(text),
                    )
                ),
                "the timeout became shorter",
            ),
            holds(
                lambda text: len(re.findall(r"[.!?](?=\s+\S|\s*$)", text.partition("\n")[2])) <= 3,
                "there are more than three sentences",
            ),
            words(12, 110),
            no_chatter(),
        ),
        _CHANGE,
        held_out=True,
    ),
)
