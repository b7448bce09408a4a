"""The simple held-out jobs: each check accepts right answers in any words and names what is wrong with others.

Answers are written as a chat writes them, with their files in the text.
"""

import re

import pytest

from benchmarks.jobs import simple_one_call, simple_parts
from benchmarks.jobs.measure import JOBS as ALL_JOBS
from benchmarks.jobs.part_files import folder
from tests.benchmarks.chat_answers import Mistake, chat_answer

JOBS = (*simple_one_call.JOBS, *simple_parts.JOBS)

RIGHT = folder("""
--- late-shift
Deshawn, 555-0164
--- dog-as-json
dog.json
```json
{"name": "Biscuit", "breed": "border collie", "age": 4}
```
--- formal-to-landlord
Dear Sir or Madam,

I am writing to inform you that the heating in flat 7 has not been working since Monday. The temperature in here is
only 15 degrees. I would be grateful if you could send somebody as soon as possible.

Yours faithfully,
[Your name]
--- oldest-building-first
mill 1655
church tower 1704
railway station 1871
town hall 1892
school 1926
fire station 1958
--- no-answer-yet
Clara
Elif
Greta
--- bateria-con-garantia
La batería tiene 12 meses de garantía. Escribe a baterias@rodalia.example.
--- thanks-in-french
Merci beaucoup pour cette belle semaine. J'ai oublié ma veste verte dans la cuisine.
--- bruecke-in-einem-satz
Die alte Fußgängerbrücke an der Aue ist ab dem 3. Mai sechs Wochen lang gesperrt, weil sie repariert wird.
--- two-typos
OPEN EVERY DAY EXCEPT MONDAY

Fresh bread and rolls from 6 am.
Coffee to take away: 2.20
Please ask us about allergens.
Dogs are welcome outside.
--- fitting-headline
2
--- packing-checklist
checklist.md
```markdown
- [ ] tent
- [ ] sleeping bags
- [ ] stove
- [ ] matches
- [ ] torch
- [ ] first-aid kit
```
--- full-disk-for-dad
The laptop has hardly any space left for new files. You can delete photos and programs that you no longer need, and
then empty the trash.
--- water-for-plants
basil: every day
cactus: every three weeks
fern: twice a week
orchid: once a week
--- urgent-mails
mail1: urgent
mail2: can wait
mail3: can wait
mail4: urgent
mail5: can wait
--- counter-sign
German: Bitte bestellen Sie an der Theke. Wir sprechen Englisch.
French: Veuillez commander au comptoir. Nous parlons anglais.
Spanish: Por favor, pida en el mostrador. Hablamos inglés.
--- trip-for-two-readers
parents.txt
```
Dear parents,
on Tuesday, 12 June, we visit the aquarium in Kiel. The bus leaves from the school gate at 8:15, and we are back at
about 15:30. The trip costs 9 euros.
```
kids.txt
```
Hooray, we are going to the aquarium! Pack a tasty lunch and your rain jacket, and get ready for sharks.
```
--- trois-velos
velo1.txt : rouge, 120 euros
velo2.txt : vert, 45 euros
velo3.txt : bleu, 240 euros
--- tea-menu
Sencha: A fresh green tea from Japan with a gentle note of grass.
Rooibos: Enjoy the soft vanilla taste of South Africa, all without caffeine.
Chamomile: Flowers from our own garden bring your evening to a soothing end.
Lapsang: Dried over pinewood, this black tea from China warms you with its smoke.
--- mistake-in-each-caption
harbour.txt: mornign -> morning
market.txt: Wensday -> Wednesday
bridge.txt: biult -> built
--- letters-to-the-council
a.txt: Hedwig Paulsen would like a bench at the bus stop in Elm Street.
b.txt: Omar Rashid asks for the library to be open on Sundays.
c.txt: Tilda Brook wants the broken street lamp near number 12 to be repaired.
--- camping-fragen
1. Ja, Ihr Hund ist bei uns an der Leine willkommen und kostet 3 Euro pro Nacht.
2. Sie können bis 20 Uhr ankommen.
3. Das WLAN ist kostenlos, aber es gibt es nur im Café.
""")

