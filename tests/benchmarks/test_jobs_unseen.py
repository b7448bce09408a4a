"""The unseen jobs for one call: each check accepts right answers in any words and names what is wrong with others."""

import re

import pytest

from benchmarks.jobs.measure import JOBS as ALL_JOBS
from benchmarks.jobs.part_files import folder
from benchmarks.jobs.unseen_one_call import JOBS
from tests.benchmarks.chat_answers import Mistake, chat_answer

RIGHT = folder("""
--- lost-cat-poster
poster.txt
```
LOST CAT
Mimi is small and grey with white front paws, a notch in her left ear and a red collar.
Last seen on Sunday evening at about 7, behind the bakery in Weaver Street.
Reward: 80 euros
Please call 0171 555 0136
```
--- crepes-pour-six
- 375 g de farine
- 6 œufs
- 750 ml de lait
- 75 g de beurre fondu
- 3 cuillères à soupe de sucre
- 1 pincée de sel
--- parcel-to-oslo
L, 31.40 euros
--- absender-als-vcard
kontakt.vcf
```
BEGIN:VCARD
VERSION:3.0
N:Aaldering;Henrik;;;
FN:Henrik Aaldering
ORG:Spenglerei Aaldering
TEL;TYPE=CELL:01605550148
EMAIL:h.aaldering@spenglerei.example
END:VCARD
```
--- open-air-films
| Film | Year | Minutes |
|------|------|---------|
| Microcosmos | 1996 | 77 |
| The Red Turtle | 2016 | 80 |
| Paddington 2 | 2017 | 103 |
| Local Hero | 1983 | 111 |
--- cuotas-pendientes
Nuria Costa
Pablo Rivas
Óscar Leal
--- broken-kiosk-json
kiosk.json
```json
{
  "name": "Harbour Kiosk",
  "open": true,
  "currency": "EUR",
  "hours": {"mon-fri": "07:30-19:00", "sat": "08:00-14:00"},
  "products": [
    {"id": 1, "title": "Filter coffee", "price": 2.2},
    {"id": 2, "title": "Cheese roll", "price": 3.8},
    {"id": 7, "title": "Lemonade", "price": 2.5}
  ],
  "cards": false,
  "phone": "+49 431 555 0190"
}
```
--- german-subtitles
szene.srt
```
1
00:00:12,400 --> 00:00:14,900
Du hast mir nie gesagt, dass die Brücke gesperrt ist.

2
00:00:15,200 --> 00:00:17,050
Ich wollte es, aber du warst schon weg.

3
00:00:18,350 --> 00:00:21,700
Dann gehen wir zu Fuß. Es sind nur zwei Meilen
bis zum Leuchtturm.

4
00:00:22,100 --> 00:00:24,600
Bei diesem Nebel? Nicht ohne eine Lampe.
```
--- complaint-without-names
complaint_xxx.txt
```
Dear Ms XXX,

on 8 May your fitter, Mr XXX, connected our new dishwasher. He was friendly and quick, but since that evening
water has been dripping from the hose. I called your office twice and was promised a visit, but nobody came. My
neighbour XXX, who lives below us, now has a stain on her ceiling.

Please send somebody to XXX before Friday. You reach me on XXX or at XXX.

Yours sincerely,
XXX
```
--- commit-message
Retry forecasts and shorten the timeout

A request for a forecast now times out after 10 seconds instead of 30 and is tried up to three times. Retries stop with
the error of the last attempt.
""")

