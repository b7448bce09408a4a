"""Held-out jobs with independent parts, each of which is short and easy."""

import re
from typing import Final

from benchmarks.jobs.checks import (
    every,
    holds,
    in_order,
    lacks,
    language,
    mentions,
    mentions_some,
    plain,
    reworded,
    words,
)
from benchmarks.jobs.job import BenchJob, Check
from benchmarks.jobs.part_checks import each_part
from benchmarks.jobs.part_files import folder

_PLANTS: Final = folder("""
--- basil.txt
Basil came from the market in April and stands on the kitchen window sill.
It likes the morning sun. Give it water every day, always from below.
Pick the leaves from the top.
--- cactus.txt
The cactus was a present from Uncle Viktor. South window, the more sun the better.
Water it every three weeks, and not at all in winter.
Careful, the spines break off.
--- fern.txt
The fern lives in the bathroom because it likes damp air.
Water twice a week. No direct sun.
Cut off brown leaves.
--- orchid.txt
White orchid, in the living room, away from the heating.
It gets a bath once a week: that is all the water it needs.
When it has no flowers any more, cut the stem above the second knot.
""")
_MAILS: Final = folder("""
--- mail1.txt
Hello, this is Wanda from the bakery below you. Water is running down our wall right now, it must come from your
bathroom. Please come at once and turn it off!
--- mail2.txt
Dear customer, our spring catalogue is here: 40 pages of pens, paper and envelopes. Have a look whenever you like.
--- mail3.txt
Hi, just wanted to say that the photos from the summer party turned out really well. I'll show you some next month.
Lars
--- mail4.txt
I am the driver with your delivery and stand in front of the locked gate. In ten minutes I have to leave. Please
call me immediately: 555-0127.
--- mail5.txt
We are planning the club meeting in November. There is plenty of time, but if you have ideas for a topic, send them
sometime before the autumn.
""")
_TRIP: Final = """\
trip class 3b
- where: aquarium in Kiel
- when: Tuesday 12 June
- bus leaves 8:15, school gate
- back around 15:30
- costs 9 euros each
- bring: packed lunch, rain jacket
"""
_BIKES: Final = folder("""
--- velo1.txt
Peugeot de ville, rouge, trois vitesses, panier à l'avant.
Quelques rayures mais roule très bien.
Prix : 120 euros. À voir le soir à Villeurbanne.
--- velo2.txt
Vélo pour enfant de 6 à 8 ans, vert, avec sonnette.
Pneus neufs. Mon fils est devenu trop grand.
Je le vends 45 euros, casque offert.
--- velo3.txt
Gitane de course des années 80, bleu, dix vitesses.
Entièrement révisé en mars.
240 euros, à prendre sur place à Lyon.
""")
_TEAS: Final = """\
Sencha - green, Japan, fresh, a little grassy
Rooibos - South Africa, no caffeine, vanilla
Chamomile - flowers, from our own garden, soothing, for the evening
Lapsang - black, China, smoky, dried over pinewood
"""
_CAPTIONS: Final = folder("""
--- harbour.txt
Fishing boats in the harbour.
The picture was taken on a quiet Sunday mornign in May.
Photo: Inka Laine
--- market.txt
The market in the square.
Farmers sell cheese and honey here every Wensday.
Photo: Tom Abara
--- bridge.txt
The stone bridge across the river.
It was biult by monks in 1432.
Photo: Inka Laine
""")
_LETTERS: Final = folder("""
--- a.txt
Dear Sir or Madam,
I am 82 and take the bus from the Elm Street stop every other day. There is nowhere to sit, and the bus is often
late. Please put up a bench there.
Hedwig Paulsen
--- b.txt
To the town council.
I study in the evenings and work on Saturdays, so I never get to the library. Many people feel the same. Could it be
open on Sundays, at least in winter?
Yours, Omar Rashid
--- c.txt
Hello,
The street lamp in front of number 12 has been broken since October. My children walk home from school there in the
dark. Please have it repaired.
Tilda Brook
""")
_CAMPING: Final = folder("""
--- fragen.txt
1. Dürfen wir unseren Hund mitbringen, und was kostet das?
2. Bis wie viel Uhr können wir am Abend ankommen?
3. Wo gibt es bei Ihnen WLAN?
--- camping.txt
Campingplatz Seeblick

Stellplatz mit Strom: 18 Euro pro Nacht
Hunde: erlaubt, 3 Euro pro Nacht, bitte an der Leine
Anreise: bis 20 Uhr, danach ist die Schranke zu
Abreise: bis 11 Uhr
WLAN: kostenlos, aber nur im Café
Brötchen: jeden Morgen ab 8 Uhr am Kiosk
""")


