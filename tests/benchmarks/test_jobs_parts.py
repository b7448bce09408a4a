"""The jobs with independent parts: each check accepts a right answer and refuses wrong, empty and copied ones."""

import re
from collections import Counter

import pytest

from benchmarks.jobs.job import BenchJob, JobAnswer
from benchmarks.jobs.part_checks import attributes, each_part, only, unlike
from benchmarks.jobs.part_files import folder
from benchmarks.jobs.parts import COMMENT_LABELS, JOBS, SHOPPING
from orchestrator.run.frontdoor.doubt import WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts

TEXTS = folder("""
--- three-minutes
**Kitchen.** The new dishwasher comes on 12 March, and Tom will be there. Forty plates are bought for 60 euros.
**Garden.** The pond gets a fence before Easter. Box moth in the hedge is sprayed by Noor on Saturday.
**Money.** 3,412 euros are in the account. Without the printer contract 180 euros a year are saved.

Open points:
- Who pays for the extractor fan?
- May Mr Okafor's bees stay?
- Is insurance for the trailer necessary?
--- boiler-notes
note02.txt, note05.txt and note10.txt
--- desk-offers
| Supplier | Price | Delivery | Warranty |
|---|---|---|---|
| Hartmann | 2,890 € | 3 weeks | 5 years |
| Moebelwerk Sued | 2,450 € | 8 weeks | 2 years |
| Nordic Desk | 3,200 € | 5 days | 10 years |

Moebelwerk Sued is the cheapest, and Nordic Desk is the fastest.
--- contract-terms
- cleaning.txt: notice of 3 months, renews for a year unless it is cancelled.
- internet.txt: 4 weeks; it does not renew.
- lift.txt: six months, extended automatically by 2 years.
- parking.txt: 14 days. It ends by itself in August 2027.
--- rainy-cities
In Wien muss sich an einem Regentag niemand langweilen. Man kann im Kunsthistorischen Museum Stunden vor den Bildern von
Bruegel verbringen und sich danach in einem der alten Kaffeehäuser bei Melange und Apfelstrudel aufwärmen. Am Abend
bietet sich die Oper an, für die es günstige Stehplätze gibt, wenn man früh genug da ist.

Lissabon hat weniger Regentage, aber auch für sie viel zu bieten. Das Ozeanarium zeigt Haie und Rochen in einem riesigen
Becken, und im Museum der Kacheln sieht man, womit die Häuser der Stadt verkleidet sind. Danach fährt man mit der alten
Straßenbahn 28 durch die Hügel und trinkt in einer Bäckerei in Belém einen Kaffee.

In Oslo ist man auf schlechtes Wetter eingerichtet. Das neue Munch-Museum am Wasser hat dreizehn Stockwerke, und oben
sieht man den Fjord auch bei Regen gut. Wer es warm mag, geht in eine der Saunen am Hafen, und die große Bibliothek ist
ein schöner Ort, um mit einem Buch auf das Ende des Regens zu warten.
--- module-review
- average.py: an empty list leads to a division by zero.
- login.py: passwords are stored in plain text and even printed.
- cleanup.py: `except Exception: pass` hides every error, so files remain and nobody notices.

Verdict: don't ship these modules yet.
--- shopping-lists
Anna had 4 things on her list, Ben 4 and Carla 5.
--- two-interviews
Anna
- In the bakery for eleven years, since she was an apprentice
- No night shift any more, so she has dinner with her children
- Wants to replace the oven from 1988
Boris
- Makes 42 stops on six days a week
- The electric van is too weak in winter
- Wishes for a charging point in Lindau
--- avis-hotel
1. La chambre était propre, mais le petit-déjeuner est trop cher pour ce qu'il offre.
2. Le séjour a été horrible à cause des cafards et de l'eau froide.
3. Le couple est ravi de la vue et du champagne offert.
4. L'hôtel est correct et calme malgré le petit parking.

Le plus négatif est l'avis 2.
--- subject-lines
## bikes.txt
1. Spring service for your bike from 7 April
2. Brakes, gears and chain for 49 euros
3. Come on Monday, get a free bell
## cinema.txt
1. Four films by Agnes Varda in May
2. Thursdays at eight: Varda on the big screen
3. Students see Varda for half the price
## pool.txt
1. The pool opens on 1 May
2. Swim in water warmed by the sun
3. Season tickets: save 20 euros until April ends
## zoo.txt
1. Meet our two red panda cubs
2. Name a panda, win a night here
3. Twins at the zoo!
--- guestbook-english
German: The food was excellent, but we had to wait an hour for dessert.
French: The terrace is very noisy, but the fish is the best in town.
Spanish: The waiter was very kind and gave us a free dessert for my daughter's birthday.
Italian: The bill was wrong by twelve euros and nobody apologised.
--- first-errors
auth.log: certificate expired, 09:02:47
mailer.log: connection refused by smtp.example.org at 10:41:05
shop.log: the payment provider timed out at 12:31:02
search.log: none
--- heating-options
**Heat pump**
Advantages: very efficient; no fuel to store.
Disadvantages: expensive to install; the outdoor unit makes a little noise.
**Pellet stove**
Advantages: renewable wood; cosy warmth in the room.
Disadvantages: needs a dry store; ash has to be removed every few days.
**District heating**
Advantages: needs hardly any space; nothing to maintain for you.
Disadvantages: depends on one supplier; is not available in every street.

I recommend the heat pump for a small terraced house, as it needs no store and costs little to run.
--- travel-claims
1. Mira (claim1): pay, since 95 euros are below the limit for hotels.
2. Paul (claim2): do not pay, taxis are only covered between 22:00 and 6:00.
3. Yusuf (claim3): paid, second class.
4. Greta (claim4): paid, meals up to 35 euros are fine.
5. Oskar (claim5): not paid, 180 euros exceed the limit.
6. Lena (claim6): not paid, it is alcohol.
""")