OTHER_WORDS = folder("""
--- lost-cat-poster
Here is the text for your poster:

**poster.txt**
```
Have you seen our cat?

She ran off on Sunday around 19:00 behind the baker's in Weaver St. She is gray, her paws are white, one ear has a
notch. Whoever finds her gets €80.

Tel. +49 171 5550136
```

I hope you find her soon!
--- crepes-pour-six
Voici les quantités pour 6 personnes :

| Ingrédient | Pour 4 | Pour 6 |
|---|---|---|
| Farine | 250 g | 375 g |
| Oeufs | 4 | 6 |
| Lait | 50 cl | 75 cl |
| Beurre fondu | 50 g | 75 g |
| Sucre | 2 c. à soupe | 3 c. à soupe |
| Sel | 1 pincée | 1,5 pincée |
--- parcel-to-oslo
**Size:** L (75 cm is longer than the 60 cm of M)
**Price:** €31.40, as Norway belongs to the rest of Europe. Don't forget the customs form.
--- absender-als-vcard
Gerne! Hier ist die vCard:

```vcard
BEGIN:VCARD
VERSION:3.0
FN;CHARSET=UTF-8:Henrik Aaldering
N;CHARSET=UTF-8:Aaldering;Henrik;;;
ORG:Spenglerei Aaldering;
item1.TEL;TYPE=CELL,VOICE:+49 160 5550148
EMAIL;TYPE=INTERNET,WORK:h.aaldering@spenglerei.example
END:VCARD
```

Speichern Sie den Text als kontakt.vcf.
--- open-air-films
These films fit into two hours:

| **Film** | **Year** | **Minutes** |
|:---|---:|---:|
| *Microcosmos* | 1996 | 77 min |
| *The Red Turtle* | 2016 | 80 min |
| *Paddington 2* | 2017 | 103 min |
| *Local Hero* | 1983 | 111 min |

Spirited Away, Amélie and Some Like It Hot are too long.
--- cuotas-pendientes
Los socios que todavía no han pagado la cuota son:

1. Óscar Leal
2. Nuria Costa
3. Pablo Rivas
--- broken-kiosk-json
There were five mistakes: single quotes, `True`, a missing comma, one comma too many, and a quote that was missing.

```json
{"name": "Harbour Kiosk", "open": true, "currency": "EUR",
 "hours": {"mon-fri": "07:30-19:00", "sat": "08:00-14:00"},
 "products": [{"id": 1, "title": "Filter coffee", "price": 2.20}, {"id": 2, "title": "Cheese roll", "price": 3.80},
              {"id": 7, "title": "Lemonade", "price": 2.50}],
 "cards": false, "phone": "+49 431 555 0190"}
```
--- german-subtitles
1
00:00:12,400 --> 00:00:14,900
Sie haben mir nie erzählt, dass die Brücke geschlossen war.

2
00:00:15,200 --> 00:00:17,050
Das wollte ich ja, aber Sie waren bereits gegangen.

3
00:00:18,350 --> 00:00:21,700
Dann laufen wir eben. Zum Leuchtturm sind es nur 2 Meilen.

4
00:00:22,100 --> 00:00:24,600
In dem Nebel?
Nicht ohne Laterne.
--- complaint-without-names
I have replaced everything that is personal:

complaint_xxx.txt:
```text
Dear XXX,

on 8 May your fitter, XXX XXX, connected our new dishwasher. He was friendly and quick, but since that evening water has
been dripping from the hose. I called your office twice and was promised a visit, but nobody came. My neighbour
[XXX], who lives below us, now has a stain on her ceiling.

Please send somebody to 27 XXX Lane before Friday. You reach me on XXX or at XXX@XXX.example.

Yours sincerely,
XXX XXX
```
--- commit-message
```
weather: time out sooner and try again

- Lower TIMEOUT from 30 to 10 seconds.
- Make up to RETRIES (3) attempts when a request times out; after that, requests.Timeout is raised as before.
```
""")

