"""Jobs with independent parts: several files, languages, readers, places or aspects in one request."""

import csv
import io
import re
from typing import Final

from benchmarks.jobs import part_files as given
from benchmarks.jobs.checks import (
    every,
    holds,
    in_order,
    items,
    lacks,
    language,
    lines,
    mentions,
    mentions_some,
    plain,
    reworded,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob, Check, JobAnswer
from benchmarks.jobs.part_checks import attributes, each_part, ending, json_list, only, unlike

COMMENT_LABELS: Final = (
    "delivery billing praise delivery billing praise delivery billing praise delivery "
    "billing praise delivery billing praise delivery billing praise delivery billing"
).split()
SHOPPING: Final = ("apples", "bread", "coffee", "eggs", "lemons", "milk", "rice", "soap", "tomatoes")
CITIES_DE: Final = {city: rf"\b{city.casefold()}\w*" for city in ("Wien", "Lissabon", "Oslo")}
HEATINGS: Final = {
    "heat pump": "heat pumps?",
    "pellet stove": "pellet( stoves?)?",
    "district heating": r"district heat\w*",
}
SECOND_REVIEW: Final = r"deuxi|avis ?2\b|second|cafard|(n°|num[ée]ro) ?2"
LAMP_FACTS: Final = (
    "800",
    ("9 hour*", "nine hour*"),
    ("640", "0.64"),
    "oak",
    "alumin*",
    "79",
    "Porto",
    ("2 October", "October 2", "2nd October", "October 2nd"),
    "USB*",
    "dimm*",
)


def _not_a_copy(files: dict[str, str], most: float = 0.75, file: str = "") -> Check:
    return reworded("\n".join(files.values()), most, file)


def _labels(answer: JobAnswer) -> list[str]:
    """Require 20 rows, and 17 right ones: some comments can be read in two ways."""
    rows = [row for row in csv.reader(io.StringIO(answer.file("labels.csv"))) if len(row) == 2]
    labels = {number.strip(" ."): label.strip().casefold() for number, label in rows if number.strip(" .").isdigit()}
    right = sum(labels.get(str(number)) == label for number, label in enumerate(COMMENT_LABELS, 1))
    return [f"labels.csv: {right} of 20 labels are right in {len(labels)}"] if right < 17 or len(labels) != 20 else []


def _renews(*, itself: bool) -> Check:
    """Require that a text says whether a contract renews itself. What is said of conditions does not count."""

    def accepts(text: str) -> bool:
        certain = re.sub(r"\b(unless|if|until)\b[^.;|]*", "", plain(text))
        denied = re.search(r"\bno\b|\bnot\b|n't\b|\bends (by|on|auto)|without|never", certain)
        affirmed = re.search(r"\byes\b|renew|exten|automatic", certain)
        return bool(affirmed) and not denied if itself else bool(denied)

    return holds(accepts, "whether it renews itself is missing or wrong")


def _paid(*, paid: bool) -> Check:
    """Require that a text says whether a claim is paid."""

    refusal = re.compile(
        r"(\bnot?|n't|\bnever) (be |get |to be )?(pa(y|id)|reimburs|allow|approv|cover|accept|ok)|\bunpaid|reject|"
        r"refus|\bden(y|ied)|declin|\bpa(y|id)( it)?\W+no\b|[:|-]\W*no\b"
    )
    approval = re.compile(r"\bpa(y|ys|id)\b|\byes\b|approv|allow|accept|\bok\b|cover|reimburs")

    def accepts(text: str) -> bool:
        refused = refusal.search(plain(text))
        return bool(approval.search(plain(text))) and not refused if paid else bool(refused)

    return holds(accepts, "the decision is missing or wrong")


def _subject_lines() -> Check:
    heading = re.compile(
        r".*:[*_\s]*$|\s*#|(\W|\d)*[\w.-]+\.(txt|md)\W*$|(\W|\d)*(bikes?|cinema|pool|zoo)( newsletters?)?\W*$", re.I
    )
    label = re.compile(r"^\W*(\d+\W+)?(subject( line)?( \d+)?:)?\W*", re.I)
    topics = {
        "bikes": r"bik|brake|gear|chain|\bbell\b|service|49|cycl|tune|ride",
        "cinema": r"film|cinema|varda|movie|thursday|student|screen",
        "pool": r"pool|swim|solar|24|season|ticket|heated|splash|dive|water|warm",
        "zoo": r"zoo|panda|cub|name|night",
    }

    def check(answer: JobAnswer) -> list[str]:
        listed = [line for line in answer.text.splitlines() if re.search(r"\w", line) and not heading.match(line)]
        marked = [line for line in listed if re.match(r'\W*([-*•"“]|\d+[.)])', line)]
        subjects = [label.sub("", line) for line in (listed if len(listed) == 12 else marked)]
        faults = [] if len(subjects) == 12 else [f"there are {len(subjects)} subject lines, not 12"]
        faults += [f"this has more than 8 words: {line}" for line in subjects if len(line.split()) > 8]
        faults += [
            f"the subject lines of {name} are missing"
            for name, words in topics.items()
            if sum(bool(re.search(words, line, re.I)) for line in subjects) < 2
        ]
        return faults + (["it has emojis"] if re.search(r"[\u2600-\u27bf\U0001f300-\U0001faff]", answer.text) else [])

    return check


def _quiz(answer: JobAnswer) -> list[str]:
    """Require six questions with an answer after each."""
    _, *answers = re.split(r"\?", answer.file("quiz.md"))
    faults = [] if len(answers) == 6 else [f"quiz.md: there are {len(answers)} questions, not 6"]
    return faults + (
        ["quiz.md: a question has no answer"] if any(not re.search(r"\w", text) for text in answers) else []
    )


def _glossary_line(term: str, *facts: str) -> Check:
    """Require a line of at most 20 words that starts with a term and has one of the facts."""

    def check(answer: JobAnswer) -> list[str]:
        start = re.compile(rf"\W*((the|a) )?{term}\b\W*\w", re.I)
        line = next((line for line in answer.file("glossary.md").splitlines() if start.match(line)), "")
        return [f"{term}: {fault}" for fault in every(words(5, 21), mentions(facts))(JobAnswer(line))]

    return check


def _translation(code: str, library: tuple[str, ...]) -> Check:
    file = f"notice.{code}.txt"
    times = (("9*", "09*", "neun", "neuf", "nueve"), ("13*", "1 p.m.", "1 pm"))
    return every(language(code, file), mentions(library, "14*", "17*", *times, file=file), words(25, 110, file))


def _mail(name: str, *facts: tuple[str, ...]) -> Check:
    file = f"antwort_{name}.txt"
    return every(language("de", file), words(12, 85, file), mentions(*facts, file=file))


def _invitation(name: str, seat: str, dish: str) -> Check:
    file = f"{name}.txt"
    others = {"amara", "bruno", "chiyo", "dimitri"} - {name}
    day = ("9 May", "May 9", "9th May", "9th of May", "May 9th", "9th of May", "9 of May")
    hour = ("19:00*", "7 pm", "7:00 pm", "7 p.m*", "7:00 p.m*", "19.00", "7pm", "seven")
    seated = re.compile(rf"table\W+((number|no|nr)\W+)?{seat}\b", re.I)
    return every(
        mentions(name, (dish, dish.split()[-1]), day, hour, file=file),
        holds(lambda text: bool(seated.search(text)), f"table {seat} is missing", file),
        words(15, 95, file),
        lacks(*others, file=file),
    )


JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "three-minutes",
        "parts",
        "Summarise each of these three meeting notes in two or three sentences, then list what is still open.",
        every(
            mentions_some(2, "dishwasher", ("plates", "60"), "kettle"),
            mentions_some(2, ("apple tree", "pruned"), ("pond", "fenc*"), "compost", ("moth", "hedge")),
            mentions_some(2, ("3,412", "3412", "3.412"), ("25", "membership"), "printer", "700"),
            ending(110, mentions(("extractor", "fan"), ("bee", "bees"), ("trailer", "insur*"))),
            _not_a_copy(given.MINUTES),
        ),
        given.MINUTES,
    ),
    BenchJob(
        "notice-languages",
        "parts",
        "could you translate notice.txt into german, french and spanish pls? notice.de.txt, notice.fr.txt, "
        "notice.es.txt",
        every(
            _translation("de", ("bibliothek*", "bücherei*")),
            _translation("fr", ("bibliothèque*",)),
            _translation("es", ("biblioteca*",)),
        ),
        given.LIBRARY_NOTICE,
        ("notice.de.txt", "notice.fr.txt", "notice.es.txt"),
    ),
    BenchJob(
        "boiler-notes",
        "parts",
        "I'm looking for everything we have about the boiler. Which of these notes mention it? Just the names of the "
        "files.",
        only(("note02", "note05", "note10"), [name.removesuffix(".txt") for name in given.HOUSE_NOTES]),
        given.HOUSE_NOTES,
    ),
    BenchJob(
        "comment-labels",
        "parts",
        "Sort the 20 comments into delivery, billing or praise. Write the result as labels.csv with the columns "
        "number,label and one line for each comment.",
        _labels,
        given.COMMENTS,
        ("labels.csv",),
    ),
    BenchJob(
        "recall-audiences",
        "parts",
        "recall.txt has to go out in three versions. customers.md: friendly, what they have to do and how they get "
        "their money, nothing technical. dealers.md: which kettles to take off the shelf and what the cause was. "
        "press.md: short and factual, says how many people were hurt.",
        every(
            mentions(
                "Brisa 2", ("stop*", "not use", "don't use", "no longer use"), "SAFE24", "39*", file="customers.md"
            ),
            lacks("alloy*", "rivet*", file="customers.md"),
            mentions("BR2*", "rivet*", ("alloy", "soft*", "steel"), file="dealers.md"),
            mentions("Brisa 2", ("three", "3"), ("burn*", "injur*", "hurt"), "recall*", file="press.md"),
            *(words(25, 160, name) for name in ("customers.md", "dealers.md", "press.md")),
            *(_not_a_copy(given.KETTLE, file=name) for name in ("customers.md", "dealers.md", "press.md")),
        ),
        given.KETTLE,
        ("customers.md", "dealers.md", "press.md"),
    ),
    BenchJob(
        "desk-offers",
        "parts",
        "Compare the three offers on price, delivery and warranty. A table please, and below it which one is the "
        "cheapest and which one the fastest.",
        every(
            holds(lambda text: len(re.findall(r"^.*\|.*\|.*$", text, re.M)) >= 4, "there is no table"),
            each_part(
                {
                    "Hartmann": (
                        "hartmann",
                        mentions(("2,890*", "2890*", "2.890*"), ("3 week*", "three week*"), ("5 year*", "five year*")),
                    ),
                    "Moebelwerk": (
                        "m(oe|ö)belwerk",
                        mentions(("2,450*", "2450*", "2.450*"), ("8 week*", "eight week*"), ("2 year*", "two year*")),
                    ),
                    "Nordic": (
                        "nordic",
                        mentions(("3,200*", "3200*", "3.200*"), ("5 day*", "five day*"), ("10 year*", "ten year*")),
                    ),
                }
            ),
            attributes(
                "cheapest|lowest[ -]price|lowest cost|least expensive|most affordable|best price",
                "m(oe|ö)belwerk",
                ("hartmann", "m(oe|ö)belwerk", "nordic"),
            ),
            attributes(
                "fastest|quickest|shortest delivery|soonest|earliest",
                "nordic",
                ("hartmann", "m(oe|ö)belwerk", "nordic"),
            ),
        ),
        given.OFFERS,
    ),
    BenchJob(
        "contract-terms",
        "parts",
        "For every contract in this folder I need two things: how long is the notice period, and does it renew "
        "itself? A line per contract is enough.",
        every(
            each_part(
                {
                    "cleaning": ("cleaning|blank", every(mentions(("3 month*", "three month*")), _renews(itself=True))),
                    "internet": ("internet|fibre", every(mentions(("4 week*", "four week*")), _renews(itself=False))),
                    "lift": (r"\blift\b|schindele", every(mentions(("6 month*", "six month*")), _renews(itself=True))),
                    "parking": (
                        "parking|car club",
                        every(mentions(("14 day*", "fourteen day*", "2 week*", "two week*")), _renews(itself=False)),
                    ),
                }
            ),
            _not_a_copy(given.CONTRACTS),
        ),
        given.CONTRACTS,
    ),
    BenchJob(
        "invoice-table",
        "parts",
        "pull supplier, date and total out of all the invoices -> invoices.csv (supplier,date,amount; dates like "
        "2025-01-31, amounts without currency)",
        table(
            *(
                ((lambda cell, name=name: name in cell.casefold()), date, amount)
                for name, date, amount in (
                    ("kordes", "2025-02-11", 172.5),
                    ("bright", "2025-02-28", 235),
                    ("lenz", "2025-03-03", 89.9),
                    ("yilmaz", "2025-03-09", 54),
                    ("ostwind", "2025-03-15", 350),
                )
            ),
            count=5,
            header=("supplier", "date", "amount"),
            file="invoices.csv",
        ),
        given.INVOICES,
        ("invoices.csv",),
    ),
    BenchJob(
        "rainy-cities",
        "parts",
        "Schreib mir bitte für Wien, Lissabon und Oslo je einen Absatz (50 bis 100 Wörter) darüber, was man dort an "
        "einem Regentag machen kann.",
        every(
            language("de"),
            each_part({name: (pattern, every(words(45, 120), language("de"))) for name, pattern in CITIES_DE.items()}),
            unlike(CITIES_DE),
        ),
    ),
    BenchJob(
        "lamp-texts",
        "parts",
        "We launch the lamp in facts.txt on Tuesday. I need description.md (about 80 words for the shop), post.txt (a "
        "social media post, 280 characters at the most) and specs.md with the technical data as a markdown table.",
        every(
            words(50, 120, "description.md"),
            mentions("Lumo 3", file="description.md"),
            mentions_some(3, *LAMP_FACTS, file="description.md"),
            _not_a_copy(given.LAMP, file="description.md"),
            mentions("Lumo*", file="post.txt"),
            mentions_some(1, *LAMP_FACTS, file="post.txt"),
            words(8, 60, "post.txt"),
            holds(lambda text: len(text.strip()) <= 280, "it has more than 280 characters", "post.txt"),
            holds(lambda text: len(re.findall(r"^.*\|.*\|.*$", text, re.M)) >= 3, "there is no table", "specs.md"),
            mentions("800*", "9*", "640*", "USB*", "oak", file="specs.md"),
        ),
        given.LAMP,
        ("description.md", "post.txt", "specs.md"),
    ),
    BenchJob(
        "module-review",
        "parts",
        "Review each of the three modules: the worst problem of each in one or two sentences. End with one verdict "
        "for all of them, ship or don't ship.",
        every(
            each_part(
                {
                    "average.py": ("average", mentions(("empty", "zero", "0", "no values", "ZeroDivision*"))),
                    "login.py": (
                        "login",
                        mentions(
                            (
                                "plain*",
                                "hard coded",
                                "hardcod*",
                                "hash*",
                                "clear text",
                                "print*",
                                "log",
                                "logs",
                                "logged",
                            )
                        ),
                    ),
                    "cleanup.py": (
                        r"clean_?up|remove_old",
                        mentions(
                            ("except*", "swallow*", "silent*", "ignor*", "hide*", "hidden", "director*", "subfolder*")
                        ),
                    ),
                }
            ),
            ending(
                50,
                holds(
                    lambda text: bool(
                        re.search(
                            r"(do|can|could|should|would|must)(n't| ?not)\b.{0,30}\bship|not (yet )?(be )?(ready|ship)",
                            plain(text),
                        )
                    ),
                    "the verdict is not: don't ship",
                ),
            ),
            _not_a_copy(given.MODULES),
        ),
        given.MODULES,
    ),
    BenchJob(
        "shopping-lists",
        "parts",
        "Merge our three shopping lists into shopping.txt: alphabetical, one thing a line, everything only once and "
        "in lower case. And tell me how many things each of us had written down.",
        every(
            lines(len(SHOPPING), file="shopping.txt"),
            in_order(*SHOPPING, file="shopping.txt"),
            holds(str.islower, "it is not in lower case", "shopping.txt"),
            each_part(
                {
                    "Anna": (r"\banna\b", mentions(("4", "four"))),
                    "Ben": (r"\bben\b", mentions(("4", "four"))),
                    "Carla": (r"\bcarla\b", mentions(("5", "five"))),
                }
            ),
        ),
        given.LISTS,
        ("shopping.txt",),
    ),
    BenchJob(
        "two-interviews",
        "parts",
        "Please boil the two interviews down to three bullet points each. The other stuff in the folder has nothing "
        "to do with it.",
        every(
            items(6, 8),
            each_part(
                {
                    "Anna": (
                        r"\banna\b",
                        mentions_some(
                            2, ("11", "eleven"), ("night", "five"), ("oven", "1988"), "apprentice", ("child*", "dinner")
                        ),
                    ),
                    "Boris": (
                        r"\bboris\b",
                        mentions_some(
                            2, ("42", "forty-two"), ("winter", "towed"), ("charging", "Lindau"), ("diesel", "electric")
                        ),
                    ),
                }
            ),
            lacks("lentil*", "tent", "balloon*", "12,000", "12000", "soup"),
            _not_a_copy({name: text for name, text in given.INTERVIEWS.items() if "interview" in name}),
        ),
        given.INTERVIEWS,
    ),
    BenchJob(
        "avis-hotel",
        "parts",
        "Résume chacun des avis en une phrase et dis-moi à la fin lequel des quatre est le plus négatif.",
        every(
            language("fr"),
            mentions(
                ("petit-déjeuner", "18"),
                ("cafard*", "eau froide", "remboursement"),
                ("champagne", "vue", "mariage", "personnel", "accueil"),
                ("parking", "ascenseur", "calme", "raisonnable"),
            ),
            ending(
                45,
                attributes(
                    "plus négati|pire|plus mauvais",
                    SECOND_REVIEW,
                    (
                        SECOND_REVIEW,
                        r"avis ?1\b|premi|(n°|num[ée]ro) ?1",
                        r"avis ?3\b|troisi|(n°|num[ée]ro) ?3",
                        r"avis ?4\b|quatri|(n°|num[ée]ro) ?4",
                    ),
                ),
            ),
            words(40, 170),
            _not_a_copy(given.REVIEWS_FR),
        ),
        given.REVIEWS_FR,
    ),
    BenchJob(
        "recetas-json",
        "parts",
        "Saca de cada receta el nombre, para cuántas personas es, los minutos y los ingredientes, y guárdalo en "
        "recetas.json: una lista con un objeto por receta (nombre, personas, minutos, ingredientes).",
        json_list(
            {"nombre": "gazpacho", "personas": 4, "minutos": 20, "ingredientes": ["tomate", "pepino", "ajo", "aceite"]},
            {
                "nombre": "lentejas",
                "personas": 6,
                "minutos": 50,
                "ingredientes": ["lenteja", "chorizo", "zanahoria", "cebolla"],
            },
            {"nombre": "tortilla", "personas": 2, "minutos": 35, "ingredientes": ["patata", "huevo", "aceite"]},
            key="nombre",
            file="recetas.json",
        ),
        given.RECIPES_ES,
        ("recetas.json",),
    ),
    BenchJob(
        "kundenmails",
        "parts",
        "Beantworte bitte jede der drei Mails kurz und höflich, höchstens 80 Wörter. Was du wissen musst, steht in "
        "hinweise.txt. Ergebnis: antwort_keller.txt, antwort_oezcan.txt, antwort_wolff.txt",
        every(
            _mail("keller", ("Keller",), ("drei Tag*", "3 Tag*"), ("Blumenk*", "kostenlos*", "dritte*")),
            _mail("oezcan", ("Özcan", "Deniz", "Oezcan"), ("9*", "neun"), ("14*", "vierzehn"), ("Samstag*",)),
            _mail("wolff", ("Wolff",), ("Brandt",), ("Dienstag*",), ("15*",)),
        ),
        given.MAILS_DE,
        ("antwort_keller.txt", "antwort_oezcan.txt", "antwort_wolff.txt"),
    ),
    BenchJob(
        "subject-lines",
        "parts",
        "i need 3 subject lines for each of our 4 newsletters (the txt files), max 8 words each and no emojis!!",
        _subject_lines(),
        given.NEWSLETTERS,
    ),
    BenchJob(
        "guestbook-english",
        "parts",
        "r1 to r4 are from our guest book. What do they say in English? Put the name of the language that each was "
        "written in in front of the translation.",
        every(
            language("en"),
            each_part(
                {
                    "German": (r"\bgerman\b", mentions(("food", "meal", "dinner"), "hour", "dessert")),
                    "French": (r"\bfrench\b", mentions(("nois*", "loud*"), "fish")),
                    "Spanish": (r"\bspanish\b", mentions(("waiter", "server"), ("dessert", "pudding"), "birthday")),
                    "Italian": (
                        r"\bitalian\b",
                        mentions(("bill", "check"), ("twelve", "12*"), ("apolog*", "sorry", "excus*")),
                    ),
                }
            ),
            words(40, 220),
            _not_a_copy(given.GUESTBOOK, 0.6),
        ),
        given.GUESTBOOK,
    ),
    BenchJob(
        "applicants-json",
        "parts",
        "Make candidates.json from the CVs: a list with an object per applicant, keys name, years (years of "
        "experience, a number) and licence (driving licence, true or false).",
        json_list(
            {"name": "aydin", "years": 9, "licence": True},
            {"name": "brandt", "years": 1, "licence": False},
            {"name": "costa", "years": 14, "licence": True},
            {"name": "dupont", "years": 5, "licence": False},
            key="name",
            file="candidates.json",
        ),
        given.APPLICANTS,
        ("candidates.json",),
    ),
    BenchJob(
        "first-errors",
        "parts",
        "What was the first ERROR in each of the log files and at what time did it happen? If a log has none, say "
        "none.",
        every(
            each_part(
                {
                    "auth": (r"\bauth\b", mentions("09:02:47", ("certificate", "expired"))),
                    "mailer": (r"\bmailer\b", mentions("10:41:05", ("refused", "smtp*", "connection"))),
                    "shop": (r"\bshop\b", mentions("12:31:02", ("payment", "timed", "timeout"))),
                    "search": (r"\bsearch\b", mentions(("none", "no error*", "no"))),
                }
            ),
            lacks("09:03:10", "11:00:00", "09:15:00"),
            _not_a_copy(given.LOGS),
        ),
        given.LOGS,
    ),
    BenchJob(
        "glossary",
        "parts",
        "Explain probe, hub, reading, zone, threshold and valve the way manual.txt uses them. One sentence per term, "
        "20 words at most, each on a line of its own that starts with the term. glossary.md",
        every(
            _glossary_line("probe", "pin", "moisture", "ground", "steel"),
            _glossary_line("hub", "box", "collect*", "indoor*"),
            _glossary_line("reading", "value", "time"),
            _glossary_line("zone", "group", "probes"),
            _glossary_line("threshold", "percent*", "moisture"),
            _glossary_line("valve", "motor", "tap", "water"),
        ),
        given.TERMS,
        ("glossary.md",),
    ),
    BenchJob(
        "heating-options",
        "parts",
        "We can't decide between a heat pump, a pellet stove and district heating. Give me two advantages and two "
        "disadvantages of each and then one sentence with what you recommend for a small terraced house.",
        every(
            mentions(
                ("advantage*", "pro", "pros", "benefit*", "upside*"),
                ("disadvantage*", "con", "cons", "drawback*", "downside*"),
            ),
            each_part({name: (pattern, words(12, 260)) for name, pattern in HEATINGS.items()}),
            unlike(HEATINGS),
            words(50, 330),
            ending(
                60,
                mentions(
                    ("recommend*", "best", "choose", "suit*", "ideal", "go for", "go with", "opt"),
                    ("heat pump*", "pellet*", "district*"),
                    ("terraced", "small", "house", "home"),
                ),
            ),
        ),
    ),
    BenchJob(
        "chapter-quiz",
        "parts",
        "My pupils read three chapters. Two quiz questions with their answers for each chapter, all in quiz.md please.",
        every(
            _quiz,
            mentions_some(2, ("2,000", "2000"), ("six weeks", "6 weeks"), "danc*", "queen", file="quiz.md"),
            mentions_some(2, "fung*", ("eight*", "8*"), "leaves", file="quiz.md"),
            mentions_some(2, "king", "30*", "saliva", "mound*", file="quiz.md"),
            _not_a_copy(given.CHAPTERS, file="quiz.md"),
        ),
        given.CHAPTERS,
        ("quiz.md",),
    ),
    BenchJob(
        "travel-claims",
        "parts",
        "Go through claim1 to claim6 and check each against policy.txt. Do we pay it or not, and why? Half a sentence "
        "each.",
        every(
            each_part(
                {
                    f"claim{number}": (rf"claim ?_?{number}\b|\b{name}\b", every(_paid(paid=paid), mentions(reason)))
                    for number, name, paid, reason in (
                        (1, "mira", True, ("95", "120", "hotel*", "limit", "within", "below", "under")),
                        (2, "paul", False, ("22*", "14:30", "night", "time", "hours", "between")),
                        (3, "yusuf", True, ("second", "train*")),
                        (4, "greta", True, ("28", "35", "meal*", "dinner", "limit", "within", "below", "under")),
                        (5, "oskar", False, ("180", "120", "limit", "exceed*", "above", "over", "more than")),
                        (6, "lena", False, ("alcohol*", "wine")),
                    )
                }
            ),
            _not_a_copy(given.CLAIMS),
        ),
        given.CLAIMS,
    ),
    BenchJob(
        "dinner-invitations",
        "parts",
        "Everybody in guests.csv gets a short invitation of their own (2-3 sentences) to the dinner on 9 May at 19:00 "
        "that says which table they sit at and what they eat. Files: amara.txt, bruno.txt, chiyo.txt, dimitri.txt",
        every(
            _invitation("amara", "4", "mushroom risotto"),
            _invitation("bruno", "2", "trout"),
            _invitation("chiyo", "7", "lamb curry"),
            _invitation("dimitri", "2", "vegetable tart"),
        ),
        given.GUESTS,
        ("amara.txt", "bruno.txt", "chiyo.txt", "dimitri.txt"),
    ),
)