FILES = {
    "notice-languages": folder("""
--- notice.de.txt
Die Bibliothek ist am 14. Mai geschlossen, weil die Heizung repariert wird. Bücher, die an diesem Tag fällig sind,
können bis zum 17. Mai ohne Gebühr abgegeben werden. Der Lesesaal im zweiten Stock ist von 9 bis 13 Uhr geöffnet.
--- notice.fr.txt
La bibliothèque sera fermée le 14 mai en raison de la réparation du chauffage. Les livres à rendre ce jour-là peuvent
être rendus sans frais jusqu'au 17 mai. La salle de lecture du deuxième étage reste ouverte de 9 h à 13 h.
--- notice.es.txt
La biblioteca estará cerrada el 14 de mayo porque se repara la calefacción. Los libros que vencen ese día se pueden
devolver hasta el 17 de mayo sin multa. La sala de lectura del segundo piso sigue abierta de 9:00 a 13:00.
"""),
    "comment-labels": {
        "labels.csv": "number,label\n"
        + "".join(f"{number},{label}\n" for number, label in enumerate(["praise", *COMMENT_LABELS[1:]], 1))
    },
    "recall-audiences": folder("""
--- customers.md
Dear customer, please stop using your kettle Brisa 2 if its serial number starts with BR2. Its handle can come loose.
Send it back with the code SAFE24, which is free, and we will return your 39 euros. We are sorry for the trouble.
--- dealers.md
Please take every Brisa 2 with a serial number that starts with BR2 (sold January to June) off the shelf. The alloy of a
rivet in the handle was too soft. Kettles since July have a steel rivet and may stay.
--- press.md
The maker of the kettle Brisa 2 recalls all units that were sold between January and June. Handles came loose and three
people suffered burns. Owners get the price of 39 euros back.
"""),
    "invoice-table": {
        "invoices.csv": "supplier,date,amount\nKordes Paper,2025-02-11,172.50\nBright Window Cleaning,2025-02-28,235\n"
        "Kaffee Lenz,2025-03-03,89.90\nTaxi Yilmaz,2025-03-09,54.00\nOstwind Energy,2025-03-15,350.00\n"
    },
    "lamp-texts": folder("""
--- description.md
Evenings get longer, and so does the light on your desk. The Lumo 3 gives you 800 lumen, from warm to cold white, and
dims as far down as you like. Its battery lasts for nine hours, so you can take it out to the balcony, and USB-C fills
it in two. The body is made of recycled aluminium and stands on a foot of oak. Built in Porto, it costs 79 euros.
--- post.txt
Nine hours of light without a cable: the Lumo 3 is here on 2 October. Made in Porto from recycled aluminium. 79 euros.
--- specs.md
| | |
|---|---|
| Light | 800 lm, dimmable |
| Battery | 9 h |
| Charging | USB-C, 2 h |
| Weight | 640 g |
| Material | recycled aluminium, oak |
"""),
    "shopping-lists": {"shopping.txt": "\n".join(SHOPPING) + "\n"},
    "recetas-json": folder("""
--- recetas.json
[{"nombre": "Tortilla clásica", "personas": 2, "minutos": "35 minutos", "ingredientes": "patatas, huevos y aceite"},
 {"nombre": "Gazpacho andaluz", "personas": 4, "minutos": 20, "ingredientes": ["tomates", "pepino", "ajo", "aceite"]},
 {"nombre": "Lentejas", "personas": 6, "minutos": 50, "ingredientes": ["lentejas", "chorizo", "zanahoria", "cebolla"]}]
"""),
    "kundenmails": folder("""
--- antwort_keller.txt
Guten Tag Frau Keller, entschuldigen Sie bitte das Versehen. Der dritte Blumenkasten ist in drei Tagen bei Ihnen und
kostet Sie natürlich nichts extra.
--- antwort_oezcan.txt
Hallo Deniz Özcan, am Samstag haben wir von 9 bis 14 Uhr geöffnet. Die Rosen liegen für Sie bereit.
--- antwort_wolff.txt
Sehr geehrter Herr Wolff, das tut uns leid. Frau Brandt sieht sich die Hecke gern an, sie kann am Dienstag ab 15 Uhr
bei Ihnen sein. Passt Ihnen das?
"""),
    "applicants-json": folder("""
--- candidates.json
[{"name": "Selin Aydin", "years": 9, "licence": true}, {"name": "Jonas Brandt", "years": 1, "licence": false},
 {"name": "Maria Costa", "years": 14, "licence": true}, {"name": "Luc Dupont", "years": 5, "licence": false}]
"""),
    "glossary": folder("""
--- glossary.md
- **Probe**: a steel pin in the ground that measures moisture.
- **Hub**: the white box indoors that collects what the probes send.
- **Reading**: one measured value together with its time.
- **Zone**: a group of probes with the same watering plan.
- **Threshold**: the percentage of moisture below which watering starts.
- **Valve**: the motor on the tap that lets the water through.
"""),
    "chapter-quiz": folder("""
--- quiz.md
## Bees
1. How many eggs can a queen lay on a day in summer? Up to 2,000.
2. How do workers show each other the way to flowers? With a dance.
## Ants
3. What do leafcutter ants use leaves for? They grow a fungus on them.
4. How deep can a nest be? Eight metres.
## Termites
5. What are the mounds made of? Earth and saliva.
6. Who lives with the queen? A king.
"""),
    "dinner-invitations": folder("""
--- amara.txt
Dear Amara, we would love to have you at our dinner on 9 May at 19:00. You sit at table 4, and the kitchen prepares
mushroom risotto for you.
--- bruno.txt
Dear Bruno, please come to our dinner on 9 May at 19:00. Your place is at table 2, where you will be served trout.
--- chiyo.txt
Dear Chiyo, you are invited to dinner on May 9 at 7 pm. We have a seat for you at table 7 and a lamb curry.
--- dimitri.txt
Dear Dimitri, join us for dinner on 9 May at 19:00! You will find your name at table number 2, and a vegetable tart.
"""),
}