def _not_a_copy(files: dict[str, str], most: float = 0.75) -> Check:
    return reworded("\n".join(files.values()), most)


def _urgent(*, urgent: bool) -> Check:
    """Return a check that a text says that a mail is urgent, or that it can wait."""

    def accepts(text: str) -> bool:
        pressing = re.search(r"(?<!not )(?<!n't )\burgent", plain(text))
        patient = re.search(r"\bcan wait\b|\bnot urgent\b|n't urgent\b", plain(text))
        return bool(pressing) and not patient if urgent else bool(patient) and not pressing

    return holds(accepts, "the label is missing or wrong")


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "water-for-plants",
        "parts",
        "How often does each of my four plants get water? There's a file for each. One line per plant will do, my "
        "neighbour looks after them.",
        every(
            each_part(
                {
                    "basil": ("basil", mentions(("every day", "daily", "each day", "once a day", "every single day"))),
                    "cactus": ("cactus", mentions(("three weeks", "3 weeks", "three-week*", "third week"))),
                    "fern": (
                        r"\bfern",
                        mentions(("twice", "two times", "2 times", "2x")),
                    ),
                    "orchid": (
                        "orchid",
                        every(
                            mentions(("once", "weekly", "every week", "each week", "one time", "every 7 days")),
                            lacks("twice", "two times"),
                        ),
                    ),
                }
            ),
            _not_a_copy(_PLANTS),
        ),
        _PLANTS,
        held_out=True,
    ),
    BenchJob(
        "urgent-mails",
        "parts",
        "mail1 to mail5 came in overnight. Tell me for each one whether it is urgent or can wait, in the form "
        "`mail9: can wait`, one line each.",
        every(
            each_part(
                {
                    f"mail{place}": (rf"mail ?{place}\b", _urgent(urgent=urgent))
                    for place, urgent in enumerate((True, False, False, True, False), 1)
                }
            ),
            words(10, 140),
        ),
        _MAILS,
        held_out=True,
    ),
    BenchJob(
        "counter-sign",
        "parts",
        'We need a sign for our café in German, French and Spanish: "Please order at the counter. We speak English."',
        every(
            mentions(("bestell*", "order*"), ("Theke", "Tresen", "Schalter", "Kasse", "Ladentisch"), "Englisch"),
            mentions(("command*", "passe*"), ("comptoir", "caisse"), "anglais"),
            mentions(
                ("pid*", "pedi*", "orden*", "haga*", "hagan*", "haz", "realice*", "solicit*"),
                ("mostrador", "barra", "caja"),
                "inglés",
            ),
            words(15, 130),
        ),
        held_out=True,
    ),
    BenchJob(
        "trip-for-two-readers",
        "parts",
        "Two texts about our class trip, please, the facts are in trip.txt. parents.txt: a short letter with the day, "
        "when the bus leaves and what it costs. kids.txt: two or three cheerful sentences about where we go and what "
        "to bring.",
        every(
            mentions(
                ("12 June", "June 12*", "12th June", "12th of June", "Tuesday"),
                ("8:15*", "08:15*", "8.15", "quarter past eight"),
                ("9", "9.00", "9,00", "nine", "9€"),
                file="parents.txt",
            ),
            words(20, 190, "parents.txt"),
            reworded(_TRIP, 0.75, "parents.txt"),
            mentions(
                "aquarium*",
                ("lunch*", "food", "sandwich*", "snack*"),
                ("rain*", "jacket*", "coat*"),
                file="kids.txt",
            ),
            words(12, 70, "kids.txt"),
            reworded(_TRIP, 0.75, "kids.txt"),
        ),
        {"trip.txt": _TRIP},
        ("parents.txt", "kids.txt"),
        held_out=True,
    ),
    BenchJob(
        "trois-velos",
        "parts",
        "Dis-moi la couleur et le prix de chaque vélo, s'il te plaît : une ligne par annonce, avec le nom du fichier "
        "devant.",
        every(
            each_part(
                {
                    "velo1": (r"v[ée]lo ?1\b|peugeot", mentions("rouge", "120*")),
                    "velo2": (r"v[ée]lo ?2\b", mentions(("vert", "verte"), "45*")),
                    "velo3": (r"v[ée]lo ?3\b|gitane", mentions(("bleu", "bleue"), "240*")),
                }
            ),
            words(9, 90),
            _not_a_copy(_BIKES),
        ),
        _BIKES,
        held_out=True,
    ),
    BenchJob(
        "tea-menu",
        "parts",
        "The tea menu still looks rather naked. Can you write an inviting sentence for each of the four in teas.txt, "
        "25 words at most? Every line starts with the name of the tea.",
        every(
            each_part(
                {
                    name: (name, every(words(6, 34), mentions_some(1, *facts)))
                    for name, facts in {
                        "sencha": (("Japan", "Japanese"), "green", "fresh*", "refresh*", "grass*"),
                        "rooibos": (("South Africa", "South African"), "caffeine*", "vanilla"),
                        "chamomile": ("flower*", "garden*", ("sooth*", "calm*", "relax*"), "evening*", "floral"),
                        "lapsang": (("China", "Chinese"), "black", ("smok*", "smoky"), "pine*", "pinewood"),
                    }.items()
                }
            ),
            words(28, 125),
            reworded(_TEAS, 0.7),
        ),
        {"teas.txt": _TEAS},
        held_out=True,
    ),
    BenchJob(
        "mistake-in-each-caption",
        "parts",
        "spell check pls! harbour.txt, market.txt and bridge.txt have one misspelt word each. name of the file, the "
        "word, and how it's spelt correctly",
        every(
            each_part(
                {
                    "harbour": (r"harbour\.txt|^\W*harbour|\n\W*harbour", mentions("morning")),
                    "market": (r"market\.txt|^\W*market|\n\W*market", mentions("Wednesday")),
                    "bridge": (r"bridge\.txt|^\W*bridge|\n\W*bridge", mentions("built")),
                }
            ),
            words(6, 120),
        ),
        _CAPTIONS,
        held_out=True,
    ),
    BenchJob(
        "letters-to-the-council",
        "parts",
        "Who wrote a.txt, b.txt and c.txt, and what does each of them want from the council? A sentence per letter.",
        every(
            each_part(
                {
                    "a": (r"\ba\.txt|letter a\b|paulsen", mentions("Paulsen", ("bench*", "seat*", "somewhere to sit"))),
                    "b": (r"\bb\.txt|letter b\b|rashid", mentions("Rashid", "library", "Sunday*")),
                    "c": (
                        r"\bc\.txt|letter c\b|brook",
                        mentions("Brook", ("lamp*", "streetlamp*", "light*", "streetlight*")),
                    ),
                }
            ),
            words(15, 130),
            _not_a_copy(_LETTERS),
        ),
        _LETTERS,
        held_out=True,
    ),
    BenchJob(
        "camping-fragen",
        "parts",
        "Die drei Fragen in fragen.txt hat uns ein Gast geschickt. Bitte beantworte jede mit einem Satz, in derselben "
        "Reihenfolge. Alles Nötige steht in camping.txt.",
        every(
            language("de"),
            in_order(
                ("3 Euro*", "3 €", "3€", "drei Euro", "3,00 €", "3,00 Euro"),
                ("20 Uhr", "20:00*", "20.00*", "acht Uhr abends", "8 Uhr abends"),
                ("Café*", "Cafe*"),
            ),
            lacks("18 Euro", "11 Uhr", "Brötchen"),
            words(15, 110),
        ),
        _CAMPING,
        held_out=True,
    ),
)
