"""The later held-out jobs: each check accepts right answers in any words and names what is wrong with others.

Answers are written as a chat writes them, with their files in the text.
"""

import re

import pytest

from benchmarks.jobs import later_one_call, later_parts
from benchmarks.jobs.part_files import folder
from tests.benchmarks.chat_answers import Mistake, chat_answer

JOBS = (*later_one_call.JOBS, *later_parts.JOBS)

RIGHT = folder("""
--- coffee-machine-code
E4 means that the machine needs descaling. Hold the left button for 5 seconds.
--- flower-stall-total
You paid 55.00 euros in total, so you still get 35.00 euros.
--- deep-pool
Beatrix
Dilan
Elsie
--- choir-as-json
choir.json
```json
[
  {"name": "Marta", "voice": "alto", "since": 2015},
  {"name": "Yusuf", "voice": "bass", "since": 2021},
  {"name": "Helen", "voice": "soprano", "since": 2009},
  {"name": "Ravi", "voice": "tenor", "since": 2018}
]
```
--- werkzeug-als-csv
werkzeug.csv
```csv
Anzahl,Gegenstand,Regal
3,Hammer,A
2,Sägen,C
12,Schraubzwingen,B
1,Bohrmaschine,A
5,Pinsel,D
```
--- mot-aux-voisins
Good evening! We are having a party on Saturday night. The music stops at midnight. If it is too loud, call us.
--- plain-english-for-a-neighbour
Please do not put big rubbish in the courtyard. Call 555-0142 and somebody will come for it. If you leave it there, you
may have to pay 50 euros.
--- postcard-in-a-book
It is Dutch. It says: "Dear all, we have arrived safely on the island. The weather is wonderful and we cycle every day.
Tomorrow we are going to the lighthouse. Greetings, Saskia and Wim"
--- platos-sin-carne
Tortilla de patatas
Pimientos rellenos de arroz y queso
Ensalada de tomate y aceitunas
--- debit-or-credit
With a debit card, you pay with the money that is in your bank account, and it is gone at once. With a credit card, you
borrow the money from the bank and pay it back later.
--- ill-until-thursday
Subject: Off sick until Thursday

Hi Priya,

I am ill today and have seen the doctor. I will be back on Thursday. Jonas is going to take over the call with the
client at 2.

Best wishes
--- by-last-name
Ruth Abbott
Ben Craddock
Carlos Ibarra
Zoe Nyberg
Amina Tall
Oliver Zeman
--- times-in-24-hours
Yoga 18:30
Pilates 9:15
Boxing 20:00
Swimming 7:45
Dance 17:20
--- signed-up-twice
Noura
Timo
Wren
Pavel
Idris
Sanna
Lucia
--- fewest-visitors
Thursday: only 38 people came.
--- du-statt-sie
Bitte bring deinen Ausweis und ein Handtuch mit. Du findest uns im zweiten Stock. Wenn du dich verspätest, ruf uns an.
--- niece-allergic-to-nuts
brownies.txt: yes, walnuts
curry.txt: no nuts
granola.txt: yes, hazelnuts
salad.txt: no nuts
--- car-broke-down
boss.txt
```
Dear Ms Ferrari,
I am sorry to tell you that my car has broken down. I will therefore not be able to help at the trade fair on Saturday.
```
friend.txt
```
Hey Kofi, bad luck: my car died, so I can't make it to your housewarming on Saturday. Have a drink for me!
```
grandma.txt
```
Dear Grandma, please don't worry, I'm fine, it's only the car that has broken down. We'll have to go to the market
another day, not this Saturday. Big hug!
```
--- drei-kurse
toepfern.txt: Gelobt wurde, wie geduldig Frau Lindner alles erklärt, aber im Keller war es zu kalt.
yoga.txt: Die ruhige Musik kam gut an, der Raum war jedoch für so viele Leute zu eng.
kochen.txt: Die einfachen und leckeren Rezepte haben allen gefallen, der Preis dagegen nicht.
--- reunion-guests
| Name | Time of arrival | Bed |
|---|---|---|
| Ilse | 17:30 | yes |
| Marco | 16:00 | no |
| Thandi | 18:15 | yes |
| Vincent | 14:45 | no |
--- which-bin
jam jar: glass
newspaper: paper
apple core: compost
bean tin: metal
banana skin: compost
wine bottle: glass
--- cuatro-paises
Portugal: Lisboa, portugués, euro
Japón: Tokio, japonés, yen
Brasil: Brasilia, portugués, real
Egipto: El Cairo, árabe, libra egipcia
--- receipts-without-total
bakery.txt: 10.00
greengrocer.txt: 12.50
pharmacy.txt: 15.00
--- birthday-thanks
Dear Aunt Lidia, thank you for the blue scarf, it keeps me warm every morning.
Mateo, thanks a lot for the board game, when are we going to play it?
Dear Okonkwos, thank you for the delicious chocolates, half of them are gone.
Rosa, many thanks for the book about birds, now I know who sings in our garden.
Dear Grandpa, thank you for the 20 euros, I will spend them on ice cream.
--- quatre-phrases
1. Les enfants jouent dans la cour.
2. Hier, nous avons mangé une pizza.
3. Ma sœur est très contente de son cadeau.
4. Il y a de la neige sur les montagnes.
--- missed-calls
call1: Doctor Adair's practice, Monday's appointment has to be moved, 555-0132
call2: Boris from the garage, the van with its new tyres is ready, 555-0188
call3: Mrs Szabo, she has a parcel for you, 555-0105
--- student-jobs
jobs.json
```json
[
  {"place": "bookshop", "hours": 10, "pay": 13},
  {"place": "kindergarten", "hours": 15, "pay": 14},
  {"place": "hotel", "hours": 8, "pay": 16}
]
```
--- which-tense
1: past
2: present
3: future
4: past
5: present
--- shed-page
page.md
```markdown
# What we have
You can borrow a lawn mower, two ladders, a hedge trimmer and a wheelbarrow.

# What it costs
Everything is free except the mower. For that you pay 3 euros each time, for the petrol.

# Who has the key
Mrs Duarte in number 8 gives you the key on weekdays after 5.
```
""")