OTHER_WORDS = folder("""
--- boiler-notes
The boiler is mentioned in:
1. note02.txt
2. note05.txt
3. note10.txt
None of the other notes says anything about it.
--- desk-offers
|  | Hartmann | Möbelwerk | Nordic |
|---|---|---|---|
| Price | €2,890.00 | €2,450.00 | €3,200.00 |
| Delivery | three weeks | eight weeks | five days |
| Warranty | five years | two years | ten years |

**Cheapest:** Möbelwerk (€2,450.00)
**Fastest:** Nordic, which has the desks in stock
--- contract-terms
| Contract | Notice | Renews itself |
|---|---|---|
| cleaning | 3 months | Yes |
| internet | 4 weeks | No |
| lift | 6 months before the term ends | Yes |
| parking | 14 days | No |
--- module-review
### average.py
If `values` is empty, it raises a ZeroDivisionError.
### login.py
The passwords are hard-coded.
### cleanup.py
It silently ignores all errors.
### Verdict
These modules should not be shipped.
--- shopping-lists
| Anna | Ben | Carla |
|---|---|---|
| four | four | five |
--- avis-hotel
avis1.txt : l'auteur a aimé le lit, mais pas le petit-déjeuner à 18 euros, qu'il juge trop cher.
avis2.txt : un séjour raté avec de l'eau froide et des cafards, sans remboursement.
avis3.txt : des clients enchantés par le personnel et la vue sur le port.
avis4.txt : un hôtel calme au prix raisonnable, malgré un ascenseur en panne.
**L'avis le plus négatif** est le deuxième, à cause des cafards.
--- subject-lines
Here are the subject lines:

1. **bikes.txt**
   - "Bring your bike: spring service week"
   - "49 euros for brakes, gears and chain"
   - "Monday visitors get a bell!"
2. **cinema.txt**
   - "A month of Agnes Varda"
   - "Varda every Thursday at 20:00"
   - "Half price films for students"
3. **pool.txt**
   - "Ready to swim on 1 May?"
   - "24 degrees thanks to our solar roof"
   - "Season tickets for 60 euros in April"
4. **zoo.txt**
   - "Two red panda cubs are here"
   - "Help us to name our pandas"
   - "Win a night at the zoo"
--- guestbook-english
r1 (German): Dinner was great, but dessert took an hour.
r2 (French): It is loud on the terrace, yet they serve the best fish in town.
r3 (Spanish): A very friendly waiter gave us a dessert as a present for my daughter's birthday.
r4 (Italian): The check was off by 12 euros, and nobody said sorry to us.
--- first-errors
| Log | Time | First error |
|---|---|---|
| auth | 09:02:47 | certificate expired |
| mailer | 10:41:05 | connection refused |
| search | - | none |
| shop | 12:31:02 | payment provider timed out |
--- heating-options
| | Advantages | Disadvantages |
|---|---|---|
| Heat pump | it is efficient; it needs no fuel | it costs a lot; it makes some noise |
| Pellet stove | it is cosy; wood grows again | it makes ash; pellets need a dry room |
| District heating | it takes no space; others maintain it | you depend on one firm; it is rare |

For a small house the best choice is district heating if your street has it.
--- travel-claims
- claim1.txt: **Yes**, the price of the hotel does not exceed 120 euros.
- claim2.txt: **No**, at 14:30 taxis are not covered.
- claim3.txt: **Yes**, it was second class.
- claim4.txt: **Yes**, 28 euros is less than the limit.
- claim5.txt: **No**, 180 euros is more than the limit of 120.
- claim6.txt: **No**, wine is alcohol.
""")

