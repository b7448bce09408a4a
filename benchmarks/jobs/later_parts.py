"""Later held-out jobs with independent parts: recipes, readers, courses, guests, countries, receipts and calls."""

import re
from collections.abc import Mapping
from typing import Final

from benchmarks.jobs.checks import (
    Fact,
    either,
    every,
    holds,
    lacks,
    language,
    mentions,
    number,
    plain,
    reworded,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob, Check, JobAnswer
from benchmarks.jobs.part_checks import each_part, each_section, json_list
from benchmarks.jobs.part_files import folder

_RECIPES: Final = folder("""
--- brownies.txt
Brownies: 200 g dark chocolate, 150 g butter, 3 eggs, 120 g flour, 180 g sugar, 80 g chopped walnuts.
Bake for 25 minutes.
--- curry.txt
Chickpea curry: 1 onion, 2 tins of chickpeas, 1 tin of tomatoes, ginger, cumin, spinach.
Simmer for 20 minutes.
--- granola.txt
Granola: 300 g oats, 100 g hazelnuts, 3 spoons of honey, raisins, cinnamon.
Roast in the oven until golden.
--- salad.txt
Bean salad: green beans, potatoes, red onion, olive oil, lemon, parsley.
Serve cold.
""")
_CAR: Final = (
    "my car broke down so i can't come on saturday and 3 people have to hear about it. boss.txt: to my boss Ms "
    "Ferrari, formal, i was going to help at the trade fair. friend.txt: to Kofi, relaxed, it's about his "
    "housewarming. grandma.txt: warm, i wanted to take her to the market, she worries easily. 2-4 sentences each is "
    "enough"
)
_COURSES: Final = folder("""
--- toepfern.txt
Frau Lindner erklärt alles mit großer Geduld, auch zum dritten Mal.
Aber im Keller war es so kalt, dass wir in Mänteln an der Drehscheibe saßen.
--- yoga.txt
Die ruhige Musik hat allen sehr gefallen.
Nur waren wir zwanzig Leute in einem Raum für zehn, man konnte kaum die Arme ausstrecken.
--- kochen.txt
Die Rezepte waren einfach und richtig lecker, ich koche sie auch zu Hause.
65 Euro für einen Abend finden aber alle zu teuer.
""")
_REUNION: Final = folder("""
--- ilse.txt
Dear all, my train gets in at 17:30 on Friday. I'd be glad of a bed for the night, hotels are not for me. Ilse
--- marco.txt
Hey! I come by car and should be there at 16:00. No bed needed, I'm driving home after dinner. Marco
--- thandi.txt
Hi, my bus arrives at 18:15. Can I sleep at your place? A sofa is fine too! Thandi
--- vincent.txt
Good evening. We land early, so expect me at 14:45. I have booked a hotel room, so please do not make up a bed for me.
Vincent
""")
_RECEIPTS: Final = folder("""
--- bakery.txt
Bakery Holm
rye bread 4.80
6 rolls 3.20
apple cake 2.00
--- greengrocer.txt
Greengrocer Polat
potatoes 3.50
cherries 6.50
leek 2.50
--- pharmacy.txt
Pharmacy on the Square
plasters 5.40
cough syrup 7.60
throat sweets 2.00
""")
_GIFTS: Final = """\
Aunt Lidia - a blue scarf
Mateo - a board game
the Okonkwos - chocolates
Rosa - a book about birds
Grandpa - 20 euros
"""
_SENTENCES_FR: Final = """\
1. Les enfant jouent dans la cour.
2. Hier, nous avons manger une pizza.
3. Ma sœur et très contente de son cadeau.
4. Il y a de la neige sur les montagne.
"""
_CALLS: Final = folder("""
--- call1.txt
Hello, it's Doctor Adair's practice. Your appointment on Monday has to be moved, the doctor is ill.
Please ring us on 555-0132.
--- call2.txt
Hi, this is Boris from the garage. Your tyres are on, you can pick up the van. My number is 555-0188. Bye!
--- call3.txt
Good morning, Mrs Szabo speaking, I live above you. A parcel for you was left with me.
I am at home after six. 555-0105.
""")
_ADVERTS: Final = folder("""
--- ad1.txt
Bookshop by the cathedral looks for help at the till, 10 hours a week, mostly Saturdays. We pay 13 euros an hour.
--- ad2.txt
Do you like children? Our kindergarten needs someone for the afternoons.
15 hours a week. Pay: 14 euros per hour, plus lunch.
--- ad3.txt
Night porter for a small hotel. You can study when all is quiet! 16 euros an hour, 8 hours a week.
""")
_TENSES: Final = """\
1. We painted the fence.
2. My sister plays chess on Fridays.
3. They will visit us in spring.
4. I lost my keys.
5. The cat is sleeping on the sofa.
"""
_SHED: Final = """\
tool shed, notes for the new neighbours
lawn mower, two ladders, hedge trimmer, wheelbarrow
everything is free except the mower: 3 euros each time, for the petrol
key: Mrs Duarte, house number 8, weekdays after 5
"""
_NO: Final = r"\bno\b|\bnot\b|\bnone\b|n't\b|\bfree\b|\bwithout\b|\bsafe\b|❌|✗"


def _each(parts: Mapping[str, tuple[str, Check]]) -> Check:
    """Return `each_part`, which also accepts a part of which a line or paragraph that names no other part is right."""

    def by_line(answer: JobAnswer) -> list[str]:
        units = [*answer.text.splitlines(), *re.split(r"\n\s*\n", answer.text)]
        faults = []
        for name, (pattern, judge) in parts.items():
            others = [other for key, (other, _) in parts.items() if key != name]
            verdicts = [judge(JobAnswer(unit)) for unit in units if _names(unit, pattern) and not _names(unit, *others)]
            faults += [f"{name}: {fault}" for fault in min(verdicts, key=len, default=["the answer is empty"])]
        return faults

    return either(each_part(parts), by_line)


def _names(text: str, *patterns: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def _without_nuts() -> Check:
    return every(
        holds(lambda text: bool(re.search(_NO, plain(text))), "it does not say that there are none"),
        lacks("walnut*", "hazelnut*", "contains nuts", "has nuts", "yes", "may contain"),
    )


def _with_nuts(kind: str) -> Check:
    denial = r"\b(no|not|without)\b[^.]{0,20}\bnuts|n't (contain|have)|nut-free|nut free"
    return every(mentions(kind), holds(lambda text: not re.search(denial, plain(text)), "it says that there are none"))


def _message(file: str, *facts: Fact, others: tuple[Fact, ...]) -> Check:
    return every(
        mentions("Saturday", ("car", "vehicle"), *facts, file=file), lacks(*others, file=file), words(14, 130, file)
    )


def _guest(time: Fact, *, bed: bool) -> Check:
    yes, no = ("yes", "y", "✓", "✔", "✅"), ("no", "n", "✗", "✘", "❌")
    return every(mentions(time, yes if bed else no), lacks(no if bed else yes))


def _goes_into(right: str) -> Check:
    """Require one bin, the right one; another one may follow for a lid or the like."""
    bins = {"glass": "glass", "paper": "paper", "compost": "compost|organic", "metal": "metal"}

    def accepts(text: str) -> bool:
        mentioned = re.search(rf"\b(?:{'|'.join(bins.values())})", plain(text))
        return bool(mentioned and re.fullmatch(bins[right], mentioned[0])) and not re.search(r"\bor\b", plain(text))

    return holds(accepts, f"it is not {right} alone")


def _tense(right: str) -> Check:
    tenses = ("past", "present", "future")
    return every(mentions(right), lacks(*(tense for tense in tenses if tense != right)))


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "niece-allergic-to-nuts",
        "parts",
        "My niece is allergic to nuts and comes on Sunday. Please check brownies.txt, curry.txt, granola.txt and "
        "salad.txt: does it have nuts in it or not, and if so, which? One line for each.",
        every(
            _each(
                {
                    "brownies": ("brownie", _with_nuts("walnut*")),
                    "curry": ("curry", _without_nuts()),
                    "granola": ("granola", _with_nuts("hazelnut*")),
                    "salad": ("salad", _without_nuts()),
                }
            ),
            words(8, 150),
            reworded("\n".join(_RECIPES.values()), 0.75),
        ),
        _RECIPES,
        held_out=True,
    ),
    BenchJob(
        "car-broke-down",
        "parts",
        _CAR,
        every(
            _message("boss.txt", "fair", others=("housewarming*", "market", "hey", "Kofi")),
            _message(
                "friend.txt",
                ("housewarming*", "house warming*", "party", "new place", "new home", "new house", "new flat"),
                others=("trade fair", "market", "Ferrari"),
            ),
            _message("grandma.txt", "market", others=("housewarming*", "trade fair", "Kofi", "Ferrari")),
        ),
        outputs=("boss.txt", "friend.txt", "grandma.txt"),
        held_out=True,
    ),
    BenchJob(
        "drei-kurse",
        "parts",
        "Fürs Protokoll brauche ich zu jedem der drei Kurse (toepfern.txt, yoga.txt, kochen.txt) einen Satz: Was kam "
        "gut an, und was nicht?",
        every(
            language("de"),
            _each(
                {
                    "toepfern": (
                        "töpfer|toepfer",
                        mentions(
                            ("geduld*", "erklär*", "Lindner*"),
                            (
                                "kalt*",
                                "kälte",
                                "kühl*",
                                "frier*",
                                "fror*",
                                "gefroren",
                                "Mantel",
                                "Mäntel*",
                                "heizung",
                                "temperatur*",
                            ),
                        ),
                    ),
                    "yoga": (
                        "yoga",
                        mentions(
                            "Musik*",
                            (
                                "voll*",
                                "überfüll*",
                                "eng*",
                                "enge",
                                "Platz*",
                                "zu klein*",
                                "viele*",
                                "zwanzig",
                                "20",
                                "Raum*",
                                "überbelegt*",
                            ),
                        ),
                    ),
                    "kochen": (
                        r"\bkochen\b|kochkurs",
                        mentions("Rezept*", ("teuer*", "teure*", "Preis*", "kosten*", "kostet*", "65", "kostspielig*")),
                    ),
                }
            ),
            words(20, 130),
            reworded("\n".join(_COURSES.values()), 0.75),
        ),
        _COURSES,
        held_out=True,
    ),
    BenchJob(
        "reunion-guests",
        "parts",
        "Four old friends wrote how they get here (one file each). Can I have that as a table? Columns: name, time of "
        "arrival, bed (do they need one from me: yes or no).",
        every(
            table(count=4, columns=3),
            each_part(
                {
                    "ilse": ("ilse", _guest(("17:30*", "17.30", "5:30*", "5.30"), bed=True)),
                    "marco": ("marco", _guest(("16:00*", "16.00", "16", "4 pm", "4:00*", "4pm"), bed=False)),
                    "thandi": ("thandi", _guest(("18:15*", "18.15", "6:15*", "6.15"), bed=True)),
                    "vincent": ("vincent", _guest(("14:45*", "14.45", "2:45*", "2.45"), bed=False)),
                }
            ),
        ),
        _REUNION,
        held_out=True,
    ),
    BenchJob(
        "which-bin",
        "parts",
        "Glass, paper, compost or metal? I never know what goes where over here. I have: an empty jam jar, an old "
        "newspaper, an apple core, a bean tin, a banana skin and a wine bottle. Just `thing: bin` please, one per "
        "line.",
        every(
            _each(
                {
                    "jam jar": (r"jam jar|\bjar\b", _goes_into("glass")),
                    "newspaper": ("newspaper", _goes_into("paper")),
                    "apple core": (r"apple core|\bapple\b", _goes_into("compost")),
                    "bean tin": (r"bean tin|bean can|\btin\b", _goes_into("metal")),
                    "banana skin": ("banana", _goes_into("compost")),
                    "wine bottle": ("wine bottle|wine", _goes_into("glass")),
                }
            ),
            words(12, 90),
        ),
        held_out=True,
    ),
    BenchJob(
        "cuatro-paises",
        "parts",
        "Estoy preparando un trivial para casa. Para Portugal, Japón, Brasil y Egipto necesito la capital, el idioma "
        "oficial y la moneda.",
        every(
            _each(
                {
                    "Portugal": (r"portugal\b", mentions(("Lisboa", "Lisbon"), "portugués", "euro*")),
                    "Japón": (r"jap[oó]n\b", mentions(("Tokio", "Tokyo"), "japonés", ("yen", "yenes"))),
                    "Brasil": (r"brasil\b", mentions(("Brasilia", "Brasília"), "portugués", ("real", "reales"))),
                    "Egipto": (r"egipto\b", mentions("Cairo", "árabe*", "libra*")),
                }
            ),
            words(16, 150),
        ),
        held_out=True,
    ),
    BenchJob(
        "receipts-without-total",
        "parts",
        "the scanner cut off the last line of bakery.txt, greengrocer.txt and pharmacy.txt. what's the total of each?",
        every(
            _each(
                {
                    "bakery": ("bakery", number(10)),
                    "greengrocer": ("greengrocer", number(12.5)),
                    "pharmacy": ("pharmacy", number(15)),
                }
            ),
            words(4, 250),
        ),
        _RECEIPTS,
        held_out=True,
    ),
    BenchJob(
        "birthday-thanks",
        "parts",
        "gifts.txt is what I got for my birthday and from whom. I need a sentence or two of thanks for each of them, "
        "with what they gave me in it and not the same words every time. I copy it into five cards by hand!",
        every(
            _each(
                {
                    "lidia": ("lidia", mentions("scarf")),
                    "mateo": ("mateo", mentions(("game", "boardgame"))),
                    "okonkwo": ("okonkwo", mentions("chocolate*")),
                    "rosa": ("rosa", mentions(("book", "birds"))),
                    "grandpa": ("grandpa|grandad|grandfather", mentions(("20*", "twenty", "money"))),
                }
            ),
            holds(
                lambda text: len(re.findall(r"\bthank|grateful|appreciat|gratitude|kind of you", plain(text))) >= 5,
                "there are fewer than five thanks",
            ),
            words(30, 260),
            reworded(_GIFTS, 0.6),
        ),
        {"gifts.txt": _GIFTS},
        held_out=True,
    ),
    BenchJob(
        "quatre-phrases",
        "parts",
        "Il y a exactement une faute dans chaque phrase de phrases.txt. Recopie-moi les quatre phrases sans faute, une "
        "par ligne.",
        every(
            mentions(
                "les enfants jouent dans la cour",
                "nous avons mangé une pizza",
                ("ma sœur est très contente de son cadeau", "ma soeur est très contente de son cadeau"),
                "il y a de la neige sur les montagnes",
            ),
            words(25, 130),
        ),
        {"phrases.txt": _SENTENCES_FR},
        held_out=True,
    ),
    BenchJob(
        "missed-calls",
        "parts",
        "call1 to call3 are from my answering machine (typed by the phone, so no spelling mistakes for once). For "
        "every call: who was it, what is it about and which number do I ring? Keep it short.",
        every(
            _each(
                {
                    "call1": (
                        r"call ?1\b|adair",
                        mentions(
                            "Adair*", ("appointment*", "moved", "ill", "reschedul*", "Monday*"), ("555 0132", "5550132")
                        ),
                    ),
                    "call2": (
                        r"call ?2\b|boris",
                        mentions("Boris", ("tyre*", "tire*", "van"), ("555 0188", "5550188")),
                    ),
                    "call3": (
                        r"call ?3\b|szabo",
                        mentions("Szabo", ("parcel*", "package*"), ("555 0105", "5550105")),
                    ),
                }
            ),
            words(15, 120),
            reworded("\n".join(_CALLS.values()), 0.75),
        ),
        _CALLS,
        held_out=True,
    ),
    BenchJob(
        "student-jobs",
        "parts",
        "I collect jobs for our student website. Put ad1.txt, ad2.txt and ad3.txt into jobs.json, as a list of objects "
        "with place (bookshop, kindergarten or hotel), hours (a week) and pay (euros an hour). The last two are "
        "numbers.",
        json_list(
            {"place": "bookshop", "hours": 10, "pay": 13},
            {"place": "kindergarten", "hours": 15, "pay": 14},
            {"place": "hotel", "hours": 8, "pay": 16},
            key="place",
            file="jobs.json",
        ),
        _ADVERTS,
        ("jobs.json",),
        held_out=True,
    ),
    BenchJob(
        "which-tense",
        "parts",
        "English homework of my son. Which of the sentences in tenses.txt are past, which present, which future? "
        "Answer like this, for all five: `9: past`",
        every(
            _each(
                {
                    f"sentence {place}": (rf"\b{place}\b(?=[*`]*\s*[-:.)|(=\u2013\u2014]|\s+is\b)", _tense(tense))
                    for place, tense in enumerate(("past", "present", "future", "past", "present"), 1)
                }
            ),
            words(10, 110),
        ),
        {"tenses.txt": _TENSES},
        held_out=True,
    ),
    BenchJob(
        "shed-page",
        "parts",
        "page.md should tell new neighbours about our tool shed. Three headings - What we have, What it costs, Who has "
        "the key - and one or two full sentences below each, out of what is in shed.txt.",
        every(
            each_section(
                {
                    "what we have": (
                        "what we have",
                        every(
                            mentions(("mower*", "lawnmower*"), "ladder*", ("trimmer*", "hedge*"), "wheelbarrow*"),
                            words(7, 60),
                        ),
                    ),
                    "what it costs": (
                        "what it costs",
                        every(
                            mentions(
                                ("free", "nothing", "no charge", "no cost", "without charge"),
                                ("3*", "three", "€3"),
                                ("mower*", "lawnmower*"),
                            ),
                            words(7, 60),
                        ),
                    ),
                    "who has the key": (
                        "who has the key",
                        every(mentions("Duarte", ("8", "eight"), ("5*", "five", "17*")), words(6, 60)),
                    ),
                },
                "page.md",
            ),
            reworded(_SHED, 0.85, "page.md"),
        ),
        {"shed.txt": _SHED},
        ("page.md",),
        held_out=True,
    ),
)