OTHER_WORDS = folder("""
--- coffee-machine-code
According to the list, **E4** stands for limescale in the machine, so it has to be cleaned. Press and hold the *left*
button for about five seconds.
--- flower-stall-total
Sum: 12 + 8.50 + 4 + 15.50 + 6 + 9 = €55

Minus what Benno gave you: 55 - 20 = **€35**
--- deep-pool
These kids may go in the deep pool: Elsie, Beatrix and Dilan.
--- choir-as-json
Here is the JSON:

```json
[
    {
        "name": "Marta",
        "voice": "alto",
        "since": "2015"
    },
    {
        "name": "Yusuf",
        "voice": "bass",
        "since": "2021"
    },
    {
        "name": "Helen",
        "voice": "soprano",
        "since": "2009"
    },
    {
        "name": "Ravi",
        "voice": "tenor",
        "since": "2018"
    }
]
```
--- werkzeug-als-csv
Gerne, hier ist der Inhalt der Datei:

```
Anzahl;Gegenstand;Regal
"3";"Hammer";"A"
"2";"Sägen";"C"
"12";"Schraubzwingen";"B"
"1";"Bohrmaschine";"A"
"5";"Pinsel";"D"
```

Du kannst sie als werkzeug.csv speichern.
--- mot-aux-voisins
Bien sûr ! Voici la traduction :

"Hello! We're throwing a party this Saturday evening. The music will end at 12 am. Please phone us if the noise bothers
you."
--- plain-english-for-a-neighbour
Don't leave large things like furniture in the yard. If you want to throw something big away, phone 555 0142 first.
They will take it away. If you don't do this, it can cost you €50.
--- postcard-in-a-book
**Language:** Dutch

**Translation:** Hi everybody, we got to the island all right. We have beautiful weather, and we ride our bikes daily.
Tomorrow we will visit the lighthouse. Love, Saskia and Wim
--- platos-sin-carne
Tu hija puede pedir la ensalada de tomate y aceitunas, la tortilla de patatas y los pimientos rellenos de arroz y queso.
--- debit-or-credit
A debit card takes the money directly out of your own account when you buy something. A credit card is like a small
loan: you get a bill at the end of the month. That is all there is to it!
--- ill-until-thursday
Hey Priya,

Unfortunately I'm not feeling well today. My doctor expects me to be fit for work again by Thursday, and Jonas will
handle the 2 pm call with our client in the meantime.

Thanks for understanding!
[Your name]
--- by-last-name
Here's the sorted list:

1. Abbott, Ruth
2. Craddock, Ben
3. Ibarra, Carlos
4. Nyberg, Zoe
5. Tall, Amina
6. Zeman, Oliver
--- times-in-24-hours
I changed 6:30 pm, 8:00 pm and 5:20 pm:

```
Yoga 18:30
Pilates 09:15
Boxing 20:00
Swimming 07:45
Dance 17:20
```
--- signed-up-twice
Here is the list:

1. Idris
2. Lucia
3. Noura
4. Pavel
5. Sanna
6. Timo
7. Wren

Noura and Timo were on it twice.
--- fewest-visitors
The museum had the fewest visitors on **Thursday** with 38 visitors.
--- du-statt-sie
Hier ist der Text in der Du-Form:

„Bringe bitte deinen Ausweis und ein Handtuch mit. Uns findest du im 2. Stock. Falls du dich verspäten solltest, rufe
uns bitte an."
--- niece-allergic-to-nuts
| Recipe | Nuts? | Which |
|---|---|---|
| Brownies | Yes | walnuts |
| Curry | No | - |
| Granola | Yes | hazelnuts |
| Salad | No | - |
--- car-broke-down
**boss.txt**

Dear Ms. Ferrari,

I regret to inform you that, due to a breakdown of my vehicle, I cannot attend the trade fair this Saturday as planned.
I apologize for the inconvenience.

Sincerely,
[Your Name]

**friend.txt**

Yo Kofi! My car gave up on me, so no party at your place on Saturday for me. Gutted! I'll come and see
the new flat soon.

**grandma.txt**

Hello dear Grandma! My car needs a repair and so we can't go to the market on Saturday. Nothing happened to me, so do
not worry. Let's go next week. Love you!
--- drei-kurse
1. **Töpferkurs**: Gut kam an, dass Frau Lindner alles so oft erklärt, nicht gut, dass man im Keller gefroren hat.
2. **Yogakurs**: Die Musik war schön ruhig, aber mit zwanzig Leuten war der Raum überfüllt.
3. **Kochkurs**: Die Rezepte sind lecker und leicht nachzukochen, 65 Euro sind den meisten aber zu viel.
--- reunion-guests
Here's the table:

| Name    | Arrival | Bed needed        |
|---------|---------|-------------------|
| Vincent | 2:45 pm | No (hotel)        |
| Marco   | 4 pm    | No                |
| Ilse    | 5:30 pm | Yes               |
| Thandi  | 6:15 pm | Yes, sofa is fine |
--- which-bin
- Empty jam jar: Glass
- Old newspaper: Paper
- Apple core: Compost
- Bean tin: Metal
- Banana skin: Compost
- Wine bottle: Glass
--- cuatro-paises
| País | Capital | Idioma oficial | Moneda |
|---|---|---|---|
| Portugal | Lisboa | Portugués | Euro (EUR) |
| Japón | Tokio | Japonés | Yen japonés |
| Brasil | Brasilia | Portugués | Real brasileño |
| Egipto | El Cairo | Árabe | Libra egipcia |
--- receipts-without-total
**Bakery**: 4.80 + 3.20 + 2.00 = €10
**Greengrocer**: 3.50 + 6.50 + 2.50 = €12.5
**Pharmacy**: 5.40 + 7.60 + 2.00 = €15
--- birthday-thanks
**Aunt Lidia**

Thank you so much for the lovely blue scarf!

**Mateo**

I really appreciate the board game, it is going to be fun. Let's play soon.

**The Okonkwos**

Many thanks for the chocolates, they tasted wonderful.

**Rosa**

I'm so grateful for your book about birds.

**Grandpa**

Thanks for the money, I bought a new cap with the 20 euros.
--- quatre-phrases
Voici les phrases corrigées :

- Les enfants jouent dans la cour. (enfant → enfants)
- Hier, nous avons mangé une pizza. (manger → mangé)
- Ma soeur est très contente de son cadeau. (et → est)
- Il y a de la neige sur les montagnes. (montagne → montagnes)
--- missed-calls
**Call 1** was Doctor Adair's practice: they need to reschedule your visit on Monday. Ring 555 0132.

**Call 2** was Boris (garage): the tires have been changed. Ring 555 0188.

**Call 3** was Mrs. Szabo from upstairs: she took in a package for you. Ring 555 0105 after six.
--- student-jobs
```json
[
  {
    "place": "Kindergarten",
    "hours": 15,
    "pay": 14
  },
  {
    "place": "Bookshop by the cathedral",
    "hours": 10,
    "pay": 13
  },
  {
    "place": "small hotel",
    "hours": 8,
    "pay": 16
  }
]
```
--- which-tense
1. We painted the fence. - Past
2. My sister plays chess on Fridays. - Present
3. They will visit us in spring. - Future
4. I lost my keys. - Past
5. The cat is sleeping on the sofa. - Present (continuous)
--- shed-page
# Our tool shed

## What we have:
There is a lawnmower for your grass and a trimmer for your hedge. We also share two ladders and a wheelbarrow.

## What it costs:
You pay nothing, only the lawnmower costs three euros per use because of the petrol.

## Who has the key:
Please ask Mrs. Duarte at house number 8, from Monday to Friday after 5 pm.
""")