WRONG: dict[str, tuple[str, str]] = {
    "three-minutes": (r"- May .*", ""),
    "notice-languages": (r"17 mai\b", "18 mai"),
    "boiler-notes": ("note05", "note06"),
    "comment-labels": ("billing", "delivery"),
    "recall-audiences": ("three\npeople suffered burns", "some trouble was reported"),
    "desk-offers": ("Nordic Desk is the fastest", "Hartmann is the fastest"),
    "contract-terms": ("it does not renew", "renews automatically"),
    "invoice-table": ("350.00", "380.80"),
    "rainy-cities": (r"(?s)In Oslo.*", ""),
    "lamp-texts": ("640 g", "heavy"),
    "module-review": ("don't ship these modules yet", "ship it"),
    "shopping-lists": ("coffee\n", "coffee\nCoffee\n"),
    "two-interviews": ("- Wishes.*", "- Soup and lentils are popular"),
    "avis-hotel": ("l'avis 2", "l'avis 4"),
    "recetas-json": ('"personas": 6', '"personas": 4'),
    "kundenmails": ("Frau Brandt", "Unser Gärtner"),
    "subject-lines": (r"3\. Twins.*", ""),
    "guestbook-english": ("Italian: .*", "Italian: Il conto era sbagliato di dodici euro."),
    "applicants-json": ('5, "licence": false', '5, "licence": true'),
    "first-errors": ("10:41:05", "11:00:00"),
    "glossary": (r"- \*\*Zone.*", ""),
    "heating-options": ("I recommend the heat pump", "All three of them may be right"),
    "chapter-quiz": (" A king.", ""),
    "travel-claims": ("do not pay", "pay"),
    "dinner-invitations": ("table 7", "table 4"),
}
"""By job, what is replaced in the right answer, and by what."""


def _right(job: BenchJob) -> JobAnswer:
    return JobAnswer(TEXTS.get(job.name, "Done."), FILES.get(job.name, {}))


@pytest.fixture(params=JOBS, ids=lambda job: job.name)
def job(request: pytest.FixtureRequest) -> BenchJob:
    job: BenchJob = request.param
    return job