OTHER_WORDS = folder("""
--- late-shift
On Thursday **Deshawn** works late (Anouk has the early shift). You can call Deshawn on 555 0164.
--- dog-as-json
Here's the JSON:

```json
{
  "name": "Biscuit",
  "breed": "Border Collie",
  "age": 4
}
```

Save it as dog.json.
--- formal-to-landlord
Dear Mr. Smith,

I regret to inform you that the radiators in my apartment (no. 7) stopped working on Monday. As a result, it is merely
15°C inside. Would you kindly arrange for a technician to visit at your earliest convenience?

Kind regards
--- oldest-building-first
Here are the buildings, the oldest first:

1. **Mill** - 1655
2. **Church tower** - 1704
3. **Railway station** - 1871
4. **Town hall** - 1892
5. **School** - 1926
6. **Fire station** - 1958
--- no-answer-yet
Still no answer from: Greta, Clara and Elif.
--- bateria-con-garantia
La garantía de la batería es de doce meses (la del patinete, 24). Para reclamar, manda un correo a
**baterias@rodalia.example** y guarda el recibo.
--- thanks-in-french
You can write:

"Je vous remercie infiniment pour la merveilleuse semaine que j'ai passée chez vous. J'ai laissé mon blouson vert dans
la cuisine."
--- bruecke-in-einem-satz
Wegen Reparaturen wird die Brücke an der Aue für sechs Wochen geschlossen; bitte nutzen Sie den Mühlsteg.
--- two-typos
I corrected "bred" to "bread" and "alergens" to "allergens":

```
OPEN EVERY DAY EXCEPT MONDAY

Fresh bread and rolls from 6 am.
Coffee to take away: 2.20
Please ask us about allergens.
Dogs are welcome outside.
```
--- fitting-headline
**2)** Borrow a sewing machine from the library
--- packing-checklist
```markdown
# Packing list

* [ ] The tent
* [ ] The sleeping bags
* [ ] The stove
* [ ] Matches for the stove
* [ ] A torch
* [ ] The first-aid kit
```
--- full-disk-for-dad
"Startup disk" is just the place where your laptop keeps everything, and it is running out of room. Move old pictures
to a USB stick, or remove apps you never use. Then start the laptop again!
--- water-for-plants
| Plant | Water |
|---|---|
| Basil | daily, from below |
| Cactus | once every 3 weeks (not in winter) |
| Fern | two times a week |
| Orchid | weekly, as a bath |
--- urgent-mails
- **mail1**: urgent (water damage, it can't wait)
- **mail2**: can wait
- **mail3**: can wait, it is not urgent
- **mail4**: urgent
- **mail5**: can wait
--- counter-sign
**Deutsch**
Bestellungen bitte am Tresen aufgeben. Wir sprechen Englisch.

**Français**
Merci de passer commande à la caisse. On parle anglais.

**Español**
Haga su pedido en la barra, por favor. Hablamos inglés.
--- trip-for-two-readers
**parents.txt**

Dear parents and guardians,

Class 3b will visit the aquarium in Kiel on June 12th. Please make sure that your child is at the school gate in time,
as the bus departs at 8:15 am. The price is €9 per child.

Kind regards,
[Teacher's name]

**kids.txt**

Guess what? Kiel's aquarium is waiting for us! Don't forget sandwiches and a raincoat.
--- trois-velos
- **velo1** (Peugeot) : le vélo est rouge et coûte 120 €.
- **velo2** : couleur verte, prix 45 €.
- **velo3** (Gitane) : bleu - 240 €.
--- tea-menu
**Sencha** - let the refreshing taste of Japanese gardens lift your spirits.

**Rooibos** - a caffeine-free treat with a hint of vanilla, good at any time.

**Chamomile** - a calming cup made of flowers that we picked ourselves.

**Lapsang** - for all who love it smoky and bold, straight from China.
--- mistake-in-each-caption
| File | Misspelt | Correct |
|---|---|---|
| harbour.txt | mornign | morning |
| market.txt | Wensday | Wednesday |
| bridge.txt | biult | built |
--- letters-to-the-council
- **Hedwig Paulsen** (a.txt): She wants somewhere to sit, a bench, while she waits for the bus.
- **Omar Rashid** (b.txt): He wants the town library to open on a Sunday in winter.
- **Tilda Brook** (c.txt): She wants the street light fixed.
--- camping-fragen
Gerne, hier sind die Antworten:

1. Hunde sind erlaubt und kosten drei Euro pro Nacht.
2. Die Anreise ist bis 20:00 Uhr möglich, danach wird die Schranke geschlossen.
3. Kostenloses WLAN haben wir im Cafe.
""")