WRONG: dict[str, list[Mistake]] = {
    "coffee-machine-code": [
        ("left", "right", "'left' is missing"),
        ("needs descaling", "has no beans", "'descal*' is missing"),
        (r"\Z", "Then empty the drip tray.", "'drip tray' should not be there"),
    ],
    "flower-stall-total": [
        ("55.00", "54.00", "the number 55 is missing"),
        ("35.00", "75.00", "the number 35 is missing"),
        (", so you.*", "", "the number 35 is missing"),
    ],
    "deep-pool": [
        ("Beatrix\n", "", "beatrix is missing"),
        ("Dilan", "Dilan\nGustav", "gustav is wrong"),
        ("Elsie", "Elsie\nAyodele", "ayodele is wrong"),
    ],
    "choir-as-json": [
        ("2009", "2019", "/2/since is 2019"),
        ('"tenor"', '"bass"', "/3/voice is"),
        (r",\n  {\"name\": \"Ravi.*", "", "not a list of 4"),
        (r"\]", "", "there is no valid JSON"),
    ],
    "werkzeug-als-csv": [
        ("12,", "2,", "the row [12, 'Schraubzwingen', 'B'] is missing"),
        ("5,Pinsel.*\n", "", "there are 4 rows, not 5"),
        ("Anzahl,.*\n", "", "the header is"),
        ("Hammer,A", "Hammer,Regal A", "the row [3, 'Hammer', 'A'] is missing"),
    ],
    "mot-aux-voisins": [
        ("Saturday", "Sunday", "'Saturday' is missing"),
        ("The music stops at midnight.", "", "'midnight' is missing"),
        ("call us", "come in", "'call*' is missing"),
    ],
    "plain-english-for-a-neighbour": [
        ("Please do not", "Please refrain from", "'refrain*' should not be there"),
        ("555-0142", "555-0124", "'555 0142' is missing"),
        ("50 euros", "money", "'50*' is missing"),
        ("in the courtyard", "here", "'courtyard' is missing"),
    ],
    "postcard-in-a-book": [
        ("Dutch", "German", "'Dutch' is missing"),
        ("lighthouse", "beach", "'lighthouse*' is missing"),
        ("cycle", "swim", "'bik*' is missing"),
    ],
    "platos-sin-carne": [
        ("Tortilla de patatas\n", "", "tortilla is missing"),
        (r"\Z", "Sopa de pescado", "sopa is wrong"),
        ("Ensalada de tomate y aceitunas", "Lentejas", "lentejas is wrong"),
    ],
    "debit-or-credit": [
        ("(?s)With a debit card(.*)With a credit card", r"With a credit card\1With a debit card", "debit: 'account*'"),
        ("(?s)With a credit card.*", "", "credit: the answer is empty"),
        ("borrow(?s:.*)", "can pay, too.", "credit: 'borrow*' is missing"),
        (r"\Z", "It is easy. Ask me. I will help.", "there are more than three sentences"),
    ],
    "ill-until-thursday": [
        ("Thursday", "Tuesday", "'Thursday' is missing"),
        ("Jonas", "I", "'Jonas' is missing"),
        ("Hi Priya", "Hello", "'Priya' is missing"),
    ],
    "by-last-name": [
        ("(Ruth.*\n)(Ben.*\n)", r"\2\1", "the order is not"),
        ("Zoe Nyberg\n", "", "'Nyberg' is missing"),
        ("Amina Tall", "Ana Tall", "Amina"),
    ],
    "times-in-24-hours": [
        ("18:30", "6:30 pm", "a time is missing or wrong"),
        ("17:20", "15:20", "a time is missing or wrong"),
        ("9:15", "21:15", "a time is missing or wrong"),
        ("(Yoga.*\n)(Pilates.*\n)", r"\2\1", "the order is not"),
    ],
    "signed-up-twice": [
        (r"\Z", "Timo\n", "there is no list that has each kid once"),
        ("Wren\n", "", "there is no list that has each kid once"),
        ("Idris", "Noura", "there is no list that has each kid once"),
    ],
    "fewest-visitors": [
        ("Thursday", "Wednesday", "'Thursday*' is missing"),
        ("38", "83", "the number 38 is missing"),
        ("38", "38 (or 54)", "'54' should not be there"),
    ],
    "du-statt-sie": [
        ("deinen", "Ihren", "'Ihren' should not be there"),
        ("Du findest", "Sie finden", "'Sie finden' should not be there"),
        ("Wenn du dich verspätest, ruf uns an.", "", "'ruf' is missing"),
    ],
    "niece-allergic-to-nuts": [
        ("yes, walnuts", "no nuts", "brownies: 'walnut*' is missing"),
        ("curry.txt: no nuts", "curry.txt: yes, hazelnuts", "curry: it does not say that there are none"),
        ("yes, hazelnuts", "yes, almonds", "granola: 'hazelnut*' is missing"),
        ("salad.*", "", "salad: the answer is empty"),
    ],
    "car-broke-down": [
        ("the trade fair", "work", "boss.txt: 'fair' is missing"),
        ("Dear Ms Ferrari", "Hey", "boss.txt: 'hey' should not be there"),
        ("my car died", "I am ill", "friend.txt: 'car' is missing"),
        ("grandma.txt(?s:.*)", "", "there is no grandma.txt"),
    ],
    "drei-kurse": [
        ("zu kalt", "schön", "toepfern: 'kalt*' is missing"),
        ("Musik", "Lehrerin", "yoga: 'Musik*' is missing"),
        (", der Preis dagegen nicht", "", "kochen: 'teuer*' is missing"),
        ("yoga.*", "", "yoga: the answer is empty"),
    ],
    "reunion-guests": [
        ("16:00", "14:45", "marco: '16:00*' is missing"),
        ("17:30 . yes", "17:30 | no", "ilse: 'yes' is missing"),
        (".14:45 . no", "14:45 | yes", "vincent: 'no' is missing"),
        (".*Thandi.*\n", "", "there are 3 rows, not 4"),
    ],
    "which-bin": [
        ("bean tin: metal", "bean tin: glass", "bean tin: it is not metal alone"),
        ("newspaper: paper", "newspaper: compost", "newspaper: it is not paper alone"),
        ("wine bottle.*", "", "wine bottle: the answer is empty"),
        ("skin: compost", "skin: compost or paper", "banana skin: it is not compost alone"),
    ],
    "cuatro-paises": [
        ("Brasilia", "Río de Janeiro", "Brasil: 'Brasilia' is missing"),
        ("yen", "yuan", "Japón: 'yen' is missing"),
        ("libra egipcia", "dinar", "Egipto: 'libra*' is missing"),
        ("Lisboa, portugués", "Lisboa, español", "Portugal: 'portugués' is missing"),
    ],
    "receipts-without-total": [
        ("10.00", "9.00", "bakery: the number 10 is missing"),
        ("12.50", "11.50", "greengrocer: the number 12.5 is missing"),
        ("pharmacy.*", "", "pharmacy: the answer is empty"),
    ],
    "birthday-thanks": [
        ("board game", "scarf", "mateo: 'game' is missing"),
        ("Rosa", "Ronja", "rosa: the answer is empty"),
        (", many thanks for|, thanks a lot for", ", I got", "there are fewer than five thanks"),
    ],
    "quatre-phrases": [
        ("enfants", "enfant", "'les enfants jouent dans la cour' is missing"),
        ("mangé", "mangés", "'nous avons mangé une pizza' is missing"),
        ("sœur est", "sœur et", "'ma sœur est très contente de son cadeau' is missing"),
        ("montagnes", "montagne", "'il y a de la neige sur les montagnes' is missing"),
    ],
    "missed-calls": [
        ("555-0188", "555-0105", "call2: '555 0188' is missing"),
        ("a parcel", "something", "call3: 'parcel*' is missing"),
        ("call1.*", "", "call1: the answer is empty"),
    ],
    "student-jobs": [
        ('"pay": 13', '"pay": 14', "bookshop: pay is 14"),
        ('"hours": 15', '"hours": 10', "kindergarten: hours is 10"),
        (r",\n  {\"place\": \"hotel.*", "", "it has 2 objects, not 3"),
        (r"\]", "", "it is no JSON"),
    ],
    "which-tense": [
        ("2: present", "2: past", "sentence 2: 'present' is missing"),
        ("3: future", "3: present", "sentence 3: 'future' is missing"),
        ("5.*", "", "sentence 5: the answer is empty"),
        ("4: past", "4: past or present", "sentence 4: 'present' should not be there"),
    ],
    "shed-page": [
        ("two ladders, ", "", "what we have: 'ladder*' is missing"),
        ("3 euros", "5 euros", "what it costs: '3*' is missing"),
        ("Mrs Duarte", "Mr Duncan", "who has the key: 'Duarte' is missing"),
        ("# Who has the key(?s:.*)", "", "there is no section who has the key"),
    ],
}
"""By job, what is replaced in its right answer, by what, and which fault that has to be."""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("flower-stall-total", "(?s)\\A.*", "The total is 55,00 €. You still get 35,00 €."),
        ("deep-pool", "(?s)\\A.*", "Dilan, Beatrix, Elsie"),
        ("times-in-24-hours", "Yoga 18:30", "6:30 pm is 18:30.\nYoga: 18.30"),
        ("signed-up-twice", "(?s)\\A.*", "Noura, Timo, Wren, Pavel, Idris, Sanna and Lucia"),
        ("debit-or-credit", r"\A", "The difference between a debit card and a credit card is whose money you spend. "),
        ("niece-allergic-to-nuts", "curry.txt: no nuts", "curry.txt: it doesn't contain any"),
        (
            "niece-allergic-to-nuts",
            "(?s)\\A.*",
            "There are walnuts in brownies.txt.\nThere are no nuts in curry.txt.\nYou find hazelnuts in granola.txt.\n"
            "Nuts are not in salad.txt.",
        ),
        ("which-bin", "glass", "Glass bin"),
        ("which-bin", "jar: glass", "jar: glass (the lid is metal)"),
        ("cuatro-paises", "El Cairo", "la capital es El Cairo, el idioma es el"),
        ("birthday-thanks", "Dear Aunt Lidia, thank you for the blue scarf", "Thank you for the scarf, Aunt Lidia"),
        ("which-tense", r"(\d): ", r"Sentence \1 is "),
        ("which-tense", r"\n(?=\d)", ", "),
        ("which-tense", r"^(\d): (.*)", r"| **\1** | \2 |"),
        ("missed-calls", "call(.)", r"call\1.txt"),
        ("shed-page", "^# ", "## "),
    ],
)
def test_other_words_for_a_detail_are_accepted(name: str, old: str, new: str) -> None:
    job = next(job for job in JOBS if job.name == name)
    assert re.search(old, RIGHT[name], flags=re.MULTILINE)
    assert job.check(chat_answer(job, re.sub(old, new, RIGHT[name], flags=re.MULTILINE))) == []


def test_later_jobs_are_short_and_held_out() -> None:
    assert (len(later_one_call.JOBS), len(later_parts.JOBS)) == (16, 13)
    assert len(JOBS) == len(RIGHT) == len(OTHER_WORDS) == len(WRONG)
    assert {job.group for job in later_one_call.JOBS} == {"one-call"}
    assert {job.group for job in later_parts.JOBS} == {"parts"}
    for job in JOBS:
        assert job.held_out, job.name
        assert sum(len(text.split()) for text in job.files.values()) <= 180, job.name