def test_each_right_answer_is_accepted(job: BenchJob) -> None:
    assert job.check(_right(job)) == []


def test_no_right_answer_is_doubted(job: BenchJob) -> None:
    outputs = FILES.get(job.name, {}) | ({"s1.txt": TEXTS[job.name]} if job.name in TEXTS else {})
    answer = WrittenAnswer(outputs, outputs, job.files)
    assert doubts(job.request, (*job.files,), answer) == ()


@pytest.mark.parametrize(("name", "text"), OTHER_WORDS.items())
def test_other_words_for_the_same_are_accepted(name: str, text: str) -> None:
    job = next(job for job in JOBS if job.name == name)
    assert job.check(JobAnswer(text, FILES.get(name, {}))) == []


def test_a_wrong_detail_is_refused(job: BenchJob) -> None:
    old, new = WRONG[job.name]
    right = _right(job)
    wrong = JobAnswer(
        re.sub(old, new, right.text), {name: re.sub(old, new, text) for name, text in right.files.items()}
    )
    assert wrong != right
    assert job.check(wrong)


def test_an_empty_answer_is_refused(job: BenchJob) -> None:
    assert job.check(JobAnswer(""))
    assert job.check(JobAnswer("Done.", dict.fromkeys(job.outputs, "Done.")))


def test_what_was_given_is_no_answer(job: BenchJob) -> None:
    copied = "\n".join(f"{name}\n{text}" for name, text in job.files.items())
    assert job.check(JobAnswer(copied, dict.fromkeys(job.outputs, copied)))
    assert job.check(JobAnswer(job.request, dict.fromkeys(job.outputs, job.request)))


def test_an_answer_without_one_of_its_files_is_refused(job: BenchJob) -> None:
    right = _right(job)
    for name in job.outputs:
        assert job.check(JobAnswer(right.text, {other: text for other, text in right.files.items() if other != name}))


def test_jobs_differ() -> None:
    assert len(JOBS) == len({job.name for job in JOBS}) == len({job.request for job in JOBS}) == 25
    assert {job.group for job in JOBS} == {"parts"}
    openings = Counter(tuple(job.request.casefold().split()[:2]) for job in JOBS)
    assert max(openings.values()) == 1
    assert all(name in job.request for job in JOBS for name in job.outputs)


def test_a_part_is_read_from_prose_rows_and_columns() -> None:
    check = each_part({"A": (r"\bA\b", lambda it: [] if "1" in it.text else ["no 1"]), "B": (r"\bB\b", lambda it: [])})
    assert check(JobAnswer("A has 1. B has 2.")) == []
    assert check(JobAnswer("A has 2. B has 1.")) == ["A: no 1"]
    assert check(JobAnswer("| A | 1 |\n|---|---|\n| B | 2 |")) == []
    assert check(JobAnswer("| | B | A |\n|---|---|---|\n| size | 1 | 2 |")) == ["A: no 1"]
    assert check(JobAnswer("| | B | A |\n|---|---|---|\n| size | 2 | 1 |")) == []


def test_a_choice_mentions_nothing_else() -> None:
    check = only(["n1"], ["n1", "n2"])
    assert check(JobAnswer("It is **n1.txt**.")) == []
    assert check(JobAnswer("n1.txt and n2.txt")) == ["n2 is wrong"]
    assert check(JobAnswer("None.")) == ["n1 is missing"]


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("X is the cheapest, and Y is the fastest.", True),
        ("Cheapest: X\nFastest: Y", True),
        ("The cheapest one, at 20 euros, is X.", True),
        ("Y is the cheapest, while X is the fastest.", False),
        ("X and Y are the cheapest.", False),
        ("| X | cheapest |", False),
    ],
)
def test_a_quality_belongs_to_the_name_in_its_clause(text: str, accepted: bool) -> None:
    check = attributes("cheapest", "x", ["x", "y"])
    assert (check(JobAnswer(text)) == []) is accepted


def test_two_parts_of_which_the_same_is_said_are_refused() -> None:
    check = unlike({"cat": r"cats?\b", "dog": r"dogs?\b"})
    assert check(JobAnswer("The cat is quiet and cheap. The dog is loud, but it watches the house.")) == []
    assert check(JobAnswer("A cat is nice and costs little. A dog is nice and costs little.")) == [
        "it says the same of cat and dog"
    ]