WRONG: dict[str, list[Mistake]] = {
    "late-shift": [
        ("Deshawn", "Anouk", "'Deshawn' is missing"),
        ("0164", "0131", "'555 0131' should not be there"),
        (", 555-0164", "", "'555 0164' is missing"),
    ],
    "dog-as-json": [
        ("4", "14", "/age is 14"),
        ("border collie", "collie", "/breed is"),
        ('"name"', '"dog"', "/name is missing"),
        ("}", "", "there is no valid JSON"),
    ],
    "formal-to-landlord": [
        (r"flat 7", "my flat", "'7' is missing"),
        ("Dear Sir or Madam", "Hey", "'hey' should not be there"),
        ("Monday", "Tuesday", "'Monday' is missing"),
        ("15 degrees", "very low", "'15*' is missing"),
    ],
    "oldest-building-first": [
        ("(mill.*\n)(church.*\n)", r"\2\1", "the order is not"),
        ("school 1926", "school 1962", "the number 1926 is missing near 'school'"),
        ("school 1926\n", "", "there are 5 items, not 6"),
    ],
    "no-answer-yet": [
        ("Elif\n", "", "elif is missing"),
        ("Elif", "Elif\nBert", "bert is wrong"),
    ],
    "bateria-con-garantia": [
        ("12", "24", "'12*' is missing"),
        ("baterias@", "info@", "'baterias@rodalia.example' is missing"),
    ],
    "thanks-in-french": [
        ("veste verte", "veste bleue", "'vert' is missing"),
        ("(?s)Merci.*", "Muchas gracias por la semana en la cocina y por la chaqueta verde.", "not fr"),
        (" J'ai.*", "", "'veste' is missing"),
    ],
    "bruecke-in-einem-satz": [
        ("weil sie", "und das Land zahlt. Die Brücke", "there are more sentences"),
        ("Fußgängerbrücke", "Straße", "'Brücke*' is missing"),
        ("ab dem 3. Mai sechs Wochen lang", "bald", "'3. Mai' is missing"),
        (r"\.$", ", und " + "außerdem kostet das sehr viel Geld " * 4, "words, not 7 to 34"),
    ],
    "two-typos": [
        ("bread", "bred", "'fresh bread and rolls from 6 am' is missing"),
        ("allergens", "alergens", "'please ask us about allergens' is missing"),
        ("2.20", "2.50", "'coffee to take away: 2.20' is missing"),
    ],
    "fitting-headline": [
        ("2", "3", "it is another headline"),
        ("2", "1 or 2", "it is another headline"),
        ("2", "none", "'2' is missing"),
    ],
    "packing-checklist": [
        (r"- \[ \] torch\n", "", "it does not have six boxes"),
        (r"\[ \] ", "", "it does not have six boxes"),
        ("stove", "cooker", "'stove' is missing"),
    ],
    "full-disk-for-dad": [
        (r"You can(?s:.*)", "It is nothing to worry about, Dad.", "'delet*' is missing"),
        (r"\Z", "Restart it. Wait. Look again.", "there are more than three sentences"),
        (r"\.$", " or call me at any time" * 20, "words, not 15 to 120"),
    ],
    "water-for-plants": [
        ("every day", "every week", "basil: 'every day' is missing"),
        ("every three weeks", "never", "cactus: 'three weeks' is missing"),
        ("twice a week\norchid: once", "once a week\norchid: twice", "fern: 'twice' is missing"),
        ("orchid.*", "", "orchid: the answer is empty"),
    ],
    "urgent-mails": [
        ("mail1: urgent", "mail1: can wait", "mail1: the label is missing or wrong"),
        ("mail2: can wait", "mail2: urgent", "mail2: the label is missing or wrong"),
        ("mail4.*\n", "", "mail4: the answer is empty"),
        ("mail4: urgent", "mail4: not urgent", "mail4: the label is missing or wrong"),
    ],
    "counter-sign": [
        ("Wir sprechen Englisch.", "", "'Englisch' is missing"),
        ("comptoir", "jardin", "'comptoir' is missing"),
        ("Spanish.*", "", "'mostrador' is missing"),
    ],
    "trip-for-two-readers": [
        ("8:15", "8:50", "parents.txt: '8:15*' is missing"),
        ("9 euros", "19 euros", "parents.txt: '9' is missing"),
        ("lunch and your rain jacket", "thing or two", "kids.txt: 'lunch*' is missing"),
        ("kids.txt(?s:.*)", "", "there is no kids.txt"),
    ],
    "trois-velos": [
        ("120", "240", "velo1: '120*' is missing"),
        ("vert", "bleu", "velo2: 'vert' is missing"),
        ("velo3.*", "", "velo3: the answer is empty"),
    ],
    "tea-menu": [
        ("Rooibos.*", "Rooibos: good.", "rooibos: there are 2 words"),
        ("fresh green tea from Japan with a gentle note of grass", "tea you will love with all your heart", "sencha:"),
        ("Lapsang.*", "", "lapsang: the answer is empty"),
    ],
    "mistake-in-each-caption": [
        ("Wednesday", "Wendesday", "market: 'Wednesday' is missing"),
        ("bridge.*", "bridge.txt: no mistake", "bridge: 'built' is missing"),
        ("morning", "moring", "harbour: 'morning' is missing"),
    ],
    "letters-to-the-council": [
        ("bench at", "shelter at", "a: 'bench*' is missing"),
        ("Omar Rashid", "Somebody", "b: 'Rashid' is missing"),
        ("on Sundays", "in the evening", "b: 'Sunday*' is missing"),
        ("c.txt.*", "", "c: the answer is empty"),
    ],
    "camping-fragen": [
        ("3 Euro", "18 Euro", "'3 Euro*' is missing"),
        ("20 Uhr", "11 Uhr", "'20 Uhr' is missing"),
        ("(1. .*\n)(2. .*\n)", r"\2\1", "the order is not"),
        ("nur im Café", "überall", "'Café*' is missing"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("bateria-con-garantia", "12 meses", "un año"),
        ("fitting-headline", "2", "Headline 2 fits best."),
        ("packing-checklist", "torch", "flashlight"),
        ("water-for-plants", "once a week", "one time per week"),
        ("counter-sign", "an der Theke", "am Schalter"),
        ("tea-menu", ": ", " is here for you: "),
        ("letters-to-the-council", r"a\.txt: Hedwig", "Letter a was written by Hedwig"),
    ],
)
def test_other_words_for_a_detail_are_accepted(name: str, old: str, new: str) -> None:
    job = next(job for job in JOBS if job.name == name)
    assert re.search(old, RIGHT[name])
    assert job.check(chat_answer(job, re.sub(old, new, RIGHT[name]))) == []


def test_simple_jobs_differ_from_all_others() -> None:
    assert (len(simple_one_call.JOBS), len(simple_parts.JOBS)) == (12, 9)
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG)
    assert {job.group for job in simple_one_call.JOBS} == {"one-call"}
    assert {job.group for job in simple_parts.JOBS} == {"parts"}
    openings = [(job.group, *job.request.casefold().split()[:2]) for job in ALL_JOBS]
    assert len(openings) == len({*openings})
    for job in JOBS:
        assert job.held_out, job.name
        assert sum(len(text.split()) for text in job.files.values()) <= 180, job.name