WRONG: dict[str, list[Mistake]] = {
    "lost-cat-poster": [
        ("80 euros", "50 euros", "'80' is missing"),
        ("0136", "0163", "the phone number with 1715550136 is missing"),
        ("Sunday", "Saturday", "'Sunday' is missing"),
        ("(Please call.*)", r"\1 (Brockmeyer)", "'Brockmeyer' should not be there"),
        ("(Please call.*)", r"She needs her pills!\n\1", "'pill*' should not be there"),
        ("(Please call.*)", r"\1" + " and tell us where you have seen her" * 4, "words, not 18 to 73"),
        ("(?s)^Last seen.*Street.", "She ran away on Sunday.", "'bakery' is missing"),
        ("LOST CAT", "Sure! LOST CAT", "it starts with an introduction"),
    ],
    "crepes-pour-six": [
        ("375 g", "350 g", "the number 375 is missing near 'farine'"),
        ("6 œufs", "4 œufs", "the number 6 is missing near 'œuf*'"),
        ("- 750 ml de lait\n", "", "the number 750 is missing near 'lait'"),
        ("75 g de beurre", "100 g de beurre", "the number 75 is missing near 'beurre'"),
        (r"\Z", "\nLaisser reposer une heure.", "'reposer' should not be there"),
    ],
    "parcel-to-oslo": [
        ("L, 31.40", "M, 22.60", "'L' is missing"),
        ("31.40", "20.70", "'31.40*' is missing"),
        ("L, 31.40", "It costs 31.40", "'L' is missing"),
        ("euros", "euros (20.70 if Norway were in the EU)", "'20.70' should not be there"),
    ],
    "absender-als-vcard": [
        ("01605550148", "04921555010", "not the mobile phone alone"),
        ("(TEL.*)", r"\1\nTEL;TYPE=FAX:04921555011", "not the mobile phone alone"),
        ("VERSION:3.0", "VERSION:4.0", "VERSION is ['4.0']"),
        ("FN:.*\n", "", "FN is missing"),
        ("Spenglerei Aaldering$", "Meisterbetrieb", "ORG is ['Meisterbetrieb']"),
        ("h.aaldering@", "henrik@", "EMAIL is ['henrik@spenglerei.example']"),
        ("END:VCARD\n", "", "kontakt.vcf is no vCard"),
    ],
    "open-air-films": [
        (r"\Z", "| Some Like It Hot | 1959 | 121 |\n", "there are 5 rows, not 4"),
        (r"\| 2016 \| 80", "| 2016 | 88", "the row ['The Red Turtle', 2016, 80] is missing"),
        (r"(\| Local.*\n)", "", "the row ['Local Hero', 1983, 111] is missing"),
        (r"(\| Paddington.*\n)(\| Local.*\n)", r"\2\1", "the order is not"),
        (r"(?s)\| Film.*", "Microcosmos, 1996, 77 minutes", "there is no table"),
        (r" \|$", " | x |", "there are rows that do not have 3 columns"),
    ],
    "cuotas-pendientes": [
        ("Pablo Rivas\n", "", "rivas is missing"),
        ("Nuria Costa", "Lucía Ferrer", "ferrer is wrong"),
        ("\n(?=.)", ", ", "there are 1 items, not 3"),
        (r"\Z", "Los otros han pagado, " + "como se ve en la lista del banco, " * 6, "words, not 3 to 40"),
    ],
    "broken-kiosk-json": [
        ("2.5}", "2.5},", "there is no valid JSON"),
        ("19:00", "18:00", "/hours/mon-fri is"),
        (r"3\.8\},\n.*", "3.8}", "/products is not a list of 3"),
        ('"open": true', '"open": "true"', "a key or the type of a value changed"),
        ('"cards": false,\n', "", "/cards is missing"),
        ('"phone"', '"note": "", "phone"', "a key or the type of a value changed"),
    ],
    "german-subtitles": [
        ("17,050", "17,500", "the numbers and times have changed"),
        ("^3$", "4", "the numbers and times have changed"),
        ("(?s)4\n00:.*", "```", "the numbers and times have changed"),
        ("Ich wollte es.*", "I wanted to, but you had left.", "subtitle 2: 'wollt*' is missing"),
        ("Nebel", "Regen", "subtitle 4: 'Nebel*' is missing"),
        ("zwei Meilen", "drei Meilen", "subtitle 3: 'zwei' is missing"),
    ],
    "complaint-without-names": [
        ("neighbour XXX", "neighbour Ayesha XXX", "'Ayesha' should not be there"),
        ("at XXX", "at XXX@mailbox.example", "'mailbox*' should not be there"),
        ("somebody to XXX", "somebody to 27 Quarry Lane", "'Quarry' should not be there"),
        ("or at XXX", "or at all", "XXX is not there 7 times"),
        ("He was friendly and quick, but", "However,", "the rest has changed"),
        ("stain on her ceiling", "big problem with water", "the rest has changed"),
        ("8 May", "XXX", "the rest has changed"),
    ],
    "commit-message": [
        ("shorten the timeout$", "shorten the timeout for all requests of forecasts", "the first line is too long"),
        ("shorten the timeout$", "shorten the timeout.", "the first line is too long or ends in a full stop"),
        (r"timeout\n\n", "timeout\n", "the second line is not empty"),
        (r"(?s)\n\n.*", "", "there is only one line"),
        ("10 seconds instead of 30", "30 seconds, so from 10 to 30,", "the timeout became shorter"),
        (r"(?s)and is tried.*\Z|Retry forecasts and s", "S", "'retr*' is missing"),
        (r"\Z", "It fails later. It is quicker.", "there are more than three sentences"),
        (r"\A", "Here is the message:\n\n", "it starts with an introduction"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (
            "crepes-pour-six",
            "(?s)\\A.*",
            "Il te faut 375 g de farine, six œufs, 0,75 l de lait, 75 g de beurre fondu, trois "
            "cuillères à soupe de sucre et une pincée de sel.",
        ),
        ("crepes-pour-six", "6 œufs", "œufs : 6 (4 fois 1,5)"),
        ("parcel-to-oslo", "(?s)\\A.*", "A large parcel, 31,40 €"),
        ("absender-als-vcard", "01605550148", "0160/5550148"),
        ("open-air-films", "Minutes", "Length"),
        ("cuotas-pendientes", "^", "- "),
        ("german-subtitles", "gesperrt", "dicht"),
        ("commit-message", r"\A", "client: "),
    ],
)
def test_other_words_for_a_detail_are_accepted(name: str, old: str, new: str) -> None:
    job = next(job for job in JOBS if job.name == name)
    assert re.search(old, RIGHT[name])
    assert job.check(chat_answer(job, re.sub(old, new, RIGHT[name], flags=re.MULTILINE))) == []


def test_unseen_jobs_differ_from_all_others() -> None:
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG) == 10
    assert all(job.held_out and job.group == "one-call" for job in JOBS)
    assert len(ALL_JOBS) == len({job.name for job in ALL_JOBS}) == len({job.request for job in ALL_JOBS})
    openings = [tuple(job.request.casefold().split()[:2]) for job in ALL_JOBS if job.group == "one-call"]
    assert len(openings) == len({*openings})
    for job in JOBS:
        assert all(name in job.request for name in job.outputs), job.name
        assert 30 <= sum(len(text.split()) for text in job.files.values()) <= 300, job.name
